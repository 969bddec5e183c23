"""Names that every part must agree on: labels, ports, field managers, names of children.

Decides how an object of a service is called and labelled. Never decides which objects there are.
"""

from shardwright.api.llmservice import GROUP

LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_SERVICE = f"{GROUP}/service"
LABEL_REVISION = f"{GROUP}/revision"
LABEL_ROLE = f"{GROUP}/role"
LABEL_SERVING = f"{GROUP}/serving"
LABEL_GPU_FAULT = f"{GROUP}/gpu-fault"
"""On a node: no new pods of ours, until the time that is its value (20261130T180000Z); of another value,
until it is taken off."""

APP_NAME = "shardwright-llm"
MANAGED_BY = "shardwright"
ROLE_ENGINE = "engine"
ROLE_ROUTER = "router"
ROLE_FETCH = "fetch"

ENGINE_CONTAINER = "engine"
ENGINE_PORT = 8000
"""vLLM's own default; the number matters to nobody outside the pod."""
ENGINE_PORT_NAME = "http"
ROUTER_CONTAINER = "router"
ROUTER_PORT = 8000
ROUTER_METRICS_PORT = 29000
"""The router's own default."""
ENDPOINTS_CONTAINER = "endpoints"
ENDPOINTS_PORT = 8001
ACTIVATOR_PORT = 8002
"""Probes of `shardwright endpoints`, beside the router."""
API_KEY = "VLLM_API_KEY"
"""The variable with the key that vLLM asks for. Who may read a pod can read its arguments."""
FETCH_CONTAINER = "fetch"
CLIENT_PORT = 80
"""The client's endpoint: the port that HTTP clients use when a URL has none."""

FIELD_MANAGER = "shardwright"
STATUS_FIELD_MANAGER = "shardwright-status"
CLI_FIELD_MANAGER = "shardwright-cli"
"""Of what `shardwright approve` and `shardwright rollback` write, as their user."""


def workload_name(service: str, revision: str) -> str:
    """Name of the Deployment and of the ControllerRevision of one plan: `chat-1a2b3c4d`."""
    return f"{service}-{revision}"


def engine_service_name(service: str) -> str:
    """Name of the headless Service over the engines."""
    return f"{service}-engine"


def fetch_name(service: str, digest: str) -> str:
    """Name of the Job that fetches weights: `chat-fetch-1a2b3c4d`."""
    return f"{service}-fetch-{digest}"


def router_name(service: str) -> str:
    """Name of the routers' Deployment, and of what goes with it."""
    return f"{service}-router"


def router_selector(service: str) -> dict[str, str]:
    """Labels on all router pods of a service."""
    return {LABEL_SERVICE: service, LABEL_ROLE: ROLE_ROUTER}


def router_labels(service: str) -> dict[str, str]:
    """Labels on the routers' objects and pods, and on the Service that selects them."""
    return service_labels(service) | {LABEL_ROLE: ROLE_ROUTER}


def service_labels(service: str) -> dict[str, str]:
    """Labels on every object of a service."""
    return {
        LABEL_NAME: APP_NAME,
        LABEL_INSTANCE: service,
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_SERVICE: service,
    }


def revision_labels(service: str, revision: str) -> dict[str, str]:
    """Labels on the workload of one revision and, with LABEL_SERVING added, on its pods."""
    return service_labels(service) | {LABEL_REVISION: revision, LABEL_ROLE: ROLE_ENGINE}


def engine_selector(service: str) -> dict[str, str]:
    """Labels on all engine pods of a service, whatever their revision: for PodDisruptionBudget and /scale."""
    return {LABEL_SERVICE: service, LABEL_ROLE: ROLE_ENGINE}


def endpoint(namespace: str, service: str) -> str:
    """Return the OpenAI-compatible base URL that a client inside the cluster uses."""
    return f"http://{service}.{namespace}.svc:{CLIENT_PORT}/v1"


def gateway_path(namespace: str, service: str) -> str:
    """Return the path at a Gateway under which a service is, without what a client adds (`/v1/...`)."""
    return f"/{namespace}/{service}"


def url_host(address: str) -> str:
    """Return an IP as a URL has it."""
    return f"[{address}]" if ":" in address else address

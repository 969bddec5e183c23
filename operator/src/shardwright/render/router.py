"""The routers of a service: their Deployment, identity, right and disruption budget.

Decides every field of them. They hold nothing that is lost with them: the list of engines comes from the
EndpointSlices, by `shardwright endpoints` in the same pod. Never decides whether the Service selects them.
"""

from typing import Final

from shardwright.api.defaults import idle_seconds, resolve
from shardwright.api.llmservice import LLMService, LLMServiceSpec
from shardwright.api.names import (
    ACTIVATOR_PORT,
    API_KEY,
    ENDPOINTS_CONTAINER,
    ENDPOINTS_PORT,
    ENGINE_PORT_NAME,
    ROUTER_CONTAINER,
    ROUTER_METRICS_PORT,
    ROUTER_PORT,
    engine_service_name,
    router_labels,
    router_name,
    router_selector,
)
from shardwright.render.children import metadata
from shardwright.render.request import JsonObject, RouterParts
from shardwright.render.routing import policy, refuses
from shardwright.render.scheduling import HOSTNAME, LOST
from shardwright.render.template import PRESTOP_S

REPLICAS: Final = 2
RUN_AS_USER: Final = 65532
TEARDOWN_S: Final = 10
"""After the last stream: it ended within 2 s of it when that was watched."""
CHECK_PERIOD_S: Final = 2
CHECK_FAILURES: Final = 2
CHECK_TIMEOUT_S: Final = 5
"""An engine that refuses connections is left out after some 4 s, one whose node is silent after some 14 s;
the kubelet's word on the first comes sooner, by the EndpointSlice. vLLM answers /health late while it reads
large requests: less than 5 s would take busy engines for dead."""
STARTUP_S: Final = 3
"""How long `add_worker` waits for a worker's health. Who is in an EndpointSlice answered a probe just now."""
CIRCUIT_S: Final = 10
"""How long an engine that failed ten requests gets none. The default, 60 s, outlasts a restart; and another
pod may have its address."""
REQUEST_S: Final = 86_400
"""Longest request. The default of 30 minutes cuts streams; how long one may last is for engine and client."""
ATTEMPTS: Final = 5
"""How often a request is tried, as counted: `--retry-max-retries` has the first one in it. The default,
stated: what keeps a request whole whose engine died or drains before its first byte."""
STARTUP_PROBE: Final = {"periodSeconds": 2, "failureThreshold": 60}
"""Two minutes to listen, as the operator has them: both take a second or two, but on a node where much starts
at once a liveness probe alone would end them before they ever answered, and both pods together."""
HELD_REQUESTS: Final = 256
"""Requests that each router's activator holds; some KiB each, and 64 MiB in all at most."""
HELD_BEYOND_START_S: Final = 120
"""How much longer than the start-up budget: the pod is made, placed and pulled before that begins."""
TOKEN_S: Final = 3600
"""Life of the token by which slices are read; the kubelet renews it."""
_ACCOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


def router_objects(
    service: LLMService, parts: RouterParts, engine: JsonObject, startup_s: int
) -> tuple[JsonObject, ...]:
    """Return the routers' objects.

    `engine` is the container of the engines behind them, `startup_s` what one of them may take to start.
    """
    return (
        _account(service),
        _binding(service, parts),
        _budget(service),
        _deployment(service, parts, engine, startup_s),
    )


def _account(service: LLMService) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(service),
        # Mounted in the container that needs it, and in no other.
        "automountServiceAccountToken": False,
    }


def _binding(service: LLMService, parts: RouterParts) -> JsonObject:
    name, namespace = router_name(service.metadata.name), service.metadata.namespace
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(service),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": parts.role_kind,
            "name": parts.role_name,
        },
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }


def _budget(service: LLMService) -> JsonObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(service),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": router_selector(service.metadata.name)},
        },
    }


def _deployment(service: LLMService, parts: RouterParts, engine: JsonObject, startup_s: int) -> JsonObject:
    name = service.metadata.name
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(service),
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": router_selector(name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 0,
            "template": {
                "metadata": {
                    "labels": router_labels(name),
                    "annotations": {
                        "kubectl.kubernetes.io/default-container": ROUTER_CONTAINER,
                        "prometheus.io/scrape": "true",
                        "prometheus.io/port": str(ROUTER_METRICS_PORT),
                        "prometheus.io/path": "/metrics",
                    },
                },
                "spec": _pod(service, parts, engine, startup_s),
            },
        },
    }


def _pod(service: LLMService, parts: RouterParts, engine: JsonObject, startup_s: int) -> JsonObject:
    spec, name = service.spec, service.metadata.name
    words = engine.get("args") or []
    refused = _holds(spec) or refuses(words)
    secrets = (spec.engine.image_pull_secrets if spec.engine else None) or []
    pod: JsonObject = {
        "serviceAccountName": router_name(name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": PRESTOP_S + resolve(spec).drain_seconds + TEARDOWN_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": RUN_AS_USER,
            "runAsGroup": RUN_AS_USER,
            # The projected token becomes readable for the group.
            "fsGroup": RUN_AS_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": router_selector(name)},
                            "topologyKey": HOSTNAME,
                        },
                    }
                ]
            }
        },
        "tolerations": list(LOST),
        "containers": [
            _router(router_args(policy(spec, words), refused=refused), parts.image),
            _endpoints(service, parts, engine, startup_s),
        ],
        "volumes": [_token_volume(), {"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}}],
    }
    if spec.pool.priority_class_name:
        pod["priorityClassName"] = spec.pool.priority_class_name
    if secrets:
        pod["imagePullSecrets"] = [{"name": secret.name} for secret in secrets]
    return pod


def router_args(chosen: str, *, refused: bool = False) -> list[str]:
    """Return the router's arguments. Each default that a promise rests on is stated.

    `refused`: workers that are well may answer 503. Ten of these, two requests, would open a circuit. Of the
    activator: for a while the router would refuse by itself what could be held, without a Retry-After. Of
    engines whose queues are full: eight requests too many were seen to close two of them for ten seconds.
    """
    return [
        "--host=0.0.0.0",
        f"--port={ROUTER_PORT}",
        f"--policy={chosen}",
        "--prometheus-host=0.0.0.0",
        f"--prometheus-port={ROUTER_METRICS_PORT}",
        f"--health-check-interval-secs={CHECK_PERIOD_S}",
        f"--health-failure-threshold={CHECK_FAILURES}",
        "--health-success-threshold=1",
        f"--health-check-timeout-secs={CHECK_TIMEOUT_S}",
        f"--worker-startup-timeout-secs={STARTUP_S}",
        "--worker-startup-check-interval=1",
        f"--request-timeout-secs={REQUEST_S}",
        f"--retry-max-retries={ATTEMPTS}",
        "--disable-circuit-breaker" if refused else f"--cb-timeout-duration-secs={CIRCUIT_S}",
        "--log-level=warning",
    ]


def _router(args: list[str], image: str) -> JsonObject:
    return {
        "name": ROUTER_CONTAINER,
        "image": image,
        "command": ["vllm-router"],
        "args": args,
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 -- the emptyDir below
        "ports": [
            {"name": ENGINE_PORT_NAME, "containerPort": ROUTER_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": ROUTER_METRICS_PORT, "protocol": "TCP"},
        ],
        # No CPU limit: a throttled router delays every token.
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "startupProbe": _probe("/liveness", ENGINE_PORT_NAME, **STARTUP_PROBE),
        # Before it has been given its engines a router answers 503: its neighbour says when that is over.
        "readinessProbe": _probe("/readyz", ENDPOINTS_PORT, periodSeconds=2, failureThreshold=2),
        "livenessProbe": _probe("/liveness", ENGINE_PORT_NAME, periodSeconds=10, failureThreshold=3),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRESTOP_S}}},
        "securityContext": _restricted(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }


def _endpoints(service: LLMService, parts: RouterParts, engine: JsonObject, startup_s: int) -> JsonObject:
    name = service.metadata.name
    container: JsonObject = {
        "name": ENDPOINTS_CONTAINER,
        "image": parts.endpoints_image,
        "args": [
            "endpoints",
            f"--service={engine_service_name(name)}",
            f"--namespace={service.metadata.namespace}",
            f"--router=http://127.0.0.1:{ROUTER_PORT}",
            f"--port={ENDPOINTS_PORT}",
            *_activator(service, startup_s),
        ],
        "ports": [{"name": "endpoints", "containerPort": ENDPOINTS_PORT, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
        "startupProbe": _probe("/healthz", "endpoints", **STARTUP_PROBE),
        "readinessProbe": _probe("/readyz", "endpoints", periodSeconds=2, failureThreshold=2),
        "livenessProbe": _probe("/healthz", "endpoints", periodSeconds=20, failureThreshold=3),
        # As long as requests may come, engines may come and go.
        "lifecycle": {"preStop": {"sleep": {"seconds": PRESTOP_S}}},
        "securityContext": _restricted(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "token", "mountPath": _ACCOUNT_PATH, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }
    key = [entry for entry in engine.get("env") or () if entry["name"] == API_KEY]
    if key and _holds(service.spec):
        # What would have no answer of an engine must not wake one. The spec's key may be one that waits.
        container["env"] = key
    return container


def _holds(spec: LLMServiceSpec) -> bool:
    """Whether requests are held while there is no engine."""
    return idle_seconds(spec) is not None


def _activator(service: LLMService, startup_s: int) -> list[str]:
    """Return how requests are held while there is no engine; nothing where one always runs."""
    spec = service.spec
    if not _holds(spec):
        return []
    stated, wait_s = (
        (spec.routing.max_queued_requests, spec.routing.max_queue_seconds) if spec.routing else (None, None)
    )
    return [
        f"--activator-port={ACTIVATOR_PORT}",
        f"--model={spec.model.served_name or service.metadata.name}",
        f"--hold-requests={HELD_REQUESTS if stated is None else stated}",
        f"--hold-seconds={wait_s or startup_s + HELD_BEYOND_START_S}",
        f"--drain-seconds={resolve(spec).drain_seconds}",
    ]


def _token_volume() -> JsonObject:
    """Return what the kubelet mounts by itself where automounting is on: the client looks there."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "name": "token",
        "projected": {
            "defaultMode": 0o440,
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_S}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
        },
    }


def _probe(path: str, port: str | int, **timing: int) -> JsonObject:
    return {"httpGet": {"path": path, "port": port}, "timeoutSeconds": 5} | dict(timing)


def _restricted() -> JsonObject:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def _metadata(service: LLMService) -> JsonObject:
    name = service.metadata.name
    return metadata(service, router_name(name), router_labels(name))

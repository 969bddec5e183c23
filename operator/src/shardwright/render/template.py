"""The pod of one engine.

Decides every field of the pod template. Nothing here depends on replicas, on scaling or on the time: the
template of a revision is rendered once and then re-applied as stored.
"""

from typing import Final

from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMService, LLMServiceSpec
from shardwright.api.names import (
    ENGINE_CONTAINER,
    ENGINE_PORT,
    ENGINE_PORT_NAME,
    LABEL_SERVING,
    engine_service_name,
    revision_labels,
)
from shardwright.catalog.engines import DEFAULT_ENGINE_VERSION, engine_class
from shardwright.planner.types import Plan
from shardwright.render import overlay
from shardwright.render.command import COMMAND, engine_args
from shardwright.render.digest import ANNOTATION_TEMPLATE_VERSION, TEMPLATE_VERSION
from shardwright.render.environment import RUN_AS_USER, environment, environment_from
from shardwright.render.quantity import binary, cpu
from shardwright.render.request import JsonObject
from shardwright.render.scheduling import affinity, spread, tolerations
from shardwright.render.startup import PROBE_PERIOD_S, StartupBudget, startup_budget
from shardwright.render.storage import Storage, source_type, storage

IMAGES: Final = {"nvidia": "vllm/vllm-openai", "amd": "vllm/vllm-openai-rocm"}
"""vLLM's own images by GPU vendor."""

PRESTOP_S: Final = 15
"""How long a terminating pod still serves, so that every proxy has dropped its endpoint. vLLM answers new
requests with 500 once it has the signal, and /health stays 200: nothing but the endpoint's removal stops
traffic. The `sleep` action needs Kubernetes 1.30 and no shell in the image."""
TEARDOWN_S: Final = 30
"""After the drain: a measured CPU engine took 16 s to stop its workers; a GPU engine frees its memory
besides."""


def pod_template(
    service: LLMService,
    plan: Plan,
    *,
    revision_hash: str,
    preferred_nodes: tuple[str, ...] = (),
    pod_monitor: bool = False,
    fetched: bool = False,
) -> JsonObject:
    """Return the pod template of a new revision, the user's overlay applied.

    `pod_monitor` says that metrics are scraped through a PodMonitor; else the pod carries scrape annotations.
    `fetched` says that a Job has put into the cache what the engine needs of a hub.
    """
    spec, name = service.spec, service.metadata.name
    budget = startup_budget(plan, source_type(spec))
    annotations = {
        ANNOTATION_TEMPLATE_VERSION: str(TEMPLATE_VERSION),
        "kubectl.kubernetes.io/default-container": ENGINE_CONTAINER,
    }
    if not pod_monitor:
        annotations |= {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(ENGINE_PORT),
            "prometheus.io/path": "/metrics",
        }
    files = storage(spec, plan, fetched=fetched)
    rendered: JsonObject = {
        "metadata": {
            "labels": revision_labels(name, revision_hash) | {LABEL_SERVING: "true"},
            "annotations": annotations,
        },
        "spec": _pod_spec(service, plan, _engine(service, plan, budget, files), files)
        | _placement(service, plan, revision_hash, preferred_nodes),
    }
    return overlay.apply(rendered, spec.pod_template or {})


def _pod_spec(service: LLMService, plan: Plan, engine: JsonObject, files: Storage) -> JsonObject:
    spec, name = service.spec, service.metadata.name
    resolved = resolve(spec)
    pod: JsonObject = {
        "serviceAccountName": engine_service_name(name),
        "automountServiceAccountToken": False,
        # A Service called `vllm` would otherwise put VLLM_PORT=tcp://... here, and vLLM refuses to start.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": PRESTOP_S + resolved.drain_seconds + TEARDOWN_S,
        "securityContext": _pod_security(plan.product.vendor),
        "containers": [engine],
        "volumes": list(files.volumes),
    }
    return pod | _optional(spec)


def _placement(
    service: LLMService, plan: Plan, revision_hash: str, preferred_nodes: tuple[str, ...]
) -> JsonObject:
    alone = resolve(service.spec).survive_node_loss
    return {
        "affinity": affinity(plan, preferred_nodes),
        "topologySpreadConstraints": spread(service.metadata.name, revision_hash, survive_node_loss=alone),
        "tolerations": tolerations(service.spec, plan),
    }


def _optional(spec: LLMServiceSpec) -> JsonObject:
    pool = spec.pool
    secrets = (spec.engine.image_pull_secrets if spec.engine else None) or []
    found: JsonObject = {
        "nodeSelector": dict(sorted((pool.node_selector or {}).items())),
        "priorityClassName": pool.priority_class_name,
        "schedulerName": pool.scheduler_name,
        "imagePullSecrets": [{"name": secret.name} for secret in secrets],
    }
    return {key: value for key, value in found.items() if value}


def _engine(service: LLMService, plan: Plan, budget: StartupBudget, files: Storage) -> JsonObject:
    spec = service.spec
    version = (spec.engine and spec.engine.version) or DEFAULT_ENGINE_VERSION
    vendor = plan.product.vendor
    container: JsonObject = {
        "name": ENGINE_CONTAINER,
        "image": (spec.engine and spec.engine.image) or f"{IMAGES[vendor]}:v{version.removeprefix('v')}",
        "command": list(COMMAND),
        "args": engine_args(service, plan, engine_class(version), files),
        "env": environment(spec, files, budget, vendor),
        "ports": [{"name": ENGINE_PORT_NAME, "containerPort": ENGINE_PORT, "protocol": "TCP"}],
        "resources": _resources(plan),
        "startupProbe": _probe(
            periodSeconds=PROBE_PERIOD_S, timeoutSeconds=5, failureThreshold=budget.probe_failures
        ),
        "livenessProbe": _probe(periodSeconds=10, timeoutSeconds=5, failureThreshold=3),
        "readinessProbe": _probe(periodSeconds=5, timeoutSeconds=5, failureThreshold=2),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRESTOP_S}}},
        "securityContext": _container_security(vendor),
        # The last log lines become the termination message: what the diagnosis reads.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": list(files.mounts),
    }
    credentials = environment_from(spec)
    return container | ({"envFrom": credentials} if credentials else {})


def _resources(plan: Plan) -> JsonObject:
    """Return requests and limits. No CPU limit: throttled threads stall every GPU of the replica."""
    amount = plan.pod_resources
    memory, gpus = binary(amount.memory_bytes), str(amount.gpus)
    requests = {"cpu": cpu(amount.cpu_millis), "memory": memory, plan.gpu_resource: gpus}
    if amount.ephemeral_bytes:
        requests["ephemeral-storage"] = binary(amount.ephemeral_bytes)
    return {"requests": requests, "limits": {"memory": memory, plan.gpu_resource: gpus}}


def _probe(**timing: int) -> JsonObject:
    """Return a probe of /health. vLLM opens its port only once it can serve: until then it is refused."""
    return {"httpGet": {"path": "/health", "port": ENGINE_PORT_NAME}} | dict(timing)


def _pod_security(vendor: str) -> JsonObject:
    context: JsonObject = {"seccompProfile": {"type": "RuntimeDefault"}}
    if vendor == "nvidia":
        # The claim of a cache becomes writable for the group; a large one is not walked again at each start.
        context |= {
            "runAsNonRoot": True,
            "runAsUser": RUN_AS_USER,
            "runAsGroup": RUN_AS_USER,
            "fsGroup": RUN_AS_USER,
            "fsGroupChangePolicy": "OnRootMismatch",
        }
    return context


def _container_security(vendor: str) -> JsonObject:
    """Return the container's restrictions.

    The ROCm image keeps its own user and a writable root: /dev/kfd belongs to a group whose number differs
    between hosts, and AITER compiles kernels into its own package directory.
    """
    context: JsonObject = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if vendor == "nvidia":
        context |= {"readOnlyRootFilesystem": True}
    return context

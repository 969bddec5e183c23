"""Raw Kubernetes nodes and pods as the small values that decisions read.

Decides which parts of an object matter and how a pod's effective request is counted. Never decides whether a
node is usable. Takes dicts as the API server sends them; what is absent there reads as the scheduler reads
it. An amount that cannot be read never counts as free: a pod holds all of it, a node has none of it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from sys import intern
from typing import cast

from shardwright.api.names import (
    LABEL_REVISION,
    LABEL_ROLE,
    LABEL_SERVICE,
    LABEL_SERVING,
    ROLE_FETCH,
    ROLE_ROUTER,
    fetch_name,
    router_name,
    workload_name,
)
from shardwright.topology.quantities import MOST, QuantityError, milli, shown, whole
from shardwright.topology.types import NodeFacts, PodFacts, Resources, Taint

NVIDIA_RESOURCE = "nvidia.com/gpu"
AMD_RESOURCE = "amd.com/gpu"

_TEMPLATE_HASH = "pod-template-hash"
"""Label of a Deployment's ReplicaSets and of their pods; also the end of a ReplicaSet's name."""
_TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
_QUIET_WAITING = frozenset({"ContainerCreating", "PodInitializing", ""})
_NOTHING = Resources()
_RESOURCES = (NVIDIA_RESOURCE, AMD_RESOURCE, "cpu", "memory", "ephemeral-storage")
_ANY = dict.fromkeys(_RESOURCES, MOST)
MOST_NODE_GPUS = 1024
"""GPUs of one node, far above any that is built: what is beyond it is a mistake of whoever reports it."""
_NODE = {
    NVIDIA_RESOURCE: MOST_NODE_GPUS,
    AMD_RESOURCE: MOST_NODE_GPUS,
    "cpu": MOST // 1000,
    "memory": MOST - 1,
    "ephemeral-storage": MOST - 1,
}


def _map(value: object) -> Mapping[str, object]:
    if type(value) is dict:  # nearly always, and the check against Mapping is slow
        return value
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Mapping[str, object]]:
    if type(value) is list:
        return value
    return cast("Sequence[Mapping[str, object]]", value) if isinstance(value, list | tuple) else ()


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _amount(raw: Mapping[str, object]) -> Resources:
    """Read a resource list as an amount; a resource that is not named is none of it, as for the scheduler.

    Raises QuantityError.
    """
    return Resources(
        gpus=whole(raw.get(NVIDIA_RESOURCE, "0")) + whole(raw.get(AMD_RESOURCE, "0")),
        cpu_millis=milli(raw.get("cpu", "0")),
        memory_bytes=whole(raw.get("memory", "0")),
        ephemeral_bytes=whole(raw.get("ephemeral-storage", "0")),
    )


def _beyond(raw: Mapping[str, object], most: Mapping[str, int]) -> list[str]:
    """Name the resources whose amount cannot be read, or is larger than `most` of it in whole units."""
    found = []
    for name, limit in most.items():
        try:
            fine = whole(raw.get(name, "0")) <= limit
        except QuantityError:
            fine = False
        if not fine:
            found.append(name)
    return found


def _held(raw: Mapping[str, object]) -> Resources:
    """Read what somebody holds; of a resource whose amount cannot be read, more than any node has."""
    try:
        return _amount(raw)
    except QuantityError:
        return _amount({**raw, **dict.fromkeys(_beyond(raw, _ANY), MOST)})


def _offered(raw: Mapping[str, object]) -> tuple[Resources, tuple[str, ...]]:
    """Read what a node has, and name the amounts that no node can have; of such a resource it has none."""
    try:
        found = _amount(raw)
    except QuantityError:
        pass
    else:
        if found.gpus <= MOST_NODE_GPUS and max(found) < MOST:
            return found, ()
    bad = _beyond(raw, _NODE)
    told = tuple(f"{name}: {shown(raw[name])}" for name in bad)
    return _amount({**raw, **dict.fromkeys(bad, "0")}), told


def _condition(status: Mapping[str, object], kind: str) -> Mapping[str, object]:
    return next((c for c in _list(status.get("conditions")) if c.get("type") == kind), {})


def node_facts(raw: Mapping[str, object]) -> NodeFacts:
    """Read a v1 Node. Labels are kept whole, with shared strings, since a nodeSelector may use any."""
    metadata, spec, status = _map(raw.get("metadata")), _map(raw.get("spec")), _map(raw.get("status"))
    allocatable = _map(status.get("allocatable"))
    labels = {intern(str(k)): intern(str(v)) for k, v in _map(metadata.get("labels")).items()}
    amounts, unreadable = _offered(allocatable)
    amd = AMD_RESOURCE in allocatable or ("amd.com/gpu.product-name" in labels)
    return NodeFacts(
        name=intern(_text(metadata.get("name"))),
        labels=labels,
        taints=tuple(
            Taint(_text(t.get("key")), _text(t.get("value")), _text(t.get("effect")))
            for t in _list(spec.get("taints"))
        ),
        unschedulable=bool(spec.get("unschedulable", False)),
        ready=_condition(status, "Ready").get("status") == "True",
        allocatable=amounts,
        unreadable=unreadable,
        gpu_resource=AMD_RESOURCE if amd and NVIDIA_RESOURCE not in allocatable else NVIDIA_RESOURCE,
    )


def _requests(container: Mapping[str, object]) -> Resources:
    """Count a container; a limit without a request is the request, as the API server defaults it."""
    resources = _map(container.get("resources"))
    merged = {**_map(resources.get("limits")), **_map(resources.get("requests"))}
    return _held(merged) if merged else _NOTHING


def _largest(a: Resources, b: Resources) -> Resources:
    return Resources(*(max(x, y) for x, y in zip(a, b, strict=True)))


def effective_requests(spec: Mapping[str, object]) -> Resources:
    """Count what the scheduler counts for a pod spec, dimension by dimension.

    The larger of the containers together with the sidecars, and each init container together with the
    sidecars that start before it; plus the overhead. Pod-level CPU and memory replace that sum. Source:
    Kubernetes documentation, "Sidecar containers: resource sharing within containers" and "Pod overhead".
    """
    sidecars, peak = _NOTHING, _NOTHING
    for container in _list(spec.get("initContainers")):
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = sidecars.plus(own)
            peak = _largest(peak, sidecars)
        else:
            peak = _largest(peak, sidecars.plus(own))
    total = sidecars
    for container in _list(spec.get("containers")):
        total = total.plus(_requests(container))
    total = _largest(total, peak)
    pod_level = _map(_map(spec.get("resources")).get("requests"))
    if pod_level:
        stated = _held(pod_level)
        total = total._replace(
            cpu_millis=stated.cpu_millis if "cpu" in pod_level else total.cpu_millis,
            memory_bytes=stated.memory_bytes if "memory" in pod_level else total.memory_bytes,
        )
    overhead = _map(spec.get("overhead"))
    return total.plus(_held(overhead)) if overhead else total


def is_terminal(raw: Mapping[str, object]) -> bool:
    """Whether a pod has ended (Succeeded or Failed) and holds nothing any more."""
    return _map(raw.get("status")).get("phase") in _TERMINAL_PHASES


def _trouble(status: Mapping[str, object]) -> tuple[str, int]:
    """Find the worst container's reason and the restarts of all containers."""
    waiting, ended, restarts = "", "", 0
    for container in (*_list(status.get("initContainerStatuses")), *_list(status.get("containerStatuses"))):
        count = container.get("restartCount", 0)
        restarts += count if isinstance(count, int) else 0
        state = _map(container.get("state"))
        reason = _text(_map(state.get("waiting")).get("reason"))
        waiting = waiting or ("" if reason in _QUIET_WAITING else reason)
        for past in (state, _map(container.get("lastState"))):
            if _map(past.get("terminated")).get("reason") == "OOMKilled":
                ended = "OOMKilled"
    if ended or waiting:
        return ended or waiting, restarts
    scheduled = _condition(status, "PodScheduled")
    return (_text(scheduled.get("reason")) if scheduled.get("status") == "False" else ""), restarts


def _service_of(metadata: Mapping[str, object], labels: Mapping[str, object]) -> str:
    """Name the LLMService whose pod this is: a ReplicaSet of its Deployment controls it.

    Labels alone say nothing: anybody can copy them.
    """
    service = _text(labels.get(LABEL_SERVICE))
    if not service:
        return ""
    name = f"{workload_name(service, _text(labels.get(LABEL_REVISION)))}-{_text(labels.get(_TEMPLATE_HASH))}"
    return service if _controller(metadata, "ReplicaSet") == name else ""


def _routed_service(metadata: Mapping[str, object], labels: Mapping[str, object]) -> str:
    """Name the LLMService whose router this pod is, likewise."""
    if labels.get(LABEL_ROLE) != ROLE_ROUTER:
        return ""
    service = _text(labels.get(LABEL_SERVICE))
    name = f"{router_name(service)}-{_text(labels.get(_TEMPLATE_HASH))}"
    return service if _controller(metadata, "ReplicaSet") == name else ""


def _controller(metadata: Mapping[str, object], kind: str) -> str:
    """Name the object of a kind that controls this one; an object has one controller at most."""
    owners = map(_map, _list(metadata.get("ownerReferences")))
    found = (owner for owner in owners if owner.get("controller") and owner.get("kind") == kind)
    return next((_text(owner.get("name")) for owner in found), "")


def _seconds(time: object) -> float:
    """Read a time of the API server; zero for none, or one that cannot be read."""
    if not isinstance(time, str):
        return 0.0
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return 0.0


def _end(metadata: Mapping[str, object], spec: Mapping[str, object]) -> tuple[float, int]:
    """Return when a pod's own grace period is over, and how long it is; zeros where it has not all of it."""
    at_s = _seconds(metadata.get("deletionTimestamp"))
    own, given = spec.get("terminationGracePeriodSeconds"), metadata.get("deletionGracePeriodSeconds")
    if not at_s or not isinstance(own, int) or not isinstance(given, int) or given < own:
        return 0.0, 0
    return at_s - given + own, own


def _job_of(metadata: Mapping[str, object], labels: Mapping[str, object]) -> str:
    """Name the Job whose pod this is, when it fetches weights for an LLMService; as with `_service_of`."""
    if labels.get(LABEL_ROLE) != ROLE_FETCH:
        return ""
    name = _controller(metadata, "Job")
    return name if name.startswith(fetch_name(_text(labels.get(LABEL_SERVICE)), "")) else ""


def pod_facts(raw: Mapping[str, object]) -> PodFacts:
    """Read a v1 Pod. A pod that has ended asks for nothing.

    A pod that is being deleted still holds what it asked for until it is gone. A request that cannot be read
    counts as more than any node has.
    """
    metadata, spec, status = _map(raw.get("metadata")), _map(raw.get("spec")), _map(raw.get("status"))
    labels = _map(metadata.get("labels"))
    trouble, restarts = _trouble(status)
    owner = intern(_service_of(metadata, labels))
    ends_s, grace_s = _end(metadata, spec) if owner else (0.0, 0)
    router_of = intern(_routed_service(metadata, labels))
    return PodFacts(
        namespace=intern(_text(metadata.get("namespace")) or "default"),
        name=_text(metadata.get("name")),
        node=intern(_text(spec.get("nodeName")) or _text(status.get("nominatedNodeName"))),
        requests=_NOTHING if is_terminal(raw) else effective_requests(spec),
        owner=owner,
        revision=intern(_text(labels.get(LABEL_REVISION))),
        ready=_condition(status, "Ready").get("status") == "True",
        terminating=metadata.get("deletionTimestamp") is not None,
        trouble=intern(trouble),
        restarts=restarts,
        serving=labels.get(LABEL_SERVING) == "true",
        address=_text(status.get("podIP")) if owner or router_of else "",
        router_of=router_of,
        ends_s=ends_s,
        grace_s=grace_s,
        fetches=_job_of(metadata, labels),
    )

"""Where the scheduler may put a pod, and where it should: affinity, spreading, tolerations.

Decides constraints that the stock scheduler understands. Never pins a pod to a node: a pinned pod cannot move
when its node is lost, so the places that the ledger holds are preferred, not required.
"""

import re
from itertools import chain, product
from typing import Final

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.names import LABEL_GPU_FAULT, LABEL_REVISION, LABEL_SERVICE
from shardwright.api.pool import PoolSpec, Toleration
from shardwright.planner.types import Plan
from shardwright.render.request import JsonObject
from shardwright.topology.nodes import (
    AMD_PRODUCT_LABEL,
    COUNT_LABEL,
    DRIVER_LABELS,
    MEMORY_LABEL,
    PRODUCT_LABEL,
    SHARING_LABEL,
    gpu_toleration,
)

HOSTNAME: Final = "kubernetes.io/hostname"
NODE_LOSS_S: Final = 60
"""How long a pod stays on an unreachable node before it is replaced. Kubernetes' default of 300 s is five
minutes of lost capacity; below about 40 s a short loss of the node's lease would already move tens of GiB of
weights."""
MAX_PREFERRED_NODES: Final = 32
MOST_NODE_GPUS: Final = 16
"""No server of the product table has more (a2-megagpu: 16 A100)."""
NO_SPREAD_SKEW: Final = 10_000
"""More pods than a node can hold, so that the constraint never rejects one."""

LOST: Final[tuple[JsonObject, ...]] = tuple(
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NODE_LOSS_S}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
)
"""Tolerations of a node that is lost."""

_LABEL_VALUE = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")


def affinity(plan: Plan, preferred_nodes: tuple[str, ...]) -> JsonObject:
    """Return the node affinity: the product and shape that were planned, then the nodes that hold a place."""
    node: JsonObject = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _terms(plan)}}
    if preferred_nodes:
        node["preferredDuringSchedulingIgnoredDuringExecution"] = [
            # By name: the hostname label may differ from it. A term takes one name only.
            {
                "weight": 100,
                "preference": {
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}],
                },
            }
            for name in sorted(set(preferred_nodes))[:MAX_PREFERRED_NODES]
        ]
    return {"nodeAffinity": node}


def _terms(plan: Plan) -> list[JsonObject]:
    """Return the alternatives of the required affinity; a node has to meet one of them."""
    common = _requirements(plan)
    choices = [] if plan.product.vendor == "amd" else [*_memory(plan), *_driver(plan)]
    return [{"matchExpressions": [*common, *chain(*chosen)]} for chosen in product(*choices)]


def _memory(plan: Plan) -> list[list[list[JsonObject]]]:
    if not plan.min_gpu_memory_mib:
        return []
    # A product label set by hand comes without the memory label; capacity is then the product's.
    return [[[_more(MEMORY_LABEL, plan.min_gpu_memory_mib)], [_absent(MEMORY_LABEL)]]]


def _driver(plan: Plan) -> list[list[list[JsonObject]]]:
    if not plan.min_driver_major:
        return []
    new, old = DRIVER_LABELS
    enough = plan.min_driver_major
    return [
        [
            [_more(new, enough)],
            [_absent(new), _more(old, enough)],
            [_absent(new), _absent(old)],
        ]
    ]


def _more(label: str, at_least: int) -> JsonObject:
    return {"key": label, "operator": "Gt", "values": [str(at_least - 1)]}


def _absent(label: str) -> JsonObject:
    return {"key": label, "operator": "DoesNotExist"}


def _requirements(plan: Plan) -> list[JsonObject]:
    """Return what every alternative asks. NotIn lets a node pass that lacks the label, as the pool does."""
    known = (plan.product.label, *plan.product.aliases)
    names = sorted({name for name in known if _LABEL_VALUE.match(name)})
    if plan.product.vendor == "amd":
        # AMD's labeller has no count and no sharing label; the resource request does the counting.
        return [{"key": AMD_PRODUCT_LABEL, "operator": "In", "values": names}, _absent(LABEL_GPU_FAULT)]
    # Full names only: nodes that offer MIG slices or shared GPUs under a name of their own are out.
    found: list[JsonObject] = [{"key": PRODUCT_LABEL, "operator": "In", "values": names}]
    counts = list(range(1, max(plan.nodes_gpus, plan.pod_resources.gpus)))
    if plan.most_node_gpus:
        counts += range(plan.most_node_gpus + 1, MOST_NODE_GPUS + 1)
    if counts:
        found.append({"key": COUNT_LABEL, "operator": "NotIn", "values": [str(count) for count in counts]})
    # Not mig.strategy: the GPU operator sets it to single on nodes whose GPUs are whole, too.
    found.append({"key": SHARING_LABEL, "operator": "NotIn", "values": ["mps", "time-slicing"]})
    # A node whose GPUs failed gets no new pods, and keeps those that run: affinity counts at scheduling only.
    found.append(_absent(LABEL_GPU_FAULT))
    return found


def spread(service: str, revision: str, *, survive_node_loss: bool) -> list[JsonObject]:
    """Return the topology spread constraint, always one.

    A pod without any gets the scheduler's cluster defaults, which spread replicas over nodes and zones and so
    leave a few GPUs of each NVLink island over that no wider pod can use. The constraint written here keeps
    those defaults away: it never rejects a node, and one that only filters adds no score. With
    surviveNodeLoss it scores instead, and pods go to nodes that hold none of them yet; as a preference, so
    that a small pool leaves no pod Pending.
    """
    labels = {LABEL_SERVICE: service, LABEL_REVISION: revision}
    return [
        {
            "maxSkew": 1 if survive_node_loss else NO_SPREAD_SKEW,
            "topologyKey": HOSTNAME,
            "whenUnsatisfiable": "ScheduleAnyway" if survive_node_loss else "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]


def tolerations(spec: LLMServiceSpec, plan: Plan) -> list[JsonObject]:
    """Return the user's tolerations and ours: those that the pool counted with, and of lost nodes.

    Of a lost node the user's own word comes first; the GPU taint is tolerated whatever else is.
    """
    theirs = [_toleration(entry) for entry in spec.pool.tolerations or []]
    gpu = _toleration(gpu_toleration(plan.gpu_resource))
    spoken = {entry.get("key") for entry in theirs if entry.get("effect", "NoExecute") == "NoExecute"}
    lost = [entry for entry in LOST if entry["key"] not in spoken]
    return theirs + ([] if gpu in theirs else [gpu]) + lost


def pool_of_template(template: JsonObject, pool: PoolSpec) -> PoolSpec:
    """Return the pool that the pods of a recorded template can be scheduled to, whatever `pool` says."""
    pod = template.get("spec") or {}
    tolerated = [entry for entry in pod.get("tolerations") or () if entry not in LOST]
    return pool.model_copy(
        update={
            "node_selector": pod.get("nodeSelector"),
            "tolerations": [Toleration.model_validate(entry) for entry in tolerated] or None,
            "gpu_products": None,  # the plan itself says which one it is for
        }
    )


def _toleration(entry: Toleration) -> JsonObject:
    return entry.model_dump(by_alias=True, exclude_none=True)

"""One node as a place for engines, or the reason why it is not one.

Decides which nodes count, how many GPUs of a node count, and how large a group of its GPUs is sure to be
linked. Never looks at what is free now: that changes with every pod, and a plan must not.
"""

import re
from collections.abc import Iterable, Mapping

from shardwright.api.names import LABEL_GPU_FAULT
from shardwright.api.pool import PoolSpec, Toleration
from shardwright.catalog.types import BRIDGED, GPUProduct, Interconnect
from shardwright.topology.facts import AMD_RESOURCE, NVIDIA_RESOURCE
from shardwright.topology.types import ExcludedNode, Exclusion, Island, NodeFacts, PoolNode, Taint

PRODUCT_LABEL = "nvidia.com/gpu.product"
COUNT_LABEL = "nvidia.com/gpu.count"
MEMORY_LABEL = "nvidia.com/gpu.memory"
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
SHARING_LABEL = "nvidia.com/gpu.sharing-strategy"
AMD_PRODUCT_LABEL = "amd.com/gpu.product-name"
AMD_MEMORY_LABEL = "amd.com/gpu.vram"
DRIVER_LABELS = ("nvidia.com/cuda.driver-version.major", "nvidia.com/cuda.driver.major")
ZONE_LABEL = "topology.kubernetes.io/zone"

MEMORY_TOLERANCE = 0.05
"""A memory label within this share of the product's is the same memory: it varies with driver and ECC."""

_FULL_MESH = frozenset({Interconnect.NVSWITCH, Interconnect.RACK_NVSWITCH, Interconnect.XGMI})
_CUBE_MESH_QUAD = 4
_DIGITS = re.compile(r"[0-9]{1,18}")


def gpu_toleration(gpu_resource: str) -> Toleration:
    """Return what every pod of ours tolerates: GPU nodes are usually tainted to keep other pods away."""
    return Toleration(key=gpu_resource, operator="Exists")


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Kubernetes' rule: an empty key with Exists matches all, an absent effect matches every effect."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if (toleration.operator or "Equal") == "Exists":
        return not toleration.key or toleration.key == taint.key
    return toleration.key == taint.key and (toleration.value or "") == taint.value


def _repelling(node: NodeFacts, tolerations: Iterable[Toleration]) -> Taint | None:
    allowed = (gpu_toleration(node.gpu_resource), *tolerations)
    hard = (t for t in node.taints if t.effect in {"NoSchedule", "NoExecute"})
    return next((t for t in hard if not any(_tolerates(a, t) for a in allowed)), None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _DIGITS.fullmatch(text) else None


def _has_gpus(node: NodeFacts) -> bool:
    """Whether the node says anything of GPUs; others (control plane, CPU nodes) are none of our business."""
    if node.allocatable.gpus > 0 or PRODUCT_LABEL in node.labels or AMD_PRODUCT_LABEL in node.labels:
        return True
    return any(told.startswith((NVIDIA_RESOURCE, AMD_RESOURCE)) for told in node.unreadable)


def gpus_of(node: NodeFacts) -> int:
    """Return the GPUs that count: the smaller of label and allocatable; allocatable without a label."""
    labelled = _number(node.labels.get(COUNT_LABEL))
    return node.allocatable.gpus if labelled is None else min(labelled, node.allocatable.gpus)


def _selector_miss(node: NodeFacts, selector: Mapping[str, str] | None) -> str:
    for key, value in sorted((selector or {}).items()):
        have = node.labels.get(key)
        if have != value:
            found = f"is {have!r}" if have is not None else "is missing"
            return f"pool.nodeSelector wants {key}={value}, and that label {found} on the node"
    return ""


def _sharing(labels: Mapping[str, str]) -> tuple[Exclusion, str] | None:
    """Time-slicing, MPS and MIG hand out parts of GPUs: their count is not a count of GPUs."""
    product = labels.get(PRODUCT_LABEL, "")
    # mig.strategy says nothing: the GPU operator sets it to single on nodes whose GPUs are whole, too.
    if "-MIG-" in product:
        return Exclusion.MIG, (
            f"its GPUs are split by MIG ({PRODUCT_LABEL}={product}); a plan needs whole GPUs: set "
            "nvidia.com/mig.config=all-disabled on the node"
        )
    if any(k.startswith("nvidia.com/mig-") and k.endswith(".count") and v != "0" for k, v in labels.items()):
        return Exclusion.MIG, (
            "some of its GPUs are split by MIG (nvidia.com/mig-* labels), which ones cannot be told: "
            "set nvidia.com/mig.config=all-disabled on the node"
        )
    strategy, replicas = labels.get(SHARING_LABEL, "none"), _number(labels.get(REPLICAS_LABEL)) or 1
    if product.endswith("-SHARED") or strategy != "none" or replicas > 1:
        return Exclusion.SHARED, (
            f"its GPUs are shared ({SHARING_LABEL}={strategy}, {REPLICAS_LABEL}={replicas}); an engine needs "
            "whole GPUs, as those that share one wait for each other's steps: turn sharing off in the device "
            "plugin's configuration for this node"
        )
    return None


def _product(node: NodeFacts, products: Mapping[str, GPUProduct]) -> GPUProduct | tuple[Exclusion, str]:
    label = node.labels.get(PRODUCT_LABEL) or node.labels.get(AMD_PRODUCT_LABEL)
    if label is None:
        key = AMD_PRODUCT_LABEL if node.gpu_resource == AMD_RESOURCE else PRODUCT_LABEL
        return Exclusion.NO_GPU_LABEL, (
            f"it has {node.allocatable.gpus} GPUs but no label {key}: install GPU feature discovery (or "
            "the ROCm node labeller), or set that label by hand"
        )
    product = products.get(label)
    if product is None:
        return Exclusion.UNKNOWN_PRODUCT, (
            f"{PRODUCT_LABEL}={label} is not in the catalogue of GPU products, so its memory and links are "
            "unknown; pool.gpuProducts cannot add it: add a row for it to catalog/data/gpu_products.json"
        )
    return product


def island_of(product: GPUProduct, gpus: int, labelled_gpus: int, bridges: str) -> Island:
    """Find the largest group of the node's GPUs that is linked whichever GPUs the device plugin hands out.

    The device plugin chooses the GPUs of a pod, and what it prefers is a hint only. So a switch counts up to
    its size, a cube mesh only on nodes of at most four GPUs, and a bridged pair only where the node has
    exactly two GPUs and `bridges` ("None" or "Pairs") says that the bridge is fitted.
    """
    if gpus <= 1:
        return Island(size=1, linked=False)
    if product.interconnect in _FULL_MESH and gpus <= product.island_gpus:
        return Island(size=gpus, linked=True)
    if product.interconnect is Interconnect.CUBE_MESH and labelled_gpus <= _CUBE_MESH_QUAD:
        return Island(size=gpus, linked=True)
    if product.interconnect in BRIDGED and bridges == "Pairs" and gpus == labelled_gpus == 2:
        return Island(size=2, linked=True)
    return Island(size=1, linked=False)


def _memory(node: NodeFacts, product: GPUProduct) -> tuple[int, str]:
    """MiB of one GPU, from the node's own label where it has one; never more than the product can have."""
    text = node.labels.get(MEMORY_LABEL)
    stated = _number(text)
    if stated is None:
        vram = node.labels.get(AMD_MEMORY_LABEL, "")
        gib = _number(vram[:-1]) if vram.endswith("G") else None
        stated = None if gib is None else gib * 1024
    if stated is None:
        return product.memory_mib, ""
    if abs(stated - product.memory_mib) <= MEMORY_TOLERANCE * product.memory_mib:
        return min(stated, product.memory_mib), ""
    note = f"the node's label says {stated} MiB a GPU where {product.label} has {product.memory_mib} MiB"
    return min(stated, product.memory_mib), note


def _unusable(node: NodeFacts, spec: PoolSpec) -> tuple[Exclusion, str] | None:
    miss = _selector_miss(node, spec.node_selector)
    if miss:
        return Exclusion.SELECTOR, miss
    if node.unschedulable:
        return Exclusion.CORDONED, "it is cordoned: run kubectl uncordon on it when it may be used again"
    if not node.ready:
        return Exclusion.NOT_READY, "its Ready condition is not True: see kubectl describe node"
    if LABEL_GPU_FAULT in node.labels:
        return Exclusion.GPU_FAULT, (
            "GPUs of engines on it failed, and it gets no new pods until "
            f"{node.labels[LABEL_GPU_FAULT] or 'its label is gone'}: look at nvidia-smi -q and for Xid "
            f"errors in its kernel's log, and when it is mended run kubectl label node {node.name} "
            f"{LABEL_GPU_FAULT}-"
        )
    taint = _repelling(node, spec.tolerations or ())
    if taint is not None:
        shown = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        return (
            Exclusion.TAINTED,
            f"its taint {shown} is not tolerated: add it to pool.tolerations if it may be used",
        )
    if node.unreadable:
        return Exclusion.UNREADABLE, (
            f"its allocatable amounts are none that a node can have ({', '.join(node.unreadable)}): see "
            "kubectl describe node; the kubelet reports them, and GPUs its device plugin"
        )
    return _sharing(node.labels)


def _wanted(product: GPUProduct, spec: PoolSpec) -> bool:
    names = {product.label, product.short_name, *product.aliases}
    return spec.gpu_products is None or not names.isdisjoint(spec.gpu_products)


def _usable_product(
    node: NodeFacts, products: Mapping[str, GPUProduct], spec: PoolSpec
) -> GPUProduct | tuple[Exclusion, str]:
    """Find the product of a node that may be used, or why it may not."""
    refusal = _unusable(node, spec)
    if refusal is not None:
        return refusal
    product = _product(node, products)
    if isinstance(product, GPUProduct) and not _wanted(product, spec):
        return (
            Exclusion.PRODUCT_NOT_WANTED,
            f"its GPUs are {product.label}, which pool.gpuProducts leaves out",
        )
    if isinstance(product, GPUProduct) and gpus_of(node) <= 0:
        labelled = node.labels.get(COUNT_LABEL, "unknown")
        return Exclusion.NO_GPUS, (
            f"its label says {labelled} GPUs but none is allocatable: check its device plugin pod"
        )
    return product


def place_of(
    node: NodeFacts, products: Mapping[str, GPUProduct], spec: PoolSpec, bridges: str
) -> PoolNode | ExcludedNode | None:
    """Turn a node into a place with all of it free, or say why not; None for a node without GPUs."""
    if not _has_gpus(node):
        return None
    product = _usable_product(node, products, spec)
    if not isinstance(product, GPUProduct):
        reason, message = product
        return ExcludedNode(node=node.name, reason=reason, message=f"{node.name}: {message}")
    labelled, gpus = _number(node.labels.get(COUNT_LABEL)) or node.allocatable.gpus, gpus_of(node)
    memory_mib, note = _memory(node, product)
    capacity = node.allocatable._replace(gpus=gpus)
    return PoolNode(
        name=node.name,
        product=product.label,
        gpu_memory_mib=memory_mib,
        gpus=gpus,
        island=island_of(product, gpus, labelled, bridges),
        capacity=capacity,
        free=capacity,
        gpu_resource=node.gpu_resource,
        driver_major=next(
            (n for n in (_number(node.labels.get(k)) for k in DRIVER_LABELS) if n is not None), None
        ),
        zone=node.labels.get(ZONE_LABEL, ""),
        labelled_gpus=labelled,
        memory_note=note,
    )

"""Node and pod manifests as a real GPU fleet shows them: labels of GPU feature discovery, capacity, taints.

It decides what a simulated machine claims about itself. Pure: it talks to no cluster. The figures are written
down here, apart from the operator's catalogue, so that a mistake there cannot hide behind the same mistake here.
"""

from dataclasses import dataclass
from typing import Any

from harness.components import FAKE_NODE_ANNOTATION

Manifest = dict[str, Any]

GPU_RESOURCE = "nvidia.com/gpu"
GPU_TAINT: Manifest = {"key": GPU_RESOURCE, "value": "present", "effect": "NoSchedule"}
FOREIGN_NAMESPACE = "other-team"
_DRIVER = ("580", "95", "05")
_CUDA = ("13", "0")


@dataclass(frozen=True, slots=True)
class GpuProduct:
    """What feature discovery reads from one GPU model, and a machine it usually sits in."""

    family: str
    compute: tuple[int, int]
    memory_mib: int
    machine: str
    gpus: int
    cpu_cores: int
    memory_gib: int
    mig_capable: bool = False


PRODUCTS: dict[str, GpuProduct] = {
    "NVIDIA-H100-80GB-HBM3": GpuProduct("hopper", (9, 0), 81559, "PowerEdge-XE9680", 8, 192, 2048, True),
    "NVIDIA-H200": GpuProduct("hopper", (9, 0), 143771, "PowerEdge-XE9680", 8, 192, 2048, True),
    "NVIDIA-B200": GpuProduct("blackwell", (10, 0), 183359, "DGXB200", 8, 224, 2048, True),
    "NVIDIA-GB200": GpuProduct("blackwell", (10, 0), 189471, "GB200-NVL", 4, 144, 960, True),
    "NVIDIA-A100-SXM4-80GB": GpuProduct(
        "ampere", (8, 0), 81920, "DGXA100-920-23687-2530-000", 8, 256, 2048, True
    ),
    "NVIDIA-A100-SXM4-40GB": GpuProduct(
        "ampere", (8, 0), 40960, "DGXA100-920-23687-2530-000", 8, 128, 1024, True
    ),
    "NVIDIA-H100-PCIe": GpuProduct("hopper", (9, 0), 81559, "ProLiant-DL380a-Gen11", 4, 128, 1024, True),
    "NVIDIA-L40S": GpuProduct("ada-lovelace", (8, 9), 46068, "SYS-421GE-TNRT", 4, 96, 768),
    "NVIDIA-L4": GpuProduct("ada-lovelace", (8, 9), 23034, "PowerEdge-R760", 4, 64, 256),
    "NVIDIA-A10": GpuProduct("ampere", (8, 6), 23028, "PowerEdge-R750", 4, 64, 256),
    "NVIDIA-RTX-A6000": GpuProduct("ampere", (8, 6), 49140, "SYS-4029GP-TRT", 4, 64, 512),
    "Tesla-T4": GpuProduct("turing", (7, 5), 15360, "PowerEdge-R740", 4, 48, 192),
}
# MIG profiles seen through the "single" strategy: (instances per GPU, memory label in MiB).
_MIG_PROFILES: dict[str, tuple[int, int]] = {"1g.5gb": (7, 4864), "1g.10gb": (7, 9984), "3g.40gb": (2, 40448)}


def gpu_node(
    name: str,
    product: str,
    *,
    gpus: int | None = None,
    allocatable_gpus: int | None = None,
    zone: str = "zone-a",
    time_slicing_replicas: int = 1,
    mig_profile: str | None = None,
    mig_strategy: str | None = None,
    clique: str | None = None,
    taints: tuple[Manifest, ...] = (),
    cordoned: bool = False,
    labels: dict[str, str] | None = None,
) -> Manifest:
    """Build a GPU node.

    `mig_strategy` is the operator-wide setting that feature discovery reports on every MIG-capable node, MIG
    used or not; `mig_profile` cuts all GPUs into that profile under the "single" strategy.
    """
    model = PRODUCTS[product]
    physical = model.gpus if gpus is None else gpus
    devices, memory_mib, label = physical, model.memory_mib, product
    if mig_profile is not None:
        per_gpu, memory_mib = _MIG_PROFILES[mig_profile]
        devices, label = physical * per_gpu, f"{product}-MIG-{mig_profile}"
        mig_strategy = "single"
    if time_slicing_replicas > 1:
        label = f"{label}-SHARED"
    found = _discovered(model, label, devices, memory_mib, time_slicing_replicas)
    found |= _mig_labels(model, mig_profile, mig_strategy)
    if clique is not None:
        found["nvidia.com/gpu.clique"] = clique
    schedulable = devices * time_slicing_replicas
    return _node(
        name,
        labels=found | (labels or {}),
        zone=zone,
        capacity=_capacity(model.cpu_cores, model.memory_gib) | {GPU_RESOURCE: str(schedulable)},
        allocatable_gpus=schedulable if allocatable_gpus is None else allocatable_gpus,
        taints=taints,
        cordoned=cordoned,
    )


def cpu_node(name: str, *, zone: str = "zone-a", cpu_cores: int = 32, memory_gib: int = 128) -> Manifest:
    """Build a node without GPUs, where routers and other small pods belong."""
    return _node(
        name,
        labels={},
        zone=zone,
        capacity=_capacity(cpu_cores, memory_gib),
        allocatable_gpus=None,
        taints=(),
        cordoned=False,
    )


def pool(
    n_nodes: int,
    product: str,
    gpus_per_node: int | None = None,
    *,
    prefix: str | None = None,
    zones: tuple[str, ...] = ("zone-a", "zone-b", "zone-c"),
    taints: tuple[Manifest, ...] = (),
) -> list[Manifest]:
    """Build many equal nodes over the zones in turn, for benchmarks."""
    stem = prefix or product.lower().replace("nvidia-", "")
    return [
        gpu_node(
            f"{stem}-{index:04d}", product, gpus=gpus_per_node, zone=zones[index % len(zones)], taints=taints
        )
        for index in range(n_nodes)
    ]


def demo_pool() -> list[Manifest]:
    """Build a small mixed fleet with the oddities that real ones have, each on a node of its own."""
    h100, a100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB"
    foreign_taint = {"key": "team", "value": "other", "effect": "NoSchedule"}
    return [
        gpu_node("h100-0", h100, zone="zone-a", taints=(GPU_TAINT,)),
        # The GPU operator's usual setting: the strategy is announced although MIG is off.
        gpu_node("h100-1", h100, zone="zone-a", mig_strategy="single"),
        gpu_node("h100-2", h100, zone="zone-b", mig_strategy="single"),
        gpu_node("h100-cordoned", h100, zone="zone-b", cordoned=True),
        gpu_node("h100-reserved", h100, zone="zone-b", taints=(foreign_taint,)),
        gpu_node("h100-degraded", h100, zone="zone-a", allocatable_gpus=7),
        gpu_node("h100-mig", h100, zone="zone-a", mig_profile="1g.10gb"),
        gpu_node("a100-0", a100, zone="zone-a"),
        gpu_node("a100-1", a100, zone="zone-b"),
        gpu_node("l40s-0", "NVIDIA-L40S", zone="zone-a"),
        gpu_node("l40s-1", "NVIDIA-L40S", zone="zone-b"),
        gpu_node("l40s-shared", "NVIDIA-L40S", zone="zone-b", time_slicing_replicas=4),
        gpu_node("a6000-0", "NVIDIA-RTX-A6000", zone="zone-a"),
        cpu_node("cpu-0", zone="zone-a"),
        cpu_node("cpu-1", zone="zone-b"),
    ]


def demo_foreign_pods() -> list[Manifest]:
    """Build somebody else's bare pods, which hold 3 of the 8 GPUs of `h100-1`, and their namespace."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FOREIGN_NAMESPACE}}
    return [
        namespace,
        bound_pod("notebook", FOREIGN_NAMESPACE, "h100-1", gpus=1),
        bound_pod("training", FOREIGN_NAMESPACE, "h100-1", gpus=2),
    ]


def bound_pod(name: str, namespace: str, node: str, *, gpus: int) -> Manifest:
    """Build a bare pod that is already bound to a node, past the scheduler."""
    container = {
        "name": "main",
        "image": "registry.example/work:1",
        "resources": {"requests": {"cpu": "4", "memory": "32Gi"}, "limits": {GPU_RESOURCE: str(gpus)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0},
    }


def _discovered(model: GpuProduct, label: str, count: int, memory_mib: int, replicas: int) -> dict[str, str]:
    major, minor = model.compute
    return {
        "nvidia.com/cuda.driver-version.full": ".".join(_DRIVER),
        "nvidia.com/cuda.driver-version.major": _DRIVER[0],
        "nvidia.com/cuda.driver-version.minor": _DRIVER[1],
        "nvidia.com/cuda.driver-version.revision": _DRIVER[2],
        "nvidia.com/cuda.runtime-version.full": ".".join(_CUDA),
        "nvidia.com/cuda.runtime-version.major": _CUDA[0],
        "nvidia.com/cuda.runtime-version.minor": _CUDA[1],
        "nvidia.com/gfd.timestamp": "1795910400",
        "nvidia.com/gpu.compute.major": str(major),
        "nvidia.com/gpu.compute.minor": str(minor),
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.family": model.family,
        "nvidia.com/gpu.machine": model.machine,
        "nvidia.com/gpu.memory": str(memory_mib),
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": label,
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": "time-slicing" if replicas > 1 else "none",
        "nvidia.com/mps.capable": "false",
    }


def _mig_labels(model: GpuProduct, profile: str | None, strategy: str | None) -> dict[str, str]:
    labels = {"nvidia.com/mig.capable": str(model.mig_capable).lower()}
    if not model.mig_capable:
        return labels
    labels["nvidia.com/mig.config"] = "all-disabled" if profile is None else f"all-{profile}"
    labels["nvidia.com/mig.config.state"] = "success"
    if strategy is not None:
        labels["nvidia.com/mig.strategy"] = strategy
    if profile is not None:
        slices = profile.partition("g")[0]
        labels |= {"nvidia.com/gpu.slices.ci": slices, "nvidia.com/gpu.slices.gi": slices}
    return labels


def _capacity(cpu_cores: int, memory_gib: int) -> dict[str, str]:
    return {"cpu": str(cpu_cores), "memory": f"{memory_gib}Gi", "ephemeral-storage": "3500Gi", "pods": "110"}


def _node(
    name: str,
    *,
    labels: dict[str, str],
    zone: str,
    capacity: dict[str, str],
    allocatable_gpus: int | None,
    taints: tuple[Manifest, ...],
    cordoned: bool,
) -> Manifest:
    allocatable = dict(capacity)
    if allocatable_gpus is not None:
        allocatable[GPU_RESOURCE] = str(allocatable_gpus)
    well_known = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": zone,
    }
    spec: Manifest = {}
    if taints:
        spec["taints"] = [dict(taint) for taint in taints]
    if cordoned:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": well_known | labels,
            "annotations": {FAKE_NODE_ANNOTATION: "fake"},
        },
        "spec": spec,
        "status": {"capacity": capacity, "allocatable": allocatable},
    }

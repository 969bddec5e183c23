"""Nodes, pods, islands and reservations as values.

Decides what a free shape is (the smaller of label and allocatable GPUs, with CPU, memory and ephemeral
storage). Never reads a cluster: whoever observes hands these values in.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Resources(NamedTuple):
    """An amount of what a pod asks for."""

    gpus: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0
    ephemeral_bytes: int = 0

    def fits_in(self, free: "Resources") -> bool:
        """Whether this amount is available in `free`, in every dimension."""
        return all(need <= have for need, have in zip(self, free, strict=True))

    def plus(self, other: "Resources") -> "Resources":
        """Add, dimension by dimension."""
        return Resources(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: "Resources") -> "Resources":
        """Subtract, dimension by dimension; it may be negative when a node is overcommitted."""
        return Resources(*(a - b for a, b in zip(self, other, strict=True)))

    def times(self, count: int) -> "Resources":
        """`count` of this amount."""
        return Resources(*(a * count for a in self))


class Taint(NamedTuple):
    """A node's taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The small part of a Node that decisions read."""

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Resources = field(default_factory=Resources)
    unreadable: tuple[str, ...] = ()
    """Allocatable amounts that no node can have ("memory: 1e400"); `allocatable` has none of these."""
    gpu_resource: str = "nvidia.com/gpu"


class PodFacts(NamedTuple):
    """The small part of a Pod that decisions read. A tuple because thousands of them are held."""

    namespace: str
    name: str
    node: str
    """Bound or nominated node; empty while unbound."""
    requests: Resources
    owner: str = ""
    """The LLMService's name when the pod is one of ours, else empty."""
    revision: str = ""
    ready: bool = False
    terminating: bool = False
    trouble: str = ""
    """Reason of the worst container state or of PodScheduled=False: CrashLoopBackOff, Unschedulable."""
    restarts: int = 0
    serving: bool = False
    address: str = ""
    """IP of one of our pods or routers, once it has one; of others it is not kept."""
    router_of: str = ""
    """The LLMService's name when the pod is one of its routers, else empty."""
    ends_s: float = 0.0
    """When the grace period of its own template is over for one of our pods that leaves, in seconds since the
    epoch; zero while it stays, and where whoever deleted it gave it less."""
    grace_s: int = 0
    """That grace period, where `ends_s` is known."""
    fetches: str = ""
    """The Job's name when the pod fetches weights for one of our services, else empty."""


class Exclusion(StrEnum):
    """Why a node is not part of a pool; the sentence that goes with it is written in `topology.nodes`."""

    NO_GPU_LABEL = "NoGPULabel"
    UNKNOWN_PRODUCT = "UnknownProduct"
    PRODUCT_NOT_WANTED = "ProductNotWanted"
    SELECTOR = "NodeSelector"
    CORDONED = "Cordoned"
    NOT_READY = "NotReady"
    TAINTED = "Tainted"
    SHARED = "SharedGPU"
    MIG = "MIG"
    NO_GPUS = "NoAllocatableGPUs"
    UNREADABLE = "UnreadableAmounts"
    GPU_FAULT = "GPUFault"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedNode:
    """A node that cannot be used, with a sentence that names the label or field to change."""

    node: str
    reason: Exclusion
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """GPUs of one node among which tensor parallelism may run on NVLink (size 1 when there is no link).

    A node of `gpus` GPUs has `gpus // island_gpus` islands; the device plugin chooses which GPUs a pod gets,
    so islands smaller than the node are only counted on when they cannot be split.
    """

    size: int
    linked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNode:
    """A usable node: its product, its island size and what is free on it now."""

    name: str
    product: str
    """Label of the GPUProduct in the catalogue."""
    gpu_memory_mib: int
    gpus: int
    island: Island
    capacity: Resources
    free: Resources
    gpu_resource: str
    driver_major: int | None = None
    zone: str = ""
    labelled_gpus: int = 0
    """`nvidia.com/gpu.count`; `gpus` is the smaller of it and allocatable."""
    memory_note: str = ""
    """Set when the node's memory label differs from the product's by more than 5 %."""
    foreign: tuple[tuple[str, int], ...] = ()
    """Who holds GPUs here: ("namespace/name", GPUs), largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What a service may use, sorted by node name so that the order of observation changes nothing."""

    nodes: tuple[PoolNode, ...]
    excluded: tuple[ExcludedNode, ...] = ()
    fingerprint: str = ""
    """Digest of shapes without free amounts: a plan depends on this, a placement on the free amounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A pod's place on a node."""

    node: str
    resources: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Places held for a service's revision until its pods are bound there."""

    service: tuple[str, str]
    revision: str
    slots: tuple[Slot, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one revision of a service wants to run, and where it may."""

    service: tuple[str, str]
    """(namespace, name)."""
    revision: str
    pod: Resources
    nodes: tuple[str, ...]
    """Names of the nodes that the plan allows, sorted. Services with the same plan should share the tuple."""
    replicas: int
    """All pods wanted, those already bound included."""
    priority: int = 0
    """Value of the pod's priority class; higher goes first."""
    created_s: float = 0.0
    """Creation time of the service, seconds since the epoch; older goes first."""
    minimum: int = 1
    """Fewer pods than this are of no use: then nothing is held."""
    spread: bool = False
    """Prefer nodes that do not hold a pod of this service yet (availability.surviveNodeLoss)."""

    @property
    def rank(self) -> tuple[int, float, tuple[str, str], str]:
        """Order of granting: priority, then age, then name."""
        return (-self.priority, self.created_s, self.service, self.revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a claim has: pods that are bound and places that are held for pods to come."""

    wanted: int
    bound: int = 0
    slots: tuple[Slot, ...] = ()

    @property
    def granted(self) -> int:
        """How many pods may exist now: render this many replicas and none is left Pending."""
        return self.bound + len(self.slots)

    @property
    def short(self) -> int:
        """How many of the wanted pods have no place."""
        return max(0, self.wanted - self.granted)

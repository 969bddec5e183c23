"""What the planner takes and gives, as values.

Decides the vocabulary of a plan: parallelism, engine limits, memory bill, candidates, choice. Never holds a
cluster object or a clock. Every reason is an enum value that `shardwright.api.reasons` documents.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.reasons import AdviceReason, CandidateReason, Reason
from shardwright.catalog.types import EngineClass, GPUProduct, ModelArchitecture
from shardwright.topology.types import Pool, Resources, Slot

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How one engine is split. `data` is attention data parallelism inside one engine (MoE only)."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline * self.data

    @property
    def ranks(self) -> int:
        """GPUs of one pipeline stage: they talk to each other in every layer, so that links decide."""
        return self.tensor * self.data

    def __str__(self) -> str:
        parts = [f"TP{self.tensor}"]
        if self.pipeline > 1:
            parts.append(f"PP{self.pipeline}")
        if self.data > 1:
            parts.append(f"DP{self.data}")
        if self.expert:
            parts.append("EP")
        return "·".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """The engine flags that memory depends on, always rendered explicitly."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization_percent: int
    kv_cache_dtype: str = "auto"
    """vLLM's own value: "auto" or "fp8"."""
    enforce_eager: bool = False


def kv_mark(dtype: str) -> str:
    """Return what names an arrangement whose KV cache is not in the model's own format; else nothing."""
    return "" if dtype == "auto" else f" {dtype.upper()}-KV"


class Verdict(StrEnum):
    """Whether an engine will start."""

    FITS = "Fits"
    TOO_SMALL = "TooSmall"
    """It starts loading but the KV cache cannot hold one request of the maximum length."""
    OUT_OF_MEMORY = "OutOfMemory"
    """Weights and overheads alone exceed the GPU."""
    UNKNOWN = "Unknown"
    """The memory model does not cover this class; see `coverage`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """The question put to the memory model."""

    architecture: ModelArchitecture
    gpu: GPUProduct
    engine: EngineClass
    parallelism: Parallelism
    limits: EngineLimits
    visible_gib: float | None = None
    """Overrides the product's, from the node's memory label."""
    utilization_percent: float | None = None
    """Overrides the limits' whole percent, for an engine started with a share such as 0.925."""
    added_flags: tuple[str, ...] = ()
    """Engine flags set by hand that may change memory: the reserve widens."""
    measured_ratio: float = 1.0
    """What was measured, over what is predicted, of all that is no KV cache; at least 1."""

    @property
    def percent(self) -> float:
        """GPU memory utilisation that the bill counts with."""
        exact = self.utilization_percent
        return self.limits.gpu_memory_utilization_percent if exact is None else exact


@dataclass(frozen=True, slots=True, kw_only=True)
class BillItem:
    """One line of the memory bill of the fullest GPU."""

    item: str
    gib: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """The memory bill of the fullest GPU of a replica, and what is left for the KV cache of one engine."""

    verdict: Verdict
    coverage: str
    """One phrase: which measured class covers this, or what is not modelled."""
    covered: bool
    visible_gib: float
    weights_gib_per_gpu: float
    activation_gib: float
    non_torch_gib: float
    cuda_graph_gib: float
    margin_gib: float
    """Reserve of the class; not in `kv_tokens`, subtracted from what is promised."""
    kv_cache_gib_per_gpu: float
    """Predicted, before the margin."""
    kv_tokens: int
    """Predicted tokens of the whole engine, before the margin (one DP replica)."""
    promised_kv_tokens: int
    """After the margin: what a plan may count on."""
    max_concurrency: float
    """Predicted requests of max_model_len that fit at once."""
    kv_bytes_per_token_per_gpu: float
    """For hybrids: at the maximum length."""
    largest_model_len: int
    """The longest single request that fits after the margin; 0 when none does."""
    bill: tuple[BillItem, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """One checkpoint that may be served: the main model or a variant."""

    model_id: str
    revision: str | None
    architecture: ModelArchitecture


CorrectionKey = tuple[str, str, str]
"""(model id, GPU product label, engine version)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What was measured over what the model predicts by itself; None: not measured, and not corrected."""

    ttft: float | None = None
    tpot: float | None = None
    memory: float | None = None
    """Of a GPU's memory that is no KV cache."""
    requests: int = 0
    """Behind TTFT and TPOT."""

    @property
    def memory_ratio(self) -> float:
        """At least 1: less than predicted is not relied upon, since an engine might not start."""
        return max(1.0, self.memory or 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """Everything a decision depends on."""

    spec: LLMServiceSpec
    models: tuple[ModelChoice, ...]
    pool: Pool
    engine: EngineClass
    products: dict[str, GPUProduct]
    corrections: Mapping[tuple[str, str], Correction] = field(default_factory=dict)
    """What was measured with this engine version, by model id and GPU product label."""


class LoadKind(StrEnum):
    """How the load of a service is stated."""

    RATE = "Rate"
    """`workload.requestsPerMinute`."""
    IN_FLIGHT = "InFlight"
    """`workload.concurrency`."""
    NONE = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What one replica is predicted to do, frozen with the plan. Times are milliseconds."""

    kind: LoadKind
    most: float
    """Load that one replica takes within the stated targets, in the load's unit: requests a minute, or
    requests in flight. 0 when no load is stated."""
    comfortable: float
    """The same within the profile's targets as well, as far as a lone request keeps them. Only told."""
    requests_per_minute: float
    """The highest rate of one replica within the stated targets; where no load is stated, within those of the
    profile too that a lone request keeps."""
    limit: str
    """What stops more, in the words of `performance.rate.Limit`."""
    running: float
    """Requests decoded at once at the planned load of one replica."""
    ttft_ms: float
    """At the planned load and the target's percentile, before the margin."""
    ttft_percentile: int
    tpot_ms: float
    tpot_percentile: int
    band_low: float
    """The truth may lie at so many times the prediction, at least."""
    band_high: float
    covered: bool
    """Whether measured rows cover the class."""
    band: str
    """One phrase: which measured class stands behind it."""
    gaps: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    """Targets of the profile, not stated, that are not kept at the planned load; one phrase each."""
    load: float | None = None
    """The planned load of one replica: requests a minute where the load is stated so, else requests in
    flight. None: not on record."""
    slots: int | None = None
    """Requests that one replica may run at once, by max-num-seqs and KV cache. None: not on record."""
    kv_room_tokens: int | None = None
    """KV tokens promised to requests of the workload's length. None: not on record."""
    in_flight_most: int | None = None
    """Where no load is stated: requests in flight up to which one replica keeps the stated targets. None: a
    load is stated, or it is not on record."""
    in_flight_limit: str = ""
    """What stops more of them, in the words of `performance.rate.Limit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An arrangement considered. `reason` is Chosen for one of them; the others say why they lost."""

    model_id: str
    product: str
    parallelism: Parallelism
    reason: CandidateReason
    message: str
    estimate: MemoryEstimate | None = None
    replicas: int = 0
    """Replicas that it would run; 0 when it does not fit or misses what is stated."""
    speed: Speed | None = None
    """What it would do; None when it does not fit, misses what is stated, or is not predicted."""
    gpus_short: int = 0
    gib_short: float = 0.0
    kv_cache_dtype: str = "auto"
    """vLLM's own value: "auto" or "fp8"."""
    replicas_needed: int = 0
    """With so many replicas it would hold the stated load; 0 when more replicas are not what is missing."""
    overshoot: float = 0.0
    """The worst figure over its target, the margin included; 0 when no target is in the way."""
    relaxed: tuple[tuple[str, int], ...] = ()
    """Targets that it would keep, by field under `spec`, where those that are stated are out of reach."""

    @property
    def arrangement(self) -> str:
        """Unique name inside one decision, for status and tables."""
        return f"{self.model_id} on {self.product} {self.parallelism}{kv_mark(self.kv_cache_dtype)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What somebody with practice would say of a plan."""

    reason: AdviceReason
    message: str
    """With the plan's own figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixPart:
    """One product's part in a mix that would take a load for less than one product does."""

    model_id: str
    product: str
    parallelism: Parallelism
    kv_cache_dtype: str
    replicas: int
    traffic_percent: int
    """Share of the traffic, as much as its replicas can take."""
    price_per_hour: float | None

    @property
    def gpus(self) -> int:
        """GPUs of its replicas."""
        return self.replicas * self.parallelism.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The choice for one service."""

    model: ModelChoice
    product: GPUProduct
    parallelism: Parallelism
    limits: EngineLimits
    estimate: MemoryEstimate
    replicas: int
    """Replicas that are planned, the spare ones included."""
    pod_resources: Resources
    """Requests of one pod (GPUs, CPU, memory with /dev/shm, ephemeral storage)."""
    shm_bytes: int
    gpu_resource: str
    within_island: bool
    """TP ranks share NVLink; False only under policy Any, or without links under PreferNVLink."""
    planned_concurrency: int
    required_kv_tokens: int
    context_clamped_from: int | None
    """What was asked for, or what the model declares, when a shorter context is served."""
    binding_constraint: str
    coverage: str
    candidates: tuple[Candidate, ...]
    inputs_digest: str
    min_gpu_memory_mib: int = 0
    nodes_gpus: int = 0
    """GPUs a node must have for the affinity rule: at least this many."""
    most_node_gpus: int = 0
    """GPUs a node may have at most, where larger nodes could split an island; 0: any."""
    min_driver_major: int = 0
    """Oldest driver branch for the affinity rule; set only when a node of this product has an older one."""
    notes: tuple[str, ...] = ()
    """What the user should know of this plan, one sentence each; `advice` is among them."""
    speed: Speed | None = None
    """None: not predicted, or planned by a version that predicted none."""
    correction: Correction | None = None
    """What was measured before and is counted with in the figures above; frozen with the plan."""
    spare_replicas: int = 0
    """Of `replicas`, those that are there for the loss of a node (availability.surviveNodeLoss)."""
    cheaper_mix: tuple[MixPart, ...] = ()
    """Two products that would take the load for less than this plan, as advice; empty when none does."""
    advice: tuple[Advice, ...] = ()
    """Those of `notes` that have a reason of their own."""

    def __hash__(self) -> int:
        """Hash of the inputs: equal plans have equal ones, and no candidate need be looked at."""
        return hash(self.inputs_digest)

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one replica."""
        return self.parallelism.gpus

    @property
    def summary(self) -> str:
        """Column text such as `H100 TP2 ×4`."""
        return f"{self.product.short_name} {self.parallelism} ×{self.replicas}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlan:
    """Nothing in this pool serves the model, however free it is."""

    reason: Reason
    message: str
    candidates: tuple[Candidate, ...]
    inputs_digest: str


Decision = Plan | NoPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where replicas of a plan have room now."""

    wanted: int
    slots: tuple[Slot, ...]
    """One for each replica that has room."""
    stranded_gpus: int
    """Free GPUs on nodes of this kind that are too few on their node for one more replica."""
    obstacle: str = ""
    """Why the next replica has no room, as a sentence; empty when all have."""
    holders: tuple[tuple[str, int], ...] = ()
    """Who holds GPUs on nodes of this kind: (name, GPUs), largest first."""

    @property
    def placed(self) -> int:
        """How many replicas have room."""
        return len(self.slots)

"""Every reason a user can see, each with one sentence that says what to do next.

Decides the vocabulary of conditions, candidates and events. Never decides which one applies.
`docs/reasons.md` is generated from this table and a test holds the two together.
"""

from enum import StrEnum


class ConditionType(StrEnum):
    """Condition types of an LLMService."""

    ACCEPTED = "Accepted"
    PLANNED = "Planned"
    PLACED = "Placed"
    AVAILABLE = "Available"
    READY = "Ready"
    SLO_MET = "SLOMet"
    DEGRADED = "Degraded"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class Reason(StrEnum):
    """Reason of a condition or event."""

    # Accepted
    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    NOT_IMPLEMENTED = "NotImplemented"
    CHILD_NAME_TAKEN = "ChildNameTaken"
    MISSING_SECRET = "MissingSecret"  # noqa: S105 -- a reason's name
    MISSING_CONFIG_MAP = "MissingConfigMap"
    MISSING_CLAIM = "MissingClaim"
    INVALID_MODEL_CONFIG = "InvalidModelConfig"
    UNKNOWN_MODEL = "UnknownModel"
    QUANTIZATION_MISMATCH = "QuantizationMismatch"
    ENGINE_ARGS_REFUSED = "EngineArgsRefused"
    POD_TEMPLATE_REFUSED = "PodTemplateRefused"
    CACHE_NOT_SHAREABLE = "CacheNotShareable"
    # Planned
    PLANNED = "Planned"
    CONTEXT_CLAMPED = "ContextClamped"
    PLAN_NOT_COVERED = "PlanNotCovered"
    NO_USABLE_GPUS = "NoUsableGPUs"
    UNKNOWN_GPU_PRODUCT = "UnknownGPUProduct"
    ILLEGAL_PARALLELISM = "IllegalParallelism"
    CONTEXT_TOO_LONG = "ContextTooLong"
    NUMBER_FORMAT_UNSUPPORTED = "NumberFormatUnsupported"
    DOES_NOT_FIT = "DoesNotFit"
    GPU_BUDGET_TOO_SMALL = "GPUBudgetTooSmall"
    NODE_RESOURCES_TOO_SMALL = "NodeResourcesTooSmall"
    NEEDS_MULTI_NODE = "NeedsMultiNode"
    MEMORY_UNKNOWN = "MemoryUnknown"
    # Placed
    PLACED = "Placed"
    NO_ROOM = "NoRoom"
    PARTIALLY_PLACED = "PartiallyPlaced"
    UNSCHEDULABLE = "Unschedulable"
    NOT_PLANNED = "NotPlanned"
    NOT_OBSERVED = "NotObserved"
    # Available, Ready, Reconciling, Stalled
    SERVING = "Serving"
    STARTING = "Starting"
    NOT_ENOUGH_REPLICAS = "NotEnoughReplicas"
    NO_REPLICAS = "NoReplicas"
    ROLLING_OUT = "RollingOut"
    SETTLED = "Settled"
    WAITS_FOR_PERSON = "WaitsForPerson"
    SCALED_TO_ZERO = "ScaledToZero"
    # Degraded
    HEALTHY = "Healthy"
    CRASH_LOOP = "CrashLoop"
    OUT_OF_MEMORY = "OutOfMemory"
    IMAGE_PULL = "ImagePull"
    FOREIGN_AUTOSCALER = "ForeignAutoscaler"
    START_TOO_SLOW = "StartTooSlow"
    HUB_UNAUTHORIZED = "HubUnauthorized"
    POD_CONFIG = "PodConfig"
    # SLOMet
    NOT_MEASURED = "NotMeasured"


class CandidateReason(StrEnum):
    """What became of a candidate."""

    CHOSEN = "Chosen"
    LARGER_THAN_NEEDED = "LargerThanNeeded"
    """It fits, but a smaller one does too."""
    COSTS_MORE = "CostsMore"
    WEIGHTS_DO_NOT_FIT = "WeightsDoNotFit"
    KV_TOO_SMALL = "KVTooSmall"
    ILLEGAL_TENSOR_PARALLELISM = "IllegalTensorParallelism"
    BEYOND_ISLAND = "BeyondIsland"
    BEYOND_NODE = "BeyondNode"
    NUMBER_FORMAT_UNSUPPORTED = "NumberFormatUnsupported"
    OVER_BUDGET = "OverBudget"
    NODE_TOO_SMALL = "NodeTooSmall"
    NOT_PINNED = "NotPinned"
    MEMORY_UNKNOWN = "MemoryUnknown"
    NEEDS_MULTI_NODE = "NeedsMultiNode"
    NO_ROOM_NOW = "NoRoomNow"
    UNVALIDATED = "Unvalidated"
    CONTEXT_TOO_LONG = "ContextTooLong"
    DRIVER_TOO_OLD = "DriverTooOld"
    RANKED_LOWER = "RankedLower"
    """It fits at the same cost, but a rule that its sentence names puts another first."""


CANDIDATE_SENTENCES: dict[CandidateReason, str] = {}
REASON_SENTENCES: dict[Reason, str] = {}

"""Every reason a user can see, each with one sentence that says what to do next.

Decides the vocabulary of conditions, candidates and events. Never decides which one applies.
`docs/reasons.md` is generated from this table and a test holds the two together.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from shardwright.api.advice_reasons import ADVICE_SENTENCES, AdviceReason
from shardwright.api.candidate_reasons import CANDIDATE_SENTENCES, CandidateReason

__all__ = [
    "ADVICE_SENTENCES",
    "CALIBRATION_SENTENCES",
    "CANDIDATE_SENTENCES",
    "CONDITION_SENTENCES",
    "REASON_SENTENCES",
    "AdviceReason",
    "CalibrationReason",
    "CandidateReason",
    "ConditionType",
    "Reason",
]


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
    QUOTA_EXCEEDED = "QuotaExceeded"
    WRITE_FORBIDDEN = "WriteForbidden"
    READ_FORBIDDEN = "ReadForbidden"
    UNKNOWN_REVISION = "UnknownRevision"
    # Planned
    PLANNED = "Planned"
    CONTEXT_CLAMPED = "ContextClamped"
    PLAN_NOT_COVERED = "PlanNotCovered"
    PREDICTION_OFF = "PredictionOff"
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
    SLO_OUT_OF_REACH = "SLOOutOfReach"
    LOAD_TOO_HIGH = "LoadTooHigh"
    WAITS_FOR_APPROVAL = "WaitsForApproval"
    REVISION_PINNED = "RevisionPinned"
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
    FETCHING = "Fetching"
    NOT_ENOUGH_REPLICAS = "NotEnoughReplicas"
    ROUTER_UNAVAILABLE = "RouterUnavailable"
    GATEWAY_UNAVAILABLE = "GatewayUnavailable"
    NO_REPLICAS = "NoReplicas"
    ROLLING_OUT = "RollingOut"
    ROLLOUT_WAITS_FOR_ROOM = "RolloutWaitsForRoom"
    ROLLOUT_PAUSED = "RolloutPaused"
    CANARY_WORSE = "CanaryWorse"
    ROLLOUT_FAILED = "RolloutFailed"
    SETTLED = "Settled"
    WAITS_FOR_PERSON = "WaitsForPerson"
    SCALED_TO_ZERO = "ScaledToZero"
    # Degraded
    HEALTHY = "Healthy"
    CRASH_LOOP = "CrashLoop"
    OUT_OF_MEMORY = "OutOfMemory"
    IMAGE_PULL = "ImagePull"
    FOREIGN_AUTOSCALER = "ForeignAutoscaler"
    FOREIGN_EDIT = "ForeignEdit"
    START_TOO_SLOW = "StartTooSlow"
    HUB_UNAUTHORIZED = "HubUnauthorized"
    HUB_RATE_LIMITED = "HubRateLimited"
    HUB_UNAVAILABLE = "HubUnavailable"
    MODEL_NOT_FOUND = "ModelNotFound"
    CACHE_FULL = "CacheFull"
    FETCH_FAILED = "FetchFailed"
    WEIGHTS_MISSING = "WeightsMissing"
    POD_CONFIG = "PodConfig"
    PODS_REFUSED = "PodsRefused"
    NODE_LOST = "NodeLost"
    ENGINE_STALLED = "EngineStalled"
    GPU_FAULT = "GPUFault"
    STREAMS_CUT = "StreamsCut"
    CHILD_REFUSED = "ChildRefused"
    # SLOMet
    TARGETS_KEPT = "TargetsKept"
    TARGET_MISSED = "TargetMissed"
    NOT_MEASURED = "NotMeasured"
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    ENGINES_NOT_SCRAPED = "EnginesNotScraped"
    SIGNALS_UNKNOWN = "SignalsUnknown"
    TARGET_NOT_AN_EDGE = "TargetNotAnEdge"
    PROMPT_TOO_LONG = "PromptTooLong"
    STEP_TOO_SLOW = "StepTooSlow"
    SIZE_LIMITED = "SizeLimited"
    # Events of a size
    SCALED_UP = "ScaledUp"
    SCALED_DOWN = "ScaledDown"
    WOKEN = "Woken"


class CalibrationReason(StrEnum):
    """What is known of a figure of the calibration."""

    AS_PREDICTED = "AsPredicted"
    ABOVE_PREDICTION = "AbovePrediction"
    BELOW_PREDICTION = "BelowPrediction"
    TOO_FEW_REQUESTS = "TooFewRequests"
    NOT_REPORTED = "NotReported"
    NOT_PREDICTED = "NotPredicted"
    NOT_READ = "NotRead"


CALIBRATION_SENTENCES: Final[Mapping[CalibrationReason, str]] = MappingProxyType(
    {
        CalibrationReason.AS_PREDICTED: "The ratio lies within 0.8 and 1.25; nothing to do.",
        CalibrationReason.ABOVE_PREDICTION: (
            "More than 1.25 times what the plan predicts at the load that was observed: for TTFT, TPOT and "
            "Memory the plan promises too much; see the reason PredictionOff."
        ),
        CalibrationReason.BELOW_PREDICTION: (
            "Less than 0.8 times what the plan predicts at the load that was observed: for KVTokens the plan "
            "promises too much, for the others it is larger than needed; see the reason PredictionOff."
        ),
        CalibrationReason.TOO_FEW_REQUESTS: (
            "Fewer than 50 requests within 15 minutes, which say too little; wait for traffic."
        ),
        CalibrationReason.NOT_REPORTED: (
            "The engines do not report the figure; check that their metrics are scraped whole, and "
            "engine.version."
        ),
        CalibrationReason.NOT_PREDICTED: (
            "The plan does not predict the figure for this model and GPU; nothing to do."
        ),
        CalibrationReason.NOT_READ: (
            "The metrics cannot be read now; the condition SLOMet says why, and what was known is not shown."
        ),
    }
)
"""One sentence for each reason of a figure in `status.calibration`."""

REASON_SENTENCES: Final[Mapping[Reason, str]] = MappingProxyType(
    {
        Reason.VALID: "The spec is complete and consistent; nothing to do.",
        Reason.INVALID_SPEC: (
            "The spec contradicts itself or a bound; change the fields that the message names."
        ),
        Reason.NOT_IMPLEMENTED: (
            "The spec is accepted, but this version ignores the fields that the message names; remove them "
            "or wait for a version that acts on them."
        ),
        Reason.CHILD_NAME_TAKEN: (
            "An object of the name that a child needs exists and is not this service's: it has another "
            "controller, or the operator did not write it. It is never adopted: rename the service, or "
            "delete that object."
        ),
        Reason.MISSING_SECRET: "A Secret or a key of it that the spec names does not exist; create it.",
        Reason.MISSING_CONFIG_MAP: (
            "A ConfigMap or a key of it that the spec names does not exist; create it."
        ),
        Reason.MISSING_CLAIM: "A PersistentVolumeClaim that the spec names does not exist; create it.",
        Reason.INVALID_MODEL_CONFIG: (
            "The config.json in the ConfigMap cannot be used; put the checkpoint's own file there, unchanged."
        ),
        Reason.UNKNOWN_MODEL: (
            "The model is not in the catalogue; put its config.json into a ConfigMap and name it in "
            "model.config. A variant must be in the catalogue."
        ),
        Reason.QUANTIZATION_MISMATCH: (
            "model.quantization contradicts the checkpoint; write the format it has, or name another "
            "checkpoint."
        ),
        Reason.ENGINE_ARGS_REFUSED: (
            "engine.args or engine.env sets what the plan owns; remove the entry and use the field that the "
            "message names."
        ),
        Reason.POD_TEMPLATE_REFUSED: (
            "podTemplate sets what the plan owns, or says what no pod can have; remove it, and use the field "
            "that the message names."
        ),
        Reason.CACHE_NOT_SHAREABLE: (
            "The cache claim can be mounted on one node only, but more are used; use a ReadWriteMany claim, "
            "or cache.type Ephemeral."
        ),
        Reason.QUOTA_EXCEEDED: (
            "A ResourceQuota of the namespace leaves no room for what the service needs, and no GPUs are "
            "held for it meanwhile; raise the one that the message names, or delete what uses it up."
        ),
        Reason.WRITE_FORBIDDEN: (
            "The API server forbids what the operator has to write: a right is missing, or an admission "
            "policy or webhook is in the way; the message carries its words, and the operator tries again."
        ),
        Reason.READ_FORBIDDEN: (
            "The operator has no right to read an object that the spec names, so it is not known whether it "
            "is there and can be used; grant the right that the message names."
        ),
        Reason.UNKNOWN_REVISION: (
            "No revision on record has the name in spec.approvedRevision; write one that the message names."
        ),
        Reason.PLANNED: "A plan was found and is in force; status.plan explains it.",
        Reason.CONTEXT_CLAMPED: (
            "The longest context was lowered to what fits; write the served value into "
            "model.maxContextTokens, or give the service larger GPUs."
        ),
        Reason.PLAN_NOT_COVERED: (
            "The plan is in force, but no measurement covers a part of it, so its reserve is wider; watch "
            "the first start."
        ),
        Reason.PREDICTION_OFF: (
            "The plan is in force, but what is measured differs from what it predicts by more than a quarter "
            "(status.calibration); with a calibration store the message names the plan that counts with it: "
            "approve that, let planPolicy Auto put it in force, or change the spec; without one pin "
            "parallelism or set scaling.minReplicas."
        ),
        Reason.NO_USABLE_GPUS: (
            "No node of the pool has GPUs that may be used; the message names for each node the label or "
            "field in the way."
        ),
        Reason.UNKNOWN_GPU_PRODUCT: (
            "Nodes report a GPU product that the catalogue does not know; correct the label, restrict "
            "pool.gpuProducts, or add the product to the catalogue."
        ),
        Reason.ILLEGAL_PARALLELISM: (
            "The pinned parallelism does not divide the model; pin one of the degrees that the message lists."
        ),
        Reason.CONTEXT_TOO_LONG: (
            "model.maxContextTokens exceeds what the model declares; lower it or choose another model."
        ),
        Reason.NUMBER_FORMAT_UNSUPPORTED: (
            "No GPU of the pool computes in the number format of the checkpoint or, where only FP8 is "
            "allowed, of the KV cache; name a variant in another format, allow Auto, or use other GPUs."
        ),
        Reason.DOES_NOT_FIT: (
            "No arrangement of the pool's GPUs holds the model; the message says what is short and what "
            "would fit."
        ),
        Reason.GPU_BUDGET_TOO_SMALL: (
            "pool.maxGPUs holds fewer GPUs than one replica needs, or than the replicas that are asked for; "
            "raise it to what the message says, or ask for fewer."
        ),
        Reason.NODE_RESOURCES_TOO_SMALL: (
            "The GPUs suffice, but the nodes lack CPU, memory or ephemeral storage for the pod; use larger "
            "nodes."
        ),
        Reason.NEEDS_MULTI_NODE: (
            "One replica would span nodes, which this version cannot run yet; the message says how many GPUs "
            "that would take, and their price: use larger GPUs, more of them in a node, or a quantized "
            "variant."
        ),
        Reason.MEMORY_UNKNOWN: (
            "The memory need of this model cannot be predicted, so no plan is made; the message names the "
            "missing fact."
        ),
        Reason.SLO_OUT_OF_REACH: (
            "No arrangement of the pool is predicted to keep the stated slo; the message says which term is "
            "in the way, what is the best that can be had, and the nearest change that would do."
        ),
        Reason.LOAD_TOO_HIGH: (
            "The stated load takes more replicas than pool.maxGPUs or scaling.maxReplicas allow; raise what "
            "the message names, or state less in spec.workload."
        ),
        Reason.WAITS_FOR_APPROVAL: (
            "planPolicy is Manual and nobody has approved this plan; approve it as the message says."
        ),
        Reason.REVISION_PINNED: (
            "spec.approvedRevision keeps another plan in force than the spec leads to; remove it to go on."
        ),
        Reason.PLACED: "All planned replicas have a place; nothing to do.",
        Reason.NO_ROOM: (
            "The plan fits in principle, but no GPUs are free now; the message names who holds them: free "
            "some, add a node of the plan's product, raise this service's priority, or write the "
            "pool.gpuProducts that the message names."
        ),
        Reason.PARTIALLY_PLACED: (
            "Some replicas have a place and the others wait for free GPUs; free some, add a node, or lower "
            "scaling.minReplicas."
        ),
        Reason.UNSCHEDULABLE: (
            "The scheduler refuses a pod for a reason that the plan cannot see, and the message carries its "
            "words; or the scheduler that a pod asks for has not looked at it for a minute: install or start "
            "it."
        ),
        Reason.NOT_PLANNED: "Nothing can be placed before a plan exists; see the Planned condition.",
        Reason.NOT_OBSERVED: "The operator has not seen enough of the cluster yet to judge; wait a moment.",
        Reason.SERVING: "Enough replicas answer requests; nothing to do.",
        Reason.STARTING: "Replicas are loading the model; wait, the message gives the start-up budget.",
        Reason.FETCHING: (
            "A Job fetches the weights into the cache claim once for all engines, which start when it has "
            "ended; wait, the message says since when and for how long at most."
        ),
        Reason.NOT_ENOUGH_REPLICAS: (
            "Fewer replicas answer than are wanted; see the message, Placed and Degraded for the cause."
        ),
        Reason.ROUTER_UNAVAILABLE: (
            "Engines answer and no router does; look at the router pods that the message selects, or write "
            "spec.routing.type: Service to be served without."
        ),
        Reason.GATEWAY_UNAVAILABLE: (
            "What leads from a Gateway to a service is not served, or the operator may not write it; "
            "the message names what to install and to set."
        ),
        Reason.NO_REPLICAS: "No replica answers; see Placed and Degraded for the cause.",
        Reason.ROLLING_OUT: (
            "A new revision is replacing the old one; wait until it has, status.rollout says how far it is."
        ),
        Reason.ROLLOUT_WAITS_FOR_ROOM: (
            "A new revision has no room beside the old one, and rollout.strategy gives nothing up for it; "
            "free the GPUs that the message counts or write the maxGPUs it names, or strategy: InPlace."
        ),
        Reason.ROLLOUT_PAUSED: ("rollout.paused holds a rollout where it is; write false to go on."),
        Reason.CANARY_WORSE: (
            "A new revision served worse than the old one, or answered otherwise, and was given up; mend "
            "what the message names, and change the spec or approve the revision to have it tried again."
        ),
        Reason.ROLLOUT_FAILED: (
            "A new revision did not start and was given up, and what ran before serves on; mend what the "
            "message names, and change the spec or approve the revision to have it tried again."
        ),
        Reason.SETTLED: "Everything is as the spec asks; nothing to do.",
        Reason.WAITS_FOR_PERSON: "The operator cannot go on by itself; do what the message says.",
        Reason.SCALED_TO_ZERO: (
            "No replica is wanted now. With Ready=True the service was idle, and the next request starts "
            "one; otherwise raise the replica count to serve."
        ),
        Reason.HEALTHY: "No trouble is seen; nothing to do.",
        Reason.CRASH_LOOP: (
            "The engine ends again and again; read its last lines in the message or in its log."
        ),
        Reason.OUT_OF_MEMORY: (
            "The engine ran out of GPU or host memory; lower engine.gpuMemoryUtilizationPercent or "
            "maxNumSeqs, and report the case, for the prediction was wrong. A kill for host memory after "
            "which the container runs again is told for an hour."
        ),
        Reason.IMAGE_PULL: (
            "The engine image cannot be pulled; check engine.image and engine.imagePullSecrets."
        ),
        Reason.FOREIGN_AUTOSCALER: (
            "An autoscaler is aimed at a child of this service and fights the operator, or at the LLMService "
            "while scaling.mode is not External and nothing reads what it writes; delete it, or use "
            "scaling.mode External and aim it at the LLMService."
        ),
        Reason.FOREIGN_EDIT: (
            "Someone added fields to the spec of a child, which are not taken back; take them out, and use "
            "spec.podTemplate for what pods need."
        ),
        Reason.START_TOO_SLOW: (
            "A replica has used up its start-up budget; check download speed and storage, or use a model "
            "cache."
        ),
        Reason.HUB_UNAUTHORIZED: (
            "The hub or the object store refuses the download; accept the model's licence there and check "
            "model.source.hub.tokenSecretRef, or model.source.uri.credentialsSecretRef."
        ),
        Reason.HUB_RATE_LIMITED: (
            "The hub limits the rate of downloads, which are tried again by themselves; give a token with "
            "model.source.hub.tokenSecretRef, or download once with model.cache or a mirror."
        ),
        Reason.HUB_UNAVAILABLE: (
            "The hub does not answer, or answers with an error of its own; the download is tried again by "
            "itself, so look at the way out of the cluster if it lasts, or name a mirror in "
            "model.source.hub.endpoint."
        ),
        Reason.MODEL_NOT_FOUND: (
            "The hub has no such repository or revision, or does not show it to the token; correct model.id "
            "or model.revision."
        ),
        Reason.CACHE_FULL: (
            "The cache claim has no room for the weights; enlarge it, or delete from it what no service uses."
        ),
        Reason.FETCH_FAILED: (
            "The Job that fetches the weights has failed, and is made anew after a while; look at the logs "
            "of its pod, and delete the Job to have it tried at once."
        ),
        Reason.WEIGHTS_MISSING: (
            "An engine does not find its weights in the cache claim and may not fetch them itself; they are "
            "fetched again by a Job, so wait, and keep the claim from being emptied."
        ),
        Reason.POD_CONFIG: (
            "Kubernetes cannot make a container from the pod, for example because a key is missing; the "
            "message carries its words."
        ),
        Reason.PODS_REFUSED: (
            "The API server refuses the pods, for example for a Pod Security level or a LimitRange of the "
            "namespace; the message carries its words."
        ),
        Reason.NODE_LOST: (
            "The node of a replica is gone or not ready, so the replica does not count; bring a node that is "
            "not ready back, or delete it if the machine is lost."
        ),
        Reason.ENGINE_STALLED: (
            "An engine had requests to answer and brought no token for longer than any step or prompt "
            "takes, while its health was green, and its pod is replaced; the message says what keeps it from "
            "that, if anything does. If it happens again, look at the engine's log and its node's GPUs."
        ),
        Reason.GPU_FAULT: (
            "An engine ended with words of a broken GPU, and a new pod takes its place; after two on one "
            "node new pods are kept off it for a while. Look at the node's GPUs as the message says."
        ),
        Reason.STREAMS_CUT: (
            "An engine that left still had requests when its drain was over, and they were cut; raise "
            "spec.drain.maxSeconds if answers may take longer."
        ),
        Reason.CHILD_REFUSED: (
            "The API server refuses an object without which the service serves as well, such as its "
            "PodDisruptionBudget; the message names it and carries the words."
        ),
        Reason.TARGETS_KEPT: "Enough requests are within the stated targets; nothing to do.",
        Reason.TARGET_MISSED: (
            "More requests are beyond a target than its percentile allows; raise what status.scaling.limit "
            "names, look whether status.calibration is off, or relax the target."
        ),
        Reason.NOT_MEASURED: (
            "No stated target is held against measured percentiles yet; state slo.ttft or slo.tpot, send "
            "some requests and wait a minute."
        ),
        Reason.METRICS_UNAVAILABLE: (
            "The engines' metrics cannot be read, so nothing that rests on them is known or changed; the "
            "message says what the source answers: mend it, or the operator's --prometheus options."
        ),
        Reason.ENGINES_NOT_SCRAPED: (
            "Prometheus answers but has no series of this service's pods; check its scrape configuration, "
            "and the names of its namespace and pod labels in the operator's --prometheus options."
        ),
        Reason.SIGNALS_UNKNOWN: (
            "Figures that the size rests on are missing from a ready engine, so it does not fall; see that "
            "port http of every pod is scraped, or can be reached by the operator."
        ),
        Reason.TARGET_NOT_AN_EDGE: (
            "A target is no edge of the engines' histogram, so misses of it are not counted and the size "
            "follows the load alone; use a newer engine.version, or write a target that is an edge."
        ),
        Reason.PROMPT_TOO_LONG: (
            "More prompts than may miss are too long for slo.ttft even on an idle replica, so the size "
            "stays; raise the target, or plan for longer prompts in spec.workload."
        ),
        Reason.STEP_TOO_SLOW: (
            "Even a single request misses slo.tpot, so the size stays; raise the target, or plan again with "
            "it so that a replica gets more or faster GPUs."
        ),
        Reason.SIZE_LIMITED: (
            "The load takes more replicas than run; status.scaling.limit says what holds them back: raise "
            "scaling.maxReplicas or pool.maxGPUs, add nodes or free GPUs."
        ),
        Reason.SCALED_UP: "Event: the autoscaler asks for more replicas; status.scaling has the figures.",
        Reason.SCALED_DOWN: "Event: the autoscaler asks for fewer replicas; status.scaling has the figures.",
        Reason.WOKEN: "Event: a request came while no replica ran, and one is started for it.",
    }
)
"""One sentence for each reason: what it means and what to do next."""

CONDITION_SENTENCES: Final[Mapping[ConditionType, str]] = MappingProxyType(
    {
        ConditionType.ACCEPTED: "The spec is usable, and everything that it names exists.",
        ConditionType.PLANNED: "An arrangement of GPUs that holds the model was found.",
        ConditionType.PLACED: "All planned replicas have a place on a node now.",
        ConditionType.AVAILABLE: "All but one of the replicas that are wanted answer now, and at least one.",
        ConditionType.READY: "Available, and the revision of this generation is fully out.",
        ConditionType.SLO_MET: "The measured latencies keep the targets; it never changes Ready.",
        ConditionType.DEGRADED: "Something is wrong with a replica; the reason is a diagnosis.",
        ConditionType.RECONCILING: "The operator is still working towards the spec (kstatus).",
        ConditionType.STALLED: "The operator waits for a person (kstatus).",
    }
)
"""What each condition says when it is True."""

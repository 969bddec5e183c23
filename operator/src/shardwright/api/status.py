"""`status`: what the operator decided, what it sees, and why.

Decides the shape of the report. Never holds a live figure that would make the status flicker: figures are
written on decisions and transitions, those of the calibration also on a large change.
"""

from typing import Annotated, Literal

from pydantic import Field

from shardwright.api.base import ApiModel, keyed_by

ConditionStatus = Literal["True", "False", "Unknown"]
Sentence = Annotated[str, Field(max_length=1024)]
Short = Annotated[str, Field(max_length=512)]
Decimal = Annotated[str, Field(max_length=32, pattern=r"^-?\d+(\.\d+)?$")]
"""A number with a fraction, as text: the resource holds no floats."""
ReasonName = Annotated[str, Field(max_length=64)]


class Condition(ApiModel):
    """A standard Kubernetes condition."""

    type: Annotated[str, Field(max_length=64)]
    """Accepted, Planned, Placed, Available, Ready, SLOMet, Degraded, Reconciling or Stalled."""
    status: ConditionStatus
    """Whether the condition holds."""
    reason: ReasonName
    """One word from the table of reasons."""
    message: Annotated[str, Field(max_length=4096)]
    """What was seen and what to do next."""
    observed_generation: int
    """Generation of the spec that this is about."""
    last_transition_time: Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
    """When `status` changed last."""


class BillLine(ApiModel):
    """One line of the memory bill of one GPU."""

    item: Short
    """What takes the memory."""
    gibibytes: Decimal
    """How much, in GiB."""
    why: Sentence
    """How the figure comes about."""


class CandidateStatus(ApiModel):
    """An arrangement that was considered, and what became of it."""

    arrangement: Short
    """Model, GPU product and parallelism."""
    reason: ReasonName
    """One word from the table of candidate reasons."""
    message: Sentence
    """The same with its figures."""


class AdviceStatus(ApiModel):
    """What is advised about a plan."""

    reason: ReasonName
    """One word from the table of reasons of advice."""
    message: Sentence
    """The same with the plan's figures."""


class MixPartStatus(ApiModel):
    """One product's part in two that would take the load for less."""

    model: Short
    """Checkpoint that is served."""
    gpu_product: Short
    """GPU product label."""
    parallelism: Short
    """How one replica is split, such as TP2."""
    kv_cache_dtype: Short
    """KV cache format, in vLLM's words."""
    replicas: int
    """Replicas on this product."""
    gpus: int
    """GPUs of these replicas."""
    traffic_percent: int
    """Share of the traffic that they take."""
    price_per_hour: Decimal | None = None
    """Price of these replicas, in the price list's currency; absent when it is not known."""


class PlanStatus(ApiModel):
    """The plan in force: the choice, what it predicts, and what else was considered."""

    summary: Short
    """The choice in short, such as `H100 TP2 ×4`."""
    model: Short
    """Checkpoint that is served."""
    gpu_product: Short
    """GPU product label."""
    tensor: int
    """Tensor-parallel degree."""
    pipeline: int
    """Pipeline-parallel degree."""
    data: int
    """Attention data-parallel degree inside one engine."""
    expert: bool
    """Whether experts are spread over the ranks."""
    gpus_per_replica: int
    """GPUs of one replica."""
    replicas: int
    """Replicas planned."""
    max_context_tokens: int
    """Longest prompt plus answer that is served."""
    max_num_seqs: int
    """Most requests in one batch of an engine."""
    max_num_batched_tokens: int
    """Most tokens in one step of an engine."""
    gpu_memory_utilization_percent: int
    """Share of each GPU's memory that vLLM uses, in percent."""
    kv_cache_dtype: Short
    """KV cache format, in vLLM's words."""
    weights_gib: Decimal
    """Predicted weights on one GPU, in GiB."""
    kv_tokens: int
    """Predicted tokens that the KV cache of one replica holds."""
    max_concurrency: Decimal
    """Predicted requests of the maximum length that one replica holds at once."""
    price_per_hour: Decimal | None = None
    """Price of all replicas, in the price list's currency; absent when no price is known."""
    price_origin: Literal["Default", "Configured"] | None = None
    """Who said the price when the plan was made: the catalogue's default, or the operator's configuration."""
    ttft_milliseconds: int | None = None
    """Predicted time to first token at the planned load of one replica, at `ttftPercentile`; absent when not
    predicted."""
    ttft_percentile: int | None = None
    """Percentile that `ttftMilliseconds` is about, in percent."""
    tpot_milliseconds: Decimal | None = None
    """Predicted time per output token at the planned load of one replica, at `tpotPercentile`."""
    tpot_percentile: int | None = None
    """Percentile that `tpotMilliseconds` is about, in percent."""
    requests_per_minute_per_replica: int | None = None
    """Predicted highest rate of one replica within the targets, as far as a lone request keeps them."""
    rate_limit: Short | None = None
    """What stops a replica from more: TTFT, TPOT, LongestStep or Slots."""
    running_per_replica: Decimal | None = None
    """Predicted requests decoded at once in one replica at the planned load."""
    error_band: Short | None = None
    """How far the predicted latency may be off, and which measured class stands behind that."""
    missed_targets: Annotated[list[Sentence], Field(max_length=3)] | None = None
    """Targets of the workload's profile, stated by nobody, that are not kept at the planned load."""
    coverage: Short
    """Which measured class the prediction rests on, or what it does not cover."""
    binding_constraint: Sentence
    """What kept the plan from being smaller."""
    memory_bill: Annotated[list[BillLine], Field(max_length=16)]
    """Memory of the fullest GPU, line by line."""
    candidates: Annotated[list[CandidateStatus], Field(max_length=64)]
    """What else was considered."""
    advice: Annotated[list[AdviceStatus], Field(max_length=16)] | None = None
    """What somebody with practice would say of the plan; absent when there is nothing to say."""
    cheaper_mix: Annotated[list[MixPartStatus], Field(max_length=2)] | None = None
    """Two GPU products that would take the load together for less; as advice, since a service runs on one
    product. Absent when none does."""
    inputs_digest: Short
    """Digest of everything that the decision depended on."""
    revision: Short
    """Hash of the revision that holds the plan."""


class CalibrationFigure(ApiModel):
    """One measured figure beside what the plan predicts at the load that was observed."""

    name: Literal["KVTokens", "Memory", "TTFT", "TPOT"]
    """KVTokens: tokens of KV cache of one engine. Memory: GiB of one GPU's budget that are no KV cache, which
    is weights, activations and overheads. TTFT, TPOT: mean, in milliseconds."""
    reason: ReasonName
    """One word from the table of figures' reasons."""
    ratio: Decimal | None = None
    """Measured over predicted; absent when it is not known."""
    measured: Decimal | None = None
    """What the engines report."""
    predicted: Decimal | None = None
    """What the plan predicts."""
    samples: int = 0
    """Engines behind KVTokens and Memory, requests behind TTFT and TPOT."""


class CalibrationStatus(ApiModel):
    """What was measured against what the plan predicts.

    Written when a verdict changes, and otherwise on a change of more than 20 % at most every 5 minutes.
    """

    revision: Short
    """Hash of the revision whose plan is compared."""
    source: Short
    """Where the figures are from: Prometheus, or Pods."""
    figures: Annotated[list[CalibrationFigure], Field(max_length=8, json_schema_extra=keyed_by("name"))]
    """One for each figure."""
    requests_per_minute_per_replica: Decimal | None = None
    """Observed rate of one replica; absent when too little was served."""
    input_tokens: int | None = None
    """Observed mean length of a prompt."""
    output_tokens: int | None = None
    """Observed mean length of an answer."""
    outside: Annotated[list[Short], Field(max_length=8)] | None = None
    """Figures whose ratio was outside [0.8, 1.25] when it was last known."""
    kept: Annotated[list[Short], Field(max_length=4)] | None = None
    """Targets that the requests of the last 15 minutes keep, such as TTFT P95 1000 ms."""
    missed: Annotated[list[Short], Field(max_length=4)] | None = None
    """Targets that they miss; what is in neither list is not known."""
    measured_at: Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
    """When this was written."""


class FailedStartStatus(ApiModel):
    """That a revision did not start, and was given up until the spec says something else of its pods."""

    reason: ReasonName
    """One word from the table of reasons, such as ImagePull."""
    message: Sentence
    """What was seen, with the last line of the engine's log where it ended."""
    at: Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
    """When it was given up."""


class RolloutStatus(ApiModel):
    """How far a rollout is; absent when none is under way."""

    strategy: Literal["Auto", "Surge", "InPlace", "BlueGreen"]
    """How the new revision replaces the old one."""
    step: Literal["Starting", "Retiring", "WaitsForRoom", "WaitsForClaim", "Canary", "Fetching", "Paused"]
    """What it is at: weights are fetched, new ones load, old ones leave; or what it waits for."""
    from_revision: Short
    """Hash of the revision that is replaced: the newest, when there are several."""
    to_revision: Short
    """Hash of the revision that replaces it."""
    ready: int
    """Replicas of the new revision that answer."""
    desired: int
    """Replicas of the new revision that are wanted."""
    canary_step: int | None = None
    """Step of the canary, from 1; one more than there are when all are done; absent without a canary."""
    since: Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
    """When it began, as far as the status tells."""


class RevisionStatus(ApiModel):
    """A plan that was or is in force."""

    name: Short
    """Name of its ControllerRevision and workload."""
    hash: Short
    """Hash at the end of its name."""
    summary: Short
    """Its choice in short."""
    replicas: int
    """Replicas that it should have now."""
    ready_replicas: int
    """Replicas of it that serve now."""
    failed: FailedStartStatus | None = None
    """That it did not start; absent when it did, or is not known not to."""


class ProposalStatus(ApiModel):
    """A plan that is on record and not in force: it waits for approval, or another is pinned."""

    revision: Short
    """Hash of the revision that holds it: what to approve."""
    summary: Short
    """Its choice in short."""
    replicas: int
    """Replicas that it plans."""
    gpus: int
    """GPUs of all its replicas."""
    price_per_hour: Decimal | None = None
    """Price of all its replicas, in the price list's currency; absent when no price is known."""
    changes: Annotated[list[Sentence], Field(max_length=32)]
    """What is different from the plan in force, and whether pods restart."""
    cause: Literal["Spec", "Calibration"] | None = None
    """What led to it: the spec, where this is absent; or a plan of the same spec that counts with what was
    measured."""


class ScalingInputs(ApiModel):
    """The figures that a size rests on."""

    demand: Decimal
    """Replicas at full use that the arrivals of the last 30 s and the queue take."""
    floor: Decimal
    """The same for bursts that keep coming back."""
    headroom: Decimal
    """What the demand is multiplied with; learnt from misses that more replicas mend."""
    slowness: Decimal
    """Seconds of a step as seen, over seconds as planned."""
    requests_per_minute_per_replica: Decimal
    """What one replica serves at full use within the targets."""
    missed_percent: Decimal
    """Requests of the last minute that missed a target and would not have with more replicas."""
    too_long_percent: Decimal
    """Requests of the last 15 minutes with a prompt that is too long at any size."""


class ScalingDecision(ApiModel):
    """A change of size."""

    time: Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
    """When it was decided."""
    from_replicas: int
    """The size before."""
    replicas: int
    """The size since."""
    rule: ReasonName
    """The rule that set it, from the table of rules."""
    vetoes: Annotated[list[ReasonName], Field(max_length=8)] | None = None
    """What kept it from being smaller."""
    inputs: ScalingInputs
    """The figures then."""


class ScalingStatus(ApiModel):
    """Who sizes the service, and how it came to the size.

    Written when the size changes, and when what limits it has changed for a while; never for its figures.
    """

    mode: Literal["Auto", "External"]
    """Who owned the size when this was written."""
    revision: Short
    """Hash of the revision that is sized."""
    desired_replicas: int
    """The size. A service that goes from one mode to the other, or whose operator starts anew, goes on from
    it."""
    planned_replicas: int = 0
    """What the stated load takes by the plan's figures; a size is raised when this is."""
    min_replicas: int | None = None
    """Lower bound that holds now, by `scaling` and its schedules."""
    max_replicas: int | None = None
    """Upper bound that holds now, with the budget of GPUs."""
    limit: ReasonName | None = None
    """The rule that keeps the size from what the load takes: Maximum, GPUBudget or NoPlace; absent when
    none."""
    unknown: Annotated[list[ReasonName], Field(max_length=4)] | None = None
    """What is not known: SignalsUnknown, TTFTNotAnEdge, TPOTNotAnEdge, RoutersSilent; absent when all is."""
    infeasible: Annotated[list[ReasonName], Field(max_length=4)] | None = None
    """Targets that no size keeps, from the table of terms; absent when there is none."""
    remedy: Sentence | None = None
    """What the planner says when it is asked for longer prompts, with PromptTooLong."""
    decisions: Annotated[list[ScalingDecision], Field(max_length=5)] | None = None
    """The last changes of size, the newest first."""


class LLMServiceStatus(ApiModel):
    """What is true now."""

    observed_generation: int = -1
    """Generation that conditions and plan are about; -1 before the operator has seen the object."""
    conditions: (
        Annotated[list[Condition], Field(max_length=16, json_schema_extra=keyed_by("type"))] | None
    ) = None
    """What holds and why; the table of reasons is in docs/reasons.md."""
    plan: PlanStatus | None = None
    """The plan in force."""
    calibration: CalibrationStatus | None = None
    """What was measured against what the plan predicts; absent before anything was measured."""
    scaling: ScalingStatus | None = None
    """How the size came about; absent before the autoscaler knew anything of the engines."""
    revisions: (
        Annotated[list[RevisionStatus], Field(max_length=8, json_schema_extra=keyed_by("name"))] | None
    ) = None
    """Plans in force, the newest first, and those that did not start."""
    rollout: RolloutStatus | None = None
    """How far a rollout is; absent when none is under way."""
    proposal: ProposalStatus | None = None
    """What the spec leads to while another plan is in force, or none yet; or what it would lead to if it
    were planned again with what was measured. Absent when there is nothing of the kind."""
    replicas: int | None = None
    """Replicas that exist, over all revisions."""
    ready_replicas: int | None = None
    """Replicas that serve."""
    ready_summary: Short | None = None
    """Serving and wanted replicas, such as 2/3."""
    selector: Short | None = None
    """Label selector of the replicas, for autoscalers."""
    endpoint: Annotated[str, Field(max_length=512)] | None = None
    """Base URL of the OpenAI API inside the cluster."""

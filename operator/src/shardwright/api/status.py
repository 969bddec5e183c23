"""`status`: what the operator decided, what it sees, and why.

Decides the shape of the report. Never holds a live figure that would make the status flicker: figures are written on
decisions and transitions only.
"""

from typing import Annotated, Literal

from pydantic import Field

from shardwright.api.base import ApiModel

ConditionStatus = Literal["True", "False", "Unknown"]
Sentence = Annotated[str, Field(max_length=1024)]
Short = Annotated[str, Field(max_length=253)]
Decimal = Annotated[str, Field(max_length=32, pattern=r"^-?\d+(\.\d+)?$")]


class Condition(ApiModel):
    """A standard Kubernetes condition."""

    type: Annotated[str, Field(max_length=64)]
    status: ConditionStatus
    reason: Annotated[str, Field(max_length=64)]
    message: Annotated[str, Field(max_length=4096)]
    observed_generation: int
    last_transition_time: Annotated[str, Field(max_length=32)]


class BillLine(ApiModel):
    """One line of the memory bill of one GPU, in GiB."""

    item: Short
    gibibytes: Decimal
    why: Sentence


class CandidateStatus(ApiModel):
    """An arrangement that was considered, and what became of it."""

    arrangement: Short
    reason: Annotated[str, Field(max_length=64)]
    message: Sentence


class PlanStatus(ApiModel):
    """The plan in force: the choice, what it predicts, and what else was considered."""

    summary: Short
    model: Short
    gpu_product: Short
    tensor: int
    pipeline: int
    data: int
    expert: bool
    gpus_per_replica: int
    replicas: int
    max_context_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization_percent: int
    kv_cache_dtype: Short
    weights_gib: Decimal
    kv_tokens: int
    max_concurrency: Decimal
    price_per_hour: Decimal | None = None
    coverage: Short
    binding_constraint: Sentence
    memory_bill: Annotated[list[BillLine], Field(max_length=16)]
    candidates: Annotated[list[CandidateStatus], Field(max_length=64)]
    inputs_digest: Short
    revision: Short


class RevisionStatus(ApiModel):
    """A plan that was or is in force."""

    name: Short
    hash: Short
    summary: Short
    replicas: int
    ready_replicas: int


class LLMServiceStatus(ApiModel):
    """What is true now."""

    observed_generation: int = -1
    conditions: Annotated[list[Condition], Field(max_length=16)] | None = None
    plan: PlanStatus | None = None
    revisions: Annotated[list[RevisionStatus], Field(max_length=8)] | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    ready_summary: Short | None = None
    selector: Short | None = None
    endpoint: Annotated[str, Field(max_length=512)] | None = None

"""The explanation of one decision, as a document.

Decides which figures there are and what they are called; every view (text, JSON, page) shows these and no
others. Never computes. Figures are rounded once, here on the way in; null is "not known", never zero.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from shardwright.catalog.types import PriceOrigin

VERSION = 1
"""Of the document: fields are only added; a change of meaning raises it."""

Number = int | float


class Part(BaseModel):
    """Base of all parts: frozen, camelCase in JSON, nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Service(Part):
    """Whose decision it is."""

    namespace: str
    name: str


class Source(Part):
    """What the explanation was made from."""

    type: Literal["Decided", "Recorded"]
    """Decided just now from a file; or read from a live object, as frozen in its revision."""
    revision: str | None
    not_recorded: tuple[str, ...]
    """What a live object does not keep, one sentence each."""


class Answer(Part):
    """The first screen, in plain words: one sentence or two each."""

    verdict: Literal["Kept", "NotKept", "NotKnown", "NoPlan"]
    """Whether targets and load are predicted to be kept."""
    runs: str
    costs: str
    keeps: str
    limits: str


class Engine(Part):
    """The engine's limits, as rendered."""

    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization_percent: int
    kv_cache_dtype: str


class Pod(Part):
    """What one pod asks of a node."""

    cpu_millis: int
    memory_gib: Number
    shm_gib: Number
    ephemeral_gib: Number


class Choice(Part):
    """The chosen arrangement."""

    summary: str
    model: str
    gpu_product: str
    gpu: str
    parallelism: str
    gpus_per_replica: int
    replicas: int
    gpus: int
    price_per_gpu_hour: Number | None
    """USD, as configured, or the catalogue's default."""
    price_per_hour: Number | None
    """USD, of all replicas."""
    price_origin: PriceOrigin | None
    price_source: str
    """The price lists behind a default."""
    max_context_tokens: int
    context_clamped_from: int | None
    engine: Engine
    pod: Pod
    binding_constraint: str
    coverage: str


class Load(Part):
    """What the service has to take, and what one replica takes."""

    unit: str
    """`requests a minute` or `requests in flight`."""
    stated: Number | None
    """Of the whole service; null when none is stated."""
    per_replica: Number | None
    """What the prediction is for."""
    most_per_replica: Number | None
    """The most that keeps the targets, as far as a lone request keeps them."""
    most_requests_per_minute_per_replica: Number | None
    limit: str | None
    """What stops more: TTFT, TPOT, LongestStep or Slots."""
    running_per_replica: Number | None
    input_p50_tokens: int
    input_p95_tokens: int
    output_p50_tokens: int
    output_p95_tokens: int
    shared_prefix_tokens: int
    profile: str


class Term(Part):
    """One summand of a predicted time."""

    name: str
    ms: Number | None
    why: str


class Time(Part):
    """TTFT or TPOT of one replica at the planned load."""

    name: Literal["TTFT", "TPOT"]
    percentile: int
    judged_ms: Number | None
    """Predicted, at that percentile."""
    with_margin_ms: Number | None
    """What is held against the target."""
    target_ms: Number
    plan_below_ms: Number
    """The target less the margin: where a prediction must stay."""
    stated: bool
    """Whether the spec states the target; else it is the profile's and binds nothing."""
    kept: bool | None
    median_ms: Number | None
    """The sum of the terms; null when the terms are not known."""
    terms: tuple[Term, ...]


class Band(Part):
    """How far a predicted time may be off."""

    low: Number
    high: Number
    covered: bool
    """Whether measured rows stand behind it."""
    phrase: str
    gaps: tuple[str, ...]


class SecondOpinion(Part):
    """What another model predicts of the same TPOT; nothing is chosen by it."""

    source: str
    verdict: Literal["Agrees", "Disagrees"] | None
    """Null when it has no answer."""
    tpot_ratio: Number | None
    """Theirs over ours, of the median at the planned load."""
    tpot_band_low: Number | None
    """With both known, TPOT is between this and"""
    tpot_band_high: Number | None
    """this times the prediction."""
    said: str
    """In words; without an answer, why there is none."""


class Prediction(Part):
    """What is predicted of latency."""

    margin: Number
    """Predictions are multiplied by it before they are held against a target."""
    band: Band
    ttft: Time
    tpot: Time
    second_opinion: SecondOpinion | None = None
    """Null when none was asked for."""


class Step(Part):
    """One question of the decision and its answer."""

    question: str
    verdict: Literal["Yes", "YesBut", "No", "NotAsked"]
    answer: str
    because: str


class BillLine(Part):
    """One line of the memory bill."""

    item: str
    gib: Number
    why: str


class Share(Part):
    """One part of a GPU's memory."""

    item: str
    gib: Number


class Memory(Part):
    """The bill of the fullest GPU, and what is left for the KV cache of one engine."""

    visible_gib: Number
    bill: tuple[BillLine, ...]
    shares: tuple[Share, ...]
    """The same as parts of the visible memory, the promised KV cache without the margin."""
    kv_tokens: int
    """Predicted."""
    promised_kv_tokens: int
    """After the margin."""
    needed_kv_tokens: int
    requests_in_flight: int
    """In one engine, that the needed tokens are for."""
    coverage: str


class Percentile(Part):
    """One percentile at one load."""

    percentile: int
    ttft_ms: Number | None
    tpot_ms: Number | None


class CurvePoint(Part):
    """One load of one replica."""

    load: Number
    times: tuple[Percentile, ...]


class Curves(Part):
    """Times of one replica against its load."""

    unit: str
    percentiles: tuple[int, ...]
    points: tuple[CurvePoint, ...]
    planned: Number
    """The planned load of one replica."""
    most: Number | None
    """The highest load that keeps the targets which a lone request keeps; null when there is none."""
    full: Number
    """The load at which all slots are in use."""


class CostPoint(Part):
    """The decision when one target is another."""

    target_ms: int
    summary: str | None
    """Null when there is no plan."""
    replicas: int | None
    gpus: int | None
    price_per_hour: Number | None
    reason: str | None
    message: str


class CostCurve(Part):
    """The decision against one target, the others as they are."""

    target: Literal["TTFT", "TPOT"]
    percentile: int
    current_ms: int
    stated: bool
    points: tuple[CostPoint, ...]


class Candidate(Part):
    """One arrangement that was considered."""

    arrangement: str
    """Unique name inside the decision."""
    model: str | None
    gpu: str | None
    parallelism: str | None
    gpus_per_replica: int | None
    replicas: int | None
    price_per_hour: Number | None
    """USD, of all replicas that it would run."""
    ttft_ms: Number | None
    tpot_ms: Number | None
    kv_tokens: int | None
    """Promised."""
    reason: str
    message: str


class ProductPrice(Part):
    """What one GPU of a product costs for an hour, as the decision counts with it."""

    gpu: str
    gpu_product: str
    price_per_gpu_hour: Number | None
    """USD; null: not known."""
    origin: PriceOrigin | None
    source: str
    """The price lists behind a default."""


class Reason(Part):
    """What a word of the candidates' column means."""

    name: str
    sentence: str


class NodeCount(Part):
    """Replicas that a node has room for, or GPUs that somebody holds."""

    name: str
    count: int


class Advice(Part):
    """What somebody with practice would say of the plan; its message is one of the notes."""

    reason: str
    message: str


class MixShare(Part):
    """One product's part in two that would take the load for less."""

    model: str
    gpu_product: str
    parallelism: str
    kv_cache_dtype: str
    replicas: int
    gpus: int
    traffic_percent: int
    price_per_hour: Number | None
    """USD, of these replicas."""


class Mix(Part):
    """Two products that would take the load together for less; a service runs on one, so this is advice."""

    parts: tuple[MixShare, ...]
    price_per_hour: Number | None
    """USD, of both parts."""


class Proposal(Part):
    """A plan that is on record and not in force; of a live object."""

    revision: str
    reason: str
    """Why it waits, as the reason of the condition Planned."""
    summary: str
    replicas: int
    gpus: int
    price_per_hour: Number | None
    """USD, of all its replicas."""
    changes: tuple[str, ...]
    """What is different from what is in force, and what becomes of the pods."""
    approve: str
    """The command that puts it in force."""


class Room(Part):
    """Where the plan has room now."""

    wanted: int
    placed: int
    nodes: tuple[NodeCount, ...]
    stranded_gpus: int
    obstacle: str
    holders: tuple[NodeCount, ...]
    """GPUs of nodes of this kind that others hold."""


class MeasuredFigure(Part):
    """One figure as the engines report it, beside what the plan predicts at the load that was observed."""

    name: str
    measured: Number | None
    predicted: Number | None
    ratio: Number | None
    """Measured over predicted."""
    samples: int
    reason: str


class Measured(Part):
    """What a live object says of how right its plan is."""

    source: str
    at: str
    """When it was written, RFC 3339."""
    figures: tuple[MeasuredFigure, ...]


class Explanation(Part):
    """The whole document."""

    version: int = VERSION
    service: Service
    source: Source
    planned: bool
    reason: str | None
    """Why there is no plan."""
    message: str | None
    answer: Answer
    choice: Choice | None
    load: Load
    prediction: Prediction | None
    questions: tuple[Step, ...]
    memory: Memory | None
    curves: Curves | None
    cost: tuple[CostCurve, ...]
    candidates: tuple[Candidate, ...]
    reasons: tuple[Reason, ...]
    prices: tuple[ProductPrice, ...]
    """Of the products that were considered; of a live object, of the plan's own."""
    room: Room | None
    measured: Measured | None
    notes: tuple[str, ...]
    advice: tuple[Advice, ...] = ()
    """Those of the notes that have a reason of their own."""
    cheaper_mix: Mix | None = None
    proposal: Proposal | None = None
    inputs_digest: str

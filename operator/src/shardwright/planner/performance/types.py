"""What the latency model takes and gives, as values.

Decides the vocabulary: the question (arrangement, workload, load), and the answer with its terms, tails and
error band. Never computes. Times are milliseconds, medians where nothing else is said.
"""

from dataclasses import dataclass
from math import inf

from shardwright.catalog.types import EngineClass, GPUProduct, ModelArchitecture
from shardwright.planner.types import Parallelism


class LoadError(ValueError):
    """A request that states no load, two loads, or an impossible figure; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceRequest:
    """One arrangement under one load. Exactly one of `concurrency` and `rate_per_s` is given."""

    architecture: ModelArchitecture
    """With the number format of the weights."""
    gpu: GPUProduct
    engine: EngineClass
    parallelism: Parallelism
    input_tokens: float
    """Of one request, the shared prefix included."""
    output_tokens: float
    shared_prefix_tokens: float = 0.0
    """Leading tokens that are found in the prefix cache."""
    concurrency: float | None = None
    """Requests in flight, each replaced when it ends (closed loop)."""
    rate_per_s: float | None = None
    """Requests that arrive each second at random (open loop)."""
    max_num_seqs: int = 256
    """Of one engine rank, as vLLM counts: with attention data parallelism each rank runs as many."""
    max_num_batched_tokens: int = 8192
    kv_capacity_tokens: int | None = None
    """Tokens of KV cache of one engine rank from the memory model; None: not limited."""
    fp8_kv: bool = False
    nvlink: bool = True
    """Whether the tensor ranks reach each other over NVLink (or XGMI); False: over PCIe."""
    speculative: bool = False
    """Whether the engine drafts tokens: not modelled, only marked."""
    ttft_ratio: float = 1.0
    """What was measured of such an engine over what is predicted; all times to the first token take it."""
    tpot_ratio: float = 1.0
    """The same of the time between tokens."""

    def __post_init__(self) -> None:
        """Refuse what has no answer. Raises LoadError naming the field."""
        if (self.concurrency is None) == (self.rate_per_s is None):
            raise LoadError("concurrency, rate_per_s: give exactly one of them")
        load = self.concurrency if self.rate_per_s is None else self.rate_per_s
        if load is None or not 0 < load < inf:
            raise LoadError(f"concurrency, rate_per_s: must be above 0, not {load}")
        for name in ("input_tokens", "output_tokens", "max_num_seqs", "max_num_batched_tokens"):
            if not 1 <= getattr(self, name) < inf:
                raise LoadError(f"{name}: must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.shared_prefix_tokens < self.input_tokens:
            raise LoadError(
                "shared_prefix_tokens: must be at least 0 and below input_tokens "
                f"({self.input_tokens:g}), not {self.shared_prefix_tokens:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TPOTTerms:
    """The time between two tokens of one request, ms; the fields add up to it."""

    weights_ms: float
    """Reading the weights once."""
    compute_ms: float
    """What multiplying takes beyond that."""
    kv_ms: float
    """Reading the KV cache of all running requests, or the attention on it where that is longer."""
    communication_ms: float
    launch_ms: float
    """Starting kernels, routing experts, sampling and bookkeeping."""
    interference_ms: float
    """Prefills of other requests, spread over the output tokens."""
    correction_ms: float = 0.0
    """What was measured beyond the other terms; negative when it was less."""

    @property
    def step_ms(self) -> float:
        """One decode step without a prefill in it."""
        return self.weights_ms + self.compute_ms + self.kv_ms + self.communication_ms + self.launch_ms

    @property
    def total_ms(self) -> float:
        """TPOT."""
        return self.step_ms + self.interference_ms + self.correction_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TTFTTerms:
    """The time to the first token, ms; the fields add up to it."""

    request_ms: float
    """HTTP, tokenisation, scheduling."""
    weights_ms: float
    compute_ms: float
    """What multiplying the prompt's tokens takes beyond reading the weights."""
    attention_ms: float
    communication_ms: float
    launch_ms: float
    step_ms: float
    """Waiting for the step under way, and decode work of others in the steps of a prompt cut into chunks."""
    queue_ms: float
    """Prefills of other requests before this one."""
    slots_ms: float
    """Waiting for one of the running requests to end, when no more fit."""
    correction_ms: float = 0.0
    """What was measured beyond the other terms; negative when it was less."""

    @property
    def prefill_ms(self) -> float:
        """The GPUs' work on the prompt."""
        return self.weights_ms + self.compute_ms + self.attention_ms + self.communication_ms

    @property
    def total_ms(self) -> float:
        """TTFT."""
        waiting = self.step_ms + self.queue_ms + self.slots_ms
        return self.request_ms + self.prefill_ms + self.launch_ms + waiting + self.correction_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Tails:
    """Percentiles from fixed factors on the medians; see `tails`."""

    ttft_p95_ms: float
    ttft_p99_ms: float
    tpot_p95_ms: float
    tpot_p99_ms: float
    validated: bool = False
    """Always False: the factors come from one open-loop data set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """By which factors the truth may lie off, and which measured class stands behind that."""

    low: float
    high: float
    covered: bool
    """Whether measured rows cover the class; False is `Unvalidated`."""
    phrase: str
    gaps: tuple[str, ...] = ()
    """What no measured row covers, one phrase each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one replica does at a load."""

    ttft_ms: float
    """Median; infinite where more arrives than is served."""
    tpot_ms: float
    output_tokens_per_s: float
    requests_per_s: float
    running: float
    """Requests decoded at once, on average."""
    utilisation: float
    """Requests served over the most this replica serves with all its slots in use."""
    saturated: bool
    """Whether the load needs more slots than there are."""
    longest_step_ms: float
    """Of an engine step that holds one whole prefill chunk: the longest pause between two tokens."""
    ttft: TTFTTerms
    tpot: TPOTTerms
    tails: Tails
    band: Band

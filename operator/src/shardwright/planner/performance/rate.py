"""The highest request rate one replica serves within its targets.

Decides it by bisection over the requests in flight: TTFT, TPOT and the rate itself all grow with them (see
`load`), so there is one border. Never decides how many replicas that takes.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from shardwright.catalog.performance import PerformanceConstants, load_performance_constants
from shardwright.planner.performance.load import MS, Engine, Running, engine_of, longest_step_ms, run, settle
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.prefill import prefill
from shardwright.planner.performance.speed import speed
from shardwright.planner.performance.tails import tpot_factor, ttft_factor
from shardwright.planner.performance.types import PerformanceRequest, Prediction

DEFAULT_MARGIN = 1.15
"""Predictions are multiplied by it before they are held against a target. With the model held out it keeps
broken targets at the figures of `docs/performance-model.md`."""
HALVINGS = 20
LONG_PERCENTILE = 95
"""From this percentile on, TTFT is judged at the p95 input as well."""


class Limit(StrEnum):
    """What stops a replica from serving more."""

    TTFT = "TTFT"
    TPOT = "TPOT"
    STEP = "LongestStep"
    """One prefill chunk beside a decode step is longer than the inter-token target."""
    SLOTS = "Slots"
    """max-num-seqs or the KV cache; the targets are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What a replica must keep; None: no target. Milliseconds."""

    ttft_ms: float | None = None
    ttft_percentile: int = 50
    tpot_ms: float | None = None
    tpot_percentile: int = 50
    itl_ms: float | None = None
    """Of the longest pause between two tokens."""
    margin: float = DEFAULT_MARGIN
    p95_input_tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is held against the targets, before the margin; milliseconds, at the targets' percentiles."""

    ttft_ms: float
    tpot_ms: float
    itl_ms: float
    """The longest pause: a decode step beside one prefill chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighestRate:
    """The answer; `requests_per_s` is 0 when a lone request breaks a target already."""

    requests_per_s: float
    limit: Limit
    """The target that stops more, or the slots."""
    prediction: Prediction
    """At that rate; of a lone request when it is 0."""


def highest_rate(
    request: PerformanceRequest, targets: Targets, constants: PerformanceConstants | None = None
) -> HighestRate:
    """Return the highest open-loop rate that keeps all targets. The request's own load is not used.

    A percentile is judged as median x tail factor x margin, from P95 on also as the median TTFT of a prompt
    of `p95_input_tokens` x margin, whichever is longer. Raises MissingFactError like `predict`.
    """
    known = constants or load_performance_constants()
    asked = replace(request, concurrency=None, rate_per_s=1.0)
    engine = engine_of(asked, speed(asked, known))
    extra = _longer_prompt_ms(engine, asked, targets)
    full = run(engine, engine.slots)
    broken = _broken(engine, full, targets, extra)
    if broken is None:
        return _answer(asked, known, full.rate_per_ms, Limit.SLOTS)
    low, high, limit = 0.0, engine.slots, broken
    alone = _broken(engine, run(engine, low), targets, extra)
    if alone is not None:
        lone = predict(replace(asked, rate_per_s=None, concurrency=1.0), known)
        return HighestRate(requests_per_s=0.0, limit=alone, prediction=lone)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        broken = _broken(engine, run(engine, middle), targets, extra)
        if broken is None:
            low = middle
        else:
            high, limit = middle, broken
    return _answer(asked, known, run(engine, low).rate_per_ms, limit)


def highest_concurrency(
    request: PerformanceRequest, targets: Targets, constants: PerformanceConstants | None = None
) -> tuple[int, Limit]:
    """Return the most requests in flight (closed loop) that keep all targets, and what stops more.

    0 when a lone request breaks a target. The request's own load is not used. Raises MissingFactError.
    """
    known = constants or load_performance_constants()
    asked = replace(request, concurrency=1.0, rate_per_s=None)
    engine = engine_of(asked, speed(asked, known))
    extra = _longer_prompt_ms(engine, asked, targets)
    low, high, limit = 0, int(engine.slots) + 1, Limit.SLOTS
    while high - low > 1:
        middle = (low + high) // 2
        broken = _broken(engine, run(engine, float(middle)), targets, extra)
        if broken is None:
            low = middle
        else:
            high, limit = middle, broken
    return low, limit


def figures(
    request: PerformanceRequest, targets: Targets, constants: PerformanceConstants | None = None
) -> Figures:
    """Return what is held against the targets at the request's own load, without the margin.

    TTFT is infinite where more arrives than is served. Raises MissingFactError.
    """
    engine = engine_of(request, speed(request, constants or load_performance_constants()))
    state = settle(engine, request)
    found = _figures(engine, state.at, targets, _longer_prompt_ms(engine, request, targets))
    return replace(found, ttft_ms=found.ttft_ms + state.slots_ms)


def largest_chunk(
    request: PerformanceRequest, itl_ms: float, constants: PerformanceConstants | None = None
) -> int:
    """Return the largest max-num-batched-tokens, at most the request's, whose step keeps `itl_ms`.

    In steps of 256 tokens, judged with all the request's load; 0 when not even 256 keep it.
    """
    low, high = 0, request.max_num_batched_tokens // 256
    while low < high:
        middle = (low + high + 1) // 2
        if (
            predict(replace(request, max_num_batched_tokens=middle * 256), constants).longest_step_ms
            <= itl_ms
        ):
            low = middle
        else:
            high = middle - 1
    return low * 256


def _answer(
    request: PerformanceRequest, constants: PerformanceConstants, rate_per_ms: float, limit: Limit
) -> HighestRate:
    rate = rate_per_ms * MS * (1 - 1e-9)
    if rate <= 0:
        lone = predict(replace(request, rate_per_s=None, concurrency=1.0), constants)
        return HighestRate(requests_per_s=0.0, limit=limit, prediction=lone)
    found = predict(replace(request, rate_per_s=rate), constants)
    return HighestRate(requests_per_s=rate, limit=limit, prediction=found)


def _figures(engine: Engine, at: Running, targets: Targets, extra_ms: float) -> Figures:
    """Return the figures while so many requests run; `extra_ms` is what the p95 prompt takes longer."""
    ttft = at.ttft_ms * ttft_factor(targets.ttft_percentile, at.running)
    return Figures(
        ttft_ms=max(ttft, at.ttft_ms + extra_ms),
        tpot_ms=at.tpot_ms * tpot_factor(targets.tpot_percentile, at.running),
        itl_ms=longest_step_ms(engine, at),
    )


def _broken(engine: Engine, at: Running, targets: Targets, extra_ms: float) -> Limit | None:
    """Return the first target that is broken while so many requests run."""
    found, margin = _figures(engine, at, targets, extra_ms), targets.margin
    if targets.ttft_ms is not None and found.ttft_ms * margin > targets.ttft_ms:
        return Limit.TTFT
    if targets.tpot_ms is not None and found.tpot_ms * margin > targets.tpot_ms:
        return Limit.TPOT
    if targets.itl_ms is not None and found.itl_ms * margin > targets.itl_ms:
        return Limit.STEP
    return None


def _longer_prompt_ms(engine: Engine, request: PerformanceRequest, targets: Targets) -> float:
    """Return what the prefill of the p95 prompt takes beyond the median one's."""
    longer = targets.p95_input_tokens
    if longer is None or longer <= request.input_tokens or targets.ttft_percentile < LONG_PERCENTILE:
        return 0.0
    found = prefill(engine.speed, longer, request.shared_prefix_tokens, request.max_num_batched_tokens)
    return (found.total_ms - engine.prompt.total_ms) * engine.ttft_ratio

"""What was measured against what the plan predicts at the load that was observed.

Decides four ratios, measured over predicted: tokens of KV cache, GiB of everything else on a GPU, TTFT and
TPOT. Each has the number of samples behind it, or a reason why it is not known; a ratio is never made up.
Never changes a plan: it says how far one is off.

vLLM's histograms give means, and the model predicts medians. Their quotient is taken from the tails' own
factor as if latencies were lognormal: sigma = ln(P95 / median) / 1.645, mean / median = exp(sigma^2 / 2);
1.01 to 1.09 for TTFT. The mean over prompts of several lengths is the prediction at their mean length as far
as TTFT is linear in it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, inf, isfinite, log
from typing import Final

from shardwright.api.reasons import CalibrationReason
from shardwright.catalog.types import EngineClass
from shardwright.planner.growth import Growth
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.tails import tpot_factor, ttft_factor
from shardwright.planner.performance.types import LoadError, PerformanceRequest, Prediction
from shardwright.planner.performance.work import MissingFactError
from shardwright.planner.types import LoadKind, Plan

MIN_REQUESTS: Final = 50
"""Fewer say too little: the mean of 50 lognormal latencies with P95 twice the median is within 12 % (two
standard errors)."""
MIN_OUTPUT_TOKENS: Final = 2.0
"""Answers shorter than that, on average, have no time between tokens."""
LOW, HIGH = 0.8, 1.25
"""A ratio outside is worth another plan. Inside, the error band of the prediction is as wide."""
BACK_LOW, BACK_HIGH = 0.85, 1.18
"""A ratio that was outside is inside again only from here on, so that it does not flicker at the border."""
_P95_SIGMAS = 1.645


class Figure(StrEnum):
    """What is compared."""

    KV_TOKENS = "KVTokens"
    """Tokens of the KV cache of one engine rank."""
    MEMORY = "Memory"
    """GiB of one GPU's budget that are no KV cache: weights, activations, overheads. vLLM reports no
    weights."""
    TTFT = "TTFT"
    """Mean, ms."""
    TPOT = "TPOT"
    """Mean, ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A figure with both sides."""

    figure: Figure
    measured: float
    predicted: float
    samples: int
    """Engines for KVTokens and Memory, requests for TTFT and TPOT."""

    @property
    def ratio(self) -> float:
        """Measured over predicted: above 1, there is more of it than was predicted."""
        return self.measured / self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """A figure that is not known, and why."""

    figure: Figure
    why: CalibrationReason
    samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One engine of the plan's revision."""

    kv_tokens: float | None = None
    growth: Growth | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the engines served, on average for each."""

    requests_per_s: float
    input_tokens: float
    output_tokens: float
    engines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The answer for one revision of one service."""

    figures: tuple[Measured | Unmeasured, ...]
    """One for each Figure, in its order."""
    load: Load | None = None
    """None: too little was served to say."""


def compare(plan: Plan, engine: EngineClass, observed: Sequence[Observed], min_seconds: float) -> Comparison:
    """Compare a plan with engines of its revision, each at its own load.

    `min_seconds`: a span shorter than that counts for nothing.
    """
    return Comparison(
        figures=(*_memory(plan, observed), *_latency(plan, engine, observed, min_seconds)),
        load=_load(list(_served(observed, min_seconds))),
    )


def _memory(plan: Plan, observed: Sequence[Observed]) -> tuple[Measured | Unmeasured, ...]:
    """Compare the KV cache, and what is left of a GPU's budget beside it."""
    found = [seen.kv_tokens for seen in observed if seen.kv_tokens]
    bill = plan.estimate
    if not found or bill.kv_tokens <= 0 or bill.kv_cache_gib_per_gpu <= 0:
        why = CalibrationReason.NOT_PREDICTED if found else CalibrationReason.NOT_REPORTED
        return tuple(Unmeasured(figure=each, why=why) for each in (Figure.KV_TOKENS, Figure.MEMORY))
    tokens = sum(found) / len(found)
    budget = bill.visible_gib * plan.limits.gpu_memory_utilization_percent / 100
    cache = bill.kv_cache_gib_per_gpu
    rest, seen_rest = budget - cache, budget - cache * tokens / bill.kv_tokens
    kv = Measured(
        figure=Figure.KV_TOKENS, measured=tokens, predicted=float(bill.kv_tokens), samples=len(found)
    )
    if rest <= 0 or seen_rest <= 0:
        return kv, Unmeasured(figure=Figure.MEMORY, why=CalibrationReason.NOT_PREDICTED)
    return kv, Measured(figure=Figure.MEMORY, measured=seen_rest, predicted=rest, samples=len(found))


def _served(observed: Iterable[Observed], min_seconds: float) -> Iterable[tuple[Observed, Growth]]:
    """Return the engines that served something, with all that a prediction at their load needs."""
    for seen in observed:
        grown = seen.growth
        if grown is None or grown.seconds < max(min_seconds, 1e-9) or not grown.ttft_count:
            continue
        if grown.ttft_sum_s is None or not grown.prompt_tokens or not grown.generation_tokens:
            continue
        yield seen, grown


def _load(served: list[tuple[Observed, Growth]]) -> Load | None:
    requests = sum(grown.ttft_count or 0.0 for _, grown in served)
    if requests < MIN_REQUESTS:
        return None
    return Load(
        requests_per_s=sum((g.ttft_count or 0.0) / g.seconds for _, g in served) / len(served),
        input_tokens=sum(g.prompt_tokens or 0.0 for _, g in served) / requests,
        output_tokens=sum(g.generation_tokens or 0.0 for _, g in served) / requests,
        engines=len(served),
    )


def _latency(
    plan: Plan, engine: EngineClass, observed: Sequence[Observed], min_seconds: float
) -> tuple[Measured | Unmeasured, ...]:
    """Compare sums of seconds: each engine's requests times what is predicted at its load."""
    both = (Figure.TTFT, Figure.TPOT)
    if not any(seen.growth and seen.growth.ttft_count is not None for seen in observed):
        # No series of the kind; before two samples nothing is said of that either.
        known = any(seen.growth for seen in observed)
        why = CalibrationReason.NOT_REPORTED if known else CalibrationReason.TOO_FEW_REQUESTS
        return tuple(Unmeasured(figure=each, why=why) for each in both)
    served = list(_served(observed, min_seconds))
    requests = sum(grown.ttft_count or 0.0 for _, grown in served)
    if requests < MIN_REQUESTS:
        why, count = CalibrationReason.TOO_FEW_REQUESTS, int(requests)
        return tuple(Unmeasured(figure=each, why=why, samples=count) for each in both)
    try:
        pairs = [(grown, _predicted(plan, engine, seen, grown)) for seen, grown in served]
    except (MissingFactError, LoadError):
        return tuple(Unmeasured(figure=each, why=CalibrationReason.NOT_PREDICTED) for each in both)
    return _ttft(pairs, int(requests)), _tpot(pairs)


def _ttft(pairs: list[tuple[Growth, Prediction]], requests: int) -> Measured | Unmeasured:
    measured = sum(grown.ttft_sum_s or 0.0 for grown, _ in pairs) * 1000
    predicted = sum(
        (grown.ttft_count or 0.0) * at.ttft_ms * _mean_over_median(ttft_factor(95, at.running))
        for grown, at in pairs
    )
    return _ratio(Figure.TTFT, measured, predicted, requests)


def _tpot(pairs: list[tuple[Growth, Prediction]]) -> Measured | Unmeasured:
    known = [
        (grown, at)
        for grown, at in pairs
        if grown.tpot_sum_s is not None
        and grown.tpot_count
        and (grown.generation_tokens or 0.0) >= MIN_OUTPUT_TOKENS * (grown.ttft_count or 0.0)
    ]
    count = sum(grown.tpot_count or 0.0 for grown, _ in known)
    if count < MIN_REQUESTS:
        return Unmeasured(
            figure=Figure.TPOT,
            why=CalibrationReason.TOO_FEW_REQUESTS
            if any(grown.tpot_count is not None for grown, _ in pairs)
            else CalibrationReason.NOT_REPORTED,
            samples=int(count),
        )
    measured = sum(grown.tpot_sum_s or 0.0 for grown, _ in known) * 1000
    predicted = sum(
        (grown.tpot_count or 0.0) * at.tpot_ms * _mean_over_median(tpot_factor(95, at.running))
        for grown, at in known
    )
    return _ratio(Figure.TPOT, measured, predicted, int(count))


def _ratio(figure: Figure, measured: float, predicted: float, samples: int) -> Measured | Unmeasured:
    """Build a figure from sums over its samples."""
    if measured <= 0 or predicted <= 0 or not isfinite(measured):
        return Unmeasured(figure=figure, why=CalibrationReason.NOT_REPORTED, samples=samples)
    return Measured(
        figure=figure, measured=measured / samples, predicted=predicted / samples, samples=samples
    )


def _predicted(plan: Plan, engine: EngineClass, seen: Observed, grown: Growth) -> Prediction:
    """Predict one engine at its own load.

    A service that is planned for a rate is asked about its rate; one that is planned for requests in flight,
    and one that serves more than is predicted to be possible, about the requests in flight (Little's law).
    """
    asked = _request(plan, engine, seen, grown)
    requests = grown.ttft_count or 0.0
    stay_s = (grown.ttft_sum_s or 0.0) / requests
    if grown.tpot_sum_s is not None and grown.tpot_count:
        stay_s += grown.tpot_sum_s / grown.tpot_count * (asked.output_tokens - 1)
    in_flight = requests / grown.seconds * stay_s
    closed = replace(asked, rate_per_s=None, concurrency=max(in_flight, 1.0))
    if plan.speed is not None and plan.speed.kind is LoadKind.IN_FLIGHT:
        return predict(closed)
    found = predict(asked)
    return predict(closed) if found.ttft_ms == inf else found


def _request(plan: Plan, engine: EngineClass, seen: Observed, grown: Growth) -> PerformanceRequest:
    requests = grown.ttft_count or 0.0
    inputs = max(1.0, (grown.prompt_tokens or 0.0) / requests)
    hits = (grown.prefix_hit_tokens or 0.0) / requests
    return PerformanceRequest(
        architecture=plan.model.architecture,
        gpu=plan.product,
        engine=engine,
        parallelism=plan.parallelism,
        input_tokens=inputs,
        output_tokens=max(1.0, (grown.generation_tokens or 0.0) / requests),
        shared_prefix_tokens=min(hits, inputs - 1.0),
        rate_per_s=requests / grown.seconds,
        max_num_seqs=plan.limits.max_num_seqs,
        max_num_batched_tokens=plan.limits.max_num_batched_tokens,
        kv_capacity_tokens=int(seen.kv_tokens or max(1, plan.estimate.kv_tokens)),
        fp8_kv=plan.limits.kv_cache_dtype == "fp8",
        nvlink=plan.within_island,
        ttft_ratio=(plan.correction and plan.correction.ttft) or 1.0,
        tpot_ratio=(plan.correction and plan.correction.tpot) or 1.0,
    )


def _mean_over_median(p95_factor: float) -> float:
    return exp((log(p95_factor) / _P95_SIGMAS) ** 2 / 2)


def outside(ratio: float, *, was_outside: bool) -> bool:
    """Whether a ratio is worth another plan; one that was is held to narrower bounds before it is not."""
    if was_outside:
        return not BACK_LOW <= ratio <= BACK_HIGH
    return not LOW <= ratio <= HIGH

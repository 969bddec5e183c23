"""The highest load that one replica serves within its targets.

Decides it by bisection over the requests in flight: TTFT, TPOT and the rate itself all grow with them (see
`load`), so there is one border. Never decides how many replicas that takes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from shardwright.catalog.performance import PerformanceConstants, load_performance_constants
from shardwright.planner.performance.band import band
from shardwright.planner.performance.load import (
    MS,
    Engine,
    Running,
    engine_of,
    longest_step_ms,
    run,
    settle,
)
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.prefill import prefill
from shardwright.planner.performance.speed import speed
from shardwright.planner.performance.tails import tpot_factor, ttft_factor
from shardwright.planner.performance.types import Band, PerformanceRequest, Prediction

DEFAULT_MARGIN = 1.15
"""Predictions are multiplied by it before they are held against a target. With the model held out it keeps
broken targets at the figures of `docs/performance-model.md`."""
GRID = 1 << 20
"""The border is found to this part of the slots, always on one grid: so it moves one way with a target."""
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

    def over(self, targets: Targets) -> Iterator[tuple[Limit, float]]:
        """Yield each target with the figure over it, the margin included: above 1 it is missed."""
        if targets.ttft_ms is not None:
            yield Limit.TTFT, self.ttft_ms * targets.margin / targets.ttft_ms
        if targets.tpot_ms is not None:
            yield Limit.TPOT, self.tpot_ms * targets.margin / targets.tpot_ms
        if targets.itl_ms is not None:
            yield Limit.STEP, self.itl_ms * targets.margin / targets.itl_ms


@dataclass(frozen=True, slots=True)
class Border:
    """The highest load within targets; `requests_per_s` is 0 when a lone request breaks one already."""

    requests_per_s: float
    limit: Limit
    """The target that stops more, or the slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighestRate:
    """The answer; `requests_per_s` is 0 when a lone request breaks a target already."""

    requests_per_s: float
    limit: Limit
    prediction: Prediction
    """At that rate; of a lone request when it is 0."""


class Replica:
    """One arrangement, prepared for many questions about its load. The request's own load is not used."""

    __slots__ = ("_closed", "_full", "_idle", "_longer", "_open", "_request")

    _closed: Engine | None

    def __init__(self, request: PerformanceRequest, constants: PerformanceConstants | None = None) -> None:
        """Prepare it. Raises MissingFactError when the card's row lacks a rate."""
        self._request = request
        engine = engine_of(request, speed(request, constants or load_performance_constants()))
        self._open = engine if not engine.closed else replace(engine, closed=False)
        self._closed = engine if engine.closed else None
        self._full, self._idle = run(self._open, self._open.slots), run(self._open, 0.0)
        self._longer: dict[float, float] = {}

    @property
    def band(self) -> Band:
        """How far what is predicted of it may be off."""
        return band(self._request)

    def _loop(self) -> Engine:
        """Return the engine under a closed loop."""
        if self._closed is None:
            self._closed = replace(self._open, closed=True)
        return self._closed

    def highest(self, targets: Targets) -> Border:
        """Return the highest open-loop rate that keeps all targets.

        A percentile is judged as median x tail factor x margin, from P95 on also as the median TTFT of a
        prompt of `p95_input_tokens` x margin, whichever is longer.
        """
        engine, extra = self._open, self._longer_prompt_ms(targets)
        broken, over = _worst(engine, self._full, targets, extra)
        if over <= 1:
            return Border(self._full.rate_per_ms * MS * (1 - 1e-9), Limit.SLOTS)
        alone, least = _worst(engine, self._idle, targets, extra)
        if least > 1:
            return Border(0.0, alone)
        at, limit = self._bisect(targets, extra, (least, over), broken)
        return Border(at.rate_per_ms * MS * (1 - 1e-9), limit)

    def alone(self, targets: Targets) -> Figures:
        """Return what is held against the targets when nothing else runs."""
        return _figures(self._open, self._idle, targets, self._longer_prompt_ms(targets))

    def _bisect(
        self, targets: Targets, extra_ms: float, ends: tuple[float, float], broken: Limit
    ) -> tuple[Running, Limit]:
        """Return the last point of the grid that keeps the targets, and the target that the next one breaks.

        Regula falsi with the Illinois rule: an end that stays twice counts half, so that both ends move.
        """
        engine, step = self._open, self._open.slots / GRID
        low, high, below, above = 0, GRID, ends[0] - 1, ends[1] - 1
        at, limit, side = self._idle, broken, 0
        while high - low > 1:
            share = -below / (above - below) if 0 < above < inf else 0.5
            middle = min(high - 1, max(low + 1, low + round((high - low) * share)))
            found = run(engine, middle * step)
            broken, over = _worst(engine, found, targets, extra_ms)
            if over <= 1:
                low, below, at = middle, over - 1, found
                above = above / 2 if side < 0 else above
                side = -1
            else:
                high, above, limit = middle, over - 1, broken
                below = below / 2 if side > 0 else below
                side = 1
        return at, limit

    def most_in_flight(self, targets: Targets) -> tuple[int, Limit]:
        """Return the most requests in flight (closed loop) that keep all targets, and what stops more.

        0 when a lone request breaks a target.
        """
        engine, extra = self._loop(), self._longer_prompt_ms(targets)
        low, high, limit = 0, int(engine.slots) + 1, Limit.SLOTS
        while high - low > 1:
            middle = (low + high) // 2
            broken, over = _worst(engine, run(engine, float(middle)), targets, extra)
            if over <= 1:
                low = middle
            else:
                high, limit = middle, broken
        return low, limit

    def at(
        self, targets: Targets, *, rate_per_s: float | None = None, concurrency: float | None = None
    ) -> tuple[float, Figures]:
        """Return how many run at a load, and what is held against the targets there, without the margin.

        Exactly one load is given, above 0. TTFT is infinite where more arrives than is served.
        """
        loop = concurrency is not None
        engine = self._loop() if loop else self._open
        state = settle(engine, concurrency, rate_per_s, None if loop else self._full)
        extra = self._longer_prompt_ms(targets)
        return state.at.running, _figures(engine, state.at, targets, extra, state.slots_ms)

    def _longer_prompt_ms(self, targets: Targets) -> float:
        """Return what the prefill of the p95 prompt takes beyond the median one's."""
        longer, request = targets.p95_input_tokens, self._request
        if longer is None or longer <= request.input_tokens or targets.ttft_percentile < LONG_PERCENTILE:
            return 0.0
        known = self._longer.get(longer)
        if known is None:
            found = prefill(
                self._open.speed, longer, request.shared_prefix_tokens, request.max_num_batched_tokens
            )
            known = (found.total_ms - self._open.prompt.total_ms) * self._open.ttft_ratio
            self._longer[longer] = known
        return known


def highest_rate(
    request: PerformanceRequest, targets: Targets, constants: PerformanceConstants | None = None
) -> HighestRate:
    """Return `Replica.highest` with the prediction there. Raises MissingFactError like `predict`."""
    found = Replica(request, constants).highest(targets)
    if found.requests_per_s <= 0:
        at = replace(request, rate_per_s=None, concurrency=1.0)
    else:
        at = replace(request, concurrency=None, rate_per_s=found.requests_per_s)
    return HighestRate(
        requests_per_s=found.requests_per_s, limit=found.limit, prediction=predict(at, constants)
    )


def highest_concurrency(
    request: PerformanceRequest, targets: Targets, constants: PerformanceConstants | None = None
) -> tuple[int, Limit]:
    """Return `Replica.most_in_flight`. Raises MissingFactError like `predict`."""
    return Replica(request, constants).most_in_flight(targets)


def figures(
    request: PerformanceRequest, targets: Targets, constants: PerformanceConstants | None = None
) -> Figures:
    """Return what is held against the targets at the request's own load. Raises MissingFactError."""
    found = Replica(request, constants)
    return found.at(targets, rate_per_s=request.rate_per_s, concurrency=request.concurrency)[1]


def _figures(
    engine: Engine, at: Running, targets: Targets, extra_ms: float, slots_ms: float = 0.0
) -> Figures:
    """Return the figures while so many requests run; `extra_ms` is what the p95 prompt takes longer."""
    ttft = at.ttft_ms * ttft_factor(targets.ttft_percentile, at.running)
    return Figures(
        ttft_ms=max(ttft, at.ttft_ms + extra_ms) + slots_ms,
        tpot_ms=at.tpot_ms * tpot_factor(targets.tpot_percentile, at.running),
        itl_ms=longest_step_ms(engine, at),
    )


def _worst(engine: Engine, at: Running, targets: Targets, extra_ms: float) -> tuple[Limit, float]:
    """Return the target that is missed by most, or is nearest to it, and the figure over it."""
    worst, most = Limit.SLOTS, 0.0
    for limit, over in _figures(engine, at, targets, extra_ms).over(targets):
        if over > most:
            worst, most = limit, over
    return worst, most

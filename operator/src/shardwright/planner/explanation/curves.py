"""Times of one replica of a plan: their terms at the planned load, and how they grow with the load.

Decides at which loads the latency model is asked. The question is the one that the decision asked; a curve
that would not pass through the planned figures is not drawn.
"""

from dataclasses import replace
from math import ceil, isclose

from shardwright.api.defaults import Resolved
from shardwright.catalog.types import EngineClass
from shardwright.planner.explanation import figures as rounded
from shardwright.planner.explanation.document import CurvePoint, Curves, Percentile, Term
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.rate import Targets, figures, highest_concurrency, highest_rate
from shardwright.planner.performance.terms import Named, tpot_terms, ttft_terms
from shardwright.planner.performance.types import PerformanceRequest, Prediction
from shardwright.planner.performance.work import MissingFactError
from shardwright.planner.replica import planned_request
from shardwright.planner.types import LoadKind, Plan, Speed

POINTS = 24
"""Loads of a curve beside the planned one: enough for a smooth line."""
BEYOND = 1.25
"""How far a curve goes beyond the planned and the highest load."""
NEAR_FULL = 0.97
"""Of the rate at which all slots are in use: at it, the time to first token has no bound."""
NAMES = {"kv": "KV cache"}
_SAME = 1e-6
"""Relative difference of two predictions by the same model."""


def replica_of(plan: Plan, resolved: Resolved, engine: EngineClass) -> PerformanceRequest | None:
    """Return the planned replica at its planned load, as the decision put it to the latency model.

    None without a prediction, and when this version's model, asked again, predicts something else: then the
    plan is from another version, or for another workload, and its figures have no terms on record.
    """
    asked = planned_request(plan, resolved, engine)
    if asked is None or plan.speed is None:
        return None
    try:
        found = figures(asked, _targets(resolved))
    except MissingFactError:
        return None
    same = isclose(found.ttft_ms, plan.speed.ttft_ms, rel_tol=_SAME) and isclose(
        found.tpot_ms, plan.speed.tpot_ms, rel_tol=_SAME
    )
    return asked if same else None


def terms_of(asked: PerformanceRequest) -> tuple[Prediction, tuple[Term, ...], tuple[Term, ...]]:
    """Return the medians at the question's load, and the terms of TTFT and TPOT."""
    found = predict(asked)
    return found, _terms(ttft_terms(found.ttft)), _terms(tpot_terms(found.tpot))


def curves_of(asked: PerformanceRequest, speed: Speed, resolved: Resolved) -> Curves:
    """Return TTFT and TPOT of one replica from a lone request to where targets or slots end it."""
    rate, planned = speed.kind is LoadKind.RATE, speed.load or 0.0
    targets = resolved.targets
    percentiles = tuple(sorted({50, 95, targets.ttft.percentile, targets.tpot.percentile}))
    if rate:
        full, most = highest_rate(asked, Targets()).requests_per_s * 60, speed.requests_per_minute
        end = min(NEAR_FULL * full, BEYOND * max(planned, most))
        loads = [end * n / POINTS for n in range(1, POINTS + 1)]
    else:
        slots, _ = highest_concurrency(asked, Targets())
        most = speed.comfortable or highest_concurrency(asked, _targets(resolved))[0]
        full, last = float(slots), ceil(BEYOND * max(planned, most, 4.0))
        step = max(1, ceil(min(slots, last) / POINTS))
        loads = [float(n) for n in range(1, min(slots, last) + 1, step)]
    marked = [most, planned] if 0 < most <= loads[-1] else [planned]
    exact = {rounded.load(at): at for at in [*loads, *marked] if rounded.load(at)}
    return Curves(
        unit="requests a minute" if rate else "requests in flight",
        percentiles=percentiles,
        points=tuple(_point(asked, at, percentiles, resolved) for at in sorted(exact.values())),
        planned=rounded.load(planned) or 0,
        most=rounded.most(most) if most > 0 else None,
        full=rounded.most(full) or 0,
    )


def _point(
    asked: PerformanceRequest, load: float, percentiles: tuple[int, ...], resolved: Resolved
) -> CurvePoint:
    at = replace(asked, rate_per_s=load / 60) if asked.rate_per_s else replace(asked, concurrency=load)
    times = []
    for percentile in percentiles:
        wanted = replace(_targets(resolved), ttft_percentile=percentile, tpot_percentile=percentile)
        found = figures(at, wanted)
        times.append(
            Percentile(
                percentile=percentile, ttft_ms=rounded.ms(found.ttft_ms), tpot_ms=rounded.ms(found.tpot_ms)
            )
        )
    return CurvePoint(load=rounded.load(load) or 0, times=tuple(times))


def _targets(resolved: Resolved) -> Targets:
    wanted = resolved.targets
    return Targets(
        ttft_ms=float(wanted.ttft.milliseconds),
        ttft_percentile=wanted.ttft.percentile,
        tpot_ms=float(wanted.tpot.milliseconds),
        tpot_percentile=wanted.tpot.percentile,
        p95_input_tokens=float(resolved.traffic.input_p95_tokens),
    )


def _terms(named: Named) -> tuple[Term, ...]:
    return tuple(
        Term(name=NAMES.get(name, name.capitalize()), ms=rounded.term_ms(ms), why=why)
        for name, ms, why in named
    )

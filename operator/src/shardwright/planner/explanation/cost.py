"""What another target would cost: the decision itself, asked again with one target changed.

Decides which targets are tried. The price is always that of a whole decision, never an estimate beside it.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardwright.api.defaults import Resolved, resolve
from shardwright.api.workload import LatencyTarget, SloSpec
from shardwright.planner.choice import plan
from shardwright.planner.explanation import figures as rounded
from shardwright.planner.explanation.document import CostCurve, CostPoint
from shardwright.planner.load import TPOT, TTFT, stated_fields
from shardwright.planner.types import Decision, Plan, PlanRequest

FACTORS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0)
"""Of the target as it is; each is one decision."""
MOST_RELAXED = 8
"""Targets beside those that candidates name as what they would keep."""
_LONGEST_MS = 3_600_000


def cost_curves(request: PlanRequest, decision: Decision) -> tuple[CostCurve, ...]:
    """Return the price per hour against the TTFT target, and against the TPOT target.

    Where targets are out of reach, those that candidates of `decision` would keep are tried as well. Empty
    when no target that was tried has a plan.
    """
    resolved, stated = resolve(request.spec), stated_fields(request.spec)
    relaxed = [] if isinstance(decision, Plan) else [pair for c in decision.candidates for pair in c.relaxed]
    found = (
        _curve(request, resolved, TTFT, relaxed, stated=TTFT in stated),
        _curve(request, resolved, TPOT, relaxed, stated=TPOT in stated),
    )
    return found if any(point.summary for curve in found for point in curve.points) else ()


def _curve(
    request: PlanRequest, resolved: Resolved, field: str, relaxed: Sequence[tuple[str, int]], *, stated: bool
) -> CostCurve:
    target = resolved.targets.ttft if field == TTFT else resolved.targets.tpot
    tried = {min(_LONGEST_MS, max(1, round(target.milliseconds * factor))) for factor in FACTORS}
    tried |= set(sorted(at for name, at in relaxed if name == f"{field}.milliseconds")[:MOST_RELAXED])
    return CostCurve(
        target="TTFT" if field == TTFT else "TPOT",
        percentile=target.percentile,
        current_ms=target.milliseconds,
        stated=stated,
        points=tuple(_point(request, field, target, at) for at in sorted(tried)),
    )


def _point(request: PlanRequest, field: str, target: LatencyTarget, milliseconds: int) -> CostPoint:
    name = "ttft" if field == TTFT else "tpot"
    wanted = LatencyTarget(percentile=target.percentile, milliseconds=milliseconds)
    slo = (request.spec.slo or SloSpec()).model_copy(update={name: wanted})
    decision = plan(replace(request, spec=request.spec.model_copy(update={"slo": slo})))
    if not isinstance(decision, Plan):
        return CostPoint(
            target_ms=milliseconds, summary=None, replicas=None, gpus=None, price_per_hour=None,
            reason=decision.reason.value, message=decision.message,
        )  # fmt: skip
    return CostPoint(
        target_ms=milliseconds, summary=decision.summary, replicas=decision.replicas,
        gpus=decision.gpus_per_replica * decision.replicas, price_per_hour=rounded.price(decision),
        reason=None, message="",
    )  # fmt: skip

"""What of the autoscaler's decisions is told in `status.scaling`, and when it is worth telling.

Decides that a change of size is told at once; that what limits it, what is not known and what no size mends
are told when they have stood for a while, and seldom; and that no figure is told for its own sake. Never
decides a size.
"""

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from shardwright.api.scaling_reasons import ScalingRule, ScalingVeto, UnknownSignal
from shardwright.api.status import ScalingDecision, ScalingInputs, ScalingStatus
from shardwright.autoscaler.law import complete
from shardwright.autoscaler.signals import FleetSignals
from shardwright.autoscaler.state import Decision, Inputs
from shardwright.planner.report import decimal
from shardwright.planner.signals import Unknown, Why

MOST_DECISIONS: Final = 5
STANDS_S: Final = 60.0
"""For how long a circumstance must be another one before it is told: a pod that becomes ready is unknown for
a tick."""
REST_S: Final = 300.0
"""Seconds between two tellings of circumstances."""
LIMITS: Final = frozenset({ScalingRule.MAXIMUM, ScalingRule.GPU_BUDGET, ScalingRule.NO_PLACE})


class Circumstances(NamedTuple):
    """What a size is told with, besides the figures of its decision."""

    limit: str = ""
    unknown: tuple[str, ...] = ()
    infeasible: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Circumstances, since when each is there, and when one was told for itself; seconds of any clock."""

    now: Circumstances = field(default_factory=Circumstances)
    since_s: tuple[float, float, float] = (0.0, 0.0, 0.0)
    told_s: float = float("-inf")


def circumstances(decision: Decision, signals: FleetSignals) -> Circumstances:
    """Return those of one tick."""
    unknown = []
    if not complete(signals):
        unknown.append(UnknownSignal.SIGNALS_UNKNOWN.value)
    for reading, name in (
        (signals.late_first_tokens, UnknownSignal.TTFT_NOT_AN_EDGE),
        (signals.slow_finished, UnknownSignal.TPOT_NOT_AN_EDGE),
    ):
        if isinstance(reading, Unknown) and reading.why is Why.NO_EDGE:
            unknown.append(name.value)
    if ScalingVeto.ROUTERS_SILENT in decision.vetoes:
        unknown.append(UnknownSignal.ROUTERS_SILENT.value)
    return Circumstances(
        limit=decision.rule.value if decision.rule in LIMITS else "",
        unknown=tuple(unknown),
        infeasible=tuple(term.value for term in decision.infeasible),
    )


def follow(standing: Standing, seen: Circumstances, now_s: float) -> Standing:
    """Return the circumstances after another tick."""
    if seen == standing.now:
        return standing
    limit, unknown, infeasible = (
        since if old == new else now_s
        for old, new, since in zip(standing.now, seen, standing.since_s, strict=True)
    )
    return replace(standing, now=seen, since_s=(limit, unknown, infeasible))


def settled(told: ScalingStatus, standing: Standing, now_s: float) -> Circumstances:
    """Return the circumstances that have stood for a while, each; in place of others what is told."""
    limit, unknown, infeasible = (now_s - since >= STANDS_S for since in standing.since_s)
    before, now = told_of(told), standing.now
    return Circumstances(
        limit=now.limit if limit else before.limit,
        unknown=now.unknown if unknown else before.unknown,
        infeasible=now.infeasible if infeasible else before.infeasible,
    )


def told_at(standing: Standing, now_s: float) -> Standing:
    """Return circumstances that are told now."""
    return replace(standing, told_s=now_s)


def is_news(told: ScalingStatus, standing: Standing, now_s: float) -> bool:
    """Whether the circumstances are worth a write by themselves."""
    return now_s - standing.told_s >= REST_S and settled(told, standing, now_s) != told_of(told)


def told_of(told: ScalingStatus) -> Circumstances:
    """Return the circumstances that a status tells."""
    return Circumstances(told.limit or "", tuple(told.unknown or ()), tuple(told.infeasible or ()))


def with_circumstances(told: ScalingStatus, now: Circumstances) -> ScalingStatus:
    """Return a status with other circumstances."""
    return told.model_copy(
        update={
            "limit": now.limit or None,
            "unknown": list(now.unknown) or None,
            "infeasible": list(now.infeasible) or None,
            "remedy": told.remedy if now.infeasible else None,
        }
    )


def with_decision(told: ScalingStatus, decision: Decision, replicas: int, time: str) -> ScalingStatus:
    """Return a status with another size."""
    change = ScalingDecision(
        time=time,
        from_replicas=told.desired_replicas,
        replicas=replicas,
        rule=decision.rule.value,
        vetoes=[veto.value for veto in decision.vetoes] or None,
        inputs=_inputs(decision.inputs),
    )
    kept = [change, *(told.decisions or ())][:MOST_DECISIONS]
    return told.model_copy(update={"desired_replicas": replicas, "decisions": kept})


def _inputs(seen: Inputs) -> ScalingInputs:
    return ScalingInputs(
        demand=decimal(seen.demand),
        floor=decimal(seen.floor),
        headroom=decimal(seen.headroom),
        slowness=decimal(seen.slowness),
        requests_per_minute_per_replica=decimal(seen.rate_per_replica_per_s * 60),
        missed_percent=decimal(seen.miss_share * 100),
        too_long_percent=decimal(seen.infeasible_share * 100),
    )

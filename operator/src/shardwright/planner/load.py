"""The load and the targets that a spec states, and how many replicas a load takes by given figures.

Decides counts from figures alone, so that a plan in force can be scaled without predicting anything again.
Never predicts.
"""

from dataclasses import dataclass
from math import ceil

from shardwright.api.defaults import Resolved
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.planner.performance.rate import Limit, Targets
from shardwright.planner.types import LoadKind, Plan

TTFT, TPOT, ITL = "slo.ttft", "slo.tpot", "slo.itl"
FIELD_OF = {Limit.TTFT: TTFT, Limit.TPOT: TPOT, Limit.STEP: ITL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The stated load of the whole service."""

    kind: LoadKind
    total: float

    @property
    def unit(self) -> str:
        """Its unit, for sentences."""
        return "requests a minute" if self.kind is LoadKind.RATE else "requests in flight"


def load_of(resolved: Resolved) -> Load:
    """Return the load that is stated."""
    traffic = resolved.traffic
    if traffic.requests_per_minute is not None:
        return Load(kind=LoadKind.RATE, total=float(traffic.requests_per_minute))
    if traffic.concurrency is not None:
        return Load(kind=LoadKind.IN_FLIGHT, total=float(traffic.concurrency))
    return Load(kind=LoadKind.NONE, total=0.0)


def stated_fields(spec: LLMServiceSpec) -> frozenset[str]:
    """Return the targets that the spec states, by field."""
    slo = spec.slo
    if slo is None:
        return frozenset()
    found = {TTFT: slo.ttft, TPOT: slo.tpot, ITL: slo.itl}
    return frozenset(field for field, target in found.items() if target is not None)


def wanted_fields(resolved: Resolved) -> frozenset[str]:
    """Return the targets that there are, those of the profile included."""
    return frozenset({TTFT, TPOT} | ({ITL} if resolved.targets.itl else set()))


def targets_of(resolved: Resolved, fields: frozenset[str]) -> Targets:
    """Return the targets of `fields` as the latency model takes them; percentiles are those of all."""
    wanted = resolved.targets
    return Targets(
        ttft_ms=float(wanted.ttft.milliseconds) if TTFT in fields else None,
        ttft_percentile=wanted.ttft.percentile,
        tpot_ms=float(wanted.tpot.milliseconds) if TPOT in fields else None,
        tpot_percentile=wanted.tpot.percentile,
        itl_ms=float(wanted.itl.milliseconds) if wanted.itl is not None and ITL in fields else None,
        p95_input_tokens=float(resolved.traffic.input_p95_tokens),
    )


def taking(total: float, each: float) -> int:
    """Return how many replicas take a load of which one takes `each`."""
    return ceil(total / each - 1e-9)


def replicas_of(plan: Plan, resolved: Resolved, max_gpus: int) -> int:
    """Return the replicas that a plan in force takes for the load that the spec states now.

    Only the figures that are frozen in the plan are used: a newer latency model changes no count. A plan
    without them, or for a load of another kind, runs as many as `scaling` says. Under External that is so
    always.
    """
    scale, load, speed = resolved.scale, load_of(resolved), plan.speed
    allowed = max_gpus // max(1, plan.gpus_per_replica)
    wanted = scale.planned_replicas
    if scale.mode == "External" or speed is None or load.kind is LoadKind.NONE:
        return min(wanted, allowed)
    if load.kind is not speed.kind or speed.most <= 0:
        return min(wanted, allowed)
    if scale.max_replicas is not None:
        allowed = min(allowed, max(scale.max_replicas, wanted))
    needed = taking(load.total, speed.most) + plan.spare_replicas
    return min(max(wanted, needed), allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """A size that a service has by itself: the autoscaler's, or another owner's that it goes on from."""

    replicas: int
    planned: int | None
    """What its stated load took when the size was told; None: somebody else sized it."""


def size_kept(
    sized: Sized, *, planned: int | None, low: int, high: int | None, most: int, sleeps: bool = False
) -> int:
    """Return the size with which a service goes on under bounds, and `most` that its budget holds.

    `planned` is what the stated load takes now; None: that has no say. A stated load that takes more than it
    did raises the size. `sleeps`: one that was scaled to zero stays there, for requests alone wake it.
    """
    if sleeps and sized.replicas == 0:
        return 0
    size = sized.replicas
    if planned is not None and sized.planned is not None and planned > sized.planned:
        size = max(size, planned)
    return min(max(size, low, 1), most if high is None else min(most, high))

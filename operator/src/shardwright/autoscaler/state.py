"""What the autoscaler remembers from tick to tick, and what it answers. Values only."""

from dataclasses import dataclass

from shardwright.api.scaling_reasons import InfeasibleTerm, ScalingRule, ScalingVeto


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one tick counted of lengths and targets."""

    at_s: float
    first: float
    late: float
    long: float
    finished: float
    slow: float
    input_tokens: float
    output_tokens: float
    refused: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything that a tick depends on besides its arguments. The first one is `State()`.

    Times are of a clock of its own, which adds up the time between ticks and bounds each step, so that a jump
    of the host's clock ages nothing.
    """

    seen_s: float | None = None
    """The caller's time at the last tick."""
    clock_s: float = 0.0
    demands: tuple[tuple[float, float], ...] = ()
    """Times and the replicas at full use that the arrivals of a tick took; ticks without arrivals known are
    absent."""
    samples: tuple[Sample, ...] = ()
    wanted: tuple[tuple[float, int], ...] = ()
    """Times and sizes that the signals asked for, over the window of the way down; of those that a larger one
    followed, none."""
    headroom: float = 1.0
    """What the demand is multiplied with; learnt from avoidable misses."""
    slowness: float = 1.0
    """Seconds of a step as seen, over seconds as planned."""
    unplaced_since_s: float | None = None
    ceiling: int | None = None
    """Replicas that found a node, while more are not tried."""
    ceiling_until_s: float = 0.0
    idle_since_s: float | None = None
    """Since when the one replica that there is has been seen to have no request."""
    idle_seen_s: float = 0.0
    """When that was seen last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The figures that a decision rests on."""

    size: int
    """Replicas that exist and do not leave."""
    demand: float
    """Replicas at full use that the arrivals of the last 30 s and the queue take."""
    floor: float
    """The same for bursts that recur."""
    headroom: float
    slowness: float
    rate_per_replica_per_s: float
    """Requests a second that one replica serves at full use; zero when it cannot meet the TPOT target at
    all."""
    miss_share: float
    """Requests of the last minute that missed a target and would not have with more replicas."""
    infeasible_share: float
    """Requests of the last 15 minutes with a prompt that is too long at any size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A size and why."""

    desired: int
    rule: ScalingRule
    inputs: Inputs
    vetoes: tuple[ScalingVeto, ...] = ()
    infeasible: tuple[InfeasibleTerm, ...] = ()

"""How many replicas at full use a load takes: now, and when bursts come back.

Decides from arrivals and lengths. Never looks at targets that were missed.
"""

from collections.abc import Sequence
from math import floor
from typing import Final

from shardwright.autoscaler.replica import Capacity, capacity
from shardwright.autoscaler.signals import FleetSignals, ScalingPlan
from shardwright.autoscaler.state import Sample, State
from shardwright.planner.signals import Reading, Unknown

NOW_S: Final = 30.0
"""Arrivals of this time are the demand now: two ticks, for one of 15 s is mostly chance."""
MEMORY_S: Final = 1800.0
"""For how long bursts are remembered."""
LENGTHS_S: Final = 300.0
"""Mean lengths are of this time."""
CLEAR_S: Final = 120.0
"""A queue is to be gone in about one cold start."""
RECURRENCES: Final = 2
"""Times that a level must have come back before it counts as one that does."""
PATIENCE: Final = 2.0
"""A level is paid for until it stayed away this many times as long as it ever did."""
LEVEL: Final = 0.5
"""Levels are told apart by half a replica."""


def known(*readings: Reading) -> bool:
    """Return whether all of them were seen."""
    return not any(isinstance(one, Unknown) for one in readings)


def number(reading: Reading, otherwise: float = 0.0) -> float:
    """Return the number of a reading; `otherwise` only where the caller has said what unknown means."""
    return otherwise if isinstance(reading, Unknown) else reading.number


def capacity_now(samples: Sequence[Sample], plan: ScalingPlan, slowness: float, now: float) -> Capacity:
    """Return what one replica serves at the mean lengths of the last LENGTHS_S, or the planned ones."""
    recent = [one for one in samples if one.at_s > now - LENGTHS_S]
    first, finished = sum(one.first for one in recent), sum(one.finished for one in recent)
    return capacity(
        plan.model.times(slowness),
        sum(one.input_tokens for one in recent) / first if first else plan.input_tokens,
        sum(one.output_tokens for one in recent) / finished if finished else plan.output_tokens,
        plan.tpot_s,
    )


def remembered(
    state: State, signals: FleetSignals, served: Capacity, now: float
) -> tuple[tuple[float, float], ...]:
    """Return the demands of the last MEMORY_S with this tick's, if its arrivals are known."""
    kept = tuple(one for one in state.demands if one[0] > now - MEMORY_S)
    if not served.rate_per_s or not known(signals.arrived):
        return kept
    return (*kept, (now, number(signals.arrived) / signals.interval_s / served.rate_per_s))


def demand_now(
    demands: Sequence[tuple[float, float]], signals: FleetSignals, served: Capacity, now: float
) -> float:
    """Return the replicas at full use that arrivals and queue take now.

    The arrivals are those of the last NOW_S, or the last ones known when there are none of that time.
    """
    recent = [one for at, one in demands if at > now - NOW_S] or [one for _, one in demands[-1:]]
    arrivals = sum(recent) / len(recent) if recent else 0.0
    queue = number(signals.waiting) / served.rate_per_s / CLEAR_S if served.rate_per_s else 0.0
    return arrivals + queue


def recurring(demands: Sequence[tuple[float, float]], interval_s: float, most: int, now: float) -> float:
    """Return the highest demand up to `most` replicas that keeps coming back.

    For every level the times at which it was reached tell how long it stays away: a level that came back
    RECURRENCES times counts until it has been away PATIENCE times as long as ever before. So a burst a minute
    is paid for through its silences, and the top of a hump that has passed is not. (The keep-alive of
    serverless platforms judges its idle times likewise: Shahrad et al., "Serverless in the Wild", ATC 2020.)
    Only ticks that saw it away count: a tick that came late, or a source that was away, is no silence.
    """
    longest_s, apart_s = 1.2 * interval_s, 1.5 * interval_s
    reached: list[tuple[float, int]] = []
    before_s = seen_s = 0.0
    for at, one in demands:
        seen_s += min(at - before_s, longest_s) if reached else 0.0
        before_s = at
        reached.append((seen_s, floor(min(one, most) / LEVEL + 0.999)))
    now = seen_s + min(now - before_s, longest_s)
    top = max((level for _, level in reached), default=0)
    last = [0.0] * (top + 1)
    away = [0.0] * (top + 1)
    times = [-1] * (top + 1)
    for at, highest in reached:
        for level in range(1, highest + 1):
            if times[level] < 0:
                times[level] = 0
            elif at - last[level] > apart_s:
                times[level] += 1
                away[level] = max(away[level], at - last[level])
            last[level] = at
    for level in range(top, 0, -1):
        if times[level] >= RECURRENCES and now - last[level] <= PATIENCE * away[level]:
            return level * LEVEL
    return 0.0

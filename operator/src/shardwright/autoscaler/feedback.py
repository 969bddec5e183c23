"""What a fleet shows of itself: how slow its steps are, and which misses more replicas would mend.

Decides the slowness, the headroom and what is infeasible. Never counts replicas.
"""

from collections.abc import Sequence
from typing import Final

from shardwright.api.scaling_reasons import InfeasibleTerm
from shardwright.autoscaler.demand import known, number
from shardwright.autoscaler.replica import Capacity
from shardwright.autoscaler.signals import FleetSignals, ScalingPlan
from shardwright.autoscaler.state import Sample, State

MISSES_S: Final = 60.0
INFEASIBLE_S: Final = 900.0
"""For how long samples are kept, too."""
FEWEST_REQUESTS: Final = 20
"""Below this many a share says nothing about feasibility."""
FEWEST_TOKENS: Final = 50
"""Below this many a tick says nothing about the time of a step."""
SLOWNESS_RATE: Final = 0.05
"""A tick's part in the slowness: about five minutes of memory."""
SLOWNESS_LEAST, SLOWNESS_MOST = 0.5, 2.0
GAIN: Final = 0.1
"""Headroom for each tick and missed share above the allowed one."""
RELEASE: Final = 0.01
"""Part of the headroom above 1 that is given back for each tick without too many misses: 25 minutes of
memory."""
FALL: Final = 0.001
"""Headroom given back at or below 1 for each such tick."""
HEADROOM_LEAST, HEADROOM_MOST = 0.85, 2.5


def sample_of(signals: FleetSignals, now: float) -> Sample | None:
    """Return what a tick counted; None when part of it is unknown, for shares of parts mislead."""
    if not known(
        signals.first_tokens, signals.late_first_tokens, signals.long_first_tokens, signals.finished,
        signals.slow_finished, signals.input_tokens, signals.output_tokens,
    ):  # fmt: skip
        return None
    return Sample(
        at_s=now,
        first=number(signals.first_tokens),
        late=number(signals.late_first_tokens),
        long=number(signals.long_first_tokens),
        finished=number(signals.finished),
        slow=number(signals.slow_finished),
        input_tokens=number(signals.input_tokens),
        output_tokens=number(signals.output_tokens),
        refused=signals.refused,
    )


def slowness_after(state: State, signals: FleetSignals, plan: ScalingPlan) -> float:
    """Return the slowness, moved towards what this tick shows.

    Seen is the mean time between tokens, T. By Little's law the sequences decoding on a replica are the
    seconds between tokens over the interval and the replicas. The plan's step without prompts is W at that
    number, and prompts add `prefill_token_s` times their tokens a second times T to each step, so T =
    slowness × (W + prompts × T). A wrong model is so found out at any load, not only when queues stand.
    """
    if not signals.ready or signals.reporting < signals.ready:
        return state.slowness
    if not known(signals.tokens, signals.token_s, signals.kv_share, signals.input_tokens):
        return state.slowness
    tokens, token_s = number(signals.tokens), number(signals.token_s)
    if tokens < FEWEST_TOKENS:
        return state.slowness
    replica_s = signals.interval_s * signals.ready
    seen = token_s / tokens
    held = number(signals.kv_share) * plan.model.kv_tokens
    without = plan.model.step_of(token_s / replica_s, held, 0)
    prompts = plan.model.prefill_token_s * number(signals.input_tokens) / replica_s
    shown = seen / (without + prompts * seen)
    bounded = max(SLOWNESS_LEAST, min(SLOWNESS_MOST, shown))
    return state.slowness + SLOWNESS_RATE * (bounded - state.slowness)


def miss_share(samples: Sequence[Sample], served: Capacity, now: float) -> float:
    """Return the share of the last MISSES_S that missed and would not have with more replicas.

    What a full queue refused missed. A prompt that is too long for an idle replica is late at any size, so as
    many late ones are left out; a TPOT that an idle replica misses is not mended either.
    """
    recent = [one for one in samples if one.at_s > now - MISSES_S]
    first, finished = sum(one.first for one in recent), sum(one.finished for one in recent)
    refused = sum(one.refused for one in recent)
    missed = refused + sum(max(0.0, one.late - one.long) for one in recent)
    late = missed / (first + refused) if missed else 0.0
    slow = sum(one.slow for one in recent) / finished if finished and served.rate_per_s else 0.0
    return min(1.0, late + slow)


def infeasible_share(samples: Sequence[Sample]) -> float:
    """Return the share of requests whose prompt is too long at any size; zero while they are few."""
    first = sum(one.first for one in samples)
    return sum(one.long for one in samples) / first if first >= FEWEST_REQUESTS else 0.0


def infeasible_terms(share: float, served: Capacity, plan: ScalingPlan) -> tuple[InfeasibleTerm, ...]:
    """Return what keeps the targets from being met at any size."""
    found = []
    if share > plan.allowed_share:
        found.append(InfeasibleTerm.PROMPT_TOO_LONG)
    if not served.rate_per_s:
        found.append(InfeasibleTerm.STEP_TOO_SLOW)
    return tuple(found)


def headroom_after(headroom: float, share: float, allowed: float, may_rise: bool) -> float:
    """Return the headroom after a tick: an integral with bounded memory.

    It rises with the misses above those allowed, but not while replicas start (they are the answer to the
    misses that are seen), at the maximum (nothing would follow), or while more requests than may miss are
    infeasible (the percentile is out of reach, so nothing is bought for it); it falls as soon as misses are
    few.
    """
    excess = share - allowed
    if excess > 0:
        moved = headroom + GAIN * excess if may_rise else headroom
    elif headroom > 1:
        moved = max(1.0, headroom + GAIN * excess - RELEASE * (headroom - 1))
    else:
        moved = headroom + GAIN * excess - FALL
    return max(HEADROOM_LEAST, min(HEADROOM_MOST, moved))

"""The size of a fleet: `tick(state, signals, plan, now) -> (state, desired, decision)`.

Decides how many replicas a service wants, and why. Never reads a clock or a metric, and never writes a size:
the live loop and the replay drive this same function.

x = max(demand now, floor of bursts that recur), in replicas at full use; wanted = headroom × (x + SPARE ×
√x). The square root is what chance takes of a fleet of that size; the headroom is an integral on avoidable
misses, and the SLO's percentile, the only knob, says how many of them may stay. Up at once; down to the
highest size wanted in a window, by steps, after checks. Constants without a source are our choice, judged on
the traces of `benchmarks/bench_autoscaler.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Final

from shardwright.api.scaling_reasons import ScalingRule, ScalingVeto
from shardwright.autoscaler import demand, feedback
from shardwright.autoscaler.demand import known, number
from shardwright.autoscaler.signals import FleetSignals, ScalingPlan
from shardwright.autoscaler.state import Decision, Inputs, State

SPARE: Final = 0.8
"""Replicas for each root of one. Square-root staffing (Halfin and Whitt, 1981): what makes waiting rare grows
with the root of the load, so a large fleet may be used more fully than a small one."""
ROUNDING: Final = 0.02
"""Part of a replica that is not worth one."""
WINDOW_S: Final = 300.0
WINDOW_COLD_STARTS: Final = 2.0
"""A size falls to the highest that was wanted within the longer of the two."""
STEP: Final = 1 / 3
"""Part of the fleet that leaves at once, at most."""
SURVIVORS_MOST: Final = 0.8
"""Share of the KV cache that those who stay may come to hold."""
PLACE_PATIENCE_S: Final = 60.0
"""Time to find a node, before a replica that has none is taken back."""
PLACE_RETRY_S: Final = 600.0
"""Time before more are tried."""
CLOCK_STEPS: Final = 4.0
"""Intervals that one tick may age the memory at most."""


def longest_prompt_tokens(state: State, plan: ScalingPlan) -> int:
    """Return the longest prompt that an idle replica, as slow as seen, computes within the TTFT target."""
    return plan.model.times(state.slowness).longest_prompt_tokens(plan.ttft_s)


def tick(state: State, signals: FleetSignals, plan: ScalingPlan, now: float) -> tuple[State, int, Decision]:
    """Return the state after a tick at `now` (seconds, any origin), the size wanted, and why.

    The size counts replicas that start. The same arguments give the same answer.
    """
    state = _observed(state, signals, plan, now)
    clock = state.clock_s
    served = demand.capacity_now(state.samples, plan, state.slowness, clock)
    demands = demand.remembered(state, signals, served, clock)
    size = signals.ready + signals.starting + signals.unschedulable
    share = feedback.miss_share(state.samples, served, clock)
    infeasible = feedback.infeasible_share(state.samples)
    may_rise = not signals.starting and size < plan.most and infeasible <= plan.allowed_share
    if feedback.sample_of(signals, clock) is not None:
        headroom = feedback.headroom_after(state.headroom, share, plan.allowed_share, may_rise)
        state = replace(state, headroom=headroom)
    inputs = Inputs(
        size=size,
        demand=demand.demand_now(demands, signals, served, clock),
        floor=demand.recurring(demands, signals.interval_s, plan.most, clock),
        headroom=state.headroom,
        slowness=state.slowness,
        rate_per_replica_per_s=served.rate_per_s,
        miss_share=share,
        infeasible_share=infeasible,
    )
    wanted = _wanted(inputs)
    state = replace(state, demands=demands, wanted=_window(state, signals, plan, wanted, size))
    state = _placed(state, signals)
    desired, rule, vetoes = _sized(state, signals, inputs, wanted)
    desired, rule = _limited(desired, rule, state, plan)
    state = _idle(state, signals, plan, desired)
    if _idle_long_enough(state, plan):
        desired, rule = (0, ScalingRule.IDLE) if plan.wakeable else (desired, ScalingRule.HELD)
        vetoes = () if plan.wakeable else (ScalingVeto.ROUTERS_SILENT,)
    terms = feedback.infeasible_terms(inputs.infeasible_share, served, plan)
    return (
        state,
        desired,
        Decision(desired=desired, rule=rule, inputs=inputs, vetoes=vetoes, infeasible=terms),
    )


def woken(least: int, most: int) -> Decision:
    """Return the decision to run again, for a request that came while no replica ran, within bounds.

    What follows begins with a new `State()`: the time without requests counts from when a replica is ready.
    """
    nothing = Inputs(
        size=0, demand=0.0, floor=0.0, headroom=1.0, slowness=1.0, rate_per_replica_per_s=0.0, miss_share=0.0,
        infeasible_share=0.0,
    )  # fmt: skip
    return Decision(desired=min(max(1, least), most), rule=ScalingRule.WOKEN, inputs=nothing)


def complete(signals: FleetSignals) -> bool:
    """Return whether enough is known for a size to fall."""
    return signals.reporting >= signals.ready and known(signals.arrived, signals.waiting, signals.kv_share)


def _observed(state: State, signals: FleetSignals, plan: ScalingPlan, now: float) -> State:
    """Move the own clock, and take note of what the tick counted."""
    passed = signals.interval_s if state.seen_s is None else now - state.seen_s
    clock = state.clock_s + max(0.0, min(passed, CLOCK_STEPS * signals.interval_s))
    sample = feedback.sample_of(signals, clock)
    kept = tuple(one for one in state.samples if one.at_s > clock - feedback.INFEASIBLE_S)
    return replace(
        state,
        seen_s=now,
        clock_s=clock,
        samples=kept if sample is None else (*kept, sample),
        slowness=feedback.slowness_after(state, signals, plan),
    )


def _wanted(inputs: Inputs) -> int:
    """Return the size that the load asks for; the one that exists when no size meets the TPOT target."""
    if not inputs.rate_per_replica_per_s:
        return inputs.size
    most = max(inputs.demand, inputs.floor)
    return max(1, ceil(inputs.headroom * (most + SPARE * sqrt(most)) - ROUNDING))


def _window(
    state: State, signals: FleetSignals, plan: ScalingPlan, wanted: int, size: int
) -> tuple[tuple[float, int], ...]:
    """Return the sizes wanted within the window, without those that were no more than a later one.

    What is not known wanted no less than what there was, and so did the time before the first tick.
    """
    length = max(WINDOW_S, WINDOW_COLD_STARTS * plan.cold_start_s)
    kept: Sequence[tuple[float, int]] = state.wanted or ((state.clock_s, size),)
    now = wanted if complete(signals) else max(wanted, size)
    # Only the highest counts, and a size that an equal or larger one followed is never the highest again.
    return (*(one for one in kept if one[0] > state.clock_s - length and one[1] > now), (state.clock_s, now))


def _sized(
    state: State, signals: FleetSignals, inputs: Inputs, wanted: int
) -> tuple[int, ScalingRule, tuple[ScalingVeto, ...]]:
    """Return the size before limits, the rule that set it, and what kept it from falling."""
    size = inputs.size
    if wanted > size:
        bursts = inputs.floor > inputs.demand
        return wanted, ScalingRule.RECURRING_BURSTS if bursts else ScalingRule.DEMAND, ()
    if wanted == size:
        return size, ScalingRule.STEADY, ()
    peak = max(one for _, one in state.wanted)
    if peak >= size:
        vetoes = () if complete(signals) else (ScalingVeto.SIGNALS_UNKNOWN,)
        return size, ScalingRule.HELD if vetoes else ScalingRule.RECENT_PEAK, vetoes
    held = _vetoes(signals, size)
    if held:
        return size, ScalingRule.HELD, held
    least = max(peak, size - max(1, int(size * STEP)), ceil(number(signals.kv_share) * size / SURVIVORS_MOST))
    by_step = (ScalingVeto.ONE_STEP_AT_A_TIME,) if least > peak else ()
    return least, ScalingRule.RECENT_PEAK, by_step


def _vetoes(signals: FleetSignals, size: int) -> tuple[ScalingVeto, ...]:
    """Return what keeps the size from falling at all."""
    full = number(signals.kv_share) * size > SURVIVORS_MOST * (size - 1)
    held = {
        ScalingVeto.SIGNALS_UNKNOWN: not complete(signals),
        ScalingVeto.FLEET_CHANGING: signals.starting > 0 or signals.draining > 0 or signals.unschedulable > 0,
        ScalingVeto.QUEUE_STANDS: number(signals.waiting) > signals.ready,
        ScalingVeto.SURVIVORS_TOO_FULL: full,
    }
    return tuple(veto for veto, holds in held.items() if holds)


def _placed(state: State, signals: FleetSignals) -> State:
    """Take note of replicas that find no node; after a while those that have one are the ceiling."""
    clock = state.clock_s
    if state.ceiling is not None and clock >= state.ceiling_until_s:
        state = replace(state, ceiling=None)
    if not signals.unschedulable:
        return replace(state, unplaced_since_s=None)
    since = clock if state.unplaced_since_s is None else state.unplaced_since_s
    state = replace(state, unplaced_since_s=since)
    if clock - since < PLACE_PATIENCE_S:
        return state
    return replace(state, ceiling=signals.ready + signals.starting, ceiling_until_s=clock + PLACE_RETRY_S)


def _idle(state: State, signals: FleetSignals, plan: ScalingPlan, desired: int) -> State:
    """Take note of since when there is one replica and no request; what is not known begins it anew."""
    changing = signals.starting or signals.draining or signals.unschedulable
    seen = (signals.running, signals.waiting, signals.arrived, signals.finished)
    alone = plan.idle_s is not None and desired == signals.ready == 1 and not changing
    if not alone or not complete(signals) or not known(*seen) or any(map(number, seen)):
        return replace(state, idle_since_s=None)
    since = state.clock_s if state.idle_since_s is None else state.idle_since_s
    # What was seen before says nothing of the time since.
    seen_s = state.clock_s if signals.renewed else max(since, state.idle_seen_s)
    return replace(state, idle_since_s=since, idle_seen_s=seen_s)


def _idle_long_enough(state: State, plan: ScalingPlan) -> bool:
    since = state.idle_since_s
    return plan.idle_s is not None and since is not None and state.idle_seen_s - since >= plan.idle_s


@dataclass(frozen=True, slots=True)
class _Limit:
    most: int
    rule: ScalingRule


def _limited(desired: int, rule: ScalingRule, state: State, plan: ScalingPlan) -> tuple[int, ScalingRule]:
    """Return the size within minimum, maximum, budget and what found a place; the last three win."""
    if desired < plan.min_replicas:
        desired, rule = plan.min_replicas, ScalingRule.MINIMUM
    limits = [
        _Limit(plan.max_replicas, ScalingRule.MAXIMUM),
        _Limit(plan.max_gpus // plan.gpus_per_replica, ScalingRule.GPU_BUDGET),
    ]
    if state.ceiling is not None:
        limits.append(_Limit(state.ceiling, ScalingRule.NO_PLACE))
    lowest = min(limits, key=lambda one: one.most)
    return (lowest.most, lowest.rule) if desired > lowest.most else (desired, rule)

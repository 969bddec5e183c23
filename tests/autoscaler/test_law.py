"""What the autoscaler decides: properties of every tick, the kinds of trouble, and the loop closed over a
fleet."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.test_replay import MODEL, trace_of, world
from shardwright.api.scaling_reasons import InfeasibleTerm, ScalingRule, ScalingVeto
from shardwright.autoscaler.demand import recurring
from shardwright.autoscaler.law import tick
from shardwright.autoscaler.replay.fleet import replay
from shardwright.autoscaler.replay.own import Own, signals_of
from shardwright.autoscaler.replay.score import score
from shardwright.autoscaler.replay.trace import Trace, uniform
from shardwright.autoscaler.signals import FleetSignals, ScalingPlan
from shardwright.autoscaler.state import Decision, State
from shardwright.planner.signals import ABSENT, NOT_A_NUMBER, STALE, UNREACHABLE, ZERO, Value, reading

PLAN = ScalingPlan(
    model=MODEL, ttft_s=2.0, tpot_s=0.15, percentile=99.0, input_tokens=1000, output_tokens=200,
    min_replicas=1, max_replicas=48,
)  # fmt: skip
READINGS = (
    "arrived", "waiting", "kv_share", "first_tokens", "late_first_tokens", "long_first_tokens", "finished",
    "slow_finished", "input_tokens", "output_tokens", "tokens", "token_s",
)  # fmt: skip
UNKNOWNS = st.sampled_from([ABSENT, STALE, NOT_A_NUMBER, UNREACHABLE])


@st.composite
def signals(draw: st.DrawFn, **fixed: int) -> FleetSignals:
    """What a fleet could say of itself."""
    ready = fixed.get("ready", draw(st.integers(1, 20)))
    first, finished = draw(st.integers(0, 500)), draw(st.integers(0, 500))
    tokens = draw(st.integers(0, 20_000))
    return FleetSignals(
        interval_s=15.0,
        ready=ready,
        starting=fixed.get("starting", draw(st.integers(0, 3))),
        draining=draw(st.integers(0, 2)),
        unschedulable=draw(st.sampled_from([0, 0, 0, 2])),
        reporting=ready,
        refused=draw(st.sampled_from([0.0, 0.0, 5.0, 500.0])),
        arrived=reading(draw(st.integers(0, 1500))),
        waiting=reading(draw(st.integers(0, 200))),
        kv_share=reading(draw(st.floats(0, 1))),
        first_tokens=reading(first),
        late_first_tokens=reading(draw(st.integers(0, first))),
        long_first_tokens=reading(draw(st.integers(0, first))),
        finished=reading(finished),
        slow_finished=reading(draw(st.integers(0, finished))),
        input_tokens=reading(first * draw(st.integers(1, 4000))),
        output_tokens=reading(finished * draw(st.integers(1, 1000))),
        tokens=reading(tokens),
        token_s=reading(tokens * draw(st.floats(0.03, 0.5))),
    )


HISTORIES = st.lists(signals(), max_size=30)


def lived(
    history: list[FleetSignals], plan: ScalingPlan = PLAN, state: State | None = None
) -> tuple[State, float]:
    """Return the state after a history, and the time of the next tick."""
    state, now = state or State(), 0.0
    for one in history:
        state, _, _ = tick(state, one, plan, now)
        now += 15.0
    return state, now


def decisions(history: list[FleetSignals], plan: ScalingPlan = PLAN) -> list[Decision]:
    """Return the decisions of ticks 15 s apart."""
    state, found = State(), []
    for n, one in enumerate(history):
        state, _, decision = tick(state, one, plan, 15.0 * n)
        found.append(decision)
    return found


@given(
    history=HISTORIES,
    low=st.integers(1, 5),
    more=st.integers(0, 30),
    gpus=st.sampled_from([1, 2, 8]),
    replicas=st.integers(1, 40),
    percentile=st.sampled_from([50.0, 95.0, 99.9]),
)
def test_desired_lies_within_minimum_maximum_and_budget(history, low, more, gpus, replicas, percentile):
    plan = replace(
        PLAN, min_replicas=low, max_replicas=low + more, gpus_per_replica=gpus, max_gpus=gpus * replicas + gpus - 1,
        percentile=percentile,
    )  # fmt: skip
    for one in decisions(history, plan):
        assert one.desired * gpus <= plan.max_gpus
        assert one.desired <= plan.max_replicas
        assert one.desired >= min(low, replicas) or one.rule is ScalingRule.NO_PLACE


@given(
    history=HISTORIES,
    last=signals(),
    names=st.lists(st.sampled_from(READINGS), min_size=1, unique=True),
    unknown=UNKNOWNS,
    ticks=st.integers(1, 60),
)
def test_unknown_never_lowers(history, last, names, unknown, ticks):
    """Neither while it lasts, however long, nor at the tick at which metrics come back as zeros."""
    state, now = lived(history)
    decisive = {"arrived", "waiting", "kv_share"} & set(names)
    blind = replace(
        last,
        unschedulable=0,
        **dict.fromkeys(names, unknown),
        **({} if decisive else {"reporting": last.ready - 1}),
    )
    size = blind.ready + blind.starting
    for _ in range(ticks):
        state, desired, decision = tick(state, blind, PLAN, now)
        now += 15.0
        assert desired >= min(size, state.ceiling or size)
        if desired == size:
            assert decision.rule is not ScalingRule.RECENT_PEAK
    there = {"ready": size, "reporting": size, "starting": 0, "draining": 0}
    zeros = replace(blind, **there, **dict.fromkeys(READINGS, ZERO))
    assert tick(state, zeros, PLAN, now)[1] >= min(size, state.ceiling or size)


@given(history=HISTORIES, last=signals(), arrived=st.integers(0, 1000), waiting=st.integers(0, 300))
def test_more_load_never_wants_fewer(history, last, arrived, waiting):
    state, now = lived(history)
    more = replace(
        last,
        arrived=reading(last.arrived.number + arrived),
        waiting=reading(last.waiting.number + waiting),
    )
    assert tick(state, more, PLAN, now)[1] >= tick(state, last, PLAN, now)[1]


@given(history=HISTORIES)
def test_the_same_signals_give_the_same_decisions(history):
    assert decisions(history) == decisions(history)


@given(history=HISTORIES, last=signals(), jump=st.sampled_from([-1e6, -60.0, 3600.0, 1e9]))
def test_a_jump_of_the_clock_forgets_nothing_that_keeps_a_size(history, last, jump):
    """A jump is at most four ticks of ageing, so it lowers no further than four idle ticks do."""
    state, now = lived(history)
    quiet = replace(last, unschedulable=0, **dict.fromkeys(READINGS, ZERO))
    aged = state
    for _ in range(4):
        aged, least, _ = tick(aged, quiet, PLAN, now)
        now += 15.0
    assert tick(state, quiet, PLAN, now + jump)[1] >= least


@given(last=signals(starting=0))
@settings(max_examples=50)
def test_constant_signals_never_flap(last):
    """What a fleet says stays the same and it does as it is told: the size moves one way, then stays."""
    state, now, size = State(), 0.0, last.ready
    sizes = [size]
    for _ in range(200):
        one = replace(last, ready=size, reporting=size, draining=0, unschedulable=0, long_first_tokens=ZERO)
        state, size, _ = tick(state, one, PLAN, now)
        now += 15.0
        sizes.append(size)
    settled = list(pairwise(sizes[40:]))
    ups, downs = sum(b > a for a, b in settled), sum(b < a for a, b in settled)
    assert not (ups and downs), sizes


def steady(rate: float, seconds: float, seed: int) -> Trace:
    """Requests at a constant rate, with instants and lengths of chance."""
    count = int(rate * seconds)
    return trace_of(
        [
            (
                (n + uniform(seed, n)) / rate,
                300 + int(1400 * uniform(seed + 1, n)),
                20 + int(300 * uniform(seed + 2, n)),
            )
            for n in range(count)
        ]
    )


@pytest.mark.parametrize("rate", [0.3, 3.0, 14.0])
def test_a_constant_load_is_served_without_reversals(rate):
    figures = score(replay(steady(rate, 7200, 5), world(unscored_s=600.0), Own(PLAN)))
    assert figures.reversals == 0
    assert figures.attainment >= 0.98


def test_a_step_of_load_is_followed_both_ways_within_minutes():
    low, high = steady(2, 2400, 1), steady(12, 1500, 2)
    rows = [
        *zip(low.arrival_s, low.input_tokens, low.output_tokens, strict=True),
        *(
            (at + 600, i, o)
            for at, i, o in zip(high.arrival_s, high.input_tokens, high.output_tokens, strict=True)
        ),
        *(
            (at + 2400, i, o)
            for at, i, o in zip(low.arrival_s, low.input_tokens, low.output_tokens, strict=True)
        ),
    ]
    outcome = replay(trace_of(sorted(rows)), world(first_replicas=2), Own(PLAN))
    at = dict(outcome.sizes)
    high_size = max(at.values())
    assert next(now for now, size in outcome.sizes if size >= 7) <= 660
    assert high_size <= 14
    assert outcome.sizes[-1][1] <= 4
    assert outcome.cut == 0


def busy(**changes: object) -> FleetSignals:
    """A fleet of four under a load that it serves well."""
    return replace(
        FleetSignals(
            interval_s=15.0, ready=4, starting=0, reporting=4, arrived=Value(60), waiting=ZERO, kv_share=Value(0.3),
            first_tokens=Value(60), late_first_tokens=ZERO, long_first_tokens=ZERO, finished=Value(60),
            slow_finished=ZERO, input_tokens=Value(60_000), output_tokens=Value(12_000), tokens=Value(12_000),
            token_s=Value(900),
        ),
        **changes,
    )  # fmt: skip


def test_misses_that_no_size_mends_are_named_and_do_not_grow_the_fleet():
    avoidable = decisions([busy(late_first_tokens=Value(6))] * 120)
    hopeless = decisions([busy(late_first_tokens=Value(6), long_first_tokens=Value(6))] * 120)
    well = decisions([busy()] * 120)
    assert avoidable[-1].inputs.headroom > 2
    assert hopeless[-1].inputs.headroom == well[-1].inputs.headroom
    assert hopeless[-1].infeasible == (InfeasibleTerm.PROMPT_TOO_LONG,)
    assert well[-1].infeasible == avoidable[-1].infeasible == ()


@given(low=st.integers(1, 6), ready=st.integers(1, 8), starting=st.integers(0, 2))
def test_an_idle_fleet_goes_to_its_minimum_and_no_further(low, ready, starting):
    """From above in steps, from below at once; and it is the minimum that keeps it there."""
    plan, size = replace(PLAN, min_replicas=low), ready + starting
    idle = busy(
        arrived=ZERO, first_tokens=ZERO, finished=ZERO, input_tokens=ZERO, output_tokens=ZERO, tokens=ZERO,
        token_s=ZERO, kv_share=ZERO, ready=size, reporting=size,
    )  # fmt: skip
    state, now = State(), 0.0
    for _ in range(600):
        state, desired, decision = tick(state, replace(idle, ready=size, reporting=size), plan, now)
        now += 15.0
        assert desired >= min(low, plan.most)
        size = desired
    assert size == low
    assert decision.rule is (ScalingRule.MINIMUM if low > 1 else decision.rule)


def test_what_full_queues_refuse_grows_the_fleet_as_demand_and_as_misses():
    """The engines serve what they can in time and refuse the rest: only the refusals tell."""
    well = decisions([busy()] * 120)
    refusing = decisions([busy(arrived=Value(66), refused=6.0)] * 120)
    assert refusing[-1].inputs.miss_share == pytest.approx(6 / 66)
    assert refusing[-1].inputs.headroom > 1.5 > well[-1].inputs.headroom
    assert refusing[-1].desired > well[-1].desired
    nothing = {"first_tokens": ZERO, "finished": ZERO, "input_tokens": ZERO, "output_tokens": ZERO}
    none_served = decisions([busy(arrived=Value(60), refused=60.0, **nothing)] * 4)
    assert none_served[-1].inputs.miss_share == 1.0


def test_a_step_that_is_too_slow_at_any_size_keeps_the_size():
    plan = replace(PLAN, tpot_s=0.03)
    last = decisions([busy(slow_finished=Value(60))] * 60, plan)[-1]
    assert last.infeasible == (InfeasibleTerm.STEP_TOO_SLOW,)
    assert last.desired == 4


@pytest.mark.parametrize("share", [0.02, 0.2, 1.0])
def test_headroom_unwinds_within_half_an_hour_of_the_last_avoidable_miss(share):
    state, now = lived([busy(late_first_tokens=Value(60 * share))] * 240)
    wound = state.headroom
    assert wound > 1
    for _ in range(120):
        state, _, _ = tick(state, busy(), PLAN, now)
        now += 15.0
    assert state.headroom - 1 < 0.4 * (wound - 1)


def test_a_wrong_model_is_found_out_at_any_load():
    for factor in (0.6, 1.0, 1.4):
        for rate in (1.0, 6.0):
            plan = replace(PLAN, model=MODEL.times(factor))
            own = Own(plan)
            replay(steady(rate, 2400, 9), world(first_replicas=3), own)
            assert own.state.slowness == pytest.approx(1 / factor, rel=0.12)


def test_engines_that_do_not_report_say_nothing_of_how_slow_the_others_are():
    """Their tokens are missing in the sums, so that the others would seem to be less busy than they are."""
    slow, _ = lived([busy(token_s=Value(1500))] * 20)
    half, _ = lived([busy(token_s=Value(400), tokens=Value(6000), reporting=2)] * 20, state=slow)
    assert half.slowness == slow.slowness
    assert lived([busy(token_s=Value(400), tokens=Value(6000))] * 20, state=slow)[0].slowness != slow.slowness


def test_pods_without_a_node_are_taken_back_after_a_minute_and_tried_again_later():
    flood = busy(arrived=Value(300), unschedulable=3)
    found = decisions([flood] * 6)
    assert found[0].desired > 7
    assert found[-1].desired == 4
    assert found[-1].rule is ScalingRule.NO_PLACE
    later = decisions([*[flood] * 6, *[busy(arrived=Value(300))] * 45])
    assert {one.desired for one in later[6:40]} == {4}
    assert later[-1].desired > 7


@pytest.mark.parametrize(
    ("change", "veto"),
    [
        ({"starting": 1, "ready": 11, "reporting": 11}, ScalingVeto.FLEET_CHANGING),
        ({"draining": 1}, ScalingVeto.FLEET_CHANGING),
        ({"waiting": Value(13)}, ScalingVeto.QUEUE_STANDS),
        ({"kv_share": Value(0.75)}, ScalingVeto.SURVIVORS_TOO_FULL),
        ({"kv_share": STALE}, ScalingVeto.SIGNALS_UNKNOWN),
        ({"reporting": 11}, ScalingVeto.SIGNALS_UNKNOWN),
    ],
)
def test_what_keeps_a_size_from_falling_is_named(change, veto):
    idle = busy(ready=12, reporting=12, kv_share=Value(0.01), arrived=Value(1))
    assert decisions([idle] * 30)[-1].desired == 8
    held = decisions([*[idle] * 20, replace(idle, **change)])[-1]
    assert held.desired == 12
    assert veto in held.vetoes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"min_replicas": 9, "max_replicas": 3}, "scaling.minReplicas 9 is above scaling.maxReplicas 3"),
        ({"gpus_per_replica": 8, "max_gpus": 4}, "pool.maxGPUs 4"),
        ({"percentile": 100.0}, "percentile"),
    ],
)
def test_a_plan_that_no_size_satisfies_is_refused_by_name(change, words):
    with pytest.raises(ValueError, match=words):
        replace(PLAN, **change)


def test_replay_and_live_loop_tell_the_same():
    """Every reading of the signals is filled from a replay, so that no rule of the law sleeps in it."""
    told: list[FleetSignals] = []
    replay(
        steady(6, 900, 3), world(first_replicas=3), Own(PLAN), lambda seen, _: told.append(signals_of(seen))
    )
    for name in READINGS:
        if name not in ("late_first_tokens", "long_first_tokens", "slow_finished", "waiting"):
            assert any(isinstance(getattr(one, name), Value) for one in told), name


TICKS = st.lists(st.floats(15.0, 900.0), min_size=1, max_size=100)
"""Seconds between ticks that told the arrivals: late ones, and some on both sides of an outage."""


@given(TICKS, st.floats(0.1, 20.0))
def test_a_load_that_never_went_away_is_no_burst_that_came_back(apart, load):
    at, demands = 0.0, []
    for each in apart:
        demands.append((at, load))
        at += each
    assert recurring(demands, 15.0, 48, demands[-1][0]) == 0.0


def test_what_an_outage_hides_is_not_paid_for_as_a_silence():
    steady = [(15.0 * n, 1.0 if n == 10 else 3.0) for n in range(20)]
    again = [(at + 900.0, 3.0) for at, _ in steady]
    fallen = [(1200.0 + 15.0 * n, 0.1) for n in range(9)]
    assert recurring([*steady, *again, *fallen], 15.0, 48, fallen[-1][0]) == 0.0
    bursts = [(15.0 * n, 3.0 if n % 4 == 0 else 0.1) for n in range(20)]
    assert recurring(bursts, 15.0, 48, bursts[-1][0]) == 3.0
    later = [(at + 900.0, load) for at, load in bursts]
    assert recurring([*bursts, later[0], later[1]], 15.0, 48, later[1][0]) == 3.0
    assert recurring([*bursts, *fallen], 15.0, 48, fallen[-1][0]) == 0.0, (
        "away for twice as long as ever seen"
    )

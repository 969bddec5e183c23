"""To zero and back: only what is known to be idle, for as long as it must be, and never to and fro."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.test_law import PLAN, UNKNOWNS, signals
from shardwright.api.scaling_reasons import ScalingRule, ScalingVeto, UnknownSignal
from shardwright.autoscaler import journal
from shardwright.autoscaler.law import tick, woken
from shardwright.autoscaler.signals import FleetSignals
from shardwright.autoscaler.state import State
from shardwright.planner.signals import ZERO, Value

IDLE_S = 120.0
SLEEPY = replace(PLAN, idle_s=IDLE_S, cold_start_s=60.0)
MUST = ("arrived", "running", "waiting", "kv_share", "finished")
"""What must be known, and but for the KV cache be zero."""
NAMES = (*MUST, "first_tokens", "late_first_tokens", "long_first_tokens", "slow_finished", "input_tokens",
         "output_tokens", "tokens", "token_s")  # fmt: skip
QUIET = FleetSignals(interval_s=15.0, ready=1, starting=0, reporting=1, **dict.fromkeys(NAMES, ZERO))
STARTING = FleetSignals(interval_s=15.0, ready=0, starting=1)


def ticks(history, plan=SLEEPY, state=None):
    """The sizes and rules of ticks 15 s apart."""
    state, found = state or State(), []
    for n, one in enumerate(history):
        state, desired, decision = tick(state, one, plan, 15.0 * n)
        found.append((desired, decision.rule))
    return found


def test_the_last_replica_goes_after_the_window_and_not_before():
    found = ticks([QUIET] * 20)
    first = next(n for n, (size, _) in enumerate(found) if size == 0)
    assert first == IDLE_S / 15
    assert found[first] == (0, ScalingRule.IDLE)
    assert {size for size, _ in found[:first]} == {1}


def test_what_was_seen_before_says_nothing_of_the_time_since():
    old = replace(QUIET, renewed=False)
    assert {size for size, _ in ticks([QUIET] * 2 + [old] * 100)} == {1}, "the source stands still"
    # Scrapes that lie further apart than ticks count up to the last of them.
    found = ticks([QUIET, old, old, old] * 10)
    assert next(n for n, (size, _) in enumerate(found) if size == 0) == IDLE_S / 15


def test_without_scale_to_zero_one_stays():
    assert {size for size, _ in ticks([QUIET] * 100, PLAN)} == {1}


@pytest.mark.parametrize("name", ["arrived", "running", "waiting", "finished"])
def test_a_request_in_any_figure_begins_the_window_anew(name):
    found = ticks([QUIET] * 7 + [replace(QUIET, **{name: Value(1.0)})] + [QUIET] * 8)
    assert {size for size, _ in found} == {1}
    assert ticks([QUIET] * 7 + [replace(QUIET, **{name: Value(1.0)})] + [QUIET] * 9)[-1][0] == 0


@given(name=st.sampled_from(MUST), unknown=UNKNOWNS, at=st.integers(0, 7))
def test_what_is_not_known_begins_the_window_anew(name, unknown, at):
    history = [QUIET] * at + [replace(QUIET, **{name: unknown})] + [QUIET] * 8
    assert {size for size, _ in ticks(history)} == {1}


@given(
    changes=st.sampled_from(
        [
            {"starting": 1},
            {"draining": 1},
            {"unschedulable": 1},
            {"reporting": 0},
            {"ready": 0, "starting": 1},
        ]
    ),
    at=st.integers(0, 7),
)
def test_what_changes_begins_the_window_anew(changes, at):
    history = [QUIET] * at + [replace(QUIET, **changes)] + [QUIET] * 8
    assert 0 not in {size for size, _ in ticks(history)}


@given(
    history=st.lists(st.one_of(signals(), signals(ready=1), st.just(QUIET)), max_size=60),
    low=st.integers(1, 3),
    idle_s=st.sampled_from([60.0, 120.0, 300.0]),
)
def test_zero_only_from_one_and_only_after_the_whole_window_was_seen_idle(history, low, idle_s):
    plan = replace(SLEEPY, min_replicas=low, max_replicas=8, idle_s=idle_s)
    window = int(idle_s / 15)
    for n, (size, rule) in enumerate(ticks(history, plan)):
        assert (size == 0) == (rule is ScalingRule.IDLE)
        if size:
            continue
        assert low == 1
        seen = history[n - window : n + 1]
        assert len(seen) == window + 1
        for one in seen:
            assert (one.ready, one.reporting) == (1, 1)
            assert {one.starting, one.draining, one.unschedulable} == {0}
            assert one.arrived == one.running == one.waiting == one.finished == ZERO


@given(
    history=st.lists(signals(), max_size=20),
    unknown=UNKNOWNS,
    names=st.sets(st.sampled_from(MUST), min_size=1),
)
def test_unknown_for_ever_never_leads_to_zero(history, unknown, names):
    blind = replace(QUIET, **dict.fromkeys(names, unknown))
    assert 0 not in {size for size, _ in ticks([*history, *[blind] * 60])[len(history) :]}


@given(start=st.integers(1, 20), busy=st.lists(st.booleans(), max_size=40))
def test_after_a_wake_it_stays_at_least_the_window_beyond_ready(start, busy):
    """What the live loop and a replay would see: nothing while it starts, then traffic or none."""
    one = replace(QUIET, arrived=Value(3.0), running=Value(1.0), finished=Value(2.0))
    history = [STARTING] * start + [one if b else QUIET for b in busy] + [QUIET] * 60
    sizes = [size for size, _ in ticks(history)]
    assert 0 not in sizes[: start + int(IDLE_S / 15)]
    zeros = [n for n, size in enumerate(sizes) if size == 0]
    assert zeros, "and then it goes"
    for n in zeros:
        assert not any(busy[max(0, n - start - int(IDLE_S / 15)) : n - start + 1])


def test_a_jump_of_the_clock_does_not_make_it_idle():
    state, _, _ = tick(State(), QUIET, SLEEPY, 0.0)
    _, desired, _ = tick(state, QUIET, SLEEPY, 1e6)
    assert desired == 1


def test_routers_that_do_not_say_that_they_hold_keep_the_last_replica():
    state, told = State(), journal.Standing()
    for n in range(20):
        state, desired, decision = tick(state, QUIET, replace(SLEEPY, wakeable=False), 15.0 * n)
        assert desired == 1
        told = journal.follow(told, journal.circumstances(decision, QUIET), 15.0 * n)
    assert decision.vetoes == (ScalingVeto.ROUTERS_SILENT,)
    assert told.now.unknown == (UnknownSignal.ROUTERS_SILENT.value,)
    # Once they do, nothing is waited for anew.
    assert tick(state, QUIET, SLEEPY, 300.0)[1] == 0


@given(least=st.integers(0, 5), more=st.integers(0, 5))
def test_a_wake_stays_within_the_bounds(least, more):
    decision = woken(least, least + more)
    assert decision.rule is ScalingRule.WOKEN
    assert decision.desired <= least + more
    assert decision.desired == max(1, least) or not least + more


@given(history=st.lists(st.one_of(signals(ready=1), st.just(QUIET)), max_size=40))
def test_the_same_signals_give_the_same_decisions(history):
    assert ticks(history) == ticks(history)

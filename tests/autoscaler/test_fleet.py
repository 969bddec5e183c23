"""From what pods report to the signals of a fleet: three states, restarts, stores that come back with zeros."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.autoscaler.fleet import (
    COUNTERS,
    Counts,
    Edges,
    Moment,
    Span,
    asked,
    fleet_signals,
    follow,
    moment_of,
    prompt_edge,
)
from shardwright.autoscaler.signals import FleetSignals
from shardwright.planner.signals import ABSENT, NO_EDGE, ZERO, Readings, Signal, Unknown, Value, reading

POD = ("team", "chat-1")
EDGES = Edges(1.0, 0.05, 5000.0)
READINGS = [name for name, field in FleetSignals.__dataclass_fields__.items() if field.default is ABSENT]
assert len(READINGS) == 13


def moment(
    at_s, served=0.0, *, running=0.0, waiting=0.0, kv=0.1, started_s=1.0, restarts=0, edges=EDGES, **other
):
    """`served` requests: 500 tokens in, 100 out, a tenth late, a twentieth slow, a hundredth too long."""
    values = {
        Signal.FINISHED: served, Signal.FINISHED_TOKENS: served * 100, Signal.PROMPT_TOKENS: served * 500,
        Signal.GAP_SUM: served * 99 * 0.02, Signal.GAP_COUNT: served * 99, Signal.TTFT_COUNT: served,
        Signal.TTFT_WITHIN: served * 0.9, Signal.TPOT_COUNT: served, Signal.TPOT_WITHIN: served * 0.95,
        Signal.PROMPTS: served, Signal.PROMPTS_WITHIN: served * 0.99, Signal.REFUSED: None,
    } | other  # fmt: skip
    counters = tuple(values[signal] for signal in COUNTERS)
    return Moment(at_s, started_s, restarts, edges, running, waiting, kv, counters)


def told(*spans, ready=None, interval_s=15.0):
    return fleet_signals(Counts(ready=len(spans) if ready is None else ready), spans, EDGES, interval_s)


def test_two_pods_are_added_up():
    one = Span(moment(0, 100, running=4), moment(15, 130, running=6, waiting=1, kv=0.2))
    two = Span(moment(1, 0), moment(16, 30, running=2, kv=0.4))
    found = told(one, two)
    assert found.reporting == 2
    assert found.arrived.number == pytest.approx(30 + 3 + 30 + 2)
    assert found.waiting == Value(1.0)
    assert found.kv_share.number == pytest.approx(0.3)
    assert found.first_tokens.number == found.finished.number == pytest.approx(60)
    assert found.late_first_tokens.number == pytest.approx(6)
    assert found.slow_finished.number == pytest.approx(3)
    assert found.long_first_tokens.number == pytest.approx(0.6)
    assert found.input_tokens.number == pytest.approx(30_000)
    assert found.output_tokens.number == pytest.approx(6000)
    assert found.token_s.number / found.tokens.number == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [(None, None, 0.0), (None, 12.0, 12.0), (3.0, 12.0, 9.0), (12.0, 12.0, 0.0), (12.0, None, 0.0)],
)
def test_what_a_full_queue_refused_has_arrived_and_missed(before, after, refused):
    span = Span(moment(0, 100, **{Signal.REFUSED: before}), moment(15, 130, **{Signal.REFUSED: after}))
    found = told(span)
    assert found.refused == pytest.approx(refused)
    assert found.arrived.number == pytest.approx(30 + refused)
    assert found.first_tokens.number == pytest.approx(30), "lengths are of those that were served"
    routed = fleet_signals(Counts(ready=1), [span], EDGES, 15.0, 5)
    assert routed.refused == pytest.approx(refused / 5), "a client is refused after five attempts"
    assert routed.arrived.number == pytest.approx(30 + refused / 5)


def test_an_engine_that_serves_nothing_and_refuses_all_is_asked_for():
    still = told(Span(moment(0), moment(15, **{Signal.REFUSED: 30.0})))
    assert still.arrived == Value(30.0)
    assert still.first_tokens is ZERO


def test_refusals_that_were_out_of_sight_once_do_not_arrive_again():
    """A sample that is no number, or a series that was dropped: what was refused before is no burst."""
    span = Span(None, moment(0, 100, **{Signal.REFUSED: 5000.0}))
    span = follow(span, moment(15, 130, **{Signal.REFUSED: None}))
    assert told(span).refused == 0
    span = follow(span, moment(30, 160, **{Signal.REFUSED: 5003.0}))
    assert told(span).refused == pytest.approx(3)


def test_a_restart_counts_refusals_from_zero():
    span = Span(None, moment(0, 100, **{Signal.REFUSED: 50.0}))
    assert told(follow(span, moment(15, 5, restarts=1, **{Signal.REFUSED: 4.0}))).refused == pytest.approx(4)
    assert told(follow(span, moment(15, 5, restarts=1, **{Signal.REFUSED: None}))).refused == 0


def test_scrapes_that_lie_further_apart_than_ticks_are_a_rate():
    span = follow(Span(None, moment(0, 100)), moment(60, 160))
    assert told(span).arrived.number == pytest.approx(15)
    again = follow(span, moment(60, 160))
    assert again.fresh
    assert told(again).arrived.number == pytest.approx(15), "nothing new was scraped: the rate stands"


def test_what_was_not_asked_since_is_known_and_not_new():
    moments = [moment(0.0), moment(15.0), moment(15.0), moment(30.0)]
    span, seen = None, []
    for one in moments:
        span = follow(span, one)
        found = fleet_signals(Counts(ready=1), [span], EDGES, 15.0)
        seen.append((found.reporting, found.renewed))
    assert seen[1:] == [(1, True), (1, False), (1, True)]
    still = follow(span, moment(30.0))
    assert not fleet_signals(Counts(ready=2), [span, still], EDGES, 15.0).renewed, "one of two"


@pytest.mark.parametrize(
    ("signal", "name"),
    [
        (Signal.TTFT_COUNT, "first_tokens"), (Signal.PROMPT_TOKENS, "input_tokens"),
        (Signal.FINISHED_TOKENS, "output_tokens"), (Signal.GAP_COUNT, "tokens"), (Signal.GAP_SUM, "token_s"),
        (Signal.TPOT_WITHIN, "slow_finished"), (Signal.PROMPTS_WITHIN, "long_first_tokens"),
    ],
)  # fmt: skip
def test_what_one_pod_does_not_count_is_not_known_of_the_fleet(signal, name):
    whole = Span(moment(0, 100), moment(15, 130))
    found = told(whole, Span(moment(0, 100), moment(15, 130, **{signal: None})))
    assert (found.reporting, found.arrived.number) == (2, pytest.approx(60))
    assert isinstance(getattr(found, name), Unknown)
    assert not isinstance(getattr(told(whole, whole), name), Unknown)


def test_nothing_done_is_zero_and_nothing_seen_is_unknown():
    idle = told(Span(moment(0, 100), moment(15, 100, kv=0.0)))
    assert idle.arrived is idle.waiting is idle.kv_share is idle.first_tokens is ZERO
    nothing = told(Span(None, moment(15, 100)), ready=1)
    assert nothing.reporting == 0
    for name in READINGS:
        assert isinstance(getattr(nothing, name), Unknown), name
        assert isinstance(getattr(told(ready=0), name), Unknown), name


def test_a_pod_that_is_missing_is_not_in_the_sums_and_is_told():
    found = told(Span(moment(0), moment(15, 30)), ready=3)
    assert (found.ready, found.reporting) == (3, 1)
    assert found.arrived.number == pytest.approx(30)


def test_a_target_that_is_no_edge_is_unknown_and_says_so():
    span = Span(moment(0, **{Signal.TTFT_WITHIN: None}), moment(15, 30, **{Signal.TTFT_WITHIN: None}))
    found = told(span)
    assert found.late_first_tokens is NO_EDGE
    assert found.first_tokens.number == pytest.approx(30)
    assert found.slow_finished.number == pytest.approx(1.5)


def test_another_edge_than_before_counts_nothing():
    other = EDGES._replace(prompt_tokens=2000.0)
    found = told(Span(moment(0, 100, edges=other), moment(15, 130)))
    assert found.long_first_tokens is ABSENT
    assert found.late_first_tokens.number == pytest.approx(3)
    span = follow(Span(None, moment(0, 100)), moment(15, 101, edges=other, **{Signal.PROMPTS_WITHIN: 50.0}))
    assert span.fresh, "a smaller count up to a smaller edge is no restart"


def test_no_edge_at_all_means_that_all_are_within():
    edges = Edges(inf, inf, inf)
    span = Span(moment(0, edges=edges), moment(15, 30, edges=edges))
    found = fleet_signals(Counts(ready=1), [span], edges, 15.0)
    assert found.late_first_tokens is found.slow_finished is found.long_first_tokens is ZERO
    assert asked(edges) == {}
    assert asked(EDGES) == {Signal.TTFT_WITHIN: 1.0, Signal.TPOT_WITHIN: 0.05, Signal.PROMPTS_WITHIN: 5000.0}


@pytest.mark.parametrize("how", [{"started_s": 12.0}, {"restarts": 1}, {"restarts": 1, "started_s": None}])
def test_a_restart_begins_at_zero(how):
    span = follow(Span(None, moment(0, 1000, running=50)), moment(15, 6, running=3, **how))
    found = told(span)
    assert found.arrived.number == pytest.approx(9)
    assert found.input_tokens.number == pytest.approx(3000)


@pytest.mark.parametrize("started_s", [1.0, None, 0.0])
def test_a_counter_that_falls_without_a_new_process_is_not_believed(started_s):
    first = Span(moment(0, 1000), moment(15, 1100, running=9))
    zeros = follow(first, moment(30, 0.0, kv=0.0, started_s=started_s))
    assert told(zeros, ready=1).reporting == 0
    assert isinstance(told(zeros, ready=1).arrived, Unknown)
    still = follow(zeros, moment(45, 0.0, kv=0.0, started_s=started_s))
    assert isinstance(told(still, ready=1).arrived, Unknown), "and stays so, however long"
    back = follow(still, moment(60, 1400, running=9))
    assert told(back).arrived.number == pytest.approx(300 / 45 * 15)


def test_a_look_without_an_answer_is_no_answer():
    span = Span(moment(0), moment(15, 30))
    away = follow(span, None)
    assert told(away, ready=1).reporting == 0
    assert told(follow(away, moment(45, 90))).arrived.number == pytest.approx(30)
    assert follow(None, None) is None


def test_readings_of_a_source():
    by = {
        Signal.SAMPLED: 100.0, Signal.STARTED: 1.0, Signal.RUNNING: 2.0, Signal.WAITING: 0.0,
        Signal.KV_SHARE: float("nan"), Signal.FINISHED: -1.0, Signal.TTFT_COUNT: 5.0,
    }  # fmt: skip
    found = moment_of(Readings(by_signal={s: {POD: reading(v)} for s, v in by.items()}), POD, 0, EDGES)
    assert (found.running, found.waiting, found.kv_share) == (2.0, 0.0, None)
    counters = dict(zip(COUNTERS, found.counters, strict=True))
    assert (counters[Signal.FINISHED], counters[Signal.TTFT_COUNT], counters[Signal.GAP_SUM]) == (
        None,
        5.0,
        None,
    )
    assert moment_of(Readings(failure="away"), POD, 0, EDGES) is None


@pytest.mark.parametrize(
    ("limit", "longest", "edge"),
    [(1, 8192, 1), (900, 8192, 1000), (1000, 8192, 1000), (1001, 8192, 2000), (5001, 8192, inf), (0, 8192, 1),
     (4000, 4096, inf), (120_000, 1_000_000, 200_000), (1e18, 1e6, inf)],
)  # fmt: skip
def test_the_edge_of_prompts_that_are_surely_too_long(limit, longest, edge):
    assert prompt_edge(limit, longest) == edge


NUMBERS = st.one_of(st.none(), st.floats(0, 1e6), st.just(0.0))
MOMENTS = st.builds(
    Moment,
    at_s=st.sampled_from([0.0, 15.0, 30.0, 45.0]),
    started_s=st.sampled_from([None, 1.0, 20.0]),
    restarts=st.integers(0, 1),
    edges=st.sampled_from([EDGES, EDGES._replace(ttft_s=2.0)]),
    running=NUMBERS,
    waiting=NUMBERS,
    kv_share=st.one_of(st.none(), st.floats(0, 1)),
    counters=st.tuples(*[NUMBERS] * len(COUNTERS)),
)
LOOKS = st.lists(st.lists(st.one_of(st.none(), MOMENTS), min_size=1, max_size=4), max_size=5)


def followed(looks):
    found = []
    for pod in looks:
        span = None
        for each in pod:
            span = follow(span, each)
        if span is not None:
            found.append(span)
    return found


@given(LOOKS, st.randoms(use_true_random=False))
def test_the_order_of_pods_changes_nothing(looks, rng):
    spans = followed(looks)
    mixed = list(spans)
    rng.shuffle(mixed)
    assert told(*spans) == told(*mixed)


@given(LOOKS)
def test_unknown_never_becomes_zero_and_no_count_is_negative(looks):
    spans = followed(looks)
    found = told(*spans, ready=len(looks))
    assert found.reporting <= len(spans)
    known = [name for name in READINGS if not isinstance(getattr(found, name), Unknown)]
    if not found.reporting:
        assert known == []
    for name in known:
        assert getattr(found, name).number >= 0


@given(LOOKS, st.sampled_from([Signal.PROMPT_TOKENS, Signal.GAP_SUM, Signal.FINISHED_TOKENS]))
def test_what_one_reporting_pod_lacks_is_unknown_of_the_fleet(looks, signal):
    name = {Signal.PROMPT_TOKENS: "input_tokens", Signal.GAP_SUM: "token_s"}.get(signal, "output_tokens")
    counters = moment(15, 30, **{signal: None}).counters
    lacking = Span(moment(0), moment(15, 30)._replace(counters=counters))
    found = told(*followed(looks), lacking)
    assert isinstance(getattr(found, name), Unknown)
    assert found.reporting >= 1

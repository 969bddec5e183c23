"""Requests out of logs and counters: none is lost, none is invented, and what a line does not say is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.autoscaler.replay.history import Keys, Window, of_lines, of_windows


def lines(*found):
    return list(enumerate(found, 1))


def test_a_log_is_sorted_and_its_first_request_arrives_at_zero():
    log = lines(
        {"timestamp": "2026-03-01T10:00:05Z", "prompt_tokens": 20, "completion_tokens": 2},
        {"timestamp": "2026-03-01T12:00:00+02:00", "prompt_tokens": 10, "completion_tokens": 1},
    )
    trace, empty = of_lines(log, Keys())
    assert (trace.arrival_s, trace.input_tokens, trace.output_tokens, empty) == (
        [0.0, 5.0],
        [10, 20],
        [1, 2],
        0,
    )


@pytest.mark.parametrize(
    ("time", "later"), [(1_772_359_200, 1_772_359_201.5), (1_772_359_200_000, 1_772_359_201_500), (0, 1.5)]
)
def test_times_are_seconds_or_milliseconds(time, later):
    answer = {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    trace, _ = of_lines(lines({"created": time, **answer}, {"created": later, **answer}), Keys())
    assert trace.arrival_s == [0.0, 1.5]
    assert (trace.input_tokens, trace.output_tokens) == ([7, 7], [3, 3])


def test_other_keys_may_be_named_and_zero_answers_are_counted_apart():
    log = lines({"at": 1, "in": {"n": 4}, "out": 0}, {"at": 2, "in": {"n": 5}, "out": 6})
    trace, empty = of_lines(log, Keys(time=("at",), input=("in.n",), output=("out",)))
    assert (trace.input_tokens, empty) == ([5], 1)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ({"prompt_tokens": 1, "completion_tokens": 1}, "timestamp"),
        ({"time": 1, "completion_tokens": 1}, "prompt_tokens"),
        ({"time": 1, "prompt_tokens": 1}, "completion_tokens"),
        ({"time": True, "prompt_tokens": 1, "completion_tokens": 1}, "True"),
        ({"time": float("nan"), "prompt_tokens": 1, "completion_tokens": 1}, "nan"),
        ({"time": "yesterday", "prompt_tokens": 1, "completion_tokens": 1}, "yesterday"),
        ({"time": "2026-03-01T10:00:00", "prompt_tokens": 1, "completion_tokens": 1}, "time zone"),
        ({"time": 1, "prompt_tokens": "9", "completion_tokens": 1}, "'9'"),
        ({"time": 1, "prompt_tokens": 1, "completion_tokens": -1}, "-1"),
        ({"time": 1, "usage": 3}, "prompt_tokens"),
    ],
)
def test_what_a_line_does_not_say_is_refused_by_its_number(line, named):
    good = {"time": 1, "prompt_tokens": 1, "completion_tokens": 1}
    with pytest.raises(ValueError, match="line 2") as refused:
        of_lines(lines(good, line), Keys())
    assert named in str(refused.value)


def test_a_log_without_answers_is_refused():
    with pytest.raises(ValueError, match="no requests"):
        of_lines(lines({"time": 1, "prompt_tokens": 1, "completion_tokens": 0}), Keys())


WINDOWS = st.lists(
    st.tuples(st.floats(0, 30), st.integers(1, 4000), st.integers(1, 900)), min_size=1, max_size=40
)


@given(WINDOWS, st.integers(0, 9))
def test_counters_give_as_many_requests_as_they_counted_within_their_windows(rows, seed):
    windows = [
        Window(60.0 * n, count, count * into, count * out) for n, (count, into, out) in enumerate(rows, 1)
    ]
    total = sum(count for count, _, _ in rows)
    if total < 1:
        with pytest.raises(ValueError, match="no requests"):
            of_windows(windows, 60.0, seed)
        return
    trace = of_windows(windows, 60.0, seed)
    assert total - 1 - 1e-6 <= len(trace.arrival_s) <= total + 1e-6
    assert trace.arrival_s[0] == 0.0
    assert trace.end_s <= 60.0 * len(rows)
    assert set(trace.input_tokens) <= {into for _, into, _ in rows}
    assert trace.arrival_s == of_windows(windows, 60.0, seed).arrival_s


def test_each_window_has_its_own_requests():
    trace = of_windows([Window(60, 3, 300, 30), Window(120, 0, 0, 0), Window(180, 2, 800, 80)], 60.0, 1)
    assert trace.input_tokens == [100, 100, 100, 400, 400]
    assert 60 < trace.arrival_s[3] < 180

"""What an engine did in a span of time: no growth from nothing, none across a restart, none from a missing counter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.planner.growth import (
    COUNTERS,
    SPAN_S,
    STEP_S,
    Growth,
    Sample,
    follow,
    growth,
    number,
    sample_of,
)
from shardwright.planner.signals import (
    ABSENT,
    NOT_A_NUMBER,
    ZERO,
    Readings,
    Signal,
    Unknown,
    Value,
    Zero,
    reading,
)

POD = ("team", "chat-1")


def sample(at_s, *counters, started=1.0):
    padded = (*counters, *(None for _ in COUNTERS[len(counters) :]))
    return Sample(at_s=at_s, started_s=started, counters=padded)


def followed(*samples):
    kept = ()
    for each in samples:
        kept = follow(kept, each)
    return kept


@pytest.mark.parametrize("number_", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_unknown(number_):
    assert reading(number_) is NOT_A_NUMBER
    with pytest.raises(ValueError, match="not a Value"):
        Value(number_)


def test_the_three_states_are_three_types():
    assert isinstance(reading(0.0), Zero)
    assert reading(2.0) == Value(2.0)
    assert number(ZERO) == 0.0
    assert number(ABSENT) is None
    assert not hasattr(ABSENT, "number"), "what is unknown cannot be computed with"
    assert isinstance(Readings().of(Signal.TTFT_COUNT, POD), Unknown)
    assert isinstance(Readings(failure="away").of(Signal.TTFT_COUNT, POD), Unknown)


def test_without_the_time_of_a_sample_there_is_none():
    some = {Signal.TTFT_COUNT: {POD: Value(3.0)}}
    assert sample_of(Readings(by_signal=some), POD) is None
    taken = sample_of(Readings(by_signal=some | {Signal.SAMPLED: {POD: Value(10.0)}}), POD)
    assert taken is not None
    assert taken.counters == (None, 3.0, *(None for _ in COUNTERS[2:]))


def test_one_sample_is_no_growth():
    assert growth(()) is None
    assert growth(followed(sample(0, 1.0))) is None
    assert growth(followed(sample(5, 1.0), sample(5, 1.0))) is None, "the same scrape, read twice"


def test_a_counter_that_is_missing_at_one_end_is_unknown():
    found = growth(followed(sample(0, 1.0, None), sample(60, 4.0, 9.0)))
    assert found == Growth(seconds=60, ttft_sum_s=3.0)


def test_a_restart_begins_anew():
    before = followed(sample(0, 100.0), sample(60, 200.0))
    fell = follow(before, sample(120, 3.0))
    assert growth(fell) is None
    assert growth(follow(fell, sample(180, 10.0))) == Growth(seconds=60, ttft_sum_s=7.0)
    # It has already counted more than before; only its start tells.
    other = follow(before, sample(120, 300.0, started=2.0))
    assert growth(other) is None


def test_the_span_is_bounded_in_time_and_number():
    kept = ()
    for step in range(1000):
        kept = follow(kept, sample(15.0 * step, float(step)))
    assert len(kept) <= SPAN_S / STEP_S + 2
    found = growth(kept)
    assert found is not None
    assert SPAN_S - STEP_S <= found.seconds <= SPAN_S
    assert found.ttft_sum_s == pytest.approx(found.seconds / 15.0)


@given(
    st.lists(
        st.tuples(st.floats(0.1, 400), st.one_of(st.none(), st.floats(0, 50)), st.booleans()), max_size=40
    )
)
def test_growth_is_never_negative_and_never_more_than_was_counted(steps):
    """Against a pod whose every request is known: whatever restarts and gaps there are."""
    kept, at_s, count, since_restart, start = (), 0.0, 0.0, 0.0, 1.0
    for seconds, more, restarts in steps:
        at_s += seconds
        if restarts:
            start, count, since_restart = at_s, 0.0, 0.0
        if more is None:
            kept = follow(kept, sample(at_s, None, None, started=start))
            continue
        count += more
        since_restart += more
        kept = follow(kept, sample(at_s, count, count, started=start))
        found = growth(kept)
        if found is not None and found.ttft_count is not None:
            assert 0 <= found.ttft_count <= since_restart + 1e-9
            assert 0 < found.seconds <= SPAN_S + 1e-9

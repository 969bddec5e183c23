"""When an engine is suspected to hang: histories of samples, with missing looks, restarts and clocks that are set."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.diagnose.stall import (
    FACTOR,
    LEAST_S,
    LONGEST_GAP_S,
    SAMPLES,
    Sample,
    bound_s,
    first_of,
    follow,
    sample_of,
    suspected,
)
from shardwright.planner.signals import STALE, Readings, Signal, reading

POD = ("team", "chat-1")
EPOCH = 1.7e9


def sample(at_s, requests=2.0, tokens=100.0, restarts=0, started_s=1.0, skew_s=EPOCH):
    return Sample(at_s + skew_s, at_s, started_s, restarts, requests, tokens)


def told(samples, bound=60.0):
    """At which looks the engine is suspected."""
    silence, found = None, []
    for index, new in enumerate(samples):
        silence = follow(silence, new)
        if suspected(silence, bound):
            found.append(index)
    return found


def every(seconds, looks, **what):
    return [sample(seconds * index, **what) for index in range(looks)]


def test_an_engine_without_a_token_is_suspected_when_the_bound_has_passed():
    assert told(every(15, 7)) == [4, 5, 6]
    assert told(every(15, 7), bound=90) == [6]


@pytest.mark.parametrize(
    ("at", "change"),
    {
        "a token": (3, {"tokens": 101.0}),
        "a restart that the API server counts": (3, {"restarts": 1}),
        "a restart that the engine tells": (3, {"started_s": 9.0}),
        "counters that begin anew": (3, {"tokens": 0.0}),
        "nothing to do": (3, {"requests": 0.0}),
    }.values(),
)
def test_whatever_says_that_it_went_on_begins_the_count_anew(at, change):
    looks = every(15, 9)
    looks[at] = sample(15 * at, **change)
    assert told(looks[: at + 5]) == []


def test_what_is_missing_is_never_judged_and_a_gap_says_nothing_of_what_was_in_it():
    looks = every(15, 9)
    looks[4] = looks[5] = None
    assert told(looks) == [6, 7, 8]
    late = [*every(15, 3), sample(30 + LONGEST_GAP_S + 1), sample(60 + LONGEST_GAP_S)]
    assert told(late) == []


def test_a_sample_that_comes_again_is_none():
    one = sample(0)
    assert told([one, one._replace(seen_s=60), one._replace(seen_s=90), one._replace(seen_s=120)]) == []


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, 59.0])
def test_a_clock_that_is_set_makes_nobody_hang(jump_s):
    looks = [*every(15, 2), *(sample(15 * i, skew_s=EPOCH + jump_s) for i in range(2, 5))]
    assert told(looks[:4]) == []


def test_few_samples_are_not_enough_however_far_apart():
    assert told(every(100, 2)) == []
    assert told(every(100, SAMPLES)) == [SAMPLES - 1]


def test_the_bound_grows_with_the_longest_prompt_and_never_falls_below_the_least():
    assert bound_s(0.2) == LEAST_S
    assert bound_s(40.0) == FACTOR * 40.0
    assert bound_s(0.2, 5.0) == 5.0


def test_the_one_that_is_silent_longest_comes_first():
    silences = {}
    for name, began in (("b", 0), ("a", 15), ("c", 0)):
        for new in every(15, 9):
            if new.seen_s >= began:
                silences[name] = follow(silences.get(name), new)
    bounds = dict.fromkeys(silences, 60.0)
    assert first_of(silences, bounds) == "b"
    assert first_of(silences, bounds | {"b": 600.0, "c": 600.0}) == "a"
    assert first_of(silences, {"a": 600.0}) is None


def test_a_sample_takes_all_its_figures():
    said = {
        Signal.SAMPLED: {POD: reading(EPOCH)},
        Signal.STARTED: {POD: reading(1.0)},
        Signal.RUNNING: {POD: reading(0.0)},
        Signal.WAITING: {POD: reading(2.0)},
        Signal.GENERATION_TOKENS: {POD: reading(0.0)},
    }
    found = sample_of(Readings(by_signal=said), POD, 3, 7.0)
    assert found == Sample(EPOCH, 7.0, 1.0, 3, 2.0, 0.0)
    for signal in (Signal.SAMPLED, Signal.RUNNING, Signal.WAITING, Signal.GENERATION_TOKENS):
        for broken in ({}, {POD: STALE}, {POD: reading(float("nan"))}):
            assert sample_of(Readings(by_signal=said | {signal: broken}), POD, 3, 7.0) is None
    assert sample_of(Readings(failure="away"), POD, 3, 7.0) is None
    assert sample_of(Readings(by_signal=said | {Signal.STARTED: {}}), POD, 3, 7.0).started_s is None


@dataclass
class Engine:
    """A true history: what an engine did, second by second, and what looks at it showed."""

    now: int = 0
    tokens: float = 0.0
    restarts: int = 0
    requests: float = 1.0
    skew_s: float = EPOCH
    token_at: int = 0
    """When the last token came, or the engine last started."""
    looks: list = field(default_factory=list)

    def do(self, what, seconds):
        self.now += seconds
        if what == "token":
            self.tokens, self.token_at = self.tokens + 1, self.now
        elif what == "restart":
            self.restarts, self.tokens, self.token_at = self.restarts + 1, 0.0, self.now
        elif what == "leave":
            self.requests = 0.0
        elif what == "come":
            self.requests = 1.0
        elif what == "set the clock":
            self.skew_s += 500 * (1 if seconds % 2 else -1)
        if what == "miss":
            self.looks.append((None, self.now - self.token_at))
        elif what == "look":
            seen = sample(
                self.now, self.requests, self.tokens, self.restarts, started_s=None, skew_s=self.skew_s
            )
            self.looks.append((seen, self.now - self.token_at))


BUSY = st.tuples(
    st.sampled_from(["look"] * 6 + ["miss", "token", "restart", "set the clock"]), st.integers(1, 40)
)
# What an engine has between two looks nobody knows: that is why an engine is asked before it is replaced.
STEPS = st.tuples(
    st.sampled_from(["look"] * 6 + ["miss", "token", "restart", "leave", "come", "set the clock"]),
    st.integers(1, 40),
)


@given(st.lists(BUSY, max_size=80))
def test_nobody_is_suspected_who_brought_a_token_within_the_bound(steps):
    engine = Engine()
    for what, seconds in steps:
        engine.do(what, seconds)
    silence = None
    for new, silent_s in engine.looks:
        silence = follow(silence, new)
        if suspected(silence, 60.0):
            assert new is not None
            assert new.requests > 0
            assert silent_s >= 60.0


@given(st.lists(STEPS, max_size=60), st.integers(0, 59))
def test_what_a_crash_forgets_makes_it_later_and_never_earlier(steps, crash):
    engine = Engine()
    for what, seconds in steps:
        engine.do(what, seconds)
    through = after = None
    for index, (new, _) in enumerate(engine.looks):
        through = follow(through, new)
        after = None if index == crash else follow(after, new)
        if suspected(after, 60.0):
            assert suspected(through, 60.0)


@given(st.lists(st.integers(1, 30), min_size=10, max_size=60))
def test_an_engine_that_hangs_is_found_at_the_first_look_after_its_bound(gaps):
    at, looks = 0, []
    for gap in gaps:
        at += gap
        looks.append(sample(at))
    due = [i for i, new in enumerate(looks) if new.seen_s - looks[0].seen_s >= 60 and i >= SAMPLES - 1]
    assert told(looks) == due

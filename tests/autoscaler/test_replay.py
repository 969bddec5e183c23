"""The replay serves as the replica model says, pays for what there is, and loses no request."""

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.stepwise import stepwise
from shardwright.autoscaler.replay.fleet import Snapshot, World, replay
from shardwright.autoscaler.replay.score import reversals, score
from shardwright.autoscaler.replay.trace import Trace, overlaid, part
from shardwright.autoscaler.replica import ReplicaModel, capacity

MODEL = ReplicaModel(
    step_s=0.036, sequence_s=0.0003, kv_token_s=0.55e-6, prefill_token_s=0.16e-3,
    kv_tokens=90_000, budget_tokens=2048, seats=256,
)  # fmt: skip
TIGHT = ReplicaModel(
    step_s=0.01,
    sequence_s=0.001,
    kv_token_s=1e-5,
    prefill_token_s=0.001,
    kv_tokens=300,
    budget_tokens=40,
    seats=6,
)
"""Small enough for seats, budget and KV cache to bind with a dozen requests."""
REQUESTS = st.lists(
    st.tuples(st.integers(0, 3000).map(lambda n: n / 997 + 1e-5), st.integers(1, 120), st.integers(1, 60)),
    min_size=1, max_size=25, unique_by=lambda request: request[0],
).map(sorted)  # fmt: skip


@dataclass
class Sizes:
    """Wants the sizes of a list, tick by tick, and the last one ever after."""

    sizes: list[int]
    name: str = "sizes"
    period_s: float = 15.0
    limit_tokens: int = 1 << 30

    def decide(self, _seen: Snapshot) -> int:
        return self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]


def trace_of(requests: list[tuple[float, int, int]]) -> Trace:
    return Trace([r[0] for r in requests], [r[1] for r in requests], [r[2] for r in requests])


def world(model: ReplicaModel = MODEL, **changes: object) -> World:
    return World(**({"model": model, "ttft_s": 2.0, "tpot_s": 0.15, "unscored_s": 0.0} | changes))


@given(requests=REQUESTS)
@settings(max_examples=300)
def test_runs_in_closed_form_are_the_steps_one_by_one(requests):
    outcome = replay(trace_of(requests), world(TIGHT, first_replicas=1), Sizes([1]))
    first, last = stepwise(TIGHT, requests)
    assert outcome.book.refused == 0
    for request in range(len(requests)):
        assert outcome.book.first_s[request] == pytest.approx(first[request], abs=1e-7)
        assert outcome.book.finish_s[request] == pytest.approx(last[request], abs=1e-7)


@given(
    requests=st.lists(
        st.tuples(st.floats(0, 400), st.integers(1, 250), st.integers(1, 40)), min_size=1, max_size=60
    ).map(sorted),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=30),
    seed=st.integers(0, 5),
)
def test_every_request_ends_or_is_refused_and_sizes_stay_within_limits(requests, sizes, seed):
    bounds = {"min_replicas": 1, "max_replicas": 4, "cold_start_s": 40.0, "seed": seed, "drain_s": inf}
    outcome = replay(trace_of(requests), world(TIGHT, first_replicas=2, **bounds), Sizes(sizes))
    book = outcome.book
    assert book.finished + book.refused == len(requests)
    assert outcome.cut == 0
    assert all(1 <= size <= 4 for _, size in outcome.sizes)
    assert all(
        at < f <= e for (at, _, _), f, e in zip(requests, book.first_s, book.finish_s, strict=True) if f >= 0
    )


def test_a_replica_is_paid_for_from_its_creation_until_it_is_drained():
    requests = [(0.0, 10, 1), (31.0, 10, 1000), (1200.0, 10, 1)]
    sizes = [1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]
    outcome = replay(trace_of(requests), world(first_replicas=1, cold_start_spread=0.0), Sizes(sizes))
    assert outcome.sizes == [(0.0, 1), (60.0, 2), (300.0, 1)]
    assert outcome.paid_s == pytest.approx(1200 + 240), "the second one was idle, so it left at once"
    assert outcome.cut == 0


def test_a_stream_longer_than_the_drain_is_cut_and_counts_as_a_miss():
    requests = [(1.0, 10, 8000), (1.5, 10, 8000), (900.0, 10, 1)]
    outcome = replay(trace_of(requests), world(first_replicas=2, drain_s=30.0), Sizes([1]))
    figures = score(outcome)
    assert figures.cut_requests == 1
    assert figures.attainment == pytest.approx(2 / 3)


def test_a_request_that_no_replica_can_hold_is_refused_and_misses():
    outcome = replay(trace_of([(0.0, 89_000, 5000), (1.0, 10, 10)]), world(first_replicas=1), Sizes([1]))
    assert outcome.book.refused == 1
    assert score(outcome).attainment == 0.5


def test_the_same_seed_gives_the_same_replay():
    base = trace_of([(float(n), 900 + 7 * n, 50 + n) for n in range(300)])
    results = [score(replay(overlaid(base, 3, 7), world(seed=3), Sizes([3, 4, 2, 5]))) for _ in range(2)]
    assert results[0] == results[1]


@pytest.mark.parametrize(("into", "out"), [(1155, 211), (774, 128)])
def test_the_capacity_of_the_model_is_where_the_target_is_lost(into, out):
    def met(share: float) -> float:
        rate = share * capacity(MODEL, into, out, 0.15).rate_per_s
        requests = [(n / rate, into, out) for n in range(int(600 * rate))]
        return score(
            replay(trace_of(requests), world(first_replicas=1, unscored_s=200.0), Sizes([1]))
        ).attainment

    assert met(0.95) > 0.99
    assert met(1.15) < 0.5


def test_own_prefill_is_that_of_an_idle_replica():
    for tokens in (1, 900, 2048, 2049, 20_000):
        outcome = replay(trace_of([(0.0, tokens, 2)]), world(first_replicas=1), Sizes([1]))
        assert outcome.book.first_s[0] == pytest.approx(MODEL.own_prefill_s(tokens))
    longest = MODEL.longest_prompt_tokens(2.0)
    assert MODEL.own_prefill_s(longest) <= 2.0 < MODEL.own_prefill_s(longest + 1)


def test_a_reversal_undoes_a_change_within_ten_minutes():
    sizes = [(0.0, 4), (15.0, 6), (300.0, 5), (1200.0, 6), (1215.0, 7), (1300.0, 3)]
    assert reversals(sizes) == 2
    assert reversals(sizes, from_s=1000) == 1


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (([1.0, 0.5], [1, 1], [1, 1]), "sorted"),
        (([1.0], [1, 1], [1]), "length"),
        (([1.0], [0], [1]), "at least 1"),
    ],
)
def test_a_bad_trace_is_refused_by_name(trace, words):
    with pytest.raises(ValueError, match=words):
        Trace(*trace)


def test_a_part_of_a_trace_begins_at_zero():
    assert part(trace_of([(1.0, 1, 1), (5.0, 2, 2), (9.0, 3, 3)]), 4, 9).arrival_s == [1.0]

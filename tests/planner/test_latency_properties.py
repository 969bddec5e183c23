"""What holds for every decision about latency, load and price, whatever the model and the pool."""

import random

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.plan_support import (
    A100_40,
    A100_80,
    H100,
    H200,
    L4,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_32B,
    QWEN_MOE_FP8,
    decide,
    shapes,
)
from shardwright.planner.placement import place
from shardwright.planner.question import UNVALIDATED_GAIN
from shardwright.planner.types import Plan

MODELS = (LLAMA_8B, LLAMA_70B, LLAMA_70B_FP8, QWEN_32B, QWEN_MOE_FP8)
OFTEN = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
pools = st.lists(
    st.tuples(st.sampled_from([H100, H200, A100_40, A100_80, L40S, L4]), st.sampled_from([1, 2, 4, 8])),
    min_size=1, max_size=3, unique=True,
)  # fmt: skip
rates = st.integers(1, 1200)
ttfts, tpots = st.integers(200, 6000), st.integers(12, 150)
budgets = st.sampled_from([2, 4, 8, 16])


def ask(model, pool, rate, ttft=None, tpot=None, budget=16, percentile=95):
    targets = {"ttft": ttft, "tpot": tpot}
    return decide(
        model, shapes(*pool), workload={"requestsPerMinute": rate}, pool={"maxGPUs": budget},
        slo={k: {"percentile": percentile, "milliseconds": v} for k, v in targets.items() if v},
    )  # fmt: skip


def judged(decision):
    """The price that counts: of what no row covers, 1.3 times as much."""
    price = decision.product.price_per_gpu_hour * decision.gpus_per_replica * decision.replicas
    unmeasured = decision.coverage.startswith("Unvalidated") or decision.parallelism.expert
    return price * (UNVALIDATED_GAIN if unmeasured else 1.0)


def comparable(pool, decision):
    """Whether price alone decided: the pool holds all its replicas, and no rank waits for a link that it lacks.

    Under PreferNVLink ranks without links come after all others, whatever they save.
    """
    placed = place(decision, shapes(*pool), decision.replicas).placed
    return placed == decision.replicas and decision.within_island


@OFTEN
@given(st.sampled_from(MODELS), pools, rates, ttfts, tpots, st.floats(1, 4), st.floats(1, 4), budgets)
def test_a_looser_target_never_costs_more(model, pool, rate, ttft, tpot, more, most, budget):
    tight = ask(model, pool, rate, ttft, tpot, budget)
    assume(isinstance(tight, Plan))
    loose = ask(model, pool, rate, int(ttft * more), int(tpot * most), budget)
    assert isinstance(loose, Plan)
    if comparable(pool, tight):
        assert loose.within_island
        assert judged(loose) <= judged(tight) + 1e-6


@OFTEN
@given(st.sampled_from(MODELS), pools, rates, ttfts, tpots, st.floats(1, 4), budgets)
def test_more_load_never_costs_less(model, pool, rate, ttft, tpot, more, budget):
    busy = ask(model, pool, int(rate * more), ttft, tpot, budget)
    assume(isinstance(busy, Plan))
    quiet = ask(model, pool, rate, ttft, tpot, budget)
    assert isinstance(quiet, Plan)
    if comparable(pool, busy):
        assert quiet.within_island
        assert judged(quiet) <= judged(busy) + 1e-6


@OFTEN
@given(st.sampled_from(MODELS), pools, pools, rates, ttfts, tpots, budgets, budgets)
def test_a_larger_pool_or_budget_never_costs_more(model, pool, added, rate, ttft, tpot, budget, more):
    small = ask(model, pool, rate, ttft, tpot, budget)
    assume(isinstance(small, Plan))
    large = ask(model, list(dict.fromkeys([*pool, *added])), rate, ttft, tpot, max(budget, more))
    assert isinstance(large, Plan)
    if comparable(pool, small):
        assert large.within_island
        assert judged(large) <= judged(small) + 1e-6


@OFTEN
@given(st.sampled_from(MODELS), pools, st.randoms(), rates, ttfts, tpots)
def test_the_order_of_the_nodes_changes_nothing(model, pool, rng, rate, ttft, tpot):
    first = ask(model, pool, rate, ttft, tpot)
    mixed = list(pool)
    rng.shuffle(mixed)
    second = ask(model, mixed, rate, ttft, tpot)
    if isinstance(first, Plan):
        assert (second.summary, second.speed, second.limits) == (first.summary, first.speed, first.limits)
    else:
        assert second.message == first.message


@OFTEN
@given(st.sampled_from(MODELS), pools, rates, ttfts, tpots, budgets)
def test_a_plan_keeps_what_is_stated(model, pool, rate, ttft, tpot, budget):
    found = ask(model, pool, rate, ttft, tpot, budget)
    assume(isinstance(found, Plan))
    speed = found.speed
    assert speed.ttft_ms * 1.15 <= ttft * 1.001
    assert speed.tpot_ms * 1.15 <= tpot * 1.001
    assert rate <= found.replicas * speed.most * 1.001
    assert found.replicas * found.gpus_per_replica <= budget
    assert found.planned_concurrency >= speed.running - 1e-6
    assert found.required_kv_tokens <= found.estimate.promised_kv_tokens
    assert not speed.missed or found.speed.kind == "Rate"


@OFTEN
@given(st.sampled_from(MODELS), pools, rates, budgets)
def test_targets_that_nobody_stated_refuse_nothing(model, pool, rate, budget):
    stated = ask(model, pool, rate, 3_600_000, 3_600_000, budget)
    unstated = ask(model, pool, rate, budget=budget)
    assert isinstance(unstated, Plan) == isinstance(stated, Plan)


def test_more_load_takes_replicas_one_by_one():
    rng, before = random.Random(3), 0
    for rate in sorted(rng.randrange(1, 12_000) for _ in range(40)):
        found = ask(LLAMA_8B, [(H100, 8)], rate, 1000, 50)
        assert isinstance(found, Plan)
        assert found.replicas >= before
        before = found.replicas
    assert before > 8

"""The search leaves nothing better behind: no rejected arrangement dominates, and pruning changes no choice."""

import random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.plan_support import (
    A100_80,
    A6000,
    H100,
    H200,
    L4,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_32B,
    QWEN_MOE_FP8,
    products,
    request,
    shapes,
)
from planner.test_latency_properties import MODELS, budgets, pools, rates, tpots, ttfts
from shardwright.planner.choice import plan
from shardwright.planner.question import UNVALIDATED_GAIN
from shardwright.planner.types import Plan

CASES = 200
WIDE = (LLAMA_8B, LLAMA_70B, LLAMA_70B_FP8, QWEN_32B, QWEN_MOE_FP8, "mistralai/Mixtral-8x7B-Instruct-v0.1",
        "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "google/gemma-3-27b-it")  # fmt: skip
CARDS = (H100, H200, A100_80, L40S, A6000, L4)


def judged(candidate):
    """The price of all replicas, 1.3 times for what no row covers."""
    split, gaps = candidate.parallelism, candidate.speed.gaps
    bold = split.pipeline > 1 or split.data > 1 or split.expert or candidate.kv_cache_dtype == "fp8"
    unmeasured = bold or gaps or not candidate.estimate.covered
    price = products()[candidate.product].price_per_gpu_hour
    return price * split.gpus * candidate.replicas * (UNVALIDATED_GAIN if unmeasured else 1.0)


def merits(candidate):
    """What an arrangement is better by, smaller first.

    The price, the targets of the profile, the failure domain, what in it nothing measured, and the slack.
    """
    speed, split = candidate.speed, candidate.parallelism
    return (
        round(judged(candidate), 6), len(speed.missed), split.gpus, candidate.kv_cache_dtype == "fp8",
        split.expert, split.pipeline, -round(speed.most * candidate.replicas, 5),
    )  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(MODELS), pools, rates, ttfts, tpots, budgets, st.booleans())
def test_no_rejected_arrangement_dominates_the_chosen_one(model, pool, rate, ttft, tpot, budget, stated):
    targets = {"ttft": ttft, "tpot": tpot} if stated else {}
    found = plan(
        request(
            model, shapes(*pool), workload={"requestsPerMinute": rate},
            pool={"maxGPUs": budget, "interconnect": {"policy": "Any"}},
            slo={k: {"percentile": 95, "milliseconds": v} for k, v in targets.items()},
            model={"allowedKVCacheDtypes": ["Auto", "FP8"]},
        ),
        exhaustive=True,
    )  # fmt: skip
    assume(isinstance(found, Plan))
    fits = [c for c in found.candidates if c.replicas and c.speed is not None]
    [chosen] = [c for c in fits if c.reason.value == "Chosen"]
    ours = merits(chosen)
    for other in fits:
        if other is chosen or other.reason.value == "PoolTooSmall" or "powers of two" in other.message:
            continue
        theirs = merits(other)
        assert not (all(t <= o for t, o in zip(theirs, ours, strict=True)) and theirs != ours), other.message


def some_case(rng):
    """A model, a pool and a spec, with whatever the search looks at in some of them."""
    model = rng.choice(WIDE)
    pool = [
        (card, rng.choice([1, 2, 4, 8]), rng.choice([1, 2])) for card in rng.sample(CARDS, rng.randint(1, 2))
    ]
    load = {"requestsPerMinute": int(10 ** rng.uniform(0.5, 3.8))} if rng.random() < 0.7 else {}
    if not load and rng.random() < 0.8:
        load = {"concurrency": int(10 ** rng.uniform(0, 2.8))}
    slo = {}
    if rng.random() < 0.8:
        slo["ttft"] = {
            "percentile": rng.choice([50, 95, 99]),
            "milliseconds": int(10 ** rng.uniform(2.8, 4.3)),
        }
    if rng.random() < 0.8:
        slo["tpot"] = {"percentile": rng.choice([50, 95]), "milliseconds": int(10 ** rng.uniform(1.3, 2.5))}
    if rng.random() < 0.2:
        slo["itl"] = {"percentile": 95, "milliseconds": int(10 ** rng.uniform(1.5, 3))}
    spec = {
        "pool": {
            "maxGPUs": rng.choice([4, 8, 16, 32]),
            "interconnect": {"policy": rng.choice(["Any", "PreferNVLink"])},
        },
        "workload": load
        | rng.choice([{}, {"profile": "RAG"}, {"profile": "Voice"}, {"sharedPrefixTokens": 300}]),
        "slo": slo | ({"optimizeFor": "Latency"} if rng.random() < 0.1 else {}),
    }
    if rng.random() < 0.4:
        spec["model"] = {"allowedKVCacheDtypes": ["Auto", "FP8"]}
    if rng.random() < 0.2:
        spec["availability"] = {"surviveNodeLoss": True}
    if rng.random() < 0.1:
        spec["engine"] = rng.choice([{"maxNumSeqs": 128}, {"maxNumBatchedTokens": 4096}])
    return model, pool, spec


def told(decision):
    """What is decided."""
    if not isinstance(decision, Plan):
        return decision.reason
    return decision.model.model_id, decision.summary, decision.limits, decision.spare_replicas


@pytest.mark.parametrize("seed", range(4))
def test_the_pruned_search_decides_as_the_whole_one(seed):
    rng, planned = random.Random(seed), 0
    for _ in range(CASES // 4):
        model, pool, spec = some_case(rng)
        asked = request(model, shapes(*pool), **spec)
        found = plan(asked)
        assert told(found) == told(plan(asked, exhaustive=True)), (model, pool, spec)
        planned += isinstance(found, Plan)
    assert planned > CASES / 12

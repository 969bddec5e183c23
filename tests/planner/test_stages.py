"""When pipeline stages are tried: by what an island holds, and by nothing that changes from day to day."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.worlds import A100_40, ROOMY, ask, nodes_of
from shardwright.planner.choice import plan
from shardwright.planner.types import NoPlan

A6000, B200, PCIE_H100, L40S, H100 = (
    f"NVIDIA-{name}" for name in ("RTX-A6000", "B200", "H100-PCIe", "L40S", "H100-80GB-HBM3")
)
QWEN_MOE, QWEN_32B, LLAMA_8B = "Qwen/Qwen3-30B-A3B-FP8", "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B_FP8 = "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"


def ms(target):
    return {"milliseconds": target, "percentile": 95}


def decided(model, shapes, spec, **more):
    nodes = nodes_of([(label, gpus, 0, ROOMY, "580") for label, gpus, count in shapes for _ in range(count)])
    return plan(ask(model, nodes, {"model": {}, **spec}), **more)


def price(decision):
    if isinstance(decision, NoPlan):
        return float("inf")
    each = decision.product.price_per_gpu_hour
    return each * decision.gpus_per_replica * decision.replicas


def lengths(*tokens):
    ip50, ip95, op50, op95 = tokens
    return {"inputTokens": {"p50": ip50, "p95": ip95}, "outputTokens": {"p50": op50, "p95": op95}}


def loaded(in_flight, tokens=(4870, 8986, 163, 358), max_gpus=16, policy="PreferNVLink", **slo):
    return {
        "pool": {"maxGPUs": max_gpus, "interconnect": {"policy": policy}},
        "workload": lengths(*tokens) | {"concurrency": in_flight},
        "slo": slo or {"ttft": ms(18_012)},
    }


@pytest.mark.parametrize("policy", ["RequireNVLink", "Any"])
def test_more_load_never_brings_stages_that_cost_less(policy):
    """One A6000 holds eight requests: that it does not hold its share of more is no reason for stages."""
    prices = [
        price(decided(QWEN_MOE, [(A6000, 8, 4)], loaded(n, policy=policy))) for n in (100, 200, 220, 260, 363)
    ]
    assert prices == sorted(prices)


def test_nodes_with_larger_islands_take_nothing_from_those_without():
    spec = {
        "pool": {"maxGPUs": 32, "interconnect": {"policy": "RequireNVLink", "bridges": "Pairs"}},
        "workload": {"requestsPerMinute": 120},
        "slo": {"ttft": ms(5000), "tpot": ms(200)},
    }
    alone = decided(QWEN_32B, [(A6000, 8, 4)], spec)
    more = decided(QWEN_32B, [(A6000, 8, 4), (A6000, 2, 1)], spec)
    assert alone.parallelism.pipeline > 1
    assert more.summary == alone.summary


def test_a_larger_budget_and_other_nodes_never_cost_more():
    spec = {"workload": {"requestsPerMinute": 20}, "slo": {"tpot": ms(150)}}
    prices = [
        price(decided(LLAMA_70B_FP8, [(A100_40, 8, 1)], spec | {"pool": {"maxGPUs": most}}))
        for most in (3, 4, 6, 8, 16)
    ]
    assert prices == sorted(prices, reverse=True)
    small = spec | {"pool": {"maxGPUs": 16}}
    odd = decided(LLAMA_70B_FP8, [(A100_40, 3, 2)], small)
    assert price(decided(LLAMA_70B_FP8, [(A100_40, 3, 2), (A100_40, 4, 1)], small)) <= price(odd)


@given(
    model=st.sampled_from([QWEN_MOE, QWEN_32B, LLAMA_8B, LLAMA_70B_FP8]),
    label=st.sampled_from([A6000, A100_40, L40S, PCIE_H100]),
    gpus=st.sampled_from([1, 2, 4, 8]),
    loads=st.tuples(st.integers(1, 500), st.integers(1, 500)),
    budgets=st.tuples(st.integers(1, 32), st.integers(1, 32)),
)
def test_load_and_budget_bring_no_stages(model, label, gpus, loads, budgets):
    """Which stages are tried at all is the same at any load and budget, as far as both let them be."""
    tried = []
    for in_flight, most in zip(loads, budgets, strict=True):
        found = decided(
            model, [(label, gpus, 2)], loaded(in_flight, (500, 900, 100, 200), most), exhaustive=True
        )
        staged = {
            str(c.parallelism)
            for c in found.candidates
            if c.parallelism.pipeline > 1
            and c.reason.value != "NeedsMultiNode"
            and "stages are for what no NVLink island holds" not in c.message
        }
        tried.append(staged)
    small, large = sorted(tried, key=len)
    assert not small or not large or small <= large


def test_a_tie_under_any_goes_to_the_stages_where_they_are_the_smaller_domain_or_faster():
    spec = loaded(451, (776, 2925, 126, 411), 32, "Any", ttft=ms(60_000))
    spec["workload"]["sharedPrefixTokens"] = 388
    pruned = decided("meta-llama/Llama-3.3-70B-Instruct", [(PCIE_H100, 8, 4)], spec)
    whole = decided("meta-llama/Llama-3.3-70B-Instruct", [(PCIE_H100, 8, 4)], spec, exhaustive=True)
    assert pruned.summary == whole.summary


def test_fewer_sequences_are_tried_where_a_pause_is_too_long():
    spec = {
        "pool": {"maxGPUs": 8},
        "workload": {"profile": "Voice", "requestsPerMinute": 95},
        "slo": {"itl": ms(204), "tpot": ms(82)},
    }
    shapes = [("NVIDIA-GeForce-RTX-4090", 1, 8)]
    pruned = decided("google/gemma-2-9b-it", shapes, spec)
    assert price(pruned) == price(decided("google/gemma-2-9b-it", shapes, spec, exhaustive=True))


def test_without_a_load_too_what_the_pool_holds_comes_first():
    spec = {"pool": {"maxGPUs": 8}, "scaling": {"minReplicas": 3}}
    found = decided(LLAMA_8B, [(L40S, 1, 1), (H100, 8, 1)], spec)
    assert (found.product.short_name, found.replicas) == ("H100", 3)
    lost = next(c for c in found.candidates if c.product == L40S)
    assert lost.reason.value == "PoolTooSmall"


def test_a_refusal_that_rests_on_an_assumed_load_says_so_and_what_would_do():
    spec = {"pool": {"maxGPUs": 8}, "workload": lengths(500, 5000, 200, 400)}
    refused = decided(LLAMA_70B_FP8, [(H100, 1, 1)], spec)
    assert isinstance(refused, NoPlan)
    assert "8 requests in flight" in refused.message
    assert "as many as are assumed where no load is stated" in refused.message
    assert "workload.concurrency " in refused.message
    stated = int(refused.message.partition("workload.concurrency ")[2].partition(",")[0])
    spec["workload"]["concurrency"] = stated
    assert not isinstance(decided(LLAMA_70B_FP8, [(H100, 1, 1)], spec), NoPlan)
    assert decided(LLAMA_70B_FP8, [(H100, 1, 1)], spec).replicas == 1


def test_layers_with_a_window_are_not_said_to_hold_the_tokens_that_they_lack():
    spec = {
        "pool": {"maxGPUs": 1},
        "workload": {"profile": "Writing", "concurrency": 25},
        "scaling": {"maxReplicas": 1},
    }
    found = decided("openai/gpt-oss-20b", [("NVIDIA-L4", 1, 1)], spec)
    small = [c.message for c in found.candidates if c.reason.value == "KVTooSmall"]
    assert small
    for message in small:
        words = message.split()
        if "tokens for certain" in message:
            assert int(words[4]) < int(words[words.index("needs") + 1])

"""A world for each sentence of the ranking: the branches that a random search seldom or never meets.

Found by searching models, pools and specs at random; each is judged by the same rules as the random ones.
"""

from dataclasses import replace

import pytest

from planner.plan_support import A100_40, A100_80, A6000, H100, L4, L40S, LLAMA_8B, LLAMA_70B, LLAMA_70B_FP8
from planner.test_properties import ask, nodes_of
from planner.test_true_reasons import Case, check
from shardwright.catalog.models import load_models
from shardwright.planner.types import Plan

ROOMY = (128, 1024, 4096)
A10, A10G, A30, A5000, A800 = (
    "NVIDIA-A10",
    "NVIDIA-A10G",
    "NVIDIA-A30",
    "NVIDIA-RTX-A5000",
    "NVIDIA-A800-SXM4-80GB",
)
A100_PCIE, H100_PCIE, RTX_4090 = "NVIDIA-A100-PCIE-40GB", "NVIDIA-H100-PCIe", "NVIDIA-GeForce-RTX-4090"
EITHER = {"allowedKVCacheDtypes": ["Auto", "FP8"]}


def in_flight(number):
    return {"workload": {"concurrency": number}}


def pool(most, **interconnect):
    return {"pool": {"maxGPUs": most, "interconnect": interconnect}}


WORLDS = [
    ("RankedLower", "keeps the targets of the workload's profile", "Qwen/Qwen2.5-32B-Instruct", [(A800, 4)],
     {**pool(32), **in_flight(8), "model": {"maxContextTokens": 4096, **EITHER}}),
    ("RankedLower", "on RTX4090 keeps the targets of the workload's profile", "Qwen/Qwen3-VL-8B-Instruct", [(A10, 4), (RTX_4090, 8)],
     pool(2, policy="RequireNVLink")),
    ("RankedLower", "TP1·PP2 is the smaller failure domain", "mistralai/Ministral-3-3B-Instruct-2512", [(A5000, 8)],
     {**pool(8), **in_flight(300)}),
    ("RankedLower", "on H100-PCIe is the smaller failure domain", "google/gemma-2-27b-it", [(H100_PCIE, 1), (H100_PCIE, 7), (A100_80, 8)],
     {**pool(4), **in_flight(8), "parallelism": {"pipeline": 2}}),
    ("RankedLower", "has room for more load", "Qwen/Qwen3-4B", [(A10G, 8), (A100_PCIE, 4)],
     {**pool(1, policy="RequireNVLink"), **in_flight(8), "model": EITHER}),
    ("RankedLower", "leaves the larger GPU free", "Qwen/Qwen3-32B", [("NVIDIA-GH200-144G-HBM3e", 2), ("NVIDIA-H100-NVL", 4)],
     {**pool(8), **in_flight(64), "model": {"maxContextTokens": 4096, **EITHER}}),
    ("RankedLower", "comes first by name", "ibm-granite/granite-3.1-2b-instruct", [("NVIDIA-H800", 8), (H100, 2)], pool(32)),
    ("RankedLower", "measured rows cover TP1 on A100-80", "Qwen/Qwen3-32B-FP8", [(L40S, 1), (A100_80, 1)], {**pool(8), "model": EITHER}),
    ("RankedLower", "TP4·PP2 has fewer pipeline stages", "Qwen/Qwen3-235B-A22B-FP8", [(A100_40, 8)],
     {**pool(16, policy="RequireNVLink"), **in_flight(64)}),
    ("RankedLower", "nothing predicts that expert parallelism beats TP8 on 8 GPUs", "nvidia/GLM-5.1-NVFP4", [("NVIDIA-B200", 8)], pool(32)),
    ("Unvalidated", "cheaper than TP1 (13 GPUs for 13 replicas)", "Qwen/Qwen3-VL-30B-A3B-Instruct", [("NVIDIA-GH200-480GB", 8)],
     {**pool(16), **in_flight(300)}),
    ("Unvalidated", "FP8 KV cache", "google/gemma-2b", [(RTX_4090, 2)], {**pool(2), **in_flight(300), "model": EITHER}),
    ("Unvalidated", "no INT8 weights were measured", "RedHatAI/Qwen2.5-7B-Instruct-quantized.w8a8", [(L4, 8)], {**pool(16), **in_flight(64)}),
    ("Unvalidated", "pipeline parallelism", "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", [(A100_PCIE, 8), (A6000, 8)],
     {**pool(32, policy="RequireNVLink"), **in_flight(64)}),
    ("Unvalidated", "stages are for what no NVLink island holds", LLAMA_70B, [(A100_PCIE, 7), (A100_80, 4)], {**pool(8), **in_flight(64)}),
    ("BeyondIsland", "those of TP2 on H100 have links", "Qwen/Qwen3-32B-FP8", [("NVIDIA-GB300", 8), (H100, 8)],
     {**pool(32), "parallelism": {"tensor": 2}}),
    ("BeyondIsland", "TP1·PP2 needs no link", "mistralai/Ministral-3-14B-Instruct-2512", [(A30, 4)], pool(8)),
    ("CostsMore", "an hour for 4 replicas where TP1·PP3 takes", "Qwen/Qwen2.5-32B-Instruct", [(A6000, 4)],
     {**pool(8), **in_flight(64), "scaling": {"minReplicas": 2}}),
    ("CostsMore", "where TP1 on L40S takes 2.25 an hour", "google/gemma-2b-it", [(L40S, 8), ("NVIDIA-H200", 8)], pool(4)),
    ("CostsMore", "GPUs where TP1·PP2 on L40 takes 2 GPUs", "RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic", [(A30, 8), ("NVIDIA-L40", 4)],
     {**pool(32), "model": EITHER}),
    ("LargerThanNeeded", "is split over 2 GPUs where one GPU is enough", "microsoft/Phi-3.5-mini-instruct", [(L4, 7), (A30, 2)],
     {**pool(32), "model": EITHER}),
    ("LargerThanNeeded", "32 GPUs for 4 replicas instead of 24 GPUs for 6 replicas", "meta-llama/Meta-Llama-3.1-8B-Instruct", [(A5000, 8)],
     {**pool(32, policy="Any"), **in_flight(300), "scaling": {"minReplicas": 3}}),
    ("KVTooSmall", "of 131072 tokens of context; TP1·PP2 holds all", "Qwen/Qwen3-VL-30B-A3B-Instruct", [(H100_PCIE, 2)],
     {**pool(2), "model": {"maxContextTokens": 131072}}),
    ("KVTooSmall", "TP1 on H100-PCIe holds all", "meta-llama/Meta-Llama-3.1-8B", [(H100_PCIE, 8), ("NVIDIA-GeForce-RTX-5090", 1)],
     {**pool(16), "model": {"maxContextTokens": 131072}}),
    ("KVTooSmall", "of 131072 tokens of context; TP1·PP2 holds ", "Qwen/Qwen3-VL-32B-Instruct", [(A6000, 2)],
     {**pool(4, bridges="Pairs"), "model": {"maxContextTokens": 131072, **EITHER}}),
    ("CostsMore", f"takes 15.96 an hour where {LLAMA_70B_FP8} with TP2 on H100 takes", LLAMA_70B, [(H100, 8)],
     {**pool(8), "model": {"variants": [{"id": LLAMA_70B_FP8}]}}),
]  # fmt: skip


def case_of(model, wanted, spec, **more):
    shapes = [(label, count, 0, ROOMY, "580") for label, count in wanted]
    spec = {"model": {}, **spec}
    return Case(ask(model, nodes_of(shapes), spec, **more), shapes)


@pytest.mark.parametrize(
    ("reason", "phrase", "model", "wanted", "spec"), WORLDS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_each_sentence_is_met_and_true(reason, phrase, model, wanted, spec):
    case = case_of(model, wanted, spec)
    check(case)
    told = [c.message for c in case.decision.candidates if c.reason.value == reason]
    assert any(phrase in message for message in told), told


def thirds():
    """A model of 63 GiB with 24 heads, whose ranks may be three: no model of the catalogue has such a degree."""
    return replace(
        load_models()[LLAMA_70B], num_attention_heads=24, num_kv_heads=24, vocab_size=129_024, intermediate_size=28_608,
        checkpoint_bytes=63 << 30, weights_from_checkpoint=True,
    )  # fmt: skip


@pytest.mark.parametrize("load", [{}, in_flight(4)])
def test_three_ranks_step_back_for_four(load):
    case = case_of(LLAMA_70B, [(A100_40, 8)], {**pool(8), **load}, architecture=thirds())
    check(case)
    assert case.decision.parallelism.tensor == 4
    told = {str(c.parallelism): (c.reason.value, c.message) for c in case.decision.candidates}
    assert told["TP3"] == ("RankedLower", "it fits, but powers of two rank first, and TP4 fits too")


CLAMPED = [
    ("meta-llama/Meta-Llama-3.1-8B", [("NVIDIA-GeForce-RTX-5090", 1)], 131072),
    ("meta-llama/Meta-Llama-3.1-8B", [(L4, 1)], 65536),
    ("Qwen/Qwen3-32B", [(A100_80, 1)], 40960),
    (LLAMA_8B, [(A10G, 1)], 131072),
    ("Qwen/Qwen3-VL-32B-Instruct", [(A6000, 2)], 131072),
]
CALM = {
    "workload": {
        "concurrency": 1,
        "inputTokens": {"p50": 500, "p95": 1000},
        "outputTokens": {"p50": 100, "p95": 200},
    }
}


def clamped(model, wanted, asked, **spec):
    decision = case_of(
        model, wanted, {**pool(2), "model": {"maxContextTokens": asked}, **CALM, **spec}
    ).decision
    return decision if isinstance(decision, Plan) and decision.context_clamped_from else None


@pytest.mark.parametrize(("model", "wanted", "asked"), CLAMPED)
def test_a_context_that_does_not_fit_is_cut_by_as_little_as_can_be(model, wanted, asked):
    """To the longest multiple of 256, with the batch that leaves most; and never below what the workload needs."""
    found = clamped(model, wanted, asked)
    served, longest = found.limits.max_model_len, found.estimate.largest_model_len
    assert (found.context_clamped_from, served % 256) == (asked, 0)
    assert longest - 256 < served <= longest
    assert served < asked
    assert max(served, 1100) <= found.required_kv_tokens <= found.estimate.promised_kv_tokens
    for sequences in (64, 128, 256):
        for tokens in (2048, 8192):
            limits = {"maxNumSeqs": sequences, "maxNumBatchedTokens": tokens}
            other = clamped(model, wanted, asked, engine=limits)
            assert other is None or other.limits.max_model_len <= served, limits


@pytest.mark.parametrize(("model", "wanted", "asked"), CLAMPED)
@pytest.mark.parametrize("over", [-255, -1, 0, 1, 255])
def test_a_cut_context_still_holds_the_longest_request_of_the_workload(model, wanted, asked, over):
    served = clamped(model, wanted, asked).limits.max_model_len
    longest = served + over
    traffic = {"inputTokens": {"p50": 500, "p95": longest - 200}, "outputTokens": {"p50": 100, "p95": 200}}
    found = clamped(model, wanted, asked, workload={"concurrency": 1, **traffic})
    if over <= 0:
        assert found.limits.max_model_len == served
    else:
        assert found is None or found.limits.max_model_len >= longest


@pytest.mark.parametrize(("model", "wanted", "asked"), CLAMPED)
def test_a_cut_context_leaves_room_for_the_requests_in_flight(model, wanted, asked):
    """Of 1100 tokens each: as many as the cache holds, then half as many again."""
    room = clamped(model, wanted, asked).estimate.promised_kv_tokens
    traffic = {"inputTokens": {"p50": 500, "p95": 1000}, "outputTokens": {"p50": 100, "p95": 200}}
    spec = {"scaling": {"maxReplicas": 1}}
    for share, holds in ((0.5, True), (1.5, False)):
        count = int(room * share / 1100)
        found = clamped(model, wanted, asked, workload={"concurrency": count, **traffic}, **spec)
        assert (found is not None) == holds or count > 256
        if found is not None:
            assert found.estimate.promised_kv_tokens >= min(count, found.limits.max_num_seqs) * 1100

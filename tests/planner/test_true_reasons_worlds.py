"""A world for each sentence of the ranking: the branches that a random search seldom or never meets.

Found by searching models, pools and specs at random; each is judged by the same rules as the random ones.
"""

import re
from dataclasses import replace

import pytest

from planner.plan_support import (
    A100_40,
    A100_80,
    A6000,
    H100,
    L4,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    products,
    without_prices,
)
from planner.test_true_reasons import Case, check
from planner.worlds import ask, nodes_of
from shardwright.catalog.models import load_models
from shardwright.planner.types import Plan

ROOMY = (128, 1024, 4096)
A10, A10G, A30, A40, A5000, A800 = (
    "NVIDIA-A10", "NVIDIA-A10G", "NVIDIA-A30", "NVIDIA-A40", "NVIDIA-RTX-A5000", "NVIDIA-A800-SXM4-80GB",
)  # fmt: skip
A100_PCIE, H100_PCIE, H100_NVL = "NVIDIA-A100-PCIE-40GB", "NVIDIA-H100-PCIe", "NVIDIA-H100-NVL"
H20, H200, H200_NVL, H800, B200 = "NVIDIA-H20", "NVIDIA-H200", "NVIDIA-H200-NVL", "NVIDIA-H800", "NVIDIA-B200"
GB200, GB300, GH200, L40 = "NVIDIA-GB200", "NVIDIA-GB300", "NVIDIA-GH200-144G-HBM3e", "NVIDIA-L40"
RTX_3090, RTX_4090, RTX_4090_D = (
    "NVIDIA-GeForce-RTX-3090",
    "NVIDIA-GeForce-RTX-4090",
    "NVIDIA-GeForce-RTX-4090-D",
)
EITHER = {"model": {"allowedKVCacheDtypes": ["Auto", "FP8"]}}


def in_flight(number):
    return {"workload": {"concurrency": number}}


def pool(most, **interconnect):
    return {"pool": {"maxGPUs": most, "interconnect": interconnect}}


def context(tokens, **more):
    return {"model": {"maxContextTokens": tokens, **more}}


EVEN = "it fits at about the same cost, but "
UNCOVERED = "but no measured row covers it"
WORLDS = [
    ("RankedLower", EVEN + "TP1 on H100 keeps the targets of the workload's profile", "meta-llama/Llama-2-13b-hf", [(H20, 8), (H100, 8)],
     {**pool(8), **in_flight(1)}),
    ("RankedLower", EVEN + "TP1 on H800 keeps the targets of the workload's profile", "Qwen/Qwen3-32B-FP8-Static-PerTensor",
     [(H20, 4), (H800, 2)], pool(4)),
    ("RankedLower", EVEN + "TP1·PP2 is the smaller failure domain", "meta-llama/Llama-2-7b-hf", [(A5000, 4)],
     {**pool(16), **in_flight(100)}),
    ("RankedLower", EVEN + "TP2 is the smaller failure domain", "mistralai/Mistral-Medium-3.5-128B", [(H20, 8), (A100_80, 4)],
     {**pool(16), **in_flight(8)}),
    ("RankedLower", EVEN + "measured rows cover TP1 on A100-80", "Qwen/Qwen3-32B-FP8", [(L40S, 1), (A100_80, 1)], {**pool(8), **EITHER}),
    ("RankedLower", EVEN + "the KV cache of TP1·PP2 on A40 stays in the model's own format", "Qwen/Qwen3-32B-FP8-Static-PerTensor",
     [(RTX_4090_D, 2), (A40, 2)], {**pool(8), **EITHER}),
    ("RankedLower", EVEN + "the KV cache of TP1·PP4 stays in the model's own format", "meta-llama/Meta-Llama-3-70B-Instruct", [(L40S, 4)],
     {**pool(16), **in_flight(1), **EITHER}),
    ("RankedLower", EVEN + "nothing predicts that expert parallelism beats TP4", "nvidia/GLM-5.2-NVFP4", [(H200, 7)], pool(32)),
    ("RankedLower", EVEN + "nothing predicts that expert parallelism beats TP8", "nvidia/GLM-5.1-NVFP4", [(B200, 8)], {**pool(32), **in_flight(64)}),
    ("RankedLower", EVEN + "the ranks of TP4 on A800 have links", "MiniMaxAI/MiniMax-M2.7", [(H200_NVL, 8), (A800, 8)], pool(16, policy="Any")),
    ("RankedLower", EVEN + "TP2·PP2 has fewer pipeline stages", "stepfun-ai/Step-3.7-Flash-FP8", [(H800, 8)], pool(4)),
    ("RankedLower", EVEN + "TP1·DP2·EP has room for more load", "Qwen/Qwen1.5-MoE-A2.7B", [(H200, 8)],
     {**pool(16), **in_flight(1), "parallelism": {"expert": "Enabled"}}),
    ("RankedLower", EVEN + "TP1 on RTX3090 has room for more load", "Qwen/Qwen2.5-3B-Instruct", [(RTX_3090, 7), (A10G, 4)],
     {**pool(8), **in_flight(8)}),
    ("RankedLower", EVEN + "TP2·DP2·EP has fewer ranks with attention of their own", "stepfun-ai/Step-3.7-Flash-FP8", [(A800, 8)],
     {**pool(8), "parallelism": {"pipeline": 1}}),
    ("RankedLower", EVEN + "TP1 on A40 leaves the larger GPU free", "Qwen/Qwen3-4B-Instruct-2507", [(H800, 4), (A40, 1)], pool(16)),
    ("RankedLower", EVEN + "TP1 on A100-80 comes first by name", "Qwen/Qwen3-4B-Instruct-2507", [(A100_80, 8), (A800, 1)], pool(4)),
    ("Unvalidated", UNCOVERED, "MiniMaxAI/MiniMax-M2.5", [(H100_NVL, 4)], {**pool(8, policy="Any"), **in_flight(24), **EITHER}),
    ("Unvalidated", UNCOVERED, "mistralai/Mixtral-8x7B-v0.1", [(H100_PCIE, 2)], {**pool(8, bridges="Pairs"), **in_flight(64)}),
    ("Unvalidated", UNCOVERED, "MiniMaxAI/MiniMax-M2.7", [(H200, 2)], pool(2)),
    ("Unvalidated", UNCOVERED, "Qwen/QwQ-32B", [(H100_PCIE, 8), (H800, 4)], {**pool(8), **in_flight(32), **EITHER}),
    ("Unvalidated", "stages are for what no NVLink island holds, and TP8 on H20 holds it", "nvidia/GLM-5.2-NVFP4", [(H20, 8), (GB300, 8)], pool(32)),
    ("BeyondIsland", "its # ranks would talk over PCIe; TP1·PP4 needs no link", "meta-llama/Meta-Llama-3-70B", [(A40, 2), (A40, 8)],
     pool(16, bridges="Pairs")),
    ("BeyondIsland", "its # ranks would talk over PCIe; TP1·PP2 needs no link", "mistralai/Mistral-Small-3.1-24B-Instruct-2503", [(L40, 4)], pool(2)),
    ("BeyondIsland", "its # ranks would talk over PCIe; TP1 on GB300 needs no link", "meta-llama/Llama-2-7b-hf",
     [(A10G, 2), (GB300, 2), (L40S, 4)], {**pool(8), **in_flight(80)}),
    ("BeyondIsland", "its # ranks would talk over PCIe; those of TP2 on H100 have links", "Qwen/Qwen3-32B-FP8", [(GB300, 8), (H100, 8)],
     {**pool(32), "parallelism": {"tensor": 2}}),
    ("PoolTooSmall", "# replicas of it are wanted and the pool's nodes hold #; of TP1·PP5 on A100-40-PCIe they hold all", LLAMA_70B,
     [(A100_PCIE, 7), (A100_80, 2)], {**pool(8), **in_flight(8)}),
    ("PoolTooSmall", "# replicas of it are wanted and the pool's nodes hold #; of TP1·PP8 they hold all", "Qwen/Qwen2.5-32B", [(RTX_4090, 8)],
     {**pool(16), **in_flight(64)}),
    ("CostsMore", "takes # GPUs for # replicas where TP1 on A100-40 takes # GPUs for # replicas", "microsoft/phi-2", [(A30, 2), (A100_40, 1)],
     {**pool(32), **in_flight(300)}),
    ("CostsMore", "takes # GPUs for # replicas where TP1 FP8-KV takes # GPUs", "meta-llama/Meta-Llama-3-8B", [(H800, 4)],
     {**pool(4), **in_flight(280), **EITHER}),
    ("CostsMore", "takes # an hour for # replicas where TP1·PP7 takes # an hour for # replicas", "Qwen/Qwen2.5-14B-Instruct", [(L4, 8)],
     {**pool(16), **in_flight(200)}),
    ("CostsMore", "takes # an hour where TP1 on L40S takes # an hour", "google/gemma-2b-it", [(L40S, 8), (H200, 8)], pool(4)),
    ("CostsMore", f"takes # an hour where {LLAMA_70B_FP8} with TP2 on H100 takes # an hour", LLAMA_70B, [(H100, 8)],
     {**pool(8), "model": {"variants": [{"id": LLAMA_70B_FP8}]}}),
    ("LargerThanNeeded", "is split over 2 GPUs where one GPU is enough: TP1 on A40", "deepseek-ai/DeepSeek-V2-Lite-Chat", [(A5000, 4), (A40, 1)],
     pool(16)),
    ("LargerThanNeeded", "takes 2 GPUs a replica where TP1 takes 1", "kaitchup/Phi-4-AutoRound-GPTQ-4bit", [(GH200, 7)], pool(16)),
    ("LargerThanNeeded", "takes 4 GPUs a replica where TP1 takes 1: # GPUs instead of # GPUs for # replicas",
     "mistralai/Mistral-Small-3.1-24B-Instruct-2503", [(GB200, 4)], {**pool(4), **in_flight(64)}),
    ("LargerThanNeeded", "takes 2 GPUs a replica where TP1 takes 1: # an hour instead of # an hour", "codellama/CodeLlama-34b-hf", [(B200, 8)],
     {**pool(8), **in_flight(8)}),
    ("KVTooSmall", "it holds only # of # tokens of context; TP1·PP2 holds all", "Qwen/Qwen3-4B-Instruct-2507", [(A10, 4)],
     {**pool(16), **context(131072)}),
    ("KVTooSmall", "it holds only # of # tokens of context; TP1 FP8-KV holds #", "Qwen/QwQ-32B", [(H20, 4)],
     {**pool(1), **context(131072, allowedKVCacheDtypes=["Auto", "FP8"])}),
    ("KVTooSmall", "it holds only # of # tokens of context; TP1 on H800 holds #", "RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic",
     [(H800, 2), ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 1)], {**pool(1), **in_flight(1), **context(16384)}),
    ("KVTooSmall", "it holds only # of # tokens of context; TP1·PP2 on A40 holds all", "mistralai/Ministral-3-14B-Reasoning-2512",
     [("NVIDIA-RTX-6000-Ada-Generation", 1), (A40, 4)], {**pool(4), **context(131072)}),
]  # fmt: skip


def case_of(model, wanted, spec, *, priced=True, **more):
    shapes = [(label, count, 0, ROOMY, "580") for label, count in wanted]
    spec = {"model": {}, **spec}
    asked = ask(model, nodes_of(shapes), spec, **more)
    return Case(asked if priced else replace(asked, products=without_prices(asked.products)), shapes)


def all_or_none_priced(wanted):
    return len({products()[label].price_per_gpu_hour is None for label, _ in wanted}) == 1


@pytest.mark.parametrize(
    ("reason", "phrase", "model", "wanted", "spec"), WORLDS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_each_sentence_is_met_and_true(reason, phrase, model, wanted, spec):
    case = case_of(model, wanted, spec, priced=all_or_none_priced(wanted))
    check(case)
    told = [c.message for c in case.decision.candidates if c.reason.value == reason]
    wanted = re.compile(re.escape(phrase).replace(re.escape("#"), r"[\d.]+") + r"($|\W)")
    assert any(wanted.search(message) for message in told), told


@pytest.mark.parametrize(("model", "wanted", "spec"), [w[2:] for w in WORLDS if not all_or_none_priced(w[3])])
def test_what_has_no_price_beside_what_has_one_is_told_so(model, wanted, spec):
    case = case_of(model, wanted, spec)
    reasons = check(case)
    priced = case.decision.product.price_per_gpu_hour is not None
    assert reasons["PriceUnknown" if priced else "PoolTooSmall"] >= 1


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

"""Named decisions of the search: engine limits, KV formats, ranks with own attention, stages, mixes, lost nodes.

The figures are the model's predictions, not measurements: a refit of its constants may move a border.
"""

import copy

import pytest

from planner.plan_support import (
    A6000,
    H100,
    H200,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_32B,
    QWEN_MOE_FP8,
    decide,
    reasons,
    request,
    shapes,
)
from planner.test_latency_decisions import (
    ANY,
    FP8_405B,
    LONG,
    MIXTRAL,
    NODE,
    PREFER,
    SHORT,
    STARVED,
    rate,
    slo,
)
from shardwright.api.reasons import Reason
from shardwright.planner.choice import plan
from shardwright.planner.placement import place
from shardwright.planner.types import NoPlan, Plan

DEEPSEEK, BF16_405B = "deepseek-ai/DeepSeek-V3", "meta-llama/Meta-Llama-3.1-405B-Instruct"
CARDS = ((A6000, 8),)
FEW = {"workload": {"concurrency": 4}, "slo": slo(4000, 100)}
BOTH = {"allowedKVCacheDtypes": ["Auto", "FP8"]}
SURVIVE = {"availability": {"surviveNodeLoss": True}, "workload": rate(2200), "slo": slo(1000, 50)}
PIN = {"parallelism": {"tensor": 2}}


def itl(milliseconds):
    return {"itl": {"percentile": 95, "milliseconds": milliseconds}}


# name: (model, pool, spec, the plan)
DECISIONS = {
    "A6000: an 8B on one card": ("Qwen/Qwen3-8B", CARDS, {"model": {"maxContextTokens": 32768}, **FEW}, "A6000 TP1 ×1"),
    "A6000: a 14B on one card": ("Qwen/Qwen3-14B", CARDS, {"model": {"maxContextTokens": 32768}, **FEW}, "A6000 TP1 ×1"),
    "A6000: a 32B in 16 bit on two, for nothing stated in stages": (QWEN_32B, CARDS, {}, "A6000 TP1·PP2 ×1"),
    "A6000: a 32B in 16 bit under Any": (QWEN_32B, CARDS, {"pool": ANY, **FEW}, "A6000 TP2 ×1"),
    "A6000: a 32B in 8 bit on one card": ("Qwen/Qwen3-32B-FP8", CARDS, FEW, "A6000 TP1 ×1"),
    "A6000: a 32B in 8 bit whose context one card does not hold": (
        "Qwen/Qwen3-32B-FP8", CARDS, {"pool": ANY, "model": {"maxContextTokens": 40960}, "workload": {"concurrency": 4}, "slo": slo(20_000, 200)},
        "A6000 TP2 ×1",
    ),
    "A6000: 70B, short prompts, over PCIe under Any": (
        LLAMA_70B, CARDS, {"pool": ANY, "workload": rate(10, **SHORT), "slo": slo(5000, 500)}, "A6000 TP4 ×1",
    ),
    "A6000: 70B, the same in stages else": (
        LLAMA_70B, CARDS, {"pool": PREFER, "workload": rate(10, **SHORT), "slo": slo(5000, 500)},
        "A6000 TP1·PP4 ×1",
    ),
    "A6000: 70B, long prompts and many in flight in more stages": (
        LLAMA_70B, CARDS, {"pool": PREFER, "workload": rate(20, **LONG), "slo": slo(tpot=600)}, "A6000 TP1·PP6 ×1",
    ),
    "405B in 8 bit on one of two nodes": (
        FP8_405B, ((H100, 8, 2),), {"workload": rate(30), "slo": slo(5000, 100)}, "H100 TP8 ×1",
    ),
    "DeepSeek-V3 for a low load at TP8": (
        DEEPSEEK, ((H200, 8, 8),), {"pool": {"maxGPUs": 64}, "workload": rate(300), "slo": slo(5000, 80)}, "H200 TP8 ×1",
    ),
    "DeepSeek-V3 for a high one with attention in each rank": (
        DEEPSEEK, ((H200, 8, 8),), {"pool": {"maxGPUs": 64}, "workload": rate(650), "slo": slo(5000, 80)},
        "H200 TP1·DP8·EP ×1",
    ),
    "DeepSeek-V3 with its experts pinned to ranks": (
        DEEPSEEK, ((H200, 8),), {"parallelism": {"tensor": 8, "expert": "Enabled"}, "workload": rate(60), "slo": slo(5000, 80)},
        "H200 TP8·EP ×1",
    ),
    "DeepSeek-V3 with its experts pinned away from ranks": (
        DEEPSEEK, ((H200, 8, 8),),
        {"pool": {"maxGPUs": 64}, "parallelism": {"expert": "Disabled", "data": 1}, "workload": rate(650), "slo": slo(5000, 80)},
        "H200 TP8 ×2",
    ),
    "Mixtral under load stays with plain ranks": (
        MIXTRAL, ((H100, 8, 2),), {"workload": rate(1750), "slo": slo(1000, 50)}, "H100 TP2 ×6",
    ),
    "Mixtral with its experts over ranks": (
        MIXTRAL, NODE, {"parallelism": {"expert": "Enabled"}, "workload": rate(60), "slo": slo(1000, 50)}, "H100 TP2·EP ×1",
    ),
    "Qwen3-30B-A3B: more traffic is more replicas": (
        QWEN_MOE_FP8, ((H100, 8, 2),), {"workload": rate(1750), "slo": slo(1000, 50)}, "H100 TP1 ×3",
    ),
    "Qwen3-30B-A3B with attention in both of two ranks": (
        QWEN_MOE_FP8, NODE, {"parallelism": {"tensor": 1, "data": 2}, "workload": rate(60), "slo": slo(1000, 50)},
        "H100 TP1·DP2·EP ×1",
    ),
    "an FP8 KV cache where it saves a card": (
        LLAMA_70B_FP8, NODE, {"model": BOTH, "workload": rate(60, **STARVED), "slo": slo(2000, 60)}, "H100 TP1 ×1",
    ),
    "none where it is not allowed": (
        LLAMA_70B_FP8, NODE, {"workload": rate(60, **STARVED), "slo": slo(2000, 60)}, "H100 TP1 ×2",
    ),
    "none where it saves nothing": (
        LLAMA_8B, NODE, {"model": BOTH, "workload": rate(60), "slo": slo(1000, 50)}, "H100 TP1 ×1",
    ),
    "a quantised variant that takes half the cards": (
        LLAMA_70B, NODE, {"model": {"variants": [{"id": LLAMA_70B_FP8}]}, "workload": rate(215), "slo": slo(2000, 50)},
        "H100 TP2 ×1",
    ),
    "pauses of 300 ms": (LLAMA_70B, NODE, {"workload": rate(60), "slo": slo(3000, 60) | itl(300)}, "H100 TP4 ×1"),
    "pauses of 100 ms": (LLAMA_70B, NODE, {"workload": rate(60), "slo": slo(3000, 60) | itl(100)}, "H100 TP8 ×1"),
    "what the loss of one of two nodes takes": (LLAMA_8B, ((H100, 8, 2),), SURVIVE, "H100 TP1 ×8"),
    "what the loss of one of four nodes takes": (LLAMA_8B, ((H100, 4, 4),), SURVIVE, "H100 TP1 ×6"),
    "what the loss of one of eight nodes takes": (LLAMA_8B, ((H100, 2, 8),), SURVIVE, "H100 TP1 ×5"),
    "one node cannot be lost": (LLAMA_8B, NODE, SURVIVE, "H100 TP1 ×4"),
    "a cheap product with enough cards for the load": (
        LLAMA_8B, ((A6000, 4), (H100, 8)), {"workload": rate(360), "slo": slo(tpot=120)}, "A6000 TP1 ×4",
    ),
    "the same with too few": (
        LLAMA_8B, ((A6000, 2), (H100, 8)), {"workload": rate(360), "slo": slo(tpot=120)}, "H100 TP1 ×1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECISIONS)
def test_decision(name):
    model, pool, spec, expected = DECISIONS[name]
    found = decide(model, shapes(*pool), **copy.deepcopy(spec))
    assert isinstance(found, Plan), found.message
    assert found.summary == expected


def decided(name):
    model, pool, spec, _ = DECISIONS[name]
    return decide(model, shapes(*pool), **copy.deepcopy(spec))


def test_what_no_measured_row_covers_says_so():
    for name in DECISIONS:
        found = decided(name)
        split = found.parallelism
        bold = split.pipeline > 1 or split.data > 1 or split.expert or found.limits.kv_cache_dtype == "fp8"
        assert bold == found.coverage.startswith("Unvalidated") or "not covered" in found.coverage, name


def test_405b_in_16_bit_names_a_group_of_two_nodes():
    found = decide(BF16_405B, shapes((H100, 8, 2)), workload=rate(30), slo=slo(5000, 100))
    assert isinstance(found, NoPlan)
    assert found.reason is Reason.NEEDS_MULTI_NODE
    assert "TP8·PP2, 16 GPUs a replica" in found.message


class TestLimits:
    def test_a_bounded_pause_bounds_the_chunk(self):
        usual, short = decided("pauses of 300 ms"), decided("pauses of 100 ms")
        assert usual.limits.max_num_batched_tokens == 8192
        assert short.limits.max_num_batched_tokens < 2048

    def test_a_full_batch_is_made_larger_where_that_saves_a_replica(self):
        lengths = {"inputTokens": {"p50": 200, "p95": 400}, "outputTokens": {"p50": 400, "p95": 800}}
        spec = {"workload": rate(1750, **lengths), "slo": slo(10_000, 500)}
        found = decide(QWEN_MOE_FP8, shapes((H200, 8)), **spec)
        pinned = decide(QWEN_MOE_FP8, shapes((H200, 8)), **spec, engine={"maxNumSeqs": 256})
        assert (found.replicas, found.limits.max_num_seqs) == (1, 512)
        assert (pinned.replicas, pinned.limits.max_num_seqs) == (2, 256)

    def test_a_smaller_chunk_leaves_room_for_requests_on_a_full_card(self):
        spec = {"workload": rate(40, **STARVED), "slo": slo(2000, 60)}
        found = decide(LLAMA_70B_FP8, shapes((H100, 8)), **spec)
        usual = decide(
            LLAMA_70B_FP8, shapes((H100, 8)), **spec, engine={"maxNumBatchedTokens": 8192, "maxNumSeqs": 256}
        )
        assert found.limits.max_num_batched_tokens < 8192
        assert found.gpus_per_replica * found.replicas < usual.gpus_per_replica * usual.replicas

    def test_limits_stay_the_usual_ones_where_nothing_is_gained(self):
        for name in ("Mixtral under load stays with plain ranks", "DeepSeek-V3 for a low load at TP8"):
            limits = decided(name).limits
            assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (256, 8192)


class TestFormats:
    def test_a_cache_in_8_bit_is_a_candidate_of_its_own(self):
        found = decided("an FP8 KV cache where it saves a card")
        assert found.limits.kv_cache_dtype == "fp8"
        names = [c.arrangement for c in found.candidates if c.parallelism.gpus == 1]
        assert len(names) == len(set(names)) == 2
        assert sum(name.endswith(" FP8-KV") for name in names) == 1

    def test_a_card_without_8_bit_arithmetic_has_no_such_candidate(self):
        found = decide(LLAMA_8B, shapes((A6000, 8)), model=BOTH, workload=rate(600), slo=slo(5000, 100))
        assert all(c.kv_cache_dtype == "auto" for c in found.candidates)


class TestRanksWithOwnAttention:
    def test_each_rank_has_a_share_of_the_requests(self):
        found = decided("DeepSeek-V3 for a high one with attention in each rank")
        assert found.planned_concurrency > 8
        held = -(-found.planned_concurrency // 8)
        assert found.required_kv_tokens == max(4800, held * 4400)
        assert found.required_kv_tokens <= found.estimate.promised_kv_tokens

    def test_they_have_to_be_a_third_cheaper(self):
        low = reasons(decided("DeepSeek-V3 for a low load at TP8"))
        assert low[f"{H200} TP1·DP8·EP"] == "Unvalidated"

    def test_a_dense_model_has_none(self):
        found = decide(LLAMA_8B, shapes((H100, 8)), workload=rate(7000), slo=slo(1000, 50))
        assert all(c.parallelism.data == 1 for c in found.candidates)
        pinned = decide(LLAMA_8B, shapes((H100, 8)), parallelism={"data": 2})
        assert isinstance(pinned, NoPlan)
        assert "use more replicas" in pinned.message


class TestMixes:
    POOL = ((H100, 8), (L40S, 4))

    def test_a_cheaper_mix_is_told_with_its_split(self):
        found = decide(LLAMA_8B, shapes(*self.POOL), workload=rate(720), slo=slo(1500, 60))
        assert found.summary == "H100 TP1 ×2"
        assert [(p.product, p.replicas) for p in found.cheaper_mix] == [(H100, 1), (L40S, 1)]
        assert sum(p.traffic_percent for p in found.cheaper_mix) == 100
        price = found.product.price_per_gpu_hour * 2
        assert sum(p.price_per_hour for p in found.cheaper_mix) < price / 1.05
        [note] = [n for n in found.notes if "this takes two services" in n]
        assert "81 % of the traffic" in note

    def test_its_parts_keep_the_targets_and_take_the_load(self):
        found = decide(LLAMA_8B, shapes(*self.POOL), workload=rate(720), slo=slo(1500, 60))
        taken = 0.0
        for part in found.cheaper_mix:
            alone = decide(
                LLAMA_8B, shapes(*self.POOL), workload=rate(round(720 * part.traffic_percent / 100)),
                slo=slo(1500, 60), pool={"gpuProducts": [part.product], "maxGPUs": 16},
            )  # fmt: skip
            taken += part.replicas * alone.speed.most
        assert taken >= 720

    @pytest.mark.parametrize("load", [70, 1080])
    def test_none_is_told_where_one_product_is_as_cheap(self, load):
        found = decide(LLAMA_8B, shapes(*self.POOL), workload=rate(load), slo=slo(1500, 60))
        assert found.cheaper_mix == ()

    def test_a_mix_that_the_pool_holds_is_told_where_no_product_alone_is_enough(self):
        found = decide(LLAMA_8B, shapes((H100, 2), (L40S, 4)), workload=rate(1440), slo=slo(1500, 60))
        assert any("the pool's nodes hold 2" in n for n in found.notes)
        assert {p.product for p in found.cheaper_mix} == {H100, L40S}


class TestNodes:
    def test_what_the_pool_does_not_hold_loses_to_what_it_does(self):
        lost = next(c for c in decided("the same with too few").candidates if c.product == A6000)
        assert lost.reason.value == "PoolTooSmall"
        assert "4 replicas of it are wanted and the pool's nodes hold 2" in lost.message

    @pytest.mark.parametrize("name", [name for name in DECISIONS if name.startswith("what the loss of")])
    def test_what_is_left_of_a_lost_node_takes_the_load(self, name):
        model, pool, spec, _ = DECISIONS[name]
        found = decided(name)
        needed = found.replicas - found.spare_replicas
        assert found.spare_replicas > 0
        assert needed * found.speed.most >= 2200
        nodes = pool[0][2]
        assert found.replicas - -(-found.replicas // nodes) >= needed
        assert place(found, shapes(*pool), found.replicas).placed == found.replicas
        again = decide(model, shapes(*pool), **{**copy.deepcopy(spec), "availability": {}})
        assert again.replicas == needed

    def test_a_node_that_cannot_be_lost_is_told(self):
        assert any(
            "only one node takes such a replica" in n for n in decided("one node cannot be lost").notes
        )
        tight = {**SURVIVE, "pool": {"maxGPUs": 5}}
        found = decide(LLAMA_8B, shapes((H100, 4, 2)), **tight)
        assert any("there is no room for what the loss of a node" in n for n in found.notes)


class TestFastest:
    def test_less_than_a_tenth_is_not_worth_more_cards(self):
        spec = {"workload": rate(60, **SHORT), "slo": slo(optimizeFor="Latency"), "pool": {"maxGPUs": 8}}
        found = decide(LLAMA_8B, shapes((H100, 8)), **spec)
        by_gpus = {c.parallelism.gpus: c for c in found.candidates if c.speed is not None}

        def stay_ms(candidate):
            return candidate.speed.ttft_ms + 99 * candidate.speed.tpot_ms

        fastest = min(stay_ms(c) for c in by_gpus.values())
        enough = min(gpus for gpus, c in by_gpus.items() if stay_ms(c) <= 1.1 * fastest)
        assert found.gpus_per_replica == enough

    def test_it_is_not_bought_with_replicas(self):
        found = decide(LLAMA_8B, shapes((H100, 8)), workload=rate(60), slo=slo(optimizeFor="Latency"))
        assert found.replicas == 1


def test_a_search_without_pruning_decides_the_same():
    for name, (model, pool, spec, _) in DECISIONS.items():
        asked = request(model, shapes(*pool), **copy.deepcopy(spec))
        found, whole = plan(asked), plan(asked, exhaustive=True)
        assert (found.summary, found.limits) == (whole.summary, whole.limits), name


def test_a_cache_in_8_bit_that_would_make_it_fit_is_named():
    spec = {"workload": STARVED, "model": {"maxContextTokens": 8000}, "pool": {"maxGPUs": 1}}
    found = decide(LLAMA_70B_FP8, shapes((H100, 1)), **spec)
    assert isinstance(found, NoPlan)
    assert "With FP8 in model.allowedKVCacheDtypes" in found.message
    assert isinstance(
        decide(LLAMA_70B_FP8, shapes((H100, 1)), **{**spec, "model": {**spec["model"], **BOTH}}), Plan
    )
    hopeless = decide(LLAMA_70B, shapes((H100, 1)), **spec)
    assert "allowedKVCacheDtypes" not in hopeless.message

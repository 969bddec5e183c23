"""What a spec states is kept or refused by name: never quietly relaxed, and what a refusal advises works."""

import copy
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.plan_support import (
    A100_40,
    A100_80,
    A6000,
    H100,
    H200,
    L4,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_32B,
    QWEN_MOE_FP8,
    T4,
    V100,
    decide,
    shapes,
    written,
)
from shardwright.api.pool import PoolSpec
from shardwright.api.reasons import Reason
from shardwright.catalog.gpus import load_products
from shardwright.planner.types import NoPlan, Plan
from shardwright.topology.facts import node_facts
from shardwright.topology.pool import shape_pool
from topology.cluster_objects import node

AWQ = "Qwen/Qwen3-8B-AWQ"
POOLS = (
    ((H100, 8),), ((H100, 1),), ((A100_80, 8),), ((L4, 4),), ((A6000, 4),), ((H200, 8), (A100_40, 8)), ((H100, 2), (L4, 1)),
)  # fmt: skip
stated = st.fixed_dictionaries(
    {},
    optional={
        "model": st.fixed_dictionaries(
            {},
            optional={
                "allowedKVCacheDtypes": st.sampled_from([["FP8"], ["Auto"], ["Auto", "FP8"]]),
                "quantization": st.sampled_from(["None", "FP8", "AWQ"]),
            },
        ),
        "parallelism": st.fixed_dictionaries(
            {},
            optional={
                "tensor": st.sampled_from([1, 2, 4, 8, 16]), "pipeline": st.sampled_from([1, 2, 3, 16]),
                "expert": st.sampled_from(["Enabled", "Disabled"]),
            },
        ),
        "engine": st.fixed_dictionaries({}, optional={"maxNumSeqs": st.just(37), "maxNumBatchedTokens": st.just(3000)}),
    },
)  # fmt: skip
FORMATS = {"None": {"BF16", "FP16", "FP32"}, "FP8": {"FP8", "FP8Block"}, "AWQ": {"AWQ"}}
HEAVY = {"profile": "Agent", "concurrency": 100}
KV_NAMES = {"Auto": "auto", "FP8": "fp8"}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([LLAMA_8B, LLAMA_70B_FP8, QWEN_MOE_FP8, AWQ]), st.sampled_from(POOLS), stated)
def test_what_is_stated_holds_in_every_plan(model, pool, spec):
    decision = decide(model, shapes(*pool), **copy.deepcopy(spec))
    if isinstance(decision, NoPlan):
        # A refusal names the arrangement or the field, so that it can be acted on without the candidates.
        assert model in decision.message or re.search(r"\b(pool|parallelism|model)\.\w+", decision.message)
        return
    pins, asked, engine = (spec.get(k, {}) for k in ("parallelism", "model", "engine"))
    split, limits = decision.parallelism, decision.limits
    assert split.tensor == pins.get("tensor", split.tensor)
    assert split.pipeline == pins.get("pipeline", split.pipeline)
    assert split.expert == {"Enabled": True, "Disabled": False}.get(pins.get("expert"), split.expert)
    allowed = {KV_NAMES[d] for d in asked.get("allowedKVCacheDtypes", ["Auto"])}
    assert limits.kv_cache_dtype in allowed
    found = decision.model.architecture.quantization.format.value
    assert found in FORMATS.get(asked.get("quantization"), {found})
    assert limits.max_num_seqs == engine.get("maxNumSeqs", limits.max_num_seqs)
    assert limits.max_num_batched_tokens == engine.get("maxNumBatchedTokens", limits.max_num_batched_tokens)
    told = written(decision)
    if pins.get("tensor", 1) > 1 or pins.get("pipeline", 1) > 1:
        assert "Does one GPU hold it? Not asked" in told


def refused(decision, reason, *parts):
    assert isinstance(decision, NoPlan), decision.summary
    assert decision.reason is reason, decision.message
    for part in parts:
        assert part in decision.message


class TestRefusedByName:
    def test_a_format_that_the_checkpoint_has_not(self):
        decision = decide(LLAMA_8B, shapes((H100, 8)), model={"quantization": "FP8"})
        refused(decision, Reason.QUANTIZATION_MISMATCH, "model.quantization", LLAMA_8B, "BF16")
        assert isinstance(decide(LLAMA_70B_FP8, shapes((H100, 8)), model={"quantization": "FP8"}), Plan)

    def test_quantising_at_load_what_is_quantised(self):
        asked = {"quantization": "FP8", "quantizeAtLoad": True}
        refused(
            decide(AWQ, shapes((H100, 8)), model=asked), Reason.QUANTIZATION_MISMATCH, "model.quantizeAtLoad"
        )

    def test_quantising_at_load_on_a_gpu_without_fp8(self):
        asked = {"quantization": "FP8", "quantizeAtLoad": True}
        decision = decide("meta-llama/Llama-2-7b-hf", shapes((V100, 4)), model=asked, version="0.19.0")
        refused(decision, Reason.NUMBER_FORMAT_UNSUPPORTED, "model.quantizeAtLoad", "7.0")

    def test_quantising_at_load_says_what_was_planned_for(self):
        plan = decide(LLAMA_8B, shapes((H100, 8)), model={"quantization": "FP8", "quantizeAtLoad": True})
        assert any("model.quantizeAtLoad" in note for note in plan.notes)

    def test_an_fp8_kv_cache_alone_on_a_gpu_without_it(self):
        decision = decide(LLAMA_8B, shapes((A100_80, 8)), model={"allowedKVCacheDtypes": ["FP8"]})
        refused(decision, Reason.NUMBER_FORMAT_UNSUPPORTED, "model.allowedKVCacheDtypes", "add Auto")

    @pytest.mark.parametrize(
        ("model", "pins"),
        [
            (LLAMA_8B, {"expert": "Enabled"}),
            (QWEN_MOE_FP8, {"expert": "Enabled", "tensor": 1, "pipeline": 2}),
        ],
    )
    def test_experts_that_cannot_be_spread(self, model, pins):
        refused(
            decide(model, shapes((H100, 8)), parallelism=pins),
            Reason.ILLEGAL_PARALLELISM,
            "parallelism.expert",
        )

    def test_enabled_experts_are_not_answered_with_one_rank(self):
        plan = decide(QWEN_MOE_FP8, shapes((H200, 8)), parallelism={"expert": "Enabled"})
        assert str(plan.parallelism) == "TP2·EP"

    @pytest.mark.parametrize("pins", [{"tensor": 16}, {"pipeline": 16}])
    def test_a_pin_beyond_every_node(self, pins):
        pool = shapes((H100, 8), (A100_80, 1))
        decision = decide(LLAMA_8B, pool, parallelism=pins)
        refused(
            decision, Reason.DOES_NOT_FIT, "16 GPUs are more than a node has (8)", "spec.parallelism pins"
        )

    def test_a_format_that_no_product_has_is_told_for_each_with_a_way_out(self):
        decision = decide(LLAMA_8B, shapes((V100, 4), (T4, 4)))
        refused(decision, Reason.NUMBER_FORMAT_UNSUPPORTED, "V100-32 has", "T4 has", "model.variants")

    def test_what_is_in_the_way_comes_before_what_the_spec_leaves_out(self):
        others = [node(f"a{i}", A6000, 4) for i in range(5)]
        spec = PoolSpec.model_validate({"maxGPUs": 8, "gpuProducts": [H100]})
        found = [node_facts(n) for n in (*others, node("z1", H100, cordoned=True))]
        decision = decide(LLAMA_8B, shape_pool(found, load_products(), spec), pool={"gpuProducts": [H100]})
        refused(decision, Reason.NO_USABLE_GPUS, "z1: it is cordoned", "5 ProductNotWanted")


class TestToldAsANote:
    def test_node_loss_with_one_node(self):
        survive = {"availability": {"surviveNodeLoss": True}}
        one = decide(LLAMA_8B, shapes((H100, 8)), **survive)
        assert any("surviveNodeLoss" in note for note in one.notes)
        two = decide(LLAMA_8B, shapes((H100, 8, 2)), **survive)
        assert not any("surviveNodeLoss" in note for note in two.notes)
        single = decide(LLAMA_8B, shapes((H100, 8, 2)), scaling={"minReplicas": 1}, **survive)
        assert any("two replicas" in note for note in single.notes)

    def test_bridges_that_are_not_counted_on(self):
        pairs = {"interconnect": {"bridges": "Pairs"}}
        four = decide(QWEN_32B, shapes((A6000, 4), bridges="Pairs"), pool=pairs)
        assert any("pool.interconnect.bridges" in note for note in four.notes)
        two = decide(QWEN_32B, shapes((A6000, 2), bridges="Pairs"), pool=pairs)
        assert not any("pool.interconnect.bridges" in note for note in two.notes)

    def test_elastic_shapes_that_bring_no_nodes(self):
        elastic = {"provisioning": "Elastic", "shapes": [{"product": H100, "gpusPerNode": 8, "maxNodes": 1}]}
        refused(decide(LLAMA_8B, shapes(), pool=elastic), Reason.NO_USABLE_GPUS, "pool.provisioning Elastic")


class TestLoadBeyondTheBudget:
    """Requests in flight that no engine holds are a matter of replicas, not of larger engines."""

    @pytest.mark.parametrize(
        ("model", "pool", "spec"),
        [
            (LLAMA_70B_FP8, (H100, 8), {"pool": {"maxGPUs": 8}}),
            (LLAMA_70B_FP8, (H100, 8), {"pool": {"maxGPUs": 400}, "scaling": {"maxReplicas": 2}}),
            (LLAMA_70B_FP8, (H100, 8), {"pool": {"maxGPUs": 400}, "scaling": {"mode": "External"}, "replicas": 2}),
            (LLAMA_8B, (L4, 8), {"pool": {"maxGPUs": 1}}),
            (LLAMA_8B, (A6000, 4), {"pool": {"maxGPUs": 2, "interconnect": {"policy": "RequireNVLink"}}}),
        ],
    )  # fmt: skip
    def test_what_is_advised_is_enough(self, model, pool, spec):
        spec = copy.deepcopy({**spec, "workload": HEAVY})
        decision = decide(model, shapes(pool), **copy.deepcopy(spec))
        refused(decision, decision.reason, "100 requests in flight", "workload.concurrency")
        assert decision.reason in {Reason.GPU_BUDGET_TOO_SMALL, Reason.DOES_NOT_FIT}
        advised = dict(
            re.findall(r"(pool\.maxGPUs|scaling\.maxReplicas|spec\.replicas) (\d+)", decision.message)
        )
        assert advised
        for field, number in advised.items():
            *parents, last = field.removeprefix("spec.").split(".")
            where = spec[parents[0]] if parents else spec
            where[last] = int(number)
        assert isinstance(decide(model, shapes(pool), **spec), Plan)

    def test_a_budget_for_fewer_replicas_names_both_ways_out(self):
        decision = decide(LLAMA_70B, shapes((H100, 8)), pool={"maxGPUs": 8}, scaling={"minReplicas": 3})
        refused(
            decision,
            Reason.GPU_BUDGET_TOO_SMALL,
            "4 GPUs short",
            "write pool.maxGPUs 12, or lower scaling.minReplicas",
        )
        external = decide(
            LLAMA_8B, shapes((H100, 8)), pool={"maxGPUs": 8}, scaling={"mode": "External"}, replicas=20
        )
        refused(
            external, Reason.GPU_BUDGET_TOO_SMALL, "20 replicas of 1 GPU need 20 GPUs", "lower spec.replicas"
        )


def test_the_sum_in_a_refusal_adds_up():
    for pool in ((L4, 1), (H100, 8), (A100_40, 4)):
        for candidate in decide(LLAMA_70B, shapes(pool)).candidates:
            if candidate.reason.value != "WeightsDoNotFit":
                continue
            found = re.search(
                r"overheads ([\d.]+) GiB, on a GPU that gives ([\d.]+) GiB; with ([\d.]+) GiB of KV cache and "
                r"([\d.]+) GiB reserve it is ([\d.]+) GiB short",
                candidate.message,
            )
            assert found, candidate.message
            need, has, kv, reserve, short = map(float, found.groups())
            assert abs(need - has + kv + reserve - short) < 0.3


def test_a_group_of_nodes_is_named_with_what_one_node_lacks():
    decision = decide("meta-llama/Meta-Llama-3.1-405B-Instruct", shapes((H100, 8)))
    refused(decision, Reason.NEEDS_MULTI_NODE, "Closest in one node is", "GiB short")


def test_a_smaller_linked_node_does_not_hide_a_larger_one_without_links():
    products, pins = load_products(), {"parallelism": {"tensor": 2, "pipeline": 2}}
    bridged = PoolSpec.model_validate({"maxGPUs": 8, "interconnect": {"bridges": "Pairs"}})
    large, small = node("n1", A6000, 4), node("n2", A6000, 2)
    for nodes in ([large], [large, small]):
        pool = shape_pool([node_facts(n) for n in nodes], products, bridged)
        plan = decide(QWEN_32B, pool, pool={"interconnect": {"bridges": "Pairs"}}, **pins)
        assert isinstance(plan, Plan), plan.message
        assert not plan.within_island

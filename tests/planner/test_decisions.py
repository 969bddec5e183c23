"""Named decisions: what a careful engineer would choose, and what is said of the rest."""

import pytest

from planner.plan_support import (
    A100_40,
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
    V100,
    decide,
    products,
    reasons,
    shapes,
)
from shardwright.api.pool import PoolSpec
from shardwright.api.reasons import Reason
from shardwright.planner.types import GIB, NoPlan, Plan
from shardwright.topology.facts import node_facts
from shardwright.topology.pool import shape_pool
from topology.cluster_objects import node

MIXED = ((H100, 8), (A100_40, 8), (L40S, 4), (A6000, 4))


def planned(decision):
    assert isinstance(decision, Plan), decision.message
    return decision


def split(decision):
    plan = planned(decision)
    return plan.product.label, str(plan.parallelism)


def real_pool(*raw, **spec):
    return shape_pool(
        [node_facts(n) for n in raw], products(), PoolSpec.model_validate({"maxGPUs": 16, **spec})
    )


def test_an_8b_on_a_mixed_pool_takes_one_gpu():
    plan = planned(decide(LLAMA_8B, shapes(*MIXED)))
    assert plan.parallelism.gpus == 1
    assert plan.limits.max_model_len == 131072
    assert "one A6000 holds" in plan.binding_constraint


def test_a_70b_takes_the_smallest_tensor_parallelism_in_an_island():
    decision = decide(LLAMA_70B, shapes((H100, 8)))
    assert split(decision) == (H100, "TP4")
    assert reasons(decision) == {
        f"{H100} TP1": "WeightsDoNotFit", f"{H100} TP2": "KVTooSmall", f"{H100} TP4": "Chosen",
        f"{H100} TP8": "LargerThanNeeded",
    }  # fmt: skip
    assert planned(decision).within_island


def test_an_island_anywhere_in_the_pool_comes_before_stages_elsewhere():
    decision = decide(LLAMA_70B, shapes(*MIXED))
    assert split(decision) == (H100, "TP4")  # as dear as TP8 on A100-40, but half the GPUs
    found = reasons(decision)
    assert found[f"{A100_40} TP8"] == "RankedLower"
    assert found[f"{A6000} TP1·PP4"] == "Unvalidated"


def test_one_gpu_anywhere_in_the_pool_comes_before_two_elsewhere():
    decision = decide(QWEN_32B, shapes((H200, 8), (A100_40, 8)))
    assert split(decision) == (H200, "TP1")


def test_a_70b_on_larger_gpus_takes_fewer():
    assert split(decide(LLAMA_70B, shapes((H200, 8)))) == (H200, "TP2")


def test_a_70b_fp8_starved_of_kv_on_one_gpu_takes_two():
    decision = decide(LLAMA_70B_FP8, shapes((H100, 8)))
    assert split(decision) == (H100, "TP2")
    assert reasons(decision)[f"{H100} TP1"] == "KVTooSmall"


def test_a_variant_that_needs_fewer_gpus_is_chosen():
    plan = planned(decide(LLAMA_70B, shapes((H100, 8)), model={"variants": [{"id": LLAMA_70B_FP8}]}))
    assert (plan.model.model_id, str(plan.parallelism)) == (LLAMA_70B_FP8, "TP2")
    lost = [c for c in plan.candidates if c.model_id == LLAMA_70B and c.parallelism.tensor == 4]
    assert [c.reason.value for c in lost] == ["CostsMore"]


class TestWithoutLinks:
    def test_stages_over_islands_of_one_node_come_before_ranks_over_pcie(self):
        decision = decide(QWEN_32B, shapes((A6000, 4)))
        assert split(decision) == (A6000, "TP1·PP2")
        assert reasons(decision)[f"{A6000} TP2"] == "BeyondIsland"
        assert "pipeline parallelism" in planned(decision).coverage

    def test_any_takes_tensor_parallelism_over_pcie_and_says_so(self):
        plan = planned(decide(QWEN_32B, shapes((A6000, 4)), pool={"interconnect": {"policy": "Any"}}))
        assert (str(plan.parallelism), plan.within_island) == ("TP2", False)
        assert any("PCIe" in note for note in plan.notes)

    def test_require_refuses_ranks_over_pcie_but_not_stages(self):
        policy = {"interconnect": {"policy": "RequireNVLink"}}
        decision = decide(QWEN_32B, shapes((A6000, 4)), pool=policy)
        assert split(decision) == (A6000, "TP1·PP2")
        assert reasons(decision)[f"{A6000} TP2"] == "BeyondIsland"
        refused = decide(QWEN_32B, shapes((A6000, 4)), pool=policy, parallelism={"tensor": 2, "pipeline": 1})
        assert isinstance(refused, NoPlan)
        assert "pool.interconnect.policy" in refused.message

    def test_prefer_falls_back_to_pcie_when_stages_are_pinned_away(self):
        plan = planned(decide(QWEN_32B, shapes((A6000, 4)), parallelism={"pipeline": 1}))
        assert (str(plan.parallelism), plan.within_island) == ("TP2", False)

    def test_prefer_takes_the_linked_product_when_there_is_one(self):
        decision = decide(QWEN_32B, shapes((A6000, 4), (A100_40, 8)))
        assert split(decision) == (A100_40, "TP4")
        assert reasons(decision)[f"{A6000} TP1·PP2"] == "Unvalidated"
        plan = planned(decide(QWEN_32B, shapes((L40S, 4), (A100_80, 8))))
        assert (plan.product.label, plan.within_island) == (A100_80, True)

    def test_quantised_checkpoints_need_fewer(self):
        fp8 = planned(decide("Qwen/Qwen3-32B-FP8", shapes((A6000, 4))))
        assert fp8.parallelism.gpus <= 2
        assert any("weight-only" in note for note in fp8.notes)
        assert split(decide("Qwen/Qwen3-8B-AWQ", shapes((A6000, 4)))) == (A6000, "TP1")

    def test_a_bridged_pair_is_an_island_only_on_a_node_of_two(self):
        pairs = {"interconnect": {"bridges": "Pairs"}}
        two = planned(decide(QWEN_32B, shapes((A6000, 2), bridges="Pairs"), pool=pairs))
        assert (str(two.parallelism), two.within_island, two.most_node_gpus) == ("TP2", True, 2)
        four = planned(decide(QWEN_32B, shapes((A6000, 4), bridges="Pairs"), pool=pairs))
        assert str(four.parallelism) == "TP1·PP2"


class TestLargeModels:
    def test_405b_in_16_bit_names_the_group_it_would_take(self):
        decision = decide("meta-llama/Meta-Llama-3.1-405B-Instruct", shapes((H100, 8)))
        assert isinstance(decision, NoPlan)
        assert decision.reason is Reason.NEEDS_MULTI_NODE
        for part in ("group of 2 nodes", "TP8·PP2", "16 GPUs", "the pool has 1 such node"):
            assert part in decision.message

    def test_405b_in_fp8_takes_one_node(self):
        assert split(decide("meta-llama/Meta-Llama-3.1-405B-Instruct-FP8", shapes((H100, 8)))) == (
            H100,
            "TP8",
        )

    def test_deepseek_v3_takes_a_node_of_h200(self):
        decision = decide("deepseek-ai/DeepSeek-V3", shapes((H200, 8)))
        assert split(decision) == (H200, "TP8")
        assert reasons(decision)[f"{H200} TP8·EP"] == "Unvalidated"

    def test_mixtral_lists_expert_parallelism(self):
        decision = decide("mistralai/Mixtral-8x7B-Instruct-v0.1", shapes((H100, 8)))
        assert split(decision) == (H100, "TP2")
        assert reasons(decision)[f"{H100} TP2·EP"] == "Unvalidated"

    def test_a_block_quantised_moe_cannot_split_its_experts_in_four(self):
        found = reasons(decide(QWEN_MOE_FP8, shapes((L40S, 4)), pool={"interconnect": {"policy": "Any"}}))
        assert found[f"{L40S} TP4"] == "IllegalTensorParallelism"
        assert found[f"{L40S} TP4·EP"] == "LargerThanNeeded"

    def test_enabled_experts_leave_plain_tensor_parallelism_out(self):
        decision = decide(
            "mistralai/Mixtral-8x7B-Instruct-v0.1", shapes((H100, 8)), parallelism={"expert": "Enabled"}
        )
        assert split(decision) == (H100, "TP2·EP")
        assert reasons(decision)[f"{H100} TP2"] == "NotPinned"


class TestNodes:
    def test_seven_of_eight_gpus_take_no_tp8(self):
        seven = real_pool(node("n1", gpus=8, allocatable=7))
        large = decide("meta-llama/Meta-Llama-3.1-405B-Instruct-FP8", seven)
        assert f"{H100} TP8" not in reasons(large)
        assert split(large) == (H100, "TP1·PP7")
        assert split(decide(LLAMA_70B, seven)) == (H100, "TP4")

    def test_a_v100_runs_no_bf16(self):
        decision = decide(LLAMA_8B, shapes((V100, 4)))
        assert isinstance(decision, NoPlan)
        assert decision.reason is Reason.NUMBER_FORMAT_UNSUPPORTED
        assert "7.0" in decision.message

    def test_an_a100_runs_fp8_weight_only(self):
        plan = planned(decide("Qwen/Qwen3-32B-FP8", shapes((A100_40, 8))))
        assert any("FP8Block runs weight-only on A100" in note for note in plan.notes)

    def test_an_old_driver_is_named(self):
        old = real_pool(node("n1", labels={"nvidia.com/cuda.driver-version.major": "535"}))
        decision = decide(LLAMA_8B, old)
        assert isinstance(decision, NoPlan)
        assert "driver 535" in decision.message
        assert "580" in decision.message
        assert isinstance(decide(LLAMA_8B, old, version="0.19.0"), Plan)
        assert isinstance(decide(LLAMA_8B, old, engine={"image": "registry.example/vllm:cu12"}), Plan)

    def test_the_plan_keeps_away_from_old_drivers_and_small_memory(self):
        labels = {"nvidia.com/cuda.driver-version.major": "535"}
        mixed = real_pool(
            node("n1", labels=labels), node("n2"), node("n3", labels={"nvidia.com/gpu.memory": "40000"})
        )
        plan = planned(decide(QWEN_32B, mixed, parallelism={"tensor": 1, "pipeline": 1}))
        assert (plan.min_driver_major, plan.min_gpu_memory_mib) == (580, 81559)

    def test_a_node_with_too_little_memory_or_disk_is_named(self):
        small = real_pool(node("n1", host={"memory": "8Gi"}))
        decision = decide(LLAMA_8B, small)
        assert isinstance(decision, NoPlan)
        assert decision.reason is Reason.NODE_RESOURCES_TOO_SMALL
        assert "GiB more memory" in decision.message
        no_disk = real_pool(node("n1", host={"ephemeral-storage": "20Gi"}))
        assert "disk" in decide(LLAMA_8B, no_disk).message
        claim = {"cache": {"type": "PVC", "claimName": "weights"}}
        assert isinstance(decide(LLAMA_8B, no_disk, model=claim), Plan)

    def test_no_usable_node_says_what_excludes_them(self):
        decision = decide(LLAMA_8B, real_pool(node("n1", cordoned=True), node("n2", ready=False)))
        assert isinstance(decision, NoPlan)
        assert decision.reason is Reason.NO_USABLE_GPUS
        assert "1 Cordoned, 1 NotReady" in decision.message
        unknown = decide(LLAMA_8B, real_pool(node("n1", "NVIDIA-X9000")))
        assert unknown.reason is Reason.UNKNOWN_GPU_PRODUCT
        # A node that the selector leaves out is none of the pool, and hides nothing.
        chosen = real_pool(
            node("n1", "NVIDIA-X9000", labels={"team": "a"}), node("n2"), nodeSelector={"team": "a"}
        )
        selected = decide(LLAMA_8B, chosen)
        assert selected.reason is Reason.UNKNOWN_GPU_PRODUCT
        asked = decide(LLAMA_8B, real_pool(), pool={"gpuProducts": ["NVIDIA-X9000"]})
        assert asked.reason is Reason.UNKNOWN_GPU_PRODUCT
        assert "pool.gpuProducts" in asked.message
        part = decide(LLAMA_8B, real_pool(), pool={"gpuProducts": ["NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"]})
        assert "(MIG) are not planned with" in part.message


class TestBudgetAndPins:
    def test_a_budget_below_the_need_says_by_how_many(self):
        decision = decide(LLAMA_70B, shapes((H100, 8)), pool={"maxGPUs": 2})
        assert isinstance(decision, NoPlan)
        assert decision.reason is Reason.GPU_BUDGET_TOO_SMALL
        assert "2 GPUs short" in decision.message
        assert "write pool.maxGPUs 4" in decision.message

    def test_the_budget_counts_all_replicas(self):
        twice = {"scaling": {"minReplicas": 2}}
        assert isinstance(decide(LLAMA_70B, shapes((H100, 8)), pool={"maxGPUs": 4}, **twice), NoPlan)
        plan = planned(decide(LLAMA_70B, shapes((H100, 8)), pool={"maxGPUs": 8}, **twice))
        assert plan.gpus_per_replica * plan.replicas == 8

    def test_a_pin_is_honoured(self):
        decision = decide(LLAMA_8B, shapes((H100, 8)), parallelism={"tensor": 2})
        assert split(decision) == (H100, "TP2")
        assert reasons(decision)[f"{H100} TP1"] == "NotPinned"
        assert split(decide(LLAMA_8B, shapes((H100, 8)), parallelism={"pipeline": 2})) == (H100, "TP1·PP2")

    def test_an_illegal_pin_names_the_legal_degrees(self):
        decision = decide(LLAMA_8B, shapes((H100, 8)), parallelism={"tensor": 3})
        assert isinstance(decision, NoPlan)
        assert decision.reason is Reason.ILLEGAL_PARALLELISM
        assert "1, 2, 4, 8, 16" in decision.message

    def test_a_pin_beyond_the_node_is_told(self):
        decision = decide(LLAMA_8B, shapes((L40S, 4)), parallelism={"tensor": 8})
        assert isinstance(decision, NoPlan)
        assert reasons(decision)[f"{L40S} TP8"] == "BeyondNode"


def test_what_would_fit_is_named_when_nothing_does():
    decision = decide(LLAMA_70B, shapes((L4, 1)))
    assert isinstance(decision, NoPlan)
    assert decision.reason is Reason.DOES_NOT_FIT
    assert "GiB short" in decision.message
    assert "would fit on a node of 16 L4: 15 GPUs more" in decision.message
    linked = decide(LLAMA_70B, shapes((L4, 1)), pool={"interconnect": {"policy": "RequireNVLink"}})
    assert "would fit" not in linked.message


class TestContext:
    def test_longer_than_the_model_is_an_error_with_the_number_to_write(self):
        decision = decide(QWEN_32B, shapes((H100, 8)), model={"maxContextTokens": 100_000})
        assert isinstance(decision, NoPlan)
        assert decision.reason is Reason.CONTEXT_TOO_LONG
        assert "write 40960 or less" in decision.message

    def test_a_context_asked_for_is_worth_more_gpus(self):
        assert split(decide(LLAMA_70B_FP8, shapes((H100, 8)), model={"maxContextTokens": 131072})) == (
            H100,
            "TP2",
        )
        small = planned(decide(LLAMA_8B, shapes((L4, 4)), model={"maxContextTokens": 131072}))
        assert small.parallelism.gpus > 1
        assert small.limits.max_model_len == 131072

    def test_the_models_own_length_is_not_worth_more_gpus_and_the_clamp_is_told(self):
        plan = planned(decide(LLAMA_8B, shapes((L4, 4)), workload={"concurrency": 1}))
        assert plan.parallelism.gpus == 1
        assert plan.limits.max_model_len < 131072
        assert plan.context_clamped_from == 131072
        assert any("131072" in note for note in plan.notes)

    def test_what_fits_nowhere_is_clamped_with_a_note(self):
        plan = planned(
            decide(
                LLAMA_70B_FP8,
                shapes((H100, 1)),
                model={"maxContextTokens": 131072},
                workload={"concurrency": 1},
            )
        )
        assert plan.context_clamped_from == 131072
        assert 4800 <= plan.limits.max_model_len < 131072
        assert plan.estimate.promised_kv_tokens >= plan.limits.max_model_len
        assert any("maxContextTokens 131072 does not fit" in note for note in plan.notes)


class TestDemand:
    def test_the_kv_rule_is_the_larger_of_one_context_and_requests_in_flight(self):
        pool = shapes((H200, 8))
        asked = planned(decide(LLAMA_8B, pool, model={"maxContextTokens": 8192}, workload={"concurrency": 1}))
        assert asked.required_kv_tokens == 8192
        many = planned(
            decide(
                LLAMA_8B, pool, model={"maxContextTokens": 8192}, scaling={"maxReplicas": 1},
                workload={"concurrency": 20, "inputTokens": {"p50": 1000, "p95": 4000}, "outputTokens": {"p50": 100, "p95": 1000}},
            )
        )  # fmt: skip
        assert (many.planned_concurrency, many.required_kv_tokens) == (20, 20 * 4500)

    def test_a_shared_prefix_counts_once(self):
        plan = planned(
            decide(
                LLAMA_8B, shapes((H200, 8)), scaling={"maxReplicas": 1},
                workload={
                    "concurrency": 10, "inputTokens": {"p50": 3000, "p95": 4000}, "outputTokens": {"p50": 1, "p95": 2},
                    "sharedPrefixTokens": 3001,
                },
            )
        )  # fmt: skip
        assert plan.required_kv_tokens == max(4002, 3001 + 10 * 1000)

    def test_more_traffic_means_more_replicas_and_not_a_larger_engine(self):
        plan = planned(decide(LLAMA_8B, shapes((H100, 8)), workload={"concurrency": 400}))
        assert plan.parallelism.gpus == 1
        assert plan.replicas > 1
        assert plan.planned_concurrency * plan.replicas >= 400 > plan.planned_concurrency
        enough = planned(
            decide(LLAMA_8B, shapes((H100, 8)), workload={"concurrency": 40}, scaling={"minReplicas": 2})
        )
        assert enough.planned_concurrency == 20
        assert enough.replicas == 2

    def test_a_rate_becomes_requests_in_flight(self):
        plan = planned(
            decide(
                LLAMA_8B, shapes((H200, 8)), scaling={"maxReplicas": 1},
                workload={"requestsPerMinute": 60, "outputTokens": {"p50": 201, "p95": 800}},
                slo={"ttft": {"percentile": 95, "milliseconds": 2000}, "tpot": {"percentile": 95, "milliseconds": 40}},
            )
        )  # fmt: skip
        # One a second stays as long as is predicted, not as long as the targets allow (10 s).
        assert plan.speed is not None
        stay_s = (plan.speed.ttft_ms + 200 * plan.speed.tpot_ms) / 1000
        assert plan.planned_concurrency - 1 <= stay_s <= 10

    def test_a_hybrid_is_judged_by_its_concurrency(self):
        plan = planned(decide("google/gemma-3-27b-it", shapes((H100, 8)), workload={"concurrency": 8}))
        assert plan.parallelism.gpus <= 2


class TestKvDtype:
    def test_fp8_is_tried_only_when_allowed_and_needed(self):
        asked = {"maxContextTokens": 32768}
        auto = planned(
            decide(LLAMA_8B, shapes((L4, 1)), model={"maxContextTokens": 4096}, workload={"concurrency": 1})
        )
        assert auto.limits.kv_cache_dtype == "auto"
        allowed = planned(
            decide(
                LLAMA_8B,
                shapes((L4, 1)),
                model={**asked, "allowedKVCacheDtypes": ["Auto", "FP8"]},
                workload={"concurrency": 1},
            )
        )
        assert (allowed.limits.kv_cache_dtype, allowed.limits.max_model_len) == ("fp8", 32768)
        assert "FP8 KV cache" in allowed.coverage

    def test_fp8_kv_needs_the_hardware(self):
        decision = decide(
            LLAMA_70B, shapes((A100_40, 4)), model={"allowedKVCacheDtypes": ["Auto", "FP8"]}, workload={"concurrency": 64},
            scaling={"maxReplicas": 1},
        )  # fmt: skip
        assert all(c.estimate is None or "FP8" not in c.message for c in decision.candidates)


def test_pod_resources_hold_shm_and_checkpoint():
    plan = planned(decide(LLAMA_70B, shapes((H100, 8))))
    pod = plan.pod_resources
    assert pod.gpus == 4
    assert pod.memory_bytes >= plan.shm_bytes + 4 * 4 * GIB
    # KV offload is not rendered yet: its memory would lie idle.
    assert planned(decide(LLAMA_70B, shapes((H100, 8)), engine={"kvOffloadGiB": 100})).pod_resources == pod
    assert pod.ephemeral_bytes > 131 * GIB
    local = planned(
        decide(
            LLAMA_70B, shapes((H100, 8)), model={"source": {"type": "PVC", "pvc": {"claimName": "weights"}}}
        )
    )
    assert local.pod_resources.ephemeral_bytes < 20 * GIB


@pytest.mark.parametrize("field", ["maxNumSeqs", "maxNumBatchedTokens", "gpuMemoryUtilizationPercent"])
def test_pinned_engine_limits_are_never_changed(field):
    value = {"maxNumSeqs": 37, "maxNumBatchedTokens": 4096, "gpuMemoryUtilizationPercent": 85}[field]
    limits = planned(decide(LLAMA_8B, shapes((H100, 8)), engine={field: value})).limits
    names = {"maxNumSeqs": "max_num_seqs", "maxNumBatchedTokens": "max_num_batched_tokens"}
    assert getattr(limits, names.get(field, "gpu_memory_utilization_percent")) == value


def test_a_model_that_cannot_be_predicted_is_said_to_be_so():
    decision = decide("google/gemma-4-31B-it", shapes((H100, 8)))
    assert isinstance(decision, NoPlan)
    assert decision.reason is Reason.MEMORY_UNKNOWN
    assert decision.message.count("its memory") == 1, "what is the same of all is said once"
    assert "model.variants" in decision.message

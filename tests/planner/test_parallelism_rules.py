"""Tensor degrees held against the design's rule, written a second time in `oracles`."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.oracles import legal
from planner.plan_support import H100, LLAMA_8B, QWEN_MOE_FP8, products
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.catalog.engines import engine_class
from shardwright.catalog.models import load_models
from shardwright.catalog.types import ModelArchitecture, MoEArchitecture, NumberFormat, Quantization
from shardwright.planner.choice import plan
from shardwright.planner.legality import illegality, tensor_degrees
from shardwright.planner.types import ModelChoice, Parallelism, Plan, PlanRequest
from shardwright.topology.pool import pool_of_shapes

MODELS = load_models()
PHI_4 = "microsoft/phi-4"  # 40 heads, 10 KV heads, width 17920, vocabulary 100352


def refusal(model, tensor, expert=False, data=1):
    architecture = model if isinstance(model, ModelArchitecture) else MODELS[model]
    return illegality(architecture, Parallelism(tensor=tensor, expert=expert, data=data))


@pytest.mark.parametrize(
    ("model", "tensor", "expert", "because"),
    [
        (PHI_4, 2, False, ""),
        (PHI_4, 4, False, "10 KV heads"),
        (PHI_4, 8, False, "10 KV heads"),
        (PHI_4, 5, False, "vocabulary 100352"),  # heads, KV heads and width divide
        (PHI_4, 10, False, "vocabulary 100352"),
        (PHI_4, 16, False, "40 attention heads"),
        ("microsoft/Phi-3-medium-4k-instruct", 4, False, "10 KV heads"),
        ("Qwen/Qwen3-30B-A3B", 8, False, ""),  # 8 is a multiple of the 4 KV heads
        ("Qwen/Qwen2.5-1.5B", 3, False, "2 KV heads"),
        ("ibm-granite/granite-3.1-8b-instruct", 8, False, ""),  # 49155 does not divide, 49216 does
        ("Qwen/Qwen2.5-14B", 5, False, "8 KV heads"),
        (QWEN_MOE_FP8, 4, False, "expert width 768"),
        (QWEN_MOE_FP8, 4, True, ""),
        ("Qwen/Qwen1.5-MoE-A2.7B", 8, True, "60 experts"),
        ("Qwen/Qwen1.5-MoE-A2.7B", 8, False, ""),
        ("deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", 16, False, ""),
        ("stepfun-ai/Step-3.7-Flash-FP8", 4, True, "shared expert width 1280"),
        ("zai-org/GLM-5-FP8", 8, False, ""),
        ("kaitchup/Phi-4-AutoRound-GPTQ-4bit", 2, False, ""),
    ],
)
def test_a_degree_is_refused_for_the_rule_that_it_breaks(model, tensor, expert, because):
    problem = refusal(model, tensor, expert)
    assert because in problem
    assert bool(problem) is bool(because)


def test_every_model_of_the_catalogue_by_the_rule():
    for name, architecture in MODELS.items():
        for tensor in range(1, 17):
            for expert in (False, True):
                problem = refusal(architecture, tensor, expert)
                assert legal(architecture, tensor, expert) is not bool(problem), (
                    name,
                    tensor,
                    expert,
                    problem,
                )
        degrees = tensor_degrees(architecture, 16)
        assert sorted(degrees) == [tp for tp in range(1, 17) if legal(architecture, tp)]
        assert list(degrees) == sorted(degrees, key=lambda tp: (tp not in {1, 2, 4, 8, 16}, tp))


sizes = st.sampled_from([96, 120, 192, 240, 256, 320, 384, 480, 640, 768, 960, 1280, 1536, 1920, 2560, 3840])
formats = st.sampled_from(
    [
        Quantization(format=NumberFormat.BF16),
        Quantization(format=NumberFormat.FP8),
        Quantization(format=NumberFormat.INT8),
        Quantization(format=NumberFormat.MXFP4, group_size=32),
        Quantization(format=NumberFormat.FP8_BLOCK),
        Quantization(format=NumberFormat.FP8_BLOCK, block=(1, 32)),
        Quantization(format=NumberFormat.FP8_BLOCK, block=(64, 128)),
        Quantization(format=NumberFormat.AWQ),
        Quantization(format=NumberFormat.GPTQ, group_size=32),
        Quantization(format=NumberFormat.GPTQ, group_size=-1),
        Quantization(format=NumberFormat.INT4, group_size=64),
        Quantization(format=NumberFormat.NVFP4),
        Quantization(format=NumberFormat.NVFP4, group_size=32),
    ]
)
experts = st.builds(
    MoEArchitecture,
    num_experts=st.sampled_from([8, 12, 60, 64]), experts_per_token=st.just(2),
    expert_intermediate_size=sizes, shared_intermediate_size=st.sampled_from([0, 0, 960, 1280, 1536]),
    dense_layers=st.sampled_from([0, 0, 1]), moe_layer_step=st.sampled_from([1, 1, 2]),
)  # fmt: skip
architectures = st.builds(
    lambda **facts: replace(MODELS[LLAMA_8B], **facts),
    num_attention_heads=st.sampled_from([12, 24, 28, 30, 32, 40, 48, 60, 64, 120]),
    num_kv_heads=st.sampled_from([1, 2, 3, 4, 6, 8, 10, 12, 15]),
    intermediate_size=sizes,
    vocab_size=st.sampled_from([49155, 100352, 960 * 7, 960 * 8 - 5, 64 * 60]),
    moe=st.none() | experts,
    quantization=formats,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(architectures, st.integers(1, 16), st.booleans(), st.sampled_from([1, 1, 2, 4]))
def test_any_architecture_by_the_rule(architecture, tensor, expert, data):
    assert legal(architecture, tensor, expert, data) is not bool(refusal(architecture, tensor, expert, data))


@settings(max_examples=60, deadline=None)
@given(architectures, st.sampled_from([2, 3, 4, 5, 6, 8]))
def test_a_plan_never_has_a_degree_that_the_rule_refuses(architecture, tensor):
    spec = {"model": {"id": LLAMA_8B}, "pool": {"maxGPUs": 8}, "parallelism": {"tensor": tensor}}
    decision = plan(
        PlanRequest(
            spec=LLMServiceSpec.model_validate(spec),
            models=(ModelChoice(model_id=LLAMA_8B, revision=None, architecture=architecture),),
            pool=pool_of_shapes([(H100, 8, 1)], products(), "None"),
            engine=engine_class("0.33.0"),
            products=products(),
        )
    )
    if isinstance(decision, Plan):
        assert legal(architecture, tensor, decision.parallelism.expert)
    for candidate in decision.candidates:
        split = candidate.parallelism
        if candidate.reason.value == "IllegalTensorParallelism":
            assert not legal(architecture, split.tensor, split.expert)
        elif split.tensor == tensor and candidate.reason.value not in {
            "NotPinned",
            "NumberFormatUnsupported",
        }:
            assert legal(architecture, split.tensor, split.expert)

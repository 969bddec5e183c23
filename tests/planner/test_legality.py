"""Degrees of parallelism, number formats and drivers: what vLLM can run at all."""

import pytest

from planner.plan_support import A100_40, B200, H100, L40S, QWEN_MOE_FP8, T4, V100, products
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.catalog.engines import engine_class
from shardwright.catalog.models import load_models
from shardwright.planner.legality import (
    driver_floor,
    format_note,
    format_problem,
    illegality,
    image_problem,
    quantization_mismatch,
    tensor_degrees,
)
from shardwright.planner.types import Parallelism

MODELS = load_models()


@pytest.mark.parametrize(
    ("model", "largest", "legal"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8, (1, 2, 4, 8)),
        ("Qwen/Qwen2.5-7B-Instruct", 8, (1, 2, 4)),  # 28 heads; 7 ranks do not divide the padded vocabulary
        ("meta-llama/Llama-2-13b-hf", 8, (1, 2, 4, 8)),  # 40 heads, but a width of 13824
        (QWEN_MOE_FP8, 8, (1, 2)),  # 768 / 4 = 192 is not a multiple of 128
        ("Qwen/Qwen3-32B-FP8", 8, (1, 2, 4, 8)),
        ("deepseek-ai/DeepSeek-V3", 16, (1, 2, 4, 8, 16)),
    ],
)
def test_legal_tensor_degrees(model, largest, legal):
    assert tensor_degrees(MODELS[model], largest) == legal


def test_expert_parallelism_asks_for_the_expert_count_only():
    architecture = MODELS[QWEN_MOE_FP8]
    assert "192, not a multiple of the quantisation block 128" in illegality(
        architecture, Parallelism(tensor=4)
    )
    assert illegality(architecture, Parallelism(tensor=4, expert=True)) == ""
    mixtral = MODELS["mistralai/Mixtral-8x7B-Instruct-v0.1"]
    assert "8 experts do not divide by 16" in illegality(mixtral, Parallelism(tensor=16, expert=True))


@pytest.mark.parametrize(
    ("parallelism", "sentence"),
    [
        (Parallelism(tensor=3), "32 attention heads do not divide by 3"),
        (Parallelism(tensor=2, expert=True), "expert parallelism needs a mixture-of-experts model"),
        (Parallelism(data=2), "use more replicas"),
        (Parallelism(pipeline=33), "32 layers cannot fill 33 pipeline stages"),
    ],
)
def test_each_violation_has_its_sentence(parallelism, sentence):
    assert sentence in illegality(MODELS["meta-llama/Llama-3.1-8B-Instruct"], parallelism)


@pytest.mark.parametrize(
    ("model", "product", "problem", "note"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", V100, "V100-32 has compute capability 7.0; BF16 needs 8.0", ""),
        ("meta-llama/Llama-3.1-8B-Instruct", T4, "BF16 needs 8.0", ""),
        ("meta-llama/Llama-3.1-8B-Instruct", A100_40, "", ""),
        ("Qwen/Qwen3-32B-FP8", A100_40, "", "runs weight-only"),
        ("Qwen/Qwen3-32B-FP8", L40S, "", ""),
        ("Qwen/Qwen3-32B-FP8", T4, "FP8Block needs 8.0", ""),
        ("openai/gpt-oss-20b", H100, "", "MXFP4 runs weight-only"),
        ("openai/gpt-oss-20b", V100, "MXFP4 needs 8.0", ""),
        ("Qwen/Qwen3-8B-AWQ", T4, "", ""),
        ("Qwen/Qwen3-8B-AWQ", V100, "AWQ needs 7.5", ""),
        ("Qwen/Qwen3-8B-AWQ", "AMD_Instinct_MI300X_OAM", "no AWQ kernels for AMD", ""),
        ("Qwen/Qwen3-32B-FP8", "AMD_Instinct_MI300X_OAM", "", ""),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", B200, "no INT8 kernels from 10.0 on", ""),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", H100, "", ""),
    ],
)  # fmt: skip
def test_number_formats_against_the_gpu(model, product, problem, note):
    found, gpu = MODELS[model], products()[product]
    assert problem in format_problem(found, gpu)
    assert bool(problem) is bool(format_problem(found, gpu))
    if not problem:
        assert note in format_note(found, gpu)
        assert bool(note) is bool(format_note(found, gpu))


def test_drivers_and_images_by_engine_version():
    new, old = engine_class("0.33.0"), engine_class("0.19.0")
    assert (driver_floor(new), driver_floor(old)) == (580, 525)
    assert "CUDA 13" in image_problem(new, products()[V100])
    assert image_problem(old, products()[V100]) == ""
    assert image_problem(new, products()[T4]) == ""


@pytest.mark.parametrize(
    ("asserted", "model", "mismatch"),
    [
        (None, "Qwen/Qwen3-32B-FP8", False),
        ("FP8", "Qwen/Qwen3-32B-FP8", False),
        ("FP8", "Qwen/Qwen3-32B", True),
        ("None", "Qwen/Qwen3-32B", False),
        ("INT4", "Qwen/Qwen3-8B-AWQ", False),
        ("GPTQ", "Qwen/Qwen3-8B-AWQ", True),
    ],
)
def test_an_asserted_format_is_held_against_the_checkpoint(asserted, model, mismatch):
    spec = LLMServiceSpec.model_validate(
        {"model": {"id": model, "quantization": asserted}, "pool": {"maxGPUs": 1}}
    )
    found = quantization_mismatch(spec, MODELS[model])
    assert (found is not None) is mismatch
    if found:
        assert found.field == "spec.model.quantization"

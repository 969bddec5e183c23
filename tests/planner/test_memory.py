"""Laws of the memory model: what more of something may never do, and single figures worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.catalog.engines import engine_class
from shardwright.catalog.gpus import load_products
from shardwright.catalog.models import load_models
from shardwright.planner import activation, kv, weights
from shardwright.planner.memory import estimate
from shardwright.planner.types import GIB, EngineLimits, MemoryRequest, Parallelism, Verdict

MODELS = load_models()
PRODUCTS = load_products()
LIMITS = EngineLimits(
    max_model_len=8192, max_num_seqs=1024, max_num_batched_tokens=8192, gpu_memory_utilization_percent=95
)
KNOWN = sorted(name for name, model in MODELS.items() if not model.unpredicted)
REQUESTS = st.builds(
    MemoryRequest,
    architecture=st.sampled_from(KNOWN).map(MODELS.__getitem__),
    gpu=st.sampled_from(sorted(PRODUCTS)).map(PRODUCTS.__getitem__),
    engine=st.sampled_from(["0.7.3", "0.11.0", "0.16.0", "0.19.0", "0.20.0", "0.33.0"]).map(engine_class),
    parallelism=st.builds(
        Parallelism, tensor=st.sampled_from([1, 2, 4, 8]), pipeline=st.integers(1, 4), expert=st.just(False)
    ),
    limits=st.builds(
        EngineLimits,
        max_model_len=st.integers(128, 200_000),
        max_num_seqs=st.integers(1, 2048),
        max_num_batched_tokens=st.integers(512, 32768),
        gpu_memory_utilization_percent=st.integers(30, 98),
        kv_cache_dtype=st.sampled_from(["auto", "fp8"]),
        enforce_eager=st.booleans(),
    ),
)


def ask(model, gpu="H100", version="0.19.0", tensor=1, pipeline=1, **limits):
    return MemoryRequest(
        architecture=MODELS[model],
        gpu=PRODUCTS[gpu],
        engine=engine_class(version),
        parallelism=Parallelism(tensor=tensor, pipeline=pipeline),
        limits=replace(LIMITS, **limits),
    )


def with_limits(request, **limits):
    return replace(request, limits=replace(request.limits, **limits))


@settings(max_examples=100, deadline=None)
@given(REQUESTS)
def test_more_tensor_parallelism_never_means_more_weights(request):
    split = request.parallelism
    for stage in weights.stages(request.architecture.num_layers, split.pipeline):
        amd = request.gpu.vendor == "amd"
        once = weights.stage_bytes(request.architecture, split, stage, amd=amd)
        twice = weights.stage_bytes(
            request.architecture, replace(split, tensor=2 * split.tensor), stage, amd=amd
        )
        assert twice <= once


@settings(max_examples=100, deadline=None)
@given(REQUESTS)
def test_more_context_never_means_more_concurrency_and_a_fit_stays_one_when_it_shrinks(request):
    answer = estimate(request)
    longer = estimate(with_limits(request, max_model_len=request.limits.max_model_len * 2))
    assert longer.max_concurrency <= answer.max_concurrency
    if longer.verdict is Verdict.FITS:
        assert answer.verdict is Verdict.FITS


@settings(max_examples=100, deadline=None)
@given(REQUESTS)
def test_promise_is_below_the_prediction_and_the_bill_adds_up(request):
    answer = estimate(request)
    assert answer.margin_gib >= 0
    assert 0 <= answer.promised_kv_tokens <= answer.kv_tokens
    assert answer.largest_model_len <= request.architecture.max_position_embeddings
    lines = {line.item: line.gib for line in answer.bill}
    parts = [gib for item, gib in lines.items() if item not in {"KV cache", "Margin"}]
    assert sum(parts) == pytest.approx(lines["KV cache"], abs=1e-6)
    assert all(line.why for line in answer.bill)
    assert answer.coverage


@settings(max_examples=100, deadline=None)
@given(REQUESTS)
def test_verdict_is_what_the_figures_say(request):
    answer = estimate(request)
    if answer.verdict is Verdict.FITS:
        assert answer.kv_cache_gib_per_gpu > answer.margin_gib
        assert answer.max_concurrency >= 1
        if request.limits.max_model_len <= request.architecture.max_position_embeddings:
            assert (
                answer.largest_model_len >= request.limits.max_model_len // kv.BLOCK_TOKENS * kv.BLOCK_TOKENS
            )
    elif answer.verdict is Verdict.TOO_SMALL:
        assert answer.largest_model_len < request.limits.max_model_len
        assert answer.kv_cache_gib_per_gpu > 0
    if answer.kv_cache_gib_per_gpu <= 0:
        assert answer.verdict is Verdict.OUT_OF_MEMORY


@settings(max_examples=100, deadline=None)
@given(REQUESTS, st.integers(1, 512))
def test_more_sequences_or_batched_tokens_never_mean_more_cache(request, more):
    have = estimate(request).kv_cache_gib_per_gpu
    limits = request.limits
    assert (
        estimate(with_limits(request, max_num_seqs=limits.max_num_seqs + more)).kv_cache_gib_per_gpu <= have
    )
    tokens = limits.max_num_batched_tokens + more
    assert estimate(with_limits(request, max_num_batched_tokens=tokens)).kv_cache_gib_per_gpu <= have


@given(layers=st.integers(1, 200), pipeline=st.integers(1, 16))
def test_stages_hold_all_layers(layers, pipeline):
    found = weights.stages(layers, pipeline)
    assert sum(stage.layers for stage in found) == layers
    assert [stage.start for stage in found] == [sum(s.layers for s in found[:i]) for i in range(len(found))]


@given(st.floats(1, 1e10), st.floats(0, 1e8))
def test_allocator_is_monotonic_and_adds_at_most_one_mib(size, more):
    assert size <= weights.allocated(size) <= size + weights.MIB
    assert weights.allocated(size) <= weights.allocated(size + more)


def test_activation_peak_by_hand():
    request = ask("meta-llama/Llama-3.1-8B-Instruct")
    expected = (14.5 * 1024 * 128256 + 2 * 8192 * 4096) / GIB + 0.053
    got = activation.peak_gib(
        request.architecture, request.engine, request.parallelism, request.limits, last_stage=True
    )
    assert got == pytest.approx(expected)
    assert got == pytest.approx(1.89, abs=0.005)  # measured


def test_sliding_hybrid_slots_and_request():
    model = MODELS["google/gemma-3-27b-it"]
    (stage,) = weights.stages(model.num_layers, 1)
    assert kv.full_slots(model, stage) == (10, 60)
    gpt = ask("openai/gpt-oss-120b", version="0.11.0", max_model_len=131072, max_num_batched_tokens=1024)
    (stage,) = weights.stages(36, 1)
    need = kv.request_bytes(gpt.architecture, 1, stage, gpt.limits, 131072) / GIB
    assert need == pytest.approx(4.54, abs=0.005)  # the engine's own message


def test_mla_is_not_split_and_sparse_mla_adds_its_index():
    deepseek, sparse = MODELS["deepseek-ai/DeepSeek-R1"], MODELS["deepseek-ai/DeepSeek-V3.2"]
    assert kv.layer_bytes(deepseek, 1, fp8=False) == kv.layer_bytes(deepseek, 8, fp8=False) == 1152
    assert kv.layer_bytes(sparse, 8, fp8=False) == 1284


def test_kv_heads_are_replicated_beyond_their_count():
    model = MODELS["Qwen/Qwen2.5-7B-Instruct"]
    rates = [kv.layer_bytes(model, tensor, fp8=False) for tensor in (1, 2, 4, 8)]
    assert rates == [2048, 1024, 512, 512]
    assert kv.layer_bytes(model, 1, fp8=True) == 1024


def test_graphs_are_subtracted_from_0_20_on_only():
    before, after = (estimate(ask("Qwen/Qwen3-14B", version=version)) for version in ("0.19.0", "0.20.0"))
    gap = before.kv_cache_gib_per_gpu - after.kv_cache_gib_per_gpu
    assert gap == pytest.approx(after.cuda_graph_gib)
    assert estimate(ask("Qwen/Qwen3-14B", version="0.20.0", enforce_eager=True)).cuda_graph_gib == 0


def test_rocm_pads_unquantised_experts_and_says_it_is_not_covered():
    answer = estimate(ask("Qwen/Qwen3-VL-30B-A3B-Instruct", gpu="MI300X"))
    assert answer.weights_gib_per_gpu == pytest.approx(79.29, rel=0.02)  # measured
    assert not answer.covered


@pytest.mark.parametrize(
    ("model", "gpu", "limit"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "H100", 0.7525),
        ("meta-llama/Llama-3.1-8B-Instruct", "L4", 0.5),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "H200", 2.0),
        ("deepseek-ai/DeepSeek-R1", "H200", 2.0),
        ("meta-llama/Llama-3.3-70B-Instruct", "MI300X", 4.0),
    ],
)
def test_reserve_of_a_measured_class(model, gpu, limit):
    answer = estimate(ask(model, gpu=gpu, tensor=8))
    assert answer.covered
    assert answer.margin_gib == pytest.approx(limit, abs=1e-3)


def test_what_is_not_measured_gets_a_wider_reserve():
    measured, newer = (
        estimate(ask("Qwen/Qwen3-14B", version=version, gpu_memory_utilization_percent=90))
        for version in ("0.20.0", "0.33.0")
    )
    assert newer.margin_gib > measured.margin_gib
    assert "not measured" in newer.coverage
    assert newer.covered


def test_state_hybrids_are_unknown_with_the_reason():
    answer = estimate(ask("nvidia/Nemotron-H-56B-Base-8K", gpu="B200"))
    assert answer.verdict is Verdict.UNKNOWN
    assert "state" in answer.coverage
    assert not answer.covered


def test_weight_bytes_replace_the_sum_over_dimensions():
    request = ask("Qwen/Qwen3-14B")
    model = replace(request.architecture, checkpoint_bytes=10 * GIB, weights_from_checkpoint=True)
    answer = estimate(replace(request, architecture=model))
    assert answer.weights_gib_per_gpu == pytest.approx(10, rel=0.01)


def test_the_smallest_pipeline_stage_decides():
    answer = estimate(ask("meta-llama/Llama-3.1-8B-Instruct", pipeline=4))
    assert answer.weights_gib_per_gpu == pytest.approx(4.26, abs=0.01)  # measured
    assert answer.kv_tokens == pytest.approx(2_257_264, rel=0.005)  # measured


def test_block_experts_on_hopper_hold_aligned_buffers():
    """DeepSeek-R1: (8192 x 8 + 256 x 127) rows x 2 x 7168 x 2 B, instead of 65536 x (7168 + 256) x 2 B."""
    more = (98048 * 2 * 7168 - 65536 * (7168 + 256)) * 2 / GIB
    r1 = {"model": "deepseek-ai/DeepSeek-R1", "tensor": 8}
    hopper = estimate(ask(gpu="H200", version="0.19.0", **r1)).activation_gib
    assert more == pytest.approx(1.71, abs=0.01)
    assert hopper - estimate(ask(gpu="B200", version="0.19.0", **r1)).activation_gib == pytest.approx(more)
    assert hopper - estimate(ask(gpu="MI300X", version="0.19.0", **r1)).activation_gib == pytest.approx(more)
    plain = {"model": "Qwen/Qwen3-30B-A3B"}
    assert (
        estimate(ask(gpu="H200", **plain)).activation_gib == estimate(ask(gpu="B200", **plain)).activation_gib
    )


def test_the_sampler_takes_no_more_sequences_than_tokens():
    few = estimate(ask("Qwen/Qwen3-8B", version="0.16.0", max_num_seqs=512, max_num_batched_tokens=512))
    many = estimate(ask("Qwen/Qwen3-8B", version="0.16.0", max_num_seqs=4096, max_num_batched_tokens=512))
    assert few.activation_gib == many.activation_gib


@settings(max_examples=60, deadline=None)
@given(REQUESTS, st.integers(1, 10))
def test_more_utilisation_never_means_less_cache(request, more):
    wider = request.limits.gpu_memory_utilization_percent + more
    assert (
        estimate(with_limits(request, gpu_memory_utilization_percent=wider)).kv_tokens
        >= estimate(request).kv_tokens
    )

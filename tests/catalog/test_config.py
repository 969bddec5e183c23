"""config.json of each family and each number format, and what a malformed one is told."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.catalog.config import architecture_from_config
from shardwright.catalog.errors import CatalogError
from shardwright.catalog.quantization import named
from shardwright.catalog.types import AttentionKind, NumberFormat

BASE = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
MLA = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}


def parse(weight_bytes=None, **changes):
    return architecture_from_config("a/b", {**BASE, **changes}, weight_bytes)


def compressed(**weights):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}},
        "ignore": ["lm_head"],
    }


@pytest.mark.parametrize(
    ("config", "found", "block", "group"),
    [
        ({"quant_method": "fp8"}, NumberFormat.FP8, None, None),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, NumberFormat.FP8_BLOCK, (128, 128), None),
        ({"quant_method": "fbgemm_fp8"}, NumberFormat.FP8, None, None),
        (compressed(num_bits=8, type="float", strategy="channel"), NumberFormat.FP8, None, None),
        (compressed(num_bits=8, type="int", strategy="channel"), NumberFormat.INT8, None, None),
        (compressed(num_bits=4, type="int", strategy="group", group_size=64), NumberFormat.INT4, None, 64),
        (
            compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16),
            NumberFormat.NVFP4,
            None,
            16,
        ),
        (
            compressed(num_bits=8, type="float", strategy="block", block_structure=[64, 64]),
            NumberFormat.FP8_BLOCK,
            (64, 64),
            None,
        ),
        ({"quant_method": "compressed-tensors", "format": "int-quantized"}, NumberFormat.INT8, None, None),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, NumberFormat.AWQ, None, 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, NumberFormat.GPTQ, None, None),
        ({"quant_method": "gptq", "bits": 8}, NumberFormat.INT8, None, 128),
        ({"quant_method": "mxfp4"}, NumberFormat.MXFP4, None, 32),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, NumberFormat.INT4, None, 32),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, NumberFormat.INT8, None, None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, NumberFormat.NVFP4, None, 16),
        ({"quant_algo": "FP8"}, NumberFormat.FP8, None, None),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, NumberFormat.UNKNOWN, None, None),
        ({"quant_method": "hqq"}, NumberFormat.UNKNOWN, None, None),
    ],
)
def test_number_formats(config, found, block, group):
    model = parse(quantization_config=config)
    assert (model.quantization.format, model.quantization.block, model.quantization.group_size) == (
        found, block, group,
    )  # fmt: skip
    assert bool(model.unpredicted) is (found is NumberFormat.UNKNOWN)


def test_an_unknown_format_is_predictable_from_weight_bytes():
    model = parse(weight_bytes=123, quantization_config={"quant_method": "hqq"})
    assert not model.unpredicted
    assert model.weights_from_checkpoint
    assert model.checkpoint_bytes == 123


def test_nested_text_config_with_vision():
    inner = {**BASE, "model_type": "qwen3_vl_text"}
    inner.pop("torch_dtype")
    model = architecture_from_config(
        "a/b",
        {
            "model_type": "qwen3_vl",
            "text_config": inner,
            "vision_config": {
                "hidden_size": 1024,
                "depth": 24,
                "intermediate_size": 4096,
                "out_hidden_size": 1024,
            },
            "tie_word_embeddings": True,
            "dtype": "bfloat16",
        },
        None,
    )
    assert model.multimodal
    assert model.tie_word_embeddings
    assert model.family == "qwen3_vl_text"
    assert 0.5e9 < model.tower_bytes < 1.5e9
    assert model.rotary_cache_positions == 4 * 8192


@pytest.mark.parametrize(
    ("changes", "experts", "top_k", "width", "shared", "dense", "step"),
    [
        ({"model_type": "qwen3_moe", **MOE}, 8, 2, 512, 0, 0, 1),
        ({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}, 8, 2, 4096, 0, 0, 1),
        ({"model_type": "gpt_oss", "num_local_experts": 32, "experts_per_token": 4}, 32, 4, 4096, 0, 0, 1),
        (
            {
                "model_type": "deepseek_v3", "n_routed_experts": 64, "num_experts_per_tok": 6,
                "moe_intermediate_size": 1408, "n_shared_experts": 2, "first_k_dense_replace": 1, **MLA,
            },
            64, 6, 1408, 2816, 1, 1,
        ),
        ({"model_type": "qwen2_moe", **MOE, "shared_expert_intermediate_size": 99}, 8, 2, 512, 99, 0, 1),
        ({"model_type": "x", **MOE, "moe_layer_freq": [0, 0, 1, 1]}, 8, 2, 512, 0, 2, 1),
        ({"model_type": "x", **MOE, "decoder_sparse_step": 2}, 8, 2, 512, 0, 0, 2),
    ],
)  # fmt: skip
def test_experts(changes, experts, top_k, width, shared, dense, step):
    moe = parse(**changes).moe
    assert moe is not None
    assert (moe.num_experts, moe.experts_per_token, moe.expert_intermediate_size) == (experts, top_k, width)
    assert (moe.shared_intermediate_size, moe.dense_layers, moe.moe_layer_step) == (shared, dense, step)


def test_attention_kinds():
    windows = ["sliding_attention", "full_attention"] * 2
    hybrid = parse(model_type="gpt_oss", sliding_window=128, layer_types=windows)
    assert hybrid.attention is AttentionKind.SLIDING_HYBRID
    assert hybrid.num_full_attention_layers == 2
    pattern = parse(model_type="gemma3_text", sliding_window=128, sliding_window_pattern=4)
    assert (pattern.attention, pattern.num_full_attention_layers) == (AttentionKind.SLIDING_HYBRID, 1)
    assert parse(model_type="gemma2", sliding_window=128).attention is AttentionKind.FULL
    assert parse(sliding_window=128, use_sliding_window=False).attention is AttentionKind.FULL
    assert parse(**MLA).attention is AttentionKind.MLA


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, AttentionKind.STATE_HYBRID),
        ({"hybrid_override_pattern": "M*M*"}, AttentionKind.STATE_HYBRID),
        ({"attn_type_list": [0, 1, 1, 1]}, AttentionKind.STATE_HYBRID),
        ({"compress_ratios": [1, 4, 4, 4]}, AttentionKind.OTHER),
        ({"attention_chunk_size": 8192}, AttentionKind.OTHER),
        ({"layer_types": ["conv"] * 3 + ["full_attention"]}, AttentionKind.STATE_HYBRID),
        ({"is_encoder_decoder": True}, AttentionKind.FULL),
    ],
)
def test_what_is_not_modelled_is_said(changes, kind):
    model = parse(**changes)
    assert model.attention is kind
    assert model.unpredicted


def test_gpt2_names():
    model = architecture_from_config(
        "gpt2",
        {
            "model_type": "gpt2",
            "n_layer": 12,
            "n_embd": 768,
            "n_head": 12,
            "vocab_size": 50257,
            "n_positions": 1024,
        },
        None,
    )
    assert (model.intermediate_size, model.num_kv_heads, model.gated_mlp) == (3072, 12, False)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"hidden_size": 1000}, "head_dim"),
        ({"hidden_size": "big"}, "hidden_size"),
        ({"quantization_config": []}, "quantization_config"),
        ({"quantization_config": {"quant_method": 7}}, "quantization_config.quant_method"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}}, "quantization_config.weight_block_size"),
        ({"num_experts": 8}, "num_experts_per_tok"),
        ({**MOE, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"kv_lora_rank": 512}, "qk_nope_head_dim"),
        ({"torch_dtype": 16}, "torch_dtype"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"max_position_embeddings": 1.5}, "max_position_embeddings"),
    ],
)  # fmt: skip
def test_malformed_config_names_the_field(changes, field):
    with pytest.raises(CatalogError) as refused:
        parse(**changes)
    assert refused.value.field == field
    assert refused.value.message


def test_not_an_object():
    with pytest.raises(CatalogError, match=r"config\.json"):
        architecture_from_config("a/b", [1], None)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("fp8", NumberFormat.FP8), ("compressed-tensors fp8-dynamic", NumberFormat.FP8), ("AWQ", NumberFormat.AWQ),
        ("compressed-tensors w8a8", NumberFormat.INT8), ("w4a16", NumberFormat.INT4), ("MXFP4", NumberFormat.MXFP4),
        ("modelopt nvfp4", NumberFormat.NVFP4), ("auto_round int4", NumberFormat.GPTQ), ("fp8 (fbgemm)", NumberFormat.FP8),
    ],
)  # fmt: skip
def test_names_of_formats(name, found):
    assert named(name).format is found


def test_names_that_leave_the_checkpoint_as_it_is():
    assert all(named(name) is None for name in ("None", "bfloat16", "float16", "bf16", "compressed-tensors"))
    with pytest.raises(CatalogError, match="quantization"):
        named("fp3")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)
KEYS = [
    *BASE, *MOE, *MLA, "head_dim", "layer_types", "sliding_window", "use_sliding_window", "quantization_config",
    "text_config", "vision_config", "rope_scaling", "attn_type_list", "first_k_dense_replace", "moe_layer_freq",
    "tie_word_embeddings", "partial_rotary_factor", "n_shared_experts", "mlp_only_layers", "multi_query",
]  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
def test_any_config_is_read_or_refused_by_name(changes):
    with suppress(CatalogError):
        model = architecture_from_config("a/b", {**BASE, **changes}, None)
        assert model.num_attention_heads % model.num_kv_heads == 0


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.sampled_from(["quant_method", "bits", "group_size", "config_groups", "weight_block_size",
                                        "quant_algo", "ignore", "load_in_4bit", "format"]),
                       JSON | st.sampled_from(["fp8", "awq", "gptq", "compressed-tensors", "bitsandbytes", "modelopt"]),
                       max_size=5))  # fmt: skip
def test_any_quantization_is_read_or_refused_by_name(config):
    field = "quantization_config"
    try:
        parse(quantization_config=config)
    except CatalogError as refused:
        field = refused.field
    assert field.startswith("quantization_config")

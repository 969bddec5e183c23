"""Modules that a quantised checkpoint leaves in 16 bit, as configs list them."""

import pytest

from shardwright.catalog.config import architecture_from_config
from shardwright.catalog.types import NumberFormat, Quantization
from shardwright.planner.types import Parallelism
from shardwright.planner.unquantized import KINDS, kept_layers
from shardwright.planner.weights import checkpoint_bytes, stage_bytes, stages

LAYERS = range(8)
DENSE = {
    "model_type": "llama", "num_hidden_layers": 126, "hidden_size": 16384, "intermediate_size": 53248,
    "num_attention_heads": 128, "num_key_value_heads": 16, "vocab_size": 128256,
    "max_position_embeddings": 131072,
}  # fmt: skip


def kept(*names, found=NumberFormat.FP8):
    quantized = Quantization(format=found, unquantized_modules=names)
    return {kind: kept_layers(quantized, kind, LAYERS) for kind in KINDS}


@pytest.mark.parametrize(
    ("names", "layers"),
    [
        (("lm_head", "model.embed_tokens"), {}),
        (("re:.*self_attn.*",), {"attention": 8}),
        (("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.o_proj"), {"attention": 1}),
        (("model.layers.0.mlp.gate", "model.layers.7.mlp.shared_expert_gate"), {}),
        (("model.layers.3.mlp.down_proj", "model.layers.5.mlp.gate_proj"), {"mlp": 2}),
        (("model.layers.2.mlp.experts.11.gate_proj",), {"experts": 1}),
        (("re:.*mlp\\.(gate|up|gate_up|down)_proj.*",), {"mlp": 8}),
        (("*shared_experts*",), {"shared": 8}),
        (("model.layers.0*", "re:model\\.layers\\.1\\..*"), dict.fromkeys(KINDS, 2)),
        (("model.layers.4.mlp",), {"mlp": 1, "shared": 1, "experts": 1}),
        (("model.layers.61.self_attn.q_proj", "model.layers.61*"), {}),
        (("model.visual.blocks.0.attn.qkv", "vision_tower.encoder.layers.0.self_attn"), {}),
        (("mtp.layers.0.self_attn.q_proj", "mtp*"), {}),
    ],
)
def test_names_mean_kinds_and_layers(names, layers):
    assert kept(*names) == {kind: layers.get(kind, 0) for kind in KINDS}


def test_mxfp4_checkpoints_hold_experts_only():
    assert kept(found=NumberFormat.MXFP4) == {"attention": 8, "mlp": 8, "shared": 8, "experts": 0}


def test_first_and_last_layer_of_the_405b_in_16_bit():
    """57.752 GiB a rank of 8 were loaded (vllm-project/vllm#6746): attention and two MLPs stay in 16 bit."""
    names = [f"model.layers.{layer}.self_attn.{part}_proj" for layer in range(126) for part in "qkvo"]
    names += [
        f"model.layers.{layer}.mlp.{part}_proj" for layer in (0, 125) for part in ("gate", "up", "down")
    ]
    config = {**DENSE, "quantization_config": {"quant_method": "fbgemm_fp8", "modules_to_not_convert": names}}
    model = architecture_from_config("meta/405b", config, None)
    loaded = stage_bytes(model, Parallelism(tensor=8), stages(126, 1)[0], amd=False) / 2**30
    assert loaded == pytest.approx(57.752, rel=0.003)


def test_a_layer_outside_the_stage_changes_nothing_in_it():
    names = ["model.layers.0.mlp.down_proj"]
    plain = architecture_from_config("a/b", {**DENSE, "quantization_config": {"quant_method": "fp8"}}, None)
    config = {**DENSE, "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": names}}
    model = architecture_from_config("a/b", config, None)
    first, last = stages(126, 2)
    split = Parallelism(pipeline=2)
    assert stage_bytes(model, split, last, amd=False) == stage_bytes(plain, split, last, amd=False)
    assert stage_bytes(model, split, first, amd=False) > stage_bytes(plain, split, first, amd=False)
    mlp = 3 * 16384 * 53248
    assert checkpoint_bytes(model) - checkpoint_bytes(plain) == pytest.approx(mlp, rel=0.001)

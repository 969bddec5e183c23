"""The catalogue's models: every row is read, wrong rows are refused by name, dimensions agree with checkpoints."""

import json
import statistics
from importlib import resources

import pytest

from shardwright.catalog.errors import CatalogError
from shardwright.catalog.models import incomplete_models, load_models, parse_models, unknown_model_message
from shardwright.planner.weights import checkpoint_bytes

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}

# Checkpoints whose files hold more than vLLM loads, or whose bytes are what the model takes its weights from.
HOLDS_MORE = {
    "deepseek-ai/DeepSeek-R1-0528": "multi-token-prediction layer",
    "deepseek-ai/DeepSeek-V3-0324": "multi-token-prediction layer",
    "deepseek-ai/DeepSeek-V3.2": "multi-token-prediction layer",
    "zai-org/GLM-5.2-FP8": "multi-token-prediction layer",
    "mistralai/Mistral-Large-3-675B-Instruct-2512": "vision tower without stated dimensions",
}


def row(**changes):
    return {"id": "a/b", "source": "a test", "config": {**LLAMA, **changes}}


def test_every_row_is_known_or_says_what_is_missing():
    raw = json.loads(
        resources.files("shardwright.catalog").joinpath("data", "models.json").read_text(encoding="utf-8")
    )
    assert len(raw) >= 233
    assert set(load_models()) | set(incomplete_models()) == {item["id"] for item in raw}
    assert all(item["source"] for item in raw)
    assert all(reason for reason in incomplete_models().values())


def test_catalogue_is_read_once():
    assert load_models() is load_models()


def test_dimensions_agree_with_stated_checkpoints():
    errors = {
        model.model_id: checkpoint_bytes(model) / model.checkpoint_bytes - 1
        for model in load_models().values()
        if model.checkpoint_bytes and not model.weights_from_checkpoint
    }
    assert len(errors) >= 40
    assert statistics.median(abs(error) for error in errors.values()) < 0.0005
    off = {name: round(error, 4) for name, error in errors.items() if abs(error) > 0.002}
    assert set(off) <= set(HOLDS_MORE), off
    assert all(-0.03 < error < 0 for error in off.values())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_attention_heads": None}, "num_attention_heads"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"vocab_size": -1}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
    ],
)
def test_wrong_row_is_refused_with_row_and_field(change, field):
    with pytest.raises(CatalogError) as refused:
        parse_models([row(), {**row(**change), "id": "c/d"}])
    assert "models.json[1] (c/d)" in refused.value.field
    assert refused.value.field.endswith(field)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "models.json"),
        ([7], "models.json[0]"),
        ([{"id": "a/b", "config": LLAMA}], "models.json[0].source"),
        ([{"id": "a/b", "source": "s"}], "models.json[0].config"),
        ([row(), row()], "models.json[1].id"),
        ([{**row(), "weights_from_checkpoint": True}], "models.json[0].weights_from_checkpoint"),
    ],
)
def test_wrong_file_is_refused(data, field):
    with pytest.raises(CatalogError) as refused:
        parse_models(data)
    assert refused.value.field == field


def test_unknown_model_names_the_nearest():
    assert "meta-llama/Llama-3.1-8B-Instruct" in unknown_model_message("meta-llama/Llama-3.1-8B-instruct")
    assert "known by name only" in unknown_model_message("Qwen/Qwen3.8-27B")

"""A Hugging Face config.json, as the facts that memory, latency and legality depend on.

Decides which key of which family holds a dimension, what kind of attention a model has, and what about it
cannot be predicted. The catalogue's own rows go through the same function. Never downloads anything and never
invents a dimension: what is missing is an error that names the field.
"""

from collections.abc import Mapping
from dataclasses import replace

from shardwright.catalog import quantization
from shardwright.catalog.errors import CatalogError
from shardwright.catalog.experts import experts
from shardwright.catalog.fields import Fields, kind, rows
from shardwright.catalog.types import (
    AttentionKind,
    MLAArchitecture,
    ModelArchitecture,
    NumberFormat,
    Quantization,
)

_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
_TOWERS = ("vision_config", "audio_config", "vision_tower_config", "vit_config")
_STATE_KEYS = (
    "hybrid_override_pattern", "layers_block_type", "ssm_state_size", "mamba_num_heads", "mamba_d_state",
    "linear_num_value_heads", "linear_attn_config", "full_attention_interval",
)  # fmt: skip
_STATE_FAMILIES = frozenset({
    "mamba", "mamba2", "jamba", "nemotron_h", "bamba", "falcon_h1", "falcon_mamba", "rwkv", "kimi_linear",
    "lfm2", "lfm2_moe", "zamba2", "plamo2", "granitemoehybrid", "qwen3_next",
})  # fmt: skip
_UNGATED = frozenset({
    "phi", "gpt2", "opt", "gpt_neox", "gptj", "gpt_bigcode", "falcon", "bloom", "mpt", "starcoder2",
    "nemotron",
})  # fmt: skip
_FULL_DESPITE_WINDOW = frozenset(
    {"gemma2", "mistral", "phi3", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "mixtral"}
)
"""Gemma-2 starts with the tokens of full attention (measured); the others use one kind of layer or switch it
off."""
GEMMA3_PATCHES = 4096
"""Position embeddings of Gemma-3's tower: (896 / 14) squared."""
_BIASED = frozenset({"qwen2", "qwen2_moe", "qwen2_5_vl_text", "gpt_oss", "phi", "gpt2", "opt", "starcoder2"})


def architecture_from_config(
    model_id: str, config: Mapping[str, object], weight_bytes: int | None
) -> ModelArchitecture:
    """Return the architecture a config.json describes.

    `weight_bytes`: sum of the checkpoint's weight files; when given, weights are taken from it instead of the
    dimensions. Raises CatalogError naming the field that is missing, of the wrong kind or impossible.
    """
    top = Fields(config)
    text = _language_model(top)
    family = text.text("model_type", top.text("model_type", "unknown"))
    heads = text.integer("num_attention_heads", "n_head", "n_heads", high=4096)
    hidden = text.integer("hidden_size", "n_embd", "d_model", "dim", high=1 << 20)
    layers = text.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers", high=4096)
    moe = experts(text, family, layers)
    mla = _mla(text)
    attention, window, full = _attention(text, family, layers, mla)
    checkpoint = _quantization(top, text)
    found = ModelArchitecture(
        model_id=model_id,
        family=family,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=_intermediate(text, hidden, moe.expert_intermediate_size if moe else None),
        num_attention_heads=heads,
        num_kv_heads=_kv_heads(text, heads),
        head_dim=_head_dim(text, hidden, heads),
        vocab_size=_either(top, text, "vocab_size", "padded_vocab_size"),
        max_position_embeddings=_context(top, text),
        attention=attention,
        sliding_window=window,
        num_full_attention_layers=full,
        moe=moe,
        mla=mla,
        quantization=checkpoint,
        checkpoint_bytes=weight_bytes,
        weights_from_checkpoint=weight_bytes is not None,
        unpredicted=(
            *_unpredicted(attention, checkpoint, weight_bytes, family),
            *_encoder_decoder(top),
        ),
        source="config.json",
    )
    return _with_details(found, top, text)


def _language_model(top: Fields) -> Fields:
    """Return the object of the language model: the config itself, or one nested in it."""
    text = next((inner for key in _TEXT if (inner := top.inside(key)) is not None), top)
    deeper = None if text is top else text.inside("text_config")
    return text if deeper is None else deeper


def _with_details(found: ModelArchitecture, top: Fields, text: Fields) -> ModelArchitecture:
    """Add what changes weights by little: tied matrices, biases, rotary cache, tower."""
    family, hidden = found.family, found.hidden_size
    return replace(
        found,
        tie_word_embeddings=_tied(top, text, family),
        multimodal=any(top.data.get(key) is not None for key in _TOWERS),
        gated_mlp=family not in _UNGATED,
        attention_bias=text.flag("attention_bias", default=family in _BIASED),
        rotary_dim=_rotary_dim(text, hidden, found.num_attention_heads),
        rotary_cache_positions=_rotary_positions(top, text),
        tower_bytes=sum(_tower_bytes(top, key, hidden, family) for key in _TOWERS),
    )


def _either(top: Fields, text: Fields, *keys: str) -> int:
    found = text.optional_integer(*keys)
    return found if found is not None else top.integer(*keys)


def _intermediate(text: Fields, hidden: int, expert: int | None) -> int:
    found = text.optional_integer(
        "intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"
    )
    if found is not None:
        return found
    if expert is not None:
        return expert
    if text.find("n_embd") is not None:
        return 4 * hidden  # GPT-2's own default where n_inner is null
    raise CatalogError(text.name("intermediate_size"), "is missing: copy it from the model's config.json")


def _kv_heads(text: Fields, heads: int) -> int:
    if text.flag("multi_query", default=False):
        return 1
    kv = (
        text.optional_integer("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", high=4096)
        or heads
    )
    if heads % kv:
        raise CatalogError(
            text.name("num_key_value_heads"),
            f"must divide num_attention_heads ({heads}), which {kv} does not",
        )
    return kv


def _head_dim(text: Fields, hidden: int, heads: int) -> int:
    found = text.optional_integer("head_dim", "attention_head_dim", high=4096)
    if found is not None:
        return found
    if hidden % heads:
        raise CatalogError(
            text.name("head_dim"),
            f"is missing, and hidden_size {hidden} is no multiple of {heads} heads: add it",
        )
    return hidden // heads


def _context(top: Fields, text: Fields) -> int:
    keys = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length")
    return _either(top, text, *keys)


def _tied(top: Fields, text: Fields, family: str) -> bool:
    default = family.startswith("gemma")
    return text.flag("tie_word_embeddings", default=top.flag("tie_word_embeddings", default=default))


def _rope(text: Fields) -> Fields | None:
    return text.inside("rope_scaling") or text.inside("rope_parameters")


def _rotary_dim(text: Fields, hidden: int, heads: int) -> int | None:
    share = text.optional_number("partial_rotary_factor", "rotary_pct", high=1.0)
    if share is None:
        return text.optional_integer("rotary_dim")
    return int(_head_dim(text, hidden, heads) * share)


def _rotary_positions(top: Fields, text: Fields) -> int | None:
    """Positions of the rotary cache where there are more than the context.

    Linear scaling keeps factor times the context, the vision variants of Qwen four times it, and Gemma-3 a
    second cache for its windowed layers (vLLM's rotary embedding classes; Gemma-3-4B 8.58 GiB measured, 8.57
    so).
    """
    family = text.text("model_type", "")
    if "_vl" in family and family.startswith("qwen"):
        return 4 * _context(top, text)
    scaling = _rope(text)
    if scaling is None or scaling.text("rope_type", scaling.text("type", "default")) != "linear":
        return None
    factor = scaling.optional_number("factor", low=1.0, high=1024.0) or 1.0
    second = 1.0 if family.startswith("gemma3") else 0.0
    return int(_context(top, text) * (factor + second))


def _mla(text: Fields) -> MLAArchitecture | None:
    rank = text.optional_integer("kv_lora_rank")
    if rank is None:
        return None
    return MLAArchitecture(
        kv_lora_rank=rank,
        q_lora_rank=text.optional_integer("q_lora_rank"),
        qk_nope_head_dim=text.integer("qk_nope_head_dim"),
        qk_rope_head_dim=text.integer("qk_rope_head_dim"),
        v_head_dim=text.integer("v_head_dim"),
        index_heads=text.optional_integer("index_n_heads") or 0,
        index_head_dim=text.optional_integer("index_head_dim") or 0,
    )


def _attention(
    text: Fields, family: str, layers: int, mla: MLAArchitecture | None
) -> tuple[AttentionKind, int | None, int | None]:
    """Kind of attention, window and count of full-attention layers (the last two for sliding hybrids)."""
    kinds = _layer_types(text, layers)
    if _has_state(text, family, kinds):
        return AttentionKind.STATE_HYBRID, None, None
    if _unmodelled_cache(text, family, kinds):
        return AttentionKind.OTHER, None, None
    if mla is not None:
        return AttentionKind.MLA, None, None
    window = text.optional_integer("sliding_window", low=0)
    if not window or family in _FULL_DESPITE_WINDOW or not text.flag("use_sliding_window", default=True):
        return AttentionKind.FULL, None, None
    full = _full_layers(text, layers, kinds)
    if full in {0, layers}:
        return AttentionKind.FULL, None, None
    return AttentionKind.SLIDING_HYBRID, window, full


def _layer_types(text: Fields, layers: int) -> tuple[str, ...]:
    kinds = text.texts("layer_types")
    if kinds and len(kinds) != layers:
        raise CatalogError(text.name("layer_types"), f"has {len(kinds)} entries for {layers} layers")
    return kinds


def _full_layers(text: Fields, layers: int, kinds: tuple[str, ...]) -> int:
    if kinds:
        return sum(kind_ == "full_attention" for kind_ in kinds)
    pattern = text.optional_integer("sliding_window_pattern", "_sliding_window_pattern", high=4096)
    return layers // pattern if pattern else layers


def _has_state(text: Fields, family: str, kinds: tuple[str, ...]) -> bool:
    if family in _STATE_FAMILIES or text.find(*_STATE_KEYS) is not None:
        return True
    if any(word in kind_ for kind_ in kinds for word in ("linear", "mamba", "recurrent", "conv")):
        return True
    pattern = text.data.get("attn_type_list")
    return pattern is not None and any(item != 1 for item in rows(pattern, text.name("attn_type_list")))


def _unmodelled_cache(text: Fields, family: str, kinds: tuple[str, ...]) -> bool:
    if text.find(
        "compress_ratios",
        "attention_chunk_size",
        "global_head_dim",
        "swa_num_key_value_heads",
        "block_configs",
    ):
        return True
    if family in {"minimax_m3", "nemotron-nas", "gemma3n", "gemma4_text", "deepseek_v4"}:
        return True
    return any("chunked" in kind_ or "compressed" in kind_ for kind_ in kinds)


def _quantization(top: Fields, text: Fields) -> Quantization:
    found = top.inside("quantization_config") or text.inside("quantization_config")
    if found is not None:
        return quantization.parse(found)
    dtype = text.find("torch_dtype", "dtype") or top.find("torch_dtype", "dtype")
    if dtype is not None and not isinstance(dtype[1], str):
        raise CatalogError(text.name(dtype[0]), f"must be a text such as bfloat16, not {kind(dtype[1])}")
    return quantization.plain(None if dtype is None else str(dtype[1]))


def _tower_bytes(top: Fields, key: str, hidden: int, family: str) -> int:
    """Bytes of a tower in 16 bit: attention, MLP, embeddings and projector, from its own dimensions."""
    tower = top.inside(key)
    if tower is None:
        return 0
    width = tower.optional_integer("hidden_size", "d_model", "embed_dim", "width", "vt_hidden_size")
    depth = tower.optional_integer(
        "num_hidden_layers", "depth", "encoder_layers", "layers", "vt_num_hidden_layers", low=1, high=1024
    )
    if width is None or depth is None:
        return 0  # its weight is then only in the checkpoint's bytes
    inner = (
        tower.optional_integer("intermediate_size", "encoder_ffn_dim", "vt_intermediate_size") or 4 * width
    )
    gated = tower.text("model_type", "") in {"pixtral", "qwen2_5_vl"} or tower.flag("gated", default=False)
    parameters = depth * (4 * width * width + (3 if gated else 2) * width * inner)
    merged = 4 * width  # a projector that merges 2 x 2 patches, then maps them to the language model's width
    if tower.find("out_hidden_size") is not None:
        taps = 4 if "qwen3_vl" in family else 1  # Qwen3-VL also maps three middle layers
        parameters += taps * (merged * merged + merged * hidden)
    elif family.startswith("gemma3"):
        parameters += width * hidden + GEMMA3_PATCHES * width
    else:
        parameters += width * hidden + hidden * hidden
    return 2 * parameters


def _encoder_decoder(top: Fields) -> tuple[str, ...]:
    if top.flag("is_encoder_decoder", default=False):
        return ("it has an encoder with its own cross-attention cache, not modelled",)
    return ()


def _unpredicted(
    attention: AttentionKind, checkpoint: Quantization, weight_bytes: int | None, family: str
) -> tuple[str, ...]:
    found = []
    if attention is AttentionKind.STATE_HYBRID:
        found.append(
            f"{family} keeps recurrent state (Mamba or gated delta layers) beside its KV cache, not modelled"
        )
    if attention is AttentionKind.OTHER:
        found.append(
            f"{family} has compressed, chunked or mixed-width attention, whose cache is not modelled"
        )
    if checkpoint.format is NumberFormat.UNKNOWN and weight_bytes is None:
        method = checkpoint.method or "not stated"
        found.append(f"number format {method!r} is not known: give the checkpoint's weight bytes")
    return tuple(found)

"""What a checkpoint's quantization_config says, as a number format.

Decides the format, its block or group, and which modules stay in 16 bit. Never guesses: a method that is not
known here is `Unknown`, and its memory then needs the checkpoint's bytes.
"""

import re

from shardwright.catalog.errors import CatalogError
from shardwright.catalog.fields import Fields, rows
from shardwright.catalog.types import NumberFormat, Quantization

_DTYPES = {
    "bfloat16": NumberFormat.BF16,
    "float16": NumberFormat.FP16,
    "half": NumberFormat.FP16,
    "float32": NumberFormat.FP32,
}
_FIXED = {
    "mxfp4": NumberFormat.MXFP4,
    "gpt_oss_mxfp4": NumberFormat.MXFP4,
    "modelopt_fp4": NumberFormat.NVFP4,
    "fbgemm_fp8": NumberFormat.FP8,
    "ptpc_fp8": NumberFormat.FP8,
}
_GROUPED = {
    "awq": NumberFormat.AWQ,
    "awq_marlin": NumberFormat.AWQ,
    "gptq": NumberFormat.GPTQ,
    "gptq_marlin": NumberFormat.GPTQ,
    "auto-round": NumberFormat.GPTQ,
    "auto_round": NumberFormat.GPTQ,
}
_MODELOPT = {
    "FP8": NumberFormat.FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": NumberFormat.FP8,
    "FP8_PB_WO": NumberFormat.FP8_BLOCK,
    "NVFP4": NumberFormat.NVFP4,
    "NVFP4_AWQ": NumberFormat.NVFP4,
    "W4A16_AWQ": NumberFormat.AWQ,
    "INT4_AWQ": NumberFormat.AWQ,
    "INT8_SQ": NumberFormat.INT8,
}
_IGNORED = ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules", "llm_int8_skip_modules")
DEFAULT_GROUP = 128
"""Group of AWQ, GPTQ and w4a16 checkpoints when the config does not say; what their tools write by
default."""
FP8_BLOCK = (128, 128)


def plain(dtype: str | None) -> Quantization:
    """Return the format of an unquantised checkpoint; BF16 when its dtype is not stated."""
    name = (dtype or "bfloat16").removeprefix("torch.")
    return Quantization(format=_DTYPES.get(name, NumberFormat.UNKNOWN), method=name)


def parse(fields: Fields) -> Quantization:
    """Return the format in a `quantization_config`. Raises CatalogError for a value of the wrong kind."""
    method = _method(fields)
    ignored = tuple(name for key in _IGNORED for name in fields.texts(key))
    if method == "fp8":
        return _fp8(fields, method, ignored)
    if method == "compressed-tensors":
        return _compressed_tensors(fields, ignored)
    if method.startswith("modelopt") and method not in _FIXED:
        return _modelopt(fields, method, ignored)
    if method == "bitsandbytes":
        return _bitsandbytes(fields, ignored)
    if method in _GROUPED:
        return _grouped(fields, method, ignored)
    found = _FIXED.get(method, NumberFormat.UNKNOWN)
    group = {NumberFormat.MXFP4: 32, NumberFormat.NVFP4: 16}.get(found)
    return Quantization(format=found, method=method, group_size=group, unquantized_modules=ignored)


def _method(fields: Fields) -> str:
    if fields.data.get("quant_method") is None and fields.find("quant_algo") is not None:
        return "modelopt"
    return fields.text("quant_method").lower()


def _fp8(fields: Fields, method: str, ignored: tuple[str, ...]) -> Quantization:
    block = _block(fields, "weight_block_size")
    return Quantization(
        format=NumberFormat.FP8_BLOCK if block else NumberFormat.FP8,
        method=method,
        block=block,
        unquantized_modules=ignored,
    )


def _block(fields: Fields, key: str) -> tuple[int, int] | None:
    value = fields.data.get(key)
    if value is None:
        return None
    sizes = rows(value, fields.name(key))
    counts = [size for size in sizes if type(size) is int and 0 < size <= 1 << 20]
    if len(sizes) != 2 or len(counts) != 2:
        raise CatalogError(fields.name(key), "must be two whole numbers, such as [128, 128]")
    return counts[0], counts[1]


def _modelopt(fields: Fields, method: str, ignored: tuple[str, ...]) -> Quantization:
    algorithm = fields.text("quant_algo", "").upper()
    found = _MODELOPT.get(algorithm, NumberFormat.UNKNOWN)
    group = fields.optional_integer("group_size") or {NumberFormat.NVFP4: 16, NumberFormat.AWQ: 128}.get(
        found
    )
    return Quantization(
        format=found,
        method=f"{method} {algorithm}".strip(),
        block=FP8_BLOCK if found is NumberFormat.FP8_BLOCK else None,
        group_size=group,
        unquantized_modules=ignored,
    )


def _bitsandbytes(fields: Fields, ignored: tuple[str, ...]) -> Quantization:
    four = fields.flag("load_in_4bit", default=False) or fields.data.get("_load_in_4bit") is True
    # Block of 64 weights with one absmax: 4 bytes, or about 1 byte when it is quantised again.
    double = fields.flag("bnb_4bit_use_double_quant", default=False)
    method = "bitsandbytes 4-bit" if four else "bitsandbytes 8-bit"
    return Quantization(
        format=NumberFormat.INT4 if four else NumberFormat.INT8,
        method=method,
        group_size=(128 if double else 32) if four else None,
        unquantized_modules=ignored,
    )


def _grouped(fields: Fields, method: str, ignored: tuple[str, ...]) -> Quantization:
    bits = fields.optional_integer("bits", "w_bit", low=2, high=16) or 4
    found = _GROUPED[method]
    if bits == 8:
        found = NumberFormat.INT8
    elif bits != 4:
        found = NumberFormat.UNKNOWN
    group = fields.optional_integer("group_size", "q_group_size", low=-1)
    if group is None:
        group = DEFAULT_GROUP
    return Quantization(
        format=found, method=method, group_size=None if group <= 0 else group, unquantized_modules=ignored
    )


def _compressed_tensors(fields: Fields, ignored: tuple[str, ...]) -> Quantization:
    groups = fields.inside("config_groups")
    shape = fields.text("format", "")
    if groups is None:
        found = {
            "float-quantized": NumberFormat.FP8,
            "int-quantized": NumberFormat.INT8,
            "naive-quantized": NumberFormat.FP8,
            "pack-quantized": NumberFormat.INT4,
            "nvfp4-pack-quantized": NumberFormat.NVFP4,
            "mxfp4-pack-quantized": NumberFormat.MXFP4,
        }.get(shape, NumberFormat.UNKNOWN)
        return Quantization(format=found, method="compressed-tensors", unquantized_modules=ignored)
    formats = {_scheme(Fields(group, groups.name(name)), shape) for name, group in groups.data.items()}
    if len(formats) != 1:
        return Quantization(
            format=NumberFormat.UNKNOWN, method="compressed-tensors (mixed)", unquantized_modules=ignored
        )
    found, group_size, block = formats.pop()
    return Quantization(
        format=found,
        method="compressed-tensors",
        block=block,
        group_size=group_size,
        unquantized_modules=ignored,
    )


def _scheme(group: Fields, shape: str) -> tuple[NumberFormat, int | None, tuple[int, int] | None]:
    weights = group.inside("weights")
    if weights is None:
        return NumberFormat.UNKNOWN, None, None
    bits = weights.integer("num_bits", high=32)
    size = weights.optional_integer("group_size", low=-1)
    size = None if size is not None and size <= 0 else size
    floating = weights.text("type", "int") == "float"
    if weights.text("strategy", "channel") == "block":
        return NumberFormat.FP8_BLOCK, None, _block(weights, "block_structure") or FP8_BLOCK
    if bits == 8:
        return (NumberFormat.FP8 if floating else NumberFormat.INT8), size, None
    if bits != 4:
        return NumberFormat.UNKNOWN, size, None
    if not floating:
        return NumberFormat.INT4, size or DEFAULT_GROUP, None
    if "mxfp4" in (shape or group.text("format", "")):
        return NumberFormat.MXFP4, size or 32, None
    return NumberFormat.NVFP4, size or 16, None


_NAMES = (
    # First match wins; names as vLLM's --quantization, the API's enum and start-up logs spell them.
    ("mxfp4", NumberFormat.MXFP4, 32),
    ("nvfp4", NumberFormat.NVFP4, 16),
    ("modelopt_fp4", NumberFormat.NVFP4, 16),
    ("fp4", NumberFormat.NVFP4, 16),
    ("fp8", NumberFormat.FP8, None),
    ("w8a", NumberFormat.INT8, None),
    ("int8", NumberFormat.INT8, None),
    ("awq", NumberFormat.AWQ, DEFAULT_GROUP),
    ("gptq", NumberFormat.GPTQ, DEFAULT_GROUP),
    ("auto_round", NumberFormat.GPTQ, DEFAULT_GROUP),
    ("autoround", NumberFormat.GPTQ, DEFAULT_GROUP),
    ("w4a", NumberFormat.INT4, DEFAULT_GROUP),
    ("int4", NumberFormat.INT4, DEFAULT_GROUP),
    ("bitsandbytes", NumberFormat.INT4, 128),
    ("bnb", NumberFormat.INT4, 128),
)
_AS_THE_CHECKPOINT = frozenset({
    "none", "auto", "bf16", "bfloat16", "fp16", "float16", "half", "fp32", "float32", "compressed",
    "modelopt", "quark",
})  # fmt: skip
"""Names that say nothing of the weights' bytes beyond what the checkpoint does, by their first word."""


def named(name: str) -> Quantization | None:
    """Return the format that a name such as "fp8" or "w8a8" means; None: as the checkpoint says.

    Raises CatalogError for a name that is not known.
    """
    spelled = name.strip().lower()
    for part, found, group in _NAMES:
        if part in spelled:
            kept = ("self_attn",) if "fbgemm" in spelled else ()
            return Quantization(format=found, method=spelled, group_size=group, unquantized_modules=kept)
    if re.split(r"[^a-z0-9]+", spelled)[0] in _AS_THE_CHECKPOINT:
        return None
    raise CatalogError(
        "quantization",
        f"{name!r} is not known: write fp8, int8, int4, awq, gptq, mxfp4, nvfp4, bitsandbytes",
    )

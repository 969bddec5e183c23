"""What vLLM can run at all: degrees of parallelism, number formats on a GPU, drivers for an image.

Decides with a sentence for every "no". Never weighs memory or speed.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.catalog.types import (
    FORMATS_16BIT,
    FORMATS_FP8,
    FORMATS_INT4,
    EngineClass,
    GPUProduct,
    ModelArchitecture,
    NumberFormat,
    Quantization,
)
from shardwright.planner.types import Parallelism

VOCABULARY_PADDING = 64
"""vLLM pads the vocabulary to a multiple of this before it splits it over the tensor ranks."""
LARGEST_TENSOR = 16
"""The largest group of GPUs in one node that the product table knows."""
DEFAULT_GROUP = 128
"""The group of AWQ and GPTQ checkpoints whose config does not state one: both tools' default."""


def ceil_to(value: int, step: int) -> int:
    """`value` rounded up to a multiple of `step`."""
    return -(-value // step) * step


def quantization_step(architecture: ModelArchitecture) -> int:
    """Weights per quantisation block along a sharded width; 1 when any width will do.

    MXFP4 is 1: vLLM pads those expert widths itself (gpt-oss: 2880 over 4 and 8 ranks runs).
    """
    quantization = architecture.quantization
    match quantization.format:
        case NumberFormat.FP8_BLOCK:
            return max(quantization.block) if quantization.block else DEFAULT_GROUP
        case NumberFormat.AWQ | NumberFormat.GPTQ | NumberFormat.INT4:
            return max(1, quantization.group_size if quantization.group_size is not None else DEFAULT_GROUP)
        case NumberFormat.NVFP4:
            return quantization.group_size or 16
        case _:
            return 1


def _width_problem(name: str, width: int, ranks: int, step: int) -> str:
    if width % ranks:
        return f"{name} {width} does not divide by {ranks}"
    if (width // ranks) % step:
        share = width // ranks
        return (
            f"{name} {width} over {ranks} ranks is {share}, not a multiple of the quantisation block {step}"
        )
    return ""


def _has_dense_mlp(architecture: ModelArchitecture) -> bool:
    moe = architecture.moe
    return moe is None or moe.dense_layers > 0 or moe.moe_layer_step > 1


def _expert_problem(architecture: ModelArchitecture, parallelism: Parallelism) -> str:
    moe = architecture.moe
    if moe is None:
        return "expert parallelism needs a mixture-of-experts model" if parallelism.expert else ""
    # Ranks with own attention split the experts like tensor ranks: vLLM's `flatten_tp_across_dp`.
    step, ranks = quantization_step(architecture), parallelism.ranks
    if parallelism.expert:
        if moe.num_experts % ranks:
            return f"{moe.num_experts} experts do not divide by {ranks}"
    else:
        problem = _width_problem("expert width", moe.expert_intermediate_size, ranks, step)
        if problem:
            return problem
    if moe.shared_intermediate_size:
        return _width_problem("shared expert width", moe.shared_intermediate_size, parallelism.tensor, step)
    return ""


@lru_cache(maxsize=8192)
def illegality(architecture: ModelArchitecture, parallelism: Parallelism) -> str:
    """Say why vLLM refuses this arrangement for this architecture; empty when it is legal.

    Rules: design of this project, section 1; vLLM's own checks are the same (`verify_with_parallel_config`,
    the shape checks of its block-quantised layers).
    """
    tp = parallelism.tensor
    heads, kv_heads = architecture.num_attention_heads, architecture.num_kv_heads
    if parallelism.data > 1 and architecture.moe is None:
        return "data parallelism inside one engine is for mixture-of-experts models: use more replicas"
    if parallelism.pipeline > architecture.num_layers:
        return f"{architecture.num_layers} layers cannot fill {parallelism.pipeline} pipeline stages"
    if heads % tp:
        return f"{heads} attention heads do not divide by {tp}"
    if kv_heads % tp and tp % kv_heads:
        return f"{kv_heads} KV heads neither divide by {tp} nor divide it"
    vocabulary = ceil_to(architecture.vocab_size, VOCABULARY_PADDING)
    if vocabulary % tp:
        return f"the padded vocabulary {vocabulary} does not divide by {tp}"
    if _has_dense_mlp(architecture):
        step = quantization_step(architecture)
        problem = _width_problem("MLP width", architecture.intermediate_size, tp, step)
        if problem:
            return problem
    return _expert_problem(architecture, parallelism)


def is_power_of_two(number: int) -> bool:
    """Whether a degree is 1, 2, 4, 8 and so on: these rank before others."""
    return number & (number - 1) == 0


def tensor_degrees(architecture: ModelArchitecture, largest: int, *, expert: bool = False) -> tuple[int, ...]:
    """Return the legal tensor degrees up to `largest`, powers of two first, each group ascending."""
    legal = [
        tp
        for tp in range(1, largest + 1)
        if not illegality(architecture, Parallelism(tensor=tp, expert=expert and tp > 1))
    ]
    return tuple(sorted(legal, key=lambda tp: (not is_power_of_two(tp), tp)))


@dataclass(frozen=True, slots=True)
class FormatRule:
    """The compute capability that a number format needs, natively and by weight-only kernels."""

    native: tuple[int, int]
    weight_only: tuple[int, int] | None = None
    """Runs from here on with 16-bit arithmetic: the memory is saved, the speed is not."""
    last: tuple[int, int] | None = None
    """The first capability on which vLLM has no kernel any more."""


FORMAT_RULES: dict[NumberFormat, FormatRule] = {
    NumberFormat.BF16: FormatRule((8, 0)),
    NumberFormat.FP16: FormatRule((7, 0)),
    NumberFormat.FP32: FormatRule((7, 0)),
    NumberFormat.FP8: FormatRule((8, 9), weight_only=(7, 5)),
    NumberFormat.FP8_BLOCK: FormatRule((8, 9), weight_only=(8, 0)),
    NumberFormat.INT8: FormatRule((7, 5), last=(10, 0)),
    NumberFormat.INT4: FormatRule((8, 0)),
    NumberFormat.AWQ: FormatRule((7, 5)),
    NumberFormat.GPTQ: FormatRule((7, 5)),
    NumberFormat.MXFP4: FormatRule((10, 0), weight_only=(8, 0)),
    NumberFormat.NVFP4: FormatRule((10, 0), weight_only=(8, 0)),
}
"""NVIDIA. Sources: docs.vllm.ai v0.32.0 features/quantization/llm_compressor/fp8 (FP8: native from 8.9,
Marlin weight-only from 7.5), v0.15.1 features/quantization (AWQ, GPTQ, INT8 from 7.5, Marlin from 8.0); Red
Hat AI 3 supported configurations (no INT8 kernels on Blackwell); vllm-project/vllm#27471 and #30135 (FP4
weight-only by Marlin below 10.0). Weight-only FP4 and block FP8 below 8.0 were not found stated and are taken
as unsupported."""

AMD_FORMATS: dict[str, frozenset[NumberFormat]] = {
    "CDNA3": frozenset(
        {
            NumberFormat.BF16, NumberFormat.FP16, NumberFormat.FP32, NumberFormat.FP8, NumberFormat.FP8_BLOCK,
            NumberFormat.INT8, NumberFormat.MXFP4,
        }
    ),
}  # fmt: skip
"""AMD Instinct MI300 and newer. Sources: docs.vllm.ai v0.32.0 features/quantization/llm_compressor/fp8; Red
Hat AI 3 supported configurations (INT8 on CDNA 3). AWQ, GPTQ, INT4 and NVFP4 have no AMD column there."""

KV_FP8_CAPABILITY = (8, 9)
"""FP8 KV cache: taken as FP8 hardware, which every attention back end accepts."""


@lru_cache(maxsize=4096)
def format_problem(architecture: ModelArchitecture, gpu: GPUProduct) -> str:
    """Say why this GPU cannot run this checkpoint's number format; empty when it can."""
    number_format = architecture.quantization.format
    if number_format is NumberFormat.UNKNOWN:
        method = architecture.quantization.method or "(none stated)"
        return f"the checkpoint's quantisation method {method} is not known"
    if gpu.vendor == "amd":
        ok = number_format in AMD_FORMATS["CDNA3"]
        return "" if ok else f"vLLM has no {number_format.value} kernels for AMD GPUs"
    have = gpu.compute_capability
    if have is None:
        return (
            f"the compute capability of {gpu.label} is not known, so {number_format.value} cannot be judged"
        )
    rule = FORMAT_RULES[number_format]
    floor = min(rule.native, rule.weight_only or rule.native)
    shown = f"{gpu.short_name} has compute capability {have[0]}.{have[1]}"
    if have < floor:
        return f"{shown}; {number_format.value} needs {floor[0]}.{floor[1]}"
    if rule.last is not None and have >= rule.last:
        return f"{shown}; vLLM has no {number_format.value} kernels from {rule.last[0]}.{rule.last[1]} on"
    return ""


def quantizes_at_load(spec: LLMServiceSpec, architecture: ModelArchitecture) -> bool:
    """Whether vLLM quantises this checkpoint to FP8 while it loads: a variant may be quantised already."""
    return bool(spec.model.quantize_at_load) and architecture.quantization.format in FORMATS_16BIT


def load_format_problem(spec: LLMServiceSpec, architecture: ModelArchitecture, gpu: GPUProduct) -> str:
    """Say why this GPU cannot run what model.quantizeAtLoad makes of the checkpoint; empty when it can."""
    if not quantizes_at_load(spec, architecture):
        return ""
    loaded = replace(architecture, quantization=Quantization(format=NumberFormat.FP8))
    problem = format_problem(loaded, gpu)
    return f"model.quantizeAtLoad: {problem}" if problem else ""


def format_note(architecture: ModelArchitecture, gpu: GPUProduct) -> str:
    """Say when a format runs weight-only on this GPU: it saves memory, not arithmetic."""
    rule = FORMAT_RULES.get(architecture.quantization.format)
    have = gpu.compute_capability
    if rule is None or have is None or gpu.vendor == "amd" or have >= rule.native:
        return ""
    return (
        f"{architecture.quantization.format.value} runs weight-only on {gpu.short_name} (compute capability "
        f"{have[0]}.{have[1]}): it saves memory, the arithmetic stays 16 bit"
    )


def kv_fp8_problem(gpu: GPUProduct) -> str:
    """Say why this GPU cannot hold its KV cache in FP8; empty when it can."""
    if gpu.vendor == "amd" or (gpu.compute_capability or (0, 0)) >= KV_FP8_CAPABILITY:
        return ""
    return f"an FP8 KV cache needs compute capability {KV_FP8_CAPABILITY[0]}.{KV_FP8_CAPABILITY[1]}"


CUDA13_SINCE = (0, 20, 0)
"""The default image is built for CUDA 13 from here on (discuss.vllm.ai/t/2601; docker/Dockerfile: 13.0.3)."""
CUDA13_DRIVER, CUDA12_DRIVER = 580, 525
"""NVIDIA, "CUDA Compatibility: minor version compatibility", table 1: CUDA 13.x and 12.x."""
CUDA13_CAPABILITY = (7, 5)
"""CUDA 13 cannot compile for Volta (7.0) any more: NVIDIA, CUDA Toolkit 13.0 release notes."""


def driver_floor(engine: EngineClass) -> int:
    """Return the oldest NVIDIA driver branch that this version's own image runs on."""
    return CUDA13_DRIVER if engine.version >= CUDA13_SINCE else CUDA12_DRIVER


def image_problem(engine: EngineClass, gpu: GPUProduct) -> str:
    """Say why this version's own image cannot run on this GPU at all; empty when it can."""
    have = gpu.compute_capability
    if gpu.vendor == "amd" or have is None or engine.version < CUDA13_SINCE or have >= CUDA13_CAPABILITY:
        return ""
    version = ".".join(map(str, engine.version))
    return (
        f"vLLM {version} images are built with CUDA 13, which has no compute capability "
        f"{have[0]}.{have[1]}: write an "
        "engine.version before 0.20, or an engine.image of your own"
    )


_ASSERTED: dict[str, frozenset[NumberFormat]] = {
    "None": FORMATS_16BIT,
    "FP8": FORMATS_FP8,
    "INT8": frozenset({NumberFormat.INT8}),
    "INT4": FORMATS_INT4,
    "AWQ": frozenset({NumberFormat.AWQ}),
    "GPTQ": frozenset({NumberFormat.GPTQ}),
    "MXFP4": frozenset({NumberFormat.MXFP4}),
    "NVFP4": frozenset({NumberFormat.NVFP4}),
}


def _not_sixteen_bit(architecture: ModelArchitecture) -> Problem | None:
    found = architecture.quantization.format
    if found in FORMATS_16BIT:
        return None
    return Problem(
        reason=Reason.QUANTIZATION_MISMATCH,
        field="spec.model.quantizeAtLoad",
        message=(
            f"model.quantizeAtLoad quantises a 16-bit checkpoint, but {architecture.model_id} is "
            f"{found.value}: remove quantizeAtLoad, or write the id of a 16-bit checkpoint"
        ),
    )


def quantization_mismatch(spec: LLMServiceSpec, architecture: ModelArchitecture) -> Problem | None:
    """Compare what `model.quantization` asserts with what the checkpoint is; None when nothing disagrees."""
    asserted, found = spec.model.quantization, architecture.quantization.format
    if spec.model.quantize_at_load:
        return _not_sixteen_bit(architecture)
    if asserted is None or found in _ASSERTED[asserted]:
        return None
    return Problem(
        reason=Reason.QUANTIZATION_MISMATCH,
        field="spec.model.quantization",
        message=(
            f"model.quantization says {asserted}, but {architecture.model_id} is {found.value}: remove the "
            "field, or "
            f"write the id of a checkpoint that is {asserted}"
        ),
    )

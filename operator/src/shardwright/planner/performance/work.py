"""What one engine step has to move and compute, per GPU.

Decides bytes and floating-point operations of an arrangement from the model's dimensions and the card's data
sheet. Never a time: the efficiencies that turn work into milliseconds are fitted constants.

Sources: the parameter layout and KV rates of the memory model (`planner.weights`, `planner.kv`); a multiply
and an add for each weight and token; the datasheet peaks of the GPU catalogue.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from shardwright.catalog.types import (
    FORMATS_16BIT,
    FORMATS_FP8,
    FORMATS_INT4,
    AttentionKind,
    GPUProduct,
    ModelArchitecture,
    NumberFormat,
    Quantization,
)
from shardwright.planner.kv import layer_bytes
from shardwright.planner.types import Parallelism
from shardwright.planner.weights import SIXTEEN_BIT, read_bytes

BYTES_PER_MS = 1e6
"""Of 1 GB/s."""
FLOP_PER_MS = 1e9
"""Of 1 TFLOP/s."""
PCIE_GENERATIONS_GBYTES_S = {3: 16.0, 4: 32.0, 5: 64.0, 6: 128.0, 7: 256.0}
"""One direction of 16 lanes, GB/s; for a card whose row states no rate."""

_MULTIPLIED_IN_16BIT = FORMATS_16BIT | FORMATS_INT4 | {NumberFormat.UNKNOWN}
_MULTIPLIED_IN_8BIT = FORMATS_FP8 | {NumberFormat.INT8}


class MissingFactError(ValueError):
    """The card's row lacks a figure that a time depends on; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work of one GPU over all layers (of all pipeline stages); bytes, FLOP, and rates for each ms."""

    layers: float
    sparse_layers: float
    """Layers with routed experts."""
    hidden: float
    tensor: float
    common_bytes: float
    head_bytes: float
    expert_bytes: float
    untouched: float
    """Share of experts that one token leaves alone: 1 - top-k / experts; 0 for a dense model."""
    common_flop: float
    """For each token: attention projections, dense MLPs, shared experts."""
    head_flop: float
    """For each token that is sampled."""
    expert_flop: float
    """For each token, in the experts it is routed to."""
    kv_bytes: float
    """For each token of context in layers with full attention."""
    window_bytes: float
    """The same in layers with a sliding window."""
    window_tokens: float
    pair_flop: float
    """Attention of one new token with one token of context, in prefill, layers with full attention."""
    window_pair_flop: float
    decode_pair_flop: float
    """The same in decode, where MLA works on the latent."""
    bandwidth: float
    """Bytes for each ms from the card's memory."""
    compute: float
    """FLOP for each ms in the format of the weights."""
    compute_16bit: float
    link: float
    """Bytes for each ms to the other ranks; of no use at one rank."""


@lru_cache(maxsize=4096)
def work(
    model: ModelArchitecture, gpu: GPUProduct, split: Parallelism, *, fp8_kv: bool, nvlink: bool
) -> Work:
    """Return the work of an arrangement. Raises MissingFactError when the card's row lacks a rate."""
    amd = gpu.vendor == "amd"
    read = read_bytes(model, split, amd=amd)
    plain = read_bytes(replace(model, quantization=Quantization(format=NumberFormat.BF16)), split, amd=False)
    share = model.moe.experts_per_token / model.moe.num_experts if model.moe else 0.0
    full, sliding = _attention_layers(model)
    rate = layer_bytes(model, split.tensor, fp8=fp8_kv)
    prefill_pair, decode_pair = (flop / split.tensor for flop in _pair_flop(model))
    return Work(
        layers=float(model.num_layers),
        sparse_layers=float(read.sparse),
        hidden=float(model.hidden_size),
        tensor=float(split.tensor),
        common_bytes=read.common,
        head_bytes=read.head,
        expert_bytes=read.experts,
        untouched=1.0 - share if share else 0.0,
        common_flop=2 * plain.common / SIXTEEN_BIT,
        head_flop=2 * plain.head / SIXTEEN_BIT,
        expert_flop=2 * plain.experts / SIXTEEN_BIT * share * split.data,
        kv_bytes=full * rate,
        window_bytes=sliding * rate,
        window_tokens=float(model.sliding_window or 0),
        pair_flop=full * prefill_pair,
        window_pair_flop=sliding * prefill_pair,
        decode_pair_flop=full * decode_pair,
        bandwidth=_required(gpu, "memory_gbytes_s", gpu.memory_gbytes_s) * BYTES_PER_MS,
        compute=_compute_tflops(gpu, model.quantization) * FLOP_PER_MS,
        compute_16bit=_required(gpu, "bf16_tflops", gpu.bf16_tflops) * FLOP_PER_MS,
        link=_link_gbytes_s(gpu, nvlink=nvlink) * BYTES_PER_MS,
    )


def _attention_layers(model: ModelArchitecture) -> tuple[int, int]:
    """Return layers with full attention and with a sliding window."""
    hybrid = model.attention is AttentionKind.SLIDING_HYBRID and model.sliding_window is not None
    if not hybrid or model.num_full_attention_layers is None:
        return model.num_layers, 0
    return model.num_full_attention_layers, model.num_layers - model.num_full_attention_layers


def _pair_flop(model: ModelArchitecture) -> tuple[float, float]:
    """Return FLOP of one pair of tokens in one layer, in prefill and in decode.

    Scores and weighted values: 2 + 2 for each head and dimension. MLA multiplies heads in prefill and the
    latent (rank + rope for scores, rank for values) in decode.
    """
    heads = model.num_attention_heads
    if model.mla is None:
        each = 4.0 * heads * model.head_dim
        return each, each
    mla = model.mla
    key = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    return (
        2.0 * heads * (key + mla.v_head_dim),
        2.0 * heads * (2 * mla.kv_lora_rank + mla.qk_rope_head_dim),
    )


def _compute_tflops(gpu: GPUProduct, quantized: Quantization) -> float:
    """Return the peak of the format that the weights are multiplied in."""
    bf16 = _required(gpu, "bf16_tflops", gpu.bf16_tflops)
    if quantized.format in _MULTIPLIED_IN_16BIT:
        return bf16
    if quantized.format in _MULTIPLIED_IN_8BIT:
        return gpu.fp8_tflops or bf16
    return gpu.fp4_tflops or bf16  # four-bit floats without units for them are widened to 16 bit


def _link_gbytes_s(gpu: GPUProduct, *, nvlink: bool) -> float:
    """Return GB/s in one direction to the other ranks."""
    if nvlink and gpu.link_gbytes_s is not None:
        return gpu.link_gbytes_s
    if gpu.pcie_gbytes_s is not None:
        return gpu.pcie_gbytes_s
    if gpu.pcie_generation is not None:
        return PCIE_GENERATIONS_GBYTES_S[gpu.pcie_generation]
    return _required(gpu, "pcie_gbytes_s", None)


def _required(gpu: GPUProduct, name: str, value: float | None) -> float:
    if value is None:
        raise MissingFactError(
            f"{name} of {gpu.short_name} is not in the GPU catalogue: no time can be predicted on it"
        )
    return value

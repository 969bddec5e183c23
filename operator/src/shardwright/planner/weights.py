"""Bytes of weights on one rank.

Decides how the tensors of a checkpoint are split over tensor, pipeline, data and expert parallelism, in which
bytes they are stored, and what the allocator adds. Never decides whether they fit.

Sources: the parameter layout of each family's config.json; vLLM's sharding of linear layers, embeddings and
experts; the CUDA caching allocator's rounding, checked against 100 measured starts (median error 0.03 %).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from shardwright.catalog.engines import start_constants
from shardwright.catalog.types import ModelArchitecture, NumberFormat, Quantization
from shardwright.planner.types import Parallelism
from shardwright.planner.unquantized import kept_layers

MIB = 1 << 20
SIXTEEN_BIT = 2.0
ROUNDED_ABOVE = 10 * MIB
"""The CUDA caching allocator gives a request of at least 10 MiB a segment in steps of 2 MiB and splits off
the rest only when more than 1 MiB would remain (PyTorch, CUDACachingAllocator: kMinLargeAlloc, kRoundLarge,
kSmallSize)."""
VOCAB_PADDING = 64
"""vLLM pads embedding and output rows to a multiple of 64."""
MXFP4_WIDTH_STEP = 128
MXFP4_HIDDEN_STEP = 256
"""mxfp4 kernels pad an expert's width per rank to 128 and the hidden size to 256 (gpt-oss-120b: 65.97 GiB
measured)."""

_BYTES = {
    NumberFormat.BF16: SIXTEEN_BIT,
    NumberFormat.FP16: SIXTEEN_BIT,
    NumberFormat.FP32: SIXTEEN_BIT,  # vLLM's dtype "auto" loads a 32-bit checkpoint as 16 bit
    NumberFormat.FP8: 1.0,
    NumberFormat.FP8_BLOCK: 1.0,
    NumberFormat.INT8: 1.0,
    NumberFormat.INT4: 0.5,
    NumberFormat.AWQ: 0.5,
    NumberFormat.GPTQ: 0.5,
    NumberFormat.MXFP4: 0.5,
    NumberFormat.NVFP4: 0.5,
    NumberFormat.UNKNOWN: SIXTEEN_BIT,
}
_ONE_BYTE_SCALE = frozenset({NumberFormat.MXFP4, NumberFormat.NVFP4})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The layers of one pipeline stage."""

    first: bool
    last: bool
    start: int
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBytes:
    """Bytes of weights that a step of the engine may read on one rank, over all layers."""

    common: float
    """Attention, dense MLPs, shared experts, routers: read in every step."""
    experts: float
    """Routed experts: read as far as the step's tokens touch them."""
    head: float
    """The output matrix, in 16 bit."""
    sparse: int
    """Layers with routed experts."""


@dataclass(slots=True)
class _Sum:
    """A running sum of tensors as the allocator counts them, and as a checkpoint stores them."""

    quantized: Quantization
    allocated: float = 0.0
    stored: float = 0.0

    def add(self, size: float, times: int = 1) -> None:
        """Count `times` tensors of `size` bytes."""
        self.stored += size * times
        self.allocated += allocated(size) * times

    def formats(self, module: str, width: float, layers: Sequence[int]) -> tuple[tuple[float, int], ...]:
        """Return (bytes for each weight, layers that store a kind of module so)."""
        kept = kept_layers(self.quantized, module, layers)
        return (SIXTEEN_BIT, kept), (bytes_per_weight(self.quantized, width), len(layers) - kept)

    def linear(self, module: str, out: float, width: float, layers: Sequence[int]) -> None:
        """Count linear layers; per-channel scales are 4 bytes for each output row of an 8-bit format."""
        for each, times in self.formats(module, width, layers):
            self.add(out * width * each, times)
            if each == 1.0 and self.quantized.block is None and self.quantized.group_size is None:
                self.add(out * 4.0, times)


def allocated(size: float) -> float:
    """Return the bytes the CUDA caching allocator counts for a tensor of `size` bytes."""
    if size < ROUNDED_ABOVE:
        return size
    rounded = ceil(size / (2 * MIB)) * 2 * MIB
    return float(rounded) if rounded - size <= MIB else size


def stages(layers: int, pipeline: int) -> tuple[Stage, ...]:
    """Return the stages as vLLM cuts them: equal parts, the remainder from the last but one backwards."""
    base, rest = divmod(layers, pipeline)
    counts = [base] * pipeline
    for index in range(2, rest + 2):
        counts[-index] += 1
    found, start = [], 0
    for index, count in enumerate(counts):
        found.append(Stage(first=index == 0, last=index == pipeline - 1, start=start, layers=count))
        start += count
    return tuple(found)


def stage_bytes(model: ModelArchitecture, split: Parallelism, stage: Stage, *, amd: bool) -> float:
    """Return bytes of weights on one rank of `stage`, with rounding, rotary cache and tower."""
    total = _Sum(model.quantization)
    _outer(model, split, stage, total)
    _layers(model, split, stage, total, amd=amd)
    size = total.allocated
    if model.weights_from_checkpoint and model.checkpoint_bytes:
        text = max(1.0, model.checkpoint_bytes - model.tower_bytes)
        size *= text / (checkpoint_bytes(model) - model.tower_bytes)
    return size + _extras(model, split.tensor, stage)


def checkpoint_bytes(model: ModelArchitecture) -> float:
    """Return the bytes of all tensors on disk by the dimensions: no padding, slack or copies."""
    whole = Parallelism()
    stage = Stage(first=True, last=True, start=0, layers=model.num_layers)
    total = _Sum(model.quantization)
    _outer(model, whole, stage, total)
    _layers(model, whole, stage, total, amd=False, padded=False)
    return total.stored + model.tower_bytes


def read_bytes(model: ModelArchitecture, split: Parallelism, *, amd: bool) -> ReadBytes:
    """Return bytes that a step reads of all layers on one rank.

    Without the allocator's rounding, embedding rows and copies.
    """
    every = range(model.num_layers)
    stage = Stage(first=True, last=True, start=0, layers=model.num_layers)
    sparse = _moe_layers(model, stage)
    common, experts = _Sum(model.quantization), _Sum(model.quantization)
    _attention(model, split.tensor, every, common)
    dense = [layer for layer in every if layer not in sparse] if sparse else every
    if dense:
        _mlp(model, "mlp", model.intermediate_size / split.tensor, dense, common)
    if sparse:
        _beside_experts(model, split.tensor, sparse, common)
        _experts(model, split, sparse, experts, amd=amd, padded=True)
    head = ceil(ceil(model.vocab_size / VOCAB_PADDING) * VOCAB_PADDING / split.tensor) * model.hidden_size
    return ReadBytes(
        common=common.stored, experts=experts.stored, head=head * SIXTEEN_BIT, sparse=len(sparse)
    )


def _layers(
    model: ModelArchitecture, split: Parallelism, stage: Stage, total: _Sum, *, amd: bool, padded: bool = True
) -> None:
    """Count what the layers of a stage hold."""
    every = range(stage.start, stage.start + stage.layers)
    sparse = _moe_layers(model, stage)
    _attention(model, split.tensor, every, total)
    dense = [layer for layer in every if layer not in sparse] if sparse else every
    if dense:
        _mlp(model, "mlp", model.intermediate_size / split.tensor, dense, total)
    if sparse:
        _experts(model, split, sparse, total, amd=amd, padded=padded)
        _beside_experts(model, split.tensor, sparse, total)


def _outer(model: ModelArchitecture, split: Parallelism, stage: Stage, total: _Sum) -> None:
    """Embedding on the first stage, output on the last; one matrix when tied and on one stage."""
    rows = ceil(model.vocab_size / VOCAB_PADDING) * VOCAB_PADDING
    matrix = ceil(rows / split.tensor) * model.hidden_size
    if stage.first:
        total.add(matrix * SIXTEEN_BIT)
    if stage.last and not (stage.first and model.tie_word_embeddings):
        total.add(matrix * SIXTEEN_BIT)  # vLLM's loaders never quantise the output matrix
    total.add(2 * model.hidden_size * SIXTEEN_BIT, stage.layers)


def _attention(model: ModelArchitecture, tensor: int, layers: Sequence[int], total: _Sum) -> None:
    if model.mla is not None:
        _mla(model, tensor, layers, total)
        return
    hidden = model.hidden_size
    query = model.num_attention_heads * model.head_dim / tensor
    kv = 2 * kv_heads_per_rank(model.num_kv_heads, tensor) * model.head_dim
    total.linear("attention", query + kv, hidden, layers)
    total.linear("attention", hidden, query, layers)
    if model.attention_bias:
        total.add((query + kv) * SIXTEEN_BIT, len(layers))


def _mla(model: ModelArchitecture, tensor: int, layers: Sequence[int], total: _Sum) -> None:
    """Down-projections whole on every rank, up-projections and output by heads."""
    mla, hidden = model.mla, model.hidden_size
    assert mla is not None
    heads = model.num_attention_heads / tensor
    query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    down = mla.kv_lora_rank + mla.qk_rope_head_dim
    if mla.q_lora_rank is None:
        total.linear("attention", query, hidden, layers)
    else:
        down += mla.q_lora_rank
        total.linear("attention", query, mla.q_lora_rank, layers)
    total.linear("attention", down, hidden, layers)
    up = heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    total.linear("attention", up, mla.kv_lora_rank, layers)
    total.linear("attention", hidden, heads * mla.v_head_dim, layers)
    if mla.index_heads:
        index = mla.index_heads * mla.index_head_dim
        total.linear("attention", index, mla.q_lora_rank or hidden, layers)
        total.add((mla.index_head_dim + mla.index_heads) * hidden * SIXTEEN_BIT, len(layers))


def _mlp(model: ModelArchitecture, module: str, width: float, layers: Sequence[int], total: _Sum) -> None:
    hidden = model.hidden_size
    total.linear(module, (2 if model.gated_mlp else 1) * width, hidden, layers)
    total.linear(module, hidden, width, layers)


def _experts(
    model: ModelArchitecture,
    split: Parallelism,
    layers: Sequence[int],
    total: _Sum,
    *,
    amd: bool,
    padded: bool,
) -> None:
    """Experts over tensor x data ranks: by width, or whole ones with expert parallelism."""
    moe = model.moe
    assert moe is not None
    ranks = split.tensor * split.data
    count, width = float(moe.num_experts), float(moe.expert_intermediate_size)
    if split.expert:
        count = ceil(count / ranks)
    else:
        width /= ranks
    hidden = float(model.hidden_size)
    if model.quantization.format is NumberFormat.MXFP4 and padded:
        width = ceil(width / MXFP4_WIDTH_STEP) * MXFP4_WIDTH_STEP
        hidden = ceil(hidden / MXFP4_HIDDEN_STEP) * MXFP4_HIDDEN_STEP
    for each, times in total.formats("experts", hidden, layers):
        padding = start_constants().rocm_16bit_experts_factor if amd and each == SIXTEEN_BIT else 1.0
        total.add(count * 2 * width * hidden * each * padding, times)
        total.add(count * width * hidden * each * padding, times)
        if each == 1.0 and model.quantization.block is None:
            total.add(count * (2 * width + hidden) * 4.0, times)
    if model.family == "gpt_oss":
        total.add(count * (2 * width + hidden) * SIXTEEN_BIT, len(layers))


def _beside_experts(model: ModelArchitecture, tensor: int, layers: Sequence[int], total: _Sum) -> None:
    """Router and shared experts."""
    moe = model.moe
    assert moe is not None
    total.add(moe.num_experts * model.hidden_size * SIXTEEN_BIT, len(layers))
    if moe.num_shared_experts:
        _mlp(model, "shared", moe.shared_intermediate_size / tensor, layers, total)


def _moe_layers(model: ModelArchitecture, stage: Stage) -> tuple[int, ...]:
    if model.moe is None:
        return ()
    first = max(stage.start, model.moe.dense_layers)
    end = stage.start + stage.layers
    step = model.moe.moe_layer_step
    return tuple(layer for layer in range(first, end) if (layer + 1) % step == 0)


def _extras(model: ModelArchitecture, tensor: int, stage: Stage) -> float:
    """Rotary cache, tower (first stage) and the second 16-bit copy of MLA's up-projection."""
    rotary = model.mla.qk_rope_head_dim if model.mla else model.rotary_dim or model.head_dim
    extra = (model.rotary_cache_positions or model.max_position_embeddings) * rotary * SIXTEEN_BIT
    if stage.first:
        extra += model.tower_bytes
    if model.mla is not None:
        width = model.mla.qk_nope_head_dim + model.mla.v_head_dim
        extra += (
            stage.layers * model.num_attention_heads / tensor * width * model.mla.kv_lora_rank * SIXTEEN_BIT
        )
    return extra


def kv_heads_per_rank(kv_heads: int, tensor: int) -> int:
    """Return the KV heads a rank holds; below one for each rank they are replicated."""
    return max(1, ceil(kv_heads / tensor))


def bytes_per_weight(quantized: Quantization, width: float) -> float:
    """Return bytes for each weight of a quantised module, with the scales of its blocks or groups."""
    size = _BYTES[quantized.format]
    if quantized.block is not None:
        return size + 4.0 / (quantized.block[0] * quantized.block[1])
    if size == SIXTEEN_BIT:
        return size
    if quantized.format in _ONE_BYTE_SCALE:
        return size + 1.0 / (quantized.group_size or 16)
    if size < 1.0:
        zero_point = 0.5 if quantized.format is NumberFormat.AWQ else 0.0
        return size + (SIXTEEN_BIT + zero_point) / (quantized.group_size or width)
    return size

"""The peak of activations in vLLM's profile run, and what start-up needs after the pool is taken.

Decides both from engine limits and dimensions. Never decides how much a card has.

Sources: `docs/memory-model.md`: 189 measured starts, 73 of them with the peak printed.
"""

from shardwright.catalog.engines import start_constants
from shardwright.catalog.types import EngineClass, ModelArchitecture, NumberFormat
from shardwright.planner.types import GIB, EngineLimits, Parallelism

AFTER_POOL_TOKENS = 8192
"""Batched tokens at which `StartConstants.after_pool_gib` was seen."""
SMALL_SAMPLER_BYTES = 14.5
"""Sampler bytes for each sequence and word from 0.17 on; what an older peak has above it is free after the
profile."""
TRUSTED_UTILIZATION_PERCENT = 92
"""vLLM's own defaults (90, 92) leave room for graphs and transients; above it the room is computed."""


def peak_gib(
    model: ModelArchitecture,
    engine: EngineClass,
    split: Parallelism,
    limits: EngineLimits,
    *,
    last_stage: bool,
    hopper: bool = False,
) -> float:
    """Return GiB of the activation peak on one rank.

    max(c S V, T (3 I / tp + 4 h) 2 B) + 2 B T h + MoE workspace + constant: the sampler's sort over S
    sequences x V words, paid by the last pipeline stage and the same on every rank (logits are gathered), or
    the widest layer. The profile run takes min(S, T) sequences (vLLM, gpu_model_runner `_dummy_run`).
    """
    tokens, hidden = limits.max_num_batched_tokens, model.hidden_size
    width = model.intermediate_size
    if model.moe is not None and not model.moe.dense_layers and model.moe.moe_layer_step == 1:
        width = model.moe.shared_intermediate_size or model.moe.expert_intermediate_size
    layer = tokens * (3 * width / split.tensor + 4 * hidden) * 2
    sequences = min(limits.max_num_seqs, tokens) if last_stage else 0
    sampler = engine.sampler_bytes_per_seq_vocab * sequences * model.vocab_size
    aligned = hopper and engine.aligns_block_experts
    workspace = _profiled_workspace(model, split, limits, aligned=aligned)
    peak = max(sampler, layer) + 2 * tokens * hidden + workspace
    constants = start_constants()
    tower_gib = constants.activation_tower_gib if model.multimodal else 0.0
    return peak / GIB + constants.activation_base_gib + tower_gib


def _profiled_workspace(
    model: ModelArchitecture, split: Parallelism, limits: EngineLimits, *, aligned: bool
) -> float:
    """Bytes of the experts' buffers: T top_k (max(2 I / tp, h) + I / tp) 2 B. Not seen for mxfp4 kernels.

    `aligned`: where block-FP8 experts run by DeepGEMM, both buffers are max(2 I / tp, h) wide and have room
    for each expert's rows rounded up to a block (vLLM, `DeepGemmExperts.workspace_shapes` and
    `compute_aligned_M`). On DeepSeek-R1 that is 1.7 GiB more; without it H200 pools came out 1.8 GiB lower
    than predicted.
    """
    moe = model.moe
    if moe is None or model.quantization.format is NumberFormat.MXFP4:
        return 0.0
    width = moe.expert_intermediate_size / (1 if split.expert else split.tensor)
    rows = limits.max_num_batched_tokens * moe.experts_per_token
    widest = max(2 * width, model.hidden_size)
    block = model.quantization.block
    if aligned and block is not None:
        experts = moe.num_experts / (split.tensor * split.data if split.expert else 1)
        return (rows + experts * (block[0] - 1)) * (widest + max(width, model.hidden_size)) * 2
    return rows * (widest + width) * 2


def after_pool_gib(
    model: ModelArchitecture,
    engine: EngineClass,
    split: Parallelism,
    limits: EngineLimits,
    *,
    graphs_outside_gib: float,
) -> float:
    """Return GiB that start-up takes outside the utilisation budget: graphs, transients, mxfp4 buffers.

    gpt-oss captures twice the usual graph sizes and its expert buffers are not in the profile (2.87 GiB
    printed, 2.88 predicted without them), so they come on top. Where the sampler's peak is that of the torch
    sort, what it frees after the profile covers all of this but the graphs.
    """
    tokens = limits.max_num_batched_tokens
    need = start_constants().after_pool_gib * min(1.0, tokens / AFTER_POOL_TOKENS)
    if model.moe is not None and model.quantization.format is NumberFormat.MXFP4:
        width = model.moe.expert_intermediate_size / (1 if split.expert else split.tensor)
        rows = tokens * model.moe.experts_per_token
        need += graphs_outside_gib + rows * (3 * width + model.hidden_size) * 2 / GIB
    freed = max(0.0, engine.sampler_bytes_per_seq_vocab - SMALL_SAMPLER_BYTES)
    need -= freed * min(limits.max_num_seqs, tokens) * model.vocab_size / GIB
    return graphs_outside_gib + max(0.0, need)

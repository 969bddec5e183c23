"""Milliseconds for each unit of an engine's work: the data sheet times the fitted shares.

Decides how long one GPU takes for a byte, a FLOP, a layer, a message. Never knows a load.

Sources: datasheet rates of the GPU catalogue; constants of `catalog.performance`, each with its source.
"""

from dataclasses import dataclass

from shardwright.catalog.performance import PerformanceConstants
from shardwright.planner.performance.types import PerformanceRequest
from shardwright.planner.performance.work import Work, work

BLACKWELL = 10
"""Major compute capability of data-centre Blackwell."""
V1_SINCE = (0, 8, 0)
"""Versions before it have the launch costs of the old engine."""
ACTIVATION_BYTES = 2
PIPELINE_HOP_MS = 0.02
"""One hand-over between pipeline stages: 10 to 20 us over NVLink (textbook, not measured here)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Milliseconds of one tensor rank over the whole depth, all pipeline stages in turn."""

    pipeline: int
    data: int
    common_read_ms: float
    experts_read_ms: float
    """All routed experts once."""
    untouched: float
    token_ms: float
    """Multiplying one token, its experts included."""
    head_ms: float
    """Multiplying one sampled token with the output matrix."""
    kv_token_ms: float
    """Reading one token of context in layers with full attention."""
    window_token_ms: float
    window_tokens: float
    decode_pair_ms: float
    pair_ms: float
    window_pair_ms: float
    message_ms: float
    """Latency of all messages of one step."""
    message_token_ms: float
    """On top for each token."""
    launch_ms: float
    """Of one decode step."""
    sequence_ms: float
    request_ms: float
    prefill_launch_ms: float
    """Of one prefill chunk."""
    interference_share: float
    burst_share: float
    overlap_exponent: float
    queue_limit: float


def speed(request: PerformanceRequest, constants: PerformanceConstants) -> Speed:
    """Return the speed of an arrangement. Raises MissingFactError when the card's row lacks a rate."""
    found = work(
        request.architecture,
        request.gpu,
        request.parallelism,
        fp8_kv=request.fp8_kv,
        nvlink=request.nvlink,
    )
    return speed_of(found, request, constants)


def speed_of(found: Work, request: PerformanceRequest, constants: PerformanceConstants) -> Speed:
    """Return the speed of known work."""
    c, split = constants, request.parallelism
    moe = request.architecture.moe
    top_k = float(moe.experts_per_token) if moe else 0.0
    common, experts, sixteen = _shares(found, request, c)
    message, message_token = _messages(found, request, c, top_k)
    old = c.old_engine_factor if request.engine.version < V1_SINCE else 1.0
    many = c.prefill_layer_ranks_ms if split.tensor > 1 else 0.0
    return Speed(
        pipeline=split.pipeline,
        data=split.data,
        common_read_ms=(found.common_bytes + found.head_bytes) / (found.bandwidth * c.common_bandwidth_share),
        experts_read_ms=found.expert_bytes / (found.bandwidth * c.expert_bandwidth_share),
        untouched=found.untouched,
        token_ms=found.common_flop / (found.compute * common) + found.expert_flop / (found.compute * experts),
        head_ms=found.head_flop / (found.compute_16bit * sixteen),
        kv_token_ms=found.kv_bytes / (found.bandwidth * c.kv_bandwidth_share),
        window_token_ms=found.window_bytes / (found.bandwidth * c.kv_bandwidth_share),
        window_tokens=found.window_tokens,
        decode_pair_ms=found.decode_pair_flop / (found.compute_16bit * c.attention_compute_share),
        pair_ms=found.pair_flop / (found.compute_16bit * c.attention_compute_share),
        window_pair_ms=found.window_pair_flop / (found.compute_16bit * c.attention_compute_share),
        message_ms=message,
        message_token_ms=message_token,
        launch_ms=old * (c.step_ms + c.layer_ms * found.layers + c.routing_ms * top_k * found.sparse_layers),
        sequence_ms=old * c.sequence_ms,
        request_ms=c.request_ms,
        prefill_launch_ms=(c.prefill_layer_ms + many) * found.layers
        + c.prefill_routing_ms * top_k * found.sparse_layers,
        interference_share=c.interference_share,
        burst_share=c.burst_share,
        overlap_exponent=c.overlap_exponent,
        queue_limit=c.queue_limit,
    )


def _shares(found: Work, request: PerformanceRequest, c: PerformanceConstants) -> tuple[float, float, float]:
    """Return the shares of the peak for common weights, experts, and the 16-bit output matrix."""
    capability = request.gpu.compute_capability
    factor = c.blackwell_compute_factor if capability and capability[0] == BLACKWELL else 1.0
    narrow = found.compute > found.compute_16bit
    common = c.compute_share_8bit if narrow else c.compute_share_16bit
    return common * factor, c.compute_share_experts * factor, c.compute_share_16bit * factor


def _messages(
    found: Work, request: PerformanceRequest, c: PerformanceConstants, top_k: float
) -> tuple[float, float]:
    """Return ms of one step's messages, and on top for each token.

    Two all-reduces a layer: latency + 2 (t - 1) / t of the activations over the link. With attention data
    parallelism two all-to-alls a layer with experts: each token's activations to its experts and back
    (textbook, not measured).
    """
    latency, share = (
        (c.nvlink_allreduce_ms, c.nvlink_share) if request.nvlink else (c.pcie_allreduce_ms, c.pcie_share)
    )
    size = found.hidden * ACTIVATION_BYTES / (found.link * share)
    fixed = each = 0.0
    if request.parallelism.tensor > 1:
        fixed += 2 * found.layers * latency
        each += 4 * found.layers * (found.tensor - 1) / found.tensor * size
    if request.parallelism.data > 1:
        fixed += 2 * found.sparse_layers * latency
        each += 2 * found.sparse_layers * top_k * size
    return fixed, each


def touched(speed: Speed, tokens: float) -> float:
    """Return the share of routed experts that `tokens` touch: 1 - (1 - k/E)^tokens, as if chosen evenly."""
    if not speed.experts_read_ms:
        return 0.0
    return 1.0 - float(speed.untouched**tokens)


def joined(first: float, second: float, exponent: float) -> float:
    """Return the time of two things done at once: the p-norm, a little above the longer one."""
    longer = max(second, first)
    if longer <= 0:
        return 0.0
    shorter = (first + second - longer) / longer
    return longer * float((1.0 + shorter**exponent) ** (1.0 / exponent))

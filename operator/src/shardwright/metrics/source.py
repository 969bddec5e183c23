"""The seam behind which the engines' metrics come from: Prometheus, or the engines themselves.

Decides the metrics' names across vLLM versions, in one table for both sources. Never decides what a figure
means.

Names: a live scrape of vLLM 0.32.0 and the source of 0.33.0 (`tests/data/vllm_metrics.txt`). Renames:
time_per_output_token_seconds became inter_token_latency_seconds (vllm#24110, deprecated in 0.11), and
request_time_per_output_token_seconds has the mean of each request, which is what is predicted;
gpu_prefix_cache_* and gpu_cache_usage_perc became prefix_cache_* and kv_cache_usage_perc (vllm#18354, removed
by #29330). cache_config_info has kv_cache_size_tokens in 0.32; before, blocks times their size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from shardwright.planner.signals import PodKey, Readings, Signal


@dataclass(frozen=True, slots=True)
class Target:
    """An engine to read."""

    pod: PodKey
    address: str
    """Its IP."""
    edges: Mapping[Signal, float] = field(default_factory=dict)
    """For signals of BUCKETS: the edge of the histogram to count up to. Without one the signal is not
    read."""


class MetricsSource(Protocol):
    """Reads the fleet at once. One for the whole operator."""

    @property
    def name(self) -> str:
        """As status shows it."""
        ...

    async def read(self, targets: Sequence[Target]) -> Readings:
        """Return what is known of the targets, and of no other pod; what a server answers raises nothing."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


NAMES: Final[Mapping[Signal, tuple[str, ...]]] = MappingProxyType(
    {
        Signal.TTFT_SUM: ("vllm:time_to_first_token_seconds_sum",),
        Signal.TTFT_COUNT: ("vllm:time_to_first_token_seconds_count",),
        Signal.TPOT_SUM: (
            "vllm:request_time_per_output_token_seconds_sum",
            "vllm:inter_token_latency_seconds_sum",
            "vllm:time_per_output_token_seconds_sum",
        ),
        Signal.TPOT_COUNT: (
            "vllm:request_time_per_output_token_seconds_count",
            "vllm:inter_token_latency_seconds_count",
            "vllm:time_per_output_token_seconds_count",
        ),
        Signal.PROMPT_TOKENS: ("vllm:prompt_tokens_total",),
        Signal.GENERATION_TOKENS: ("vllm:generation_tokens_total",),
        Signal.PREFIX_HIT_TOKENS: ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        Signal.RUNNING: ("vllm:num_requests_running",),
        Signal.WAITING: ("vllm:num_requests_waiting",),
        Signal.KV_SHARE: ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        Signal.FINISHED: ("vllm:request_success_total",),
        Signal.FINISHED_TOKENS: ("vllm:request_generation_tokens_sum",),
        Signal.GAP_SUM: ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
        Signal.GAP_COUNT: (
            "vllm:inter_token_latency_seconds_count",
            "vllm:time_per_output_token_seconds_count",
        ),
        Signal.PROMPTS: ("vllm:request_prompt_tokens_count",),
        Signal.REFUSED: ("vllm:admission_rejections_total",),
        Signal.STARTED: ("process_start_time_seconds",),
    }
)
"""Samples of each signal, the newest name first; an engine's ranks are added up, or averaged (MEANS)."""
BUCKETS: Final[Mapping[Signal, str]] = MappingProxyType(
    {
        Signal.TTFT_WITHIN: "vllm:time_to_first_token_seconds_bucket",
        Signal.TPOT_WITHIN: "vllm:request_time_per_output_token_seconds_bucket",
        Signal.PROMPTS_WITHIN: "vllm:request_prompt_tokens_bucket",
    }
)
"""Histograms of which the count up to one edge is read."""
MEANS: Final = frozenset({Signal.KV_SHARE})
PARTS: Final[Mapping[Signal, str]] = MappingProxyType(
    {Signal.FINISHED: "finished_reason", Signal.REFUSED: "reason"}
)
"""A label by which one rank has several samples of a signal."""
HTTP: Final = "http_requests_total"
"""Of vLLM's HTTP server, for ANSWERED and FAILED: by handler, method and status (`2xx`)."""
HTTP_HANDLERS: Final = "/v1/"
HTTP_FAILED: Final = "5"
"""How the status of a request that the engine failed begins; 4xx is the client's doing."""
ALIVE: Final = "vllm:num_requests_running"
"""Every version has it for every rank: its time is when the engine was asked."""
CACHE: Final = "vllm:cache_config_info"
CACHE_LABELS: Final = ("kv_cache_size_tokens", "num_gpu_blocks", "block_size")


def kv_tokens(labels: Mapping[str, str]) -> float | None:
    """Return the tokens of a rank's KV cache from the labels of its info; None when they do not say."""
    whole = _count(labels.get("kv_cache_size_tokens"))
    if whole is not None:
        return whole
    blocks, size = _count(labels.get("num_gpu_blocks")), _count(labels.get("block_size"))
    return blocks * size if blocks is not None and size is not None else None


def _count(text: str | None) -> float | None:
    """Read a label that vLLM writes as Python would: None is not a number."""
    return float(text) if text and text.isascii() and text.isdigit() else None

"""The engine limits that memory depends on, explicit so that no engine default can move a prediction.

Decides max-num-seqs, max-num-batched-tokens, the utilisation and the KV dtype to try, in order. Never decides
the length.
"""

from collections.abc import Iterator

from shardwright.api.defaults import Resolved
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.catalog.types import EngineClass, GPUProduct
from shardwright.planner.types import EngineLimits

DEFAULT_SEQS = 256
"""Our choice. vLLM's 1024 on large cards costs 1.3 to 2.7 GiB of sampler memory that KV can use, and an
engine that holds hundreds of sequences is past its latency target."""
MOST_SEQS = 1024
"""vLLM's own largest default."""
LEAST_SEQS = 64
LARGE_GPU_MIB = 70 * 1024
"""vLLM takes its larger defaults from 70 GiB on (`get_batch_defaults`)."""
LARGE_TOKENS, SMALL_TOKENS = 8192, 2048
SEQS = (64, 128, 256, 512, 1024)
TOKENS = (2048, 4096, 8192, 16384)
"""The ladder: from what memory is short of to vLLM's largest default."""
SHORT_TOKENS = (512, 1024)
"""Chunks short enough for a pause between tokens that is bounded."""


def most_seqs(spec: LLMServiceSpec) -> int:
    """Return the most sequences that one engine may run at once under this spec."""
    pinned = spec.engine.max_num_seqs if spec.engine else None
    return pinned or MOST_SEQS


def utilization_percent(spec: LLMServiceSpec, engine: EngineClass) -> int:
    """Return the pinned share of GPU memory, else the default of the engine's own version."""
    pinned = spec.engine.gpu_memory_utilization_percent if spec.engine else None
    return pinned or engine.default_gpu_memory_utilization_percent


def _power_of_two_from(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _batch_options(resolved: Resolved, gpu: GPUProduct, concurrency: int) -> list[tuple[int, int]]:
    """(max_num_seqs, max_num_batched_tokens) to try: the roomy pair first, then what frees memory."""
    seqs, tokens = resolved.max_num_seqs, resolved.max_num_batched_tokens
    usual_tokens = LARGE_TOKENS if gpu.memory_mib >= LARGE_GPU_MIB else SMALL_TOKENS
    least = max(LEAST_SEQS, min(MOST_SEQS, _power_of_two_from(concurrency)))
    seq_options = [seqs] if seqs else sorted({max(DEFAULT_SEQS, least), max(128, least), least}, reverse=True)
    token_options = [tokens] if tokens else sorted({usual_tokens, SMALL_TOKENS}, reverse=True)
    pairs = [(s, token_options[0]) for s in seq_options] + [(seq_options[-1], t) for t in token_options[1:]]
    return [(s, t if tokens else max(s, t)) for s, t in pairs]


def options(
    spec: LLMServiceSpec,
    resolved: Resolved,
    engine: EngineClass,
    *,
    gpu: GPUProduct,
    concurrency: int,
    kv_dtype: str,
    max_model_len: int,
) -> Iterator[EngineLimits]:
    """Yield limits to try, best first. A pinned value of spec.engine stays."""
    percent = utilization_percent(spec, engine)
    for seqs, tokens in _batch_options(resolved, gpu, concurrency):
        yield EngineLimits(
            max_model_len=max_model_len,
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            gpu_memory_utilization_percent=percent,
            kv_cache_dtype=kv_dtype,
        )


def kv_dtypes(resolved: Resolved) -> tuple[str, ...]:
    """Return vLLM's names of the allowed KV dtypes, "auto" first: FP8 is for when 16 bit does not fit."""
    names = {"Auto": "auto", "FP8": "fp8"}
    return tuple(sorted((names[d] for d in resolved.kv_cache_dtypes), key=("auto", "fp8").index))

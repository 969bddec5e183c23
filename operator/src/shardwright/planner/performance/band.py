"""How far a prediction may be off, by what was measured.

Decides the class of a request and its error band. Never changes the prediction.

Source: `bands` and `measured` of `catalog/data/performance_constants.json`, written by `make fit` from the
rows in `benchmarks/data/serving_benchmarks.csv`.
"""

from dataclasses import dataclass
from functools import lru_cache

from shardwright.catalog.performance import (
    ErrorBand,
    MeasuredClass,
    PerformanceCoverage,
    load_performance_coverage,
)
from shardwright.catalog.types import AttentionKind, GPUProduct, ModelArchitecture, NumberFormat
from shardwright.planner.performance.types import Band, PerformanceRequest
from shardwright.planner.types import Parallelism

ENOUGH_ROWS = 5
"""Fewer rows of a class are a hint, no coverage."""
_ALIKE = {
    NumberFormat.FP16: NumberFormat.BF16,
    NumberFormat.FP32: NumberFormat.BF16,
    NumberFormat.FP8_BLOCK: NumberFormat.FP8,
    NumberFormat.AWQ: NumberFormat.INT4,
    NumberFormat.GPTQ: NumberFormat.INT4,
}
"""Formats that move and multiply alike."""
_UNMODELLED = frozenset({AttentionKind.STATE_HYBRID, AttentionKind.OTHER})


def alike(found: NumberFormat) -> NumberFormat:
    """Return the format that stands for those that move and multiply like it."""
    return _ALIKE.get(found, found)


@dataclass(frozen=True, slots=True)
class _Question:
    """What of a request its coverage depends on."""

    model: ModelArchitecture
    gpu: GPUProduct
    split: Parallelism
    fp8_kv: bool
    prefix: bool
    speculative: bool

    @property
    def format(self) -> NumberFormat:
        return alike(self.model.quantization.format)


def band(request: PerformanceRequest, coverage: PerformanceCoverage | None = None) -> Band:
    """Return the class, its gaps and its band; what no row covers at all is not `covered`."""
    question = _Question(
        request.architecture,
        request.gpu,
        request.parallelism,
        request.fp8_kv,
        request.shared_prefix_tokens > 0,
        request.speculative,
    )
    return _shipped(question) if coverage is None else _judge(question, coverage)


@lru_cache(maxsize=4096)
def _shipped(question: _Question) -> Band:
    return _judge(question, load_performance_coverage())


def _judge(question: _Question, known: PerformanceCoverage) -> Band:
    model, gpu = question.model, question.gpu
    kind = "mixture-of-experts" if model.moe else "dense"
    same = [
        row
        for row in known.measured
        if (row.gpu, row.format, row.experts) == (gpu.short_name, question.format, model.moe is not None)
    ]
    name = f"{kind} {question.format} on {gpu.short_name}"
    gaps = (*_arrangement_gaps(question, known.measured), *_feature_gaps(question))
    rows = sum(row.rows for row in same)
    if gaps:
        return _as(known.unrelated, covered=False, phrase=f"{name}: {'; '.join(gaps)}", gaps=gaps)
    if rows >= ENOUGH_ROWS and any(question.split.tensor in row.tensor for row in same):
        return _as(known.same, covered=True, phrase=f"{name}: {rows} measured rows, vLLM {known.engines}")
    return _as(
        known.related,
        covered=True,
        phrase=f"{name}: {_counted(same, rows)}, others on this GPU or its family",
    )


def _counted(same: list[MeasuredClass], rows: int) -> str:
    """Say how many rows of the class there are, and at which tensor parallelism."""
    if not rows:
        return "no measured row of this class"
    degrees = sorted({degree for row in same for degree in row.tensor})
    at = ", ".join(f"TP{degree}" for degree in degrees)
    return f"{rows} measured {'row' if rows == 1 else 'rows'} of this class, at {at}"


def _as(found: ErrorBand, *, covered: bool, phrase: str, gaps: tuple[str, ...] = ()) -> Band:
    return Band(low=found.low, high=found.high, covered=covered, phrase=phrase, gaps=gaps)


def _arrangement_gaps(question: _Question, measured: tuple[MeasuredClass, ...]) -> list[str]:
    gpu, split, found = question.gpu, question.split, []
    if split.pipeline > 1:
        found.append("no row with pipeline parallelism was measured")
    if split.data > 1:
        found.append("no row with attention data parallelism was measured")
    if not any(row.gpu == gpu.short_name or row.family == gpu.family for row in measured):
        found.append(f"no GPU of the family {gpu.family} was measured")
    if not any(row.format is question.format for row in measured):
        found.append(f"no {question.format} weights were measured")
    if not any(split.tensor in row.tensor for row in measured):
        found.append(f"no row with TP{split.tensor} was measured")
    return found


def _feature_gaps(question: _Question) -> list[str]:
    found = []
    if question.fp8_kv:
        found.append("no row with an FP8 KV cache was measured")
    if question.prefix:
        found.append("no row with prefix-cache hits was measured")
    if question.speculative:
        found.append("speculative decoding is not modelled")
    if question.model.attention in _UNMODELLED:
        found.append(f"{question.model.attention} attention is not modelled")
    return found

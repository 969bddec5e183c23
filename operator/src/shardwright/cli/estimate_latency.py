"""The latency part of `shardwright estimate`: when there are figures, and how they are printed.

Decides that an engine which does not start has no latency, and says why a figure is absent. Never computes a
time: `planner.performance` does.
"""

from dataclasses import dataclass
from math import floor, isfinite, log10

from shardwright.catalog.types import NumberFormat
from shardwright.cli.estimate_load import Load, link, performance_request
from shardwright.cli.estimate_options import Question
from shardwright.cli.second_opinion import SOURCE, SecondOpinion, compared
from shardwright.planner.performance.agreement import Agreement
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.terms import Named, tpot_terms, ttft_terms
from shardwright.planner.performance.types import PerformanceRequest, Prediction
from shardwright.planner.performance.work import MissingFactError
from shardwright.planner.types import MemoryEstimate, Verdict

KEYS = (
    "ttftMs", "tpotMs", "outputTokensPerSecond", "requestsPerSecond", "ttftTermsMs", "tpotTermsMs",
    "ttftP95Ms", "ttftP99Ms", "tpotP95Ms", "tpotP99Ms", "tailsValidated", "running", "utilisation",
    "saturated", "errorBand",
)  # fmt: skip
SHOWN_MS = 0.005
"""Terms below it would be printed as nothing."""
TERM_WIDTH = len("Communication")
_TERMS = {"kv": "KV cache"}
FULL_SHARE = 1 - 1e-6
"""Of max-num-seqs; from here on it, and not the KV cache, is what stops more."""
EAGER = "Without CUDA graphs launching kernels takes longer than predicted; how much is not modelled."


@dataclass(frozen=True, slots=True)
class Latency:
    """A prediction, or the reason why there is none, and what should be known of it."""

    load: Load
    found: Prediction | None
    reason: str = ""
    notes: tuple[str, ...] = ()
    second: Agreement | str | None = None
    """What another model says of the TPOT, or why it says nothing; None: not asked."""


def latency(asked: Question, answer: MemoryEstimate, other: SecondOpinion | None = None) -> Latency | None:
    """Return the latency of what memory allows; None when no load was given. `other` is asked as well."""
    load = asked.load
    if load is None:
        return None
    reason = _obstacle(asked, load, answer)
    if reason:
        return Latency(load, None, reason)
    known = answer.verdict is not Verdict.UNKNOWN
    request = performance_request(asked.request, load, answer.kv_tokens if known else None)
    try:
        found = predict(request)
    except MissingFactError as error:
        return Latency(load, None, f"{error}.")
    notes = (
        "" if known else "The KV cache is not predicted: requests are taken as if all of them fit in it.",
        link(load, request.gpu, request.parallelism)[1],
        EAGER if asked.request.limits.enforce_eager else "",
        _saturation(request, found) if found.saturated else "",
    )
    second = None if other is None else compared(other, request, found)
    return Latency(load, found, notes=tuple(note for note in notes if note), second=second)


def _second_json(second: Agreement | str | None) -> dict[str, object]:
    if second is None:
        return {}
    if isinstance(second, str):
        return {"secondOpinion": {"source": SOURCE, "reason": second}}
    return {
        "secondOpinion": {
            "source": SOURCE,
            "verdict": str(second.verdict),
            "tpotRatio": round(second.ratio, 4),
            "tpotErrorBand": {"low": round(second.band.low, 3), "high": round(second.band.high, 3)},
            "reason": None,
        }
    }


def _second_lines(second: Agreement | str | None) -> list[str]:
    if second is None:
        return []
    if isinstance(second, str):
        return [f"Second opinion: none from {SOURCE}: {second}."]
    band = second.band
    return [f"Second opinion: {SOURCE} says {second.sentence}: x{band.low:.2f} to x{band.high:.2f} (TPOT)."]


def latency_json(answer: Latency) -> dict[str, object]:
    """Return the keys that a load adds; null where there is no figure, and `latencyReason` says why."""
    found = answer.found
    said: dict[str, object] = {"latencyReason": answer.reason or None, "latencyNotes": [*answer.notes]}
    if found is None:
        return {**dict.fromkeys(KEYS), **said}
    said |= _second_json(answer.second)
    tails, band = found.tails, found.band
    return {
        "ttftMs": _number(found.ttft_ms),
        "tpotMs": _number(found.tpot_ms),
        "outputTokensPerSecond": _number(found.output_tokens_per_s, 3),
        "requestsPerSecond": _number(found.requests_per_s, 6),
        "ttftTermsMs": {name: _number(ms) for name, ms, _ in ttft_terms(found.ttft)},
        "tpotTermsMs": {name: _number(ms) for name, ms, _ in tpot_terms(found.tpot)},
        "ttftP95Ms": _number(tails.ttft_p95_ms),
        "ttftP99Ms": _number(tails.ttft_p99_ms),
        "tpotP95Ms": _number(tails.tpot_p95_ms),
        "tpotP99Ms": _number(tails.tpot_p99_ms),
        "tailsValidated": tails.validated,
        "running": _number(found.running),
        "utilisation": _number(found.utilisation),
        "saturated": found.saturated,
        "errorBand": {
            "low": band.low,
            "high": band.high,
            "covered": band.covered,
            "phrase": band.phrase,
            "gaps": [*band.gaps],
        },
        **said,
    }


def no_latency_json(reason: str) -> dict[str, object]:
    """Return the same keys for a question that has no answer."""
    return {**dict.fromkeys(KEYS), "latencyReason": reason, "latencyNotes": []}


def latency_lines(answer: Latency) -> list[str]:
    """Return the lines that a load adds to the text."""
    found, load = answer.found, answer.load
    if found is None:
        return ["", f"Load: {load}: no latency. {answer.reason}"]
    tails, band = found.tails, found.band
    served = f"{found.output_tokens_per_s:.0f} output tokens/s, {found.requests_per_s:.3g} requests/s"
    mark = "" if tails.validated else " (not validated)"
    ttft_tail = f"TTFT P95 {_ms(tails.ttft_p95_ms)}, P99 {_ms(tails.ttft_p99_ms)}"
    tpot_tail = f"TPOT P95 {_ms(tails.tpot_p95_ms)}, P99 {_ms(tails.tpot_p99_ms)}"
    covered = "" if band.covered else " (not covered)"
    busy = f"{found.utilisation * 100:.0f} % of the most it serves"
    return [
        "",
        f"Load: {load}: TTFT {_ms(found.ttft_ms)}, TPOT {_ms(found.tpot_ms)}, {served}.",
        "",
        *_table("TTFT", found.ttft_ms, ttft_terms(found.ttft)),
        "",
        *_table("TPOT", found.tpot_ms, tpot_terms(found.tpot)),
        "",
        f"Tails{mark}: {ttft_tail}; {tpot_tail}.",
        f"Running: {found.running:.1f} requests at once, {busy}.",
        f"Error band: x{band.low:g} to x{band.high:g}{covered}, {band.phrase}.",
        *_second_lines(answer.second),
        *(f"Note: {note}" for note in answer.notes),
    ]


def _obstacle(asked: Question, load: Load, answer: MemoryEstimate) -> str:
    """Return why there is nothing to predict; empty when there is."""
    limits = asked.request.limits
    if answer.verdict is Verdict.OUT_OF_MEMORY:
        return "The engine does not start: out of memory."
    if answer.verdict is Verdict.TOO_SMALL:
        longest = answer.largest_model_len
        cure = f"give --max-model-len of at most {longest}" if longest else "no length fits"
        return f"The engine does not start with --max-model-len {limits.max_model_len}: {cure}."
    length = load.input_tokens + load.output_tokens
    if length > limits.max_model_len:
        return (
            f"A request of {length:.10g} tokens is longer than --max-model-len {limits.max_model_len}: "
            "the engine refuses it or cuts its output."
        )
    if asked.request.architecture.quantization.format is NumberFormat.UNKNOWN:
        return "The number format of the weights is not known, nor what a step reads: give --quantization."
    return ""


def _saturation(request: PerformanceRequest, found: Prediction) -> str:
    seqs = request.max_num_seqs * request.parallelism.data
    by_seqs = found.running >= seqs * FULL_SHARE
    why = f"max-num-seqs {request.max_num_seqs}" if by_seqs else "the KV cache holds no more"
    if request.rate_per_s is None:
        return (
            f"Saturated: {found.running:.4g} of {request.concurrency:.10g} requests run at once ({why}), "
            "the others wait for their turn."
        )
    return (
        f"Saturated: more arrives than is served, so TTFT grows without end. One replica takes at most "
        f"{_floor(found.requests_per_s)} requests/s ({found.running:.4g} at once, {why})."
    )


def _floor(value: float) -> str:
    """Return three digits, rounded down: what is said to be served is."""
    step = 10.0 ** (floor(log10(value)) - 2)
    return f"{floor(value / step) * step:.3g}"


def _table(name: str, total_ms: float, terms: Named) -> list[str]:
    shown = [(_TERMS.get(term, term.capitalize()), ms, why) for term, ms, why in terms if ms >= SHOWN_MS]
    head = f"  {name:<{TERM_WIDTH + 2}}  {_ms(total_ms):>12}  Median, the sum of:"
    return [head, *(f"    {term:<{TERM_WIDTH}}  {_ms(ms):>12}  {why}" for term, ms, why in shown)]


def _ms(value: float) -> str:
    """Return three digits: the error band leaves no meaning to more."""
    if not isfinite(value):
        return "without end"
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} ms"


def _number(value: float, digits: int = 4) -> float | None:
    """Return a number that JSON has; None for an infinite one."""
    return round(value, digits) if isfinite(value) else None

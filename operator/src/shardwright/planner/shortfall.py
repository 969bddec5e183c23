"""What is said when the pool holds the model, but not the stated targets or the stated load.

Decides the reason, the best that can be had, and the nearest changes that would do; each that is named with a
figure has been tried. Never relaxes anything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardwright.api.reasons import CandidateReason, Reason
from shardwright.planner.candidates import Survey
from shardwright.planner.latency import least_replicas
from shardwright.planner.question import Fit, Question, count
from shardwright.planner.trial import dtypes, judge
from shardwright.planner.types import Candidate, Parallelism

_MOST_GPUS = 4096
"""The largest budget that advice names."""


def too_slow(
    question: Question, surveys: Sequence[Survey], missed: Sequence[Candidate], over: Sequence[Candidate]
) -> tuple[Reason, str]:
    """Name what is out of reach. `over`: arrangements that fit, but not the budget."""
    loaded = [c for c in missed if c.reason is CandidateReason.RATE_TOO_LOW and c.replicas_needed]
    if loaded:
        closest = min(
            loaded,
            key=lambda c: (
                *boldness(c.parallelism), c.replicas_needed * c.parallelism.gpus, c.arrangement,
            ),
        )  # fmt: skip
        reason = Reason.LOAD_TOO_HIGH
    else:
        closest = min(missed, key=lambda c: (c.overshoot, c.parallelism.gpus, c.arrangement))
        reason = Reason.SLO_OUT_OF_REACH
    changes = list(_changes(question, surveys, [*missed, *over], closest))
    advice = f": write {', or '.join(changes)}" if changes else ""
    return reason, f"closest is {closest.arrangement}: {closest.message}{advice}{_hints(closest, changes)}"


def boldness(split: Parallelism) -> tuple[int, int, bool]:
    """Return what orders arrangements by how little of them was ever measured, the plain ones first."""
    return split.pipeline, split.data, split.expert


def _changes(
    question: Question, surveys: Sequence[Survey], tried: Sequence[Candidate], closest: Candidate
) -> Iterator[str]:
    """Yield what would do: a larger budget for the fewest GPUs, an FP8 KV cache, then relaxed targets."""
    found = _larger_budget(question, surveys, tried)
    if found is not None:
        fit, replicas = found
        writes = []
        if fit.gpus * replicas > question.max_gpus:
            writes.append(f"pool.maxGPUs {fit.gpus * replicas}")
        bound = question.resolved.scale.max_replicas
        if bound is not None and bound < replicas:
            writes.append(f"scaling.maxReplicas {replicas}")
        where = f"{fit.parallelism} on {fit.offer.product.short_name}"
        yield f"{' and '.join(writes)} ({count(replicas, 'replica')} of {where})"
    narrow = narrow_cache(question, surveys, tried)
    if narrow is not None:
        yield f"model.allowedKVCacheDtypes [Auto, FP8] ({narrow.name} on {narrow.offer.product.short_name})"
    relaxed = [c for c in tried if c.relaxed]
    if relaxed:
        nearest = closest if closest.relaxed else min(relaxed, key=lambda c: (c.overshoot, c.arrangement))
        yield " and ".join(f"{field} {value}" for field, value in nearest.relaxed)


def _larger_budget(
    question: Question, surveys: Sequence[Survey], tried: Sequence[Candidate]
) -> tuple[Fit, int] | None:
    """Return what would keep everything with the fewest GPUs if the budget were no matter."""
    scaling = question.resolved.scale
    free = replace(
        question,
        spec=question.spec.model_copy(
            update={"pool": question.spec.pool.model_copy(update={"max_gpus": _MOST_GPUS})}
        ),
        resolved=replace(question.resolved, scale=replace(scaling, max_replicas=None)),
    )
    fits = []
    for candidate in tried:
        for one in surveys:
            if (one.model.model_id, one.offer.product.label) == (candidate.model_id, candidate.product):
                fit = judge(free, one.model, one.offer, candidate.parallelism, candidate.kv_cache_dtype)
                if isinstance(fit, Fit):
                    fits.append(fit)
    sized = [(fit, least_replicas(free, fit)) for fit in fits]
    return min(
        sized,
        key=lambda s: (s[0].step >= 2, s[0].gpus * s[1], s[0].gpus, s[0].offer.product.label),
        default=None,
    )


def narrow_cache(question: Question, surveys: Sequence[Survey], tried: Sequence[Candidate]) -> Fit | None:
    """Return what would keep everything with the fewest GPUs if an FP8 KV cache were allowed."""
    if "FP8" in question.resolved.kv_cache_dtypes:
        return None
    allowed = replace(question, resolved=replace(question.resolved, kv_cache_dtypes=("Auto", "FP8")))
    fits = []
    for candidate in tried:
        for one in surveys:
            same = (one.model.model_id, one.offer.product.label) == (candidate.model_id, candidate.product)
            if same and "fp8" in dtypes(allowed, one.offer):
                fits.append(judge(allowed, one.model, one.offer, candidate.parallelism, "fp8"))
    whole = [fit for fit in fits if isinstance(fit, Fit) and not fit.clamped]
    return min(whole, key=lambda f: (f.step, f.gpus * f.replicas, f.offer.product.label), default=None)


def _hints(closest: Candidate, changes: Sequence[str]) -> str:
    """Name what helps against the term that is in the way, without a figure."""
    match closest.reason:
        case CandidateReason.TTFT_TOO_HIGH | CandidateReason.PAUSE_TOO_LONG:
            hint = "shorter prompts in workload.inputTokens, or GPUs with more compute"
        case CandidateReason.TPOT_TOO_HIGH:
            hint = "a quantised checkpoint in model.variants, or GPUs with more memory bandwidth"
        case _:
            hint = "less load in spec.workload, a quantised checkpoint in model.variants, or faster GPUs"
    return f"; {hint} would help too" if changes else f"; {hint} would help"

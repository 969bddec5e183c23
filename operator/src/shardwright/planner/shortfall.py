"""What is said when the pool holds the model, but not the stated targets or the stated load.

Decides the reason, the best that can be had, and the nearest changes that would do; each that is named with a
figure has been tried. Never relaxes anything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardwright.api.reasons import CandidateReason, Reason
from shardwright.planner.candidates import Survey
from shardwright.planner.latency import least_replicas
from shardwright.planner.question import MISSED, STAGES, UNVALIDATED_GAIN, Fit, Question, count
from shardwright.planner.trial import dtypes, judge
from shardwright.planner.types import Candidate, Parallelism

_MOST_GPUS = 4096
"""The largest budget that advice names."""


def too_slow(
    question: Question, surveys: Sequence[Survey], missed: Sequence[Candidate], over: Sequence[Candidate]
) -> tuple[Reason, str]:
    """Name what is out of reach. `over`: arrangements that fit a larger budget, or more replicas."""
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
    changes = list(_changes(question, surveys, [*missed, *over]))
    advice = f": write {', or '.join(changes)}" if changes else ""
    return reason, f"closest is {closest.arrangement}: {closest.message}{advice}{_hints(closest, changes)}"


def boldness(split: Parallelism) -> tuple[int, int, bool]:
    """Return what orders arrangements by how little of them was ever measured, the plain ones first."""
    return split.pipeline, split.data, split.expert


def _changes(question: Question, surveys: Sequence[Survey], tried: Sequence[Candidate]) -> Iterator[str]:
    """Yield what would do: a larger budget for the fewest GPUs, an FP8 KV cache, then relaxed targets."""
    found = larger_budget(question, surveys, tried)
    if found is not None:
        fit, replicas = found
        where = f"{fit.name} on {fit.offer.product.short_name}"
        held = f", of which the nodes hold {fit.room}: add nodes" if fit.room < replicas else ""
        writes = bounds(question, fit.gpus * replicas, replicas)
        yield f"{writes} ({count(replicas, 'replica')} of {where}{held})"
    narrow = narrow_cache(question, surveys, tried)
    if narrow is not None:
        yield f"model.allowedKVCacheDtypes [Auto, FP8] ({narrow.name} on {narrow.offer.product.short_name})"
    if relaxed := [c for c in tried if c.relaxed]:
        nearest = min(relaxed, key=lambda c: (_stretch(question, c), *boldness(c.parallelism), c.arrangement))
        yield " and ".join(f"{field} {value}" for field, value in nearest.relaxed)


def _stretch(question: Question, candidate: Candidate) -> float:
    """Return how many times a stated target has to be what it is, the one that has to be most."""
    stated = question.spec.slo
    times: list[float] = [
        value / getattr(stated, field.split(".")[1]).milliseconds for field, value in candidate.relaxed
    ]
    return max(times)


def bounds(question: Question, gpus: int, replicas: int) -> str:
    """Say what to write where the spec allows fewer GPUs or replicas; empty where it allows so many."""
    scale = question.resolved.scale
    writes = [f"pool.maxGPUs {gpus}"] if gpus > question.max_gpus else []
    if scale.mode == "External" and replicas != scale.planned_replicas:
        writes.append(f"spec.replicas {replicas}")
    elif scale.max_replicas is not None and scale.max_replicas < replicas:
        writes.append(f"scaling.maxReplicas {replicas}")
    return " and ".join(writes)


def larger_budget(
    question: Question, surveys: Sequence[Survey], tried: Sequence[Candidate]
) -> tuple[Fit, int] | None:
    """Return what would keep everything with the fewest GPUs if the budget were no matter, and its replicas.

    Each is tried again with the budget and the replicas that it is said to take.
    """
    sized: list[tuple[Fit, int]] = []
    free = _allowing(question, None)
    for candidate, outcome in again(free, surveys, tried):
        if isinstance(outcome, Fit):
            # With fewer replicas other limits may be the best ones, so that both counts are tried.
            counts = {least_replicas(free, outcome), max(question.replicas, candidate.replicas_needed)}
            sized.extend((outcome, replicas) for replicas in counts)
    sized.sort(key=lambda s: (_counted(*s), s[0].gpus, s[0].offer.product.label))
    for fit, replicas in sized:
        just = _allowing(question, (fit.gpus * replicas, replicas))
        if isinstance(judge(just, fit.model, fit.offer, fit.parallelism, fit.limits.kv_cache_dtype), Fit):
            return fit, replicas
    return None


def _counted(fit: Fit, replicas: int) -> float:
    """Return the GPUs of all replicas; stages and ranks without links count more, as prices have it."""
    return fit.gpus * replicas * (UNVALIDATED_GAIN if fit.step >= STAGES else 1.0)


def beyond_any_budget(
    question: Question, surveys: Sequence[Survey], tried: Sequence[Candidate]
) -> tuple[Reason, str] | None:
    """Say what these arrangements miss with any number of GPUs; None where that is not known."""
    outcomes = (outcome for _, outcome in again(_allowing(question, None), surveys, tried))
    missed = [o for o in outcomes if isinstance(o, Candidate) and o.reason in MISSED]
    if not missed:
        return None
    closest = min(missed, key=lambda c: (c.overshoot, c.parallelism.gpus, c.arrangement))
    return Reason.SLO_OUT_OF_REACH, (
        f"closest is {closest.arrangement}, for which pool.maxGPUs {question.max_gpus} is not enough: "
        f"{closest.message}{_hints(closest, ())}"
    )


def _allowing(question: Question, bounds: tuple[int, int] | None) -> Question:
    """Return the question with another budget of GPUs and replicas; None: as many as anybody may have."""
    scale = question.resolved.scale
    if bounds is None:
        gpus, scale = _MOST_GPUS, replace(scale, mode="Auto", max_replicas=None)
    else:
        gpus, replicas = max(question.max_gpus, bounds[0]), bounds[1]
        most = None if scale.max_replicas is None else max(scale.max_replicas, replicas)
        planned = replicas if scale.mode == "External" else scale.planned_replicas
        scale = replace(scale, max_replicas=most, planned_replicas=planned)
    pool = question.spec.pool.model_copy(update={"max_gpus": gpus})
    return replace(
        question,
        spec=question.spec.model_copy(update={"pool": pool}),
        resolved=replace(question.resolved, scale=scale),
    )


def again(
    question: Question, surveys: Sequence[Survey], tried: Sequence[Candidate]
) -> Iterator[tuple[Candidate, Candidate | Fit]]:
    """Yield what was tried with what becomes of it under another question."""
    for candidate, one in _surveyed(surveys, tried):
        dtype = candidate.kv_cache_dtype
        yield candidate, judge(question, one.model, one.offer, candidate.parallelism, dtype)


def _surveyed(surveys: Sequence[Survey], tried: Sequence[Candidate]) -> Iterator[tuple[Candidate, Survey]]:
    """Yield what was tried with the survey of its checkpoint and product."""
    for candidate in tried:
        for one in surveys:
            if (one.model.model_id, one.offer.product.label) == (candidate.model_id, candidate.product):
                yield candidate, one


def narrow_cache(question: Question, surveys: Sequence[Survey], tried: Sequence[Candidate]) -> Fit | None:
    """Return what would keep everything with the fewest GPUs if an FP8 KV cache were allowed."""
    if "FP8" in question.resolved.kv_cache_dtypes:
        return None
    allowed = replace(question, resolved=replace(question.resolved, kv_cache_dtypes=("Auto", "FP8")))
    fits = [
        judge(allowed, one.model, one.offer, candidate.parallelism, "fp8")
        for candidate, one in _surveyed(surveys, tried)
        if "fp8" in dtypes(allowed, one.offer)
    ]
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

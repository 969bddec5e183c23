"""A plan as the resource's status shows it.

Decides how figures are written: decimals as bounded text, candidates in the planner's order. Never changes a
figure.
"""

from typing import TypedDict

from shardwright.api.status import AdviceStatus, BillLine, CandidateStatus, MixPartStatus, PlanStatus
from shardwright.planner.types import Candidate, MemoryEstimate, MixPart, Plan, Speed

MAX_CANDIDATES = 64
MAX_BILL_LINES = 16
_SHORT = 253
_SENTENCE = 1024


def plan_status(plan: Plan, revision: str) -> PlanStatus:
    """Return the status block of `plan`, in force as `revision` (8 hex digits); totals for its replicas."""
    estimate, limits = plan.estimate, plan.limits
    price = plan.product.price_per_gpu_hour
    total = None if price is None else decimal(price * plan.gpus_per_replica * plan.replicas)
    return PlanStatus(
        summary=_clip(plan.summary, _SHORT),
        model=_clip(plan.model.model_id, _SHORT),
        gpu_product=plan.product.label,
        tensor=plan.parallelism.tensor,
        pipeline=plan.parallelism.pipeline,
        data=plan.parallelism.data,
        expert=plan.parallelism.expert,
        gpus_per_replica=plan.gpus_per_replica,
        replicas=plan.replicas,
        max_context_tokens=limits.max_model_len,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        gpu_memory_utilization_percent=limits.gpu_memory_utilization_percent,
        kv_cache_dtype=limits.kv_cache_dtype,
        weights_gib=decimal(estimate.weights_gib_per_gpu),
        kv_tokens=estimate.kv_tokens * plan.parallelism.data,
        max_concurrency=decimal(estimate.max_concurrency * plan.parallelism.data),
        price_per_hour=total,
        price_origin=plan.product.price_origin,
        coverage=_clip(plan.coverage, _SHORT),
        **_speed(plan.speed),
        binding_constraint=_clip(plan.binding_constraint, _SENTENCE),
        memory_bill=_bill(estimate),
        candidates=[_candidate(candidate) for candidate in shown(plan.candidates)],
        advice=[AdviceStatus(reason=a.reason.value, message=_clip(a.message, _SENTENCE)) for a in plan.advice]
        or None,
        cheaper_mix=[_part(part) for part in plan.cheaper_mix] or None,
        inputs_digest=plan.inputs_digest,
        revision=revision,
    )


class _Predicted(TypedDict, total=False):
    """The fields of the status that a speed fills."""

    ttft_milliseconds: int
    ttft_percentile: int
    tpot_milliseconds: str
    tpot_percentile: int
    requests_per_minute_per_replica: int
    rate_limit: str
    running_per_replica: str
    error_band: str
    missed_targets: list[str] | None


def _speed(speed: Speed | None) -> _Predicted:
    if speed is None:
        return {}
    return {
        "ttft_milliseconds": round(speed.ttft_ms),
        "ttft_percentile": speed.ttft_percentile,
        "tpot_milliseconds": decimal(speed.tpot_ms),
        "tpot_percentile": speed.tpot_percentile,
        "requests_per_minute_per_replica": int(speed.requests_per_minute),
        "rate_limit": speed.limit,
        "running_per_replica": decimal(speed.running),
        "error_band": _clip(band_text(speed), _SHORT),
        "missed_targets": [_clip(phrase, _SENTENCE) for phrase in speed.missed] or None,
    }


def band_text(speed: Speed) -> str:
    """Say how far a prediction may be off."""
    mark = "" if speed.covered else "Unvalidated: "
    return f"{mark}{speed.band_low:.2f} to {speed.band_high:.2f} times the prediction ({speed.band})"


def shown(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Return at most 64 candidates in order; the chosen one is among them."""
    if len(candidates) <= MAX_CANDIDATES:
        return candidates
    chosen = [c for c in candidates[MAX_CANDIDATES:] if c.reason.value == "Chosen"]
    return candidates[: MAX_CANDIDATES - len(chosen)] + tuple(chosen)


def decimal(value: float, digits: int = 2) -> str:
    """Return a figure with two decimals, without exponent or negative zero."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def _bill(estimate: MemoryEstimate) -> list[BillLine]:
    return [
        BillLine(item=_clip(line.item, _SHORT), gibibytes=decimal(line.gib), why=_clip(line.why, _SENTENCE))
        for line in estimate.bill[:MAX_BILL_LINES]
    ]


def _candidate(candidate: Candidate) -> CandidateStatus:
    return CandidateStatus(
        arrangement=_clip(candidate.arrangement, _SHORT),
        reason=candidate.reason.value,
        message=_clip(candidate.message, _SENTENCE),
    )


def _part(part: MixPart) -> MixPartStatus:
    return MixPartStatus(
        model=_clip(part.model_id, _SHORT),
        gpu_product=part.product,
        parallelism=str(part.parallelism),
        kv_cache_dtype=part.kv_cache_dtype,
        replicas=part.replicas,
        gpus=part.gpus,
        traffic_percent=part.traffic_percent,
        price_per_hour=None if part.price_per_hour is None else decimal(part.price_per_hour),
    )


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"

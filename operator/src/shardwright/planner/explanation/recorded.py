"""The explanation of a plan that is in force, from what was frozen with it.

Decides what of a record can be read back, and says what is not in it. Never plans anew: a figure that is not
on record is not made up.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.reasons import CandidateReason
from shardwright.api.status import CalibrationStatus, CandidateStatus, PlanStatus
from shardwright.catalog.types import EngineClass
from shardwright.planner.explanation import document as doc
from shardwright.planner.explanation.build import Case, explain, with_curves
from shardwright.planner.report import MAX_CANDIDATES
from shardwright.planner.types import Candidate, Parallelism, Plan

_ARRANGEMENT = re.compile(
    r"(?P<model>\S+) on (?P<gpu>\S+) TP(?P<tp>\d+)(?:·PP(?P<pp>\d+))?(?:·DP(?P<dp>\d+))?(?P<ep>·EP)?"
    r"(?: (?P<kv>\S+)-KV)?"
)
_REASONS = frozenset(reason.value for reason in CandidateReason)
_ALWAYS = (
    "Which spec the plan was made for: targets and load are those that the spec states now.",
    "The figures of the arrangements that lost: their sentences hold them as far as they counted.",
    "Where replicas would have room now.",
)
_NO_CURVES = (
    "The terms of the predicted times, and their curves: this version of the latency model, or the workload "
    "that the spec states now, is not the one that the plan was made with."
)


def recorded(
    service: doc.Service,
    spec: LLMServiceSpec,
    plan: Plan,
    report: PlanStatus,
    *,
    engine: EngineClass,
    notes: Sequence[str] = (),
    calibration: CalibrationStatus | None = None,
    proposal: doc.Proposal | None = None,
) -> doc.Explanation:
    """Return the explanation of `plan` as it was frozen, with the candidates of its `report`."""
    read = [(found, _read(found, plan)) for found in report.candidates]
    source = doc.Source(type="Recorded", revision=report.revision, not_recorded=())
    case = Case(
        service=service,
        spec=spec,
        decision=plan,
        candidates=tuple(candidate for _, candidate in read if candidate is not None),
        unread=tuple(_unread(found) for found, candidate in read if candidate is None),
        engine=engine,
        products={plan.product.label: plan.product},
        source=source,
        notes=tuple(notes),
        measured=_measured(calibration, report.revision),
        advice=tuple(doc.Advice(reason=each.reason, message=each.message) for each in report.advice or ()),
        proposal=proposal,
    )
    found = with_curves(explain(case), case)
    missing = [*_ALWAYS, _cost(service)]
    if plan.speed is not None and found.curves is None:
        missing.append(_NO_CURVES)
    if len(report.candidates) >= MAX_CANDIDATES:
        missing.append(f"Arrangements beyond the first {MAX_CANDIDATES}.")
    told = source.model_copy(update={"not_recorded": tuple(missing)})
    return found.model_copy(update={"source": told})


def _measured(found: CalibrationStatus | None, revision: str) -> doc.Measured | None:
    """Return what was measured of this revision; what was measured of another says nothing of it."""
    if found is None or found.revision != revision:
        return None
    figures = [
        doc.MeasuredFigure(
            name=f.name, measured=_number(f.measured), predicted=_number(f.predicted), ratio=_number(f.ratio),
            samples=f.samples, reason=f.reason,
        )
        for f in found.figures
    ]  # fmt: skip
    return doc.Measured(source=found.source, at=found.measured_at, figures=tuple(figures))


def _number(text: str | None) -> doc.Number | None:
    return None if text is None else int(text) if text.isdigit() else float(text)


def _cost(service: doc.Service) -> str:
    """Say how to get what only a new decision can tell."""
    return (
        "What another target would cost: that takes the nodes. Ask with kubectl get lsvc "
        f"{service.name} -n {service.namespace} -o yaml | shardwright explain -f - --cluster"
    )


def _read(found: CandidateStatus, plan: Plan) -> Candidate | None:
    """Read a candidate back; None when its name was cut short, or its reason is a newer version's."""
    parts = _ARRANGEMENT.fullmatch(found.arrangement)
    if parts is None or found.reason not in _REASONS:
        return None
    split = Parallelism(
        tensor=int(parts["tp"]),
        pipeline=int(parts["pp"] or 1),
        data=int(parts["dp"] or 1),
        expert=bool(parts["ep"]),
    )
    candidate = Candidate(
        model_id=parts["model"],
        product=parts["gpu"],
        parallelism=split,
        kv_cache_dtype=(parts["kv"] or "auto").lower(),
        reason=CandidateReason(found.reason),
        message=found.message,
    )
    if candidate.reason is not CandidateReason.CHOSEN:
        return candidate
    return replace(candidate, estimate=plan.estimate, replicas=plan.replicas, speed=plan.speed)


def _unread(found: CandidateStatus) -> doc.Candidate:
    return doc.Candidate(
        arrangement=found.arrangement, model=None, gpu=None, parallelism=None, gpus_per_replica=None,
        replicas=None, price_per_hour=None, ttft_ms=None, tpot_ms=None, kv_tokens=None,
        reason=found.reason, message=found.message,
    )  # fmt: skip

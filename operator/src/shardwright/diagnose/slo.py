"""Whether the targets are kept, from measured percentiles and from what the autoscaler tells.

Decides status, reason and message of `SLOMet`. Never measures, and never takes what is unknown for kept.
"""

from shardwright.api.reasons import Reason
from shardwright.api.scaling_reasons import (
    INFEASIBLE_SENTENCES,
    RULE_SENTENCES,
    UNKNOWN_SENTENCES,
    InfeasibleTerm,
    ScalingRule,
    UnknownSignal,
)
from shardwright.api.status import CalibrationStatus, ScalingStatus
from shardwright.diagnose.facts import ServiceFacts
from shardwright.diagnose.verdict import Verdict, running


def slo_met(facts: ServiceFacts) -> Verdict:
    """Say whether the percentiles of the last minutes keep the targets, or why that is not known."""
    metrics, runs = facts.metrics, running(facts)
    if metrics.failure and runs:
        message = (
            f"The engines' metrics cannot be read: {metrics.failure}. Nothing that rests on them changes"
        )
        return Verdict(status="Unknown", reason=Reason.METRICS_UNAVAILABLE, message=message)
    if metrics.not_scraped and runs:
        message = (
            "Prometheus has no series of these pods: check that it scrapes port http of the pods, and that "
            "the names of its namespace and pod labels are those of the operator's options"
        )
        return Verdict(status="Unknown", reason=Reason.ENGINES_NOT_SCRAPED, message=message)
    of_size = _of_size(facts.scaling) if facts.scaling is not None and runs else None
    if of_size is not None and of_size.status == "False":
        return of_size
    measured = metrics.calibration
    if measured is not None and runs and (measured.missed or measured.kept):
        return _of_targets(measured, of_size)
    if of_size is not None:
        return of_size
    message = (
        "No stated target is held against measured percentiles: slo states none, too few requests were "
        "served, or the engines' histograms do not have it among their edges"
    )
    if metrics.calibration is not None:
        message += "; means and their ratios to the prediction are in status.calibration"
    return Verdict(status="Unknown", reason=Reason.NOT_MEASURED, message=message)


def _of_targets(measured: CalibrationStatus, of_size: Verdict | None) -> Verdict:
    """Say which targets are missed, and what holds the size back then; or which are kept."""
    if measured.missed:
        message = f"{' and '.join(measured.missed)} missed by the requests of the last 15 minutes"
        if of_size is not None and of_size.reason is Reason.SIZE_LIMITED:
            message += f". {of_size.message}"
        return Verdict(status="False", reason=Reason.TARGET_MISSED, message=message)
    message = f"{' and '.join(measured.kept or ())} kept by the requests of the last 15 minutes"
    return Verdict(status="True", reason=Reason.TARGETS_KEPT, message=message)


def _of_size(told: ScalingStatus) -> Verdict | None:
    """Say what no size mends, what holds the size back, and what is not known; None when there is nothing."""
    if told.infeasible:
        term = InfeasibleTerm(told.infeasible[0])
        remedy = f". {told.remedy}" if told.remedy and term is InfeasibleTerm.PROMPT_TOO_LONG else ""
        return Verdict(
            status="False",
            reason=Reason(term.value),
            message=f"{INFEASIBLE_SENTENCES[term].rstrip('.')}. The size stays at "
            f"{told.desired_replicas}{remedy}",
        )
    # That the service does not go to zero says nothing of its targets.
    unknown = [UnknownSignal(name) for name in told.unknown or () if name != UnknownSignal.ROUTERS_SILENT]
    if UnknownSignal.SIGNALS_UNKNOWN in unknown:
        message = UNKNOWN_SENTENCES[UnknownSignal.SIGNALS_UNKNOWN].rstrip(".")
        return Verdict(status="Unknown", reason=Reason.SIGNALS_UNKNOWN, message=message)
    if told.limit:
        rule = ScalingRule(told.limit)
        return Verdict(
            status="Unknown",
            reason=Reason.SIZE_LIMITED,
            message=f"{RULE_SENTENCES[rule].rstrip('.')} (status.scaling.limit: {rule})",
        )
    if unknown:
        message = " ".join(UNKNOWN_SENTENCES[name] for name in unknown).rstrip(".")
        return Verdict(status="Unknown", reason=Reason.TARGET_NOT_AN_EDGE, message=message)
    return None

"""The conditions of an LLMService, from observed facts.

Decides status, reason and message of every condition type, always all of them. Never decides what to do: the
same facts give the same conditions, and a transition time is kept while a status stays.

`Available` asks whether clients are served now, by whatever revision: all but one of the promised replicas
answer, and at least one (one may be out, as the disruption budget allows). `Ready` asks for more: this
generation is accepted, planned and placed, and all its replicas answer and no older ones are left.
"""

import re

from shardwright.api.problems import Problem
from shardwright.api.reasons import ConditionType, Reason
from shardwright.api.status import Condition
from shardwright.diagnose.facts import PlacementFacts, RouterFacts, ServiceFacts, WorkloadFacts
from shardwright.diagnose.fetch import fetch_trouble, waits_for
from shardwright.diagnose.rollout import cause_of, ends_first, given_up, under_way
from shardwright.diagnose.routers import unavailable
from shardwright.diagnose.slo import slo_met
from shardwright.diagnose.trouble import (
    HARMLESS,
    WAITS_FOR_PERSON,
    Trouble,
    gone,
    pods_refused,
    severest,
    unschedulable,
    worst,
)
from shardwright.diagnose.verdict import Verdict, running
from shardwright.diagnose.waiting import planned_anew, reason_of, sentence
from shardwright.planner.types import NoPlan, Plan
from shardwright.topology.packing import NO_NODE

MAX_MESSAGE = 4096
MAX_HOLDERS = 3
_WAITS = frozenset({Reason.WAITS_FOR_APPROVAL, Reason.ROLLOUT_PAUSED, Reason.ROLLOUT_FAILED})
"""Reasons of Ready for which a person is waited for."""
_PLAIN_WORD = re.compile(r"[a-z][a-z'-]*(?=[ ,;:])")


def conditions(facts: ServiceFacts) -> tuple[Condition, ...]:
    """Return all conditions in the order of ConditionType."""
    accepted = _accepted(facts)
    planned = _planned(facts, accepted)
    placed = _placed(facts, accepted, planned)
    available = _available(facts, planned, placed)
    ready = _ready(facts, accepted, planned, placed, available)
    degraded = _degraded(facts)
    stalled = _stalled(accepted, planned, ready, degraded)
    verdicts = {
        ConditionType.ACCEPTED: accepted,
        ConditionType.PLANNED: planned,
        ConditionType.PLACED: placed,
        ConditionType.AVAILABLE: available,
        ConditionType.READY: ready,
        ConditionType.SLO_MET: slo_met(facts),
        ConditionType.DEGRADED: degraded,
        ConditionType.RECONCILING: _reconciling(ready, stalled),
        ConditionType.STALLED: stalled,
    }
    before = {condition.type: condition for condition in facts.previous}
    return tuple(_condition(facts, kind, verdicts[kind], before.get(kind.value)) for kind in ConditionType)


def enough(needed: int) -> int:
    """Return how many replicas must answer for Available: all but one, and at least one."""
    return max(1, needed - 1)


def _condition(
    facts: ServiceFacts, kind: ConditionType, verdict: Verdict, old: Condition | None
) -> Condition:
    kept = old is not None and old.status == verdict.status
    return Condition(
        type=kind.value,
        status=verdict.status,
        reason=verdict.reason.value,
        message=verdict.message[:MAX_MESSAGE],
        observed_generation=facts.generation,
        last_transition_time=old.last_transition_time if kept and old else facts.now,
    )


def _accepted(facts: ServiceFacts) -> Verdict:
    blocking = [problem for problem in facts.problems if problem.blocking]
    taken = [
        Problem(
            reason=Reason.CHILD_NAME_TAKEN,
            message=f"{child} exists and is not this service's: delete or rename it, or rename the "
            "LLMService",
        )
        for child in sorted(facts.child_conflicts)
    ]
    if blocking or taken:
        first = (blocking or taken)[0]
        return Verdict(status="False", reason=first.reason, message=_sentences([*blocking, *taken]))
    # What a plan is not covered for is told with the plan.
    ignored = [problem for problem in facts.problems if problem.reason is not Reason.PLAN_NOT_COVERED]
    if ignored:
        return Verdict(status="True", reason=ignored[0].reason, message=_sentences(ignored))
    return Verdict(
        status="True", reason=Reason.VALID, message="The spec and all that it refers to are usable"
    )


def _planned(facts: ServiceFacts, accepted: Verdict) -> Verdict:
    kept = " What runs keeps running." if running(facts) else ""
    if not accepted.holds:
        message = f"Not planned, since the spec is not accepted.{kept}"
        return Verdict(status="False", reason=Reason.NOT_PLANNED, message=message)
    match facts.decision:
        case None:
            message = "The pool has not been read yet"
            return Verdict(status="Unknown", reason=Reason.NOT_OBSERVED, message=message)
        case NoPlan() as none:
            return Verdict(
                status="False", reason=none.reason, message=f"{none.message}{'.' if kept else ''}{kept}"
            )
        case Plan() as plan:
            return _chosen(facts, plan)


def _chosen(facts: ServiceFacts, plan: Plan) -> Verdict:
    if facts.failed is not None:
        return Verdict(status="True", reason=Reason.ROLLOUT_FAILED, message=given_up(facts, facts.failed))
    if facts.waiting is not None:
        return Verdict(status="True", reason=reason_of(facts.waiting), message=sentence(facts, facts.waiting))
    limits = plan.limits
    where = f"{plan.model.model_id} on {plan.product.short_name} {plan.parallelism}"
    what, parts = f"{where}, context {limits.max_model_len} tokens: {plan.binding_constraint}", [*plan.notes]
    uncovered = [problem for problem in facts.problems if problem.reason is Reason.PLAN_NOT_COVERED]
    reason = Reason.PLANNED
    if uncovered or not plan.estimate.covered:
        reason = Reason.PLAN_NOT_COVERED
        parts.append(f"not covered by measurements: {_sentences(uncovered) or plan.coverage}")
    if plan.context_clamped_from is not None:
        reason = Reason.CONTEXT_CLAMPED
        parts.append(
            f"the context of {plan.context_clamped_from} tokens was lowered to what fits: write "
            f"spec.model.maxContextTokens: {limits.max_model_len}, or allow more GPUs to a replica"
        )
    if (off := _prediction_off(facts)) is not None:
        reason = Reason.PREDICTION_OFF
        parts.append(off)
    message = ". ".join(part.rstrip(".") for part in (what, *map(_large, parts)))
    return Verdict(status="True", reason=reason, message=message)


def _large(sentence: str) -> str:
    """Begin a sentence with a large letter, unless its first word is plainly a name or a field."""
    return sentence[:1].upper() + sentence[1:] if _PLAIN_WORD.match(sentence) else sentence


def _prediction_off(facts: ServiceFacts) -> str | None:
    """Name the figures that are off by more than a quarter, without their ratios, which move."""
    told = facts.metrics.calibration
    if told is None or not told.outside or told.revision != facts.target_revision:
        return None
    are = "are" if len(told.outside) > 1 else "is"
    return (
        f"{' and '.join(told.outside)} {are} measured outside 0.8 to 1.25 times the prediction "
        f"(status.calibration): {planned_anew(facts, facts.recalculated)}"
    )


def _placed(facts: ServiceFacts, accepted: Verdict, planned: Verdict) -> Verdict:
    if facts.plan is None or planned.status == "Unknown":
        if facts.waiting is not None and planned.holds:
            message = "Nothing is placed before a plan is approved"
            return Verdict(status="False", reason=reason_of(facts.waiting), message=message)
        message = "There is no plan to place"
        unknown = planned.status == "Unknown"
        return Verdict(status="Unknown" if unknown else "False", reason=Reason.NOT_PLANNED, message=message)
    place = facts.placement
    if place is None:
        return Verdict(status="Unknown", reason=Reason.NOT_OBSERVED, message="No place was asked for yet")
    if place.granted < place.wanted and place.given_up:
        return _given_up(facts, place, accepted)
    if place.granted < place.wanted:
        reason = Reason.PARTIALLY_PLACED if place.granted else Reason.NO_ROOM
        cut = f". {place.cut.sentence}" if place.cut is not None else ""
        return Verdict(status="False", reason=reason, message=f"{_no_room(place)}{cut}")
    stuck = gone(facts) or unschedulable(facts)
    if stuck is not None:
        return Verdict(status="False", reason=stuck.reason, message=stuck.message)
    if place.cut is not None:
        return Verdict(status="False", reason=Reason.GPU_BUDGET_TOO_SMALL, message=place.cut.sentence)
    return Verdict(status="True", reason=Reason.PLACED, message="Every replica has its place on a node")


def _given_up(facts: ServiceFacts, place: PlacementFacts, accepted: Verdict) -> Verdict:
    """Say why no GPUs are held for pods: something keeps them from being made."""
    refused = pods_refused(facts)
    reason, why = accepted.reason, accepted.message
    if accepted.holds and refused is not None:
        reason, why = refused.reason, refused.message
    missing = place.wanted - place.granted
    message = f"No GPUs are held for {missing} of {place.wanted} replicas, whose pods cannot be made: {why}"
    return Verdict(status="False", reason=reason, message=message)


def _no_room(place: PlacementFacts) -> str:
    missing = place.wanted - place.granted
    if place.detail == NO_NODE:
        return (
            f"{missing} of {place.wanted} replicas have no node: {NO_NODE}. They are placed as soon as one "
            "is back or added; the plan stays until the spec changes, so change it to have the GPUs planned "
            f"that are there now{_elsewhere(place)}"
        )
    many = place.gpus_per_replica > 1
    size = f"{place.gpus_per_replica} GPUs on one node" if many else "GPU"
    message = f"The plan fits the pool, but {missing} of {place.wanted} replicas find no {size} free now"
    if place.holders:
        shown = ", ".join(f"{holder.name} ({holder.gpus} GPUs)" for holder in place.holders[:MAX_HOLDERS])
        more = " and others" if len(place.holders) > MAX_HOLDERS else ""
        message += f"; held by {shown}{more}"
    if place.detail:
        message += f". {place.detail[:1].upper()}{place.detail[1:]}"
    return (
        f"{message}. It is placed as soon as GPUs of the plan's kind are freed or nodes of that kind are "
        f"added{_elsewhere(place)}"
    )


def _elsewhere(place: PlacementFacts) -> str:
    """Say on which other products the service could run now; empty when there is none."""
    if not place.elsewhere:
        return ""
    names = ", ".join(place.elsewhere[:MAX_HOLDERS])
    return (
        f". The plan stays with its product whatever is free; there is room now on {names}: to have the "
        f"service planned there, write spec.pool.gpuProducts: [{names}]"
    )


def _available(facts: ServiceFacts, planned: Verdict, placed: Verdict) -> Verdict:
    ready = sum(load.ready for load in facts.workloads)
    if facts.asleep:
        router = facts.router or RouterFacts(desired=0, ready=0, in_front=False)
        if not (router.in_front and router.ready):
            message = unavailable(facts, router)
            return Verdict(status="False", reason=Reason.ROUTER_UNAVAILABLE, message=message)
        message = "Idle, and scaled to zero: the endpoint answers, and the next request starts a replica"
        return Verdict(status="True", reason=Reason.SCALED_TO_ZERO, message=f"{message} and waits for it")
    if facts.needed_replicas == facts.desired_replicas == ready == 0:
        message = "Scaled to zero: raise the replicas to serve again"
        return Verdict(status="False", reason=Reason.SCALED_TO_ZERO, message=message)
    if ready >= enough(facts.needed_replicas):
        if facts.router is not None and facts.router.in_front and not facts.router.ready:
            message = unavailable(facts, facts.router)
            return Verdict(status="False", reason=Reason.ROUTER_UNAVAILABLE, message=message)
        return Verdict(status="True", reason=Reason.SERVING, message="Enough replicas answer")
    trouble = _worst(facts)
    if trouble is not None and trouble.reason not in HARMLESS:
        return Verdict(status="False", reason=trouble.reason, message=trouble.message)
    if not running(facts):
        cause = planned if not planned.holds else placed
        reason, message = (cause.reason, cause.message) if not cause.holds else _coming(facts)
        return Verdict(status="False", reason=reason, message=message)
    if ready:
        message = f"Some replicas answer, but fewer than the service needs{_in_turn(facts)}"
        return Verdict(status="False", reason=Reason.NOT_ENOUGH_REPLICAS, message=message)
    message = f"The engines are loading the model{_in_turn(facts)}"
    return Verdict(status="False", reason=Reason.STARTING, message=message)


def _worst(facts: ServiceFacts) -> Trouble | None:
    """Return the trouble that explains most: of what engines wait for, else of the pods."""
    found = [worst(facts), fetch_trouble(facts.fetch, facts.previous) if facts.fetch is not None else None]
    return severest(trouble for trouble in found if trouble is not None)


def _fetching(facts: ServiceFacts) -> tuple[Reason, str] | None:
    """Return what the next engines wait for, or why it does not come; None when they wait for nothing."""
    if facts.fetch is None:
        return None
    trouble = fetch_trouble(facts.fetch, facts.previous)
    return (
        (trouble.reason, trouble.message)
        if trouble is not None
        else (Reason.FETCHING, waits_for(facts.fetch))
    )


def _coming(facts: ServiceFacts) -> tuple[Reason, str]:
    if facts.fetch is not None:
        return Reason.FETCHING, waits_for(facts.fetch)
    if facts.workloads:
        return Reason.STARTING, _waits_for_claim(facts) or "The pods are being created"
    return Reason.NO_REPLICAS, "No replica exists yet"


def _in_turn(facts: ServiceFacts) -> str:
    """Say why not all start at once; empty when they do."""
    if not facts.staggered:
        return ""
    return (
        ". Each fetches the weights from the hub by itself, so that they start in turn: with a ReadWriteMany "
        "claim in model.cache (type: PVC, claimName: NAME) they are fetched once"
    )


def _waits_for_claim(facts: ServiceFacts) -> str:
    return ends_first(facts.ends_first) if facts.ends_first else ""


def _ready(
    facts: ServiceFacts, accepted: Verdict, planned: Verdict, placed: Verdict, available: Verdict
) -> Verdict:
    # What waits for a person is said first; then what keeps clients from being served.
    if (cause := next((v for v in (accepted, planned) if not v.holds), None)) is not None:
        return Verdict(status="False", reason=cause.reason, message=cause.message)
    waiting = facts.waiting
    if facts.failed is not None or (waiting is not None and waiting.manual):
        return Verdict(status="False", reason=planned.reason, message=planned.message)
    if placed.holds if facts.asleep else available.reason is Reason.SCALED_TO_ZERO:
        return available
    if available.holds and (rollout := _fetching(facts) or under_way(facts.rollout)) is not None:
        return Verdict(status="False", reason=rollout[0], message=f"{rollout[1]}{_in_turn(facts)}")
    for earlier in (placed, available):
        if not earlier.holds:
            return Verdict(status="False", reason=earlier.reason, message=earlier.message)
    target = next((load for load in facts.workloads if load.revision == facts.target_revision), None)
    if target is None or _left_over(facts, target):
        message = (
            _waits_for_claim(facts)
            or "This generation's revision is not fully out: older replicas still serve"
        )
        return Verdict(status="False", reason=Reason.ROLLING_OUT, message=message)
    if target.ready < max(1, facts.desired_replicas) or target.desired != facts.desired_replicas:
        trouble = _worst(facts)
        if trouble is not None and trouble.reason not in HARMLESS:
            return Verdict(status="False", reason=trouble.reason, message=trouble.message)
        message = f"Clients are served, but not all replicas answer yet{_in_turn(facts)}"
        return Verdict(status="False", reason=Reason.NOT_ENOUGH_REPLICAS, message=message)
    if facts.router is not None and not facts.router.in_front:
        message = unavailable(facts, facts.router)
        return Verdict(status="False", reason=Reason.ROUTER_UNAVAILABLE, message=message)
    if waiting is not None:
        message = f"All replicas answer. {planned.message}"
        return Verdict(status="True", reason=planned.reason, message=message)
    return Verdict(status="True", reason=Reason.SERVING, message="All replicas of this generation answer")


def _left_over(facts: ServiceFacts, target: WorkloadFacts) -> bool:
    others = (load for load in facts.workloads if load.revision != target.revision)
    return any(load.pods or load.desired for load in others)


def _degraded(facts: ServiceFacts) -> Verdict:
    trouble = _worst(facts)
    if facts.failed is not None and (trouble is None or trouble.reason in HARMLESS):
        trouble = cause_of(facts.failed)
    if trouble is None:
        return Verdict(status="False", reason=Reason.HEALTHY, message="No trouble is seen")
    return Verdict(status="True", reason=trouble.reason, message=trouble.message)


def _stalled(accepted: Verdict, planned: Verdict, ready: Verdict, degraded: Verdict) -> Verdict:
    """Return Stalled of kstatus: nothing more happens until a person acts."""
    waiting = (
        accepted.status == "False"
        or planned.status == "False"
        or ready.reason in _WAITS
        or (degraded.holds and not ready.holds and degraded.reason in WAITS_FOR_PERSON)
    )
    if not waiting or ready.reason is Reason.SCALED_TO_ZERO:
        return Verdict(status="False", reason=Reason.SETTLED, message="Nothing waits for a person")
    cause = next((v for v in (accepted, planned) if not v.holds), degraded)
    if ready.reason in _WAITS:
        cause = ready
    return Verdict(status="True", reason=Reason.WAITS_FOR_PERSON, message=cause.message)


def _reconciling(ready: Verdict, stalled: Verdict) -> Verdict:
    """Return Reconciling of kstatus: the operator or the cluster is still at work."""
    if ready.holds or stalled.holds or ready.reason is Reason.SCALED_TO_ZERO:
        return Verdict(status="False", reason=Reason.SETTLED, message="Nothing is under way")
    return Verdict(status="True", reason=ready.reason, message=ready.message)


def _sentences(problems: list[Problem]) -> str:
    return "; ".join(f"{p.field}: {p.message}" if p.field else p.message for p in problems)

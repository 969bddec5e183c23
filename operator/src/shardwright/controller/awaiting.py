"""What is told of revisions beside the one in force: one that waits, that is replaced, or did not start.

Decides that nothing is proposed which is not on record: what is approved is exactly what was shown.
"""

from dataclasses import replace
from typing import Final

from shardwright.api.status import FailedStartStatus, ProposalStatus
from shardwright.cluster.facts import ChildFacts
from shardwright.cluster.json import JsonObject
from shardwright.controller.planning import Waiting
from shardwright.controller.recalculation import acts_alone
from shardwright.controller.rollout import Step
from shardwright.controller.situation import Situation
from shardwright.controller.work import Work
from shardwright.diagnose.facts import FailedFacts, RecalculatedFacts, RolloutFacts, WaitingFacts
from shardwright.planner.load import replicas_of
from shardwright.planner.report import decimal
from shardwright.planner.types import NoPlan
from shardwright.render.approval import PROPOSED
from shardwright.render.difference import MAX_CHANGES, Outline, arrangement, phrases, template_changes

_LONGEST: Final = 200
"""Characters of one change in a status."""


def waiting_facts(now: Situation) -> WaitingFacts | None:
    """Return what waits; None when nothing does, or while it is not on record yet."""
    waiting = now.proposal.waiting
    proposal = _told(now, waiting) if waiting is not None else None
    if proposal is None:
        return None
    manual = now.service.spec.plan_policy == "Manual"
    return WaitingFacts(proposal=proposal, in_force=now.target, manual=manual)


def recalculated_facts(now: Situation) -> RecalculatedFacts | None:
    """Return what planning anew leads to; None when nothing was, or while it is not on record yet."""
    found, spec = now.proposal.recalculated, now.service.spec
    if found is None:
        return None
    if isinstance(found, NoPlan):
        return RecalculatedFacts(refused=f"{found.reason}: {found.message}")
    if found.revision == now.target:
        replicas = replicas_of(found.core, now.resolved, spec.pool.max_gpus)
        return RecalculatedFacts(replicas=replicas if replicas > now.desired else 0)
    proposal = _told(now, found)
    if proposal is None:
        return None
    record = now.record_of(found.revision)
    return RecalculatedFacts(
        proposal=proposal.model_copy(update={"cause": "Calibration"}),
        automatic=acts_alone(now.service, now.proposal),
        left_before=record is not None and record.number > PROPOSED,
    )


def failed_facts(now: Situation) -> FailedFacts | None:
    """Return what would be in force, had it started; None when all has started."""
    record = now.record_of(now.proposal.failed) if now.proposal.failed else None
    if record is None or record.failed is None:
        return None
    reason, message, at, _ = record.failed
    return FailedFacts(
        name=record.name,
        revision=record.revision,
        summary=str((record.stored().get("report") or {}).get("summary", "")),
        failed=FailedStartStatus(reason=reason, message=message, at=at),
        back_to=now.target,
        approved=now.service.spec.approved_revision == record.revision,
    )


def rollout_facts(work: Work) -> RolloutFacts | None:
    """Return how far a rollout is; None when none is under way."""
    state, decision = work.state, work.decision
    if state is None or not state.old or decision.step is Step.NONE:
        return None
    return RolloutFacts(
        strategy=state.strategy.value,
        step=decision.step.value,
        from_revision=state.old[-1].revision,
        to_revision=state.target,
        ready=state.new.ready,
        desired=state.new.desired,
        missing_gpus=decision.missing_gpus,
        max_gpus=decision.max_gpus,
        gpus_per_replica=state.new.gpus,
        claim=work.ends_first,
        canary_step=work.canary.step if work.canary else 0,
        canary=_canary(work),
    )


def _canary(work: Work) -> str:
    canary = work.canary
    if canary is None or canary.done:
        return ""
    return f"step {canary.step} of {canary.steps}: {canary.judgement.message.lower()}"


def _told(now: Situation, waiting: Waiting) -> ProposalStatus | None:
    """Return a plan that is not in force as status shows it; None while it is not on record."""
    record = now.record_of(waiting.revision)
    if record is None:
        return None
    spec = now.service.spec
    count = replicas_of(waiting.core, now.resolved, spec.pool.max_gpus)
    after = Outline(revision=waiting.revision, plan=waiting.core, replicas=count)
    core, before = now.proposal.core, None
    if core is not None:
        # What was measured is in the figures of one only: they do not compare.
        known = replace(core, speed=None) if now.proposal.waiting is None else core
        before = Outline(revision=now.target, plan=known, replicas=now.desired)
    changes = list(phrases(before, after))
    running = now.record_of(now.target)
    if core is not None and running is not None:
        same = not arrangement(core, waiting.core)
        changes[-1:-1] = template_changes(_template(running), _template(record), same_arrangement=same)
    price = after.price_per_hour
    return ProposalStatus(
        revision=waiting.revision,
        summary=after.summary,
        replicas=count,
        gpus=after.gpus,
        price_per_hour=None if price is None else decimal(price),
        changes=_bounded(changes),
    )


def _template(record: ChildFacts) -> JsonObject:
    template: JsonObject = record.stored().get("template") or {}
    return template


def _bounded(changes: list[str]) -> list[str]:
    """Keep the last, which says what becomes of the pods."""
    clipped = [change if len(change) <= _LONGEST else f"{change[: _LONGEST - 1]}…" for change in changes]
    if len(clipped) <= MAX_CHANGES:
        return clipped
    left_out = f"{len(clipped) - MAX_CHANGES + 1} more"
    return [*clipped[: MAX_CHANGES - 2], left_out, clipped[-1]]

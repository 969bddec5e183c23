"""The whole status of an LLMService, from facts.

Decides what is reported. Never a live figure: counts change with transitions only, the plan's figures are
those of the decision, and the calibration is handed in as it was last worth telling.
"""

from decimal import Decimal

from shardwright.api.names import endpoint, engine_selector
from shardwright.api.status import (
    LLMServiceStatus,
    PlanStatus,
    ProposalStatus,
    RevisionStatus,
    RolloutStatus,
)
from shardwright.diagnose.conditions import conditions
from shardwright.diagnose.facts import ServiceFacts, WorkloadFacts

MAX_REVISIONS = 8


def status(facts: ServiceFacts) -> dict[str, object]:
    """Return the status as the API server takes it: no nulls, decimals as text."""
    ready = sum(load.ready for load in facts.workloads)
    report = LLMServiceStatus(
        observed_generation=facts.generation,
        conditions=list(conditions(facts)),
        plan=for_replicas(facts.plan, facts.desired_replicas) if facts.plan else None,
        calibration=facts.metrics.calibration,
        scaling=facts.scaling,
        revisions=_revisions(facts) or None,
        rollout=_rollout(facts),
        proposal=_proposal(facts),
        replicas=sum(load.desired for load in facts.workloads),
        ready_replicas=ready,
        ready_summary=f"{ready}/{facts.desired_replicas}",
        selector=",".join(f"{key}={value}" for key, value in sorted(engine_selector(facts.name).items())),
        endpoint=endpoint(facts.namespace, facts.name),
    )
    return report.model_dump(mode="json", by_alias=True, exclude_none=True)


def _proposal(facts: ServiceFacts) -> ProposalStatus | None:
    """Return what is proposed: what waits comes before what was planned anew."""
    if facts.waiting is not None:
        return facts.waiting.proposal
    return facts.recalculated.proposal if facts.recalculated is not None else None


def for_replicas(plan: PlanStatus, replicas: int) -> PlanStatus:
    """Return `plan` as it reads with another replica count: summary, count and total price."""
    if replicas == plan.replicas:
        return plan
    shape = plan.summary.rpartition(" ×")[0] or plan.summary
    changes: dict[str, object] = {"replicas": replicas, "summary": f"{shape} ×{replicas}"}
    if plan.price_per_hour is not None and plan.replicas:
        total = Decimal(plan.price_per_hour) * replicas / plan.replicas
        changes["price_per_hour"] = f"{total:.2f}"
    return plan.model_copy(update=changes)


def _rollout(facts: ServiceFacts) -> RolloutStatus | None:
    """Return how far a rollout is; it began when the last status says, while it is the same one."""
    now, before = facts.rollout, facts.previous_rollout
    if now is None:
        return None
    same = before is not None and before.to_revision == now.to_revision
    return RolloutStatus.model_validate(
        {
            "strategy": now.strategy,
            "step": now.step,
            "from_revision": now.from_revision,
            "to_revision": now.to_revision,
            "ready": now.ready,
            "desired": now.desired,
            "canary_step": now.canary_step or None,
            "since": before.since if before is not None and same else facts.now,
        }
    )


def _revisions(facts: ServiceFacts) -> list[RevisionStatus]:
    """Return what runs, and what did not start."""
    found, failed = [_revision(load) for load in _ordered(facts)], facts.failed
    if failed is None:
        return found
    known = next((each for each in found if each.hash == failed.revision), None)
    if known is not None:
        found.remove(known)
    else:
        known = RevisionStatus(
            name=failed.name, hash=failed.revision, summary=failed.summary, replicas=0, ready_replicas=0
        )
    return [*found[: MAX_REVISIONS - 1], known.model_copy(update={"failed": failed.failed})]


def _ordered(facts: ServiceFacts) -> list[WorkloadFacts]:
    """Return the target first, then the others by name, without empty ones."""
    shown = [w for w in facts.workloads if w.revision == facts.target_revision or w.desired or w.pods]
    return sorted(shown, key=lambda w: (w.revision != facts.target_revision, w.name))[:MAX_REVISIONS]


def _revision(load: WorkloadFacts) -> RevisionStatus:
    return RevisionStatus(
        name=load.name,
        hash=load.revision,
        summary=load.summary,
        replicas=load.desired,
        ready_replicas=load.ready,
    )

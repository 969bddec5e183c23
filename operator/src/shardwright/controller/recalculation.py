"""What planning the same spec again would lead to, where the engines are not as the plan in force predicts.

Decides when a plan in force is worth another one, and when `planPolicy: Auto` puts that in force. Under any
other policy it is proposed, and nothing moves. Never touches a service whose spec has no plan, or waits.

What keeps it from going back and forth: a plan carries what it counted with, so that only what is measured
under it is news; Auto acts after an hour without a look that finds it as predicted, which no restart
shortens; and it never goes back to a revision that was in force before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shardwright.api.llmservice import LLMService, ServiceKey
from shardwright.cluster.facts import ChildFacts, ServiceEntry
from shardwright.controller.planning import Planning, Proposal, Waiting
from shardwright.planner.placement import nodes_of
from shardwright.planner.types import Correction, ModelChoice, NoPlan, Plan
from shardwright.render.approval import PROPOSED
from shardwright.topology.types import Resources

SETTLED_S: Final = 3600.0
"""How long engines have to be measured off their plan, without a pause, before Auto acts: a start, and
several times the 15 minutes that a mean is taken over. Our choice."""


@dataclass(slots=True)
class Recalculation:
    """Asks the planner again. `clock` gives seconds."""

    planning: Planning
    clock: Callable[[], float]
    off: Callable[[ServiceEntry, str], bool] = lambda _entry, _revision: False
    """Whether a figure of a revision was outside the bounds when it was last known."""
    off_since: Callable[[ServiceKey, Plan], float | None] = lambda _key, _plan: None
    """Since when this process has measured a plan to be off, without a pause; None: it is not."""

    def due(self, entry: ServiceEntry, plan: Plan, revision: str) -> bool:
        """Whether a plan in force is off, and something is known that it did not count with."""
        if not self.off(entry, revision):
            return False
        known = self.planning.correction_of(entry, plan)
        return known is not None and _ratios(known) != _ratios(plan.correction)

    def known(self, entry: ServiceEntry, proposal: Proposal) -> tuple[object, ...]:
        """Return what another decision would rest on; empty while the target is as predicted."""
        core, other = proposal.core, proposal.recalculated
        if core is None or not self.off(entry, proposal.target):
            return ()
        plans = [core, other.core] if isinstance(other, Waiting) else [core]
        return tuple(_ratios(self.planning.correction_of(entry, plan)) for plan in plans)

    def is_news(self, entry: ServiceEntry, proposal: Proposal) -> bool:
        """Whether something else is known than when a service was decided."""
        return self.known(entry, proposal) != proposal.seen

    def is_time(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> bool:
        """Whether to decide again all the same: Auto may act by now, or nothing came of planning anew."""
        core = proposal.core
        if core is None or not self.due(entry, core, proposal.target):
            return False
        return proposal.recalculated is None or self._settled(entry, service, proposal)

    def add(
        self,
        entry: ServiceEntry,
        service: LLMService,
        models: tuple[ModelChoice, ...],
        proposal: Proposal,
        revisions: list[ChildFacts],
    ) -> Proposal:
        """Return what is to be in force, with what planning anew leads to beside it, or in its place."""
        core = proposal.core
        quiet = core is None or proposal.held or proposal.blocked or proposal.waiting is not None
        if core is None or quiet or not models or not self.due(entry, core, proposal.target):
            return proposal
        decision, new, target = self.planning.decide(entry, service, models)
        if isinstance(decision, NoPlan) or new is None:
            proposal.recalculated = decision if isinstance(decision, NoPlan) else None
            return proposal
        record = next((r for r in revisions if r.revision == target), None)
        again = record is not None and record.number > PROPOSED
        acts = target != proposal.target and not again and self._settled(entry, service, proposal)
        if acts and self._has_room(entry, service, new):
            return Proposal(
                generation=entry.generation,
                problems=proposal.problems,
                decision=decision,
                target=target,
                core=new,
                record=record,
                priority=proposal.priority,
                for_one_node=proposal.for_one_node,
                for_one_pod=proposal.for_one_pod,
                unbound=proposal.unbound,
                fingerprint=proposal.fingerprint,
            )
        proposal.recalculated = Waiting(revision=target, core=new, record=record, decision=decision)
        return proposal

    def _settled(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> bool:
        """Whether the policy lets another plan take effect by now."""
        if proposal.core is None or not acts_alone(service, proposal):
            return False
        since = self.off_since(entry.key, proposal.core)
        return since is not None and self.clock() - since >= SETTLED_S

    def _has_room(self, entry: ServiceEntry, service: LLMService, new: Plan) -> bool:
        """Whether a replica would find a place now, where its own pods may make room."""
        held: dict[str, Resources] = {}
        for pod in self.planning.pods_of(entry.key):
            held[pod.node] = held.get(pod.node, Resources()).plus(pod.requests)
        return any(
            new.pod_resources.fits_in(self.planning.ledger.free(node).plus(held.get(node, Resources())))
            for node in nodes_of(new, self.planning.pool(service.spec.pool))
        )


def acts_alone(service: LLMService, proposal: Proposal) -> bool:
    """Whether Auto may act at all: nothing is approved by name, and no old pod has to end first."""
    spec = service.spec
    return spec.plan_policy == "Auto" and spec.approved_revision is None and not proposal.for_one_node


def _ratios(correction: Correction | None) -> tuple[float | None, ...]:
    known = correction or Correction()
    return known.ttft, known.tpot, known.memory

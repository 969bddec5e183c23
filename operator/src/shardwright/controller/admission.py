"""Who is decided when: services that wait for a decision are decided together, in rank order.

Decides that a service of higher priority, or an older one, is offered places before any that ranks
behind it, however their events arrived and however long their references took to check. Keeps the loop
responsive: a long batch yields.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from shardwright.api.llmservice import LLMService, ServiceKey
from shardwright.api.problems import Problem
from shardwright.api.support import unimplemented
from shardwright.autoscaler import schedule
from shardwright.cluster.errors import ClusterError, Transient
from shardwright.cluster.facts import ChildFacts, ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.apply import Applier
from shardwright.controller.approvals import govern
from shardwright.controller.dispatch import Dispatch
from shardwright.controller.one_node import recorded_claims
from shardwright.controller.planning import Planning, Proposal, outcome, revisions_of, wanted_replicas
from shardwright.controller.recalculation import Recalculation
from shardwright.controller.references import References, Resolved, unknown_variants
from shardwright.controller.rolling import answering, claimable, needs_a_whole_set
from shardwright.metrics.exposition import Exposition
from shardwright.planner.types import ModelChoice, NoPlan
from shardwright.render import overlay, routing
from shardwright.render.approval import in_force
from shardwright.render.revision import RevisionError

_LOG = logging.getLogger(__name__)

SLICE_S: Final = 0.02
"""How long a batch may hold the loop."""
CHECKS_AT_ONCE: Final = 16
CHECK_TIMEOUT_S: Final = 5.0
CENSUS_FROM: Final = 5
"""New services in a namespace from which on its names are listed."""
FRESH_S: Final = 1.0
"""How long a failure of somebody else's batch counts as an attempt of one's own."""


@dataclass(slots=True)
class _Case:
    """A service of a batch."""

    entry: ServiceEntry
    """As it was checked."""
    kept: ChildFacts | None = None
    """The revision that it runs already; then its models were not looked up."""
    resolved: Resolved = field(default_factory=Resolved)
    models: tuple[ModelChoice, ...] = ()
    """Looked up all the same, where the revision that it runs is not as predicted."""
    error: Exception | None = None
    """Why it could not be decided."""

    @property
    def rank(self) -> tuple[int, float, ServiceKey]:
        """Order of deciding."""
        return -self.resolved.priority, self.entry.created_s, self.entry.key


@dataclass(slots=True)
class Admission:
    """Decides batches. One for the whole operator."""

    store: Store
    planning: Planning
    dispatch: Dispatch
    references: References
    applier: Applier
    metrics: Exposition
    clock: Callable[[], float]
    recalculation: Recalculation
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _deciding: frozenset[ServiceKey] = frozenset()
    """The batch in hand."""
    _failed: dict[ServiceKey, tuple[float, Exception]] = field(default_factory=dict)
    """Why, and when, deciding a service failed, until its own worker is told."""

    async def ensure(self, key: ServiceKey) -> None:
        """Return when `key` is decided for what is known now, or is not to be decided at all.

        Raises ClusterError when its own references could not be checked, and whatever deciding it raised.
        """
        while self._open(key):
            failed_at, error = self._failed.pop(key, (0.0, None))
            if error is not None and self.clock() - failed_at < FRESH_S:
                raise error
            async with self._lock:
                if self._open(key) and key not in self._failed:
                    self.dispatch.undecided.add(key)
                    await self._batch()
        self._failed.pop(key, None)

    def _open(self, key: ServiceKey) -> bool:
        """Whether a service has to be decided before it is worked on.

        What is decided for another generation is open whoever forgot to say so.
        """
        entry = self.store.services.get(key)
        if entry is None or entry.deleting:
            return False
        proposal = self.planning.proposals.get(key)
        stale = proposal is None or proposal.generation != entry.generation
        stale = stale or (proposal is not None and self.recalculation.is_news(entry, proposal))
        return stale or key in self.dispatch.undecided or key in self._deciding

    async def _batch(self) -> None:
        """Decide all that is undecided. Each leaves `undecided` in the very step that decides it."""
        found = (self.store.services.get(key) for key in self.dispatch.undecided)
        batch = [_Case(entry) for entry in found if entry is not None and not entry.deleting]
        self._deciding = frozenset(case.entry.key for case in batch)
        try:
            await self._check(batch)
            await self._decide(sorted(batch, key=lambda case: case.rank))
            await self._count_names(case.entry for case in batch)
        finally:
            self._deciding = frozenset()
            now = self.clock()
            self._failed |= {case.entry.key: (now, case.error) for case in batch if case.error is not None}

    async def _count_names(self, batch: Iterable[ServiceEntry]) -> None:
        """Where many services are new, one list of names is cheaper than a look at each."""
        new = Counter(
            entry.key.namespace for entry in batch if not self.store.children_of(entry.key) and entry.service
        )
        try:
            await self.applier.take_census(ns for ns, count in new.items() if count >= CENSUS_FROM)
        except ClusterError as error:
            _LOG.debug("no census, each name is looked at error=%s", error)

    async def _check(self, batch: list[_Case]) -> None:
        """Check the references of those that may need a new plan, at most some at once."""
        gate = asyncio.Semaphore(CHECKS_AT_ONCE)

        async def check(case: _Case, service: LLMService) -> None:
            async with gate:
                try:
                    await asyncio.wait_for(self._resolve(case, service), CHECK_TIMEOUT_S)
                except ClusterError as error:
                    case.error = error
                except TimeoutError:
                    case.error = Transient("checking references took too long")

        await asyncio.gather(*(check(c, c.entry.service) for c in batch if c.entry.service is not None))

    async def _resolve(self, case: _Case, service: LLMService) -> None:
        case.kept = self._kept(case.entry, service)
        recorded = recorded_claims(revisions_of(self.store.children_of(case.entry.key), case.entry.uid))
        if case.kept is None:
            case.resolved = await self.references.resolve(case.entry.key, service.spec, recorded)
        else:
            case.resolved = await self.references.recheck(case.entry.key, service.spec, recorded)
            await self._resolve_again(case, service, case.kept)

    async def _resolve_again(self, case: _Case, service: LLMService, kept: ChildFacts) -> None:
        """Look models up for planning anew; when that fails the plan in force is told without another."""
        core = self.planning.core_of(case.entry.uid, kept)
        if self.recalculation.due(case.entry, core, kept.revision):
            try:
                case.models = (await self.references.resolve(case.entry.key, service.spec)).models
            except ClusterError as error:
                _LOG.warning("not planned anew service=%s error=%s", case.entry.key, error)

    def measured(self, key: ServiceKey) -> None:
        """Decide a service again whose engines were measured, where that may lead to another plan."""
        entry, proposal = self.store.services.get(key), self.planning.proposals.get(key)
        if entry is None or entry.deleting or entry.service is None or proposal is None:
            return
        if self.recalculation.is_time(entry, entry.service, proposal):
            self.dispatch.undecided.add(key)
            self.dispatch.queue.add(key)
        elif self.recalculation.is_news(entry, proposal):
            self.dispatch.queue.add(key)

    async def _decide(self, ranked: list[_Case]) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + SLICE_S
        for case in ranked:
            entry = self._unchanged(case.entry)
            if entry is None or case.error is not None:
                continue  # it is gone, or stays undecided
            with self.metrics.cpu("decide"):
                try:
                    self._decide_one(entry, case)
                except Exception as error:  # noqa: BLE001 -- raised to its own service; the others go on
                    case.error = error
                else:
                    self.dispatch.undecided.discard(entry.key)
            if loop.time() > until:
                await asyncio.sleep(0)
                until = loop.time() + SLICE_S
        with self.metrics.cpu("decide"):
            self.planning.ledger.settle(self.clock())
            self.dispatch.wake_changed()

    def _unchanged(self, checked: ServiceEntry) -> ServiceEntry | None:
        """Return a service as it is now, None when what was checked no longer is what it asks for."""
        entry = self.store.services.get(checked.key)
        if entry is None or entry.deleting:
            return None
        same = entry.uid, entry.generation, entry.spec_digest
        return entry if same == (checked.uid, checked.generation, checked.spec_digest) else None

    def _decide_one(self, entry: ServiceEntry, case: _Case) -> None:
        service = entry.service
        if service is None:
            self.planning.proposals[entry.key] = Proposal(
                generation=entry.generation, problems=entry.problems
            )
            return
        revisions = revisions_of(self.store.children_of(entry.key), entry.uid)
        running = answering(self.store, entry) if any(r.failed for r in revisions) else {}
        wanted = self._propose(entry, service, case)
        proposal = govern(self.planning, entry, service, wanted, revisions, running=running)
        proposal.priority, proposal.for_one_node = case.resolved.priority, case.resolved.for_one_node
        proposal.for_one_pod, proposal.unbound = case.resolved.for_one_pod, case.resolved.unbound
        if case.kept is not None and proposal.target == case.kept.revision:
            proposal = self.recalculation.add(entry, service, case.models, proposal, revisions)
        before = self.planning.proposals.get(entry.key)
        if before is not None and before.target and before.target != proposal.target:
            self.planning.ledger.release((entry.key[0], entry.key[1]), before.target)
        proposal.seen = self.recalculation.known(entry, proposal)
        self.planning.proposals[entry.key] = proposal
        if proposal.core is not None:
            self.claim(entry, service, proposal)

    def claim(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> None:
        """Submit the claim of a service's target, for as many pods as can be made."""
        if proposal.core is None:
            return
        children = self.store.children_of(entry.key).values()
        replicas = wanted_replicas(entry, service, proposal, children, self.planning.scaled)
        most = self.planning.most_pods(entry, proposal.target)
        replicas = replicas if most is None else min(replicas, most)
        replicas = claimable(entry, service, proposal, replicas, planning=self.planning, store=self.store)
        whole = needs_a_whole_set(service, proposal.target, children, entry.uid)
        claim = self.planning.claim_of(entry, service, proposal, replicas, all_or_none=whole)
        self.planning.ledger.submit(claim)

    def _propose(self, entry: ServiceEntry, service: LLMService, case: _Case) -> Proposal:
        resolved = case.resolved
        spec = service.spec
        found = unimplemented(spec), unknown_variants(spec), overlay.check(spec), schedule.check(spec)
        problems = (*chain(*found), *resolved.problems, *routing.check(spec))
        if case.kept is not None:
            self.metrics.planned("Kept")
            return self.planning.propose_kept(entry, service, case.kept, problems)
        if any(problem.blocking for problem in problems):
            self.metrics.planned("Refused")
            return self._hold(entry, service, problems)
        proposal = self.planning.propose(entry, service, resolved.models, problems)
        if proposal.decision is not None:
            self.metrics.planned(outcome(proposal.decision))
        if isinstance(proposal.decision, NoPlan):
            held = self._hold(entry, service, problems)
            held.decision = proposal.decision
            return held
        return proposal

    def _hold(self, entry: ServiceEntry, service: LLMService, problems: tuple[Problem, ...]) -> Proposal:
        """Keep what runs, when this generation cannot be run."""
        proposal = Proposal(generation=entry.generation, problems=problems)
        revision = in_force(revisions_of(self.store.children_of(entry.key), entry.uid))
        if revision is not None:
            try:
                proposal.core = self.planning.core_of(entry.uid, revision)
                proposal.target = revision.revision
                proposal.record = revision
                proposal.held = True
            except RevisionError as error:
                _LOG.warning("revision unreadable service=%s error=%s", service.key, error)
        return proposal

    def _kept(self, entry: ServiceEntry, service: LLMService) -> ChildFacts | None:
        """Find the revision that this spec runs already; None when none is on record or it cannot be read."""
        kept = self.planning.keep(entry, service, revisions_of(self.store.children_of(entry.key), entry.uid))
        if kept is not None:
            try:
                self.planning.core_of(entry.uid, kept)
            except RevisionError as error:
                _LOG.warning(
                    "revision unreadable service=%s revision=%s error=%s", entry.key, kept.name, error
                )
                return None
        return kept

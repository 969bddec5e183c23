"""Who is decided when: services that wait for a decision are decided together, in rank order.

Decides that a service of higher priority, or an older one, is offered places before any that ranks
behind it, however their events arrived and however long their references took to check. Keeps the loop
responsive: a long batch yields.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.llmservice import LLMService, ServiceKey
from shardwright.api.problems import Problem
from shardwright.api.support import unimplemented
from shardwright.cluster.errors import ClusterError, Transient
from shardwright.cluster.facts import ChildFacts, ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.apply import Applier
from shardwright.controller.dispatch import Dispatch
from shardwright.controller.planning import Planning, Proposal, outcome, revisions_of, wanted_replicas
from shardwright.controller.references import References, Resolved
from shardwright.metrics.exposition import Exposition
from shardwright.planner.types import NoPlan
from shardwright.render import overlay
from shardwright.render.revision import RevisionError

_LOG = logging.getLogger(__name__)

SLICE_S: Final = 0.02
"""How long a batch may hold the loop."""
CHECKS_AT_ONCE: Final = 16
CHECK_TIMEOUT_S: Final = 5.0
CENSUS_FROM: Final = 5
"""New services in a namespace from which on its names are listed."""


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
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _deciding: set[ServiceKey] = field(default_factory=set)
    """The batch in hand."""
    _failed: dict[ServiceKey, Exception] = field(default_factory=dict)

    async def ensure(self, key: ServiceKey) -> None:
        """Return when `key` is decided for what is known now.

        Raises ClusterError when its own references could not be checked, and whatever deciding it raised.
        """
        while key in self.dispatch.undecided or key in self._deciding:
            async with self._lock:
                if key in self.dispatch.undecided:
                    await self._batch()
        error = self._failed.pop(key, None)
        if error is not None:
            self.dispatch.undecided.add(key)
            raise error

    async def _batch(self) -> None:
        batch = [self.store.services[k] for k in self.dispatch.undecided if k in self.store.services]
        self._deciding = {entry.key for entry in batch}
        self.dispatch.undecided.clear()  # whoever changes from here on is decided again
        try:
            resolved = await self._check(batch)
            ranked = sorted(batch, key=lambda e: (-resolved[e.key].priority, e.created_s, e.key))
            await self._decide(ranked, resolved)
            await self._count_names(batch)
        except BaseException:
            self.dispatch.undecided.update(self._deciding)
            raise
        finally:
            self._deciding = set()

    async def _count_names(self, batch: list[ServiceEntry]) -> None:
        """Where many services are new, one list of names is cheaper than a look at each."""
        new = Counter(
            entry.key.namespace for entry in batch if not self.store.children_of(entry.key) and entry.service
        )
        try:
            await self.applier.take_census(ns for ns, count in new.items() if count >= CENSUS_FROM)
        except ClusterError as error:
            _LOG.debug("no census, each name is looked at error=%s", error)

    async def _check(self, batch: list[ServiceEntry]) -> dict[ServiceKey, Resolved]:
        """Check the references of those that may need a new plan, at most some at once."""
        gate = asyncio.Semaphore(CHECKS_AT_ONCE)
        resolved = {entry.key: Resolved() for entry in batch}

        async def check(entry: ServiceEntry, service: LLMService) -> None:
            async with gate:
                try:
                    resolved[entry.key] = await asyncio.wait_for(
                        self._resolve(entry, service), CHECK_TIMEOUT_S
                    )
                except ClusterError as error:
                    self._failed[entry.key] = error
                except TimeoutError:
                    self._failed[entry.key] = Transient("checking references took too long")

        await asyncio.gather(
            *(check(e, e.service) for e in batch if e.service is not None and not e.deleting)
        )
        return resolved

    async def _resolve(self, entry: ServiceEntry, service: LLMService) -> Resolved:
        if self._kept(entry, service) is not None:
            return Resolved(
                problems=await self.references.unshareable(entry.key, service.spec),
                priority=await self.references.priority(service.spec.pool.priority_class_name),
            )
        return await self.references.resolve(entry.key, service.spec)

    async def _decide(self, ranked: list[ServiceEntry], resolved: dict[ServiceKey, Resolved]) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + SLICE_S
        for entry in ranked:
            if entry.key in self._failed or self.store.services.get(entry.key) is not entry:
                continue
            with self.metrics.cpu("decide"):
                try:
                    self._decide_one(entry, resolved[entry.key])
                except Exception as error:  # noqa: BLE001 -- raised to its own service; the others go on
                    self._failed[entry.key] = error
            if loop.time() > until:
                await asyncio.sleep(0)
                until = loop.time() + SLICE_S
        with self.metrics.cpu("decide"):
            self.planning.ledger.settle(self.clock())
            self.dispatch.wake_changed()

    def _decide_one(self, entry: ServiceEntry, resolved: Resolved) -> None:
        service = entry.service
        if service is None:
            self.planning.proposals[entry.key] = Proposal(
                generation=entry.generation, problems=entry.problems
            )
            return
        proposal = self._propose(entry, service, resolved)
        proposal.priority = resolved.priority
        before = self.planning.proposals.get(entry.key)
        if before is not None and before.target and before.target != proposal.target:
            self.planning.ledger.release((entry.key[0], entry.key[1]), before.target)
        self.planning.proposals[entry.key] = proposal
        if proposal.core is not None:
            self.claim(entry, service, proposal)

    def claim(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> None:
        """Submit the claim of a service's target."""
        if proposal.core is None:
            return
        children = self.store.children_of(entry.key).values()
        replicas = wanted_replicas(entry, service, proposal, children)
        self.planning.ledger.submit(self.planning.claim_of(entry, service, proposal, replicas))

    def _propose(self, entry: ServiceEntry, service: LLMService, resolved: Resolved) -> Proposal:
        kept = self._kept(entry, service)
        problems = (*unimplemented(service.spec), *overlay.check(service.spec), *resolved.problems)
        if kept is not None:
            try:
                proposal = self.planning.propose_kept(entry, service, kept, problems)
            except RevisionError as error:
                _LOG.warning(
                    "revision unreadable service=%s revision=%s error=%s", entry.key, kept.name, error
                )
            else:
                self.metrics.planned("Kept")
                return proposal
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
        for revision in revisions_of(self.store.children_of(entry.key), entry.uid)[:1]:
            try:
                proposal.core = self.planning.core_of(entry.uid, revision)
                proposal.target = revision.revision
                proposal.record = revision
                proposal.held = True
            except RevisionError as error:
                _LOG.warning("revision unreadable service=%s error=%s", service.key, error)
        return proposal

    def _kept(self, entry: ServiceEntry, service: LLMService) -> ChildFacts | None:
        revisions = revisions_of(self.store.children_of(entry.key), entry.uid)
        return self.planning.keep(entry, service, revisions)

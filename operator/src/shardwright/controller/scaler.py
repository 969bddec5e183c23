"""The live loop of the autoscaler: one reading of the fleet, one tick of the law for each service.

Decides when a service is looked at and from which size it goes on. The size itself is `autoscaler.law`'s, and
it is written where every size is: the work queue claims places for it and applies the workload. Never makes a
service smaller for what it does not know: after a restart a size goes on from what the status says and what
runs, and services of which no engine has ever reported keep the planned count.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from shardwright.api.defaults import Resolved, resolve
from shardwright.api.llmservice import LLMService, ServiceKey
from shardwright.api.status import ScalingStatus
from shardwright.autoscaler import journal
from shardwright.autoscaler.fleet import (
    Edges,
    Span,
    asked,
    fleet_signals,
    follow,
    moment_of,
    prompt_edge,
    reports,
)
from shardwright.autoscaler.law import complete, longest_prompt_tokens, tick
from shardwright.autoscaler.planned import carried
from shardwright.autoscaler.replica import capacity
from shardwright.autoscaler.schedule import bounds_at
from shardwright.autoscaler.signals import FleetSignals, ScalingPlan
from shardwright.autoscaler.state import Decision, State
from shardwright.cluster.facts import ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.last_reading import LastReading
from shardwright.controller.planning import Planning, Proposal, wanted_replicas
from shardwright.controller.queue import WorkQueue
from shardwright.controller.scaling import Plans, counts, serves
from shardwright.metrics.exposition import Exposition
from shardwright.metrics.source import Target
from shardwright.planner.signals import Readings
from shardwright.planner.types import Plan
from shardwright.topology.types import PodFacts

_LOG = logging.getLogger(__name__)

LONGEST_WAIT_S: Final = 60.0
"""How long a look waits while services are worked on."""
SLICE_S: Final = 0.02
"""How long ticks may hold the loop."""
MOST_INTERVALS: Final = 4.0
"""A tick that comes late counts for so many at most."""


@dataclass(slots=True, kw_only=True)
class _Memory:
    """What is remembered of a service that has a size of its own."""

    uid: str
    revision: str
    desired: int
    planned: int
    """What its stated load took when the size was last looked at."""
    plan: ScalingPlan | None = None
    state: State = field(default_factory=State)
    at_s: float | None = None
    """When it was last ticked."""
    told: ScalingStatus | None = None
    standing: journal.Standing = field(default_factory=journal.Standing)
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A service of which engines run."""

    entry: ServiceEntry
    service: LLMService
    proposal: Proposal
    core: Plan
    plan: ScalingPlan
    edges: Edges
    ready: tuple[PodFacts, ...]
    targets: tuple[Target, ...]


@dataclass(slots=True)
class Scaler:
    """See the module. `clock` gives seconds, `now` the time of day in UTC, `timestamp` RFC 3339."""

    store: Store
    planning: Planning
    queue: WorkQueue[ServiceKey]
    metrics: Exposition
    clock: Callable[[], float]
    now: Callable[[], datetime]
    timestamp: Callable[[], str]
    source: LastReading | None = None
    """None: nothing is known of engines, and schedules alone change a count."""
    interval_s: float = 15.0
    _plans: Plans = field(default_factory=Plans)
    _memories: dict[ServiceKey, _Memory] = field(default_factory=dict)
    _spans: dict[ServiceKey, dict[str, Span]] = field(default_factory=dict)
    _bounds: dict[ServiceKey, tuple[int, int | None]] = field(default_factory=dict)
    """Of services with schedules: those that held at the last look."""

    # What the work queue asks.

    def wanted(
        self, entry: ServiceEntry, service: LLMService, proposal: Proposal, planned: int, live: int
    ) -> int | None:
        """Return the replicas to have; None where the planned count holds.

        `live` is what the target's workload states.
        """
        resolved = entry.resolved or resolve(service.spec)
        schedules = service.spec.scaling.schedules if service.spec.scaling else None
        if self.source is None and not schedules:
            return None
        if resolved.scale.mode == "External":
            self._follow_external(entry, proposal, planned)
            return None
        memory = self._recall(entry, service, proposal, planned, live)
        if memory is not None:
            return memory.desired
        return self._within(entry, service, proposal, planned) if schedules else None

    def status_of(self, entry: ServiceEntry, revision: str, desired: int) -> ScalingStatus | None:
        """Return what is to be told of a service's size; None where the planned count holds."""
        memory = self._memories.get(entry.key)
        if self.source is None or memory is None or memory.uid != entry.uid:
            return None
        if entry.resolved is not None and entry.resolved.scale.mode == "External":
            return ScalingStatus(mode="External", revision=revision, desired_replicas=desired)
        told = memory.told or ScalingStatus(mode="Auto", revision=revision, desired_replicas=desired)
        return told.model_copy(
            update={
                "mode": "Auto",
                "revision": revision,
                "desired_replicas": memory.desired,
                "planned_replicas": memory.planned,
                "min_replicas": memory.plan.min_replicas if memory.plan else told.min_replicas,
                "max_replicas": memory.plan.most if memory.plan else told.max_replicas,
            }
        )

    @property
    def scaled(self) -> dict[str, int]:
        """Count the services with a size of their own, by whether all is known of their engines."""
        ticked = [memory for memory in self._memories.values() if memory.at_s is not None]
        known = sum(memory.complete for memory in ticked)
        return {"known": known, "unknown": len(ticked) - known}

    # The loop.

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await self.queue.until_idle(LONGEST_WAIT_S)
            try:
                await self.tick()
            except Exception:  # noqa: BLE001 -- sizes stay as they are, and the next look may succeed
                _LOG.exception("autoscaling failed")
            await asyncio.sleep(self.interval_s)

    async def tick(self) -> None:
        """Look once."""
        with self.metrics.cpu("autoscale"):
            looks = self._looks()
        if self.source is None or not looks:
            return
        readings = await self.source.fresh([target for look in looks for target in look.targets])
        until = self.clock() + SLICE_S
        for look in looks:
            with self.metrics.cpu("autoscale"):
                self._look(look, readings)
            if self.clock() > until:
                await asyncio.sleep(0)
                until = self.clock() + SLICE_S

    def _looks(self) -> list[_Look]:
        """Return the services whose engines are read; on the way, see which schedules hold now."""
        found = []
        for key, entry in self.store.services.items():
            service, proposal = entry.service, self.planning.proposals.get(key)
            if service is None or entry.deleting or entry.resolved is None:
                continue
            if entry.resolved.scale.mode != "Auto":
                continue
            self._see_schedules(entry, service, entry.resolved)
            if self.source is None or proposal is None or proposal.core is None or proposal.held:
                continue
            ready = tuple(
                pod for pod in self.store.pods_of(key).values() if serves(pod) and self.store.reachable(pod)
            )
            if ready and (look := self._with_plan(entry, service, proposal, ready)) is not None:
                found.append(look)
        self._forget({look.entry.key for look in found})
        return found

    def _with_plan(
        self, entry: ServiceEntry, service: LLMService, proposal: Proposal, ready: tuple[PodFacts, ...]
    ) -> _Look | None:
        plan, core = self._plan(entry, service, proposal), proposal.core
        if plan is None or core is None:
            return None
        memory = self._memories.get(entry.key)
        limit = longest_prompt_tokens(memory.state if memory else State(), plan)
        edges = Edges(plan.ttft_s, plan.tpot_s, prompt_edge(limit, core.limits.max_model_len))
        by_signal = asked(edges)
        targets = tuple(Target((pod.namespace, pod.name), pod.address, by_signal) for pod in ready)
        return _Look(
            entry=entry,
            service=service,
            proposal=proposal,
            core=core,
            plan=plan,
            edges=edges,
            ready=ready,
            targets=targets,
        )

    def _forget(self, looked_at: set[ServiceKey]) -> None:
        """Forget services that are gone, and the counters of those without engines."""
        services = self.store.services
        self._memories = {key: memory for key, memory in self._memories.items() if key in services}
        self._bounds = {key: bounds for key, bounds in self._bounds.items() if key in services}
        self._spans = {key: spans for key, spans in self._spans.items() if key in looked_at}

    def _see_schedules(self, entry: ServiceEntry, service: LLMService, resolved: Resolved) -> None:
        if not (service.spec.scaling and service.spec.scaling.schedules):
            return
        bounds = bounds_at(resolved.scale, service.spec.scaling.schedules, self.now())
        if self._bounds.get(entry.key) != bounds:
            self._bounds[entry.key] = bounds
            self.queue.add(entry.key)

    def _look(self, look: _Look, readings: Readings) -> None:
        """Tick one service."""
        key, now = look.entry.key, self.clock()
        before, spans = self._spans.get(key, {}), {}
        for pod in look.ready:
            moment = moment_of(readings, (pod.namespace, pod.name), pod.restarts, look.edges)
            span = follow(before.get(pod.name), moment)
            if span is not None:
                spans[pod.name] = span
        self._spans[key] = spans
        memory = self._memories.get(key)
        if memory is None and not any(map(reports, spans.values())):
            return  # nothing was ever reported, and the planned count holds
        size, memory = self._size(look, memory)
        if memory is None:
            return
        at_s = now - self.interval_s if memory.at_s is None else memory.at_s
        interval_s = min(max(now - at_s, 1.0), MOST_INTERVALS * self.interval_s)
        granted = self.planning.allocation(key, look.proposal.target).granted
        pods = list(self.store.pods_of(key).values())
        there = counts(
            pods, ready=len(look.ready), target=look.proposal.target, desired=size, granted=granted
        )
        signals = fleet_signals(there, spans.values(), look.edges, interval_s)
        memory.state, desired, decision = tick(memory.state, signals, look.plan, now)
        memory.at_s, memory.plan = now, look.plan
        # Replicas that the minimum asks for wait for a node and are told so, whoever else retreats.
        self._decided(look, memory, max(desired, look.plan.min_replicas), decision, signals)

    def _size(self, look: _Look, memory: _Memory | None) -> tuple[int, _Memory | None]:
        """Return the size that is wanted so far, and the memory of it; the first look begins with that."""
        entry, service, proposal = look.entry, look.service, look.proposal
        children = self.store.children_of(entry.key).values()
        size = wanted_replicas(entry, service, proposal, children, self.wanted)
        memory = self._memories.get(entry.key)
        if memory is None and size:
            planned = wanted_replicas(entry, service, proposal, children)
            memory = _Memory(uid=entry.uid, revision=proposal.target, desired=size, planned=planned)
            self._memories[entry.key] = memory
        if memory is not None and (memory.plan is None or memory.plan.model != look.plan.model):
            memory.state = State()
        return size, memory if size else None

    def _decided(
        self, look: _Look, memory: _Memory, size: int, decision: Decision, signals: FleetSignals
    ) -> None:
        """Take note of a decision, and wake the service when there is something to do or to tell."""
        now, key = self.clock(), look.entry.key
        memory.complete = complete(signals)
        memory.standing = journal.follow(memory.standing, journal.circumstances(decision, signals), now)
        told = self.status_of(look.entry, look.proposal.target, memory.desired)
        if told is None:
            return
        circumstances = journal.settled(told, memory.standing, now)
        if size != memory.desired:
            direction = "up" if size > memory.desired else "down"
            self.metrics.resized(direction, decision.rule.value)
            told = journal.with_decision(told, decision, size, self.timestamp())
            circumstances = circumstances._replace(limit=memory.standing.now.limit)
            memory.desired = size
        elif memory.told is not None:
            if not journal.is_news(memory.told, memory.standing, now):
                return
            memory.standing = journal.told_at(memory.standing, now)
        memory.told = journal.with_circumstances(told, circumstances)
        self.queue.add(key)

    # Sizes.

    def _follow_external(self, entry: ServiceEntry, proposal: Proposal, planned: int) -> None:
        """Remember what somebody else asks for: whoever sizes next goes on from it."""
        memory = self._memories.get(entry.key)
        if memory is None or memory.uid != entry.uid or memory.told is not None or memory.at_s is not None:
            memory = _Memory(uid=entry.uid, revision=proposal.target, desired=planned, planned=planned)
            self._memories[entry.key] = memory
        memory.revision, memory.desired, memory.planned = proposal.target, planned, planned

    def _recall(
        self, entry: ServiceEntry, service: LLMService, proposal: Proposal, planned: int, live: int
    ) -> _Memory | None:
        """Return the size of a service and what goes with it, brought to the spec as it is now.

        After a restart it goes on from the status, and from what runs where that is more: the last size may
        have been written to the workload only. A status that somebody emptied takes no replica either.
        """
        memory = self._memories.get(entry.key)
        if memory is None or memory.uid != entry.uid:
            memory = self._from_status(entry, proposal, planned, live)
            if memory is None:
                return None
            self._memories[entry.key] = memory
        if memory.revision != proposal.target:
            memory.desired = self._carried(entry, service, proposal, memory)
            memory.revision = proposal.target
        if proposal.waiting is None and not proposal.held:
            if planned > memory.planned:
                memory.desired = max(memory.desired, planned)
            memory.planned = planned
        memory.desired = self._within(entry, service, proposal, memory.desired)
        return memory

    @staticmethod
    def _from_status(entry: ServiceEntry, proposal: Proposal, planned: int, live: int) -> _Memory | None:
        recorded = entry.status.scaling
        if recorded is not None:
            own = recorded.mode == "Auto"
            return _Memory(
                uid=entry.uid,
                revision=proposal.target,
                desired=max(recorded.desired_replicas, live),
                planned=recorded.planned_replicas if own else planned,
                told=recorded if own else None,
            )
        if entry.status.observed_generation < 0 and live > planned:
            return _Memory(uid=entry.uid, revision=proposal.target, desired=live, planned=planned)
        return None

    def _carried(self, entry: ServiceEntry, service: LLMService, proposal: Proposal, memory: _Memory) -> int:
        """Return the size of another revision that does what the last one's did."""
        before, after = memory.plan, self._plan(entry, service, proposal)
        if before is None or after is None:
            return memory.desired
        rates = [
            capacity(plan.model, plan.input_tokens, plan.output_tokens, plan.tpot_s).rate_per_s
            for plan in (before, after)
        ]
        return carried(memory.desired, before, after, (rates[0], rates[1]))

    def _plan(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> ScalingPlan | None:
        if proposal.core is None:
            return None
        return self._plans.of(
            proposal.core,
            service.spec,
            entry.resolved or resolve(service.spec),
            entry.engine_version,
            bounds=self._bounds_of(entry, service),
            max_gpus=self._budget(entry, service, proposal),
        )

    def _bounds_of(self, entry: ServiceEntry, service: LLMService) -> tuple[int, int | None]:
        scale = (entry.resolved or resolve(service.spec)).scale
        schedules = service.spec.scaling.schedules if service.spec.scaling else None
        return (
            bounds_at(scale, schedules, self.now()) if schedules else (scale.min_replicas, scale.max_replicas)
        )

    def _budget(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> int:
        """Return the GPUs that the target may have; a budget that waits with its plan takes none away."""
        budget = service.spec.pool.max_gpus
        if proposal.core is None or not (proposal.held or proposal.waiting is not None):
            return budget
        running = sum(
            child.replicas
            for child in self.store.children_of(entry.key).values()
            if child.kind == "Deployment" and child.belongs_to(entry.uid)
        )
        return max(budget, running * proposal.core.gpus_per_replica)

    def _within(self, entry: ServiceEntry, service: LLMService, proposal: Proposal, size: int) -> int:
        """Return a size within the bounds that hold now, and the budget."""
        low, high = self._bounds_of(entry, service)
        each = max(1, proposal.core.gpus_per_replica if proposal.core else 1)
        most = self._budget(entry, service, proposal) // each
        most = most if high is None else min(most, high)
        return min(max(size, low, 1), most)

"""The live loop of the autoscaler: one reading of the fleet, one tick of the law for each service.

Decides when a service is looked at, and which decision is told. The size itself is `autoscaler.law`'s, from
where it goes on `controller.sizes`', and it is written where every size is: the work queue claims places for
it and applies the workload. Services of which no engine has ever reported keep the planned count.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from shardwright.api.defaults import Resolved
from shardwright.api.llmservice import LLMService, ServiceKey
from shardwright.api.scaling_reasons import ScalingRule
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
from shardwright.autoscaler.law import complete, longest_prompt_tokens, tick, woken
from shardwright.autoscaler.schedule import bounds_at
from shardwright.autoscaler.signals import FleetSignals, ScalingPlan
from shardwright.autoscaler.state import Decision, State
from shardwright.cluster.facts import ServiceEntry
from shardwright.controller.better import Better
from shardwright.controller.last_reading import LastReading
from shardwright.controller.planning import Planning, Proposal, wanted_replicas
from shardwright.controller.queue import WorkQueue
from shardwright.controller.scaling import counts, edges_of, serves
from shardwright.controller.sizes import Memory, Sizes
from shardwright.controller.waking import Waker
from shardwright.controller.watchdog import Watchdog
from shardwright.metrics.exposition import Exposition
from shardwright.metrics.source import Target
from shardwright.planner.signals import Readings
from shardwright.render.router import ATTEMPTS
from shardwright.render.routing import wants_router
from shardwright.topology.types import PodFacts

_LOG = logging.getLogger(__name__)

LONGEST_WAIT_S: Final = 60.0
"""How long a look waits while services are worked on."""
SLICE_S: Final = 0.02
"""How long ticks may hold the loop."""
MOST_INTERVALS: Final = 4.0
"""A tick that comes late counts for so many at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A service of which engines run."""

    entry: ServiceEntry
    service: LLMService
    proposal: Proposal
    plan: ScalingPlan
    edges: Edges
    ready: tuple[PodFacts, ...]
    targets: tuple[Target, ...]


@dataclass(slots=True)
class Scaler:
    """See the module. `clock` gives seconds, `timestamp` RFC 3339."""

    sizes: Sizes
    planning: Planning
    queue: WorkQueue[ServiceKey]
    metrics: Exposition
    clock: Callable[[], float]
    timestamp: Callable[[], str]
    source: LastReading | None = None
    """None: no engine is read."""
    interval_s: float = 15.0
    watchdog: Watchdog | None = None
    """Looks at the same reading, of all services."""
    better: Better | None = None
    """None: the planner is not asked."""
    waker: Waker | None = None
    """None: no service is scaled to zero."""
    _spans: dict[ServiceKey, dict[str, Span]] = field(default_factory=dict)
    _bounds: dict[ServiceKey, tuple[int, int | None]] = field(default_factory=dict)
    """Of services with schedules: those that held at the last look."""

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
        targets = {target.pod: target for target in self.watchdog.targets()} if self.watchdog else {}
        targets |= {target.pod: target for look in looks for target in look.targets}
        if self.source is None or not targets:
            return
        readings = await self.source.fresh(list(targets.values()))
        if self.watchdog is not None:
            await self.watchdog.look(readings)
        holding = self.waker.holding if self.waker is not None else frozenset()
        until = self.clock() + SLICE_S
        for each in looks:
            if not self._holds(each):
                continue
            look = replace(each, plan=replace(each.plan, wakeable=each.entry.key in holding))
            with self.metrics.cpu("autoscale"):
                self._look(look, readings)
            if self.clock() > until:
                await asyncio.sleep(0)
                until = self.clock() + SLICE_S

    def idle(self) -> list[ServiceKey]:
        """Return the services whose last replica had nothing to do at their last look."""
        memories = self.sizes.memories.items()
        return [key for key, memory in memories if memory.desired and memory.state.idle_since_s is not None]

    def wake(self, key: ServiceKey) -> None:
        """Give a service that has no replica one, or what its bounds ask for."""
        entry, proposal = self.sizes.store.services.get(key), self.planning.proposals.get(key)
        memory = self.sizes.memories.get(key)
        if entry is None or entry.service is None or proposal is None or memory is None or memory.desired:
            return
        low, high = self.sizes.bounds_of(entry, entry.service)
        plan = self.sizes.plan(entry, entry.service, proposal)
        decision = woken(low, plan.most if plan is not None else max(1, low) if high is None else high)
        if not decision.desired:
            return
        memory.state, memory.at_s, memory.standing = State(), None, journal.Standing()
        told = self.sizes.status_of(entry, proposal.target, memory.desired)
        if told is not None:
            told = self._resize(memory, told, decision, decision.desired)
            memory.told = journal.with_circumstances(told, journal.Circumstances())
        self.queue.add(key)

    def in_flight(self, key: ServiceKey) -> dict[str, float]:
        """Return the requests in each engine of a service at the last look, of those that were read then."""
        return {
            pod: span.now.running + span.now.waiting
            for pod, span in self._spans.get(key, {}).items()
            if span.fresh and span.now.running is not None and span.now.waiting is not None
        }

    def _holds(self, look: _Look) -> bool:
        """Whether a service is still what it was when its engines were asked."""
        key, entry = look.entry.key, self.sizes.store.services.get(look.entry.key)
        if entry is None or entry.deleting or self.planning.proposals.get(key) is not look.proposal:
            return False
        return (entry.uid, entry.generation) == (look.entry.uid, look.entry.generation)

    def _looks(self) -> list[_Look]:
        """Return the services whose engines are read; on the way, see which schedules hold now."""
        found = []
        for key, entry in self.sizes.store.services.items():
            service, proposal = entry.service, self.planning.proposals.get(key)
            if service is None or entry.deleting or entry.resolved is None:
                continue
            if entry.resolved.scale.mode != "Auto":
                continue
            self._see_schedules(entry, service, entry.resolved)
            if self.source is None or proposal is None or proposal.core is None or proposal.held:
                continue
            ready = tuple(
                pod
                for pod in self.sizes.store.pods_of(key).values()
                if serves(pod) and self.sizes.store.reachable(pod)
            )
            if ready and (look := self._with_plan(entry, service, proposal, ready)) is not None:
                found.append(look)
        self._forget({look.entry.key for look in found})
        return found

    def _with_plan(
        self, entry: ServiceEntry, service: LLMService, proposal: Proposal, ready: tuple[PodFacts, ...]
    ) -> _Look | None:
        plan, core = self.sizes.plan(entry, service, proposal), proposal.core
        if plan is None or core is None:
            return None
        memory = self.sizes.memories.get(entry.key)
        limit = longest_prompt_tokens(memory.state if memory else State(), plan)
        edges = Edges(plan.ttft_s, plan.tpot_s, prompt_edge(limit, core.limits.max_model_len))
        if plan.idle_s is not None and self._is_changing(entry, service, proposal):
            plan = replace(plan, idle_s=None)
        # Others read the same pages, and judge the targets even where no size is chosen by them.
        by_signal = {**edges_of(entry), **asked(edges)}
        targets = tuple(Target((pod.namespace, pod.name), pod.address, by_signal) for pod in ready)
        return _Look(
            entry=entry,
            service=service,
            proposal=proposal,
            plan=plan,
            edges=edges,
            ready=ready,
            targets=targets,
        )

    def _is_changing(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> bool:
        """Whether a rollout is under way, or paused."""
        rollout = service.spec.rollout
        return bool(rollout and rollout.paused) or any(
            child.is_workload and child.belongs_to(entry.uid) and child.revision != proposal.target
            for child in self.sizes.store.children_of(entry.key).values()
        )

    def _forget(self, looked_at: set[ServiceKey]) -> None:
        """Forget services that are gone, and the counters of those without engines."""
        self.sizes.forget()
        services = self.sizes.store.services
        self._bounds = {key: bounds for key, bounds in self._bounds.items() if key in services}
        self._spans = {key: spans for key, spans in self._spans.items() if key in looked_at}

    def _see_schedules(self, entry: ServiceEntry, service: LLMService, resolved: Resolved) -> None:
        if not (service.spec.scaling and service.spec.scaling.schedules):
            return
        bounds = bounds_at(resolved.scale, service.spec.scaling.schedules, self.sizes.now())
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
        if key not in self.sizes.memories and not any(map(reports, spans.values())):
            return  # nothing was ever reported, and the planned count holds
        size, memory = self._size(look)
        if memory is None:
            return
        at_s = now - self.interval_s if memory.at_s is None else memory.at_s
        interval_s = min(max(now - at_s, 1.0), MOST_INTERVALS * self.interval_s)
        granted = self.planning.allocation(key, look.proposal.target).granted
        pods = list(self.sizes.store.pods_of(key).values())
        there = counts(
            pods, ready=len(look.ready), target=look.proposal.target, desired=size, granted=granted
        )
        attempts = ATTEMPTS if wants_router(look.service.spec) else 1
        signals = fleet_signals(there, spans.values(), look.edges, interval_s, attempts)
        memory.state, desired, decision = tick(memory.state, signals, look.plan, now)
        memory.at_s = now
        # Replicas that the minimum asks for wait for a node and are told so, whoever else retreats.
        least = look.plan.min_replicas if decision.rule is not ScalingRule.IDLE else 0
        self._decided(look, memory, max(desired, least), decision, signals)
        if self.better is not None:
            self.better.look(look.entry, look.service, look.proposal, memory, look.edges.prompt_tokens)

    def _size(self, look: _Look) -> tuple[int, Memory | None]:
        """Return the size that is wanted so far, and the memory of it; the first look begins with that."""
        entry, service, proposal = look.entry, look.service, look.proposal
        children = self.sizes.store.children_of(entry.key).values()
        size = wanted_replicas(entry, service, proposal, children, self.sizes.wanted)
        memory = self.sizes.memories.get(entry.key)
        if memory is None and size:
            planned = wanted_replicas(entry, service, proposal, children)
            memory = Memory(uid=entry.uid, revision=proposal.target, desired=size, planned=planned)
            self.sizes.memories[entry.key] = memory
        if memory is not None:
            memory.rebase(look.plan)
        return size, memory if size else None

    def _decided(
        self, look: _Look, memory: Memory, size: int, decision: Decision, signals: FleetSignals
    ) -> None:
        """Take note of a decision, and wake the service when there is something to do or to tell."""
        now, key = self.clock(), look.entry.key
        memory.complete = complete(signals)
        memory.standing = journal.follow(memory.standing, journal.circumstances(decision, signals), now)
        told = self.sizes.status_of(look.entry, look.proposal.target, memory.desired)
        if told is None:
            return
        circumstances = journal.settled(told, memory.standing, now)
        if size != memory.desired:
            told = self._resize(memory, told, decision, size)
            circumstances = circumstances._replace(limit=memory.standing.now.limit)
            if not size:  # nothing runs that could be unknown or too slow
                circumstances = journal.Circumstances()
        elif memory.told is not None:
            if not journal.is_news(memory.told, memory.standing, now):
                return
            memory.standing = journal.told_at(memory.standing, now)
        memory.told = journal.with_circumstances(told, circumstances)
        self.queue.add(key)

    def _resize(self, memory: Memory, told: ScalingStatus, decision: Decision, size: int) -> ScalingStatus:
        """Take another size, and return what is told of it."""
        self.metrics.resized("up" if size > memory.desired else "down", decision.rule.value)
        memory.desired = size
        return journal.with_decision(told, decision, size, self.timestamp())

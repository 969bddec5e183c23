"""The ticker that holds what engines report against what was planned: one for the fleet.

Decides which engines are read and when a service has news to report. Never touches what serves: its only
effects are what `status` says and what the store remembers. Off while nothing runs.

A source that fails three times in a row is told as unavailable, and as available again after two readings: a
single slow answer is no news.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.llmservice import ServiceKey
from shardwright.api.status import CalibrationStatus
from shardwright.catalog.engines import engine_class
from shardwright.cluster.facts import ServiceEntry, seconds
from shardwright.cluster.store import Store
from shardwright.controller.calibration_store import CalibrationStore
from shardwright.controller.planning import Planning
from shardwright.controller.queue import WorkQueue
from shardwright.controller.scaling import edges_of
from shardwright.diagnose.calibration import is_news, not_read, told, verdicts_of
from shardwright.diagnose.facts import MetricsFacts
from shardwright.diagnose.targets import Verdicts, judge
from shardwright.metrics.exposition import Exposition
from shardwright.metrics.source import MetricsSource, Target
from shardwright.planner.calibration import Comparison, Observed, compare
from shardwright.planner.growth import Samples, follow, growth, number, sample_of
from shardwright.planner.load import stated_fields
from shardwright.planner.signals import PodKey, Readings, Signal
from shardwright.planner.types import Plan

_LOG = logging.getLogger(__name__)

MOST_ENGINES: Final = 4
"""Of one service that are read: they are alike, and their load is."""
FAILS: Final = 3
RECOVERS: Final = 2
SILENT_S: Final = 300.0
"""How long Prometheus may have no series of a service's engines before that is told."""
LONGEST_WAIT_S: Final = 300.0
"""How long a look waits while services are worked on: means can be compared later, a spec is awaited now."""
SLICE_S: Final = 0.02
"""How long comparing may hold the loop."""


@dataclass(frozen=True, slots=True)
class _Service:
    """A service of which engines run."""

    entry: ServiceEntry
    revision: str
    plan: Plan
    targets: tuple[Target, ...]


@dataclass(slots=True)
class Calibrator:
    """See the module. `clock` gives seconds, `timestamp` RFC 3339 in whole seconds."""

    store: Store
    planning: Planning
    queue: WorkQueue[ServiceKey]
    source: MetricsSource
    metrics: Exposition
    clock: Callable[[], float]
    timestamp: Callable[[], str]
    interval_s: float
    memory: CalibrationStore | None = None
    _facts: dict[ServiceKey, MetricsFacts] = field(default_factory=dict)
    _samples: dict[PodKey, Samples] = field(default_factory=dict)
    _edges: dict[PodKey, Mapping[Signal, float]] = field(default_factory=dict)
    """Targets that the samples were counted up to."""
    _silent_since: dict[ServiceKey, float] = field(default_factory=dict)
    _failure: str = ""
    _failed: int = 0
    _read: int = 0

    @property
    def up(self) -> bool:
        """Whether the source answers, as far as is known."""
        return not self._failure

    def facts_of(self, entry: ServiceEntry, revision: str) -> MetricsFacts:
        """Return what is to be reported of a service; before it was looked at, what its status says."""
        known = self._facts.get(entry.key)
        if known is None:
            known = MetricsFacts(calibration=entry.status.calibration)
        if known.calibration is not None and known.calibration.revision != revision:
            return MetricsFacts(failure=known.failure, not_scraped=known.not_scraped)
        return known

    def off(self, entry: ServiceEntry, revision: str) -> bool:
        """Whether a figure of a service's revision was outside the bounds when it was last known."""
        told = self.facts_of(entry, revision).calibration
        return told is not None and bool(told.outside)

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(self.interval_s)
            await self.queue.until_idle(LONGEST_WAIT_S)
            try:
                await self.tick()
            except Exception:  # noqa: BLE001 -- what serves does not depend on it, and the next look may succeed
                _LOG.exception("calibration failed")

    async def tick(self) -> None:
        """Look once."""
        services = list(self._services())
        self._forget(services)
        if not services:
            return
        readings = await self.source.read([target for service in services for target in service.targets])
        self._take_state(readings.failure)
        until = self.clock() + SLICE_S
        for service in services:
            with self.metrics.cpu("calibrate"):
                self._look(service, readings)
            if self.clock() > until:
                await asyncio.sleep(0)
                until = self.clock() + SLICE_S
        if self.memory is not None:
            await self.memory.write()

    def _services(self) -> "list[_Service]":
        found = []
        for key, entry in self.store.services.items():
            proposal = self.planning.proposals.get(key)
            if proposal is None or proposal.core is None or entry.deleting:
                continue
            pods = sorted(
                pod
                for pod in self.store.pods_of(key).values()
                if pod.revision == proposal.target and pod.ready and pod.serving and not pod.terminating
            )
            edges = edges_of(entry)
            targets = tuple(Target((p.namespace, p.name), p.address, edges) for p in pods[:MOST_ENGINES])
            if targets:
                found.append(_Service(entry, proposal.target, proposal.core, targets))
        return found

    def _forget(self, services: "list[_Service]") -> None:
        """Forget engines and services that are no longer there."""
        pods = {target.pod for service in services for target in service.targets}
        self._samples = {pod: samples for pod, samples in self._samples.items() if pod in pods}
        self._edges = {pod: edges for pod, edges in self._edges.items() if pod in pods}
        self._facts = {key: facts for key, facts in self._facts.items() if key in self.store.services}
        keys = {service.entry.key for service in services}
        self._silent_since = {key: since for key, since in self._silent_since.items() if key in keys}

    def _take_state(self, failure: str) -> None:
        """Count failures; the words of the first stand until the source answers again."""
        self._failed, self._read = (self._failed + 1, 0) if failure else (0, self._read + 1)
        if self._failed == FAILS and not self._failure:
            self._failure = failure
            _LOG.warning(
                "metrics unavailable source=%s error=%s: nothing that rests on them changes",
                self.source.name,
                failure,
            )
        elif self._failure and self._read == RECOVERS:
            _LOG.info("metrics available again source=%s", self.source.name)
            self._failure = ""

    def _look(self, service: "_Service", readings: Readings) -> None:
        key = service.entry.key
        before = self._facts.get(key) or MetricsFacts(calibration=service.entry.status.calibration)
        if self._failure:
            after = self._unavailable(before)
        elif readings.failure:
            return  # not yet told as unavailable: nothing is known, and nothing changes
        else:
            after = self._compared(service, readings, before)
        if after != before:
            self.queue.add(key)
        self._facts[key] = after

    def _unavailable(self, before: MetricsFacts) -> MetricsFacts:
        calibration = before.calibration
        if calibration is not None:
            unread = not_read(calibration, self.timestamp())
            if is_news(calibration, unread, 0.0):
                calibration = unread
        return MetricsFacts(calibration=calibration, failure=self._failure)

    def _compared(self, service: "_Service", readings: Readings, before: MetricsFacts) -> MetricsFacts:
        observed = [self._observe(target, readings) for target in service.targets]
        silent = self._silent(service, readings)
        told_before = verdicts_of(before.calibration, service.revision)
        grown = [each.growth for each in observed if each.growth is not None]
        entry, verdicts = service.entry, told_before
        if entry.resolved is not None and entry.service is not None:
            verdicts = judge(entry.resolved, stated_fields(entry.service.spec), grown, told_before)
        version = service.entry.engine_version
        found = compare(service.plan, engine_class(version), observed, 2 * self.interval_s)
        if self.memory is not None:
            self.memory.note(service.entry.key, service.plan, version, found)
        calibration = self._news(service, found, before.calibration, verdicts)
        return MetricsFacts(calibration=calibration, not_scraped=silent)

    def _news(
        self, service: "_Service", found: Comparison, before: CalibrationStatus | None, verdicts: Verdicts
    ) -> CalibrationStatus | None:
        """Return the calibration as it is told: the one before, unless the new one is news."""
        now = self.timestamp()
        after = told(
            found,
            revision=service.revision,
            source=self.source.name,
            now=now,
            before=before,
            verdicts=verdicts,
        )
        since_s = seconds(now) - seconds(before.measured_at) if before else 0.0
        return after if is_news(before, after, since_s) else before

    def _observe(self, target: Target, readings: Readings) -> Observed:
        pod, sample = target.pod, sample_of(readings, target.pod)
        if self._edges.get(pod) != target.edges:
            self._edges[pod] = target.edges
            self._samples.pop(pod, None)  # what was within another target says nothing
        samples = self._samples.get(pod, ())
        if sample is not None:
            samples = self._samples[pod] = follow(samples, sample)
        grown = growth(samples) if sample is not None else None
        return Observed(kv_tokens=number(readings.of(Signal.KV_TOKENS, pod)), growth=grown)

    def _silent(self, service: "_Service", readings: Readings) -> bool:
        """Whether Prometheus has had no series of any engine of a service for a while."""
        if self.source.name != "Prometheus":
            return False
        key, now = service.entry.key, self.clock()
        if any(number(readings.of(Signal.SAMPLED, target.pod)) is not None for target in service.targets):
            self._silent_since.pop(key, None)
            return False
        return now - self._silent_since.setdefault(key, now) >= SILENT_S

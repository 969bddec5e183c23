"""What the operator is made of, put together once. Decides nothing."""

import asyncio
import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from shardwright.api.llmservice import ServiceKey
from shardwright.cluster.api import Api
from shardwright.cluster.events import Recorder
from shardwright.cluster.store import Store
from shardwright.controller.admission import Admission
from shardwright.controller.apply import Applier
from shardwright.controller.better import Better
from shardwright.controller.calibration import Calibrator
from shardwright.controller.calibration_store import CalibrationStore
from shardwright.controller.canary_served import CanaryServed
from shardwright.controller.dispatch import Dispatch
from shardwright.controller.drains import Drains
from shardwright.controller.emptiest import Emptiest
from shardwright.controller.gpu_faults import GPUFaults
from shardwright.controller.last_reading import LastReading
from shardwright.controller.observe import read_service
from shardwright.controller.options import Options
from shardwright.controller.planning import Planning
from shardwright.controller.queue import WorkQueue
from shardwright.controller.recalculation import Recalculation
from shardwright.controller.reconcile import Reconciler
from shardwright.controller.references import References
from shardwright.controller.replacing import Replacer
from shardwright.controller.report import Reporter
from shardwright.controller.scaler import Scaler
from shardwright.controller.sizes import Sizes
from shardwright.controller.waking import Waker
from shardwright.controller.watchdog import Watchdog
from shardwright.metrics.ask import ask_for_a_token
from shardwright.metrics.engines import EngineSource
from shardwright.metrics.exposition import Exposition
from shardwright.metrics.held import Activators
from shardwright.metrics.login import EngineMetrics
from shardwright.metrics.prompts import ask
from shardwright.metrics.source import MetricsSource
from shardwright.topology.ledger import Ledger

CALM_S: Final = 2.0
"""How long asking one engine waits while services are worked on: as long as an engine may take to answer."""


def clock() -> float:
    """Seconds of the loop's clock."""
    return asyncio.get_running_loop().time()


def now() -> str:
    """RFC 3339 in whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def precise_now() -> str:
    """RFC 3339 in microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(slots=True)
class Parts:
    """What the operator is made of."""

    api: Api
    store: Store
    planning: Planning
    dispatch: Dispatch
    queue: WorkQueue[ServiceKey]
    reconciler: Reconciler
    scaler: Scaler
    gpu_faults: GPUFaults
    calibrator: Calibrator | None = None
    canaries: CanaryServed | None = None
    activators: Activators | None = None
    drains: Drains | None = None

    @classmethod
    def wire(cls, api: Api, options: Options, metrics: Exposition) -> "Parts":
        """Put the parts together."""
        store = Store(partial(read_service, routers=options.routers))
        store.nodes_watched = options.pool_config_map is None
        planning = Planning(store, Ledger(), dict(options.products))
        queue: WorkQueue[ServiceKey] = WorkQueue(metrics)
        dispatch = Dispatch(store, planning, queue, lambda uid: reconciler.forget(uid))  # noqa: PLW0108 -- it is made below
        store.listener = dispatch
        references = References(api, clock)
        applier = Applier(api, store, metrics, clock)
        recalculation = Recalculation(planning, clock)
        admission = Admission(store, planning, dispatch, references, applier, metrics, clock, recalculation)
        instance = options.instance or platform.node()
        recorder = Recorder(api, clock=clock, timestamp=precise_now, instance=instance)
        reporter = Reporter(api, store, planning, recorder, metrics, clock, now)
        reconciler = Reconciler(store, planning, dispatch, admission, applier, reporter, metrics, clock, now)
        sizes = Sizes(store, lambda: datetime.now(UTC), reads=options.engine_metrics is not None)
        planning.scaled, reporter.scaling = sizes.wanted, sizes.status_of
        reporter.asleep = sizes.is_asleep
        scaler = Scaler(sizes, planning, queue, metrics, clock, now)
        scaler.better = Better(planning, references, queue)
        replacer = Replacer(api, recorder, metrics, queue, clock)
        reporter.faults = replacer.told
        faults = GPUFaults(
            store=store,
            replacer=replacer,
            clock=clock,
            now=lambda: datetime.now(UTC),
            marks_nodes=options.mark_nodes,
        )
        reconciler.gpu_faults = faults
        parts = cls(api, store, planning, dispatch, queue, reconciler, scaler, faults)
        if options.engine_metrics is not None:
            if options.engine_metrics.stall_s:
                scaler.watchdog = Watchdog(
                    store=store,
                    planning=planning,
                    replacer=replacer,
                    ask=ask_for_a_token,
                    clock=clock,
                    least_s=options.engine_metrics.stall_s,
                )
            parts.activators = Activators()
            scaler.waker = Waker(store, parts.activators.ask, clock, sizes.asleep, scaler.wake, scaler.idle)
            source = _source(options.engine_metrics, queue)
            scaler.source = LastReading(source, clock)
            scaler.interval_s = options.engine_metrics.scaling_interval_s
            parts.calibrator = parts._calibrator(options.engine_metrics, scaler.source, metrics)
            reporter.engine_metrics = parts.calibrator.facts_of
            parts.remember()
            reconciler.emptiest = Emptiest(api, scaler.in_flight, time.time)
            parts.drains = Drains(
                store=store, source=EngineSource(clock), recorder=recorder, metrics=metrics, now=time.time
            )
            parts.canaries = CanaryServed(store, queue, source, ask, scaler.interval_s)
            reconciler.canaries.source = parts.canaries.seen
            reconciler.canaries.ended = parts.canaries.forget
        return parts

    def remember(self) -> None:
        """Let plans count with what the calibrator remembers, and services be planned anew for it."""
        if self.calibrator is None or self.calibrator.memory is None:
            return
        memory, admission = self.calibrator.memory, self.reconciler.admission
        self.planning.corrections = memory.corrections
        memory.measured = admission.measured
        admission.recalculation.off = self.calibrator.off
        admission.recalculation.off_since = memory.off_since

    def _calibrator(self, settings: EngineMetrics, source: MetricsSource, metrics: Exposition) -> Calibrator:
        where = settings.store
        return Calibrator(
            store=self.store,
            planning=self.planning,
            queue=self.queue,
            source=source,
            metrics=metrics,
            clock=clock,
            timestamp=now,
            interval_s=settings.interval_s,
            memory=CalibrationStore(self.api, where, clock) if where else None,
        )


def _source(settings: EngineMetrics, queue: WorkQueue[ServiceKey]) -> MetricsSource:
    if settings.prometheus is None:
        return EngineSource(clock, calm=partial(queue.until_idle, CALM_S))
    # Imported here: requests and what it needs are 30 MiB, which only those pay who have a Prometheus.
    from shardwright.metrics.prometheus import PrometheusSource  # noqa: PLC0415

    return PrometheusSource(settings.prometheus, stale_s=settings.stale_s)

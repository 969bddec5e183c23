"""What the operator says of itself on /metrics.

Decides names and labels. Never decides what is measured. No label holds a service's name: cardinality
stays bounded.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_RECONCILE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_WAIT_BUCKETS: Final = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


Family = TypeVar("Family", Counter, Histogram)


class Exposition:
    """All metrics of one operator process, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._children: dict[tuple[int, tuple[str, ...]], Counter | Histogram] = {}
        registry = self.registry
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        self._requests = Counter(
            "shardwright_api_requests",
            "Requests to the API server",
            ["verb", "kind", "status"],
            registry=registry,
        )
        self._request_seconds = Counter(
            "shardwright_api_request_seconds", "Seconds waited for answers", ["verb"], registry=registry
        )
        self._applies = Counter(
            "shardwright_applies", "Children, by what became of them", ["kind", "result"], registry=registry
        )
        self._plans = Counter(
            "shardwright_plans", "Decisions of the planner, by outcome", ["outcome"], registry=registry
        )
        self._cpu = Counter(
            "shardwright_cpu_seconds",
            "CPU seconds by step; what is in no step is in process_cpu_seconds_total only",
            ["step"],
            registry=registry,
        )
        self._reconcile = Histogram(
            "shardwright_reconcile_seconds",
            "Wall time of one reconciliation",
            ["result"],
            buckets=_RECONCILE_BUCKETS,
            registry=registry,
        )
        self._queue_wait = Histogram(
            "shardwright_queue_wait_seconds",
            "How long keys waited for a worker",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._queue_adds = Counter("shardwright_queue_adds", "Keys made ready", registry=registry)
        self._queue_retries = Counter("shardwright_queue_retries", "Keys put back", registry=registry)
        self._queue_depth = Gauge("shardwright_queue_depth", "Keys that wait", registry=registry)
        self._status_writes = Counter(
            "shardwright_status_writes", "Status writes, by result", ["result"], registry=registry
        )

    # Cluster: see cluster.api.RequestObserver.

    def request(self, verb: str, kind: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self._child(self._requests, verb, kind, str(status) if status else "none").inc()
        self._child(self._request_seconds, verb).inc(seconds)

    # Queue: see controller.queue.QueueObserver.

    def added(self, depth: int) -> None:
        """Count a key that became ready."""
        self._queue_adds.inc()
        self._queue_depth.set(depth)

    def retried(self) -> None:
        """Count a key that was put back."""
        self._queue_retries.inc()

    def taken(self, waited_s: float, depth: int) -> None:
        """Count a key that a worker took."""
        self._queue_wait.observe(waited_s)
        self._queue_depth.set(depth)

    # Controller.

    def applied(self, kind: str, result: str) -> None:
        """Count a child: written, unchanged, deleted or refused."""
        self._child(self._applies, kind, result).inc()

    def planned(self, outcome: str) -> None:
        """Count a decision: Planned, Kept, or the reason why not."""
        self._child(self._plans, outcome).inc()

    def status_written(self, result: str) -> None:
        """Count a status: written, deferred or failed."""
        self._child(self._status_writes, result).inc()

    def reconciled(self, result: str, seconds: float) -> None:
        """Count a reconciliation."""
        self._child(self._reconcile, result).observe(seconds)

    @contextmanager
    def cpu(self, step: str) -> Iterator[None]:
        """Count the CPU seconds of a block that does not await."""
        started = time.thread_time()
        try:
            yield
        finally:
            self._child(self._cpu, step).inc(time.thread_time() - started)

    def _child(self, family: Family, *labels: str) -> Family:
        """Find one line of a family; the library's own look-up takes a lock and shows in profiles."""
        key = (id(family), labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = family.labels(*labels)
        return cast("Family", child)

    def gauge(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """Expose a value that is read when asked for."""
        Gauge(name, help_text, registry=self.registry).set_function(value)

    def gauges(self, name: str, help_text: str, label: str, values: dict[str, Callable[[], float]]) -> None:
        """Expose values that differ in one label, read when asked for."""
        family = Gauge(name, help_text, [label], registry=self.registry)
        for which, value in values.items():
            family.labels(which).set_function(value)

    def text(self) -> bytes:
        """Return the exposition in Prometheus' text format."""
        return generate_latest(self.registry)

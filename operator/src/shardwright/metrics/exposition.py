"""What the operator says of itself on /metrics.

Decides names and labels. Never decides what is measured. No label holds a service's name: cardinality
stays bounded.

Counting is far more frequent than a scrape, and all of it happens in one thread, so it only adds to plain
numbers: prometheus_client's own counters take a lock for each. What it needs is built when it is scraped.
"""

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Sample
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_RECONCILE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_WAIT_BUCKETS: Final = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SHOWS_CREATED: Final = os.environ.get("PROMETHEUS_DISABLE_CREATED_SERIES", "").lower() not in {
    "true",
    "1",
    "t",
}
"""Whether `_created` samples are shown: prometheus_client's own switch, which its families do not heed."""

Key = tuple[str | int, ...]
"""The values of a line's labels, in the order of their names."""


class _Counter(dict[Key, float]):
    """A counter: value by key, so that `counter[key] += 1` is all there is to counting."""

    __slots__ = ("_began", "_help", "_labels", "_name")

    def __init__(self, name: str, help_text: str, *labels: str) -> None:
        super().__init__()
        self._name, self._help, self._labels = name, help_text, labels
        self._began: dict[Key, float] = {}
        if not labels:
            self[()] += 0.0  # its only line is there from the start

    def __missing__(self, key: Key) -> float:
        self._began[key] = time.time()
        return 0.0

    def family(self) -> CounterMetricFamily:
        """Build what is scraped."""
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for key, value in self.items():
            family.add_metric(_label_values(key), value, self._began[key] if _SHOWS_CREATED else None)
        return family


class _Line:
    """One line of a histogram: how many fell between two bounds each, and the sum of all."""

    __slots__ = ("began", "counts", "sum")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.sum = 0.0
        self.began = time.time()


class _Histogram:
    """A histogram: a line by key. A value that equals a bound is below it."""

    __slots__ = ("_bounds", "_help", "_labels", "_lines", "_name")

    def __init__(self, name: str, help_text: str, bounds: tuple[float, ...], *labels: str) -> None:
        self._name, self._help, self._bounds, self._labels = name, help_text, bounds, labels
        self._lines: dict[Key, _Line] = {}
        if not labels:
            self._begin(())

    def observe(self, key: Key, value: float) -> None:
        """Count one value."""
        line = self._lines.get(key) or self._begin(key)
        line.counts[bisect_left(self._bounds, value)] += 1
        line.sum += value

    def _begin(self, key: Key) -> _Line:
        line = self._lines[key] = _Line(len(self._bounds) + 1)
        return line

    def family(self) -> HistogramMetricFamily:
        """Build what is scraped."""
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        names = [*map(str, self._bounds), "+Inf"]
        for key, line in self._lines.items():
            values = _label_values(key)
            family.add_metric(values, list(zip(names, accumulate(line.counts), strict=True)), line.sum)
            if _SHOWS_CREATED:
                labels = dict(zip(self._labels, values, strict=True))
                family.samples.append(Sample(f"{self._name}_created", labels, line.began))
        return family


class _Step:
    """Counts the CPU seconds of a block; entered again and again, never while it is entered."""

    __slots__ = ("_counter", "_key", "_started_s")

    def __init__(self, counter: _Counter, step: str) -> None:
        self._counter, self._key, self._started_s = counter, (step,), 0.0

    def __enter__(self) -> None:
        self._started_s = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._counter[self._key] += time.thread_time() - self._started_s


class Exposition:
    """All metrics of one operator process, in a registry of its own. For use by one thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._requests = _Counter(
            "shardwright_api_requests", "Requests to the API server", "verb", "kind", "status"
        )
        self._request_seconds = _Counter(
            "shardwright_api_request_seconds", "Seconds waited for answers", "verb"
        )
        self._applies = _Counter("shardwright_applies", "Children, by what became of them", "kind", "result")
        self._plans = _Counter("shardwright_plans", "Decisions of the planner, by outcome", "outcome")
        self._cpu = _Counter(
            "shardwright_cpu_seconds",
            "CPU seconds by step; what is in no step is in process_cpu_seconds_total only",
            "step",
        )
        self._steps: dict[str, _Step] = {}
        self._reconcile = _Histogram(
            "shardwright_reconcile_seconds", "Wall time of one reconciliation", _RECONCILE_BUCKETS, "result"
        )
        self._queue_wait = _Histogram(
            "shardwright_queue_wait_seconds", "How long keys waited for a worker", _WAIT_BUCKETS
        )
        self._queue_adds = _Counter("shardwright_queue_adds", "Keys made ready")
        self._queue_retries = _Counter("shardwright_queue_retries", "Keys put back")
        self._queue_depth = 0
        self._sizes = _Counter(
            "shardwright_size_changes",
            "Changes of a service's size, by direction and rule",
            "direction",
            "rule",
        )
        self._replaced = _Counter(
            "shardwright_engines_replaced", "Engines whose pods were replaced, by reason", "reason"
        )
        self._cut = _Counter(
            "shardwright_cut_requests", "Requests that engines still had when their drain was over"
        )
        self._status_writes = _Counter("shardwright_status_writes", "Status writes, by result", "result")
        self.registry.register(self)

    # Cluster: see cluster.api.RequestObserver.

    def request(self, verb: str, kind: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self._requests[verb, kind, status] += 1.0
        self._request_seconds[verb,] += seconds

    # Queue: see controller.queue.QueueObserver.

    def added(self, depth: int) -> None:
        """Count a key that became ready."""
        self._queue_adds[()] += 1.0
        self._queue_depth = depth

    def retried(self) -> None:
        """Count a key that was put back."""
        self._queue_retries[()] += 1.0

    def taken(self, waited_s: float, depth: int) -> None:
        """Count a key that a worker took."""
        self._queue_wait.observe((), waited_s)
        self._queue_depth = depth

    # Controller.

    def applied(self, kind: str, result: str) -> None:
        """Count a child: written, unchanged, deleted or refused."""
        self._applies[kind, result] += 1.0

    def planned(self, outcome: str) -> None:
        """Count a decision: Planned, Kept, or the reason why not."""
        self._plans[outcome,] += 1.0

    def status_written(self, result: str) -> None:
        """Count a status: written, deferred or failed."""
        self._status_writes[result,] += 1.0

    def replaced(self, reason: str) -> None:
        """Count an engine whose pod was deleted so that another takes its place."""
        self._replaced[reason,] += 1.0

    def cut(self, requests: float) -> None:
        """Count requests that the end of a drain cut."""
        self._cut[()] += requests

    def reconciled(self, result: str, seconds: float) -> None:
        """Count a reconciliation."""
        self._reconcile.observe((result,), seconds)

    def resized(self, direction: str, rule: str) -> None:
        """Count a change of a service's size: up or down, and the autoscaler's rule."""
        self._sizes[direction, rule] += 1.0

    def cpu(self, step: str) -> _Step:
        """Count the CPU seconds of a block that does not await, nor enters the same step again."""
        found = self._steps.get(step)
        if found is None:
            found = self._steps[step] = _Step(self._cpu, step)
        return found

    # What is scraped: see prometheus_client.registry.Collector.

    def collect(self) -> Iterator[Metric]:
        """Build the families of what was counted so far, in the order in which they are shown."""
        for metric in (
            *(self._requests, self._request_seconds, self._applies, self._plans, self._cpu),
            *(self._reconcile, self._queue_wait, self._queue_adds, self._queue_retries),
        ):
            yield metric.family()
        yield GaugeMetricFamily("shardwright_queue_depth", "Keys that wait", self._queue_depth)
        yield self._status_writes.family()
        yield self._sizes.family()
        yield self._replaced.family()
        yield self._cut.family()

    def describe(self) -> Iterator[Metric]:
        """Tell the registry which names are taken."""
        return self.collect()

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


def _label_values(key: Key) -> list[str]:
    """Spell the labels of a line; status 0 stands for no answer."""
    return ["none" if value == 0 else str(value) for value in key]

"""What /metrics says is fixed: names, labels, buckets, help texts, order and numbers.

fresh.txt and busy.txt were taken from the exposition when prometheus_client's own Counter, Gauge and
Histogram still did the counting; whoever scrapes must not notice that they no longer do. Only where a metric
is meant to change: `python tests/metrics/test_exposition.py` with operator/src on the path writes them anew.
"""

import time
from pathlib import Path

import pytest
from prometheus_client.registry import DuplicateTimeseries

from shardwright.metrics.exposition import Exposition

HERE = Path(__file__).parent


class Clock:
    """Both clocks that the exposition reads."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.wall = 1_700_000_000.0
        self.cpu = 5.0
        patch.setattr(time, "time", lambda: self.wall)
        patch.setattr(time, "thread_time", lambda: self.cpu)


def burn(metrics: Exposition, clock: Clock, step: str, seconds: float) -> None:
    with metrics.cpu(step):
        clock.cpu += seconds


def fail(metrics: Exposition, clock: Clock, step: str) -> None:
    with metrics.cpu(step):
        clock.cpu += 0.5
        raise KeyError(step)


def ours(metrics: Exposition) -> str:
    """The text without the library's own lines on the process and on Python."""
    lines = metrics.text().decode().splitlines(keepends=True)
    names = ("shardwright_", "# HELP shardwright_", "# TYPE shardwright_")
    return "".join(line for line in lines if line.startswith(names))


def use(metrics: Exposition, clock: Clock) -> None:
    """Call everything, a second apart, in an order that is neither that of the names nor that of the text."""
    calls = [
        lambda: metrics.request("patch", "Deployment", 200, 0.1),
        lambda: metrics.request("get", "LLMService", 404, 0.25),
        lambda: metrics.request("patch", "Deployment", 200, 0.2),
        lambda: metrics.request("patch", "Deployment", 409, 0.3),
        lambda: metrics.request("watch", "Node", 0, 61.5),
        lambda: metrics.request("patch", "LLMService", 200, 0.0),
        lambda: metrics.added(3),
        lambda: metrics.added(17),
        metrics.retried,
        *(lambda w=w: metrics.taken(w, 4) for w in (0.0, 0.001, 0.0010001, 0.07, 2.5, 59.9, 60.0, 60.1, 1e6)),
        lambda: metrics.cut(3.0),
        lambda: metrics.applied("Service", "unchanged"),
        lambda: metrics.applied("Deployment", "written"),
        lambda: metrics.applied("Service", "unchanged"),
        lambda: metrics.planned("Kept"),
        lambda: metrics.planned('a "quoted" \\ one\nand a line'),
        lambda: metrics.status_written("deferred"),
        lambda: metrics.status_written("written"),
        *(lambda s=s: metrics.reconciled("ok", s) for s in (0.004, 0.005, 0.3, 0.3, 1, 30, 31)),
        lambda: metrics.reconciled("error", 0.1),
        lambda: burn(metrics, clock, "report", 0.25),
        lambda: burn(metrics, clock, "decide", 0.125),
        lambda: burn(metrics, clock, "report", 0.1),
        lambda: metrics.gauge("shardwright_oldest_seconds", "Age of the oldest", lambda: 7.5),
        lambda: metrics.gauges(
            "shardwright_objects", "By sort", "sort", {"pods": lambda: 9, "nodes": lambda: 2}
        ),
    ]
    for call in calls:
        clock.wall += 1
        call()
    with pytest.raises(KeyError):
        fail(metrics, clock, "render")


def texts(patch: pytest.MonkeyPatch) -> dict[str, str]:
    clock = Clock(patch)
    metrics = Exposition()
    fresh = ours(metrics)
    use(metrics, clock)
    return {"fresh.txt": fresh, "busy.txt": ours(metrics)}


@pytest.mark.parametrize("name", ["fresh.txt", "busy.txt"])
def test_the_text_is_what_it_was(monkeypatch, name):
    assert texts(monkeypatch)[name] == (HERE / name).read_text()


def test_a_scrape_changes_nothing(monkeypatch):
    clock = Clock(monkeypatch)
    metrics = Exposition()
    use(metrics, clock)
    before = ours(metrics)
    clock.wall += 60
    assert ours(metrics) == before


@pytest.mark.parametrize("name", ["shardwright_applies_total", "shardwright_queue_wait_seconds_bucket"])
def test_a_name_that_is_taken_is_refused(name):
    with pytest.raises(DuplicateTimeseries):
        Exposition().gauge(name, "Another", lambda: 0)


def test_the_process_and_python_are_told_too():
    text = Exposition().text().decode()
    for name in ("process_cpu_seconds_total", "python_info", "python_gc_collections_total"):
        assert f"\n{name}" in text


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patched:
        for file, text in texts(patched).items():
            (HERE / file).write_text(text)

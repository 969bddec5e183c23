"""Figures with the target of each beside it, and whether it was met.

It decides the targets, once, in one table. It never rounds a figure before it is judged.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """At most this much."""

    name: str
    at_most: float
    unit: str
    meaning: str


TARGETS: tuple[Target, ...] = (
    Target(
        "firstPassCPUSeconds",
        12,
        "s",
        "operator CPU from its start until all services are ready and it is quiet",
    ),
    Target("unsettledServices", 0, "services", "not Ready for their generation when the first pass ended"),
    Target("writesPerChildMax", 1, "writes", "most writes that any one child got in the first pass"),
    Target(
        "statusWritesPerServiceMax",
        2,
        "writes",
        "most status writes that any one service got in the first pass",
    ),
    Target("writesToServices", 0, "writes", "writes to an LLMService other than its status, whole run"),
    Target("refusedRequests", 0, "requests", "answers 403 and 422 to the operator before the outage"),
    Target("rssMiB", 180, "MiB", "resident memory when settled after the first pass"),
    Target("rssAfterRestartMiB", 180, "MiB", "resident memory when settled after a restart"),
    Target("idleWrites", 0, "writes", "writes while idle"),
    Target("idleRequestsPerSecond", 1, "1/s", "requests of any kind while idle"),
    Target(
        "changeP99Seconds", 0.25, "s", "one spec change alone, sent until the watch shows the child changed"
    ),
    Target("burstP99Seconds", 3, "s", "the same for each of many changes sent at once"),
    Target("restartWrites", 0, "writes", "writes after a restart with nothing to do, Events included"),
    Target("sigtermSeconds", 1, "s", "slowest exit after SIGTERM"),
    Target("outageExits", 0, "exits", "operator processes that ended while the API server was away"),
    Target("outageChildSeconds", 5, "s", "API server back until a new service has its Deployment"),
    Target("outageReadyLagSeconds", 5, "s", "Ready later than a plain Deployment that was made with it"),
    Target("outageOtherWrites", 0, "writes", "writes to children of other services because of the outage"),
)


def judge(figures: dict[str, float]) -> list[dict[str, Any]]:
    """Put each figure beside its target; a figure that was not measured has not passed."""
    rows = []
    for target in TARGETS:
        value = figures.get(target.name)
        rows.append(
            {
                "name": target.name,
                "value": None if value is None else round(value, 3),
                "target": f"<= {target.at_most:g}",
                "unit": target.unit,
                "pass": value is not None and value <= target.at_most,
                "meaning": target.meaning,
            }
        )
    return rows


def percentile(values: Iterable[float], percent: float) -> float:
    """Nearest-rank percentile: always a value that was measured."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Give count, median, 99th percentile and maximum."""
    return {
        "count": len(values),
        "p50": round(percentile(values, 50), 4),
        "p99": round(percentile(values, 99), 4),
        "max": round(max(values), 4),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Give the rows as text for a terminal."""
    lines = [
        f"{'pass' if row['pass'] else 'FAIL'}  {row['name']:<26} {row['value']!s:>9} {row['unit']:<9}"
        f" {row['target']:<8}  {row['meaning']}"
        for row in rows
    ]
    return "\n".join(lines)

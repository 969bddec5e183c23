"""What is shown of replays: figures as text and JSON, and a page with pictures.

Decides what a document of several replays of one trace holds; every figure on the page is in it.
"""

import json
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from shardwright.autoscaler.replay.engine import UNSEEN
from shardwright.autoscaler.replay.fleet import Outcome
from shardwright.autoscaler.replay.score import p95, score
from shardwright.autoscaler.replay.trace import Trace
from shardwright.autoscaler.signals import ScalingPlan
from shardwright.cli.files import write_text

MOST_SLOTS: Final = 288
"""Of a picture: five minutes of a day."""
LEAST_SLOT_S: Final = 15

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """A replay under a rule."""

    policy: str
    outcome: Outcome
    gpus_per_replica: int

    def figures(self) -> Json:
        """Return the figures that are printed."""
        found = score(self.outcome, self.gpus_per_replica)
        return {
            "attainment": round(found.attainment, 4),
            "gpuHours": round(found.gpu_hours, 3),
            "p95TtftMs": round(found.p95_ttft_ms, 1),
            "reversals": found.reversals,
            "resizes": found.resizes,
            "cutRequests": found.cut_requests,
        }


def as_json(runs: list[Run]) -> str:
    """Return one object for one rule, and a list of objects that name their `policy` for several."""
    if len(runs) == 1:
        return json.dumps(runs[0].figures())
    return json.dumps([{"policy": one.policy, **one.figures()} for one in runs])


def as_text(runs: list[Run]) -> str:
    """Return a line for each figure, or a table for several rules."""
    if len(runs) == 1:
        return "\n".join(f"{key:<12} {value}" for key, value in runs[0].figures().items())
    rows = [one.figures() for one in runs]
    wide = max(len(one.policy) for one in runs) + 2
    head = " " * wide + "".join(f"{key:>13}" for key in rows[0])
    lines = (
        one.policy.ljust(wide) + "".join(f"{value:>13}" for value in row.values())
        for one, row in zip(runs, rows, strict=True)
    )
    return "\n".join((head, *lines))


def write_page(path: str, runs: list[Run], plan: ScalingPlan) -> None:
    """Write the page. Raises InputError when that is not possible."""
    from shardwright.cli.page.simulation import render  # noqa: PLC0415 -- loads jinja2

    write_text("--html", path, render(document(runs, plan)))


def document(runs: list[Run], plan: ScalingPlan) -> Json:
    """Return what the page shows: targets, load, and for each rule its figures, sizes and waits."""
    trace, unscored_s = runs[0].outcome.book.trace, runs[0].outcome.unscored_s
    slot_s = LEAST_SLOT_S * max(1, ceil(trace.end_s / MOST_SLOTS / LEAST_SLOT_S))
    slots = int(trace.end_s / slot_s) + 1
    arrived = [0] * slots
    for at in trace.arrival_s:
        arrived[int(at / slot_s)] += 1
    return {
        "requests": len(trace.arrival_s),
        "inputTokensMean": round(sum(trace.input_tokens) / len(trace.input_tokens)),
        "outputTokensMean": round(sum(trace.output_tokens) / len(trace.output_tokens)),
        "seconds": round(trace.end_s),
        "unscoredSeconds": round(unscored_s),
        "slotSeconds": slot_s,
        "ttftMs": round(1000 * plan.ttft_s),
        "tpotMs": round(1000 * plan.tpot_s),
        "percentile": plan.percentile,
        "requestsPerSecond": [round(count / slot_s, 3) for count in arrived],
        "runs": [
            {
                "policy": one.policy,
                **one.figures(),
                "sizes": [[round(at, 1), size] for at, size in one.outcome.sizes],
                "p95TtftMsOfSlots": slowest(one.outcome.book.first_s, trace, slot_s, slots),
            }
            for one in runs
        ],
    }


def slowest(first_s: list[float], trace: Trace, slot_s: int, slots: int) -> list[float | None]:
    """Return the 95th percentile of TTFT of what arrived in each slot; None where there is none."""
    waits: list[list[float]] = [[] for _ in range(slots)]
    for at, first in zip(trace.arrival_s, first_s, strict=True):
        if first != UNSEEN:
            waits[int(at / slot_s)].append(first - at)
    return [round(1000 * p95(one), 1) if one else None for one in waits]

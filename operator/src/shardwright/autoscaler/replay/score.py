"""What a replay is judged by.

Decides the figures of a table: share of requests within both targets, hours, tail, and how often the size
changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardwright.autoscaler.replay.engine import UNSEEN
from shardwright.autoscaler.replay.fleet import Outcome

REVERSAL_S = 600.0
"""A change in the other direction within this time of the last one is a reversal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The figures of one replay, over the scored part."""

    requests: int
    attainment: float
    """Share of requests with TTFT and TPOT within the targets; one that was refused or cut misses."""
    gpu_hours: float
    p95_ttft_ms: float
    """Of requests that got a first token."""
    reversals: int
    resizes: int
    cut_requests: int


def score(outcome: Outcome, gpus_per_replica: int = 1) -> Score:
    """Judge a replay."""
    book, trace = outcome.book, outcome.book.trace
    ttft: list[float] = []
    met = total = 0
    for at, out, first, last in zip(
        trace.arrival_s, trace.output_tokens, book.first_s, book.finish_s, strict=True
    ):
        if at < outcome.unscored_s:
            continue
        total += 1
        if first == UNSEEN:
            continue
        ttft.append(first - at)
        met += last != UNSEEN and first - at <= book.ttft_s and last - first <= book.tpot_s * (out - 1) + 1e-9
    changes = [(now, size) for now, size in outcome.sizes[1:] if now >= outcome.unscored_s]
    return Score(
        requests=total,
        attainment=met / total if total else 1.0,
        gpu_hours=gpus_per_replica * outcome.paid_s / 3600,
        p95_ttft_ms=1000 * p95(ttft) if ttft else 0.0,
        reversals=reversals(outcome.sizes, outcome.unscored_s),
        resizes=len(changes),
        cut_requests=outcome.cut,
    )


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile of some values; there must be one."""
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def reversals(sizes: list[tuple[float, int]], from_s: float = 0.0) -> int:
    """Count the changes of size that undo the direction of the one before within REVERSAL_S."""
    found = 0
    last_s, last_up = -1e9, False
    for (_, before), (now, size) in pairwise(sizes):
        up = size > before
        found += now >= from_s and up != last_up and now - last_s <= REVERSAL_S
        last_s, last_up = now, up
    return found

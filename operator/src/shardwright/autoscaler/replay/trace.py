"""Requests of a trace, and copies of it laid over each other at seeded offsets.

Decides nothing about fleets. Reads no file.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

SPREAD_S = 60.0
"""Copies start within this time, so that their instants differ and the shape of the load stays."""
LONGEST_S = 366 * 86_400.0
"""Of a trace. What is longer has times of another unit or origin, and would be ticked for hours."""
_MASK = (1 << 64) - 1


def uniform(seed: int, index: int) -> float:
    """Return the number in [0, 1) of a seed and an index (SplitMix64: Steele, Lea, Flood, 2014)."""
    x = (seed * 0x9E3779B97F4A7C15 + (index + 1) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((x ^ (x >> 31)) >> 11) / float(1 << 53)


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of their arrival; the three sequences are of one length."""

    arrival_s: Sequence[float]
    """Seconds from the start of the trace."""
    input_tokens: Sequence[int]
    output_tokens: Sequence[int]
    """At least one each."""

    def __post_init__(self) -> None:
        """Refuse what cannot be replayed. Raises ValueError naming the column."""
        if not len(self.arrival_s) == len(self.input_tokens) == len(self.output_tokens):
            raise ValueError("arrival_s, input_tokens and output_tokens differ in length")
        if any(b < a for a, b in pairwise(self.arrival_s)):
            raise ValueError("arrival_s is not sorted: sort the trace by arrival")
        if any(tokens < 1 for tokens in (*self.input_tokens, *self.output_tokens)):
            raise ValueError("input_tokens and output_tokens are at least 1: leave out empty requests")
        if self.end_s > LONGEST_S:
            raise ValueError(
                f"the last request comes after {self.end_s / 86_400:.4g} days, and at most "
                f"{LONGEST_S / 86_400:g} are replayed: times are all of one unit, from the trace's start"
            )

    @property
    def end_s(self) -> float:
        """The last arrival."""
        return self.arrival_s[-1] if self.arrival_s else 0.0


def overlaid(trace: Trace, copies: int, seed: int) -> Trace:
    """Return `copies` of a trace over each other; each but the first starts within SPREAD_S."""
    rows: list[tuple[float, int, int]] = []
    for copy in range(copies):
        offset = SPREAD_S * uniform(seed, copy) if copy else 0.0
        rows.extend(
            (at + offset, into, out)
            for at, into, out in zip(trace.arrival_s, trace.input_tokens, trace.output_tokens, strict=True)
        )
    rows.sort()
    return Trace([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])


def part(trace: Trace, start_s: float, stop_s: float) -> Trace:
    """Return the requests between two times, the first of which becomes zero."""
    low, high = bisect_left(trace.arrival_s, start_s), bisect_left(trace.arrival_s, stop_s)
    arrivals = [at - start_s for at in trace.arrival_s[low:high]]
    return Trace(arrivals, trace.input_tokens[low:high], trace.output_tokens[low:high])

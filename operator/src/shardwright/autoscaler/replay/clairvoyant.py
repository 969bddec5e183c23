"""A schedule of sizes made with the trace in hand: what no rule can beat by much, found by search.

Decides sizes from requests that have not arrived yet, so it is a yardstick and no policy to run. It is an
upper bound on the least hours, not the optimum: a grid over use, smoothing and hold, then trimming block by
block.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from shardwright.autoscaler.replay.fleet import Outcome, Snapshot, World, replay
from shardwright.autoscaler.replay.score import Score, score
from shardwright.autoscaler.replay.trace import Trace, part
from shardwright.autoscaler.replica import capacity

SLOT_S: Final = 15.0
USES: Final = (1.0, 0.85, 0.7, 0.55, 0.4, 0.3, 0.2)
SMOOTHINGS: Final = (2, 8)
HOLDS: Final = (8, 30)
"""In slots."""
PRICE: Final = 5.0
"""Misses that a saved GPU-hour may cost in the first sweep."""
SWEEPS: Final = 12
ROUNDS: Final = 6
MARGIN_S: Final = 450.0
"""A block is judged with this much of the trace before and after it."""


@dataclass(slots=True)
class Schedule:
    """Sizes for each slot."""

    sizes: Sequence[int]
    name: str = "clairvoyant"
    period_s: float = SLOT_S
    limit_tokens: int = 1 << 30

    def decide(self, seen: Snapshot) -> int:
        """Return the size of the slot that begins."""
        return self.sizes[min(len(self.sizes) - 1, int(seen.now_s / SLOT_S + 0.5))]


def demands(trace: Trace, world: World) -> list[float]:
    """Return the replicas at full use that each slot's requests take, at the mean lengths around it."""
    slots = int(trace.end_s / SLOT_S) + 1
    counts, into, out = [0] * slots, [0] * slots, [0] * slots
    for at, i, o in zip(trace.arrival_s, trace.input_tokens, trace.output_tokens, strict=True):
        slot = int(at / SLOT_S)
        counts[slot] += 1
        into[slot] += i
        out[slot] += o
    found = []
    for slot in range(slots):
        near = slice(max(0, slot - 10), slot + 10)
        requests = sum(counts[near])
        if not requests:
            found.append(0.0)
            continue
        served = capacity(world.model, sum(into[near]) / requests, sum(out[near]) / requests, world.tpot_s)
        found.append(counts[slot] / SLOT_S / served.rate_per_s)
    return found


def needs(demand: Sequence[float], use: float, smoothing: int, hold: int) -> list[int]:
    """Return the replicas to have ready in each slot: smoothed demand over `use`, the most of `hold`."""
    smooth = []
    for slot in range(len(demand)):
        near = demand[max(0, slot - smoothing // 2) : slot + smoothing - smoothing // 2]
        smooth.append(max(1, ceil(sum(near) / len(near) / use)))
    return [max(smooth[max(0, slot - hold) : slot + 1]) for slot in range(len(smooth))]


def sizes_of(need: Sequence[int], world: World) -> list[int]:
    """Return the sizes that have `need` ready.

    A replica is created one long cold start ahead; one that is needed again within that time stays.
    """
    ahead = ceil(world.cold_start_s * (1 + world.cold_start_spread) / SLOT_S) + 1
    return [max(need[slot : slot + ahead + 1]) for slot in range(len(need))]


def run(trace: Trace, world: World, need: Sequence[int]) -> tuple[Outcome, Score]:
    """Replay a schedule."""
    sizes = sizes_of(need, world)
    outcome = replay(trace, replace(world, first_replicas=sizes[0]), Schedule(sizes))
    return outcome, score(outcome)


def grid(trace: Trace, world: World, target: float) -> list[int]:
    """Return the cheapest needs of the grid that attain `target`; the safest ones when none do."""
    demand = demands(trace, world)
    best: tuple[float, list[int]] | None = None
    safest: tuple[float, list[int]] | None = None
    for smoothing in SMOOTHINGS:
        for hold in HOLDS:
            for use in USES:
                need = needs(demand, use, smoothing, hold)
                figures = run(trace, world, need)[1]
                if safest is None or figures.attainment > safest[0]:
                    safest = (figures.attainment, need)
                if figures.attainment >= target:
                    if best is None or figures.gpu_hours < best[0]:
                        best = (figures.gpu_hours, need)
                    break
    assert safest is not None
    return best[1] if best else safest[1]


def trimmed(
    trace: Trace, world: World, need: list[int], target: float, block: int
) -> tuple[list[int], Score]:
    """Return the needs after lowering the tops of blocks while `target` is attained.

    Sweeps first: each block is lowered while a saved hour costs fewer misses than a price that doubles from
    sweep to sweep. Then rounds: the best blocks are lowered for half of the misses that are still allowed, or
    for less when that falls short.
    """
    kept, figures = need, run(trace, world, need)[1]
    for sweep in range(SWEEPS):
        blocks = range((sweep % 2) * block // 2, len(kept), block)
        candidate = _sweep(trace, world, kept, PRICE * 2**sweep, blocks)
        found = run(trace, world, candidate)[1]
        if found.attainment < target:
            break
        kept, figures = candidate, found
    share = 0.5
    for number in range(ROUNDS):
        blocks = range((number % 2) * block // 2, len(kept), block)
        allowed = share * (figures.attainment - target) * figures.requests
        candidate = _lowered(kept, _choices(trace, world, kept, blocks), allowed)
        found = run(trace, world, candidate)[1]
        if found.attainment >= target and found.gpu_hours < figures.gpu_hours:
            kept, figures = candidate, found
        else:
            share /= 2
    return kept, figures


def _sweep(trace: Trace, world: World, need: list[int], price: float, blocks: range) -> list[int]:
    for start in blocks:
        stop = min(len(need), start + blocks.step)
        now = _around(trace, world, need, start, stop)
        for top in range(max(need[start:stop]) - 1, 0, -1):
            lowered = _topped(need, start, stop, top)
            then = _around(trace, world, lowered, start, stop)
            saved = now.gpu_hours - then.gpu_hours
            if saved <= 0 or (now.attainment - then.attainment) * now.requests > price * saved:
                break
            need, now = lowered, then
    return need


def _topped(need: Sequence[int], start: int, stop: int, top: int) -> list[int]:
    return [min(n, top) if start <= slot < stop else n for slot, n in enumerate(need)]


@dataclass(frozen=True, slots=True)
class _Choice:
    start: int
    stop: int
    top: int
    saved: float
    lost: float


def _choices(trace: Trace, world: World, need: Sequence[int], blocks: range) -> list[_Choice]:
    """Return what lowering the top of each block by one saves and loses, the best first."""
    found = []
    for start in blocks:
        stop = min(len(need), start + blocks.step)
        top = max(need[start:stop]) - 1
        if top < world.min_replicas:
            continue
        lowered = _topped(need, start, stop, top)
        now, then = (_around(trace, world, one, start, stop) for one in (need, lowered))
        saved, lost = now.gpu_hours - then.gpu_hours, (now.attainment - then.attainment) * now.requests
        if saved > 0:
            found.append(_Choice(start, stop, top, saved, max(0.0, lost)))
    return sorted(found, key=lambda one: (one.lost / one.saved, one.start))


def _lowered(need: Sequence[int], choices: Sequence[_Choice], allowed: float) -> list[int]:
    """Return the needs with the best choices taken while their misses are allowed."""
    lowered = list(need)
    for one in choices:
        allowed -= one.lost
        if allowed < 0:
            break
        lowered[one.start : one.stop] = [min(n, one.top) for n in lowered[one.start : one.stop]]
    return lowered


def _around(trace: Trace, world: World, need: Sequence[int], start: int, stop: int) -> Score:
    """Judge a block with its surroundings."""
    margin = int(MARGIN_S / SLOT_S)
    low, high = max(0, start - margin), min(len(need), stop + margin)
    return run(part(trace, low * SLOT_S, high * SLOT_S), replace(world, unscored_s=0.0), need[low:high])[1]


def search(trace: Trace, world: World, target: float, block: int) -> tuple[list[int], Score]:
    """Return the needs with the fewest hours found at `target`: a safer grid point, then trimming."""
    safer = grid(trace, world, target + 0.6 * (1 - target))
    return trimmed(trace, world, safer, target, block)

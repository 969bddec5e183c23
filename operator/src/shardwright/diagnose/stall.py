"""Whether an engine hangs: it has requests, and no token comes.

Decides since when an engine is silent, from samples of its figures, when that is too long, and which engine
of a service is replaced first. What is missing, stale or of an engine that started anew says nothing: at
worst a hung engine is found later. Never asks an engine, and never replaces one.

vLLM's gauges are those of the last step. Clients that leave all at once can leave an idle engine behind that
still reports requests (vllm#22545, vllm#29928), so that what is found here is a suspicion:
whoever acts on it asks the engine for a token first.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from shardwright.planner.growth import number
from shardwright.planner.signals import PodKey, Readings, Signal

LEAST_S: Final = 60.0
"""No engine is suspected before: a kernel that is compiled on first use, or a client of the GPU that is paged
in, takes tens of seconds."""
FACTOR: Final = 3.0
"""How many times the longest predicted silence an engine may take. Of the classes that were measured, the
worst is 1.7 times as slow as predicted (docs/performance-model.md); the rest is for GPUs that throttle. It
decides only where contexts are long: a step takes a fraction of a second, and a prompt of 128k tokens a
minute or more."""
SAMPLES: Final = 3
"""Of the silence at least: its two ends, and one in between."""
LONGEST_GAP_S: Final = 120.0
"""Samples that lie farther apart say nothing of the time between them."""


class Sample(NamedTuple):
    """One engine at one moment."""

    at_s: float
    """When it was asked, by the source's clock."""
    seen_s: float
    """When that was read, by a clock that nobody sets."""
    started_s: float | None
    restarts: int
    """Of its container, as the API server counts them."""
    requests: float
    """In its batch or its queue."""
    tokens: float
    """All tokens that it has brought."""


class Silence(NamedTuple):
    """Samples of an engine that had requests each time, and brought no token."""

    first: Sample
    last: Sample
    samples: int = 1
    fresh: bool = True
    """The last sample is of this look."""

    @property
    def seconds(self) -> float:
        """How long it has lasted for sure: clocks can be set, and looks can come late."""
        return min(self.last.at_s - self.first.at_s, self.last.seen_s - self.first.seen_s)


def bound_s(longest_silence_s: float, least_s: float = LEAST_S) -> float:
    """Return after how many seconds without a token an engine is suspected to hang."""
    return max(least_s, FACTOR * longest_silence_s)


def sample_of(readings: Readings, pod: PodKey, restarts: int, seen_s: float) -> Sample | None:
    """Return what an engine reports; None when a part of it is not known."""
    at_s = number(readings.of(Signal.SAMPLED, pod))
    running = number(readings.of(Signal.RUNNING, pod))
    waiting = number(readings.of(Signal.WAITING, pod))
    tokens = number(readings.of(Signal.GENERATION_TOKENS, pod))
    if at_s is None or running is None or waiting is None or tokens is None:
        return None
    started_s = number(readings.of(Signal.STARTED, pod))
    return Sample(at_s, seen_s, started_s, restarts, running + waiting, tokens)


def follow(silence: Silence | None, new: Sample | None) -> Silence | None:
    """Return the silence after another look; None while there is none."""
    if new is None:
        return silence._replace(fresh=False) if silence is not None else None
    if new.requests <= 0:
        return None
    if silence is None:
        return Silence(new, new)
    last = silence.last
    if new.at_s == last.at_s:  # the engine was not asked since
        return silence._replace(fresh=False)
    if _breaks(last, new):
        return Silence(new, new)
    return Silence(silence.first, new, silence.samples + 1)


def _breaks(last: Sample, new: Sample) -> bool:
    """Whether a token came, the engine started anew, or nobody knows what was in between."""
    if new.tokens != last.tokens or new.restarts != last.restarts:
        return True
    if None not in (last.started_s, new.started_s) and new.started_s != last.started_s:
        return True
    elapsed = (new.at_s - last.at_s, new.seen_s - last.seen_s)
    return min(elapsed) < 0 or max(elapsed) > LONGEST_GAP_S


def suspected(silence: Silence | None, bound_s: float) -> bool:
    """Whether an engine has been silent for too long, as this look shows."""
    if silence is None or not silence.fresh or silence.samples < SAMPLES:
        return False
    return silence.seconds >= bound_s


def first_of(silences: Mapping[str, Silence | None], bounds: Mapping[str, float]) -> str | None:
    """Return the pod to replace first: of those that are suspected, the one that is silent longest."""
    found = [
        (silence.first.seen_s, name)
        for name, silence in silences.items()
        if silence is not None and name in bounds and suspected(silence, bounds[name])
    ]
    return min(found)[1] if found else None

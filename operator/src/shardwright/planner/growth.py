"""What one engine did in a span of time, from counters that were read now and then.

Decides which two samples a span lies between, and that a restart of the engine ends it: a counter that fell,
or another start time, begins a new span, and what was counted across the restart belongs to none. Never
treats a counter that is missing at one end as zero.
"""

from typing import Final, NamedTuple

from shardwright.planner.signals import PodKey, Reading, Readings, Signal, Unknown

SPAN_S: Final = 900.0
"""Longest span. Our choice: long enough for 50 requests at 4 a minute, short enough for one load."""
STEP_S: Final = 180.0
"""Samples are kept so far apart: six of them for each pod."""
COUNTERS: Final = (
    Signal.TTFT_SUM,
    Signal.TTFT_COUNT,
    Signal.TPOT_SUM,
    Signal.TPOT_COUNT,
    Signal.PROMPT_TOKENS,
    Signal.GENERATION_TOKENS,
    Signal.PREFIX_HIT_TOKENS,
    Signal.TTFT_WITHIN,
    Signal.TPOT_WITHIN,
)
(
    _TTFT_SUM, _TTFT_COUNT, _TPOT_SUM, _TPOT_COUNT, _PROMPT, _GENERATED, _HIT, _TTFT_WITHIN, _TPOT_WITHIN,
) = range(len(COUNTERS))  # fmt: skip


class Sample(NamedTuple):
    """One pod's counters at one moment; None: unknown."""

    at_s: float
    """When the engine was asked, by the source's clock."""
    started_s: float | None
    counters: tuple[float | None, ...]
    """In the order of COUNTERS."""


Samples = tuple[Sample, ...]
"""The oldest first."""


class Growth(NamedTuple):
    """By how much each counter grew; None: unknown."""

    seconds: float
    ttft_sum_s: float | None = None
    ttft_count: float | None = None
    tpot_sum_s: float | None = None
    tpot_count: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prefix_hit_tokens: float | None = None
    ttft_within: float | None = None
    """First tokens within the target that was asked for; and finished requests, of TPOT."""
    tpot_within: float | None = None


def sample_of(readings: Readings, pod: PodKey) -> Sample | None:
    """Return a pod's counters; None when it is not known from when they are."""
    at_s = number(readings.of(Signal.SAMPLED, pod))
    if at_s is None:
        return None
    return Sample(
        at_s=at_s,
        started_s=number(readings.of(Signal.STARTED, pod)),
        counters=tuple(number(readings.of(signal, pod)) for signal in COUNTERS),
    )


def number(reading: Reading) -> float | None:
    """Return the number of a reading; None when it is unknown."""
    return None if isinstance(reading, Unknown) else reading.number


def follow(samples: Samples, new: Sample) -> Samples:
    """Return the samples with a new one, without those that are too old or from before a restart."""
    if not samples:
        return (new,)
    last = samples[-1]
    if new.at_s <= last.at_s:
        return samples  # nothing was asked of the engine in between
    if _restarted(last, new):
        return (new,)
    kept = [sample for sample in samples if new.at_s - sample.at_s <= SPAN_S]
    if len(kept) > 1 and kept[-1].at_s - kept[-2].at_s < STEP_S:
        kept.pop()
    return (*kept, new)


def _restarted(before: Sample, after: Sample) -> bool:
    if None not in (before.started_s, after.started_s) and before.started_s != after.started_s:
        return True
    pairs = zip(before.counters, after.counters, strict=True)
    return any(old is not None and new is not None and new < old for old, new in pairs)


def growth(samples: Samples) -> Growth | None:
    """Return what happened between the oldest and the newest sample; None when there are not two."""
    if len(samples) < 2:
        return None
    first, last = samples[0], samples[-1]
    grown = [
        None if old is None or new is None else new - old
        for old, new in zip(first.counters, last.counters, strict=True)
    ]
    return Growth(
        seconds=last.at_s - first.at_s,
        ttft_sum_s=grown[_TTFT_SUM],
        ttft_count=grown[_TTFT_COUNT],
        tpot_sum_s=grown[_TPOT_SUM],
        tpot_count=grown[_TPOT_COUNT],
        prompt_tokens=grown[_PROMPT],
        generation_tokens=grown[_GENERATED],
        prefix_hit_tokens=grown[_HIT],
        ttft_within=grown[_TTFT_WITHIN],
        tpot_within=grown[_TPOT_WITHIN],
    )

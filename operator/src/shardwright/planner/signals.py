"""What engines report of themselves, as values: which signals there are, and the three states of a reading.

Decides that a reading is a number above or below zero, zero, or unknown, as three types, so that missing data
can never be read as zero. Never reads anything: `metrics` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Final

PodKey = tuple[str, str]
"""(namespace, name)."""


class Signal(StrEnum):
    """One figure of one engine pod. Counters only grow, until the engine starts anew."""

    TTFT_SUM = "TTFTSum"
    """Counter, seconds to the first token, over all requests that got one."""
    TTFT_COUNT = "TTFTCount"
    """Counter, requests that got their first token."""
    TPOT_SUM = "TPOTSum"
    """Counter, seconds per output token after the first."""
    TPOT_COUNT = "TPOTCount"
    """Counter, what TPOT_SUM is a sum over: finished requests, or tokens of engines that count those."""
    PROMPT_TOKENS = "PromptTokens"
    """Counter."""
    GENERATION_TOKENS = "GenerationTokens"
    """Counter."""
    PREFIX_HIT_TOKENS = "PrefixHitTokens"
    """Counter, prompt tokens that were found in the prefix cache."""
    RUNNING = "Running"
    """Requests in the batch now."""
    WAITING = "Waiting"
    """Requests in the engine's queue now."""
    KV_SHARE = "KVShare"
    """Share of the KV cache in use now, 0 to 1; the mean of an engine's ranks."""
    FINISHED = "Finished"
    """Counter, requests that ended, however they did."""
    FINISHED_TOKENS = "FinishedTokens"
    """Counter, output tokens of requests that ended."""
    GAP_SUM = "GapSum"
    """Counter, seconds between two tokens of a request, over all tokens but the first ones."""
    GAP_COUNT = "GapCount"
    """Counter, what GAP_SUM is a sum over."""
    TTFT_WITHIN = "TTFTWithin"
    """Counter, first tokens no later than the edge that was asked for (`metrics.source.Target.edges`)."""
    TPOT_WITHIN = "TPOTWithin"
    """Counter, finished requests whose seconds per token are no more than the edge that was asked for."""
    PROMPTS = "Prompts"
    """Counter, finished requests by the length of their prompts."""
    PROMPTS_WITHIN = "PromptsWithin"
    """Counter, those no longer than the edge that was asked for, in tokens."""
    ANSWERED = "Answered"
    """Counter, requests to /v1 that got an answer, whatever its status."""
    FAILED = "Failed"
    """Counter, those whose status was 500 or more."""
    REFUSED = "Refused"
    """Counter, requests that the engine's own bound of its queue refused (503); it is there from the first
    one on."""
    KV_TOKENS = "KVTokens"
    """Constant of a start: tokens that the KV cache of one engine rank holds."""
    STARTED = "Started"
    """Constant of a start: seconds since the epoch."""
    SAMPLED = "Sampled"
    """Seconds since the epoch at which the pod's figures were taken."""


class Why(StrEnum):
    """Why a reading is unknown."""

    ABSENT = "Absent"
    """The pod has no such series."""
    NOT_A_NUMBER = "NotANumber"
    """NaN, infinite, or no number at all."""
    STALE = "Stale"
    """The figures are older than they may be."""
    UNREACHABLE = "Unreachable"
    """The source did not answer, or refused."""
    NO_EDGE = "NoEdge"
    """The engine has the histogram, and the target is none of its edges."""


@dataclass(frozen=True, slots=True)
class Value:
    """A finite number that is not zero."""

    number: float

    def __post_init__(self) -> None:
        """Refuse what is another state. Raises ValueError."""
        if self.number == 0 or not isfinite(self.number):
            raise ValueError(f"{self.number} is Zero or Unknown, not a Value")


@dataclass(frozen=True, slots=True)
class Zero:
    """Seen, and zero."""

    @property
    def number(self) -> float:
        """Zero."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not seen. It has no number."""

    why: Why


Reading = Value | Zero | Unknown
ZERO: Final = Zero()
ABSENT: Final = Unknown(Why.ABSENT)
NOT_A_NUMBER: Final = Unknown(Why.NOT_A_NUMBER)
STALE: Final = Unknown(Why.STALE)
UNREACHABLE: Final = Unknown(Why.UNREACHABLE)
NO_EDGE: Final = Unknown(Why.NO_EDGE)


def reading(number: float) -> Reading:
    """Return a number as a reading: NaN and infinities are unknown."""
    if not isfinite(number):
        return NOT_A_NUMBER
    return Value(number) if number else ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What a source says of the fleet at one moment."""

    by_signal: Mapping[Signal, Mapping[PodKey, Reading]] = field(default_factory=dict)
    failure: str = ""
    """Why the source as a whole said nothing, as one phrase without figures that change; empty when it
    did."""

    def of(self, signal: Signal, pod: PodKey) -> Reading:
        """Return the reading of one pod; unknown when there is none."""
        if self.failure:
            return UNREACHABLE
        return self.by_signal.get(signal, {}).get(pod, ABSENT)

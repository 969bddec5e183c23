"""Whether a new revision serves as well as the old one: the judge of a canary. Pure.

Decides from what both served in the same time. TTFT and TPOT are judged as the share of requests beyond a
bound, such as the target, and errors as the share of requests that failed: a share says how sure it is by its
count, which a mean does not. The new revision is worse when even the best that its count allows is above the
worst that the old one's count allows, by MARGIN; that may be said early. It is as good when it is not worse
and each share rests on enough requests. Else it is not known: what is missing is no pass and no failure.

Answers to the same greedy prompts catch what no latency shows: a wrong template, another tokenizer, a
quantisation that changed the answers. Two engines of one checkpoint differ late in an answer, where two words
are nearly as likely; an answer counts as another one when its beginning differs.

Never asks a prompt, reads a metric or moves traffic.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from typing import Final

MARGIN: Final = 0.02
"""Share of requests by which the new revision may be worse: under the 5 % that a P95 allows. Our choice."""
SURE: Final = 3.0
"""Standard deviations of both bounds; a test looks how seldom equal revisions are taken for unequal ones."""
MIN_SAMPLES: Final = 100
"""Requests that each revision must have served, where `minSamples` says nothing else."""
WORDS: Final = 8
"""Words at the beginning of an answer that are compared. Our choice."""
MOST_OTHER: Final = 0.5
"""Share of answers that may begin otherwise. Our choice: a wrong template changes nearly all of them."""
MIN_PROMPTS: Final = 8


class Verdict(StrEnum):
    """What is known of a canary."""

    AS_GOOD = "AsGood"
    WORSE = "Worse"
    NOT_KNOWN = "NotKnown"


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many requests."""

    count: int
    of: int

    def bounds(self) -> tuple[float, float]:
        """Return the share's lower and upper bound (Wilson's interval): of no requests, anything."""
        if not self.of:
            return 0.0, 1.0
        rate, z2 = self.count / self.of, SURE * SURE
        middle = rate + z2 / (2 * self.of)
        spread = SURE * sqrt(rate * (1 - rate) / self.of + z2 / (4 * self.of * self.of))
        whole = 1 + z2 / self.of
        return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What one revision served since the step began. None: not known."""

    slow_first_tokens: Share | None = None
    """Requests whose first token came later than the bound."""
    slow_tokens: Share | None = None
    """Requests, or tokens, whose time per token was above the bound."""
    errors: Share | None = None
    """Requests that failed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What both revisions answered to one prompt."""

    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a canary is judged by."""

    old: Served = Served()
    new: Served = Served()
    answers: tuple[Answer, ...] | None = None
    """None: prompts are not asked, or not answered yet."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict and why, without figures that change from look to look."""

    verdict: Verdict
    message: str


def judge(
    old: Served, new: Served, answers: Sequence[Answer] | None = None, *, min_samples: int = MIN_SAMPLES
) -> Judgement:
    """Judge a new revision by what it and the old one served, and by `answers` where prompts were asked."""
    worse = [
        name for name, before, after in _pairs(old, new) if before and after and _is_worse(before, after)
    ]
    if answers is not None and _differ(answers):
        worse.append("the answers to the same prompts")
    if worse:
        what = " and ".join(worse)
        return Judgement(Verdict.WORSE, f"Worse than the old revision: {what}")
    unknown = [name for name, *shares in _pairs(old, new) if None in shares]
    if unknown:
        what = " and ".join(unknown)
        return Judgement(Verdict.NOT_KNOWN, f"Not reported by both revisions yet: {what}")
    few = [name for name, *shares in _pairs(old, new) if any(s is None or s.of < min_samples for s in shares)]
    if answers is not None and len(answers) < MIN_PROMPTS:
        few.append("the answers to the same prompts")
    if few:
        return Judgement(Verdict.NOT_KNOWN, f"Too few requests to judge {' and '.join(few)}")
    return Judgement(Verdict.AS_GOOD, "As good as the old revision")


def _pairs(old: Served, new: Served) -> Iterator[tuple[str, Share | None, Share | None]]:
    yield "TTFT", old.slow_first_tokens, new.slow_first_tokens
    yield "TPOT", old.slow_tokens, new.slow_tokens
    yield "errors", old.errors, new.errors


def _is_worse(old: Share, new: Share) -> bool:
    return new.bounds()[0] > old.bounds()[1] + MARGIN


def _differ(answers: Sequence[Answer]) -> bool:
    """Whether more answers begin otherwise than may; of few prompts nothing is said."""
    if len(answers) < MIN_PROMPTS:
        return False
    others = sum(1 for a in answers if a.old.split()[:WORDS] != a.new.split()[:WORDS])
    return others > MOST_OTHER * len(answers)

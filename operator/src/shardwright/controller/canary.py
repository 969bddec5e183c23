"""Which step of a canary a rollout is at, and how many new replicas that means. Pure.

Decides by replicas: a step's share of the wanted replicas, at least one, serves beside the old ones, and each
gets its share of the requests. Where a router takes weights they would be set to the step's percent as well.
A step ends when its minutes are over and the judge finds the new revision as good; never on time alone. Never
judges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from shardwright.api.serving import CanaryStep
from shardwright.diagnose.canary import Verdict

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class At:
    """A step, by its number from 0, and since when; beyond the last: all replicas."""

    step: int
    since_s: float


def goal(steps: Sequence[CanaryStep], at: At, desired: int) -> int:
    """Return how many new replicas a step takes."""
    if at.step >= len(steps):
        return desired
    return min(desired, max(1, ceil(desired * steps[at.step].percent / 100)))


def advance(
    steps: Sequence[CanaryStep], at: At, *, ready: int, desired: int, verdict: Verdict, now_s: float
) -> At:
    """Return the step to be at. Its time begins when all its replicas answer, and again when one does not."""
    if at.step >= len(steps):
        return at
    if ready < goal(steps, at, desired):
        return At(at.step, now_s)
    if verdict is Verdict.AS_GOOD and now_s - at.since_s >= steps[at.step].minutes * MINUTE_S:
        return At(at.step + 1, now_s)
    return at

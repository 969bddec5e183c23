"""The canaries that are under way: at which step each is, and what its judge says.

Decides when a rollout is a canary: while an earlier revision runs beside the new one, and never on the way
back from one that was given up. A step's number is in `status.rollout`, so that a restart goes on with it;
its minutes begin anew then, and a lost status begins with the first step, which takes no replica away. Never
reads a metric: `source` says what both revisions served, and without one nothing is known of either.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shardwright.controller.canary import At, advance, goal
from shardwright.controller.situation import Situation
from shardwright.diagnose.canary import MIN_SAMPLES, Judgement, Seen, Verdict, judge

LOOK_S: Final = 30.0
"""How often a canary is looked at while nothing of it changes: what it served does."""

NO_METRICS: Final = Judgement(
    Verdict.NOT_KNOWN,
    "The operator reads no engine metrics, so nothing is known: let it read them, or remove rollout.canary",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryNow:
    """A canary at one moment."""

    goal: int
    """New replicas that its step takes."""
    step: int
    """From 1; one more than there are steps when all are done."""
    steps: int
    judgement: Judgement

    @property
    def done(self) -> bool:
        """Whether all steps were judged as good."""
        return self.step > self.steps


@dataclass(slots=True)
class Canaries:
    """See the module."""

    source: Callable[[Situation, int], Seen] | None = None
    """What the old revisions and the target served since a step of the target began."""
    ended: Callable[[str], None] = lambda _: None
    """Called with the uid of a service that has no canary any more."""
    _at: dict[str, tuple[str, At]] = field(default_factory=dict)
    """By uid of the service: the target, and where its canary is."""

    def forget(self, uid: str) -> None:
        """Forget a service that is gone, or that has no rollout under way."""
        if self._at.pop(uid, None) is not None:
            self.ended(uid)

    def look(self, now: Situation, *, ready: int, now_s: float) -> CanaryNow | None:
        """Go on where the judge lets it; None: no canary. `ready` counts the target's answering pods."""
        uid, rollout = now.entry.uid, now.service.spec.rollout
        others = now.deployments.keys() - {now.target}
        back = any(record.failed and record.revision in others for record in now.revisions)
        if rollout is None or rollout.canary is None or not others or back:
            self.forget(uid)
            return None
        canary, (target, at) = rollout.canary, self._at.get(uid, ("", At(0, now_s)))
        if target != now.target:
            at = At(_told_step(now), now_s)
        judgement = self._judged(now, at.step, canary.min_samples or MIN_SAMPLES)
        if at.step >= len(canary.steps):
            judgement = Judgement(Verdict.AS_GOOD, "All steps were as good as the old revision")
        if not rollout.paused:
            verdict = judgement.verdict
            at = advance(canary.steps, at, ready=ready, desired=now.desired, verdict=verdict, now_s=now_s)
        self._at[uid] = now.target, at
        return CanaryNow(
            goal=goal(canary.steps, at, now.desired),
            step=at.step + 1,
            steps=len(canary.steps),
            judgement=judgement,
        )

    def _judged(self, now: Situation, step: int, min_samples: int) -> Judgement:
        if self.source is None:
            return NO_METRICS
        seen = self.source(now, step)
        return judge(seen.old, seen.new, seen.answers, min_samples=min_samples)


def _told_step(now: Situation) -> int:
    """Return the step that the status says, from 0."""
    told = now.entry.status.rollout
    if told is None or told.to_revision != now.target:
        return 0
    return max(0, (told.canary_step or 1) - 1)

"""When a new revision has failed to start, so that its rollout stops and what ran before comes back.

Decides from the pods of the revision alone, and only while an earlier one still has a workload. How often a
start is tried is bounded by what Kubernetes itself counts or does:

- RESTARTS of a container that ends. Kubernetes waits 10, 20 and 40 s before them: with the first start these
  are four, over a minute and more. What is wrong with the spec or the image shows in each; a hiccup of the
  network or of a driver seldom lasts for all.
- REFUSED_S where nothing starts and nothing is counted: an image that cannot be pulled (in that time
  Kubernetes tries some four times), a container or a pod that is refused.
- The Deployment's progress deadline, which is the start-up budget and a pull of the image.

What going back does not mend is waited for: the hub that refuses or slows down the download, which Kubernetes
tries again at growing distances of up to five minutes; a quota, a node that is lost, a broken GPU, a place
that is lacking. Never restarts, deletes or writes anything.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.reasons import Reason
from shardwright.diagnose.facts import PodTrouble
from shardwright.diagnose.trouble import Trouble, refused_pods, severest, slow_start, trouble_of

RESTARTS: Final = 3
REFUSED_S: Final = 120.0
_ENDS: Final = frozenset({Reason.CRASH_LOOP, Reason.MODEL_NOT_FOUND, Reason.OUT_OF_MEMORY})
_REFUSED: Final = frozenset({Reason.IMAGE_PULL, Reason.POD_CONFIG, Reason.PODS_REFUSED})
_NOT_ITS_FAULT: Final = frozenset(
    {
        Reason.HUB_UNAUTHORIZED,
        Reason.HUB_RATE_LIMITED,
        Reason.HUB_UNAVAILABLE,
        Reason.WEIGHTS_MISSING,
        Reason.QUOTA_EXCEEDED,
        Reason.NODE_LOST,
        Reason.GPU_FAULT,
        Reason.UNSCHEDULABLE,
    }
)
_LAST_WORDS: Final = 300
_SECRET: Final = re.compile(
    r"hf_\w+|(?<=://)[^/\s@]+(?=@)|(?i:bearer|token|password|secret|key)[\"']?\s*[=:\s]\s*[\"']?[^\s\"',;)]+"
)
"""What looks like a secret in the last line of a log: a hub token, a login in a URL, a value after a word."""
CREATION: Final = "the API server"
"""Who is named where no pod is made at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A pod of the new revision that does not answer."""

    pod: str
    bound: bool
    restarts: int
    trouble: PodTrouble | None


@dataclass(slots=True)
class Starts:
    """Since when starts are refused. Seconds of the operator's own clock: a restart begins them anew."""

    _since: dict[str, dict[str, float]] = field(default_factory=dict)
    """By uid of the service, then by pod."""

    def forget(self, uid: str) -> None:
        """Forget a service that is gone, or that has no rollout under way."""
        self._since.pop(uid, None)

    def judge(
        self,
        uid: str,
        starts: Iterable[Start],
        *,
        create_failure: str,
        deadline_exceeded: bool,
        now_s: float,
    ) -> tuple[Trouble | None, float | None]:
        """Return why the start has failed, or None; and when to look again, in seconds."""
        starts = list(starts)
        before, since, failed = self._since.get(uid, {}), {}, []
        refused = [(s.pod, trouble_of(s.trouble)) for s in starts if s.trouble is not None]
        if create_failure:
            refused.append((CREATION, refused_pods(create_failure)))
        for who, trouble in refused:
            if trouble.reason in _REFUSED:
                since[who] = before.get(who, now_s)
                if now_s - since[who] >= REFUSED_S:
                    failed.append(trouble)
        self._since[uid] = since
        failed += [found for s in starts if (found := ended_too_often(s)) is not None]
        excused = any(trouble.reason in _NOT_ITS_FAULT for _, trouble in refused)
        if deadline_exceeded and not excused and any(s.bound for s in starts):
            failed.append(slow_start())
        if failed:
            return severest(failed), None
        return None, min((at + REFUSED_S - now_s for at in since.values()), default=None)


def ended_too_often(start: Start) -> Trouble | None:
    """Return why a container ends again and again, with its last words; None before it has RESTARTS times."""
    if start.trouble is None or start.restarts < RESTARTS:
        return None
    trouble = trouble_of(start.trouble)
    if trouble.reason not in _ENDS:
        return None
    said = last_words(start.trouble.message)
    return (
        Trouble(reason=trouble.reason, message=f"{trouble.message}. It said last: {said}")
        if said
        else trouble
    )


def last_words(message: str) -> str:
    """Return the last line of a log that says something, without what looks like a secret."""
    lines = [line.strip() for line in message.splitlines()]
    said = next((line for line in reversed(lines) if len(line) > 1), "")
    if said.startswith("back-off "):  # the kubelet's, of a container that left no words
        return ""
    return _SECRET.sub("…", said)[:_LAST_WORDS]

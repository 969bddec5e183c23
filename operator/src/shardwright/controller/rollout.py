"""How many replicas each revision's workload should have while one replaces another. Pure.

Decides surge where there is room, else one at a time on the GPUs that the old revision gives up. Never
gives up an old replica when that would not make room for the new one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Old:
    """A workload of an earlier revision."""

    revision: str
    replicas: int
    """spec.replicas of its Deployment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a rollout stands."""

    desired: int
    granted: int
    """Replicas of the new revision that have a place."""
    ready: int
    """Replicas of the new revision that serve."""
    leaving: int
    """Pods of old revisions that are being deleted and still hold their GPUs."""
    helps: bool
    """Whether the GPUs of the old replicas are such that the new revision can use them."""


def retire(old: tuple[Old, ...], progress: Progress, first: frozenset[str] = frozenset()) -> dict[str, int]:
    """Return the replicas of each old revision, by revision; 0 means that its workload goes.

    With a place for every new replica, an old one goes for each new one that serves. Without, one more
    goes whenever all new replicas that have a place serve and none is on its way out: the freed GPUs are
    then offered to the new revision, and the loop comes round again. The oldest revision gives first.
    Revisions of `first` hold what the new one needs to start at all: they go whole, as soon as it has a
    place, or gets one by that.
    """
    total = sum(o.replicas for o in old)
    keep = max(0, progress.desired - progress.ready)
    if progress.granted < progress.desired and progress.helps:
        starting = max(0, progress.granted - progress.ready)
        if not starting and not progress.leaving:
            keep = min(keep, total - 1)
    keep = max(0, min(keep, total))
    result: dict[str, int] = {}
    for o in reversed(old):
        result[o.revision] = min(o.replicas, keep)
        keep -= result[o.revision]
    if progress.granted or progress.helps:
        result |= dict.fromkeys(first & result.keys(), 0)
    return result


def live_replicas(*, desired: int, granted: int, live: int, stuck: int) -> int:
    """Return the replicas to state for a workload.

    As many as have a place. A workload is never made smaller merely because a pod is being replaced:
    only when fewer are wanted, or when the scheduler itself says that `stuck` pods find no node.
    """
    stated = min(desired, max(granted, live))
    return max(granted, stated - stuck) if granted < stated else stated

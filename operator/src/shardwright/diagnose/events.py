"""Events of transitions between two sets of conditions.

Decides which change is worth an event. Never repeats one: the same conditions twice give none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from shardwright.api.reasons import ConditionType, Reason
from shardwright.api.scaling_reasons import ScalingRule
from shardwright.api.status import Condition, ScalingStatus

TOLD: Final = (
    ConditionType.ACCEPTED,
    ConditionType.PLANNED,
    ConditionType.PLACED,
    ConditionType.AVAILABLE,
    ConditionType.READY,
    ConditionType.DEGRADED,
)
"""The others follow from these."""

_EXPECTED: Final = frozenset(
    {
        Reason.STARTING.value,
        Reason.ROLLING_OUT.value,
        Reason.NO_REPLICAS.value,
        Reason.SCALED_TO_ZERO.value,
        Reason.NOT_PLANNED.value,
        Reason.NOT_OBSERVED.value,
        Reason.WAITS_FOR_APPROVAL.value,
        Reason.ROLLOUT_PAUSED.value,
        Reason.ROLLOUT_WAITS_FOR_ROOM.value,
    }
)
"""Reasons of a false condition that are part of an ordinary life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event to record on the LLMService."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    """Begins with the condition, such as `Placed=False: ...`, unless there is an action."""
    action: str = ""
    """What was done, where the event is not of a condition."""


def events(previous: Sequence[Condition], current: Sequence[Condition]) -> tuple[Event, ...]:
    """Return one event for each told condition whose status or reason has changed, in a fixed order.

    Conditions that were never True and are False for an expected reason are silent, as is the first
    Degraded=False.
    """
    before = {condition.type: condition for condition in previous}
    after = {condition.type: condition for condition in current}
    pairs = ((before.get(kind.value), after.get(kind.value)) for kind in TOLD)
    return tuple(_event(old, new) for old, new in pairs if new is not None and _is_news(old, new))


def _is_news(old: Condition | None, new: Condition) -> bool:
    if new.status == "Unknown":
        return False
    if old is None or old.status == "Unknown":
        return new.type != ConditionType.DEGRADED if _good(new) else not _expected(new)
    if new.type == ConditionType.PLANNED and new.status == "True" and old.message != new.message:
        return True  # another plan
    if old.status == new.status:
        return old.reason != new.reason and not _good(new) and not _expected(new)
    return True


def _good(condition: Condition) -> bool:
    return (condition.status == "True") is not (condition.type == ConditionType.DEGRADED)


def _expected(condition: Condition) -> bool:
    return condition.reason in _EXPECTED


def _asked_for(old: Condition | None, new: Condition) -> bool:
    """Whether more replicas are awaited since a new generation asks for them: none was lost."""
    newer = old is None or old.observed_generation != new.observed_generation
    return newer and new.reason == Reason.NOT_ENOUGH_REPLICAS


def _event(old: Condition | None, condition: Condition) -> Event:
    fine = _good(condition) or _expected(condition) or _asked_for(old, condition)
    return Event(
        type="Normal" if fine else "Warning",
        reason=condition.reason,
        message=f"{condition.type}={condition.status}: {condition.message}"[:1024],
    )


def scaling_events(before: ScalingStatus | None, after: ScalingStatus | None) -> tuple[Event, ...]:
    """Return an event for each change of size that `before` does not tell, the oldest first."""
    known = {change.time for change in (before.decisions if before else None) or ()}
    news = [change for change in (after.decisions if after else None) or () if change.time not in known]
    found = []
    for change in reversed(news):
        reason = Reason.SCALED_UP if change.replicas > change.from_replicas else Reason.SCALED_DOWN
        if not change.replicas:
            reason = Reason.SCALED_TO_ZERO
        elif change.rule == ScalingRule.WOKEN:
            reason = Reason.WOKEN
        seen = change.inputs
        found.append(
            Event(
                type="Normal",
                reason=reason.value,
                message=f"{change.from_replicas} to {change.replicas} replicas: {change.rule} (demand "
                f"{seen.demand}, floor {seen.floor}, headroom {seen.headroom}, missed "
                f"{seen.missed_percent}%)",
                action="Scale",
            )
        )
    return tuple(found)

"""Bounds by the clock: `scaling.schedules`.

Decides which schedule holds at a time: the one that fired last, all times in UTC. Of two that fired together
the later in the list. A bound that it leaves out is that of `scaling`. Never reads a clock.
"""

from datetime import datetime, timedelta
from functools import lru_cache

from cronsim import CronSim, CronSimError

from shardwright.api.defaults import Scale
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.api.serving import ScaleSchedule


def bounds_at(scale: Scale, schedules: list[ScaleSchedule] | None, now: datetime) -> tuple[int, int | None]:
    """Return the least and the most replicas at `now` (UTC); None: as many as the budget holds."""
    low, high = scale.min_replicas, scale.max_replicas
    fired = [(last_fired(one.cron, now), index) for index, one in enumerate(schedules or ())]
    latest = max(((at, index) for at, index in fired if at is not None), default=None)
    if latest is not None:
        holds = (schedules or [])[latest[1]]
        low = low if holds.min_replicas is None else holds.min_replicas
        high = high if holds.max_replicas is None else holds.max_replicas
    return (low if high is None else min(low, high)), high


def last_fired(cron: str, now: datetime) -> datetime | None:
    """Return when an expression matched last, `now` included; None for one that cannot be read."""
    return _last_before(cron, now.replace(second=0, microsecond=0) + timedelta(minutes=1))


@lru_cache(maxsize=1024)
def _last_before(cron: str, minute: datetime) -> datetime | None:
    try:
        return next(CronSim(cron, minute, reverse=True), None)
    except CronSimError:
        return None


def check(spec: LLMServiceSpec) -> tuple[Problem, ...]:
    """Name the schedules that have no effect, or another one than they say."""
    found = []
    scaling = spec.scaling
    for index, one in enumerate((scaling.schedules if scaling else None) or ()):
        field = f"spec.scaling.schedules[{index}]"
        try:
            CronSim(one.cron, datetime(2026, 1, 1))  # noqa: DTZ001 -- only read
        except CronSimError as error:
            message = f"{error}, so that it never holds: write five fields as in 0 8 * * 1-5, in UTC"
            found.append(
                Problem(reason=Reason.INVALID_SPEC, field=f"{field}.cron", message=message, blocking=False)
            )
            continue
        most = one.max_replicas or (scaling and scaling.max_replicas)
        if one.min_replicas is not None and most and one.min_replicas > most:
            message = (
                f"is above the maxReplicas that hold then, so that {most} replicas are the least: lower it"
            )
            found.append(
                Problem(
                    reason=Reason.INVALID_SPEC, field=f"{field}.minReplicas", message=message, blocking=False
                )
            )
    return tuple(found)

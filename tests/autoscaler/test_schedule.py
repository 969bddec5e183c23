"""Which schedule holds: the one that fired last, in UTC."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.api.defaults import Scale
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.serving import ScaleSchedule
from shardwright.autoscaler.schedule import bounds_at, check, last_fired

WORK = {"cron": "0 8 * * 1-5", "minReplicas": 4}
NIGHT = {"cron": "0 20 * * *", "maxReplicas": 2}
MONDAY = datetime(2026, 11, 30, tzinfo=UTC)


def scale(low=1, high=8):
    return Scale(mode="Auto", min_replicas=low, max_replicas=high, planned_replicas=low)


def made(*raw):
    return [ScaleSchedule.model_validate(one) for one in raw]


@pytest.mark.parametrize(
    ("hour", "minute", "expected"),
    [(0, 0, (1, 2)), (7, 59, (1, 2)), (8, 0, (4, 8)), (19, 59, (4, 8)), (20, 0, (1, 2)), (23, 59, (1, 2))],
)
def test_the_one_that_fired_last_holds(hour, minute, expected):
    now = MONDAY + timedelta(hours=hour, minutes=minute, seconds=30)
    assert bounds_at(scale(), made(WORK, NIGHT), now) == expected


def test_over_the_week_end_friday_evening_holds():
    assert bounds_at(scale(), made(WORK, NIGHT), MONDAY - timedelta(hours=10)) == (1, 2)
    assert bounds_at(scale(), made(WORK), MONDAY - timedelta(days=1)) == (4, 8)


def test_without_schedules_and_with_one_that_cannot_be_read_the_bounds_are_those_of_scaling():
    assert bounds_at(scale(2, None), None, MONDAY) == (2, None)
    assert bounds_at(scale(), made({"cron": "61 * * * *", "minReplicas": 4}), MONDAY) == (1, 8)
    assert last_fired("0 0 30 2 *", MONDAY) is None


def test_of_two_at_once_the_later_in_the_list_holds_and_no_minimum_is_above_the_maximum():
    both = made({"cron": "0 8 * * *", "minReplicas": 2}, {"cron": "0 8 * * *", "minReplicas": 5})
    assert bounds_at(scale(), both, MONDAY) == (5, 8)
    assert bounds_at(scale(3, 4), made({"cron": "0 8 * * *", "minReplicas": 9}), MONDAY) == (4, 4)


CRONS = st.sampled_from(["* * * * *", "0 8 * * *", "*/7 3 * * 2", "0 0 1 * *", "59 23 31 12 *", "0 0 29 2 *"])


@given(CRONS, st.integers(0, 4 * 366 * 86_400))
def test_what_fired_last_is_not_later_than_now_and_holds_until_it_fires_again(cron, seconds):
    now = MONDAY + timedelta(seconds=seconds)
    at = last_fired(cron, now)
    assert at is not None
    assert at <= now
    assert last_fired(cron, at) == at
    assert last_fired(cron, at + (now - at) / 2) == at


def told(*schedules, **scaling):
    spec = {
        "model": {"id": "m"},
        "pool": {"maxGPUs": 8},
        "scaling": {"schedules": list(schedules), **scaling},
    }
    return {p.field: p.message for p in check(LLMServiceSpec.model_validate(spec))}


def test_what_has_no_effect_is_told():
    assert told(WORK, NIGHT) == {}
    assert check(LLMServiceSpec.model_validate({"model": {"id": "m"}, "pool": {"maxGPUs": 8}})) == ()
    (message,) = told({"cron": "0 25 * * *", "minReplicas": 1}).values()
    assert message.startswith("Bad hour, so that it never holds")
    assert set(told({"cron": "0 8 * * *", "minReplicas": 9}, maxReplicas=4)) == {
        "spec.scaling.schedules[0].minReplicas"
    }

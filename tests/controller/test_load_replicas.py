"""How many replicas run: what the stated load takes by the figures frozen in the plan, else what scaling says."""

import json
from dataclasses import replace

import pytest

from planner.plan_support import H100, LLAMA_8B, decide, on_record, shapes
from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.planner.load import Sized, replicas_of, size_kept
from shardwright.planner.types import Plan
from shardwright.render.revision import read_revision

SLO = {"ttft": {"percentile": 95, "milliseconds": 1000}, "tpot": {"percentile": 95, "milliseconds": 50}}


def spec(**blocks):
    return LLMServiceSpec.model_validate({"model": {"id": LLAMA_8B}, "pool": {"maxGPUs": 8}, **blocks})


def made(**blocks):
    decision = decide(LLAMA_8B, shapes((H100, 8)), pool={"maxGPUs": 8}, **blocks)
    assert isinstance(decision, Plan)
    return decision


def stored(plan):
    return json.loads(json.dumps(on_record(plan, "abcd1234")))


def older(data):
    """As a version wrote it that predicted no latency."""
    plan = json.loads(data["plan"])
    del plan["speed"]
    report = {k: v for k, v in data["report"].items() if not k.startswith(("ttft", "tpot", "rate", "error"))}
    for field in ("requestsPerMinutePerReplica", "runningPerReplica"):
        report.pop(field)
    return {**data, "plan": json.dumps(plan), "report": report}


def count(plan, **blocks):
    found = spec(**blocks)
    return replicas_of(plan, resolve(found), found.pool.max_gpus)


def test_a_stored_plan_runs_as_many_as_it_was_planned_with():
    plan = made(workload={"requestsPerMinute": 3000}, slo=SLO)
    again = read_revision(stored(plan)).plan
    assert again.speed == plan.speed
    assert count(again, workload={"requestsPerMinute": 3000}, slo=SLO) == plan.replicas == 5


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ({"workload": {"requestsPerMinute": 3000}}, 5),
        ({"workload": {"requestsPerMinute": 90}}, 1),
        ({"workload": {"requestsPerMinute": 90}, "scaling": {"minReplicas": 3}}, 3),
        ({"workload": {"requestsPerMinute": 3000}, "scaling": {"maxReplicas": 2}}, 2),
        ({"workload": {"requestsPerMinute": 30_000}}, 8),
        ({"workload": {"requestsPerMinute": 3000}, "pool": {"maxGPUs": 3}}, 3),
        ({"workload": {"requestsPerMinute": 3000}, "scaling": {"mode": "External"}, "replicas": 2}, 2),
        ({"workload": {"requestsPerMinute": 3000}, "scaling": {"mode": "External"}, "replicas": 0}, 0),
        ({"workload": {"concurrency": 400}}, 1),
        ({}, 1),
    ],
)
def test_the_frozen_figures_follow_the_load_within_bounds(blocks, expected):
    plan = made(workload={"requestsPerMinute": 60}, slo=SLO)
    assert count(plan, **blocks) == expected


def test_a_plan_of_an_older_version_runs_what_it_ran():
    data = older(stored(made(workload={"requestsPerMinute": 3000}, slo=SLO)))
    read = read_revision(data)
    assert read.plan.speed is None
    assert read.report.ttft_milliseconds is None
    for minimum in (1, 2):
        blocks = {"workload": {"requestsPerMinute": 3000}, "scaling": {"minReplicas": minimum}, "slo": SLO}
        assert count(read.plan, **blocks) == minimum


def test_an_unloaded_plan_follows_scaling():
    plan = made()
    assert plan.speed is not None
    assert count(replace(plan, replicas=9)) == 1


@pytest.mark.parametrize(
    ("sized", "planned", "bounds", "expected"),
    [
        ((5, 2), 2, (1, 8, 16), 5),
        ((5, 2), 3, (1, 8, 16), 5),  # a larger stated load, which the size takes already
        ((5, 2), 7, (1, 8, 16), 7),
        ((1, 4), 4, (1, 8, 16), 1),  # the same stated load as ever
        ((5, None), 7, (1, 8, 16), 5),  # another owner's size
        ((5, 2), None, (1, 8, 16), 5),
        ((5, 2), 2, (6, 8, 16), 6),
        ((5, 2), 2, (1, 3, 16), 3),
        ((5, 2), 2, (1, None, 4), 4),
        ((0, 0), 0, (0, None, 4), 1),
    ],
)
def test_the_size_with_which_a_service_goes_on(sized, planned, bounds, expected):
    low, high, most = bounds
    told = Sized(replicas=sized[0], planned=sized[1])
    assert size_kept(told, planned=planned, low=low, high=high, most=most) == expected


def test_what_was_scaled_to_zero_stays_there_whatever_load_is_stated():
    def kept(replicas, *, sleeps):
        told = Sized(replicas=replicas, planned=1)
        return size_kept(told, planned=3, low=0, high=None, most=8, sleeps=sleeps)

    assert (kept(0, sleeps=True), kept(1, sleeps=True), kept(0, sleeps=False)) == (0, 3, 3)

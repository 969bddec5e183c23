"""What is told of sizes: changes at once, circumstances when they have stood, figures never."""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardwright.api.scaling_reasons import InfeasibleTerm, ScalingRule, ScalingVeto
from shardwright.api.status import ScalingStatus
from shardwright.autoscaler.journal import (
    MOST_DECISIONS,
    REST_S,
    STANDS_S,
    Circumstances,
    Standing,
    circumstances,
    follow,
    is_news,
    settled,
    told_at,
    told_of,
    with_circumstances,
    with_decision,
)
from shardwright.autoscaler.signals import FleetSignals
from shardwright.autoscaler.state import Decision, Inputs
from shardwright.planner.signals import NO_EDGE, ZERO, Value

INPUTS = Inputs(
    size=2, demand=1.234, floor=0.5, headroom=1.0, slowness=0.98, rate_per_replica_per_s=2.5, miss_share=0.015,
    infeasible_share=0.0,
)  # fmt: skip
TOLD = ScalingStatus(mode="Auto", revision="abc", desired_replicas=2)
KNOWN = FleetSignals(
    interval_s=15.0, ready=2, starting=0, reporting=2, arrived=Value(9.0), waiting=ZERO, kv_share=ZERO
)


def decided(desired=2, rule=ScalingRule.STEADY, **other):
    return Decision(desired=desired, rule=rule, inputs=INPUTS, **other)


def test_what_a_tick_tells_besides_its_size():
    assert circumstances(decided(), KNOWN) == Circumstances()
    less = replace(KNOWN, reporting=1, late_first_tokens=NO_EDGE, slow_finished=NO_EDGE)
    term = (InfeasibleTerm.STEP_TOO_SLOW,)
    found = circumstances(decided(rule=ScalingRule.NO_PLACE, infeasible=term), less)
    assert found == ("NoPlace", ("SignalsUnknown", "TTFTNotAnEdge", "TPOTNotAnEdge"), ("StepTooSlow",))
    assert circumstances(decided(rule=ScalingRule.MINIMUM), KNOWN).limit == ""


def test_changes_are_kept_the_newest_first_and_bounded():
    told = TOLD
    for number in range(3, 12):
        change = decided(number, ScalingRule.DEMAND, vetoes=(ScalingVeto.ONE_STEP_AT_A_TIME,))
        told = with_decision(told, change, number, f"2026-11-30T08:{number:02d}:00Z")
    assert told.desired_replicas == 11
    assert len(told.decisions) == MOST_DECISIONS
    newest = told.decisions[0].model_dump(by_alias=True, exclude_none=True)
    assert (newest["fromReplicas"], newest["replicas"], newest["rule"]) == (10, 11, "Demand")
    assert newest["vetoes"] == ["OneStepAtATime"]
    assert newest["inputs"] == {
        "demand": "1.23", "floor": "0.50", "headroom": "1.00", "slowness": "0.98",
        "requestsPerMinutePerReplica": "150.00", "missedPercent": "1.50", "tooLongPercent": "0.00",
    }  # fmt: skip


def test_a_circumstance_is_told_when_it_has_stood_and_seldom():
    limited = Circumstances(limit="Maximum")
    standing = follow(Standing(), limited, 100.0)
    assert not is_news(TOLD, standing, 100.0 + STANDS_S - 1)
    assert is_news(TOLD, standing, 100.0 + STANDS_S)
    told = with_circumstances(TOLD, settled(TOLD, standing, 100.0 + STANDS_S))
    assert told_of(told) == limited
    standing = told_at(standing, 160.0)
    assert not is_news(told, standing, 1000.0), "the same again"
    standing = follow(standing, Circumstances(), 170.0)
    assert not is_news(told, standing, 160.0 + REST_S - 1)
    assert is_news(told, standing, 160.0 + REST_S)


def test_one_that_comes_and_goes_hides_no_other():
    standing, told = Standing(), TOLD
    for tick in range(20):
        limit = "Maximum" if tick % 3 == 0 else ""
        standing = follow(standing, Circumstances(limit, (), ("PromptTooLong",)), 15.0 * tick)
    assert is_news(told, standing, 300.0)
    assert settled(told, standing, 300.0) == Circumstances("", (), ("PromptTooLong",))


LIMITS = st.sampled_from(["", "Maximum", "NoPlace"])
UNKNOWN = st.sampled_from([(), ("SignalsUnknown",)])


@given(st.lists(st.tuples(LIMITS, UNKNOWN), max_size=200))
def test_circumstances_are_written_at_most_every_rest(seen):
    standing, told, writes = Standing(), TOLD, []
    for tick, (limit, unknown) in enumerate(seen):
        now = 15.0 * tick
        standing = follow(standing, Circumstances(limit, unknown), now)
        if is_news(told, standing, now):
            told = with_circumstances(told, settled(told, standing, now))
            standing = told_at(standing, now)
            writes.append(now)
    assert all(b - a >= REST_S for a, b in itertools.pairwise(writes))

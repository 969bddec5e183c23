"""What conditions and events say of sizes."""

import pytest

from diagnose.test_conditions import by_type, facts, load
from shardwright.api.status import ScalingDecision, ScalingInputs, ScalingStatus
from shardwright.diagnose.events import scaling_events
from shardwright.diagnose.facts import MetricsFacts
from shardwright.diagnose.status import status
from wording import small_after_a_stop

INPUTS = ScalingInputs(
    demand="1.94", floor="0.00", headroom="0.99", slowness="1.00", requests_per_minute_per_replica="172.28",
    missed_percent="0.00", too_long_percent="0.00",
)  # fmt: skip


def told(**other):
    return ScalingStatus(mode="Auto", revision="aaaaaaaa", desired_replicas=2, **other)


def change(minute, before, after, rule="Demand"):
    return ScalingDecision(
        time=f"2026-11-30T08:{minute:02d}:00Z", from_replicas=before, replicas=after, rule=rule, inputs=INPUTS
    )


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (None, ("Unknown", "NotMeasured")),
        (told(), ("Unknown", "NotMeasured")),
        (told(infeasible=["PromptTooLong"]), ("False", "PromptTooLong")),
        (
            told(infeasible=["StepTooSlow"], unknown=["SignalsUnknown"], limit="Maximum"),
            ("False", "StepTooSlow"),
        ),
        (told(unknown=["SignalsUnknown", "TTFTNotAnEdge"], limit="NoPlace"), ("Unknown", "SignalsUnknown")),
        (told(limit="GPUBudget", unknown=["TTFTNotAnEdge"]), ("Unknown", "SizeLimited")),
        (told(unknown=["TTFTNotAnEdge", "TPOTNotAnEdge"]), ("Unknown", "TargetNotAnEdge")),
    ],
)
def test_what_a_size_says_of_the_targets(scaling, expected):
    found = by_type(facts(scaling=scaling))["SLOMet"]
    assert (found.status, found.reason) == expected
    assert small_after_a_stop(found.message) == []
    assert not found.message.endswith("..")
    assert by_type(facts(scaling=scaling))["Ready"].status == "True", "it never changes Ready"


def test_metrics_that_cannot_be_read_come_first_and_nothing_is_said_of_what_does_not_run():
    scaling = told(infeasible=["PromptTooLong"])
    away = MetricsFacts(failure="Prometheus cannot be reached")
    assert by_type(facts(scaling=scaling, metrics=away))["SLOMet"].reason == "MetricsUnavailable"
    assert by_type(facts(scaling=scaling, workloads=(load(0, pods=0),)))["SLOMet"].reason == "NotMeasured"


def test_the_status_shows_it_as_it_is():
    shown = status(facts(scaling=told(decisions=[change(1, 1, 2)])))["scaling"]
    assert (shown["mode"], shown["desiredReplicas"]) == ("Auto", 2)
    assert shown["decisions"][0]["inputs"]["demand"] == "1.94"
    assert "scaling" not in status(facts())


def test_each_change_of_size_is_one_event_the_oldest_first():
    before = told(decisions=[change(1, 1, 2)])
    after = told(decisions=[change(3, 4, 3, "RecentPeak"), change(2, 2, 4), change(1, 1, 2)])
    assert [(e.reason, e.action, e.type) for e in scaling_events(before, after)] == [
        ("ScaledUp", "Scale", "Normal"),
        ("ScaledDown", "Scale", "Normal"),
    ]
    zero = told(decisions=[change(5, 0, 1, "Woken"), change(4, 1, 0, "Idle"), *(after.decisions or ())])
    assert [e.reason for e in scaling_events(after, zero)] == ["ScaledToZero", "Woken"]
    assert scaling_events(before, after)[0].message.startswith("2 to 4 replicas: Demand (demand 1.94, ")
    assert scaling_events(after, after) == scaling_events(None, None) == scaling_events(after, None) == ()
    assert len(scaling_events(None, after)) == 3

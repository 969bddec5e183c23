"""Conditions, status and events: total, stable, and never Ready over a dead engine."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from render.planbuilder import plan
from shardwright.api.llmservice import LLMServiceStatus
from shardwright.api.problems import Problem
from shardwright.api.reasons import ConditionType, Reason
from shardwright.api.status import Condition, ProposalStatus
from shardwright.diagnose.conditions import conditions
from shardwright.diagnose.events import events
from shardwright.diagnose.facts import (
    FetchFacts,
    ForeignEdit,
    Holder,
    PlacementFacts,
    PodTrouble,
    RouterFacts,
    ServiceFacts,
    WaitingFacts,
    WorkloadFacts,
)
from shardwright.diagnose.status import for_replicas, status
from shardwright.diagnose.trouble import over_quota
from shardwright.planner.report import plan_status
from shardwright.planner.types import NoPlan
from wording import small_after_a_stop

NOW = "2026-11-29T12:00:00Z"
LATER = "2026-11-29T13:00:00Z"
PLAN = plan()
REPORT = plan_status(PLAN, "aaaaaaaa")
NO_PLAN = NoPlan(
    reason=Reason.DOES_NOT_FIT, message="140 GiB of weights, 96 GiB of GPU memory: 2 GPUs short", candidates=(), inputs_digest="x"
)  # fmt: skip


def load(
    ready: int, desired: int = 2, pods: int | None = None, revision: str = "aaaaaaaa", **more: Any
) -> WorkloadFacts:
    return WorkloadFacts(
        name=f"chat-{revision}",
        revision=revision,
        summary="H100 TP1 ×2",
        desired=desired,
        pods=desired if pods is None else pods,
        ready=ready,
        **more,
    )


def facts(**changes: Any) -> ServiceFacts:
    """Two of two replicas answer."""
    base: dict[str, Any] = {
        "namespace": "team-a",
        "name": "chat",
        "generation": 3,
        "now": NOW,
        "decision": PLAN,
        "plan": REPORT,
        "target_revision": "aaaaaaaa",
        "needed_replicas": 2,
        "desired_replicas": 2,
        "placement": PlacementFacts(wanted=2, granted=2, gpus_per_replica=1),
        "workloads": (load(2),),
    }
    return ServiceFacts(**(base | changes))


def waits(**more: Any) -> WaitingFacts:
    """A plan with a GPU more waits for approval."""
    changes = more.pop("changes", ["TP1→TP2", "+2 GPUs", "pods restart"])
    proposal = ProposalStatus(revision="bbbbbbbb", summary="H100 TP2 ×2", replicas=2, gpus=4, changes=changes)
    return WaitingFacts(**({"proposal": proposal, "in_force": "aaaaaaaa", "manual": True} | more))


def by_type(given: ServiceFacts) -> dict[str, Condition]:
    return {condition.type: condition for condition in conditions(given)}


def summary(given: ServiceFacts) -> dict[str, str]:
    return {kind: f"{c.status}/{c.reason}" for kind, c in by_type(given).items()}


def test_settled_service() -> None:
    assert summary(facts()) == {
        "Accepted": "True/Valid",
        "Planned": "True/Planned",
        "Placed": "True/Placed",
        "Available": "True/Serving",
        "Ready": "True/Serving",
        "SLOMet": "Unknown/NotMeasured",
        "Degraded": "False/Healthy",
        "Reconciling": "False/Settled",
        "Stalled": "False/Settled",
    }


def trouble(reason: str, message: str = "", **more: Any) -> tuple[WorkloadFacts, ...]:
    return (load(0, troubles=(PodTrouble(reason=reason, message=message, **more),)),)


CRASH = "CrashLoopBackOff"
OVER = (
    'pods "chat-1-{}" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: '
    "requests.nvidia.com/gpu={}, limited: requests.nvidia.com/gpu=4"
)


def added(field: str) -> ForeignEdit:
    return ForeignEdit(child="Deployment/x", field=field, manager="kubectl-edit")


FETCH = FetchFacts(job="chat-fetch-1a2b3c4d", claim="models", minutes=25, since="2026-11-29T12:00:00Z")
ASLEEP: dict[str, Any] = {
    "asleep": True, "needed_replicas": 0, "desired_replicas": 0, "workloads": (load(0, desired=0),),
    "placement": PlacementFacts(wanted=0, granted=0, gpus_per_replica=1),
    "router": RouterFacts(desired=2, ready=1, in_front=True),
}  # fmt: skip
SITUATIONS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("nothing observed yet", {"decision": None, "plan": None, "placement": None, "workloads": ()},
     {"Planned": "Unknown/NotObserved", "Available": "False/NotObserved", "Reconciling": "True/NotObserved"}),
    ("nothing fits", {"decision": NO_PLAN, "plan": None, "placement": None, "workloads": ()},
     {"Planned": "False/DoesNotFit", "Ready": "False/DoesNotFit", "Stalled": "True/WaitsForPerson", "Reconciling": "False/Settled"}),
    ("a new spec does not fit, the old one serves", {"decision": NO_PLAN},
     {"Planned": "False/DoesNotFit", "Available": "True/Serving", "Ready": "False/DoesNotFit", "Stalled": "True/WaitsForPerson"}),
    ("refused spec, the old one serves", {"problems": (Problem(reason=Reason.ENGINE_ARGS_REFUSED, message="use x"),)},
     {"Accepted": "False/EngineArgsRefused", "Planned": "False/NotPlanned", "Available": "True/Serving", "Ready": "False/EngineArgsRefused"}),
    ("a child's name is taken", {"child_conflicts": ("Service/chat",)},
     {"Accepted": "False/ChildNameTaken", "Stalled": "True/WaitsForPerson"}),
    ("no room", {"placement": PlacementFacts(wanted=2, granted=0, gpus_per_replica=4), "workloads": (load(0, desired=0),)},
     {"Placed": "False/NoRoom", "Available": "False/NoRoom", "Ready": "False/NoRoom", "Reconciling": "True/NoRoom", "Stalled": "False/Settled"}),
    ("room for one of two", {"placement": PlacementFacts(wanted=2, granted=1, gpus_per_replica=4), "workloads": (load(1, desired=1),)},
     {"Placed": "False/PartiallyPlaced", "Available": "True/Serving", "Ready": "False/PartiallyPlaced"}),
    ("loading", {"workloads": (load(0),)},
     {"Available": "False/Starting", "Ready": "False/Starting", "Reconciling": "True/Starting", "Degraded": "False/Healthy"}),
    ("pods not there yet", {"workloads": (load(0, pods=0),)}, {"Available": "False/Starting"}),
    ("one of two answers", {"workloads": (load(1),)},
     {"Available": "True/Serving", "Ready": "False/NotEnoughReplicas"}),
    ("one of four answers", {"needed_replicas": 4, "desired_replicas": 4, "workloads": (load(1, desired=4),)},
     {"Available": "False/NotEnoughReplicas"}),
    ("the only engine died", {"needed_replicas": 1, "desired_replicas": 1, "workloads": trouble(CRASH, last_exit="Error", exit_code=1)},
     {"Available": "False/CrashLoop", "Ready": "False/CrashLoop", "Degraded": "True/CrashLoop", "Stalled": "True/WaitsForPerson"}),
    ("rolling out", {"workloads": (load(2), load(1, desired=1, revision="bbbbbbbb"))},
     {"Available": "True/Serving", "Ready": "False/RollingOut", "Reconciling": "True/RollingOut"}),
    ("scaled to zero", {"needed_replicas": 0, "desired_replicas": 0, "workloads": (load(0, desired=0),),
                        "placement": PlacementFacts(wanted=0, granted=0, gpus_per_replica=1)},
     {"Available": "False/ScaledToZero", "Ready": "False/ScaledToZero", "Reconciling": "False/Settled", "Stalled": "False/Settled"}),
    ("asleep", ASLEEP, {"Available": "True/ScaledToZero", "Ready": "True/ScaledToZero", "Placed": "True/Placed",
                        "Reconciling": "False/Settled", "Stalled": "False/Settled", "Degraded": "False/Healthy"}),
    ("going to sleep, the engine still answers", ASLEEP | {"workloads": (load(1),)}, {"Ready": "True/ScaledToZero"}),
    ("asleep, and no router answers", ASLEEP | {"router": RouterFacts(desired=2, ready=0, in_front=True)},
     {"Available": "False/RouterUnavailable", "Ready": "False/RouterUnavailable", "Reconciling": "True/RouterUnavailable"}),
    ("asleep, and the Service selects engines", ASLEEP | {"router": RouterFacts(desired=2, ready=2, in_front=False)},
     {"Available": "False/RouterUnavailable", "Ready": "False/RouterUnavailable"}),
    ("asleep, and a new spec does not fit", ASLEEP | {"decision": NO_PLAN},
     {"Available": "True/ScaledToZero", "Ready": "False/DoesNotFit", "Stalled": "True/WaitsForPerson"}),
    ("image", {"workloads": trouble("ImagePullBackOff")}, {"Available": "False/ImagePull", "Degraded": "True/ImagePull"}),
    ("host memory", {"workloads": trouble(CRASH, last_exit="OOMKilled", exit_code=137)}, {"Degraded": "True/OutOfMemory"}),
    ("GPU memory", {"workloads": trouble(CRASH, "torch.OutOfMemoryError: CUDA out of memory. Tried", last_exit="Error")},
     {"Degraded": "True/OutOfMemory"}),
    ("gated model", {"workloads": trouble(CRASH, "GatedRepoError: 401 Client Error", last_exit="Error")},
     {"Degraded": "True/HubUnauthorized"}),
    ("gated model, as transformers says it", {"workloads": trouble(CRASH, "OSError: You are trying to access a gated repo.", last_exit="Error")},
     {"Degraded": "True/HubUnauthorized"}),
    ("no such revision", {"workloads": trouble(CRASH, "RevisionNotFoundError: 404 Client Error.", last_exit="Error")},
     {"Degraded": "True/ModelNotFound", "Stalled": "True/WaitsForPerson"}),
    ("the hub fails", {"workloads": trouble(CRASH, "HTTPError: 502 Server Error: Bad Gateway for url: https://hub/x", last_exit="Error")},
     {"Degraded": "True/HubUnavailable", "Reconciling": "True/HubUnavailable", "Stalled": "False/Settled"}),
    ("another server fails", {"workloads": trouble(CRASH, "ConnectionError: could not reach the store", last_exit="Error")},
     {"Degraded": "True/CrashLoop"}),
    ("an emptied cache", {"workloads": trouble(CRASH, "Cannot find any model weights with `/cache/huggingface/shardwright/a--b--main`", last_exit="Error")},
     {"Degraded": "True/WeightsMissing", "Stalled": "False/Settled"}),
    ("an engine that asks for another repository", {"workloads": trouble(CRASH, "Cannot reach https://hub/api/models/a/draft: offline mode is enabled.", last_exit="Error")},
     {"Degraded": "True/CrashLoop"}),
    ("a model that is no model", {"workloads": trouble(CRASH, "Unrecognized model in /cache/huggingface/shardwright/a--b--main.", last_exit="Error")},
     {"Degraded": "True/CrashLoop"}),
    ("fetching", {"workloads": (load(0, pods=0, desired=0),), "fetch": FETCH},
     {"Available": "False/Fetching", "Ready": "False/Fetching", "Reconciling": "True/Fetching", "Degraded": "False/Healthy"}),
    ("fetching for the next revision", {"workloads": (load(2),), "fetch": FETCH},
     {"Available": "True/Serving", "Ready": "False/Fetching", "Degraded": "False/Healthy", "Stalled": "False/Settled"}),
    ("a fetch that gave up", {"workloads": (load(2),), "fetch": replace(FETCH, ended="BackoffLimitExceeded")},
     {"Available": "True/Serving", "Ready": "False/FetchFailed", "Degraded": "True/FetchFailed", "Stalled": "False/Settled"}),
    ("a fetch and a worse trouble", {"workloads": trouble(CRASH, last_exit="OOMKilled", exit_code=137), "fetch": replace(FETCH, ended="Failed")},
     {"Degraded": "True/OutOfMemory"}),
    ("missing secret", {"workloads": trouble("CreateContainerConfigError", 'secret "hf" not found')},
     {"Degraded": "True/PodConfig", "Stalled": "True/WaitsForPerson"}),
    ("unschedulable", {"workloads": trouble("Unschedulable", "0/9 nodes are available: 9 Insufficient nvidia.com/gpu.")},
     {"Placed": "False/Unschedulable", "Available": "False/Unschedulable", "Reconciling": "True/Unschedulable"}),
    ("foreign autoscaler", {"foreign_autoscalers": ("HorizontalPodAutoscaler/x",)},
     {"Degraded": "True/ForeignAutoscaler", "Ready": "True/Serving"}),
    ("foreign edit", {"foreign_edits": (added("spec.paused"),)}, {"Degraded": "True/ForeignEdit", "Ready": "True/Serving"}),
    ("a budget is refused", {"child_refusals": ("the API server refuses PodDisruptionBudget/chat",)},
     {"Degraded": "True/ChildRefused", "Ready": "True/Serving", "Accepted": "True/Valid"}),
    ("a budget is refused while it loads", {"child_refusals": ("no budget",), "workloads": (load(0),)},
     {"Degraded": "True/ChildRefused", "Available": "False/Starting", "Stalled": "False/Settled"}),
    ("too slow", {"workloads": (load(0, deadline_exceeded=True),)}, {"Degraded": "True/StartTooSlow", "Available": "False/StartTooSlow"}),
    ("pods over quota", {"workloads": (load(0, pods=0, create_failure=OVER.format("x7k2p", 4)),)},
     {"Degraded": "True/QuotaExceeded", "Ready": "False/QuotaExceeded", "Stalled": "True/WaitsForPerson"}),
    ("pods against policy", {"workloads": (load(0, pods=0, create_failure='pods "a" is forbidden: violates PodSecurity "restricted:latest": x'),)},
     {"Degraded": "True/PodsRefused", "Available": "False/PodsRefused"}),
    ("clamped", {"decision": replace(PLAN, context_clamped_from=131072)}, {"Planned": "True/ContextClamped"}),
    ("not covered", {"problems": (Problem(reason=Reason.PLAN_NOT_COVERED, message="m", blocking=False),)},
     {"Planned": "True/PlanNotCovered", "Accepted": "True/Valid", "Ready": "True/Serving"}),
    ("not implemented", {"problems": (Problem(reason=Reason.NOT_IMPLEMENTED, message="m", blocking=False),)},
     {"Accepted": "True/NotImplemented", "Ready": "True/Serving"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "expected"), SITUATIONS, ids=[name for name, _, _ in SITUATIONS])
def test_situation(name: str, changes: dict[str, Any], expected: dict[str, str]) -> None:
    found = summary(facts(**changes))
    assert {kind: found[kind] for kind in expected} == expected
    for condition in by_type(facts(**changes)).values():
        assert small_after_a_stop(condition.message) == [], condition.message


def test_no_room_names_who_holds_it() -> None:
    holders = tuple(Holder(name=f"team-b/s{i}", gpus=8 - i) for i in range(5))
    place = PlacementFacts(wanted=2, granted=0, gpus_per_replica=4, holders=holders)
    message = by_type(facts(placement=place, workloads=()))["Placed"].message
    assert "4 GPUs on one node" in message
    assert "team-b/s0 (8 GPUs)" in message
    assert "and others" in message


def test_a_quotas_message_does_not_flicker() -> None:
    texts = (OVER.format("x7k2p", 3), OVER.format("b9q4z", 4))
    messages = {by_type(facts(workloads=(load(0, create_failure=t),)))["Degraded"].message for t in texts}
    assert len(messages) == 1
    assert "gpus" in messages.pop()


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("spec.paused", "rollout resume"),
        ("spec.template.spec.hostAliases", "spec.podTemplate"),
        ("spec.ports[81]", "kubectl edit"),
    ],
)
def test_what_somebody_added_is_named_with_who_and_what_to_do(field: str, words: str) -> None:
    message = by_type(facts(foreign_edits=(added(field),)))["Degraded"].message
    assert f"Deployment/x {field} by kubectl-edit" in message
    assert words in message
    assert ("rollout resume" in message) == (field == "spec.paused")


def test_a_quota_is_read_alike_whatever_it_is_that_has_no_room() -> None:
    child = 'deployments.apps "chat" is forbidden: exceeded quota: few, requested: count/deployments.apps=1'
    assert over_quota(child) == over_quota(f"{child}, used: count/deployments.apps=4, limited: 4")
    assert over_quota(child) == ("few", "count/deployments.apps=1")
    assert over_quota(OVER.format("a", 1)) == ("gpus", "requests.nvidia.com/gpu=1")
    assert over_quota('pods "a" is forbidden: exceeded the limit') is None


def test_scheduler_message_does_not_flicker() -> None:
    now = "3 Insufficient nvidia.com/gpu, 9 node(s) didn't match Pod's node affinity/selector"
    later = "10 node(s) didn't match Pod's node affinity/selector, 3 Insufficient nvidia.com/gpu"
    tail = " preemption: 0/12 nodes are available: 3 No preemption victims found."
    texts = [f"0/12 nodes are available: {now}.{tail}", f"0/13 nodes are available: {later}."]
    messages = {by_type(facts(workloads=trouble("Unschedulable", text)))["Placed"].message for text in texts}
    (message,) = messages
    assert "Insufficient nvidia.com/gpu" in message


def test_transition_time_is_kept_while_the_status_stays() -> None:
    first = conditions(facts())
    again = conditions(facts(now=LATER, generation=4, previous=first))
    assert {c.last_transition_time for c in again} == {NOW}
    assert {c.observed_generation for c in again} == {4}
    broken = {c.type: c for c in conditions(facts(now=LATER, previous=first, workloads=(load(0),)))}
    assert broken["Ready"].last_transition_time == LATER
    assert broken["Planned"].last_transition_time == NOW


def test_events_tell_each_transition_once() -> None:
    start = conditions(facts(decision=None, plan=None, placement=None, workloads=()))
    loading = conditions(facts(workloads=(load(0),)))
    serving = conditions(facts())
    dead = conditions(facts(workloads=trouble(CRASH, last_exit="Error")))
    assert events((), start) == tuple(e for e in events((), start) if e.message.startswith("Accepted=True"))
    assert [(e.type, e.message.split(":")[0]) for e in events(start, loading)] == [
        ("Normal", "Planned=True"), ("Normal", "Placed=True"),
    ]  # fmt: skip
    assert [(e.type, e.message.split(":")[0]) for e in events(loading, serving)] == [
        ("Normal", "Available=True"), ("Normal", "Ready=True"),
    ]  # fmt: skip
    assert [(e.type, e.reason) for e in events(serving, dead)] == [("Warning", "CrashLoop")] * 3
    assert events(dead, dead) == ()
    other = conditions(facts(decision=replace(PLAN, binding_constraint="another")))
    assert [e.reason for e in events(serving, other)] == ["Planned"]


def test_more_replicas_asked_for_are_no_warning_and_a_lost_one_is() -> None:
    serving = conditions(facts(desired_replicas=2, workloads=(load(2, desired=2),)))
    lost = conditions(facts(desired_replicas=2, workloads=(load(1, desired=2),)))
    asked = conditions(facts(desired_replicas=3, generation=4, workloads=(load(2, desired=3),)))
    assert [(e.type, e.reason) for e in events(serving, lost)] == [("Warning", "NotEnoughReplicas")]
    assert [(e.type, e.reason) for e in events(serving, asked)] == [("Normal", "NotEnoughReplicas")]


def test_status_is_whole_and_reads_back() -> None:
    report = status(
        facts(desired_replicas=3, workloads=(load(2, desired=3), load(0, desired=0, revision="cccccccc")))
    )
    assert report["endpoint"] == "http://chat.team-a.svc:80/v1"
    assert report["selector"] == "shardwright.dev/role=engine,shardwright.dev/service=chat"
    assert (report["replicas"], report["readyReplicas"], report["readySummary"]) == (3, 2, "2/3")
    assert [r["hash"] for r in report["revisions"]] == ["aaaaaaaa"]
    assert report["plan"]["summary"] == "H100 TP1 ×3"
    assert report["plan"]["pricePerHour"] == "7.50"
    assert report["plan"]["weightsGiB"] == "14.96"
    assert LLMServiceStatus.model_validate(report).observed_generation == 3
    assert for_replicas(REPORT, REPORT.replicas) is REPORT


@pytest.mark.parametrize("in_force", ["aaaaaaaa", ""])
def test_a_plan_that_waits_is_told_with_what_changes_and_how_to_approve_it(in_force: str) -> None:
    runs = facts(waiting=waits(in_force=in_force))
    nothing = facts(
        waiting=waits(in_force=in_force),
        plan=None,
        target_revision="",
        placement=None,
        workloads=(),
        desired_replicas=0,
    )
    found = by_type(runs if in_force else nothing)
    message = found["Ready"].message
    assert message == found["Planned"].message == found["Stalled"].message
    assert message == (
        "Revision bbbbbbbb (H100 TP2 ×2: TP1→TP2, +2 GPUs, pods restart) waits for approval; "
        + ("revision aaaaaaaa stays in force" if in_force else "nothing runs before")
        + ". To approve it: shardwright approve chat -n team-a --revision bbbbbbbb, or write "
        'spec.approvedRevision: "bbbbbbbb"'
    )
    assert (found["Ready"].status, found["Ready"].reason) == ("False", "WaitsForApproval")
    assert found["Available"].status == ("True" if in_force else "False")
    assert status(runs)["proposal"] == {
        "revision": "bbbbbbbb", "summary": "H100 TP2 ×2", "replicas": 2, "gpus": 4,
        "changes": ["TP1→TP2", "+2 GPUs", "pods restart"],
    }  # fmt: skip


def test_a_pinned_revision_is_ready_and_says_what_waits() -> None:
    given = facts(waiting=waits(manual=False))
    assert summary(given) | {"Planned": "", "Ready": ""} == summary(facts()) | {"Planned": "", "Ready": ""}
    found = by_type(given)
    assert (found["Ready"].status, found["Ready"].reason) == ("True", "RevisionPinned")
    assert "leads to revision bbbbbbbb" in found["Planned"].message
    assert "shardwright approve chat -n team-a --clear" in found["Planned"].message
    assert by_type(facts(waiting=waits(manual=False), workloads=(load(1),)))["Ready"].status == "False"


@pytest.mark.parametrize("manual", [True, False])
def test_how_to_go_on_is_never_cut_off(manual: bool) -> None:
    message = by_type(facts(waiting=waits(manual=manual, changes=["x" * 200] * 32)))["Planned"].message
    assert "26 more in status.proposal.changes" in message
    assert message.endswith('write spec.approvedRevision: "bbbbbbbb"')


REASONS = (
    "CrashLoopBackOff",
    "Error",
    "ImagePullBackOff",
    "Unschedulable",
    "CreateContainerConfigError",
    "OOMKilled",
    "Weird",
    "ContainerCreating",
    "",
)
TROUBLES = st.builds(
    PodTrouble,
    reason=st.sampled_from(REASONS),
    message=st.one_of(st.text(max_size=40), st.sampled_from(["CUDA out of memory", "401 Client Error", "0/3 nodes are available: 3 x."])),
    pods=st.integers(0, 3),
    last_exit=st.sampled_from(["", "OOMKilled", "Error"]),
    exit_code=st.none() | st.integers(0, 255),
)  # fmt: skip
LOADS = st.builds(
    load,
    ready=st.integers(0, 4),
    desired=st.integers(0, 4),
    pods=st.integers(0, 5),
    revision=st.sampled_from(["aaaaaaaa", "bbbbbbbb", "cccccccc"]),
    deadline_exceeded=st.booleans(),
    create_failure=st.sampled_from(["", OVER.format("a", 1), "odd"]),
    troubles=st.lists(TROUBLES, max_size=2).map(tuple),
)
FACTS = st.builds(
    facts,
    problems=st.lists(
        st.builds(Problem, reason=st.sampled_from(Reason), message=st.text(min_size=1, max_size=9000), field=st.text(max_size=9), blocking=st.booleans()),
        max_size=3,
    ).map(tuple),
    child_conflicts=st.lists(st.sampled_from(["Service/chat", "ServiceAccount/chat-engine"]), max_size=2, unique=True).map(tuple),
    child_refusals=st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True).map(tuple),
    foreign_edits=st.lists(st.sampled_from(["spec.paused", "spec.ports[81]"]).map(added), max_size=2, unique=True).map(tuple),
    foreign_autoscalers=st.lists(st.just("HorizontalPodAutoscaler/x"), max_size=1).map(tuple),
    decision=st.sampled_from([None, PLAN, NO_PLAN, replace(PLAN, context_clamped_from=99999)]),
    plan=st.sampled_from([None, REPORT]),
    target_revision=st.sampled_from(["", "aaaaaaaa", "bbbbbbbb"]),
    asleep=st.booleans(),
    router=st.none() | st.builds(RouterFacts, desired=st.just(2), ready=st.integers(0, 2), in_front=st.booleans()),
    needed_replicas=st.integers(0, 4),
    desired_replicas=st.integers(0, 4),
    waiting=st.none() | st.builds(
        waits,
        manual=st.booleans(),
        in_force=st.sampled_from(["", "aaaaaaaa"]),
        changes=st.lists(st.text(max_size=200), min_size=1, max_size=32),
    ),
    placement=st.none() | st.builds(PlacementFacts, wanted=st.integers(0, 4), granted=st.integers(0, 4), gpus_per_replica=st.integers(1, 8)),
    workloads=st.lists(LOADS, max_size=3, unique_by=lambda w: w.revision).map(tuple),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(FACTS)
def test_any_facts_give_a_whole_true_status(given: ServiceFacts) -> None:
    found = by_type(given)
    assert list(found) == [kind.value for kind in ConditionType]
    for condition in found.values():
        assert Reason(condition.reason)
        assert 0 < len(condition.message) <= 4096
        assert condition.observed_generation == given.generation
    LLMServiceStatus.model_validate(status(given))
    holds = {kind for kind, condition in found.items() if condition.status == "True"}
    ready = sum(w.ready for w in given.workloads)
    answers = given.asleep and given.router is not None and given.router.in_front and given.router.ready
    if "Available" in holds:
        assert ready >= 1 or answers
    if "Ready" in holds:
        assert {"Accepted", "Planned", "Placed", "Available"} <= holds
        assert not holds & {"Reconciling", "Stalled"}
        if given.asleep:
            assert answers
            return
        target = next(w for w in given.workloads if w.revision == given.target_revision)
        assert target.ready >= given.desired_replicas == target.desired
        assert all(w is target or not w.pods for w in given.workloads)
    elif found["Ready"].reason != "ScaledToZero":
        assert len(holds & {"Reconciling", "Stalled"}) == 1


@settings(max_examples=150, deadline=None)
@given(FACTS, st.randoms(use_true_random=False))
def test_order_of_observation_changes_nothing_and_a_second_look_is_quiet(
    given: ServiceFacts, rng: Any
) -> None:
    shuffled = list(given.workloads)
    rng.shuffle(shuffled)
    first = conditions(given)
    assert conditions(replace(given, workloads=tuple(shuffled))) == first
    assert conditions(replace(given, previous=first, now=LATER)) == first
    assert events(first, first) == ()


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("blocking", [True, False])
def test_every_problem_is_told_in_a_condition(reason, blocking):
    problem = Problem(reason=reason, field="spec.a", message="this is wrong", blocking=blocking)
    other = Problem(
        reason=Reason.NOT_IMPLEMENTED, field="spec.b", message="that is not there", blocking=False
    )
    for problems in [(problem,), (problem, other), (other, problem)]:
        found = conditions(facts(problems=problems))
        assert any("spec.a: this is wrong" in condition.message for condition in found)
        by_type = {condition.type: condition.status for condition in found}
        assert by_type["Accepted"] == ("False" if blocking else "True")

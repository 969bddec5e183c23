"""What is decoded of an object is all that is read of it.

`data/watch_events.jsonl` are events of one service's objects as the real API server (1.36) sent them.
"""

import json
from pathlib import Path

import pytest

from shardwright.cluster import shapes
from shardwright.cluster.drift import live_digest
from shardwright.cluster.facts import child_facts, pod_trouble
from shardwright.cluster.kinds import BY_KIND, LLM_SERVICE, POD, SERVICE
from shardwright.topology.facts import is_terminal, pod_facts

EVENTS = [
    json.loads(line) for line in (Path(__file__).parent / "data/watch_events.jsonl").read_text().splitlines()
]
CHILDREN = [entry for entry in EVENTS if entry["kind"] != "Pod"]
PODS = [entry["event"]["object"] for entry in EVENTS if entry["kind"] == "Pod"]
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "2"}}
EVERYTHING = {
    "apiVersion": "v1",
    "metadata": {
        "name": "p",
        "namespace": "n",
        "resourceVersion": "7",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 165,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {
            "shardwright.dev/service": "chat",
            "shardwright.dev/serving": "true",
            "shardwright.dev/revision": "ab",
            "pod-template-hash": "5f",
        },
        "ownerReferences": [{"kind": "ReplicaSet", "name": "chat-ab-5f", "controller": True}],
    },
    "spec": {
        "nodeName": "",
        "schedulerName": "volcano",
        "terminationGracePeriodSeconds": 165,
        "initContainers": [
            {"restartPolicy": "Always", "resources": RESOURCES},
            {"resources": {"requests": {"cpu": "9"}}},
        ],
        "containers": [{"name": "a", "resources": RESOURCES}],
        "resources": {"requests": {"cpu": "12"}},
        "overhead": {"cpu": "100m"},
    },
    "status": {
        "phase": "Running",
        "nominatedNodeName": "gpu-1",
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"},
        ],
        "initContainerStatuses": [{"restartCount": 1, "state": {"terminated": {"reason": "Completed"}}}],
        "containerStatuses": [
            {
                "name": "proxy",
                "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {
                    "terminated": {
                        "reason": "OOMKilled",
                        "exitCode": 137,
                        "message": "end",
                        "finishedAt": "2026-01-01T00:00:00Z",
                    }
                },
            }
        ],
    },
}


def event(kind, obj, sort="MODIFIED"):
    return shapes.event(kind, json.dumps({"type": sort, "object": obj}).encode())["object"]


def page(kind, *objects):
    return shapes.page(kind, json.dumps({"metadata": {"resourceVersion": "1"}, "items": objects}).encode())


UNSCHEDULED = EVERYTHING | {"status": {"phase": "Pending"}}


@pytest.mark.parametrize("pod", [EVERYTHING, UNSCHEDULED, *PODS])
def test_a_pod_reads_the_same_whole_or_decoded_in_part(pod):
    for seen in (event(POD, pod), page(POD, pod)["items"][0]):
        assert "managedFields" not in seen["metadata"]
        assert pod_facts(seen) == pod_facts(pod)
        assert pod_trouble(seen) == pod_trouble(pod)
        assert is_terminal(seen) == is_terminal(pod)


def test_everything_that_is_read_of_a_pod_is_in_the_one_that_has_all():
    facts = pod_facts(EVERYTHING)
    assert (facts.owner, facts.grace_s) == ("chat", 165)
    assert facts.ends_s > 0


@pytest.mark.parametrize("entry", CHILDREN)
def test_a_child_in_a_list_is_whole_and_in_a_watch_says_the_same_of_itself(entry):
    kind, obj = BY_KIND[entry["kind"]], entry["event"]["object"]
    listed, watched = page(kind, obj)["items"][0], event(kind, obj)
    for seen in (listed, watched, obj):
        seen["kind"] = kind.kind
    assert live_digest(listed) == live_digest(obj)
    from_list = child_facts(listed)
    # The watch follows the list: it must neither lose what is known nor see a change where there is none.
    assert child_facts(watched, from_list) == from_list
    if kind.kind == "Deployment":
        assert "template" not in watched["spec"]
        assert from_list.replicas == obj["spec"]["replicas"]


def test_a_hand_edit_is_seen_by_the_mark_alone():
    entry = next(e for e in CHILDREN if e["kind"] == "Deployment")
    kind, obj = BY_KIND["Deployment"], entry["event"]["object"]
    listed = page(kind, obj)["items"][0]
    listed["kind"] = kind.kind
    before = child_facts(listed)
    for fields in obj["metadata"]["managedFields"]:
        if fields["manager"] == "shardwright":
            del fields["fieldsV1"]["f:spec"]["f:replicas"]
    edited = event(kind, obj)
    edited["kind"] = kind.kind
    after = child_facts(edited, before)
    assert after.mark != before.mark
    assert after.digest == b""


def test_a_status_in_place_of_an_object_is_whole():
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    for kind in (POD, SERVICE, LLM_SERVICE, BY_KIND["Deployment"]):
        assert event(kind, gone, "ERROR") == gone


def test_a_value_of_an_unexpected_type_does_not_lose_the_object():
    odd = EVERYTHING | {"metadata": EVERYTHING["metadata"] | {"labels": None}}
    assert event(POD, odd) == odd
    with pytest.raises(ValueError, match="truncated"):
        shapes.event(POD, b'{"type": "ADDED", "object": {')

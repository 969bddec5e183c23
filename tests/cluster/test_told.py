"""What is known of a child, by whichever way and in whichever order it is told."""

import copy
import itertools
import json
from pathlib import Path

import pytest

from shardwright.api.llmservice import ServiceKey
from shardwright.cluster import shapes
from shardwright.cluster.facts import child_facts, written_facts
from shardwright.cluster.kinds import BY_KIND
from shardwright.cluster.store import Store
from shardwright.controller.observe import read_service

LINES = (Path(__file__).parent / "data/watch_events.jsonl").read_text().splitlines()
CHILDREN = {
    e["kind"]: e["event"]["object"] | {"kind": e["kind"]}
    for e in map(json.loads, LINES)
    if e["kind"] != "Pod"
}
DATA = CHILDREN["ControllerRevision"]["data"]


def live(kind: str, version: int = 100, **metadata) -> dict:
    obj = copy.deepcopy(CHILDREN[kind])
    obj["metadata"] |= {"resourceVersion": str(version)} | metadata
    return obj


def told(store: Store, obj: dict) -> None:
    """Let the watch tell of an object, with what it leaves out."""
    line = json.dumps({"type": "MODIFIED", "object": obj}).encode()
    store.set_child(shapes.event(BY_KIND[obj["kind"]], line)["object"] | {"kind": obj["kind"]})


def listed(store: Store, obj: dict) -> None:
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [obj]}).encode()
    [item] = shapes.page(BY_KIND[obj["kind"]], body)["items"]
    store.set_child(item | {"kind": obj["kind"]})


def wrote(store: Store, obj: dict) -> None:
    metadata = shapes.metadata(json.dumps(obj).encode())
    store.hold_child(written_facts(obj, metadata, b"what we wrote"))


WAYS = {"watch": told, "list": listed, "write": wrote}


@pytest.mark.parametrize(
    "way", [*itertools.permutations(WAYS), ("watch",), ("list",), ("write",)], ids="-".join
)
def test_a_record_is_known_whole_whoever_tells_of_it(way):
    store = Store(read_service)
    for version, name in enumerate(way, 100):
        WAYS[name](store, live("ControllerRevision", version))
        [record] = store.children.values()
        assert (record.number, record.template_digest) == (1, DATA["digest"])
        assert record.stored() == DATA


def test_a_part_of_a_record_is_no_record():
    part = {"kind": "ControllerRevision", "metadata": live("ControllerRevision")["metadata"]}
    with pytest.raises(KeyError):
        child_facts(part)


@pytest.mark.parametrize("kind", CHILDREN)
def test_what_we_said_is_not_known_of_an_object_that_only_the_watch_told_of(kind):
    store = Store(read_service)
    told(store, live(kind))
    [child] = store.children.values()
    whole = kind == "ControllerRevision"
    assert bool(child.digest) == whole
    assert child.key == ServiceKey((child.namespace, child.service))
    assert child.belongs_to(child.owner_uid)
    if kind == "Deployment":
        assert child.replicas == 1


@pytest.mark.parametrize("kind", CHILDREN)
def test_a_write_of_ours_that_we_did_not_see_is_noticed(kind):
    """One whose answer was lost, or that landed after a later one: it leaves the same fields ours."""
    store = Store(read_service)
    wrote(store, live(kind, 100))
    key = next(iter(store.children))
    told(store, live(kind, 101))
    assert store.children[key].digest != b"" or kind == "ControllerRevision"
    late = live(kind, 102)
    for entry in late["metadata"]["managedFields"]:
        entry["time"] = "2030-01-01T00:00:00Z"
    told(store, late)
    assert store.children[key].digest != b"what we wrote"


def test_replicas_that_changed_are_noticed_whatever_else_is_said():
    store = Store(read_service)
    wrote(store, live("Deployment", 100))
    scaled = live("Deployment", 101)
    scaled["spec"]["replicas"] += 1
    told(store, scaled)
    [child] = store.children.values()
    assert child.digest == b""


@pytest.mark.parametrize("changed", [False, True])
def test_an_answer_that_comes_after_a_later_event_takes_nothing_back(changed):
    store = Store(read_service)
    later = live("Service", 105, labels=live("Service")["metadata"]["labels"] | {"x": "y"})
    if changed:
        for entry in later["metadata"]["managedFields"]:
            del entry["fieldsV1"]["f:spec"]
    told(store, later)
    wrote(store, live("Service", 100))
    [child] = store.children.values()
    assert child.resource_version == "105"
    assert child.digest == (b"" if changed else b"what we wrote")


def test_an_answer_to_a_write_takes_no_trouble_away():
    store = Store(read_service)
    stuck = live("Deployment", 100)
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    stuck["status"] = {"conditions": [failure]}
    told(store, stuck)
    wrote(store, live("Deployment", 101))
    [child] = store.children.values()
    assert child.create_failure == "exceeded quota"

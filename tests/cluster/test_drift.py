"""The digest of what we own equals the digest of what we would apply, exactly while nobody changed it."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from shardwright.cluster.drift import additions, clearing, desired_digest, live_digest, made_by, mark

scalars = st.one_of(st.integers(-5, 5), st.text("abc", max_size=3), st.booleans())
names = st.text("abcdef", min_size=1, max_size=4)


def values(depth: int = 3):
    if depth == 0:
        return scalars
    inner = values(depth - 1)
    keyed = st.dictionaries(names, inner, min_size=1, max_size=3).map(
        lambda d: {k: v for k, v in d.items() if k != "name"}
    )
    listed = st.dictionaries(names, keyed, min_size=1, max_size=3).map(
        lambda items: [{"name": name} | item for name, item in items.items()]
    )
    atomic = st.lists(scalars, max_size=3)
    return st.one_of(scalars, st.dictionaries(names, inner, min_size=1, max_size=3), listed, atomic)


objects = st.dictionaries(names.filter(lambda n: n != "kind"), values(), min_size=1, max_size=3).map(
    lambda spec: {
        "apiVersion": "v1",
        "kind": "Thing",
        "metadata": {"name": "x", "namespace": "n", "labels": {"a": "b"}},
        "spec": spec,
    }
)


def is_keyed(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(i, dict) and "name" in i for i in value)


def owned(value: object) -> dict:
    """What a server records for an applied value: maps and keyed lists by field, all else as a leaf."""
    if isinstance(value, dict) and value:
        return {f"f:{k}": owned(v) for k, v in value.items()}
    if is_keyed(value):
        return {f'k:{{"name":{json.dumps(i["name"])}}}': {".": {}} | owned(i) for i in value}
    return {}


def live_of(obj: dict) -> dict:
    live = copy.deepcopy(obj)
    fields = {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": owned(obj["spec"])}
    entry = {"manager": "shardwright", "operation": "Apply", "fieldsV1": fields}
    live["metadata"] |= {"uid": "u", "resourceVersion": "7", "managedFields": [entry]}
    live["status"] = {"x": 1}
    return live


def add_defaults(value: object) -> None:
    """What a server fills in, and what other managers add."""
    if isinstance(value, dict):
        for inner in list(value.values()):
            add_defaults(inner)
        value["zzDefault"] = "d"
    elif is_keyed(value):
        for inner in value:
            add_defaults(inner)
        value.insert(0, {"name": "zzInjected", "v": 1})


@given(objects)
def test_an_applied_object_has_not_drifted(obj):
    assert live_digest(live_of(obj)) == desired_digest(obj)


@given(objects)
def test_defaults_and_what_others_add_are_not_drift(obj):
    live = live_of(obj)
    add_defaults(live["spec"])
    live["metadata"]["labels"]["theirs"] = "x"
    assert live_digest(live) == desired_digest(obj)


@given(objects, st.data())
def test_a_changed_value_is_drift(obj, data):
    live = live_of(obj)
    key = data.draw(st.sampled_from(sorted(obj["spec"])))
    live["spec"][key] = "changed"
    fields = live["metadata"]["managedFields"][0]["fieldsV1"]
    del fields["f:spec"][f"f:{key}"]  # a change takes the field away from us
    assert live_digest(live) != desired_digest(obj)


@given(objects, st.data())
def test_a_field_that_we_no_longer_want_is_drift(obj, data):
    live = live_of(obj)
    key = data.draw(st.sampled_from(sorted(obj["spec"])))
    wanted = copy.deepcopy(obj)
    del wanted["spec"][key]
    assert live_digest(live) != desired_digest(wanted)


def test_what_another_manager_or_a_subresource_owns_is_not_ours():
    live = live_of(
        {"apiVersion": "v1", "kind": "T", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"a": 1}}
    )
    entry = live["metadata"]["managedFields"][0]
    live["metadata"]["managedFields"] = [
        entry | {"subresource": "status"},
        entry | {"manager": "kubectl"},
        entry | {"operation": "Update"},
    ]
    assert live_digest(live) == live_digest({"metadata": {}})


def said(manager: str, time: int, fields: dict, **more) -> dict:
    at = f"2026-01-01T00:00:{time:02d}Z"
    return {"manager": manager, "operation": "Update", "time": at, "fieldsV1": fields} | more


def by_us(time: int, fields: dict) -> dict:
    return said("shardwright", time, fields, operation="Apply")


def test_the_mark_moves_with_every_change_of_what_we_say_and_with_no_other():
    ours = {"f:spec": {"f:a": {}, "f:b": {}}}
    first = mark({"managedFields": [by_us(1, ours)]})
    assert mark({"managedFields": [said("x", 9, {"f:spec": {"f:c": {}}}), by_us(1, ours)]}) == first
    assert mark({"managedFields": [by_us(1, {"f:spec": {"f:a": {}}})]}) != first
    assert mark({"managedFields": [by_us(2, ours)]}) != first, "a write of our own that we have not seen"
    assert mark({"managedFields": [said("shardwright", 1, ours)]}) == mark({}) == b""


LABELS = {"f:metadata": {"f:labels": {"f:a": {}}}}
OURS = LABELS | {"f:spec": {"f:ports": {}}}


@pytest.mark.parametrize(
    ("ours", "made", "others"),
    [
        (True, 5, []),
        (True, 6, []),
        (False, 4, []),
        (False, 5, [said("x", 4, LABELS)]),
        (False, 5, [said("x", 5, {"f:spec": {"f:b": {}}})]),
        (True, 5, [said("x", 5, LABELS | {"f:secrets": {}})]),
        (True, 5, [said("x", 6, {"f:spec": {"f:b": {}}})]),
        (True, 5, [said("x", 1, {"f:status": {}}, subresource="status")]),
        (True, 5, [said("shardwright", 1, OURS)]),
    ],
)
def test_who_made_an_object_is_told_by_times_and_in_one_second_by_what_is_said(ours, made, others):
    metadata = {
        "creationTimestamp": f"2026-01-01T00:00:{made:02d}Z",
        "managedFields": [*others, by_us(5, OURS)],
    }
    assert made_by(metadata) is ours


def test_an_object_of_which_we_say_nothing_is_not_ours():
    assert not made_by({"creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [said("x", 1, OURS)]})
    assert not made_by({"creationTimestamp": "2026-01-01T00:00:00Z"})


ENGINE = 'k:{"name":"engine"}'
POD = {"f:containers": {ENGINE: {".": {}, "f:image": {}}}}
DEPLOYMENT = {"f:spec": {"f:replicas": {}, "f:template": {"f:metadata": {"f:labels": {}}, "f:spec": POD}}}


@pytest.mark.parametrize(
    ("theirs", "found"),
    [
        ({"f:spec": {"f:paused": {}}}, ["spec.paused"]),
        ({"f:spec": {"f:replicas": {}}}, []),
        ({"f:spec": {"f:externalTrafficPolicy": {}}}, []),
        ({"f:metadata": {"f:annotations": {"f:a": {}}}}, []),
        ({"f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:restartedAt": {}}}}}}, []),
        (
            {"f:spec": {"f:template": {"f:spec": {"f:hostAliases": {"f:x": {}}}}}},
            ["spec.template.spec.hostAliases"],
        ),
        (
            {"f:spec": {"f:template": {"f:spec": {"f:containers": {ENGINE: {"f:env": {}, "f:image": {}}}}}}},
            ["spec.template.spec.containers[engine].env"],
        ),
        (
            {
                "f:spec": {
                    "f:template": {"f:spec": {"f:containers": {'k:{"name":"sidecar"}': {"f:image": {}}}}}
                }
            },
            ["spec.template.spec.containers[sidecar]"],
        ),
    ],
)
@pytest.mark.parametrize("raw", [False, True])
def test_what_others_added_is_named_and_what_they_merely_say_too_is_not(theirs, found, raw):
    entries = [
        said("x", 1, theirs),
        said("y", 1, {"f:spec": {"f:z": {}}}, subresource="scale"),
        by_us(1, DEPLOYMENT),
    ]
    if raw:  # as the watch gives them
        entries = [e | {"fieldsV1": Raw(json.dumps(e["fieldsV1"]).encode())} for e in entries]
    assert additions({"managedFields": entries}) == tuple((field, "x") for field in found)


def test_after_managed_fields_were_emptied_the_servers_own_defaults_are_nobodys_addition():
    entries = [said("before-first-apply", 1, {"f:spec": {"f:clusterIP": {}}}), by_us(1, OURS)]
    assert additions({"managedFields": entries}) == ()


PORTS = {"f:ports": {'k:{"port":81}': {".": {}}}}


@pytest.mark.parametrize(
    ("theirs", "places", "patch"),
    [
        ({"f:minAvailable": {}}, ("spec",), {"spec": {"minAvailable": None}}),
        ({"f:minAvailable": {}} | PORTS, ("spec.ports[1].name",), {"spec": {"ports": [{"port": 80}]}}),
        ({"f:minAvailable": {}}, ("spec.ports[1].name",), {}),
        ({"f:portsLike": {}}, ("spec.ports",), {}),
        (
            {"f:selector": {"f:matchLabels": {"f:x": {}}}},
            ("spec.selector",),
            {"spec": {"selector": {"matchLabels": {"x": None}}}},
        ),
        ({"f:maxUnavailable": {}}, ("spec",), {}),
        ({"f:minAvailable": {}}, (), {}),
    ],
)
def test_what_is_taken_out_is_what_others_say_where_it_is_invalid(theirs, places, patch):
    live = {"metadata": {"managedFields": [said("x", 1, {"f:spec": theirs, "f:other": {}}), by_us(1, OURS)]}}
    obj = {
        "metadata": {},
        "spec": {"maxUnavailable": 1, "ports": [{"port": 80}], "selector": {"matchLabels": {"a": "b"}}},
    }
    assert clearing(live, obj, places) == patch

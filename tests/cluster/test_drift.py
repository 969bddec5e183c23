"""The digest of what we own equals the digest of what we would apply, exactly while nobody changed it."""

import copy
import json

from hypothesis import given
from hypothesis import strategies as st

from shardwright.cluster.drift import desired_digest, live_digest

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

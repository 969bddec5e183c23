"""The store: what the watch tells, and the echo of our own writes, in whatever order they come."""

import pytest

from shardwright.api.names import LABEL_SERVICE
from shardwright.cluster.facts import child_facts
from shardwright.cluster.store import Store
from shardwright.controller.observe import read_service

KEY = ("Service", "team", "chat")


def child(version, uid="u1", *, service="chat"):
    return {
        "kind": "Service",
        "metadata": {
            "name": "chat", "namespace": "team", "uid": uid, "resourceVersion": str(version),
            "labels": {LABEL_SERVICE: service},
        },
        "spec": {},
    }  # fmt: skip


def echo(store, version, uid="u1"):
    """What the answer to a write of ours does."""
    store.hold_child(child_facts(child(version, uid))._replace(digest=b"ours"))


@pytest.fixture
def store():
    return Store(read_service)


def test_an_echo_is_held_until_the_watch_tells_more(store):
    echo(store, 5)
    assert store.children[KEY].digest == b"ours"
    store.set_child(child(4))
    store.set_child(child(5))
    assert store.children[KEY].digest == b"ours", "older, and the same: the watch lags"
    store.set_child(child(6))
    assert store.children[KEY].resource_version == "6"


def test_an_echo_tells_more_than_the_watch_does_of_the_same_version(store):
    store.set_child(child(5))
    echo(store, 5)
    assert store.children[KEY].digest == b"ours"


def test_an_echo_does_not_hide_what_the_watch_has_told_before_it(store):
    store.set_child(child(5))
    store.set_child(child(6, service="other"))  # somebody edits what we have just written
    echo(store, 5)
    assert store.children[KEY].resource_version == "6"
    assert not store.children_of(("team", "chat"))


def test_an_echo_does_not_bring_back_what_the_watch_has_told_to_be_gone(store):
    store.set_child(child(5))
    store.remove_child("Service", ("team", "chat"))
    echo(store, 5)
    assert KEY not in store.children
    assert not store.children_of(("team", "chat"))
    echo(store, 8, "u2")  # it is made again
    assert store.children[KEY].uid == "u2"


def test_an_echo_of_a_write_after_the_child_left_the_watch_is_held(store):
    """As when somebody takes off the label that is watched, and we put it back."""
    store.set_child(child(5))
    store.remove_child("Service", ("team", "chat"), "7")
    echo(store, 6)
    echo(store, 7)
    assert KEY not in store.children
    echo(store, 8)
    assert store.children[KEY].digest == b"ours"


def test_an_echo_of_a_former_object_does_not_hide_the_present_one(store):
    store.set_child(child(5, "u1"))
    store.remove_child("Service", ("team", "chat"))
    store.set_child(child(7, "u2"))
    echo(store, 5, "u1")
    assert store.children[KEY].uid == "u2"


def test_what_a_list_missed_is_taken_when_the_watch_tells_it(store):
    echo(store, 5)
    store.remove_child("Service", ("team", "chat"))  # the list was read before the write
    store.set_child(child(5))
    assert KEY in store.children
    echo(store, 9)
    assert store.children[KEY].resource_version == "9"

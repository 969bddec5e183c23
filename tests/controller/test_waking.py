"""What the answers of activators mean: who waits, who was there, and what is not known."""

from shardwright.controller.waking import calls
from shardwright.metrics.held import Held, read


def test_calls():
    one = Held(1, 5)
    idle = Held(0, 5)
    assert calls({}, {"a": one})
    assert not calls({}, {"a": idle}), "of a time that is not known"
    assert not calls({"a": 5}, {"a": idle})
    assert calls({"a": 4}, {"a": idle, "b": None})
    assert calls({"a": 9}, {"a": idle}), "its process is new, and some came"
    assert not calls({"a": 9}, {"a": Held(0, 0)})
    assert not calls({"a": 9}, {"a": None})


def test_what_an_activator_says_is_read_or_not_known():
    assert read(b'{"waiting": 1, "arrived": 2, "more": 3}') == Held(1, 2)
    for text in (
        b"",
        b"[]",
        b'{"waiting": 1}',
        b'{"waiting": -1, "arrived": 2}',
        b'{"waiting": "1", "arrived": 2}',
    ):
        assert read(text) is None

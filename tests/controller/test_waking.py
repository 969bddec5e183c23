"""What the answers of activators mean: who waits, who was there, and what is not known."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest

from shardwright.api.llmservice import ServiceKey
from shardwright.controller.parts import clock
from shardwright.controller.waking import ASK_S, Waker, calls
from shardwright.metrics.held import TIMEOUT_S, Held, read


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


@pytest.mark.looptime
@pytest.mark.asyncio
async def test_a_silent_router_delays_the_others_by_no_more_than_its_time():
    pods = {name: SimpleNamespace(name=name, address=name) for name in ("silent", "speaks")}
    at = []

    async def ask(address):
        if address == "silent":
            await asyncio.sleep(TIMEOUT_S)
            return None
        at.append(clock())
        return Held(0, 0)

    store = SimpleNamespace(routers_of=lambda _key: pods)
    waker = Waker(store, ask, clock, asleep=lambda: [ServiceKey(("team", "chat"))])
    task = asyncio.create_task(waker.run())
    await asyncio.sleep(60)
    task.cancel()
    assert max(later - before for before, later in pairwise(at)) <= ASK_S + TIMEOUT_S + 0.01

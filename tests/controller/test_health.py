"""Liveness: what makes the process better restarted, and what does not."""

import asyncio
import urllib.error
import urllib.request

import pytest

from harness import nodes
from patience import PATIENCE_S
from shardwright.cluster.errors import Transient
from shardwright.cluster.kinds import NODE, POD
from shardwright.cluster.store import Store
from shardwright.cluster.watch import HEARTBEAT_LIMIT_S, INACTIVITY_S, Watch
from shardwright.controller import health as module
from shardwright.controller.health import CANARY_S, FIRST_CANARY_S, QUEUE_LIMIT_S, Canary, Health, serve
from shardwright.controller.observe import read_service
from shardwright.controller.queue import WorkQueue
from shardwright.controller.sources import _remove_node
from shardwright.metrics.exposition import Exposition


class Clock:
    """A fake clock."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Listing:
    """A fake API server that lists nodes."""

    def __init__(self):
        self.nodes = {}
        self.error = None
        self.looks = 0

    async def versions(self, _kind, _scope):
        self.looks += 1
        if self.error:
            raise self.error
        return {("", name): version for name, version in self.nodes.items()}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def health(clock):
    return Health(clock)


@pytest.fixture
def store():
    return Store(read_service)


@pytest.fixture
def listing():
    return Listing()


@pytest.fixture
def canary(listing, store, clock):
    def remove(key):
        _remove_node(store, key)

    return Canary(listing, NODE, (None,), store.node_versions, remove, clock)


def show(store, name, version):
    """What kopf does when it sees a node."""
    node = nodes.gpu_node(name, "NVIDIA-L40S")
    node["metadata"]["resourceVersion"] = version
    store.set_node(node)


def test_a_watch_is_dead_once_it_was_silent_for_longer_than_the_limit(health, clock):
    watch = Watch(None, POD, None, clock=clock)
    health.watches.append(watch)
    clock.now += HEARTBEAT_LIMIT_S
    assert health.faults() == []
    clock.now += 1
    assert health.faults() == [f"watch of pods has been silent for {HEARTBEAT_LIMIT_S + 1:.0f} s"]
    watch.beat_at = clock.now
    assert health.faults() == []


@pytest.mark.looptime
async def test_an_api_server_that_is_away_for_an_hour_makes_no_watch_dead():
    class Away:
        async def list_pages(self, *_args, **_more):
            raise Transient("no answer")
            yield

    loop = asyncio.get_running_loop()
    health = Health(loop.time)
    watch = Watch(Away(), POD, None, clock=loop.time)
    health.watches.append(watch)
    task = asyncio.create_task(watch.run())
    for _ in range(60):
        await asyncio.sleep(60)
        assert health.faults() == []
    task.cancel()


async def test_a_task_that_ended_is_a_fault_however_it_ended_and_none_when_all_end(health):
    async def fail():
        raise RuntimeError("a fault")

    async def forever():
        await asyncio.Event().wait()

    health.tasks = {
        name: asyncio.create_task(made) for name, made in (("worker 0", fail()), ("kopf", forever()))
    }
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert health.faults() == ["worker 0 has ended"]
    health.tasks["kopf"].cancel()
    await asyncio.gather(*health.tasks.values(), return_exceptions=True)
    assert health.faults() == ["worker 0 has ended", "kopf has ended"]
    health.stopping = True
    assert health.faults() == []


@pytest.mark.looptime
async def test_a_queue_is_stuck_when_keys_wait_and_none_is_taken_or_finished():
    health = Health(asyncio.get_running_loop().time)
    queue = WorkQueue()
    health.queue_stuck_s = queue.stuck_s
    await asyncio.sleep(10 * QUEUE_LIMIT_S)  # empty all night
    queue.add("hangs")
    assert await queue.get() == "hangs"
    await asyncio.sleep(QUEUE_LIMIT_S + 1)
    assert health.faults() == [], "one worker hangs, but nothing waits for it"
    queue.add("waits")
    await asyncio.sleep(QUEUE_LIMIT_S - 1)
    assert health.faults() == []
    await asyncio.sleep(2)
    assert health.faults() == [f"the queue has not moved for {QUEUE_LIMIT_S + 1:.0f} s"]
    queue.done("hangs")
    assert health.faults() == []
    await queue.get()
    assert queue.stuck_s() == 0.0


@pytest.mark.looptime
async def test_a_long_queue_that_moves_is_not_stuck():
    queue = WorkQueue()
    for key in range(20):
        queue.add(key)
    for _ in range(19):
        key = await queue.get()
        await asyncio.sleep(QUEUE_LIMIT_S / 2)
        queue.done(key)
        assert queue.stuck_s() == 0.0
    assert queue.oldest_s() > QUEUE_LIMIT_S


async def test_a_node_that_the_store_lacks_means_a_dead_watch_at_the_second_look(
    canary, listing, store, health, clock
):
    health.canaries.append(canary)
    show(store, "a", "5")
    listing.nodes = {"a": "5", "b": "7"}
    await canary.look()
    assert health.faults() == [], "it may be on its way"
    beat = canary.beat_at
    clock.now += CANARY_S
    await canary.look()
    assert health.faults() == ["watch of nodes is dead"]
    assert canary.beat_at == beat
    show(store, "b", "7")
    await canary.look()
    assert health.faults() == []
    assert canary.beat_at == clock.now


async def test_an_old_version_of_a_node_means_the_same_and_a_newer_one_nothing(canary, listing, store):
    show(store, "a", "9")
    for version in ("10", "11"):
        listing.nodes = {"a": version}
        await canary.look()
    assert canary.dead, "kopf has shown neither of them"
    show(store, "a", "12")
    await canary.look()
    assert not canary.dead
    show(store, "a", "13")
    for _ in range(3):
        await canary.look()
        assert not canary.dead, "what kopf has shown may be newer than what was listed"


async def test_a_node_that_changes_all_the_time_is_not_taken_for_a_dead_watch(canary, listing, store):
    show(store, "a", "1")
    for version in range(2, 8):
        listing.nodes = {"a": str(version)}
        await canary.look()
        assert not canary.dead
        show(store, "a", str(version))


async def test_a_node_that_is_gone_from_the_list_is_forgotten_at_the_second_look(canary, listing, store):
    show(store, "a", "5")
    show(store, "b", "6")
    listing.nodes = {"a": "5"}
    await canary.look()
    assert set(store.nodes) == {"a", "b"}
    await canary.look()
    assert set(store.nodes) == {"a"}
    assert not canary.dead


@pytest.mark.looptime
async def test_without_an_answer_the_canary_says_nothing_and_goes_on(canary, listing):
    listing.error = Transient("no answer")
    task = asyncio.create_task(canary.run())
    await asyncio.sleep(FIRST_CANARY_S + 3 * CANARY_S + 1)
    assert listing.looks == 4
    assert not canary.dead
    assert not task.done()
    task.cancel()


def answer(port, path):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


async def test_healthz_answers_with_the_reasons_and_is_apart_from_readyz(health, clock, canary):
    runner, port = await serve(health, Exposition(), "127.0.0.1", 0)
    try:
        assert await asyncio.to_thread(answer, port, "/healthz") == (200, "ok")
        assert await asyncio.to_thread(answer, port, "/readyz") == (503, "starting")
        health.ready = True
        health.watches.append(Watch(None, POD, None, clock=clock))
        health.canaries.append(canary)
        clock.now += 500
        canary.dead = True
        health.queue_stuck_s = lambda: 601.0
        status, text = await asyncio.to_thread(answer, port, "/healthz")
        assert status == 503
        assert text.splitlines() == [
            "watch of pods has been silent for 500 s",
            "watch of nodes is dead",
            "the queue has not moved for 601 s",
        ]
        assert await asyncio.to_thread(answer, port, "/readyz") == (200, "ok")
    finally:
        await runner.cleanup()


def test_the_limits_leave_room_for_what_is_normal():
    """A canary needs two looks; a watch is silent for a minute between bookmarks."""
    assert HEARTBEAT_LIMIT_S > 2 * CANARY_S
    begins, silent = INACTIVITY_S, 1.25 * INACTIVITY_S  # it is looked at four times
    assert begins + silent < HEARTBEAT_LIMIT_S
    assert module.QUEUE_LIMIT_S > HEARTBEAT_LIMIT_S

"""Drains that end with requests left: counted and told once, and nothing that is not known."""

import asyncio
import copy
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from prometheus_client import generate_latest

from controller.conftest import running
from shardwright.controller.drains import BEFORE_S, SCAN_S
from shardwright.controller.parts import clock
from shardwright.planner.signals import Readings, Signal, reading
from shardwright.render.template import PRESTOP_S, TEARDOWN_S

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
DRAIN_S = 120
OVER_S = PRESTOP_S + DRAIN_S
EPOCH_S = 1_700_000_000.0


class Engine:
    """A source: the requests that each engine has until a second of the loop; silent afterwards, or from the start."""

    name = "Pods"

    def __init__(self):
        self.left, self.asked = {}, []

    async def read(self, targets):
        said = {}
        for _, name in (target.pod for target in targets):
            self.asked.append(name)
            running, waiting = self.left.get(name, (None, None))
            if running is not None:
                said.setdefault(Signal.RUNNING, {})["team", name] = reading(running)
                said.setdefault(Signal.WAITING, {})["team", name] = reading(waiting)
        return Readings(by_signal=said)

    async def close(self):
        pass


class World:
    def __init__(self, fake):
        self.fake, self.engine = fake, Engine()
        self.drains = fake.parts.drains
        self.drains.source, self.drains.now = self.engine, lambda: EPOCH_S + clock()
        self.run = asyncio.create_task(self.drains.run())
        self.notes, post = [], fake.create_event

        async def noted(namespace, event):
            self.notes.append(event["note"])
            await post(namespace, event)

        fake.create_event = noted

    def leave(self, name, grace_s=OVER_S + TEARDOWN_S):
        """Delete a pod as the API server does: it stays until its time is over or its process has ended."""
        pod = self.fake.pods["team", name]
        ends = datetime.fromtimestamp(EPOCH_S + clock() + grace_s, UTC)
        pod["metadata"]["deletionTimestamp"] = ends.isoformat().replace("+00:00", "Z")
        pod["metadata"]["deletionGracePeriodSeconds"] = grace_s
        pod["status"]["podIP"] = "10.0.0.7"
        pod["metadata"]["resourceVersion"] = str(next(self.fake.versions))
        self.fake.parts.store.set_pod(copy.deepcopy(pod))

    def gone(self, name):
        del self.fake.pods["team", name]
        self.fake.parts.store.remove_pod(("team", name))

    @property
    def told(self):
        return [entry for entry in self.fake.log if "StreamsCut" in entry]

    def counted(self):
        page = generate_latest(self.fake.parts.reconciler.metrics.registry).decode()
        (line,) = [line for line in page.splitlines() if line.startswith("shardwright_cut_requests_total ")]
        return float(line.split()[1])


@asynccontextmanager
async def serving():
    async with running() as fake:
        fake.node("n1")
        fake.put("chat", drain={"maxSeconds": DRAIN_S}, scaling={"minReplicas": 2})
        await asyncio.sleep(2)
        fake.run_pods("n1")
        await asyncio.sleep(5)
        found = World(fake)
        yield found
        found.run.cancel()
        await found.drains.close()


def first(world):
    return min(name for _, name in world.fake.pods)


async def test_what_is_left_when_the_drain_ends_is_counted_and_told_once():
    async with serving() as world:
        name = first(world)
        world.engine.left[name] = (3.0, 1.0)
        world.leave(name)
        await asyncio.sleep(OVER_S - SCAN_S)
        assert world.engine.asked == [], "nobody is read while there is time"
        await asyncio.sleep(2 * SCAN_S)
        assert (world.engine.asked, world.counted()) == ([name], 4.0)
        assert len(world.told) == 1
        await asyncio.sleep(TEARDOWN_S)
        world.gone(name)
        await asyncio.sleep(60)
        assert (world.engine.asked, world.counted(), len(world.told)) == ([name], 4.0, 1)


@pytest.mark.parametrize("left", [(0.0, 0.0), (None, None)])
async def test_nothing_left_and_nothing_known_is_not_told(left):
    async with serving() as world:
        name = first(world)
        world.engine.left[name] = left
        world.leave(name)
        await asyncio.sleep(OVER_S + SCAN_S)
        assert world.engine.asked == [name]
        assert (world.counted(), world.told) == (0.0, [])


async def test_an_engine_that_ended_in_time_is_not_asked():
    async with serving() as world:
        name = first(world)
        world.engine.left[name] = (3.0, 0.0)
        world.leave(name)
        await asyncio.sleep(OVER_S - 10)
        world.gone(name)
        await asyncio.sleep(60)
        assert (world.engine.asked, world.counted(), world.told) == ([], 0.0, [])


@pytest.mark.parametrize("grace_s", [5, OVER_S])
async def test_less_time_than_the_plan_gives_is_not_judged(grace_s):
    """`kubectl delete --grace-period=5`, or a node that is shut down: nobody waits for the end of a drain."""
    async with serving() as world:
        name = first(world)
        world.engine.left[name] = (3.0, 0.0)
        world.leave(name, grace_s=grace_s)
        await asyncio.sleep(OVER_S)
        assert (world.engine.asked, world.counted(), world.told) == ([], 0.0, [])


async def test_a_second_deletion_with_less_time_is_not_judged_either():
    async with serving() as world:
        name = first(world)
        world.engine.left[name] = (3.0, 0.0)
        world.leave(name)
        await asyncio.sleep(OVER_S - 2)  # its look is planned
        world.leave(name, grace_s=5)
        await asyncio.sleep(60)
        assert (world.engine.asked, world.counted(), world.told) == ([], 0.0, [])


async def test_more_time_than_the_plan_gives_changes_nothing():
    """`kubectl drain --grace-period=600`: the engine ends as it was told at its start."""
    async with serving() as world:
        name = first(world)
        world.engine.left[name] = (3.0, 0.0)
        world.leave(name, grace_s=600)
        await asyncio.sleep(OVER_S + SCAN_S)
        assert (world.engine.asked, world.counted()) == ([name], 3.0)


@pytest.mark.parametrize("late_s", [0.02, 3.0])
async def test_a_scan_that_comes_late_misses_no_drain(late_s):
    """Looks go by the time that is left, and no scan comes to the millisecond."""
    async with serving() as world:
        world.run.cancel()
        name = first(world)
        world.engine.left[name] = (3.0, 0.0)
        world.leave(name)
        await asyncio.sleep(OVER_S - BEFORE_S - SCAN_S - late_s / 2)
        world.drains.scan()
        await asyncio.sleep(SCAN_S + late_s)
        world.drains.scan()
        await asyncio.sleep(SCAN_S)
        assert (world.engine.asked, world.counted()) == ([name], 3.0)


async def test_what_is_told_is_the_drain_that_the_pod_had():
    """Whoever raises it as told has old pods leave, which had the drain of before."""
    async with serving() as world:
        name = first(world)
        world.engine.left[name] = (3.0, 0.0)
        world.fake.put("chat", drain={"maxSeconds": 900}, scaling={"minReplicas": 2})
        world.leave(name)
        await asyncio.sleep(OVER_S + SCAN_S)
        [note] = [note for note in world.notes if "requests left" in note]
        assert f"drain of {DRAIN_S} s" in note


async def test_pods_of_one_service_are_told_each():
    async with serving() as world:
        names = sorted(name for _, name in world.fake.pods)
        for name in names:
            world.engine.left[name] = (2.0, 0.0)
            world.leave(name)
        await asyncio.sleep(OVER_S + SCAN_S)
        assert (world.counted(), len(world.told)) == (4.0, 2)

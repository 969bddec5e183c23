"""Engines that hang while their health is green, over a fake API server: one is replaced at a time, and no other."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from controller.conftest import Operators
from controller.fake_api import Fake
from controller.replica_sets import RUNNING, ReplicaSets
from shardwright.cluster.errors import Forbidden, Transient
from shardwright.controller.last_reading import LastReading
from shardwright.controller.options import Options
from shardwright.controller.parts import clock
from shardwright.controller.replacing import TOLD_S
from shardwright.controller.scaler import Scaler
from shardwright.diagnose.replaced import GRACE_S, sentences
from shardwright.metrics.ask import Answer
from shardwright.planner.signals import Readings, Signal, reading

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
BOUND_S, LOOK_S, ASK_S = 60.0, 15.0, 10.0
FOUND_S = BOUND_S + 2 * LOOK_S + ASK_S
"""Within which a hung engine's pod is deleted: the silence begins at a look and is seen at one."""
THREE = {"scaling": {"mode": "External"}, "replicas": 3}


class Engines:
    """A source: each engine has requests and brings tokens, unless it hangs. Pods by name."""

    name = "Prometheus"

    def __init__(self):
        self.hung, self.idle, self.mute, self.nan, self.dead_gauges = set(), set(), set(), set(), set()
        self.queued = set()
        self.failure, self.restarted, self.hung_at, self.skew_s, self.frozen_s = "", {}, {}, 1e9, None

    async def read(self, targets):
        said, now = {}, clock()
        if self.failure:
            return Readings(failure=self.failure)
        for _, name in (target.pod for target in targets):
            if name in self.mute:
                continue
            at_s = now if self.frozen_s is None else self.frozen_s
            stuck = name in self.hung or name in self.dead_gauges
            tokens_s = self.hung_at.setdefault(name, now) if stuck else now
            each = {
                Signal.SAMPLED: self.skew_s + at_s,
                Signal.STARTED: self.restarted.get(name, 1.0),
                Signal.RUNNING: 0.0 if name in self.idle | self.queued else 2.0,
                Signal.WAITING: 3.0 if name in self.queued else 0.0,
                Signal.GENERATION_TOKENS: float("nan") if name in self.nan else 1 + 10 * tokens_s,
            }
            for signal, value in each.items():
                said.setdefault(signal, {})["team", name] = reading(value)
        return Readings(by_signal=said)

    async def close(self):
        pass


class World:
    """An operator whose watchdog looks, and pods that are replaced when they are deleted."""

    def __init__(self, operators, start_s):
        self.fake, self.operators, self.engines = operators.api, operators, Engines()
        self.pods = ReplicaSets(self.fake, start_s)
        self.asked, self.unreachable, self.tasks = [], False, []
        self.asking = asyncio.Event()
        self.begin()

    def begin(self):
        scaler: Scaler = self.fake.parts.scaler
        scaler.source = LastReading(self.engines, clock)
        scaler.watchdog.ask = self.ask
        self.tasks = [asyncio.create_task(scaler.run()), asyncio.create_task(self.pods.run())]

    async def ask(self, address, model, timeout_s):
        self.asked.append((model, timeout_s))
        self.asking.set()
        if self.unreachable:
            return Answer.UNKNOWN
        name = next(n for (_, n), p in self.fake.pods.items() if p["status"]["podIP"] == address)
        if name not in self.engines.hung:
            return Answer.TOKEN
        await asyncio.sleep(timeout_s)
        return Answer.SILENCE

    async def restart(self):
        await self.stop()
        await self.operators.restart()
        self.begin()

    async def stop(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.fake.parts.scaler.watchdog.close()

    @property
    def ended(self):
        """Pods that the operator deleted."""
        return [entry.removeprefix("end ") for entry in self.fake.log if entry.startswith("end ")]

    def degraded(self):
        return self.fake.condition("chat", "Degraded")


@asynccontextmanager
async def watched(start_s=20.0, **spec):
    operators = Operators(Fake())
    operators.start()
    operators.api.node("n1", gpus=8)
    world = World(operators, start_s)
    world.fake.put("chat", **THREE | spec)
    await asyncio.sleep(start_s + 40)
    assert len(world.pods.serving()) == 3
    yield world
    await world.stop()
    await operators.stop()


async def test_a_hung_engine_is_replaced_within_its_bound_and_told():
    async with watched() as world:
        first, *others = world.pods.serving()
        world.engines.hung.add(first)
        await asyncio.sleep(BOUND_S)
        assert world.ended == []
        await asyncio.sleep(FOUND_S - BOUND_S)
        assert world.ended == [first]
        assert world.asked == [("chat", ASK_S)]
        assert world.fake.pods["team", first]["metadata"]["deletionGracePeriodSeconds"] == GRACE_S
        assert world.degraded() == ("True", "EngineStalled")
        message = world.fake.message("chat", "Degraded")
        assert first in message
        assert "n1" in message
        assert "60 s" in message
        assert "event EngineStalled" in world.fake.log
        assert 'engines_replaced_total{reason="EngineStalled"} 1.0' in exposed(world)
        await asyncio.sleep(GRACE_S + 30)
        assert set(others) < set(world.pods.serving())
        assert len(world.pods.serving()) == 3
        await asyncio.sleep(TOLD_S)
        assert world.degraded() == ("False", "Healthy")
        assert world.ended == [first]
        assert world.pods.most_away <= 2, "the one that ends and the one that starts"


def exposed(world):
    return world.fake.parts.scaler.metrics.text().decode()


async def test_one_that_hangs_with_requests_in_its_queue_alone_is_found_as_well():
    async with watched() as world:
        name = world.pods.serving()[0]
        world.engines.hung.add(name)
        world.engines.queued.add(name)
        await asyncio.sleep(FOUND_S)
        assert world.ended == [name]


async def test_of_several_that_hang_one_at_a_time_is_replaced():
    async with watched(start_s=50) as world:
        names = world.pods.serving()
        world.engines.hung.update(names)
        for count in range(1, 4):
            before = clock()
            while len(world.ended) < count:
                await asyncio.sleep(1)
                assert clock() - before < 600
            away = {n for (_, n), p in world.fake.pods.items() if not world.pods.serves(p)}
            assert len(away - {world.ended[-1]}) <= 1, "it and who takes its place, and no other"
        assert sorted(world.ended) == names
        await asyncio.sleep(300)
        assert sorted(world.ended) == names


async def test_one_that_waits_for_its_turn_is_told():
    async with watched(start_s=100) as world:
        names = world.pods.serving()
        world.engines.hung.update(names)
        await asyncio.sleep(FOUND_S + 3 * LOOK_S)
        assert "replaced when the service's other replicas serve" in all_told(world)


def all_told(world):
    [entry] = world.fake.parts.store.services.values()
    return "\n".join(
        text for _, text in sentences(world.fake.parts.reconciler.reporter.faults(entry), "team")
    )


async def test_another_that_never_comes_back_does_not_save_it_for_ever():
    async with watched() as world:
        broken, hung, _ = world.pods.serving()
        world.pods.states[broken] = RUNNING | {"ready": False}
        world.engines.hung.add(hung)
        await asyncio.sleep(300)
        assert world.ended == []
        await asyncio.sleep(1200)
        assert world.ended == [hung]


HARMLESS = {
    "no requests": lambda e, n: e.idle.add(n),
    "figures that are missing": lambda e, n: e.mute.add(n),
    "figures that are none": lambda e, n: e.nan.add(n),
    "a source that fails": lambda e, _: setattr(e, "failure", "Prometheus cannot be reached"),
    "samples that come again": lambda e, _: setattr(e, "frozen_s", clock()),
}


@pytest.mark.parametrize("kind", HARMLESS)
async def test_nothing_is_replaced_for(kind):
    async with watched() as world:
        name = world.pods.serving()[0]
        world.engines.hung.add(name)
        HARMLESS[kind](world.engines, name)
        await asyncio.sleep(1800)
        assert (world.ended, world.asked) == ([], [])
        assert world.degraded() == ("False", "Healthy")


async def test_an_idle_engine_whose_gauges_stand_still_answers_and_stays():
    async with watched() as world:
        world.engines.dead_gauges.update(world.pods.serving())
        await asyncio.sleep(1800)
        assert world.ended == []
        assert 3 <= len(world.asked) <= 3 * 1800 / BOUND_S
        assert world.degraded() == ("False", "Healthy")


async def test_an_engine_that_cannot_be_asked_is_told_and_stays():
    async with watched() as world:
        name = world.pods.serving()[0]
        world.engines.hung.add(name)
        world.unreachable = True
        await asyncio.sleep(FOUND_S)
        assert world.ended == []
        assert world.degraded() == ("True", "EngineStalled")
        assert "port 8000" in world.fake.message("chat", "Degraded")
        world.engines.hung.clear()
        await asyncio.sleep(2 * LOOK_S)
        assert world.degraded() == ("False", "Healthy")


async def test_once_somebody_deletes_the_pod_it_is_told_no_longer():
    async with watched() as world:
        name = world.pods.serving()[0]
        world.engines.hung.add(name)
        world.unreachable = True
        await asyncio.sleep(FOUND_S)
        assert world.degraded() == ("True", "EngineStalled")
        await world.fake.end_pod("team", name, grace_s=5)
        await asyncio.sleep(60)
        assert world.degraded() == ("False", "Healthy")


async def test_without_the_right_it_is_told_what_to_grant_or_to_run():
    async with watched() as world:
        name = world.pods.serving()[0]
        world.engines.hung.add(name)
        world.fake.fail[f"end {name}"] = Forbidden("DELETE pods: 403", status=403)
        await asyncio.sleep(FOUND_S)
        assert world.degraded() == ("True", "EngineStalled")
        assert "rbac.replaceEngines" in world.fake.message("chat", "Degraded")
        assert "event EngineStalled" in world.fake.log, "that of the condition"
        world.fake.fail.clear()
        await asyncio.sleep(FOUND_S)
        assert len(set(world.ended)) == 1


async def test_a_deletion_that_is_lost_is_tried_again():
    async with watched() as world:
        name = world.pods.serving()[0]
        world.engines.hung.add(name)
        world.fake.fail[f"end {name}"] = Transient("DELETE pods: no answer")
        await asyncio.sleep(FOUND_S)
        world.fake.fail.clear()
        await asyncio.sleep(2 * LOOK_S + ASK_S)
        assert "deletionTimestamp" in world.fake.pods["team", name]["metadata"]


async def test_an_operator_that_was_restarted_finds_it_later_and_no_other():
    async with watched() as world:
        name = world.pods.serving()[0]
        world.engines.hung.add(name)
        await asyncio.sleep(BOUND_S)
        await world.restart()
        await asyncio.sleep(BOUND_S)
        assert world.ended == []
        await asyncio.sleep(FOUND_S - BOUND_S + 5)
        assert world.ended == [name]


async def test_a_clock_that_is_set_ends_nobody():
    async with watched() as world:
        for name in world.pods.serving():
            world.engines.dead_gauges.add(name)
        await asyncio.sleep(2 * LOOK_S)
        world.engines.skew_s += 3600
        await asyncio.sleep(LOOK_S)
        assert world.asked == []


async def test_one_that_recovers_while_it_is_asked_stays():
    async with watched() as world:
        name = world.pods.serving()[0]
        world.engines.hung.add(name)
        await world.asking.wait()
        world.engines.hung.clear()
        await asyncio.sleep(ASK_S / 2)
        await world.fake.parts.scaler.tick()
        await asyncio.sleep(60)
        assert world.ended == []


async def test_the_bound_follows_the_longest_prompt_that_the_engine_takes():
    spec = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 131072}}
    async with watched(**spec) as world:
        name = world.pods.serving()[0]
        world.engines.hung.add(name)
        await asyncio.sleep(200)
        assert world.asked == []
        await asyncio.sleep(600)
        assert world.ended == [name]
        [(_, timeout_s)] = world.asked
        assert timeout_s > 100


async def test_it_can_be_turned_off():
    operators = Operators(Fake())
    metrics = Options().engine_metrics
    assert metrics.stall_s == BOUND_S
    operators.options = Options(engine_metrics=type(metrics)(stall_s=0.0))
    operators.start()
    assert operators.api.parts.scaler.watchdog is None
    await operators.stop()

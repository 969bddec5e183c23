"""To zero and back, over a fake API server: who goes there, who is woken, and what a crash, a spec or a schedule does meanwhile."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from controller.test_routing import answer
from controller.test_scaler import EPOCH, ONE, Engines, World, begun
from shardwright.controller.options import Options
from shardwright.controller.parts import clock
from shardwright.controller.waking import Waker
from shardwright.metrics.held import Held

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
IDLE_S = 120
SLEEPY = {
    "scaling": {"maxReplicas": 4, "scaleToZero": {"idleSeconds": IDLE_S}},
    "routing": {"type": "Router"},
    "drain": {"maxSeconds": 30},
}
LONG_S = IDLE_S + 60


class Whole(Engines):
    """Engines whose requests are whole ones, as real ones' are: an idle one has none."""

    def _serve(self, pod, rate, seconds):
        super()._serve(pod, rate, seconds)
        if not rate and self.busy[pod] < 0.5:
            self.busy[pod] = 0.0


class Sleepy(World):
    """With activators that say what a test lets them."""

    def __init__(self, fake, operators, engines):
        self.waiting, self.arrived, self.silent, self.asked = 0, {}, set(), []
        super().__init__(fake, operators, engines)

    async def ask(self, address):
        self.asked.append(address)
        if address in self.silent:
            return None
        return Held(self.waiting, self.arrived.get(address, 0))

    def begin(self):
        super().begin()
        scaler = self.fake.parts.scaler
        scaler.waker = Waker(
            self.fake.parts.store, self.ask, clock, scaler.sizes.asleep, scaler.wake, scaler.idle
        )
        self.tasks.append(asyncio.create_task(scaler.waker.run()))

    @property
    def size(self):
        return sum(count for name, count in self.fake.deployments().items() if name != "chat-router")

    def told(self, kind):
        return self.fake.condition("chat", kind)


@asynccontextmanager
async def sleepy(**spec):
    async with begun(Sleepy, Whole(), **(SLEEPY | spec)) as world:
        await answer(world.fake, 2)
        yield world


async def at_zero(world):
    await asyncio.sleep(LONG_S)
    assert world.size == 0
    assert world.told("Ready") == ("True", "ScaledToZero")


async def test_an_idle_service_goes_to_zero_and_says_so():
    async with sleepy() as world:
        assert (world.size, world.told("Ready")) == (1, ("True", "Serving"))
        assert await world.sizes(LONG_S) == [1, 0]
        assert world.told("Available") == world.told("Ready") == ("True", "ScaledToZero")
        assert world.told("Placed")[0] == "True"
        assert world.told("Reconciling") == world.told("Stalled") == ("False", "Settled")
        status = world.fake.statuses["chat"]
        assert (status["replicas"], status["readySummary"]) == (0, "0/0")
        assert status["plan"]["pricePerHour"] == "0.00"
        newest = world.scaling["decisions"][0]
        assert (world.scaling["desiredReplicas"], newest["rule"], newest["replicas"]) == (0, "Idle", 0)
        assert "event ScaledToZero" in world.fake.log
        assert (
            world.fake.parts.planning.ledger.allocation(("team", "chat"), status["plan"]["revision"]).granted
            == 0
        )
        # And rests there.
        before = len(world.fake.writes())
        assert await world.sizes(3600) == [0]
        assert world.fake.writes()[before:] == []


async def test_traffic_keeps_it_and_the_window_begins_after_the_last_request():
    async with sleepy() as world:
        world.engines.rate = ONE / 4
        assert set(await world.sizes(3 * LONG_S)) == {1}
        world.engines.rate = 0.0
        assert await world.sizes(IDLE_S - 20) == [1]
        assert await world.sizes(120) == [1, 0]


async def test_what_waits_wakes_it_and_one_replica_stays_for_the_window():
    async with sleepy() as world:
        await at_zero(world)
        world.waiting = 3
        await asyncio.sleep(5)
        assert world.size == 1
        newest = world.scaling["decisions"][0]
        assert (newest["rule"], newest["fromReplicas"], newest["replicas"]) == ("Woken", 0, 1)
        assert "event Woken" in world.fake.log
        world.waiting = 0
        assert await world.sizes(IDLE_S) == [1]
        assert await world.sizes(120) == [1, 0]


async def test_who_came_and_gave_up_wakes_it_too():
    async with sleepy() as world:
        await at_zero(world)
        world.arrived = {"chat-router-0": 1}
        await asyncio.sleep(5)
        assert world.size == 1


async def test_what_is_not_asked_for_is_not_asked():
    async with sleepy() as world:
        world.engines.rate = ONE / 4
        await asyncio.sleep(300)
        assert world.asked == []


@pytest.mark.parametrize("silent", [{"chat-router-0"}, {"chat-router-0", "chat-router-1"}])
async def test_routers_that_do_not_answer_keep_the_last_replica_and_that_is_told(silent):
    async with sleepy() as world:
        world.silent = silent
        assert await world.sizes(600) == [1]
        assert world.scaling["unknown"] == ["RoutersSilent"]
        assert world.told("Ready") == ("True", "Serving")
        world.silent = set()
        assert await world.sizes(60) == [1, 0]
        assert "unknown" not in world.scaling


async def test_a_router_that_is_silent_at_zero_neither_wakes_nor_is_forgotten():
    async with sleepy() as world:
        world.arrived = {"chat-router-0": 7, "chat-router-1": 7}
        await at_zero(world)
        world.silent = {"chat-router-0", "chat-router-1"}
        assert await world.sizes(60) == [0]
        world.silent = set()
        assert await world.sizes(60) == [0]
        world.silent = {"chat-router-1"}
        world.arrived["chat-router-0"] += 1
        await asyncio.sleep(5)
        assert world.size == 1


async def test_engines_that_are_not_known_keep_it():
    async with sleepy() as world:
        world.engines.failure = "Prometheus is away"
        assert await world.sizes(1200) == [1]
        world.engines.failure = ""
        assert await world.sizes(IDLE_S - 30) == [1]
        assert await world.sizes(120) == [1, 0]


async def test_a_source_that_stands_still_keeps_it():
    async with sleepy() as world:
        await asyncio.sleep(IDLE_S / 2)
        last = world.engines._said(world.engines.asked, clock())
        world.engines.rate, world.engines._said = 0.5, lambda *_asked: last
        assert await world.sizes(LONG_S) == [1]


async def test_no_router_answers_at_zero():
    async with sleepy() as world:
        await at_zero(world)
        await answer(world.fake, 0)
        assert world.told("Ready") == world.told("Available") == ("False", "RouterUnavailable")
        assert world.size == 0
        await answer(world.fake, 1)
        assert world.told("Ready") == ("True", "ScaledToZero")


async def test_a_restart_at_zero_writes_nothing_and_wakes_by_who_waits_alone():
    async with sleepy() as world:
        await at_zero(world)
        world.arrived = {"chat-router-0": 0}
        before = len(world.fake.writes())
        await world.stop()
        world.arrived = {"chat-router-0": 5}
        await world.restart()
        assert await world.sizes(300) == [0]
        assert world.fake.writes()[before:] == []
        world.waiting = 1
        await asyncio.sleep(5)
        assert world.size == 1


async def test_a_status_that_was_emptied_at_zero_wakes_nobody():
    async with sleepy() as world:
        await at_zero(world)
        del world.fake.raw["chat"]["status"]
        await world.restart()
        assert await world.sizes(60) == [0]
        assert world.told("Ready") == ("True", "ScaledToZero")


@pytest.mark.parametrize("write", range(4))
@pytest.mark.parametrize("kind", ["unsent", "lost"])
async def test_a_crash_between_any_two_writes_of_the_way_to_zero_ends_at_zero(write, kind):
    async with sleepy() as world:
        await asyncio.sleep(IDLE_S - 30)
        world.fake.faults = {world.fake.sent + write: kind}
        for _ in range(600):
            await asyncio.sleep(1)
            if not world.fake.faults and write >= 0:
                await world.restart()
                write = -1
        await asyncio.sleep(LONG_S)
        assert (world.size, world.told("Ready")) == (0, ("True", "ScaledToZero"))


@pytest.mark.parametrize("write", range(4))
@pytest.mark.parametrize("kind", ["unsent", "lost"])
async def test_a_crash_between_any_two_writes_of_a_wake_ends_awake(write, kind):
    async with sleepy() as world:
        await at_zero(world)
        world.fake.faults = {world.fake.sent + write: kind}
        world.waiting = 1
        for _ in range(60):
            await asyncio.sleep(1)
            if not world.fake.faults and write >= 0:
                await world.restart()
                write = -1
        assert (world.size, world.told("Ready")) == (1, ("True", "Serving"))


async def test_another_revision_at_zero_is_made_without_waking():
    async with sleepy() as world:
        await at_zero(world)
        before = world.fake.statuses["chat"]["plan"]["revision"]
        world.fake.put("chat", at=1, **SLEEPY, engine={"args": ["--seed=7"]})
        assert await world.sizes(300) == [0]
        after = world.fake.statuses["chat"]["plan"]["revision"]
        assert after != before
        assert world.told("Ready") == ("True", "ScaledToZero")
        assert [name for name in world.fake.deployments() if name != "chat-router"] == [f"chat-{after}"]
        world.waiting = 1
        await asyncio.sleep(10)
        assert (world.size, world.told("Ready")) == (1, ("True", "Serving"))


async def test_a_canary_at_zero_is_skipped():
    canary = {"rollout": {"canary": {"steps": [{"percent": 50, "minutes": 10}]}}}
    async with sleepy(**canary) as world:
        await at_zero(world)
        world.fake.put("chat", at=1, **(SLEEPY | canary), engine={"args": ["--seed=7"]})
        assert await world.sizes(300) == [0]
        assert world.told("Ready") == ("True", "ScaledToZero")
        assert len(world.fake.deployments()) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"scaling": {"maxReplicas": 4}},
        {"routing": {"type": "Service"}},
        {"availability": {"surviveNodeLoss": True}},
        {"scaling": {"maxReplicas": 4, "scaleToZero": {"idleSeconds": IDLE_S},
                     "schedules": [{"cron": "0 0 * * *", "minReplicas": 1}]}},
    ],
)  # fmt: skip
async def test_a_spec_that_lets_it_sleep_no_longer_runs_it_at_once(change):
    async with sleepy() as world:
        await at_zero(world)
        world.fake.put("chat", at=1, **(SLEEPY | change))
        await asyncio.sleep(20)
        assert world.size >= 1


async def test_a_paused_rollout_keeps_it():
    async with sleepy(rollout={"paused": True}) as world:
        assert await world.sizes(900) == [1]


async def test_a_rollout_under_way_keeps_it():
    async with sleepy() as world:
        world.tasks[1].cancel()  # no further pod comes
        world.fake.put("chat", at=1, **SLEEPY, engine={"args": ["--seed=7"]})
        await asyncio.sleep(LONG_S)
        assert len(world.fake.deployments()) == 3
        assert world.told("Available") == ("True", "Serving")
        assert 0 not in await world.sizes(120)
        counts = [n for name, n in world.fake.deployments().items() if name != "chat-router"]
        assert counts == [1, 1]


async def test_the_clock_wakes_it_and_lets_it_sleep():
    scaling = {
        "maxReplicas": 4,
        "scaleToZero": {"idleSeconds": IDLE_S},
        "schedules": [{"cron": "30 8 * * *", "minReplicas": 2}, {"cron": "0 9 * * *", "minReplicas": 0}],
    }
    async with sleepy(scaling=scaling) as world:
        assert EPOCH.hour == 8
        await at_zero(world)
        before = clock()
        sizes = await world.sizes(timedelta(minutes=29).total_seconds() - before)
        assert sizes == [0]
        assert await world.sizes(120) == [0, 2]
        assert await world.sizes(1600) == [2]
        assert (await world.sizes(2400))[-2:] == [1, 0]


async def test_where_the_clock_allows_nobody_no_request_is_promised_an_answer():
    scaling = {
        "scaleToZero": {"idleSeconds": IDLE_S},
        "schedules": [{"cron": "0 0 * * *", "maxReplicas": 0}],
    }
    async with sleepy(scaling=scaling) as world:
        assert world.size == 0
        assert world.told("Ready") == ("False", "ScaledToZero")
        world.waiting = 1
        assert await world.sizes(60) == [0]


async def test_a_wake_without_room_says_who_holds_it():
    async with sleepy() as world:
        await at_zero(world)
        for n in range(8):
            pod = {
                "metadata": {"name": f"other-{n}", "namespace": "else"},
                "spec": {
                    "nodeName": "n1",
                    "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}],
                },
                "status": {"phase": "Running"},
            }
            world.fake.parts.store.set_pod(pod)
        await asyncio.sleep(5)
        assert world.told("Ready") == ("True", "ScaledToZero"), "it wants none, so it lacks none"
        world.waiting = 1
        await asyncio.sleep(10)
        assert world.told("Placed") == ("False", "NoRoom")
        assert "else/other-0" in world.fake.message("chat", "Placed")
        assert world.told("Ready") == ("False", "NoRoom")


async def test_the_operator_without_metrics_runs_one():
    async with sleepy() as world:
        await at_zero(world)
        await world.stop()
        await world.operators.restart(Options(engine_metrics=None))
        await asyncio.sleep(20)
        assert world.size == 1

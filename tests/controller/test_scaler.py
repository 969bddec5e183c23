"""The live loop over a fake API server, with engines that report what a test says: sizes, restarts, outages, handovers."""

import asyncio
import copy
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import exp

import pytest

from controller.conftest import Operators
from controller.fake_api import Fake
from shardwright.api.llmservice import ServiceKey
from shardwright.autoscaler.law import tick
from shardwright.autoscaler.state import State
from shardwright.controller import scaler as scaler_module
from shardwright.controller.last_reading import LastReading
from shardwright.controller.parts import clock
from shardwright.planner.signals import Readings, Signal, reading

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
KEY = ServiceKey(("team", "chat"))
EPOCH = datetime(2026, 11, 30, 8, tzinfo=UTC)
AUTO = {"scaling": {"minReplicas": 1, "maxReplicas": 8}}
ONE = 2.78
"""Requests a second that one replica takes: an 8B model on an A6000, chat."""


STAY_S = 250 * 0.035


class Engines:
    """A source: the pods that run share `rate`, each counting by itself from the moment it is first seen."""

    name = "Prometheus"

    def __init__(self):
        self.rate, self.failure, self.waiting, self.late, self.zeros, self.mute = (
            0.0,
            "",
            0.0,
            0.0,
            False,
            set(),
        )
        self.too_long, self.reads, self.asked, self.targets, self.no_edge = 0.0, 0, [], [], False
        self.born, self.busy, self.served, self.on_time, self.short, self.at = {}, {}, {}, {}, {}, 0.0

    async def read(self, targets):
        self.reads += 1
        now, pods = clock(), [target.pod for target in targets]
        self.asked, self.targets = pods, targets
        for pod in pods:
            self.born.setdefault(pod, now)
            self._serve(pod, self.rate / len(pods), now - max(self.at, self.born[pod]))
        self.at = now
        if self.failure:
            return Readings(failure=self.failure)
        return Readings(by_signal=self._said(pods, now))

    def _serve(self, pod, rate, seconds):
        """Each request takes STAY_S: what is in flight follows the rate, and what ended is the rest."""
        before = self.busy.get(pod, 0.0)
        self.busy[pod] = rate * STAY_S + (before - rate * STAY_S) * exp(-seconds / STAY_S)
        ended = rate * seconds - (self.busy[pod] - before)
        for counter, share in (
            (self.served, 1),
            (self.on_time, 1 - self.late),
            (self.short, 1 - self.too_long),
        ):
            counter[pod] = counter.get(pod, 0.0) + ended * share

    def _said(self, pods, now):
        said = {}
        for pod in pods:
            if pod in self.mute:
                continue
            n, on_time, short = (
                0.0 if self.zeros else c[pod] for c in (self.served, self.on_time, self.short)
            )
            busy = 0.0 if self.zeros else self.busy[pod]
            each = {
                Signal.SAMPLED: 1e9 + now, Signal.STARTED: 1e9, Signal.RUNNING: busy,
                Signal.WAITING: self.waiting / len(pods), Signal.KV_SHARE: 0.05, Signal.FINISHED: n,
                Signal.FINISHED_TOKENS: n * 250, Signal.PROMPT_TOKENS: n * 1000, Signal.TTFT_COUNT: n,
                Signal.TTFT_WITHIN: on_time, Signal.TPOT_COUNT: n, Signal.TPOT_WITHIN: n, Signal.PROMPTS: n,
                Signal.PROMPTS_WITHIN: short, Signal.GAP_SUM: n * STAY_S, Signal.GAP_COUNT: n * 250,
            }  # fmt: skip
            if self.no_edge:
                del each[Signal.TTFT_WITHIN]
            for signal, value in each.items():
                said.setdefault(signal, {})[pod] = reading(value)
        return said

    async def close(self):
        pass


class World:
    """An operator whose scaler runs, and pods that follow their Deployments."""

    def __init__(self, fake, operators, engines):
        self.fake, self.operators, self.engines, self.tasks = fake, operators, engines, []
        self.begin()

    def begin(self):
        scaler = self.fake.parts.scaler
        scaler.source = LastReading(self.engines, clock)
        scaler.sizes.reads = True
        scaler.sizes.now = lambda: EPOCH + timedelta(seconds=clock())
        scaler.timestamp = lambda: (EPOCH + timedelta(seconds=clock())).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.tasks = [asyncio.create_task(scaler.run()), asyncio.create_task(self.follow())]

    async def follow(self):
        while True:
            await asyncio.sleep(1)
            asked = {f"{name}-{i}" for name, count in self.fake.deployments().items() for i in range(count)}
            if asked != {name for _, name in self.fake.pods}:
                self.fake.run_pods("n1")
                self.fake.end_pods()

    async def stop(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def restart(self):
        await self.stop()
        await self.operators.restart()
        self.begin()

    @property
    def size(self):
        return sum(self.fake.deployments().values())

    @property
    def scaling(self):
        return self.fake.statuses["chat"].get("scaling")

    async def sizes(self, seconds):
        """The sizes of a time, without repetitions."""
        found = [self.size]
        for _ in range(int(seconds)):
            await asyncio.sleep(1)
            if self.size != found[-1]:
                found.append(self.size)
        return found


@asynccontextmanager
async def begun(kind, engines, **spec):
    """One operator, one node and one service; `kind` is what is made of them."""
    operators = Operators(Fake())
    operators.start()
    world = kind(operators.api, operators, engines)
    world.fake.node("n1", gpus=8)
    world.fake.put("chat", **spec)
    await asyncio.sleep(10)
    yield world
    await world.stop()
    await operators.stop()


def scaled(**spec):
    return begun(World, Engines(), **(AUTO | spec))


async def test_load_up_replicas_rise_load_gone_they_fall_late_and_in_steps():
    async with scaled() as world:
        assert world.size == 1
        world.engines.rate = 3 * ONE
        up = await world.sizes(120)
        assert up == sorted(up)
        assert up[-1] >= 4
        assert world.scaling["desiredReplicas"] == world.size
        newest = world.scaling["decisions"][0]
        assert (newest["rule"], newest["replicas"]) == ("Demand", world.size)
        assert "event ScaledUp" in world.fake.log
        world.engines.rate = 0.1
        assert await world.sizes(1000) == [world.size], "two start-up budgets are the window"
        down = await world.sizes(3000)
        assert down == sorted(down, reverse=True)
        assert down[-1] == 1
        assert all(a - b <= max(1, a // 3) for a, b in pairwise(down))
        assert "event ScaledDown" in world.fake.log
        assert len(world.scaling["decisions"]) <= 5


@pytest.mark.parametrize("write", range(8))
@pytest.mark.parametrize("kind", ["unsent", "lost"])
async def test_a_crash_between_any_two_writes_of_a_scale_down_ends_in_the_same_size(write, kind):
    """The operator stops at a write that is not made, or whose answer is lost; another goes on.

    Between the write of the workload and that of the status the next one knows only the larger size, and goes on
    from that: one replica comes back for a while, and none that is wanted is lost.
    """
    async with scaled() as world:
        world.engines.rate = 3 * ONE
        await world.sizes(120)
        up = world.size
        assert up >= 4
        world.fake.faults = {world.fake.sent + write: kind}
        world.engines.rate = 0.1
        seen, crashed = [up], False
        for _ in range(3600):
            await asyncio.sleep(1)
            if not world.fake.faults and not crashed:
                await world.restart()
                crashed = True
            if world.size != seen[-1]:
                seen.append(world.size)
        assert crashed, "the fault was met"
        assert max(seen) == up
        assert sum(after > before for before, after in pairwise(seen)) <= 1
        assert seen[-1] == 1
        assert world.scaling["desiredReplicas"] == 1
        assert world.fake.statuses["chat"]["replicas"] == 1


async def test_a_steady_load_writes_nothing():
    async with scaled() as world:
        world.engines.rate = 2 * ONE
        await asyncio.sleep(1800)
        before, size = world.fake.writes(), world.size
        await asyncio.sleep(4 * 3600)
        assert world.fake.writes() == before
        assert world.size == size


async def test_engines_that_never_report_change_nothing_and_nothing_is_told():
    async with scaled() as world:
        world.engines.failure = "Prometheus cannot be reached"
        await asyncio.sleep(3600)
        assert (world.size, world.scaling) == (1, None)
        world.fake.put("chat", scaling={"minReplicas": 2, "maxReplicas": 8})
        await asyncio.sleep(30)
        assert world.size == 2
        world.fake.put("chat", **AUTO)
        await asyncio.sleep(30)
        assert world.size == 1, "the planned count holds both ways"


OUTAGES = {
    "down": {"failure": "Prometheus cannot be reached"},
    "empty": {"mute": "all"},
    "zeros": {"zeros": True},
    "one pod missing": {"mute": "one"},
}


@pytest.mark.parametrize("kind", OUTAGES)
async def test_what_is_not_known_never_makes_it_smaller(kind):
    async with scaled() as world:
        world.engines.rate = 3 * ONE
        await asyncio.sleep(300)
        size = world.size
        assert size >= 4
        world.engines.rate = 0.0
        how = OUTAGES[kind]
        world.engines.failure = how.get("failure", "")
        world.engines.zeros = how.get("zeros", False)
        pods = sorted(world.engines.asked)
        world.engines.mute = set({"all": pods, "one": pods[:1]}.get(how.get("mute"), ()))
        assert await world.sizes(2 * 3600) == [size]
        told = (world.fake.condition("chat", "SLOMet"), world.scaling["unknown"])
        assert told == (("Unknown", "SignalsUnknown"), ["SignalsUnknown"])
        world.engines.failure, world.engines.zeros, world.engines.mute = "", False, set()
        world.engines.rate = 3 * ONE
        assert await world.sizes(1200) == [size]
        assert "unknown" not in world.scaling


async def test_an_outage_on_the_way_up_and_a_restart_in_it():
    async with scaled() as world:
        world.engines.rate = 3 * ONE
        await asyncio.sleep(120)
        size = world.size
        world.engines.failure = "away"
        await world.restart()
        assert await world.sizes(3600) == [size]
        world.engines.failure = ""
        assert await world.sizes(600) == [size]


async def test_a_restart_writes_nothing_and_goes_on_from_what_runs():
    async with scaled() as world:
        world.engines.rate = 2.5 * ONE
        await asyncio.sleep(1800)
        before, size = world.fake.writes(), world.size
        assert size > 1
        await world.restart()
        assert await world.sizes(120) == [size]
        await asyncio.sleep(1200)
        assert world.fake.writes() == before


async def test_a_lost_status_takes_no_replica():
    async with scaled() as world:
        world.engines.rate = 2.5 * ONE
        await asyncio.sleep(600)
        size = world.size
        await world.stop()
        await world.operators.stop()
        world.fake.raw["chat"]["status"] = {}
        world.operators.start()
        world.begin()
        assert await world.sizes(600) == [size]


async def test_a_size_that_was_written_to_the_workload_only_is_kept():
    async with scaled() as world:
        world.engines.rate = 2.5 * ONE
        await asyncio.sleep(600)
        size, status = world.size, copy.deepcopy(world.fake.raw["chat"]["status"])
        assert size > 1
        status["scaling"]["desiredReplicas"] = 1
        await world.stop()
        await world.operators.stop()
        world.fake.raw["chat"]["status"] = status
        world.operators.start()
        world.begin()
        assert await world.sizes(300) == [size]


async def test_bounds_and_the_budget_hold_at_once():
    async with scaled() as world:
        world.engines.rate = 3 * ONE
        await asyncio.sleep(300)
        assert world.size > 3
        world.fake.put("chat", scaling={"minReplicas": 1, "maxReplicas": 3})
        await asyncio.sleep(20)
        assert world.size == 3
        await asyncio.sleep(900)
        assert world.size == 3
        assert world.scaling["limit"] == "Maximum"
        assert world.fake.condition("chat", "SLOMet") == ("Unknown", "SizeLimited")
        world.fake.put("chat", pool={"maxGPUs": 2}, **AUTO)
        await asyncio.sleep(300)
        assert world.size == 2
        assert world.scaling["maxReplicas"] == 2


async def test_a_larger_stated_load_raises_the_size_and_a_restart_does_not_again():
    async with scaled(workload={"requestsPerMinute": 60}) as world:
        world.engines.rate = 0.5
        await asyncio.sleep(60)
        assert world.size == 1
        world.fake.put("chat", workload={"requestsPerMinute": 500}, **AUTO)
        await asyncio.sleep(60)
        planned = world.size
        assert planned > 2
        await asyncio.sleep(3 * 3600)
        assert world.size == 1, "the load that is seen decides in the end"
        await world.restart()
        assert await world.sizes(600) == [1]


async def test_a_handover_to_a_load_that_is_stated_keeps_the_size():
    stated = {"workload": {"requestsPerMinute": 900}}
    async with scaled(scaling={"mode": "External"}, replicas=2, **stated) as world:
        world.engines.rate = 1.0
        await asyncio.sleep(60)
        world.fake.put("chat", **AUTO, **stated)
        assert await world.sizes(600) == [2]


async def test_another_replica_gets_as_many_as_do_the_same_once():
    async with scaled() as world:
        world.engines.rate = 3 * ONE
        await asyncio.sleep(300)
        size = world.size
        world.fake.put("chat", **AUTO, parallelism={"tensor": 2})
        await asyncio.sleep(900)
        assert len(world.fake.deployments()) == 1
        memory = world.fake.parts.scaler.sizes.memories[KEY]
        assert memory.plan.gpus_per_replica == 2
        assert world.size == memory.desired < size


async def test_a_minimum_that_a_schedule_lowers_is_no_promise():
    schedules = [{"cron": "0 9 * * *", "minReplicas": 1, "maxReplicas": 2}]
    async with scaled(scaling={"minReplicas": 4, "maxReplicas": 8, "schedules": schedules}) as world:
        world.engines.rate = 0.1
        await asyncio.sleep(3600 + 60)
        assert world.size == 1
        assert world.fake.condition("chat", "Available") == ("True", "Serving")
        assert world.fake.condition("chat", "Ready") == ("True", "Serving")


async def test_both_handovers_keep_the_size():
    async with scaled(scaling={"mode": "External"}, replicas=5) as world:
        world.engines.rate = 0.5
        await asyncio.sleep(600)
        assert world.size == 5
        assert world.scaling == {
            "mode": "External", "revision": world.scaling["revision"], "desiredReplicas": 5, "plannedReplicas": 0
        }  # fmt: skip
        world.fake.put("chat", **AUTO)
        assert await world.sizes(900) == [5]
        assert world.scaling["mode"] == "Auto"
        assert (await world.sizes(3600))[-1] == 1
        world.fake.put("chat", scaling={"mode": "External"}, replicas=1)
        assert await world.sizes(300) == [1]


async def test_a_handover_over_a_restart_keeps_the_size():
    async with scaled(scaling={"mode": "External"}, replicas=5) as world:
        world.engines.rate = 0.5
        await asyncio.sleep(60)
        await world.stop()
        await world.operators.stop()
        world.fake.raw["chat"]["spec"] = {**world.fake.raw["chat"]["spec"], **AUTO}
        world.fake.raw["chat"]["spec"].pop("replicas")
        world.fake.raw["chat"]["metadata"]["generation"] += 1
        world.operators.start()
        world.begin()
        assert await world.sizes(600) == [5]


async def test_another_revision_gets_the_same_size():
    async with scaled() as world:
        world.engines.rate = 2.5 * ONE
        await asyncio.sleep(900)
        size = world.size
        env = [{"name": "A", "value": "b"}]
        world.fake.put("chat", **AUTO, engine={"env": env})
        await asyncio.sleep(120)
        assert len(world.fake.deployments()) == 1
        assert world.size == size
        assert await world.sizes(900) == [size]


async def test_replicas_that_find_no_node_retreat_and_are_tried_again():
    async with scaled(pool={"maxGPUs": 16}, scaling={"minReplicas": 1, "maxReplicas": 16}) as world:
        world.engines.rate = 11 * ONE
        await asyncio.sleep(40)
        assert world.fake.condition("chat", "Placed") == ("False", "PartiallyPlaced")
        await asyncio.sleep(200)
        assert world.size == world.scaling["desiredReplicas"] == 8
        assert world.fake.condition("chat", "Placed") == ("True", "Placed")
        assert world.scaling["limit"] == "NoPlace"
        assert world.fake.condition("chat", "SLOMet") == ("Unknown", "SizeLimited")
        world.fake.node("n2", gpus=8)
        await asyncio.sleep(900)
        assert world.size > 8


async def test_the_minimum_waits_for_a_node_and_is_told():
    async with scaled(pool={"maxGPUs": 16}, scaling={"minReplicas": 9, "maxReplicas": 16}) as world:
        world.engines.rate = 1.0
        await asyncio.sleep(1200)
        assert world.size == 8
        assert world.fake.condition("chat", "Placed") == ("False", "PartiallyPlaced")


async def test_schedules_hold_with_and_without_engines_that_report():
    schedules = [{"cron": "0 9 * * *", "minReplicas": 3}, {"cron": "0 10 * * *", "maxReplicas": 2}]
    async with scaled(scaling={"minReplicas": 1, "maxReplicas": 8, "schedules": schedules}) as world:
        world.engines.failure = "away"
        assert world.size == 1
        await asyncio.sleep(3600 + 30)
        assert world.size == 3
        world.engines.failure, world.engines.rate = "", 4 * ONE
        await asyncio.sleep(1200)
        assert world.size > 4
        await asyncio.sleep(2400)
        assert world.size == 2, "at ten"
        assert world.scaling["maxReplicas"] == 2


async def test_what_no_size_mends_is_told_and_the_size_stays():
    model = {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 20_000}
    async with scaled(model=model) as world:
        world.engines.rate = 2 * ONE
        await asyncio.sleep(3600)
        size = world.size
        world.engines.late = world.engines.too_long = 0.2
        assert await world.sizes(1800) == [size]
        assert world.fake.condition("chat", "SLOMet") == ("False", "PromptTooLong")
        assert f"The size stays at {size}" in world.fake.message("chat", "SLOMet")
        assert world.scaling["infeasible"] == ["PromptTooLong"]
        assert world.scaling["remedy"] in world.fake.message("chat", "SLOMet"), "the planner was asked"
        assert world.scaling["remedy"].startswith("With workload.inputTokens.p95: ")
        before, plans = len(world.fake.writes()), world.fake.parts.planning.plans
        await world.sizes(900)
        assert (len(world.fake.writes()), world.fake.parts.planning.plans) == (before, plans), "once"
        remedy = world.scaling["remedy"]
        await world.restart()
        await world.sizes(1800)
        assert (world.scaling["infeasible"], world.scaling["remedy"]) == (["PromptTooLong"], remedy)
        world.engines.late = world.engines.too_long = 0.0
        await asyncio.sleep(1800)
        assert "infeasible" not in world.scaling
        assert "remedy" not in world.scaling


async def test_misses_that_more_replicas_mend_raise_the_size():
    async with scaled() as world:
        world.engines.rate = 2 * ONE
        await asyncio.sleep(600)
        size = world.size
        world.engines.late = 0.3
        assert (await world.sizes(600))[-1] > size


async def test_a_service_that_is_made_anew_has_no_past():
    async with scaled() as world:
        world.engines.rate = 3 * ONE
        await asyncio.sleep(300)
        assert world.size > 3
        world.fake.remove("chat")
        world.engines.rate = 0.1
        await asyncio.sleep(60)
        world.fake.put("chat", **AUTO)
        await asyncio.sleep(60)
        assert world.size == 1


async def test_the_same_signals_give_the_same_decisions_live_and_in_replay(monkeypatch):
    seen = []

    def recorded(state, signals, plan, now):
        answer = tick(state, signals, plan, now)
        seen.append((signals, plan, now, answer))
        return answer

    monkeypatch.setattr(scaler_module, "tick", recorded)
    async with scaled() as world:
        for rate in (1.0, 3 * ONE, 5 * ONE, 0.2):
            world.engines.rate = rate
            await asyncio.sleep(600)
        world.engines.failure = "away"
        await asyncio.sleep(300)
        world.engines.failure = ""
        await asyncio.sleep(1800)
    assert len({answer[1] for *_, answer in seen}) > 3
    state = State()
    for signals, plan, now, answer in seen:
        state, desired, decision = tick(state, signals, plan, now)
        assert (state, desired, decision) == answer


async def test_a_target_that_is_no_edge_is_told_and_the_load_alone_decides():
    async with scaled() as world:
        world.engines.no_edge = True
        world.engines.rate = 3 * ONE
        await asyncio.sleep(600)
        assert world.size >= 4
        assert world.scaling["unknown"] == ["TTFTNotAnEdge"]
        assert world.fake.condition("chat", "SLOMet") == ("Unknown", "TargetNotAnEdge")


async def test_who_is_read_and_up_to_which_edges():
    async with scaled(slo={"ttft": {"percentile": 95, "milliseconds": 1500}}) as world:
        world.fake.put("other", scaling={"mode": "External"}, replicas=1)
        await asyncio.sleep(60)
        asked = {target.pod[1].split("-")[0]: target for target in world.engines.targets}
        assert asked["chat"].edges[Signal.TTFT_WITHIN] == 1.5
        assert asked["chat"].edges[Signal.TPOT_WITHIN] == 0.05
        assert asked["other"].edges == {}, "for the watchdog, which looks at all"
        world.fake.parts.scaler.watchdog = None
        await asyncio.sleep(30)
        assert {target.pod[1].split("-")[0] for target in world.engines.targets} == {"chat"}

"""Engines that end since their GPU failed, over a fake API server: other pods, and a node that gets none for a while."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from controller.conftest import Operators
from controller.fake_api import Fake
from controller.kubelet import ended
from controller.replica_sets import RUNNING, ReplicaSets
from shardwright.api.names import LABEL_GPU_FAULT
from shardwright.cluster.errors import Forbidden
from shardwright.controller.gpu_faults import KEPT_OFF_S, MOST, WINDOW_S
from shardwright.controller.options import Options
from shardwright.controller.parts import clock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
EPOCH = datetime(2026, 11, 30, 8, tzinfo=UTC)
XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n" + "traceback\n" * 150
"""The words are far from the end, as a long traceback follows them."""


def ends(message=XID, restarts=0, **kind):
    """A container that has just ended, not yet restarted."""
    terminated = {"reason": "Error", "exitCode": 1, "message": message}
    return {
        "name": "engine",
        "ready": False,
        "restartCount": restarts,
        "state": {"terminated": terminated},
    } | kind


class World:
    def __init__(self, operators):
        self.fake, self.operators = operators.api, operators
        self.where = ["n1", "n2"]
        self.pods = ReplicaSets(self.fake, 20.0, lambda _: self.scheduled())
        self.tasks = []
        self.begin()

    def begin(self):
        self.fake.parts.gpu_faults.now = lambda: EPOCH + timedelta(seconds=clock())
        self.tasks = [
            asyncio.create_task(self.fake.parts.gpu_faults.run()),
            asyncio.create_task(self.pods.run()),
        ]

    def scheduled(self):
        """The first node that the affinity of new pods allows."""
        labels = {name: self.fake.nodes[name]["metadata"]["labels"] for name in self.where}
        return next((name for name in self.where if LABEL_GPU_FAULT not in labels[name]), self.where[0])

    async def restart(self):
        await self.stop()
        await self.operators.restart()
        self.begin()

    async def stop(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def pass_by(self, seconds):
        """Let time pass in which nothing happens to pods."""
        self.pods.every_s = 60
        await asyncio.sleep(seconds)
        self.pods.every_s = 1
        await asyncio.sleep(60)

    async def fail(self, name, state=None):
        self.pods.states[name] = state or ends()
        await asyncio.sleep(2)

    async def fail_two(self):
        """Let two engines on one node end."""
        for name in self.pods.serving()[:2]:
            await self.fail(name)

    def label(self, node="n1"):
        return self.fake.nodes[node]["metadata"]["labels"].get(LABEL_GPU_FAULT)

    def known(self, node="n1"):
        """What the operator thinks of the node."""
        return self.fake.parts.store.nodes[node].labels.get(LABEL_GPU_FAULT)

    @property
    def ended(self):
        return [entry.removeprefix("end ") for entry in self.fake.log if entry.startswith("end ")]


@asynccontextmanager
async def sick(replicas=3, **options):
    operators = Operators(Fake())
    operators.options = Options(**options)
    operators.start()
    for name in ("n1", "n2"):
        operators.api.node(name, gpus=8)
    world = World(operators)
    world.fake.put("chat", scaling={"minReplicas": replicas, "maxReplicas": replicas})
    await asyncio.sleep(60)
    assert len(world.pods.serving()) == replicas
    yield world
    await world.stop()
    await operators.stop()


@pytest.mark.parametrize(
    "state",
    [
        ends(),
        {"name": "engine", "ready": False} | ended(XID, restarts=1),
        RUNNING | {"ready": False, "restartCount": 1, "lastState": ends()["state"]},
    ],
    ids=["ended", "waits for its restart", "restarted, and loads"],
)
async def test_a_pod_whose_gpu_failed_is_replaced_and_told_with_node_and_words(state):
    async with sick() as world:
        name = world.pods.serving()[0]
        await world.fail(name, state)
        assert world.ended == [name]
        assert world.fake.condition("chat", "Degraded") == ("True", "GPUFault")
        message = world.fake.message("chat", "Degraded")
        for part in (name, "n1", "Xid 79", "nvidia-smi -q"):
            assert part in message
        assert "event GPUFault" in world.fake.log
        metrics = world.fake.parts.scaler.metrics.text().decode()
        assert 'engines_replaced_total{reason="GPUFault"} 1.0' in metrics
        assert (world.label(), world.known()) == (None, None), "one is not enough"
        await asyncio.sleep(120)
        assert len(world.pods.serving()) == 3
        assert world.ended == [name]


@pytest.mark.parametrize(
    "state",
    [
        ends("CUDA error: an illegal memory access was encountered"),
        ends("torch.OutOfMemoryError: CUDA out of memory"),
        RUNNING | {"restartCount": 1, "lastState": ends()["state"]},
        RUNNING | {"name": "sidecar", "state": ends()["state"]},
    ],
    ids=["a bug", "memory", "it serves again", "another container"],
)
async def test_other_ends_are_left_to_the_kubelet(state):
    async with sick() as world:
        await world.fail(world.pods.serving()[0], state)
        await asyncio.sleep(60)
        assert world.ended == []
        assert not [entry for entry in world.fake.log if entry == "event GPUFault"]


async def test_two_on_a_node_keep_new_pods_off_it_by_a_label_that_ends_by_itself():
    async with sick(mark_nodes=True) as world:
        stays = world.pods.serving()[2]
        await world.fail_two()
        assert len(world.ended) == 2
        until = (EPOCH + timedelta(seconds=clock() + KEPT_OFF_S)).strftime("%Y%m%dT%H")
        assert world.label().startswith(until)
        message = world.fake.message("chat", "Degraded")
        assert world.label() in message
        assert f"kubectl label node n1 {LABEL_GPU_FAULT}-" in message
        await asyncio.sleep(120)
        assert stays in world.pods.serving(), "what runs there goes on"
        homes = [p["spec"]["nodeName"] for (_, n), p in world.fake.pods.items() if n != stays]
        assert homes == ["n1", "n2"], "the first took the place of the first"
        assert world.fake.nodes["n1"]["spec"].get("unschedulable") is None, "never a cordon"
        assert world.fake.nodes["n1"]["spec"].get("taints") is None
        await world.pass_by(KEPT_OFF_S - 300)
        assert world.label() is not None
        await asyncio.sleep(500)
        assert world.label() is None
        assert world.known() is None


async def test_the_ledger_offers_no_place_there_and_what_runs_keeps_its_own():
    async with sick(mark_nodes=True) as world:
        [key] = world.fake.parts.planning.proposals
        planning = world.fake.parts.planning
        proposal, service = planning.proposals[key], world.fake.parts.store.services[key].service
        assert planning.eligible(service, proposal) == ("n1", "n2")
        await world.fail_two()
        await asyncio.sleep(1)
        assert planning.eligible(service, proposal) == ("n2",)
        world.fake.put("chat", scaling={"minReplicas": 8, "maxReplicas": 8})
        await asyncio.sleep(3)
        allocation = planning.allocation(key, proposal.target)
        assert {slot.node for slot in allocation.slots} <= {"n2"}
        assert allocation.granted == 8
        assert allocation.bound >= 1, "the pod on the sick node counts"
        [pool] = {planning.pool(service.spec.pool)}
        [excluded] = pool.excluded
        assert excluded.reason == "GPUFault"
        assert "kubectl label node n1" in excluded.message


async def test_the_label_outlives_the_operator_and_the_next_one_takes_it_off():
    async with sick(mark_nodes=True) as world:
        await world.fail_two()
        await asyncio.sleep(5)
        label = world.label()
        await world.restart()
        await asyncio.sleep(100)
        assert world.label() == label
        await world.pass_by(KEPT_OFF_S)
        assert world.label() is None


async def test_a_label_that_a_person_takes_off_or_sets_is_theirs():
    async with sick(mark_nodes=True) as world:
        await world.fail_two()
        await asyncio.sleep(5)
        world.fake._label_node("n1", {"metadata": {"labels": {LABEL_GPU_FAULT: None}}})
        world.fake._label_node("n2", {"metadata": {"labels": {LABEL_GPU_FAULT: "bad-fan"}}})
        await world.pass_by(KEPT_OFF_S + 200)
        assert (world.label("n1"), world.known("n1")) == (None, None)
        assert world.label("n2") == "bad-fan"


@pytest.mark.parametrize("how", ["not asked to", "forbidden"])
async def test_without_the_right_only_planning_leaves_it_out_and_that_is_told(how):
    async with sick(mark_nodes=how == "forbidden") as world:
        if how == "forbidden":
            world.fake.fail["merge Node/n1"] = Forbidden("PATCH nodes: 403", status=403)
        await world.fail_two()
        assert world.label() is None
        assert world.known() is not None
        assert "rbac.markNodes" in world.fake.message("chat", "Degraded")
        world.fake.node("n1", gpus=8)  # it is told of anew, without the label
        assert world.known() is not None
        await world.pass_by(KEPT_OFF_S + 100)
        assert world.known() is None


async def test_two_that_are_far_apart_in_time_or_on_two_nodes_say_nothing_of_a_node():
    async with sick(mark_nodes=True) as world:
        await world.fail(world.pods.serving()[0])
        await world.pass_by(WINDOW_S + 100)
        await world.fail(world.pods.serving()[0])
        assert (len(world.ended), world.label()) == (2, None)
        world.where = ["n2", "n1"]
        await world.pass_by(WINDOW_S + 100)
        await world.fail(
            next(n for n in world.pods.serving() if world.fake.pods["team", n]["spec"]["nodeName"] == "n1")
        )
        await asyncio.sleep(100)
        await world.fail(
            next(n for n in world.pods.serving() if world.fake.pods["team", n]["spec"]["nodeName"] == "n2")
        )
        assert (world.label("n1"), world.label("n2")) == (None, None)


async def test_words_that_come_with_every_start_make_no_loop():
    async with sick() as world:
        for _ in range(MOST + 2):
            for name in list(world.fake.pods):
                world.pods.states.setdefault(name[1], ends())
            await asyncio.sleep(100)
        assert len(world.ended) == MOST
        assert "restarted ever more slowly" in world.fake.message("chat", "Degraded")


async def test_a_deletion_that_is_refused_is_told_and_one_that_failed_is_tried_again():
    async with sick() as world:
        name = world.pods.serving()[0]
        world.fake.fail[f"end {name}"] = Forbidden("DELETE pods: 403", status=403)
        await world.fail(name)
        assert world.fake.condition("chat", "Degraded") == ("True", "GPUFault")
        assert "rbac.replaceEngines" in world.fake.message("chat", "Degraded")
        world.fake.fail.clear()
        world.pods.states[name] = ends(restarts=1)
        await asyncio.sleep(5)
        assert "deletionTimestamp" in world.fake.pods["team", name]["metadata"]

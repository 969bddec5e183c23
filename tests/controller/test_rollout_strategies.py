"""Each strategy over the whole loop: what is written, what is told, and that a crash between writes changes nothing."""

import asyncio
import random

import pytest

from controller.kubelet import LOADING
from controller.test_failed_start import TWO, env, replicas, started
from shardwright.api.llmservice import ServiceKey
from shardwright.controller.situation import observe
from shardwright.controller.work import plan_work

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


def change(fake, value="b", **rollout):
    fake.put("chat", **TWO, **env(value), rollout=rollout)


def selected(fake):
    """The revision that each Service gives traffic to; None: to all."""
    names = ("chat", "chat-engine")
    selectors = [fake.objects["Service", "team", name]["spec"]["selector"] for name in names]
    return [selector.get("shardwright.dev/revision") for selector in selectors]


def progress(fake):
    return fake.statuses["chat"].get("rollout")


async def test_surge_says_how_many_gpus_it_waits_for_and_goes_on_when_they_come(fake):
    kubelet, good = await started(fake, 2)
    change(fake, strategy="Surge")
    await kubelet.run(120)
    assert replicas(fake) == {good: 2, kubelet.revision("b"): 0}
    assert fake.condition("chat", "Ready") == ("False", "RolloutWaitsForRoom")
    assert "waits for 1 free GPU" in fake.message("chat", "Ready")
    assert fake.condition("chat", "Stalled")[0] == "False"
    assert progress(fake)["step"] == "WaitsForRoom"
    fake.node("n2", gpus=1)
    await kubelet.run(120)
    assert replicas(fake) == {kubelet.revision("b"): 2}
    assert fake.condition("chat", "Ready")[0] == "True"
    assert progress(fake) is None


@pytest.mark.parametrize(
    "rollout", [{"strategy": "Surge"}, {"strategy": "BlueGreen"}, {"strategy": "Auto", "paused": True}]
)
async def test_a_rollout_that_stands_still_holds_no_places_from_others(fake, rollout):
    budget = {"pool": {"maxGPUs": 2}}
    kubelet, good = await started(fake, 4, at=1, **budget)
    fake.put("chat", at=1, **TWO, **env("b"), **budget, rollout=rollout)
    await kubelet.run(60)
    assert replicas(fake).get(good) == 2
    fake.put("other", at=2, scaling={"minReplicas": 2, "maxReplicas": 2})
    await kubelet.run(60)
    assert fake.condition("other", "Ready")[0] == "True"
    assert fake.condition("chat", "Placed")[0] == "True"
    assert fake.condition("chat", "Available")[0] == "True"
    if "paused" not in rollout:
        assert fake.condition("chat", "Ready") == ("False", "RolloutWaitsForRoom")
        assert "write pool.maxGPUs" in fake.message("chat", "Ready")


@pytest.mark.parametrize("strategy", ["Auto", "InPlace"])
async def test_another_product_takes_the_place_where_the_budget_holds_no_more(fake, strategy):
    def on(product):
        return {"pool": {"maxGPUs": 2, "gpuProducts": [product]}, "rollout": {"strategy": strategy}}

    kubelet, good = await started(fake, 2, **on("NVIDIA-RTX-A6000"))
    fake.node("n2", gpus=2, product="NVIDIA-L40S")
    fake.put("chat", **TWO, **on("NVIDIA-L40S"))
    await kubelet.run(300)
    assert list(replicas(fake).values()) == [2]
    assert good not in replicas(fake)


async def test_in_place_leaves_spare_gpus_alone(fake):
    kubelet, _ = await started(fake, 8)
    change(fake, strategy="InPlace")
    most = 0
    for _ in range(30):
        await kubelet.run(5)
        most = max(most, sum(replicas(fake).values()))
        assert len(fake.pods) <= 2
    assert most == 2
    assert replicas(fake) == {kubelet.revision("b"): 2}
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_progress_is_told_with_its_beginning(fake):
    kubelet, good = await started(fake, 8)
    change(fake)
    await asyncio.sleep(2)
    new = kubelet.revision("b")
    kubelet.broken[new] = LOADING
    await kubelet.run(30)
    told = dict(progress(fake))
    since = told.pop("since")
    assert told == {
        "strategy": "Auto",
        "step": "Starting",
        "fromRevision": good,
        "toRevision": new,
        "ready": 0,
        "desired": 2,
    }
    assert fake.condition("chat", "Ready") == ("False", "RollingOut")
    assert f"Revision {new} takes the place of {good}" in fake.message("chat", "Ready")
    await fake.restart()
    await kubelet.run(300)
    assert progress(fake)["since"] == since
    kubelet.broken.clear()
    await kubelet.run(30)
    assert progress(fake) is None


async def test_blue_green_moves_the_services_at_once(fake):
    kubelet, good = await started(fake, 4)
    change(fake, strategy="BlueGreen")
    await asyncio.sleep(2)
    new = kubelet.revision("b")
    kubelet.broken[new] = LOADING
    await kubelet.run(30)
    assert replicas(fake) == {good: 2, new: 2}
    assert selected(fake) == [good, good]
    assert fake.statuses["chat"]["readyReplicas"] == 2
    writes = [entry for entry in fake.log if entry.startswith("apply")]
    moved = len(writes) - 1 - writes[::-1].index("apply Service/chat")
    assert moved < writes.index(f"apply Deployment/chat-{new}"), "out of traffic before there is a pod"
    kubelet.broken.clear()
    await kubelet.run(10)
    assert selected(fake)[0] in {new, None}
    await kubelet.run(60)
    assert replicas(fake) == {new: 2}
    assert selected(fake) == [None, None]
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_blue_green_holds_nothing_while_a_part_of_its_places_is_missing(fake):
    kubelet, good = await started(fake, 3)
    change(fake, strategy="BlueGreen")
    await kubelet.run(60)
    assert replicas(fake) == {good: 2, kubelet.revision("b"): 0}
    assert fake.condition("chat", "Ready") == ("False", "RolloutWaitsForRoom")
    assert "waits for 2 free GPUs" in fake.message("chat", "Ready")
    fake.put("other", at=9)
    await kubelet.run(60)
    assert fake.condition("other", "Ready")[0] == "True", "the third GPU was free for others"


async def test_a_pause_holds_the_rollout_and_false_goes_on(fake):
    kubelet, good = await started(fake, 2)
    change(fake)
    await asyncio.sleep(4)
    kubelet.look()
    await asyncio.sleep(4)
    new = kubelet.revision("b")
    kubelet.broken[new] = LOADING
    await kubelet.run(10)
    assert replicas(fake) == {good: 1, new: 1}
    kubelet.broken.clear()
    change(fake, paused=True)
    await kubelet.run(300)
    assert replicas(fake) == {good: 1, new: 1}
    assert fake.condition("chat", "Ready") == ("False", "RolloutPaused")
    assert fake.condition("chat", "Available")[0] == "True"
    assert fake.condition("chat", "Stalled")[0] == "True"
    assert progress(fake)["step"] == "Paused"
    await fake.restart()
    await kubelet.run(60)
    assert replicas(fake) == {good: 1, new: 1}
    change(fake, paused=False)
    await kubelet.run(120)
    assert replicas(fake) == {new: 2}
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_what_is_paused_before_it_begins_makes_nothing(fake):
    kubelet, good = await started(fake, 8)
    change(fake, paused=True)
    await kubelet.run(60)
    assert replicas(fake) == {good: 2}
    assert fake.condition("chat", "Ready") == ("False", "RolloutPaused")
    # Without an earlier revision there is nothing to hold.
    fake.put("other", rollout={"paused": True})
    await kubelet.run(60)
    assert fake.condition("other", "Ready")[0] == "True"


@pytest.mark.parametrize("strategy", ["Auto", "Surge", "InPlace", "BlueGreen"])
@pytest.mark.parametrize("write", range(12))
async def test_a_crash_between_any_two_writes_ends_in_the_same_state(fake, strategy, write):
    kubelet, _ = await started(fake, 4 if strategy in {"Surge", "BlueGreen"} else 2)
    fake.faults = {fake.sent + write: "unsent" if write % 2 else "lost"}
    change(fake, strategy=strategy)
    least = 2
    for _ in range(40):
        await kubelet.run(5)
        if fake.faults == {}:
            await fake.restart()
            fake.faults = {-1: ""}
        only = selected(fake)[0]
        serving = [
            p
            for p in fake.pods.values()
            if only in {None, p["metadata"]["labels"]["shardwright.dev/revision"]}
        ]
        least = min(least, len(serving))
    assert replicas(fake) == {kubelet.revision("b"): 2}
    assert selected(fake) == [None, None]
    assert fake.condition("chat", "Ready")[0] == "True"
    assert least >= (2 if strategy in {"Surge", "BlueGreen"} else 1)


async def test_the_order_in_which_pods_and_workloads_are_seen_changes_nothing(fake):
    kubelet, good = await started(fake, 3)
    for value in ("b", "c"):
        change(fake, value)
        await asyncio.sleep(2)
        kubelet.broken = {kubelet.revision(value): LOADING}
        await kubelet.run(10)
    parts, key = fake.parts, ServiceKey(("team", "chat"))
    entry, proposal = parts.store.services[key], parts.planning.proposals[key]
    now = observe(parts.store, parts.planning, entry, entry.service, proposal)
    assert len(now.deployments) == 3
    expected = plan_work(now, parts.planning)
    for _ in range(10):
        for name in ("pods", "deployments"):
            items = list(getattr(now, name).items())
            random.shuffle(items)
            setattr(now, name, dict(items))
        found = plan_work(now, parts.planning)
        assert (found.state, found.decision, found.earlier) == (
            expected.state,
            expected.decision,
            expected.earlier,
        )
    assert good in now.deployments

"""Whoever exists is decided for what it is now, however its changes fall between the steps of a batch."""

import asyncio
import random

import pytest

from controller.chaos import HUB, MODEL, NAMES, Chaos
from shardwright.controller import admission

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_changes_while_a_batch_is_in_hand_is_decided_for_what_it_is(
    fake, monkeypatch, caplog, seed
):
    monkeypatch.setattr(admission, "SLICE_S", -1.0)  # a batch yields after each service
    for index in range(3):
        fake.node(f"n{index}")
    await Chaos(fake, random.Random(seed)).run(400)
    for name in NAMES:
        if name not in fake.raw:
            fake.put(name)
    for _ in range(100):  # well below the resync, which would hide a service that is stuck
        fake.collect()
        await asyncio.sleep(1)
    store, planning = fake.parts.store, fake.parts.planning
    for key, entry in store.services.items():
        if entry.deleting:
            continue
        proposal = planning.proposals[key]
        assert proposal.generation == entry.generation, key
        assert entry.status.observed_generation == entry.generation, key
    assert fake.parts.dispatch.undecided == set()
    assert "crashed" not in caplog.text


@pytest.mark.parametrize("change", ["nothing", "labels", "status", "spec", "spec and status"])
async def test_a_change_while_references_are_checked_holds_no_decision_up(fake, change):
    fake.node("n1")
    hub = {"model": MODEL | {"source": HUB}}
    look, told = fake.metadata, []

    async def change_meanwhile(kind, namespace, name):
        if kind.kind == "Secret":
            told.append(name)
            if "spec" in change:
                fake.put("chat", **hub, scaling={"minReplicas": 3, "maxReplicas": 3})
            if change == "labels":
                fake.raw["chat"]["metadata"]["labels"] = {"a": "b"}
            if "status" in change:
                fake.raw["chat"]["status"] = {"conditions": []}
            fake.tell("chat")
        return await look(kind, namespace, name)

    fake.metadata = change_meanwhile
    fake.objects["Secret", "team", "hf"] = {"metadata": {"name": "hf"}}
    fake.put("chat", **hub)
    await asyncio.sleep(3)
    assert told
    assert fake.condition("chat", "Placed") == ("True", "Placed")
    assert list(fake.deployments().values()) == [3 if "spec" in change else 1]


async def test_a_status_that_is_overwritten_while_ours_is_on_its_way_is_told_again(fake):
    fake.node("n1")
    write = fake.apply_status

    async def overwritten(*args):
        answer = await write(*args)
        if fake.log.count("status chat") == 1:
            fake.raw["chat"]["status"] = {"conditions": []}
            fake.tell("chat")
        return answer

    fake.apply_status = overwritten
    fake.put("chat")
    await asyncio.sleep(5)
    assert fake.raw["chat"]["status"]["conditions"]
    await asyncio.sleep(1000)
    assert fake.log.count("status chat") == 2

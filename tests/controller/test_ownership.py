"""Whose an object is: a child that lost its owner reference is taken back, and nothing of anybody else's ever is."""

import asyncio
import copy

import pytest

from controller.conftest import running
from controller.test_lost_answers import content
from shardwright.controller.reconcile import RECHECK_S

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
KINDS = ("ControllerRevision", "ServiceAccount", "Service", "PodDisruptionBudget", "Deployment")
FOREIGN = {"apiVersion": "argoproj.io/v1", "kind": "App", "name": "a", "uid": "a", "controller": True}


async def serve(fake) -> None:
    fake.node("n1", gpus=8)
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Ready")[0] == "True"


@pytest.mark.parametrize("left", ["none", "no controller"])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_owner_reference_that_was_taken_off_is_put_back(fake, kind, left):
    await serve(fake)
    wanted, told = content(fake), fake.log.count("status chat")
    name, live = fake.child(kind)
    [owner] = live["metadata"]["ownerReferences"]
    owners = None if left == "none" else [owner | {"controller": False}]
    fake.edit(kind, name, {"metadata": {"ownerReferences": owners}})
    await asyncio.sleep(RECHECK_S)
    assert content(fake) == wanted
    assert fake.log.count("status chat") == told
    assert not [entry for entry in fake.log if entry.startswith("delete")]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_object_that_got_another_controller_or_that_we_did_not_write_is_left_alone(fake, kind):
    await serve(fake)
    name, _ = fake.child(kind)
    fake.edit(kind, name, {"metadata": {"ownerReferences": [FOREIGN]}})
    await asyncio.sleep(RECHECK_S)
    assert fake.condition("chat", "Accepted") == ("False", "ChildNameTaken")
    assert f"{kind}/{name}" in fake.message("chat", "Accepted")
    _, live = fake.child(kind, name)
    assert live["metadata"]["ownerReferences"] == [FOREIGN]
    copied = {k: v for k, v in copy.deepcopy(live).items() if k != "kind"}
    metadata = {"labels": copied.pop("metadata")["labels"]}
    fake.server.delete((kind, "team", name))
    fake.foreign(kind, name, metadata=metadata, **copied)  # as a copy of ours by hand is
    before = copy.deepcopy(fake.objects[kind, "team", name])
    await asyncio.sleep(3 * RECHECK_S)
    assert fake.objects[kind, "team", name] == before
    assert fake.condition("chat", "Accepted") == ("False", "ChildNameTaken")


async def test_children_that_a_deletion_left_are_taken_back_and_no_pod_moves(fake):
    await serve(fake)
    old = copy.deepcopy(fake.raw["chat"])
    deployment = copy.deepcopy(fake.child("Deployment")[1])
    # In the order in which a garbage collector does it, of which the children may be seen first.
    fake.raw["chat"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for kind, _, name in list(fake.objects):
        fake.edit(kind, name, {"metadata": {"ownerReferences": None}}, "garbage-collector")
    await asyncio.sleep(1)
    assert not any(obj["metadata"].get("ownerReferences") for obj in fake.objects.values())
    del fake.raw["chat"]
    fake.parts.store.remove_service(("team", "chat"))
    await asyncio.sleep(60)
    fake.log.clear()
    fake.node("n0", gpus=8)  # a new plan would prefer it
    fake.raw["chat"] = old | {"metadata": old["metadata"] | {"uid": "uid-again"}, "status": {}}
    fake.raw["chat"]["metadata"]["resourceVersion"] = str(next(fake.versions))
    fake.parts.store.set_service(copy.deepcopy(fake.raw["chat"]))
    await asyncio.sleep(RECHECK_S)
    assert fake.condition("chat", "Ready")[0] == "True"
    assert {o["metadata"]["ownerReferences"][0]["uid"] for o in fake.objects.values()} == {"uid-again"}
    assert fake.child("Deployment")[1]["spec"] == deployment["spec"]
    assert len(fake.objects) == 6
    assert not [entry for entry in fake.log if entry.startswith("delete")]


async def test_the_next_operator_takes_back_what_lost_its_owner_meanwhile(fake):
    await serve(fake)
    wanted = content(fake)
    for kind, _, name in list(fake.objects):
        fake.server.merge((kind, "team", name), {"metadata": {"ownerReferences": None}}, "kubectl-edit")
    async with running(fake):
        await asyncio.sleep(RECHECK_S)
        assert content(fake) == wanted
        assert fake.condition("chat", "Ready")[0] == "True"

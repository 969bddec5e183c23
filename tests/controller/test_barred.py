"""A service whose pods cannot be made holds no GPUs from others, and has them again when they can."""

import asyncio
import copy

import pytest

from controller.test_ownership import KINDS
from shardwright.cluster.errors import Forbidden, Invalid
from shardwright.controller.reconcile import RECHECK_S
from shardwright.controller.refusals import FORBIDDEN_S, INVALID_S

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
QUOTA = 'pods "chat-1" is forbidden: exceeded quota: none, requested: requests.nvidia.com/gpu=1, used: 0, limited: 0'
UNDER = ("ControllerRevision", "ServiceAccount", "Deployment")


def fail(fake, kind: str) -> None:
    fake.fail[f"apply {kind}/first"] = Invalid("spec: nonsense", status=422)


def forbid(fake, kind: str) -> None:
    fake.fail[f"apply {kind}/first"] = Forbidden("exceeded quota: few, requested: x=1, used: {}", status=403)


REFUSE = {"PodTemplateRefused": fail, "QuotaExceeded": forbid}


def pods_fail(fake, said: str) -> None:
    """Let the Deployments say why their pods cannot be made, or that they can."""
    for (kind, _, name), obj in list(fake.objects.items()):
        if kind == "Deployment" and name.startswith("first"):
            condition = {
                "type": "ReplicaFailure",
                "status": "True",
                "reason": "FailedCreate",
                "message": said,
            }
            seen = copy.deepcopy(obj) | {"status": {"conditions": [condition] if said else []}}
            seen["metadata"]["resourceVersion"] = str(next(fake.versions))
            obj["metadata"]["resourceVersion"] = seen["metadata"]["resourceVersion"]
            fake.parts.store.set_child(seen | {"kind": "Deployment"})


@pytest.mark.parametrize("reason", REFUSE)
@pytest.mark.parametrize("kind", UNDER)
async def test_what_is_refused_holds_no_gpus(fake, kind, reason):
    fake.node("n1", gpus=1)
    REFUSE[reason](fake, kind)
    fake.put("first", at=1)
    fake.put("second", at=2)
    await asyncio.sleep(20)
    assert fake.condition("second", "Placed") == ("True", "Placed"), "the younger one has the GPU"
    status, told = fake.condition("first", "Placed")
    assert (status, told) == ("False", fake.condition("first", "Accepted")[1])
    assert "No GPUs are held" in fake.message("first", "Placed")
    assert fake.condition("first", "Stalled")[0] == "True"
    statuses, offered = (
        fake.log.count("status first"),
        sum(e.startswith(f"apply {kind}/first") for e in fake.log),
    )
    again_s = INVALID_S if reason == "PodTemplateRefused" else FORBIDDEN_S
    await asyncio.sleep(2.5 * again_s)
    assert fake.log.count("status first") == statuses, "no word at each retry"
    retried = sum(e.startswith(f"apply {kind}/first") for e in fake.log) - offered
    assert 2 <= retried <= 3
    assert fake.condition("second", "Placed")[0] == "True"
    fake.fail.clear()
    fake.remove("second")
    await asyncio.sleep(again_s + RECHECK_S)
    assert fake.condition("first", "Placed") == ("True", "Placed")
    assert next(iter(fake.deployments().values())) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_whose_name_is_taken_holds_no_gpus(fake, kind):
    fake.node("n1", gpus=1)
    fake.put("first", at=1)
    await asyncio.sleep(5)
    name, _ = fake.child(kind, "first")
    fake.remove("first")
    await asyncio.sleep(1)
    fake.foreign(kind, name, spec={}, data={})
    fake.put("first", at=1)
    fake.put("second", at=2)
    await asyncio.sleep(20)
    assert fake.condition("first", "Accepted") == ("False", "ChildNameTaken")
    assert fake.condition("first", "Placed") == ("False", "ChildNameTaken")
    assert fake.condition("second", "Placed")[0] == "True"
    told = fake.log.count("status first")
    await asyncio.sleep(4 * RECHECK_S)
    assert fake.log.count("status first") == told
    fake.remove("second")
    fake.server.delete((kind, "team", name))
    await asyncio.sleep(3 * RECHECK_S)
    assert fake.condition("first", "Placed") == ("True", "Placed")


async def test_pods_that_a_quota_refuses_hold_no_gpus_and_the_deployment_goes_on_asking(fake):
    fake.node("n1", gpus=1)
    fake.put("first", at=1)
    await asyncio.sleep(5)
    wanted = fake.deployments()
    assert list(wanted.values()) == [1]
    pods_fail(fake, QUOTA)
    fake.put("second", at=2)
    await asyncio.sleep(10)
    assert fake.condition("second", "Placed")[0] == "True"
    assert fake.condition("first", "Placed") == ("False", "QuotaExceeded")
    assert fake.condition("first", "Ready") == ("False", "QuotaExceeded")
    assert {n: r for n, r in fake.deployments().items() if n.startswith("first")} == wanted
    told = fake.log.count("status first")
    await asyncio.sleep(600)
    assert fake.log.count("status first") == told
    fake.remove("second")
    pods_fail(fake, "")
    await asyncio.sleep(10)
    assert fake.condition("first", "Placed") == ("True", "Placed")


async def test_pods_that_run_keep_their_places_while_others_are_refused(fake):
    fake.node("n1", gpus=2)
    fake.put("first", at=1)
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    fake.put("first", at=1, scaling={"minReplicas": 2, "maxReplicas": 2})
    await asyncio.sleep(2)
    pods_fail(fake, QUOTA)
    fake.put("second", at=2)
    await asyncio.sleep(10)
    assert fake.condition("second", "Placed")[0] == "True"
    assert fake.condition("first", "Placed") == ("False", "QuotaExceeded")
    assert fake.condition("first", "Available")[0] == "True"


@pytest.mark.parametrize("gpus", [1, 8])
async def test_nothing_is_given_up_for_a_revision_that_is_refused(fake, gpus):
    """Whether there is room beside what runs or not."""
    fake.node("n1", gpus=gpus)
    fake.put("first")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    before = fake.deployments()
    fake.fail["apply Deployment/first"] = Invalid("field not declared in schema", status=500)
    fake.put("first", podTemplate={"spec": {"hostNetworkk": True}})
    await asyncio.sleep(60)
    assert fake.deployments() == before
    assert fake.condition("first", "Accepted") == ("False", "PodTemplateRefused")
    assert fake.condition("first", "Available")[0] == "True"
    fake.fail.clear()
    fake.put("first")
    await asyncio.sleep(10)
    assert fake.deployments() == before
    assert fake.condition("first", "Ready")[0] == "True"
    assert not [entry for entry in fake.log if entry.startswith("delete Deployment/" + min(before))]


@pytest.mark.parametrize(("max_gpus", "count"), [(1, 1), (2, 2), (3, 2), (8, 2)])
@pytest.mark.parametrize("strategy", ["Auto", "InPlace", "Surge"])
async def test_nor_where_the_budget_holds_no_replica_beside_what_runs(fake, max_gpus, count, strategy):
    """The new revision's workload is refused, the old one's may be written: it must not be."""
    fake.node("n1", gpus=8)
    spec = {
        "pool": {"maxGPUs": max_gpus},
        "scaling": {"minReplicas": count, "maxReplicas": count},
        "rollout": {"strategy": strategy},
    }
    fake.put("first", **spec)
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    before = fake.deployments()
    fake.put("first", **spec | {"rollout": {"paused": True}}, podTemplate={"spec": {"hostNetwork": True}})
    await asyncio.sleep(5)
    target = fake.parts.planning.proposals["team", "first"].target
    fake.fail[f"apply Deployment/first-{target}"] = Invalid("field not declared in schema", status=500)
    fake.put("first", **spec, podTemplate={"spec": {"hostNetwork": True}})
    for _ in range(40):
        await asyncio.sleep(20)
        assert fake.deployments() == before
    assert fake.condition("first", "Available")[0] == "True"
    fake.fail.clear()
    for _ in range(40):
        await asyncio.sleep(20)
        fake.run_pods("n1")
        fake.end_pods()
    waits = strategy == "Surge" and max_gpus == count
    assert (before.items() <= fake.deployments().items()) == waits


async def test_a_replica_more_that_is_refused_is_offered_until_it_is_taken(fake):
    fake.node("n1", gpus=2)
    fake.put("first", at=1)
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    fail(fake, "Deployment")
    fake.put("first", at=1, scaling={"minReplicas": 2, "maxReplicas": 2})
    fake.put("second", at=2)
    await asyncio.sleep(10)
    assert fake.condition("second", "Placed")[0] == "True"
    assert fake.condition("first", "Accepted") == ("False", "PodTemplateRefused")
    told = fake.log.count("status first")
    await asyncio.sleep(3 * INVALID_S)
    assert fake.log.count("status first") == told
    assert fake.condition("first", "Accepted") == ("False", "PodTemplateRefused")
    fake.remove("second")
    fake.fail.clear()
    await asyncio.sleep(INVALID_S)
    assert fake.condition("first", "Placed")[0] == "True"
    assert list(fake.deployments().values()) == [2]

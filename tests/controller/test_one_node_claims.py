"""Two revisions never have pods at once on a claim that one node alone can mount; with other claims they surge."""

import asyncio
import copy

import pytest

from controller.test_approvals import env

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
SMALL = {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 8192}
VOLUME = {"name": "logs", "persistentVolumeClaim": {"claimName": "disk"}}
USES = {
    "cache": {"model": SMALL | {"cache": {"type": "PVC", "claimName": "disk"}}},
    "source": {"model": SMALL | {"source": {"type": "PVC", "pvc": {"claimName": "disk"}}}},
    "overlay": {"podTemplate": {"spec": {"volumes": [VOLUME]}}},
}


def claim(fake, *modes, name="disk"):
    fake.objects["PersistentVolumeClaim", "team", name] = {"spec": {"accessModes": list(modes)}}


def revisions_with_pods(fake):
    return {pod["metadata"]["labels"]["shardwright.dev/revision"] for pod in fake.pods.values()}


def wanted(fake):
    return {name.rpartition("-")[2] for name, count in fake.deployments().items() if count}


def leave(fake):
    """Pods that no Deployment asks for any more are told to go, and go at the second look."""
    asked = {f"{name}-{i}" for name, count in fake.deployments().items() for i in range(count)}
    for (namespace, name), pod in list(fake.pods.items()):
        if name in asked:
            continue
        if "deletionTimestamp" in pod["metadata"]:
            del fake.pods[namespace, name]
            fake.parts.store.remove_pod((namespace, name))
        else:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            fake.parts.store.set_pod(copy.deepcopy(pod))


async def roll(fake, looks=12):
    """Let it go on; the largest number of revisions that had pods, or were to have some, at once."""
    most = 0
    for _ in range(looks):
        await asyncio.sleep(5)
        most = max(most, len(revisions_with_pods(fake) | wanted(fake)))
        leave(fake)
        gone = {key: pod for key, pod in fake.pods.items() if "deletionTimestamp" in pod["metadata"]}
        fake.run_pods("n1")
        fake.pods.update(gone)
    return most


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteOncePod"])
@pytest.mark.parametrize("use", USES)
async def test_the_old_pod_ends_before_the_new_one_is_made(fake, use, mode):
    for name in ("n1", "n2"):
        fake.node(name)
    claim(fake, mode)
    fake.put("chat", **USES[use])
    await roll(fake, 3)
    assert fake.condition("chat", "Ready")[0] == "True"
    [old] = wanted(fake)
    fake.put("chat", **USES[use], **env("b"))
    await asyncio.sleep(5)
    assert wanted(fake) == set()
    assert revisions_with_pods(fake) == {old}
    for kind in ("Ready", "Available"):
        if fake.condition("chat", kind)[0] == "False":
            assert "The claim disk can be mounted on one node only" in fake.message("chat", kind)
            assert "ReadWriteMany" in fake.message("chat", kind)
    await fake.restart()
    assert await roll(fake) == 1
    assert wanted(fake) != {old}
    assert fake.condition("chat", "Ready")[0] == "True"
    fake.put("chat", **USES[use], **env("c"))
    await asyncio.sleep(7)
    fake.put("chat", **USES[use], approvedRevision=old)  # back, in the middle of it
    assert await roll(fake) == 1
    assert wanted(fake) == {old}
    assert fake.condition("chat", "Available")[0] == "True"


@pytest.mark.parametrize(
    "modes", [("ReadWriteMany",), ("ReadWriteOnce", "ReadWriteMany"), ("ReadOnlyMany",), ()]
)
async def test_a_claim_for_many_nodes_or_of_unknown_modes_lets_the_old_pod_serve_meanwhile(fake, modes):
    for name in ("n1", "n2"):
        fake.node(name)
    claim(fake, *modes)
    fake.put("chat", **USES["cache"])
    await roll(fake, 3)
    [old] = wanted(fake)
    fake.put("chat", **USES["cache"], **env("b"))
    await asyncio.sleep(5)
    assert old in wanted(fake)
    assert len(wanted(fake)) == 2


async def test_another_claim_is_in_nobodys_way(fake):
    fake.node("n1")
    claim(fake, "ReadWriteOnce")
    claim(fake, "ReadWriteOnce", name="other")
    fake.put("chat", **USES["cache"])
    await roll(fake, 3)
    fake.put("chat", model=SMALL | {"cache": {"type": "PVC", "claimName": "other"}})
    await asyncio.sleep(5)
    assert len(wanted(fake)) == 2


async def test_nothing_is_given_up_for_a_revision_that_has_no_place(fake):
    fake.node("n1", gpus=1)
    claim(fake, "ReadWriteOnce")
    fake.put("chat", **USES["cache"])
    await roll(fake, 3)
    [old] = wanted(fake)
    fake.put(
        "chat",
        **USES["cache"],
        parallelism={"tensor": 2},
        pool={"maxGPUs": 8, "interconnect": {"policy": "Any"}},
    )
    assert await roll(fake) == 1
    assert wanted(fake) == {old}
    assert fake.condition("chat", "Available")[0] == "True"

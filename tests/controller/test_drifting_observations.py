"""A day of observations that drift changes no pod template, and no pod comes or goes by it."""

import asyncio
import copy
import json
import random

import pytest

from controller.kubelet import LOADING, READY, Kubelet, ended

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
TWO = {"scaling": {"minReplicas": 2, "maxReplicas": 2}}
DAY_S = 24 * 3600
OTHERS = ("NVIDIA-L4", "NVIDIA-L40S", "NVIDIA-H100-80GB-HBM3")


def made(fake):
    """What pods are made of, by workload; and what is on record."""
    return {
        (kind, name): json.dumps(
            [obj["spec"]["template"], obj["spec"]["replicas"]] if kind == "Deployment" else obj["data"],
            sort_keys=True,
        )
        for (kind, _, name), obj in fake.objects.items()
        if kind in {"Deployment", "ControllerRevision"}
    }


@pytest.mark.parametrize("seed", range(3))
async def test_24_hours_of_drift_change_no_pod_template(fake, seed):
    rng = random.Random(seed)
    for name in ("n1", "n2", "n3"):
        fake.node(name, gpus=4)
    other = 0
    kubelet = Kubelet(fake)
    fake.put("chat", **TWO)
    await kubelet.run(30)
    fake.put("chat", **TWO, engine={"env": [{"name": "A", "value": "b"}]})
    await kubelet.run(120)
    assert fake.condition("chat", "Ready")[0] == "True"
    before, revision = made(fake), kubelet.revision("b")

    def node(ready="True"):
        # Memory, drivers and the number of healthy GPUs move; the nodes of the replicas come back.
        facts = fake.nodes[rng.choice(["n1", "n2", "n3"])]
        facts["status"]["allocatable"]["nvidia.com/gpu"] = str(rng.choice([3, 4, 4, 4]))
        facts["status"]["allocatable"]["memory"] = f"{rng.randrange(900, 1100)}Gi"
        facts["metadata"]["labels"]["nvidia.com/cuda.driver.major"] = str(rng.choice([550, 580, 590]))
        facts["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        facts["metadata"]["resourceVersion"] = str(next(fake.versions))
        fake.parts.store.set_node(copy.deepcopy(facts))

    def pods():
        kubelet.broken = {revision: rng.choice([READY, LOADING, ended("CUDA error", rng.randrange(9))])}

    def status():
        kept = fake.raw["chat"]["status"]
        fake.raw["chat"]["status"] = rng.choice([{}, {"conditions": kept.get("conditions", [])}, kept])
        fake.tell("chat")

    def pool():
        # Nodes of a product that would do the same for less come and go: what runs is not planned anew.
        nonlocal other
        if other:
            fake.parts.store.remove_node(f"other-{other}")
            fake.nodes.pop(f"other-{other}", None)
        other = rng.choice([0, 1, 2])
        if other:
            fake.node(f"other-{other}", gpus=8, product=rng.choice(OTHERS))

    ways = [node, lambda: node("Unknown"), pods, pods, status, pool, pool]
    loop = asyncio.get_running_loop()
    until = loop.time() + DAY_S
    while loop.time() < until:
        rng.choice(ways)()
        if rng.random() < 0.02:
            await fake.restart()
        await kubelet.run(rng.choice([30, 120, 600]), every=30)
        assert made(fake) == before

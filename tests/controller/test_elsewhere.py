"""A service that waits for its plan's GPUs is told which others stand free."""

import asyncio
import copy

import pytest

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
L40S, H100, T4 = "NVIDIA-L40S", "NVIDIA-H100-80GB-HBM3", "Tesla-T4"


def fill(fake, node: str, gpus: int) -> None:
    """Let somebody else's pod hold GPUs."""
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
    pod = {
        "metadata": {"name": f"busy-{node}", "namespace": "other"},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }
    fake.parts.store.set_pod(copy.deepcopy(pod))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("replicas", [1, 2])
async def test_products_with_room_are_named_as_the_line_to_write(fake, replicas, restarted):
    """Whether none or one of the replicas has its place, and whether the decision or the record is at hand."""
    fake.node("n1", gpus=2)
    fake.node("n2", product=L40S)
    fake.node("n3", product=H100)
    fake.node("n4", product=T4)
    fill(fake, "n1", 2 if replicas == 1 else 1)
    fill(fake, "n3", 4)
    fake.put("chat", scaling={"minReplicas": replicas, "maxReplicas": replicas})
    await asyncio.sleep(5)
    if restarted:
        await fake.restart()
        fill(fake, "n1", 2 if replicas == 1 else 1)
        fill(fake, "n3", 4)
        await asyncio.sleep(30)
    assert fake.condition("chat", "Placed") == ("False", "NoRoom" if replicas == 1 else "PartiallyPlaced")
    message = fake.message("chat", "Placed")
    assert f"write spec.pool.gpuProducts: [{L40S}]" in message, "H100 is full, and T4 cannot run it"
    fake.put(
        "chat",
        pool={"maxGPUs": 8, "gpuProducts": [L40S]},
        scaling={"minReplicas": replicas, "maxReplicas": replicas},
    )
    await asyncio.sleep(10)
    assert fake.condition("chat", "Placed")[0] == "True" or replicas == 2
    assert sum(fake.deployments().values()) >= 1


async def test_nothing_is_named_where_nothing_else_has_room(fake):
    fake.node("n1", gpus=1)
    fake.node("n2", product=L40S)
    fill(fake, "n1", 1)
    fill(fake, "n2", 4)
    fake.put("chat")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Placed") == ("False", "NoRoom")
    assert "gpuProducts" not in fake.message("chat", "Placed")
    assert "nodes of that kind are added" in fake.message("chat", "Placed")

"""Services that are being deleted and held by somebody's finalizer, and pods and children taken from a service."""

import asyncio

import pytest

from shardwright.api.llmservice import ServiceKey
from shardwright.api.names import LABEL_SERVICE

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


@pytest.fixture
async def two(fake):
    """Two services that serve."""
    fake.node("n1")
    for index, name in enumerate(("a", "b")):
        fake.put(name, at=index)
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert fake.condition("a", "Ready")[0] == fake.condition("b", "Ready")[0] == "True"
    return fake


@pytest.mark.parametrize("to", ["b", "nobody", None])
async def test_a_pod_that_is_taken_from_a_service_by_its_label_is_missed_there(two, to):
    [pod] = two.parts.store.pods_of(ServiceKey(("team", "a"))).values()
    [deployment] = [
        o for (kind, _, name), o in two.objects.items() if kind == "Deployment" and name[0] == "a"
    ]
    template = deployment["spec"]["template"]
    labels = dict(template["metadata"]["labels"])
    labels.pop(LABEL_SERVICE)
    two.parts.store.set_pod(
        {
            "metadata": {
                "name": pod.name,
                "namespace": "team",
                "labels": labels | ({LABEL_SERVICE: to} if to else {}),
            },
            "spec": template["spec"] | {"nodeName": "n1"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )
    await asyncio.sleep(5)
    assert two.condition("a", "Available")[0] == "False"
    assert two.condition("b", "Available")[0] == "True"


@pytest.mark.parametrize(
    "asks", [{}, {"pool": {"maxGPUs": 8, "gpuProducts": ["H100"]}}, {"model": {"id": "no/such"}}]
)
async def test_what_is_being_deleted_before_it_ran_is_left_alone(fake, asks, caplog):
    fake.put("chat", **asks)  # there is no node
    await asyncio.sleep(3)
    before = fake.writes()
    fake.terminate("chat")
    await asyncio.sleep(3)
    fake.node("n1")
    await asyncio.sleep(2000)
    fake.tell("chat")
    await asyncio.sleep(5)
    assert fake.writes() == before
    assert "crashed" not in caplog.text


async def test_what_is_being_deleted_while_it_is_new_is_left_alone(fake, caplog):
    fake.node("n1")
    fake.put("chat")
    fake.terminate("chat")
    await asyncio.sleep(2000)
    assert fake.writes() == []
    fake.parts.store.remove_service(("team", "chat"))
    fake.tell("chat")  # as after a restart
    await asyncio.sleep(2000)
    assert fake.writes() == []
    assert "crashed" not in caplog.text


async def test_what_is_being_deleted_keeps_what_runs(two):
    before = two.writes()
    two.terminate("a")
    two.node("n2")
    two.lose(("Service", "team", "a"))
    await asyncio.sleep(2000)
    assert two.writes() == before, "nothing is written, nothing is deleted"


async def test_places_of_what_is_being_deleted_go_to_others_but_for_those_of_its_pods(fake):
    fake.node("n1", gpus=2)
    for index, name in enumerate(("a", "b")):
        fake.put(name, at=index, scaling={"minReplicas": 2, "maxReplicas": 2})
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert list(fake.deployments().values()) == [2]
    fake.terminate("a")
    await asyncio.sleep(60)
    assert fake.condition("b", "Placed")[0] == "False", "its pods hold both GPUs"
    [first, _] = sorted(fake.parts.store.pods)
    fake.parts.store.remove_pod(first)
    await asyncio.sleep(60)
    assert fake.parts.planning.allocation(ServiceKey(("team", "b")), _target(fake, "b")).granted == 1


async def test_a_service_that_waits_and_is_being_deleted_waits_no_more(fake):
    for index, name in enumerate(("a", "b")):
        fake.put(name, at=index)
    await asyncio.sleep(3)
    fake.terminate("a")
    fake.node("n1", gpus=1)
    await asyncio.sleep(5)
    assert fake.condition("b", "Placed")[0] == "True"


async def test_what_was_deleted_is_not_deleted_again_before_the_watch_tells(fake):
    fake.node("n1")
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    [old] = fake.deployments()

    async def silently(kind, _namespace, name, *, uid):
        fake.log.append(f"delete {kind.kind}/{name}")

    fake.delete = silently
    fake.put("chat", engine={"env": [{"name": "A", "value": "b"}]})
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    for _ in range(5):
        fake.tell("chat")
        await asyncio.sleep(1)
    assert fake.log.count(f"delete Deployment/{old}") == 1
    fake.put("chat")  # back again
    await asyncio.sleep(1)
    fake.lose(("Deployment", "team", old))
    await asyncio.sleep(5)
    assert old in fake.deployments(), "it is not taken for there while it goes"


def _target(fake, name):
    return fake.parts.planning.proposals[ServiceKey(("team", name))].target

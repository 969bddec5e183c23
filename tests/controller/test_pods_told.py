"""Which pods count as a service's, and what is told of them by name and by time."""

import asyncio
import copy
from datetime import UTC, datetime

import pytest

from controller.test_ownership import serve
from shardwright.cluster.facts import NO_SCHEDULER_S, OOM_TOLD_S

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
READY = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]
NOT_READY = [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]


def time_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def keep_time(fake) -> None:
    """Let the status read the loop's clock, as all else in these tests does."""
    loop = asyncio.get_running_loop()
    fake.parts.reconciler.reporter.timestamp = lambda: time_of(loop.time())


def now_s() -> float:
    return asyncio.get_running_loop().time()


def set_pod(fake, **status) -> tuple[str, str]:
    """Change the status of the one pod; containers by their name."""
    [(key, pod)] = fake.pods.items()
    containers = [{"name": n, **state} for n, state in status.pop("containers", {}).items()]
    pod["status"] = {"phase": "Running", "conditions": READY, "containerStatuses": containers} | status
    fake.parts.store.set_pod(copy.deepcopy(pod))
    return key


def oom(at_s: float) -> dict:
    ended = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": time_of(at_s)}
    return {"restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": ended}}


async def test_a_kill_for_memory_is_told_for_an_hour_and_then_gone_without_an_event(fake):
    await serve(fake)
    keep_time(fake)
    set_pod(fake, containers={"engine": oom(now_s())})
    await asyncio.sleep(10)
    assert fake.condition("chat", "Degraded") == ("True", "OutOfMemory")
    assert fake.condition("chat", "Ready")[0] == "True"
    await asyncio.sleep(OOM_TOLD_S - 30)
    assert fake.condition("chat", "Degraded") == ("True", "OutOfMemory")
    told = fake.log.count("status chat")
    await asyncio.sleep(60)
    assert fake.condition("chat", "Degraded") == ("False", "Healthy")
    assert fake.log.count("status chat") == told + 1
    set_pod(fake, containers={"engine": oom(now_s()) | {"restartCount": 2}})
    await asyncio.sleep(10)
    assert fake.condition("chat", "Degraded") == ("True", "OutOfMemory"), "killed once more"


async def test_an_old_kill_is_not_told_at_a_start_of_the_operator(fake):
    await serve(fake)
    set_pod(fake, containers={"engine": oom(-2 * OOM_TOLD_S)})
    await fake.restart()
    keep_time(fake)
    await asyncio.sleep(30)
    assert fake.condition("chat", "Degraded") == ("False", "Healthy")


@pytest.mark.parametrize("name", ["volcano", "default-scheduler"])
async def test_a_pod_that_no_scheduler_takes_is_told_with_its_scheduler(fake, name):
    keep_time(fake)
    fake.node("n1", gpus=8)
    fake.put("chat", pool={"maxGPUs": 8, "schedulerName": name})
    await asyncio.sleep(5)
    fake.run_pods("n1")
    [(_, pod)] = fake.pods.items()
    pod["spec"].pop("nodeName")
    pod["spec"]["schedulerName"] = name
    pod["metadata"]["creationTimestamp"] = time_of(now_s())
    set_pod(fake, phase="Pending", conditions=[])
    await asyncio.sleep(NO_SCHEDULER_S - 10)
    assert fake.condition("chat", "Available") == ("False", "Starting"), "it may be late"
    told = fake.log.count("status chat")
    await asyncio.sleep(30)
    for kind in ("Placed", "Available", "Ready"):
        assert fake.condition("chat", kind) == ("False", "Unschedulable"), kind
        assert name in fake.message("chat", kind)
    assert ("spec.pool.schedulerName" in fake.message("chat", "Placed")) == (name == "volcano")
    assert fake.log.count("status chat") == told + 1
    pod["spec"]["nodeName"] = "n1"
    set_pod(fake)
    await asyncio.sleep(10)
    assert fake.condition("chat", "Ready")[0] == "True"


LOOP = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 3}}}
PULL = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
KEY = {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}}}
MEMORY = {
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"reason": "OOMKilled"}},
}
FINE = {"state": {"running": {}}}
STATES = {"CrashLoop": LOOP, "ImagePull": PULL, "PodConfig": KEY, "OutOfMemory": MEMORY}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("reason", STATES)
async def test_the_trouble_of_another_container_is_told_by_its_name(fake, reason, first):
    await serve(fake)
    both = [("proxy", STATES[reason]), ("engine", FINE)]
    set_pod(fake, conditions=NOT_READY, containers=dict(both if first else reversed(both)))
    await asyncio.sleep(10)
    for kind in ("Degraded", "Available"):
        message = fake.message("chat", kind)
        assert fake.condition("chat", kind)[1] == reason
        assert "container proxy beside the engine" in message
        assert "spec.engine." not in message
        assert "spec.podTemplate" in message or reason == "PodConfig"
    set_pod(fake, conditions=NOT_READY, containers={"proxy": STATES[reason], "engine": LOOP})
    await asyncio.sleep(10)
    assert fake.condition("chat", "Degraded") == ("True", "CrashLoop")
    assert "The engine exits" in fake.message("chat", "Degraded"), "what is wrong with the engine comes first"


async def test_the_trouble_of_another_container_takes_no_engine_that_is_ready(fake):
    await serve(fake)
    set_pod(fake, containers={"proxy": PULL, "engine": FINE})
    await asyncio.sleep(10)
    assert fake.condition("chat", "Available")[0] == fake.condition("chat", "Ready")[0] == "True"
    assert fake.condition("chat", "Degraded") == ("True", "ImagePull")


OWNERS = {
    "nobody": [],
    "a Job": [{"kind": "Job", "name": "chat", "controller": True}],
    "another ReplicaSet": [{"kind": "ReplicaSet", "name": "copy-5f", "controller": True}],
    "no controller": None,
}


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("owner", OWNERS)
async def test_a_pod_with_copied_labels_is_no_replica(fake, owner, hashed):
    await serve(fake)
    [(key, pod)] = fake.pods.items()
    copied = copy.deepcopy(pod)
    copied["metadata"]["name"] = "copy"
    real = copied["metadata"].pop("ownerReferences")
    owners = [real[0] | {"controller": False}] if OWNERS[owner] is None else OWNERS[owner]
    copied["metadata"]["ownerReferences"] = owners
    if not hashed:
        del copied["metadata"]["labels"]["pod-template-hash"]
    fake.parts.store.set_pod(copied)
    await asyncio.sleep(10)
    assert fake.statuses["chat"]["readySummary"] == "1/1"
    assert fake.parts.planning.ledger.free("n1").gpus == 6, "it holds what it asks for all the same"
    fake.parts.store.remove_pod(key)
    await asyncio.sleep(10)
    assert fake.condition("chat", "Available")[0] == "False"
    assert fake.statuses["chat"]["readySummary"] == "0/1"


@pytest.mark.parametrize("mode", ["Auto", "External"])
async def test_an_autoscaler_of_the_service_is_told_where_nothing_comes_of_it(fake, mode):
    await serve(fake)
    if mode == "External":
        fake.put("chat", scaling={"mode": "External"}, replicas=1)
        await asyncio.sleep(5)
    target = {"kind": "LLMService", "name": "chat"}
    hpa = {"metadata": {"name": "up", "namespace": "team"}, "spec": {"scaleTargetRef": target}}
    fake.parts.store.set_autoscaler(hpa)
    await asyncio.sleep(10)
    if mode == "External":
        assert fake.condition("chat", "Degraded") == ("False", "Healthy")
        return
    assert fake.condition("chat", "Degraded") == ("True", "ForeignAutoscaler")
    assert "HorizontalPodAutoscaler/up" in fake.message("chat", "Degraded")
    assert "spec.scaling.mode: External" in fake.message("chat", "Degraded")
    assert fake.condition("chat", "Ready")[0] == "True"
    fake.parts.store.remove_autoscaler(("team", "up"))
    await asyncio.sleep(10)
    assert fake.condition("chat", "Degraded") == ("False", "Healthy")

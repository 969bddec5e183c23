"""The operator under people and machines in a hurry: edits in a row, deletes, crashes, `kubectl`, ranks."""

import os
import time
from pathlib import Path

import pytest
import yaml

from controller_world import SERVICES, SMALL, World, gone, install
from harness.api import Json
from harness.waiting import wait_until
from operator_process import ROOT, OperatorProcess

pytestmark = pytest.mark.cluster


def env(value: str) -> Json:
    return {"env": [{"name": "X", "value": value}]}


def external(world: World, name: str, replicas: int, **spec: Json) -> Json:
    service = world.service(name, **spec)
    service["spec"] |= {"scaling": {"mode": "External"}, "replicas": replicas}
    return service


def engines(world: World) -> list[Json]:
    """Give the pods of all revisions, and none of a Job."""
    return [pod for pod in world.pods() if pod["metadata"]["labels"]["shardwright.dev/role"] == "engine"]


def uids(world: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in engines(world) if "deletionTimestamp" not in pod["metadata"]}


def test_kubectl_diff_is_empty_and_kubectl_apply_again_changes_nothing(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("applied", replicas=1))
    text = yaml.safe_dump(world.service("chat", replicas=2))
    world.cluster.kubectl("apply", "-f", "-", stdin=text)
    world.ready("chat")
    world.ready("applied")
    before = world.at_rest()
    assert world.cluster.kubectl("diff", "-f", "-", stdin=text) == ""
    world.cluster.kubectl("apply", "-f", "-", stdin=text)
    world.apply(world.service("applied", replicas=1))
    assert world.at_rest() == before


def test_after_an_upgrade_neither_scale_nor_a_bound_moves_a_pod(world: World, tmp_path: Path) -> None:
    world.add_node("a", gpus=8)
    world.apply(external(world, "chat", 2))
    world.apply(world.service("auto"))
    world.ready("chat")
    world.ready("auto")
    before, pods = world.at_rest(), uids(world)
    world.operator.stop()
    (tmp_path / "sitecustomize.py").write_text(
        "import shardwright.render.digest as d\nd.TEMPLATE_VERSION = 99\n"
        "import shardwright.render.template as t\nt.PRESTOP_S = 99\nt.TEMPLATE_VERSION = 99\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT / "operator" / "src")])
    upgraded = OperatorProcess(world.cluster, environment={"PYTHONPATH": path}, log_name="upgraded-churn")
    install(upgraded)
    with upgraded:
        time.sleep(3)
        assert world.written() == before
        world.cluster.kubectl("-n", world.namespace, "scale", "llmservice/chat", "--replicas=3")
        edited = world.service("auto")
        edited["spec"]["scaling"]["maxReplicas"] = 4
        world.apply(edited)
        wait_until(lambda: len(uids(world)) == 4, "one pod more")
        world.ready("chat")
        world.ready("auto")
        assert pods <= uids(world)
        world.cluster.kubectl("-n", world.namespace, "scale", "llmservice/chat", "--replicas=1")
        wait_until(lambda: len(uids(world)) == 2, "two pods less")
        assert pods & uids(world)
        assert len([key for key in world.children("chat") if key[0] == "ControllerRevision"]) == 1
    world.operator.start()


def test_a_scale_above_the_budget_is_told_until_it_is_taken_back(world: World) -> None:
    world.add_node("a", gpus=8)
    world.apply(external(world, "chat", 1, max_gpus=2))
    world.ready("chat")
    world.cluster.kubectl("-n", world.namespace, "scale", "llmservice/chat", "--replicas=5")
    told = world.until("chat", "Placed", "False", "GPUBudgetTooSmall")["message"]
    assert "spec.replicas asks for 5 replicas of 1 GPU each, and pool.maxGPUs is 2" in told
    wait_until(lambda: len(uids(world)) == 2, "what the budget holds")
    assert "GPUBudgetTooSmall" in world.cluster.kubectl("-n", world.namespace, "get", "lsvc", "chat")
    words = "Placed=False: spec.replicas asks for 5 replicas"
    describe = ("-n", world.namespace, "describe", "lsvc", "chat")
    wait_until(lambda: words in world.cluster.kubectl(*describe), "the event")
    world.cluster.kubectl("-n", world.namespace, "scale", "llmservice/chat", "--replicas=2")
    world.ready("chat")


def test_two_revisions_never_have_pods_on_a_claim_for_one_node(world: World) -> None:
    """On two nodes that both have room: the new pod would be made at once, and might land on the other one."""
    for name in ("a", "b"):
        world.add_node(name)
    disk = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = f"disk-{world.namespace}"
    world.cluster.apply(
        {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": disk | {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/nowhere"}, "persistentVolumeReclaimPolicy": "Delete"},
        },
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk", "namespace": world.namespace},
            "spec": disk | {"volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}},
        },
    )  # fmt: skip
    model = {"id": SMALL, "maxContextTokens": 8192, "cache": {"type": "PVC", "claimName": "disk"}}
    world.apply(world.service("chat", model=model))
    world.ready("chat")
    [old] = uids(world)
    world.apply(world.service("chat", model=model, engine={"env": [{"name": "A", "value": "b"}]}))
    most = 0

    def over() -> bool:
        nonlocal most
        most = max(
            most, len({pod["metadata"]["labels"]["shardwright.dev/revision"] for pod in engines(world)})
        )
        return world.is_("chat", "Ready", "True") and uids(world).isdisjoint({old}) and bool(uids(world))

    wait_until(over, "the new revision")
    assert most == 1
    world.cluster.api.delete(f"/api/v1/persistentvolumes/{volume}")


def test_scale_to_zero_and_back(world: World) -> None:
    world.add_node("a")
    world.apply(external(world, "chat", 2))
    world.ready("chat")
    scale = f"{SERVICES.format(world.namespace)}/chat/scale"
    world.cluster.api.merge(scale, {"spec": {"replicas": 0}})
    world.until("chat", "Available", "False", "ScaledToZero")
    wait_until(lambda: not uids(world), "no pod")
    assert world.cluster.api.get(scale)["status"]["replicas"] == 0
    world.at_rest()
    world.cluster.api.merge(scale, {"spec": {"replicas": 3}})
    world.ready("chat")
    assert len(uids(world)) == 3
    assert world.cluster.api.get(scale)["status"]["replicas"] == 3
    assert len([key for key in world.children("chat") if key[0] == "ControllerRevision"]) == 1


def test_an_idle_service_at_zero_stays_there_through_restarts_and_new_revisions(world: World) -> None:
    """How it comes there takes engines that are read, and is tested with traffic (test_zero.py)."""

    def engines() -> dict[str, int]:
        return {
            found["metadata"]["name"]: found["spec"]["replicas"]
            for found in world.deployments("chat")
            if found["metadata"]["labels"]["shardwright.dev/role"] == "engine"
        }

    def asleep() -> bool:
        pods = [p for p in world.pods() if p["metadata"]["labels"]["shardwright.dev/role"] == "engine"]
        return not pods and world.is_("chat", "Ready", "True", "ScaledToZero")

    world.add_node("a")
    sleepy = {
        "scaling": {"minReplicas": 0, "maxReplicas": 2, "scaleToZero": {"idleSeconds": 86_400}},
        "routing": {"type": "Router"},
    }
    world.apply(world.service("chat", **sleepy))
    world.until("chat", "Ready", "True", "Serving")
    world.operator.stop()
    service = f"{SERVICES.format(world.namespace)}/chat"
    world.cluster.api.merge(f"{service}/status", {"status": {"scaling": {"desiredReplicas": 0}}})
    [name] = engines()
    world.cluster.api.merge(
        f"/apis/apps/v1/namespaces/{world.namespace}/deployments/{name}", {"spec": {"replicas": 0}}
    )
    world.operator.start()
    wait_until(asleep, "a service at zero")
    assert world.is_("chat", "Available", "True", "ScaledToZero")
    assert world.get("chat")["status"]["plan"]["pricePerHour"] == "0.00"
    before = world.at_rest()
    world.operator.stop()
    world.operator.start()
    assert world.at_rest() == before

    world.apply(world.service("chat", **sleepy, engine=env("b")))
    wait_until(lambda: name not in engines() and asleep(), "another revision")
    assert list(engines().values()) == [0]

    world.apply(world.service("chat", routing={"type": "Router"}, engine=env("b")))
    world.until("chat", "Ready", "True", "Serving")
    assert list(engines().values()) == [1]


def test_the_same_name_again_before_the_old_children_are_gone(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("chat", replicas=2))
    world.ready("chat")
    for value in "ab":
        world.cluster.api.delete(f"{SERVICES.format(world.namespace)}/chat")
        world.apply(world.service("chat", replicas=2, engine=env(value)))
        time.sleep(0.5)
    uid = world.get("chat")["metadata"]["uid"]
    world.ready("chat")
    wait_until(lambda: len(world.pods()) == 2, "only the new pods")

    def owners() -> set[str]:
        return {
            o["uid"]
            for child in world.children("chat").values()
            for o in child["metadata"]["ownerReferences"]
        }

    # The garbage collector takes the others in an order of its own.
    wait_until(lambda: owners() == {uid}, "the new children alone")
    assert len(world.deployments("chat")) == 1


def test_edits_in_quick_succession_end_at_the_last(world: World) -> None:
    world.add_node("a", gpus=3)
    world.apply(world.service("chat", replicas=2))
    world.ready("chat")
    for value in ("1", "2", "3", "2", "4", "5", "3"):
        world.apply(world.service("chat", replicas=2, engine=env(value)))
        time.sleep(0.4)
    world.ready("chat")
    wait_until(lambda: len(world.deployments("chat")) == 1, "one workload")
    [last] = world.deployments("chat")
    [engine] = [c for c in last["spec"]["template"]["spec"]["containers"] if c["name"] == "engine"]
    assert {"name": "X", "value": "3"} in engine["env"]
    wait_until(lambda: len(world.pods()) == 2, "only the last pods")
    wait_until(
        lambda: len([key for key in world.children("chat") if key[0] == "ControllerRevision"]) <= 5,
        "a trimmed history",
    )


def test_a_service_deleted_while_it_is_reconciled_leaves_nothing(world: World) -> None:
    world.add_node("a", gpus=8)
    for index in range(8):
        world.apply(world.service(f"s{index}", max_gpus=1))
        time.sleep(0.06 * index)
        world.cluster.api.delete(f"{SERVICES.format(world.namespace)}/s{index}")
    time.sleep(2)
    wait_until(lambda: not world.children() and not world.pods(), "no children")
    # Nothing is still reserved for them.
    world.apply(world.service("chat", replicas=8))
    world.ready("chat")
    assert "crashed" not in world.operator.log.read_text()


def test_a_namespace_that_is_deleted_takes_all_with_it(world: World) -> None:
    world.add_node("a")
    namespace = f"{world.namespace[:50]}-2"
    world.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    services = [world.service(f"s{index}", max_gpus=1) for index in range(4)]
    for service in services:
        service["metadata"]["namespace"] = namespace
    world.cluster.apply(*services)
    path = f"{SERVICES.format(namespace)}/s0"
    wait_until(lambda: world.cluster.api.get(path).get("status", {}).get("readyReplicas"), "s0 ready")
    world.cluster.api.delete(f"/api/v1/namespaces/{namespace}")
    wait_until(lambda: gone(world.cluster, f"/api/v1/namespaces/{namespace}"), "the end of the namespace")
    world.apply(world.service("chat", replicas=4))
    world.ready("chat")
    assert "crashed" not in world.operator.log.read_text()


@pytest.mark.parametrize("delay_s", [0.15, 0.25, 0.4])
def test_a_crash_between_writes_is_made_good(world: World, delay_s: float) -> None:
    world.add_node("a", gpus=12)
    names = [f"s{index:02d}" for index in range(12)]
    world.cluster.apply(*(world.service(name, max_gpus=1) for name in names))
    time.sleep(delay_s)
    world.operator.kill()
    world.operator.start()
    for name in names:
        world.ready(name)
    assert len(world.pods()) == 12
    assert len(world.children()) == 6 * 12
    world.at_rest()


def test_room_goes_by_priority_and_then_by_age(world: World) -> None:
    high = f"high-{world.namespace[-6:]}"
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    world.cluster.api.post(
        classes,
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": high},
            "value": 1000,
            "preemptionPolicy": "Never",
        },
    )
    names = [f"s{i:02d}" for i in range(20)]
    chosen = {"s05", "s13", "s17", "s18", "s19"}
    world.add_node("a", gpus=5)
    world.add_node("b", gpus=5)
    pools: dict[str, Json] = {name: {"priorityClassName": high} if name in chosen else {} for name in names}
    # Stored while the operator is away, so that what decides is the rank and not the order of arrival.
    world.operator.stop()
    for name in names:
        world.apply(world.service(name, max_gpus=1, pool=pools[name]))
        time.sleep(0.25)
    world.operator.start()
    wait_until(lambda: sum(world.is_(name, "Ready", "True") for name in names) == 10, "ten ready")
    wait_until(lambda: all(world.conditions(name) for name in names), "all decided")
    made = {name: world.get(name)["metadata"]["creationTimestamp"] for name in names}
    ranked = sorted(names, key=lambda name: (name not in chosen, made[name], name))
    placed = {name for name in names if world.is_(name, "Placed", "True")}
    assert placed == set(ranked[:10])
    assert all(world.is_(name, "Placed", "False", "NoRoom") for name in ranked[10:])
    assert len(world.pods()) == 10
    assert {pod["status"]["phase"] for pod in world.pods()} == {"Running"}
    world.cluster.api.delete(f"{classes}/{high}")

"""The operator on a real control plane: what it makes, keeps, repairs, refuses and removes.

Each test has its own namespace and its own nodes, chosen by a label, so that tests do not take each other's GPUs.
"""

import os
import time
from pathlib import Path

import pytest

from controller_world import CHILDREN, SERVICES, SMALL, World, install, is_ready
from harness.api import Json
from harness.waiting import wait_until
from operator_process import ROOT, OperatorProcess

pytestmark = pytest.mark.cluster


def test_apply_becomes_ready_on_the_intended_node_and_again_changes_nothing(world: World) -> None:
    node = world.add_node("a")
    service = world.service("chat", replicas=2)
    world.apply(service)
    world.ready("chat")
    pods = world.pods()
    assert {pod["spec"]["nodeName"] for pod in pods} == {node}
    assert {kind for kind, _ in world.children("chat")} == set(CHILDREN)
    assert len(world.children("chat")) == 6
    live = world.get("chat")
    assert not live["metadata"].get("finalizers")
    assert not [key for key in live["metadata"].get("annotations", {}) if "kopf" in key]
    before = world.at_rest()
    world.apply(service)
    time.sleep(2)
    assert world.written() == before


def test_spec_change_leaves_exactly_the_new_workload(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("chat", replicas=2))
    world.ready("chat")
    [old] = world.deployments("chat")
    world.apply(world.service("chat", replicas=2, engine={"env": [{"name": "X", "value": "1"}]}))
    wait_until(
        lambda: [d["metadata"]["name"] for d in world.deployments("chat")] != [old["metadata"]["name"]],
        "change",
    )
    world.ready("chat")
    wait_until(lambda: len(world.deployments("chat")) == 1, "one workload")
    [new] = world.deployments("chat")
    assert new["metadata"]["name"] != old["metadata"]["name"]
    assert new["spec"]["replicas"] == 2
    revisions = [key for key in world.children("chat") if key[0] == "ControllerRevision"]
    assert len(revisions) == 2


def test_rollout_without_room_replaces_one_at_a_time(world: World) -> None:
    world.add_node("a", gpus=2)
    world.apply(world.service("chat", replicas=2))
    world.ready("chat")
    [old] = [d["metadata"]["name"] for d in world.deployments("chat")]
    world.apply(world.service("chat", replicas=2, engine={"env": [{"name": "X", "value": "1"}]}))
    ready_seen: list[int] = []

    def done() -> bool:
        ready_seen.append(sum(1 for pod in world.pods() if is_ready(pod)))
        found = world.deployments("chat")
        return (
            [d["metadata"]["name"] for d in found] not in ([], [old])
            and len(found) == 1
            and found[0]["status"].get("readyReplicas") == 2
            and world.is_("chat", "Ready", "True")
        )

    wait_until(done, "rollout")
    assert min(ready_seen) >= 1


def test_scaling_moves_no_pod(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("chat", replicas=1))
    world.ready("chat")
    before = {pod["metadata"]["uid"] for pod in world.pods()}
    world.apply(world.service("chat", replicas=3))
    wait_until(lambda: len(world.pods()) == 3, "three pods")
    world.ready("chat")
    assert before <= {pod["metadata"]["uid"] for pod in world.pods()}
    assert len([key for key in world.children("chat") if key[0] == "ControllerRevision"]) == 1


def test_hand_edits_are_repaired(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("chat", replicas=1))
    world.ready("chat")
    [deployment] = world.deployments("chat")
    path = f"{CHILDREN['Deployment'].format(world.namespace)}/{deployment['metadata']['name']}"
    services = CHILDREN["Service"].format(world.namespace)
    world.cluster.api.merge(path, {"spec": {"replicas": 3}})
    wait_until(lambda: world.cluster.api.get(path)["spec"]["replicas"] == 1, "replicas put back")
    world.cluster.api.merge(f"{services}/chat", {"spec": {"selector": {"shardwright.dev/serving": "no"}}})
    wait_until(
        lambda: (
            world.cluster.api.get(f"{services}/chat")["spec"]["selector"]["shardwright.dev/serving"] == "true"
        ),
        "selector put back",
    )
    port = {"name": "http", "port": 8081, "targetPort": "http"}
    world.cluster.api.merge(f"{services}/chat", {"spec": {"ports": [port]}})
    wait_until(
        lambda: [p["port"] for p in world.cluster.api.get(f"{services}/chat")["spec"]["ports"]] == [80],
        "port put back",
    )
    world.ready("chat")
    world.cluster.api.merge(
        f"{services}/chat-engine", {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}
    )
    wait_until(
        lambda: world.cluster.api.get(f"{services}/chat-engine")["metadata"]["labels"].get(
            "app.kubernetes.io/managed-by"
        ),
        "label of the watch put back",
    )
    world.cluster.api.merge(f"{services}/chat", {"metadata": {"labels": {"shardwright.dev/service": None}}})
    wait_until(
        lambda: world.cluster.api.get(f"{services}/chat")["metadata"]["labels"].get(
            "shardwright.dev/service"
        ),
        "label put back",
    )
    world.cluster.api.merge(f"{services}/chat", {"spec": {"type": "NodePort"}})
    wait_until(
        lambda: world.cluster.api.get(f"{services}/chat")["spec"]["type"] == "ClusterIP", "type put back"
    )
    budget = f"{CHILDREN['PodDisruptionBudget'].format(world.namespace)}/chat"
    world.cluster.api.merge(budget, {"spec": {"maxUnavailable": None, "minAvailable": 2}})
    wait_until(
        lambda: {"maxUnavailable": 1}.items() <= world.cluster.api.get(budget)["spec"].items(),
        "bound put back",
    )
    assert "minAvailable" not in world.cluster.api.get(budget)["spec"]
    world.cluster.api.delete(f"{services}/chat-engine")
    wait_until(lambda: world.cluster.api.get(f"{services}/chat-engine"), "service made again")
    world.ready("chat")
    world.at_rest()
    assert world.is_("chat", "Degraded", "False")


def owners(world: World) -> set[str]:
    """Uids of the LLMServices that are controllers of the children; empty where there is none."""
    return {
        next((o["uid"] for o in child["metadata"].get("ownerReferences", []) if o.get("controller")), "")
        for child in world.children().values()
    }


def test_children_without_an_owner_are_taken_back_and_no_pod_moves(world: World) -> None:
    world.add_node("a")
    service = world.service("chat", replicas=2)
    world.apply(service)
    world.ready("chat")
    pods = {pod["metadata"]["uid"] for pod in world.pods()}
    uid = world.get("chat")["metadata"]["uid"]
    for index, (kind, name) in enumerate(world.children("chat")):
        path = f"{CHILDREN[kind].format(world.namespace)}/{name}"
        [owner] = world.cluster.api.get(path)["metadata"]["ownerReferences"]
        left = [owner | {"controller": False}] if index % 2 else None
        world.cluster.api.merge(path, {"metadata": {"ownerReferences": left}})
    wait_until(lambda: owners(world) == {uid}, "owners put back")
    world.at_rest()
    world.ready("chat")
    world.cluster.kubectl("-n", world.namespace, "delete", "llmservice", "chat", "--cascade=orphan")
    wait_until(lambda: owners(world) == {""}, "orphans")
    world.at_rest()
    world.apply(service)
    world.ready("chat")
    assert owners(world) == {world.get("chat")["metadata"]["uid"]}
    assert len(world.children("chat")) == 6
    assert {pod["metadata"]["uid"] for pod in world.pods()} == pods
    world.at_rest()


def test_what_is_added_to_other_fields_is_told_until_it_is_gone(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("chat"))
    world.ready("chat")
    [deployment] = world.deployments("chat")
    name = deployment["metadata"]["name"]
    world.cluster.kubectl("-n", world.namespace, "rollout", "pause", f"deployment/{name}")
    told = world.until("chat", "Degraded", "True", "ForeignEdit")["message"]
    assert f"Deployment/{name} spec.paused by kubectl" in told
    assert "kubectl rollout resume" in told
    world.ready("chat")
    world.cluster.kubectl("-n", world.namespace, "rollout", "resume", f"deployment/{name}")
    world.until("chat", "Degraded", "False")
    path = f"{CHILDREN['Service'].format(world.namespace)}/chat"
    [port] = world.cluster.api.get(path)["spec"]["ports"]
    world.cluster.api.merge(path, {"spec": {"ports": [port, {"name": "more", "port": 99}]}})
    assert "Service/chat spec.ports" in world.until("chat", "Degraded", "True", "ForeignEdit")["message"]
    world.cluster.api.merge(path, {"spec": {"ports": [port]}})
    world.until("chat", "Degraded", "False")
    world.at_rest()


def test_what_is_added_to_a_pod_spec_is_told_until_it_is_gone(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("chat"))
    world.ready("chat")
    [deployment] = world.deployments("chat")
    path = f"{CHILDREN['Deployment'].format(world.namespace)}/{deployment['metadata']['name']}"
    template = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}
    world.cluster.api.merge(path, {"spec": {"template": template}})
    world.at_rest()
    world.ready("chat")
    assert world.is_("chat", "Degraded", "False")
    world.cluster.api.merge(path, {"spec": {"template": {"spec": {"hostAliases": [{"ip": "10.1.2.3"}]}}}})
    assert deployment["metadata"]["name"] in world.until("chat", "Degraded", "True", "ForeignEdit")["message"]
    world.ready("chat")
    world.at_rest()
    world.cluster.api.merge(path, {"spec": {"template": {"spec": {"hostAliases": None}}}})
    world.until("chat", "Degraded", "False")


def test_a_foreign_object_of_a_childs_name_is_never_adopted(world: World) -> None:
    world.add_node("a")
    path = CHILDREN["Service"].format(world.namespace)
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": world.namespace},
        "spec": {"ports": [{"port": 1234}], "selector": {"app": "other"}},
    }
    world.cluster.api.post(path, foreign)
    before = world.cluster.api.get(f"{path}/chat")
    world.apply(world.service("chat"))
    told = world.until("chat", "Accepted", "False", "ChildNameTaken")
    assert "Service/chat" in told["message"]
    assert world.cluster.api.get(f"{path}/chat") == before


def test_an_autoscaler_aimed_at_a_child_is_told(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("chat"))
    world.ready("chat")
    [deployment] = world.deployments("chat")
    path = f"/apis/autoscaling/v2/namespaces/{world.namespace}/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment["metadata"]["name"]}
    world.cluster.api.post(
        path,
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "mine", "namespace": world.namespace},
            "spec": {"scaleTargetRef": target, "maxReplicas": 5},
        },
    )
    assert "mine" in world.until("chat", "Degraded", "True", "ForeignAutoscaler")["message"]
    world.cluster.api.delete(f"{path}/mine")
    world.until("chat", "Degraded", "False")


def test_a_missing_secret_is_told_and_what_runs_keeps_running(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("chat"))
    world.ready("chat")
    before = {pod["metadata"]["uid"] for pod in world.pods()}
    source = {"type": "Hub", "hub": {"tokenSecretRef": {"name": "hf", "key": "token"}}}
    world.apply(world.service("chat", model={"id": SMALL, "maxContextTokens": 8192, "source": source}))
    assert "hf" in world.until("chat", "Accepted", "False", "MissingSecret")["message"]
    assert {pod["metadata"]["uid"] for pod in world.pods()} == before
    world.until("chat", "Available", "True")
    world.cluster.api.post(
        f"/api/v1/namespaces/{world.namespace}/secrets",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf"}, "stringData": {"token": "t"}},
    )
    world.ready("chat")


def test_references_and_models_that_are_not_there(world: World) -> None:
    world.add_node("a")
    model = {"id": SMALL, "maxContextTokens": 8192}
    world.apply(world.service("claim", model=model | {"cache": {"type": "PVC", "claimName": "none"}}))
    reference = {"name": "none", "key": "config.json"}
    world.apply(world.service("config", model={"id": "some/model", "config": {"configMapRef": reference}}))
    world.apply(world.service("unknown", model={"id": "some/model", "maxContextTokens": 4096}))
    world.until("claim", "Accepted", "False", "MissingClaim")
    world.until("config", "Accepted", "False", "MissingConfigMap")
    world.until("unknown", "Accepted", "False", "UnknownModel")
    assert world.children() == {}
    assert world.pods() == []


def test_twenty_services_on_room_for_ten(world: World) -> None:
    names = [f"s{i:02d}" for i in range(20)]
    world.add_node("a", gpus=5)
    world.add_node("b", gpus=5)
    # Stored while the operator is away, so that what decides is the rank and not the order of arrival.
    world.operator.stop()
    world.cluster.apply(*(world.service(name, max_gpus=1) for name in names))
    world.operator.start()
    wait_until(lambda: all(world.conditions(name) for name in names), "all decided")
    wait_until(lambda: sum(world.is_(name, "Ready", "True") for name in names) == 10, "ten ready")
    made = {item["metadata"]["name"]: item["metadata"]["creationTimestamp"] for item in map(world.get, names)}
    placed = [name for name in names if world.is_(name, "Placed", "True")]
    assert len(placed) == 10
    assert max(made[name] for name in placed) <= min(made[name] for name in names if name not in placed)
    assert all(world.is_(name, "Placed", "False", "NoRoom") for name in names if name not in placed)
    assert len(world.pods()) == 10
    assert all(pod["status"]["phase"] == "Running" for pod in world.pods())
    # Room that comes free goes to the next in rank.
    world.cluster.api.delete(f"{SERVICES.format(world.namespace)}/{placed[0]}")
    wait_until(
        lambda: sum(world.is_(name, "Ready", "True") for name in names if name != placed[0]) == 10, "next"
    )


def test_node_loss_and_a_new_node(world: World) -> None:
    lost = world.add_node("a", gpus=2)
    world.apply(world.service("chat", replicas=2))
    world.ready("chat")
    # Kubernetes looks for pods without a node every 20 s and deletes what it has seen so for 40 s: not before we looked.
    with world.cluster.paused("kube-controller-manager"):
        world.cluster.api.delete(f"/api/v1/nodes/{lost}")
        world.until("chat", "Available", "False", "NodeLost")
        assert "is gone" in world.until("chat", "Placed", "False", "NodeLost")["message"]
        assert sum(is_ready(pod) for pod in world.pods()) == 2, "nobody else knows yet"
        assert world.get("chat")["status"]["readyReplicas"] == 0
    world.until("chat", "Degraded", "False")
    new = world.add_node("b", gpus=2)
    world.ready("chat")
    assert {pod["spec"].get("nodeName") for pod in world.pods() if is_ready(pod)} == {new}
    assert len(world.children("chat")) == 6


def test_a_node_that_comes_gives_a_plan(world: World) -> None:
    world.apply(world.service("chat"))
    world.until("chat", "Planned", "False")
    world.add_node("a")
    world.ready("chat")


def test_deletion_takes_the_children_with_it(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("chat"))
    world.ready("chat")
    world.cluster.api.delete(f"{SERVICES.format(world.namespace)}/chat")
    wait_until(lambda: not world.children() and not world.pods(), "no children")
    # A service of the same name is made anew, once those of the former are gone.
    world.apply(world.service("chat"))
    world.ready("chat")


def test_restart_writes_nothing_and_an_upgrade_moves_no_pod(world: World, tmp_path: Path) -> None:
    world.add_node("a")
    world.apply(world.service("chat", replicas=2))
    world.apply(world.service("two"))
    world.ready("chat")
    world.ready("two")
    before = world.at_rest()
    world.operator.stop()
    world.operator.start()
    time.sleep(3)
    assert world.written() == before
    writes = [name for name in world.operator.metrics() if "_total" in name and 'verb="apply' in name]
    assert writes == []
    world.operator.stop()
    (tmp_path / "sitecustomize.py").write_text(
        "import shardwright.render.digest as d\nd.TEMPLATE_VERSION = 99\n"
        "import shardwright.render.template as t\nt.PRESTOP_S = 99\nt.TEMPLATE_VERSION = 99\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT / "operator" / "src")])
    upgraded = OperatorProcess(world.cluster, environment={"PYTHONPATH": path}, log_name="upgraded")
    install(upgraded)
    pods = {pod["metadata"]["uid"] for pod in world.pods()}
    with upgraded:
        time.sleep(3)
        assert world.written() == before
        world.apply(world.service("chat", replicas=3))
        wait_until(lambda: len(world.pods()) == 4, "one pod more")
        world.ready("chat")
        assert pods <= {pod["metadata"]["uid"] for pod in world.pods()}
        world.apply(world.service("two", engine={"env": [{"name": "X", "value": "1"}]}))
        wait_until(lambda: any(template_version(d) == "99" for d in world.deployments("two")), "new template")
    world.operator.start()


def template_version(deployment: Json) -> str:
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    return str(annotations.get("shardwright.dev/template-version"))

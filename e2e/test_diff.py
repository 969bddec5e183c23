"""`shardwright diff -f` against live objects on a real control plane: what it says is what then happens."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cli_user import log_in, shardwright
from controller_world import World, running_operator, world_of
from harness.api import Json
from harness.cluster import Cluster
from harness.waiting import wait_until
from operator_process import OperatorProcess

pytestmark = pytest.mark.cluster
ENV = {"engine": {"env": [{"name": "X", "value": "1"}]}}


@pytest.fixture(scope="module")
def operator(cluster: Cluster) -> Iterator[OperatorProcess]:
    with running_operator(cluster) as process:
        yield process


@pytest.fixture
def world(cluster: Cluster, operator: OperatorProcess, namespace: str) -> Iterator[World]:
    with world_of(cluster, operator, namespace) as made:
        made.add_node("a", gpus=8)
        yield made


class Change:
    """A manifest that is compared and then applied, as a user who may not look at nodes."""

    def __init__(self, world: World, tmp_path: Path) -> None:
        self.world, self.file, self.nodes = world, tmp_path / "new.yaml", tmp_path / "nodes.yaml"
        self.nodes.write_text(world.cluster.kubectl("get", "nodes,pods", "-A", "-o", "yaml"))
        self.user = log_in(world)

    def write(self, **spec: Json) -> None:
        manifest = self.world.service("chat", **spec)
        del manifest["metadata"]["namespace"]  # the context's is meant
        self.file.write_text(yaml.safe_dump(manifest))

    def diff(self, *options: str, code: int) -> Json:
        words = ("diff", "-f", str(self.file), "--nodes", str(self.nodes), "-o", "json", *options)
        [found] = json.loads(shardwright(self.user, *words, code=code))["services"]
        return found

    def apply(self) -> None:
        self.world.cluster.kubectl(
            "-n", self.world.namespace, "apply", "-f", str(self.file), kubeconfig=self.user
        )
        live = self.world.get("chat")
        generation = live["metadata"]["generation"]
        wait_until(
            lambda: self.world.get("chat").get("status", {}).get("observedGeneration") == generation,
            "a look",
        )


def uids(world: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.pods() if "deletionTimestamp" not in pod["metadata"]}


def test_what_is_said_of_a_live_service_is_what_happens(world: World, tmp_path: Path) -> None:
    change = Change(world, tmp_path)
    change.write()
    said = change.diff(code=1)
    assert (said["change"], said["pods"], said["after"]["gpus"]) == ("Added", "Start", 1)
    change.apply()
    world.ready("chat")
    assert change.diff(code=0)["summary"] == "no change"
    [deployment] = world.deployments("chat")
    assert deployment["metadata"]["name"] == f"chat-{said['after']['revision']}"

    pods = uids(world)
    change.write(replicas=3)
    said = change.diff("--fail-on", "restart", code=1)
    assert (said["pods"], said["before"]["replicas"], said["after"]["replicas"]) == ("Scale", 1, 3)
    change.apply()
    world.ready("chat")
    assert pods < uids(world)

    pods = uids(world)
    change.write(replicas=3, **ENV)
    said = change.diff("--fail-on", "restart", code=4)
    assert (said["pods"], said["podChanges"]) == ("Restart", ["spec.containers[engine].env[X] added"])
    assert said["before"]["revision"] == deployment["metadata"]["name"].removeprefix("chat-")
    change.apply()
    wait_until(lambda: not uids(world) & pods and world.is_("chat", "Ready", "True"), "a rollout")
    new = [f"chat-{said['after']['revision']}"]
    wait_until(lambda: [d["metadata"]["name"] for d in world.deployments("chat")] == new, "one workload")

    pods = uids(world)
    change.write(replicas=3, **ENV, model={"maxContextTokens": 9_000_000})
    said = change.diff(code=3)
    assert (said["pods"], said["refused"]["reason"]) == ("Stay", "ContextTooLong")
    change.apply()
    world.until("chat", "Planned", "False", "ContextTooLong")
    assert uids(world) == pods


def test_what_others_wrote_into_the_spec_is_no_part_of_the_change(world: World, tmp_path: Path) -> None:
    """An approval of this command line, and a replica count of /scale, stay when a manifest without them is applied."""
    change = Change(world, tmp_path)
    manual = {
        "planPolicy": "Manual",
        "scaling": {"mode": "External", "minReplicas": None, "maxReplicas": None},
    }
    change.write(**manual)
    manifest = yaml.safe_load(change.file.read_text())
    manifest["spec"]["replicas"] = 1
    change.file.write_text(yaml.safe_dump(manifest))
    said = change.diff(code=1)
    assert (said["pods"], said["after"], said["waitsPhrases"][-1]) == ("Stay", None, "1 pod starts")
    change.apply()
    world.until("chat", "Ready", "False", "WaitsForApproval")
    assert world.pods() == []
    shardwright(change.user, "approve", "chat", "--revision", said["waits"]["revision"])
    world.ready("chat")
    assert change.diff(code=0)["change"] == "Unchanged"
    change.apply()
    assert world.get("chat")["spec"]["approvedRevision"] == said["waits"]["revision"]
    world.ready("chat")
    manifest["spec"]["engine"] = ENV["engine"]
    change.file.write_text(yaml.safe_dump(manifest))
    said = change.diff("--fail-on", "restart", code=1)
    assert (said["pods"], said["waitsPhrases"][-1]) == ("Stay", "pods restart")
    pods = uids(world)
    change.apply()
    world.until("chat", "Ready", "False", "WaitsForApproval")
    assert world.get("chat")["status"]["proposal"]["revision"] == said["waits"]["revision"]
    assert uids(world) == pods


def test_an_administrator_compares_on_the_live_nodes(world: World, tmp_path: Path) -> None:
    change = Change(world, tmp_path)
    change.write()
    words = ("diff", "-f", str(change.file), "--cluster", "-n", world.namespace)
    assert "+1 GPU" in shardwright(world.cluster.kubeconfig, *words, code=1)
    refused = shardwright(change.user, *words, code=2)
    assert "--cluster: GET /api/v1/nodes: 403 Forbidden" in refused

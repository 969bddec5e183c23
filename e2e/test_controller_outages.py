"""The operator on a control plane of its own that is taken away from under it: CRD, API server, login."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller_world import World, gone, install, world_of
from harness.cluster import Cluster
from harness.waiting import wait_until
from operator_process import NAMESPACE, OperatorProcess

pytestmark = pytest.mark.cluster

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/llmservices.shardwright.dev"
TEAM = "outage"
SERVED_S = 5.0
"""How soon a service made after an outage must have its Deployment."""


@pytest.fixture(scope="module")
def alone() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        yield cluster


@pytest.fixture(scope="module")
def operator(alone: Cluster) -> Iterator[OperatorProcess]:
    process = OperatorProcess(alone)
    install(process)
    yield process
    process.stop()


@pytest.fixture
def world(alone: Cluster, operator: OperatorProcess) -> Iterator[World]:
    with world_of(alone, operator, TEAM) as made:
        yield made


def served_within(world: World, name: str) -> float:
    """Seconds from the apply of a new service to its Deployment."""
    world.apply(world.service(name))
    began = time.monotonic()
    wait_until(lambda: world.deployments(name), f"the Deployment of {name}", 30, 0.05)
    return time.monotonic() - began


def test_a_missing_crd_is_waited_for(alone: Cluster, operator: OperatorProcess) -> None:
    alone.api.delete(CRD)
    wait_until(lambda: gone(alone, CRD), "the end of the CRD")
    operator.launch()
    pid = operator.pid
    wait_until(lambda: "crds | kubectl apply" in operator.tail(), "the operator to say what is missing")
    assert not operator.says_ready()
    time.sleep(3)
    install(operator)
    assert operator.wait_ready(timeout_s=20) < 10
    assert operator.pid == pid
    with world_of(alone, operator, TEAM) as world:
        world.add_node("a")
        assert served_within(world, "first") < SERVED_S
        world.ready("first")


def test_an_api_server_away_for_ten_seconds(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("before"))
    world.ready("before")
    pid = world.operator.pid
    versions = world.versions()
    world.cluster.kill_apiserver()
    time.sleep(10)
    world.cluster.start_apiserver()
    assert served_within(world, "after") < SERVED_S
    world.ready("after", timeout_s=60)
    assert world.operator.pid == pid
    kept = {key: version for key, version in world.versions().items() if key in versions}
    changed = {key for key, version in kept.items() if version != versions[key]}
    assert not [key for key in changed if key[0] not in {"Deployment", "PodDisruptionBudget", "LLMService"}]


def test_a_login_that_expires_is_read_anew(world: World) -> None:
    """Tokens of a ServiceAccount that was made anew are refused, as expired ones are."""
    world.add_node("a")
    world.apply(world.service("before"))
    world.ready("before")
    pid = world.operator.pid
    kubeconfig = world.cluster.service_account_kubeconfig(NAMESPACE, world.operator.account)
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{world.operator.account}"
    world.cluster.api.delete(account)
    world.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": world.operator.account, "namespace": NAMESPACE},
        }
    )
    wait_until(lambda: refused(world, kubeconfig), "the old token to be refused", 60)
    time.sleep(11)  # the API server believes a token that it has checked for 10 s
    world.apply(world.service("during"))
    time.sleep(4)
    assert not world.get("during").get("status", {}).get("conditions")
    # All watches come back to a server that refuses them, the nodes' too.
    world.cluster.restart_apiserver()
    time.sleep(8)
    assert world.operator.pid == pid
    # To the same file, as the kubelet does.
    assert world.cluster.service_account_kubeconfig(NAMESPACE, world.operator.account) == kubeconfig
    wait_until(lambda: world.deployments("during"), "the Deployment of a service made meanwhile", 30)
    assert served_within(world, "after") < SERVED_S
    assert world.operator.healthy()
    world.add_node("b", gpus=8)
    world.apply(world.service("more", replicas=8))
    world.ready("more", timeout_s=60)
    assert world.operator.pid == pid


def refused(world: World, kubeconfig: Path) -> bool:
    said = world.cluster.kubectl("get", "llmservices", "-A", check=False, kubeconfig=kubeconfig)
    return "Unauthorized" in said or "logged in" in said

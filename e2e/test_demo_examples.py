"""The examples of the demo, under the rights of the chart: planned, placed and run where they promise, and after a loss.

The plan and the places are judged by the demo's own `check`, and once more here in plain figures.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import demo_view as view
from controller_world import SERVICES, is_ready
from demo import EXPECTED, UNUSABLE_NODES, check, example
from harness.api import Json
from harness.cluster import Cluster
from harness.waiting import wait_until
from operator_process import NAMESPACE, OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("demo_nodes")]

H100, A6000 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-RTX-A6000"
LOST = {"kwok.shardwright.test/lost": "true"}
UNREACHABLE = "node.kubernetes.io/unreachable"


@dataclass
class Fleet:
    """The demo pool, and a namespace with examples in it."""

    cluster: Cluster
    namespace: str

    def apply(self, file: str) -> str:
        service = example(file)
        name = str(service["metadata"]["name"])
        service["metadata"]["namespace"] = self.namespace
        self.cluster.api.apply(f"{SERVICES.format(self.namespace)}/{name}", service)
        return name

    def get(self, name: str) -> Json:
        return self.cluster.api.get(f"{SERVICES.format(self.namespace)}/{name}")

    def is_ready(self, name: str) -> bool:
        service = self.get(name)
        seen = service.get("status", {}).get("observedGeneration") == service["metadata"]["generation"]
        return bool(seen) and view.condition(service, "Ready")["status"] == "True"

    def until_ready(self, name: str) -> Json:
        wait_until(lambda: self.is_ready(name), f"{name} Ready")
        return self.get(name)

    def pods(self, name: str) -> list[Json]:
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=shardwright.dev/service={name}"
        return list(self.cluster.api.get(path)["items"])

    def products(self) -> dict[str, str]:
        found = self.cluster.api.get("/api/v1/nodes")["items"]
        return {
            n["metadata"]["name"]: n["metadata"]["labels"].get("nvidia.com/gpu.product", "") for n in found
        }

    def delete(self, name: str) -> None:
        self.cluster.api.delete(f"{SERVICES.format(self.namespace)}/{name}")

    def taints(self, node: str) -> set[str]:
        found = self.cluster.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints", [])
        return {each["key"] for each in found}

    def mark(self, node: str, annotations: dict[str, str | None]) -> None:
        self.cluster.api.merge(f"/api/v1/nodes/{node}", {"metadata": {"annotations": annotations}})


@pytest.fixture
def fleet(cluster: Cluster, operator: OperatorProcess, namespace: str) -> Iterator[Fleet]:
    assert operator.user == f"system:serviceaccount:{NAMESPACE}:shardwright"
    yield Fleet(cluster, namespace)
    for service in cluster.api.get(SERVICES.format(namespace))["items"]:
        cluster.api.delete(f"{SERVICES.format(namespace)}/{service['metadata']['name']}")


def test_the_three_examples_run_on_the_products_that_they_promise(fleet: Fleet) -> None:
    names = [fleet.apply(each.file) for each in EXPECTED]
    services = {name: fleet.until_ready(name) for name in names}
    products = fleet.products()
    for name, expected in zip(names, EXPECTED, strict=True):
        assert check(expected, services[name], fleet.pods(name), products) == []

    def shape(name: str) -> tuple[int, int, int]:
        plan = services[name]["status"]["plan"]
        return plan["tensor"], plan["pipeline"], plan["gpusPerReplica"]

    def where(name: str) -> Counter[tuple[str, int]]:
        return Counter(
            (products[pod["spec"]["nodeName"]], view.gpus(pod)) for pod in fleet.pods(name) if is_ready(pod)
        )

    chat = services["chat-8b"]["status"]["plan"]["gpuProduct"]
    assert {name: shape(name) for name in names} == {
        "chat-8b": (1, 1, 1),
        "large-70b": (4, 1, 4),
        "code-32b-a6000": (2, 1, 2),
    }
    assert where("chat-8b") == {(chat, 1): 2}
    assert where("large-70b") == {(H100, 4): 1}
    assert where("code-32b-a6000") == {(A6000, 2): 1}


def test_a_node_that_falls_silent_is_told_and_its_replica_comes_up_on_another(fleet: Fleet) -> None:
    """The Node object stays and reports Ready Unknown, as when a machine loses its power.

    Here the simulated node says so itself. A node controller that finds a node silent marks its pods unready in the same
    step; this one was not asked to find it, so the test marks the pod.
    """
    name = fleet.apply("large-70b.yaml")
    before = fleet.until_ready(name)["status"]["plan"]
    [pod] = fleet.pods(name)
    lost = pod["spec"]["nodeName"]
    path = f"/api/v1/namespaces/{fleet.namespace}/pods/{pod['metadata']['name']}"
    unready = {"metadata": {"annotations": {"kwok.shardwright.test/never-ready": "true"}}}
    try:
        # Kubernetes evicts the pod after a minute: not before we looked.
        with fleet.cluster.paused("kube-controller-manager"):
            fleet.mark(lost, dict(LOST))
            fleet.cluster.api.merge(path, unready)
            wait_until(lambda: not fleet.is_ready(name), "told")
            assert view.condition(fleet.get(name), "Available")["status"] == "False"
            assert [p["metadata"]["uid"] for p in fleet.pods(name)] == [pod["metadata"]["uid"]]

        def replaced() -> bool:
            found = [p for p in fleet.pods(name) if is_ready(p)]
            return bool(found) and all(p["spec"]["nodeName"] != lost for p in found) and fleet.is_ready(name)

        wait_until(replaced, "a replica on another node")
        [new] = [p for p in fleet.pods(name) if is_ready(p)]
        assert fleet.products()[new["spec"]["nodeName"]] == H100
        assert new["spec"]["nodeName"] not in UNUSABLE_NODES
        after = fleet.get(name)["status"]["plan"]
        assert (after["tensor"], after["gpuProduct"]) == (before["tensor"], before["gpuProduct"])
        assert (
            new["metadata"]["labels"]["shardwright.dev/revision"]
            == pod["metadata"]["labels"]["shardwright.dev/revision"]
        ), "the same plan, on another node"
    finally:
        fleet.mark(lost, dict.fromkeys(LOST))
    wait_until(lambda: UNREACHABLE not in fleet.taints(lost), "the node back")

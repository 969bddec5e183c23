"""Fixtures of the end-to-end tests: one control plane per run, one with traffic per module that asks for it, one operator per module, one namespace per test.

They decide what tests share. Nodes are shared too, so a test that needs GPUs of its own adds its own nodes.
"""

import re
import secrets
from collections.abc import Iterator

import pytest

from controller_world import World, running_operator, world_of
from harness import network, nodes
from harness.api import ApiError
from harness.cluster import Cluster
from harness.fake_vllm import FakeVLLM
from harness.prometheus import Prometheus, listed_in
from harness.waiting import wait_until
from live_world import LiveWorld, live_world_of, measured_operator
from operator_process import OperatorProcess
from sim.world import LiveCluster, live_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Start a control plane without nodes; the first use on a machine builds its programs."""
    with Cluster() as running:
        yield running


@pytest.fixture(scope="session")
def demo_nodes(cluster: Cluster) -> list[nodes.Manifest]:
    """Add the demo pool and its foreign pods, and wait for them."""
    pool = nodes.demo_pool()
    cluster.apply(*pool, *nodes.demo_foreign_pods())
    cluster.wait_for_nodes(len(pool))
    return pool


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Make a fresh namespace. Afterwards its pods are gone, so that they hold no GPU from the next test."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = f"{stem}-{secrets.token_hex(3)}"
    cluster.api.post(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    # Pods created before their namespace has its account would be refused.
    wait_until(
        lambda: cluster.api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"),
        f"service account of {name}",
    )
    yield name
    cluster.api.delete(f"/api/v1/namespaces/{name}")
    # The namespace controller takes 5 s to begin. Nothing can be created there any more, so pods may go at once.
    wait_until(lambda: _delete_pods(cluster, name), f"the end of the pods in {name}")


@pytest.fixture(scope="module")
def operator(cluster: Cluster) -> Iterator[OperatorProcess]:
    """Run the operator with the chart's rights for the tests of one module."""
    with running_operator(cluster) as process:
        yield process


@pytest.fixture
def world(cluster: Cluster, operator: OperatorProcess, namespace: str) -> Iterator[World]:
    """Give a test its namespace and nodes, with the operator running."""
    with world_of(cluster, operator, namespace) as made:
        yield made


@pytest.fixture(scope="module")
def vllm() -> Iterator[FakeVLLM]:
    """Run the exporter of engines that are made up, without any."""
    with FakeVLLM() as server:
        yield server


@pytest.fixture(scope="module")
def scrape_interval_s() -> int:
    """How often they are scraped; a module that wants otherwise defines it anew."""
    return 1


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, scrape_interval_s: int) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes what its `targets` list; see `FakeVLLM.write`."""
    directory = tmp_path_factory.mktemp("prometheus")
    config = listed_in(directory / "targets.json")
    with Prometheus(directory, config, scrape_interval_s=scrape_interval_s) as server:
        yield server


@pytest.fixture(scope="module")
def live_scale() -> float:
    """How much faster the pods' time runs; a module that wants another defines it anew."""
    return 5.0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, live_scale: float) -> Iterator[LiveCluster]:
    """Run a control plane in a private network, with a node agent that runs pods as processes."""
    if reason := network.why_not():
        pytest.skip(reason)
    with live_cluster(tmp_path_factory.mktemp("live"), scale=live_scale) as made:
        yield made


@pytest.fixture(scope="module")
def live_operator(live: LiveCluster) -> Iterator[tuple[OperatorProcess, Prometheus]]:
    """Run the operator there, and a Prometheus that scrapes the pods."""
    with measured_operator(live) as running:
        yield running


@pytest.fixture
def live_world(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[LiveWorld]:
    """Give a test its namespace there, with engines that run and clients to send requests."""
    with live_world_of(live, *live_operator) as made:
        yield made


def _delete_pods(cluster: Cluster, namespace: str) -> bool:
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        cluster.api.delete(f"{path}?gracePeriodSeconds=0")
        return not cluster.api.get(path)["items"]
    except ApiError as error:
        return error.status == 404

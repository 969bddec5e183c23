"""What the API server does not take is told, tears nothing down, and holds no GPUs from others."""

from collections.abc import Iterator

import pytest

from controller_world import SERVICES, World, world_of
from harness.api import Json
from harness.cluster import Cluster
from harness.waiting import wait_until
from operator_process import OperatorProcess

pytestmark = pytest.mark.cluster

# The API server answers each of these with the status 500.
UNTYPED: dict[str, tuple[Json, str]] = {
    "a field of a container": ({"containers": [{"name": "engine", "livenesProbe": {}}]}, "livenesProbe"),
    "a field of the pod": ({"hostNetworkk": True}, "hostNetworkk"),
    "a text for a boolean": ({"shareProcessNamespace": "yes"}, "shareProcessNamespace"),
    "a text for a number": ({"securityContext": {"fsGroup": "abc"}}, "fsGroup"),
    "a fraction for a number": ({"securityContext": {"fsGroup": 1.5}}, "cannot convert float64"),
    "an amount that is none": (
        {"containers": [{"name": "beside", "image": "i", "resources": {"requests": {"cpu": "many"}}}]},
        "quantities must match",
    ),
}


@pytest.fixture
def world(cluster: Cluster, operator: OperatorProcess, namespace: str) -> Iterator[World]:
    with world_of(cluster, operator, namespace) as made:
        yield made


def test_a_pod_template_that_is_none_is_told_and_what_serves_goes_on(world: World) -> None:
    """Where there is no room beside what serves, either."""
    world.add_node("a", gpus=1)
    world.apply(world.service("chat"))
    world.ready("chat")
    pods = {pod["metadata"]["uid"] for pod in world.pods()}
    for template, words in UNTYPED.values():
        world.apply(world.service("chat", podTemplate={"spec": template}))
        told = world.until("chat", "Accepted", "False", "PodTemplateRefused")["message"]
        assert "spec.podTemplate" in told
        assert words in told
        assert world.is_("chat", "Available", "True")
        world.until("chat", "Stalled", "True")
    world.at_rest()
    assert {pod["metadata"]["uid"] for pod in world.pods()} == pods
    world.apply(world.service("chat"))
    world.ready("chat")
    assert {pod["metadata"]["uid"] for pod in world.pods()} == pods


def made_in(world: World, namespace: str, name: str) -> Json:
    """Give a service of another namespace that wants the nodes of this one."""
    service = world.service(name)
    service["metadata"]["namespace"] = namespace
    return service


def test_a_namespace_without_quota_holds_no_gpus_from_others(world: World) -> None:
    world.add_node("a", gpus=1)
    api = world.cluster.api
    other = World(world.cluster, world.operator, f"{world.namespace}-b", [])
    head = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other.namespace}}
    api.post("/api/v1/namespaces", head)
    path = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    spec = {"hard": {"requests.nvidia.com/gpu": "0"}}
    api.post(path, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": spec})
    wait_until(lambda: api.get(f"{path}/none")["status"].get("hard"), "the quota to be counted")
    try:
        world.apply(world.service("blocked"))
        told = world.until("blocked", "Placed", "False", "QuotaExceeded")["message"]
        assert "No GPUs are held" in told
        world.until("blocked", "Stalled", "True")
        world.at_rest()
        other.apply(made_in(world, other.namespace, "free"))
        other.ready("free")
        before = world.at_rest()
        api.delete(f"{SERVICES.format(other.namespace)}/free")
        api.delete(f"{path}/none")
        world.ready("blocked")
        assert {key for key, _ in before.items()} == {key for key, _ in world.written().items()}
    finally:
        api.delete(f"/api/v1/namespaces/{other.namespace}")

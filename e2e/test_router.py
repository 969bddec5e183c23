"""The real router before simulated engines: it finds the pods, serves, and loses nothing when one of them leaves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.waiting import wait_until
from live_world import LiveWorld
from sim.clients.load import Client, Work, lost
from sim.router import Router, why_not

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


@pytest.fixture
def router(live_world: LiveWorld, tmp_path: Path) -> Iterator[Router]:
    live_world.add_node("a", gpus=4)
    live_world.live.rule({"engine": {"start_s": 10.0}})
    live_world.apply(live_world.service("chat", replicas=2))
    live_world.ready("chat")
    made = Router(tmp_path, "power_of_two")
    labels = {"shardwright.dev/service": "chat", "shardwright.dev/serving": "true"}
    with made.discover(live_world.cluster.kubeconfig, live_world.namespace, 8000, labels):
        yield made


def pool(router: Router) -> set[str]:
    return {worker["url"] for worker in router.workers() if worker["is_healthy"]}


def test_it_follows_the_pods_and_no_request_is_lost(live_world: LiveWorld, router: Router) -> None:
    def urls() -> set[str]:
        return {f"http://{pod['status']['podIP']}:8000" for pod in live_world.serving("chat")}

    wait_until(lambda: len(urls()) == 2 and pool(router) == urls(), "both pods in the pool")
    with Client("chat", target=router.url) as client:
        client.load(6.0, Work([(200, 60)]))
        wait_until(lambda: len(client.results) > 20, "requests")
        leaving = live_world.serving("chat")[0]
        path = f"/api/v1/namespaces/{live_world.namespace}/pods/{leaving['metadata']['name']}"
        live_world.cluster.api.delete(path)
        wait_until(
            lambda: f"http://{leaving['status']['podIP']}:8000" not in pool(router), "it left the pool"
        )
        wait_until(lambda: len(urls()) == 2 and pool(router) == urls(), "another in its place")
        assert lost(client.drain()) == {}

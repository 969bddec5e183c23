"""To zero and back through the real router: no engine while nobody asks, and no request lost on either way."""

from collections.abc import Iterator

import pytest

from harness.api import Json
from harness.prometheus import Prometheus
from harness.waiting import wait_until
from live_world import LiveWorld, live_world_of, measured_operator
from operator_process import OperatorProcess
from sim.clients.load import Client, lost
from sim.router import why_not
from sim.world import LiveCluster

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
MODEL = {"step_ms": 20.0, "per_prefill_token_ms": 0.05, "kv_tokens": 96_000}
KEY = "known-to-clients-alone"
IDLE_S = 60
"""The least that may be written. The operator's time is the wall's, whatever that of the pods is."""


@pytest.fixture(scope="module")
def live_operator(live: LiveCluster) -> Iterator[tuple[OperatorProcess, Prometheus]]:
    with measured_operator(live, "--scaling-interval", "1") as running:
        yield running


@pytest.fixture
def world(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[LiveWorld]:
    with live_world_of(live, *live_operator) as made:
        made.add_node("a", gpus=4)
        live.rule({"engine": {"model": MODEL, "start_s": 20.0}})
        scaling = {"minReplicas": 0, "maxReplicas": 2, "scaleToZero": {"idleSeconds": IDLE_S}}
        made.secret("keys", chat=KEY)
        routing = {
            "type": "Router",
            "maxQueuedRequests": 20,
            "apiKeySecretRef": {"name": "keys", "key": "chat"},
        }
        made.apply(made.service("chat", scaling=scaling, routing=routing, drain={"maxSeconds": 60}))
        yield made


@pytest.fixture
def client(world: LiveWorld) -> Iterator[Client]:
    world.ready("chat")
    wait_until(lambda: len(world.ready_pods("chat", "router")) == 2, "the routers")
    with world.client("chat", headers={"Authorization": f"Bearer {KEY}"}) as made:
        wait_until(lambda: len(made.targets) == 2, "the routers' addresses")
        yield made


def engines(world: LiveWorld) -> list[Json]:
    return [pod for pod in world.pods() if pod["metadata"]["labels"]["shardwright.dev/role"] == "engine"]


def size(world: LiveWorld) -> int:
    return sum(
        int(found["spec"]["replicas"])
        for found in world.deployments("chat")
        if found["metadata"]["labels"]["shardwright.dev/role"] == "engine"
    )


def told_to_strangers(world: LiveWorld) -> set[int]:
    """Give the statuses that requests without a key get."""
    with world.client("chat") as stranger:
        wait_until(lambda: len(stranger.targets) == 2, "the routers' addresses")
        return {result.status for result in stranger.at_once(3)}


def test_to_zero_and_back_twice_without_a_loss(world: LiveWorld, client: Client) -> None:
    assert lost(client.at_once(3)) == {}
    world.until("chat", "Ready", "True", "ScaledToZero")
    wait_until(lambda: not engines(world), "no engine")
    status = world.get("chat")["status"]
    assert (status["replicas"], status["scaling"]["desiredReplicas"]) == (0, 0)
    assert status["plan"]["pricePerHour"] == "0.00"
    world.until_event("chat", "ScaledToZero")
    assert len(world.ready_pods("chat", "router")) == 2

    # Another operator finds it there, and leaves it.
    before = world.at_rest()
    world.operator.stop()
    world.operator.start()
    assert world.at_rest() == before
    assert engines(world) == []

    # Who has no key wakes nobody, and learns why.
    assert told_to_strangers(world) == {401}
    assert world.at_rest() == before

    # The first requests after that share one cold start.
    results = client.at_once(10)
    assert lost(results) == {}
    assert len(results) == 10
    assert len(engines(world)) == 1
    assert size(world) == 1
    world.until("chat", "Ready", "True", "Serving")
    world.until_event("chat", "Woken")
    told = world.get("chat")["status"]["scaling"]["decisions"]
    assert [each["rule"] for each in told[:2]] == ["Woken", "Idle"]
    assert told_to_strangers(world) == {401}, "the engine asks for it too"
    assert lost(client.at_once(3)) == {}

    # It goes again, and who comes at the very moment is answered by the engine that leaves, or by the next one.
    wait_until(lambda: size(world) == 0, "zero again")
    assert lost(client.at_once(10)) == {}

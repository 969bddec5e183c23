"""Canaries with traffic: one that is slow and one that answers otherwise go back, and no request is lost."""

from collections.abc import Iterator

import pytest

from harness.api import Json
from harness.prometheus import Prometheus
from harness.waiting import wait_until
from live_world import LiveWorld, live_world_of, measured_operator
from operator_process import OperatorProcess
from sim.clients.load import Client, Work, failures
from sim.world import LiveCluster

pytestmark = pytest.mark.cluster
MODEL = {"step_ms": 20.0, "per_prefill_token_ms": 0.05, "kv_tokens": 96_000}
ENGINE = {"model": MODEL, "start_s": 20.0}
SLOW = ENGINE | {"model": MODEL | {"per_prefill_token_ms": 10.0}}
"""2 s for a prompt of 200 tokens, where the profile's target is 1 s."""
CANARY = {"canary": {"steps": [{"percent": 25, "minutes": 1}], "minSamples": 20}}


@pytest.fixture(scope="module")
def live_operator(live: LiveCluster) -> Iterator[tuple[OperatorProcess, Prometheus]]:
    with measured_operator(live, "--scaling-interval", "2") as running:
        yield running


@pytest.fixture
def world(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[LiveWorld]:
    with live_world_of(live, *live_operator) as made:
        made.add_node("a", gpus=8)
        live.rule({"engine": ENGINE})
        made.apply(service(made, "1"))
        made.ready("chat")
        yield made


@pytest.fixture
def client(world: LiveWorld) -> Iterator[Client]:
    with world.client("chat") as made:
        wait_until(lambda: len(made.targets) == 3, "endpoints")
        yield made


def service(world: LiveWorld, value: str) -> Json:
    engine = {"env": [{"name": "X", "value": value}]}
    return world.service("chat", replicas=3, engine=engine, rollout=CANARY)


def revisions(world: LiveWorld) -> dict[str, int]:
    return {
        item["metadata"]["labels"]["shardwright.dev/revision"]: item["spec"]["replicas"]
        for item in world.deployments("chat")
    }


@pytest.mark.parametrize(
    ("engine", "what"),
    [(SLOW, "TTFT"), (ENGINE | {"answers": "garbled"}, "the answers to the same prompts")],
    ids=["slow", "other-answers"],
)
def test_a_canary_that_is_worse_goes_back_and_loses_nothing(
    world: LiveWorld, client: Client, engine: Json, what: str
) -> None:
    before = revisions(world)
    client.load(9.0, Work([(200, 40)]))
    world.live.rule({"engine": engine})
    world.apply(service(world, "2"))
    wait_until(lambda: len(revisions(world)) == 2, "the canary")
    told = world.until("chat", "Degraded", "True", "CanaryWorse")
    assert what in told["message"]
    wait_until(lambda: revisions(world) == before, "the old revision alone")
    assert world.is_("chat", "Available", "True")
    results = client.drain()
    assert failures(results) == []
    assert len(results) > 50


def test_a_canary_as_good_as_the_old_revision_takes_its_place(world: LiveWorld, client: Client) -> None:
    before = revisions(world)
    client.load(9.0, Work([(200, 40)]))
    world.apply(service(world, "2"))
    wait_until(lambda: sorted(revisions(world).values()) == [1, 2], "the canary beside two of the old")
    [new] = revisions(world).keys() - before.keys()
    wait_until(lambda: revisions(world) == {new: 3}, "all of the new revision")
    world.ready("chat")
    assert failures(client.drain()) == []

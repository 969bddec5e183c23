"""Canaries with traffic: one that is slow and one that answers otherwise go back, and no request is lost.

And who goes when a service becomes smaller: the looks of the autoscaler are as close here.
"""

import json
import threading
import urllib.request
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


def stream(pod: Json, said: list[str]) -> threading.Thread:
    """Hold a stream open on one engine, and keep its last line."""
    url = f"http://{pod['status']['podIP']}:8000/v1/completions"
    body = {"prompt": "on and on", "max_tokens": 2000, "min_tokens": 2000, "stream": True, "ignore_eos": True}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def read() -> None:
        with urllib.request.urlopen(request) as answer:
            said.extend(line.decode().strip() for line in answer if line.strip())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def test_the_emptiest_go_first(world: LiveWorld) -> None:
    pods = world.serving("chat")
    said: list[str] = []
    held = stream(pods[1], said)
    metrics = f"http://{pods[1]['status']['podIP']}:8000/metrics"

    def runs() -> bool:
        with urllib.request.urlopen(metrics) as page:
            return any(
                line.startswith(b"vllm:num_requests_running") and not line.strip().endswith(b" 0.0")
                for line in page
            )

    wait_until(runs, "the stream")
    wait_until(lambda: seen_by_prometheus(world, pods[1]), "looks of the autoscaler")
    smaller = service(world, "1")
    smaller["spec"]["scaling"] = {"minReplicas": 1, "maxReplicas": 1}
    world.apply(smaller)
    wait_until(lambda: len(world.serving("chat")) == 1, "one replica")
    assert [p["metadata"]["name"] for p in world.serving("chat")] == [pods[1]["metadata"]["name"]]
    held.join()
    assert said[-1] == "data: [DONE]"


def seen_by_prometheus(world: LiveWorld, pod: Json) -> bool:
    name = pod["metadata"]["name"]
    found = world.prometheus.query(f'min_over_time(vllm:num_requests_running{{pod="{name}"}}[8s])')
    return any(float(row["value"][1]) > 0 for row in found)

"""The watchdog with traffic: an engine that hangs with green health, and one whose GPU fails, are replaced."""

import json
import urllib.request
from collections.abc import Iterator

import pytest

from harness.api import Json
from harness.prometheus import Prometheus
from harness.waiting import wait_until
from live_world import LiveWorld, live_world_of, measured_operator
from operator_process import OperatorProcess
from sim.clients.load import Client, Work, failures
from sim.world import CONTROL, LiveCluster

pytestmark = pytest.mark.cluster
MODEL = {"step_ms": 20.0, "per_prefill_token_ms": 0.05, "kv_tokens": 96_000}


@pytest.fixture(scope="module")
def live_operator(live: LiveCluster) -> Iterator[tuple[OperatorProcess, Prometheus]]:
    # Pods' time runs five times as fast, and the operator's does not: its bound is as much shorter.
    with measured_operator(live, "--scaling-interval", "1", "--stall-seconds", "12") as running:
        yield running


@pytest.fixture
def world(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[LiveWorld]:
    with live_world_of(live, *live_operator) as made:
        made.add_node("a", gpus=8)
        live.rule({"engine": {"model": MODEL, "start_s": 20.0}})
        made.apply(made.service("chat", replicas=3))
        made.ready("chat")
        yield made


@pytest.fixture
def client(world: LiveWorld) -> Iterator[Client]:
    with world.client("chat") as made:
        wait_until(lambda: len(made.targets) == 3, "endpoints")
        made.load(9.0, Work([(200, 40)]))
        wait_until(lambda: len(made.results) > 20, "requests")
        yield made


def break_(pod: Json, fault: str) -> None:
    url = f"http://{pod['status']['podIP']}:{CONTROL}/faults"
    body = json.dumps({"fault": fault}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def is_green(pod: Json) -> bool:
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8000/health") as answer:
        return bool(answer.status == 200)


def names(world: LiveWorld) -> set[str]:
    return {pod["metadata"]["name"] for pod in world.serving("chat")}


def restarts(world: LiveWorld) -> dict[str, int]:
    return {
        pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"]
        for pod in world.serving("chat")
    }


def events(world: LiveWorld) -> set[str]:
    found = world.cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events")["items"]
    return {event["reason"] for event in found if event["regarding"]["kind"] == "LLMService"}


@pytest.mark.parametrize(("fault", "reason"), [("Hang", "EngineStalled"), ("XID", "GPUFault")])
def test_a_broken_engine_is_replaced_while_the_others_serve_and_no_other_request_is_lost(
    world: LiveWorld, client: Client, fault: str, reason: str
) -> None:
    before = names(world)
    broken, *_ = world.serving("chat")
    name, address = broken["metadata"]["name"], f"http://{broken['status']['podIP']}:8000"
    break_(broken, fault)
    if fault == "Hang":
        assert is_green(broken), "nothing but its tokens tells"
    told = world.until("chat", "Degraded", "True", reason)
    assert name in told["message"]
    assert broken["spec"]["nodeName"] in told["message"]
    wait_until(lambda: name not in names(world) and len(names(world)) == 3, "another in its place")
    assert names(world) >= before - {name}, "the others stay"
    assert set(restarts(world).values()) == {0}
    wait_until(lambda: address not in client.targets and len(client.targets) == 3, "its address forgotten")
    count = len(client.results)
    wait_until(lambda: len(client.results) > count + 30, "requests after it")
    world.ready("chat")
    results = client.drain()
    lost = failures(results)
    assert {result.target for result in lost} <= {address}, lost
    assert len([result for result in results if result.target != address]) > 50
    assert reason in events(world)

"""An LLMService from its manifest to answered requests: rendered, placed, started, routed, drained and measured."""

from collections.abc import Iterator

import pytest

from harness.api import ApiError, Json
from harness.prometheus import Prometheus
from harness.waiting import wait_until
from live_world import LiveWorld, live_world_of
from operator_process import OperatorProcess
from sim.clients.load import Client, Work, lost, percentile
from sim.world import LiveCluster

pytestmark = pytest.mark.cluster
KV_TOKENS = 96_000
MODEL = {"step_ms": 20.0, "per_prefill_token_ms": 0.05, "kv_tokens": KV_TOKENS}


@pytest.fixture(scope="module")
def world(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[LiveWorld]:
    # One service for all tests of the module: each start of an engine costs seconds.
    with live_world_of(live, *live_operator) as made:
        made.add_node("a", gpus=8)
        live.rule({"engine": {"model": MODEL, "start_s": 20.0}})
        made.apply(made.service("chat", replicas=2, slo={"ttft": {"milliseconds": 2000, "percentile": 95}}))
        yield made


@pytest.fixture
def client(world: LiveWorld) -> Iterator[Client]:
    with world.client("chat") as made:
        wait_until(lambda: len(made.targets) == len(world.serving("chat")) > 0, "endpoints")
        yield made


def gone(world: LiveWorld, pod: Json) -> bool:
    try:
        world.cluster.api.get(f"/api/v1/namespaces/{world.namespace}/pods/{pod['metadata']['name']}")
    except ApiError as error:
        return error.status == 404
    return False


def test_what_is_rendered_runs_and_becomes_available(world: LiveWorld) -> None:
    world.ready("chat")
    pods = world.serving("chat")
    assert len(pods) == 2
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    assert len({pod["status"]["podIP"] for pod in pods}) == 2
    for pod in pods:
        assert "Maximum concurrency for 8,192 tokens" in world.live.log(pod), "the plan's own context"
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert world.is_("chat", "Available", "True")


def test_requests_are_served_through_the_service_and_a_pod_leaves_without_losing_one(
    world: LiveWorld, client: Client
) -> None:
    world.ready("chat")
    client.load(6.0, Work([(200, 100), (1000, 50)]))
    wait_until(lambda: len(client.results) > 20, "requests")
    leaving = world.serving("chat")[0]
    address = f"http://{leaving['status']['podIP']}:8000"
    wait_until(lambda: client.in_flight > 2, "streams")
    world.cluster.api.delete(f"/api/v1/namespaces/{world.namespace}/pods/{leaving['metadata']['name']}")
    wait_until(lambda: gone(world, leaving), "the end of the pod")
    wait_until(lambda: len(world.serving("chat")) == 2, "another in its place")
    wait_until(lambda: len(client.targets) == 2 and address not in client.targets, "its address known")
    after = len(client.results)
    wait_until(lambda: len(client.results) > after + 20, "requests after it")
    results = client.drain()
    assert lost(results) == {}
    assert any(result.target == address for result in results), "it served"
    assert percentile([result.ttft_s or 0.0 for result in results], 50) > 0


def test_the_answers_of_all_replicas_are_the_same(world: LiveWorld, client: Client) -> None:
    world.ready("chat")
    answers = [client.ask("which is the longest river") for _ in range(8)]
    assert len({answer.target for answer in answers}) == 2
    assert len({answer.said for answer in answers}) == 1


def test_what_the_engines_show_reaches_the_calibration(world: LiveWorld, client: Client) -> None:
    world.ready("chat")
    predicted = world.get("chat")["status"]["plan"]["kvTokens"]

    def figures() -> dict[str, Json]:
        found = world.get("chat")["status"].get("calibration", {}).get("figures", [])
        return {figure["name"]: figure for figure in found}

    client.load(6.0, Work([(500, 60)]))
    wait_until(lambda: figures().get("KVTokens", {}).get("ratio"), "the KV cache measured")
    assert float(figures()["KVTokens"]["ratio"]) == pytest.approx(KV_TOKENS / predicted, abs=0.01)
    wait_until(lambda: figures().get("TTFT", {}).get("ratio"), "times measured")
    assert "TTFT P95 2000 ms" in world.until("chat", "SLOMet", "True", "TargetsKept")["message"]
    assert lost(client.drain()) == {}


@pytest.mark.parametrize(
    ("name", "rule", "reason"),
    [
        ("oom", {"engine": {"load_fault": "OutOfMemory", "start_s": 2.0}}, "OutOfMemory"),
        ("gated", {"engine": {"load_fault": "HubUnauthorized", "start_s": 2.0}}, "HubUnauthorized"),
        ("image", {"pull": "not found"}, "ImagePull"),
    ],
)
def test_why_an_engine_does_not_start_is_told_from_what_its_pod_shows(
    world: LiveWorld, name: str, rule: dict[str, Json], reason: str
) -> None:
    world.ready("chat")
    world.live.rule(
        {"engine": {"model": MODEL, "start_s": 20.0}},
        {"match": {"labels": {"shardwright.dev/service": name}}} | rule,
    )
    world.apply(world.service(name))
    world.until(name, "Degraded", "True", reason)
    assert world.is_("chat", "Ready", "True"), "its neighbour serves"

"""A service behind the real router, with `shardwright endpoints` beside it: who comes, who leaves, and what is lost."""

import json
import urllib.request
from collections.abc import Iterator

import pytest

from controller_world import SERVICES
from harness.api import Json
from harness.prometheus import Prometheus
from harness.waiting import wait_until
from live_world import LiveWorld, live_world_of
from operator_process import OperatorProcess
from sim.clients.load import Client, Outcome, Work, failures
from sim.engine.behaviour import CONTROL_PORT
from sim.router import why_not
from sim.world import LiveCluster

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
MODEL = {"step_ms": 20.0, "per_prefill_token_ms": 0.05, "kv_tokens": 96_000}
WORK = Work([(200, 100), (800, 40)])
ROUTED = {"routing": {"type": "Router"}, "drain": {"maxSeconds": 120}}


@pytest.fixture(scope="module")
def world(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[LiveWorld]:
    with live_world_of(live, *live_operator) as made:
        made.add_node("a", gpus=8)
        live.rule({"engine": {"model": MODEL, "start_s": 20.0}})
        made.apply(made.service("chat", replicas=2, **ROUTED))
        yield made


@pytest.fixture
def client(world: LiveWorld) -> Iterator[Client]:
    settled(world)
    with world.client("chat") as made:
        wait_until(
            lambda: set(made.targets) == {url(pod) for pod in routers(world)}, "the routers' addresses"
        )
        yield made


def settled(world: LiveWorld, replicas: int = 2) -> None:
    world.ready("chat")
    wait_until(lambda: len(world.serving("chat")) == replicas, "the engines")
    wait_until(lambda: len(routers(world)) == 2, "the routers")
    wait_until(lambda: in_step(world), "the routers' lists")


def routers(world: LiveWorld) -> list[Json]:
    return world.ready_pods("chat", "router")


def url(pod: Json) -> str:
    return f"http://{pod['status']['podIP']}:8000"


def get(address: str) -> Json:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=60) as answer:
        return json.load(answer)


def listed(router: Json) -> set[str]:
    return set(get(f"{url(router)}/list_workers")["urls"])


def sliced(world: LiveWorld) -> set[str]:
    """Give who serves, as the EndpointSlices of the engines' Service have it."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{world.namespace}/endpointslices"
    found = world.cluster.api.get(f"{path}?labelSelector=kubernetes.io/service-name=chat-engine")["items"]
    return {
        f"http://{endpoint['addresses'][0]}:8000"
        for piece in found
        for endpoint in piece.get("endpoints") or []
        if endpoint["conditions"].get("ready")
    }


def in_step(world: LiveWorld) -> bool:
    wanted = sliced(world)
    return all(listed(router) == wanted for router in routers(world))


def fault(pod: Json, name: str) -> int:
    """Fail an engine; give how many requests it had."""
    control = f"http://{pod['status']['podIP']}:{CONTROL_PORT}"
    running = int(get(f"{control}/state")["in_flight"])
    body = json.dumps({"fault": name}).encode()
    asked = urllib.request.Request(f"{control}/faults", body, {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=60):
        return running


def served(client: Client, more: int = 20) -> None:
    begun = len(client.results)
    wait_until(lambda: len(client.results) >= begun + more, "requests")


def change(world: LiveWorld, **spec: Json) -> None:
    path = f"{SERVICES.format(world.namespace)}/chat"
    world.cluster.api.merge(path, {"spec": spec})


def test_it_answers_through_its_routers(world: LiveWorld, client: Client) -> None:
    service = world.cluster.api.get(f"/api/v1/namespaces/{world.namespace}/services/chat")
    assert service["spec"]["selector"]["shardwright.dev/role"] == "router"
    assert "--policy=kv_aware" in routers(world)[0]["spec"]["containers"][0]["args"]
    client.load(6.0, WORK)
    served(client)
    assert failures(client.drain()) == []
    counts = [
        get(f"http://{pod['status']['podIP']}:{CONTROL_PORT}/state")["steps"] for pod in world.serving("chat")
    ]
    assert all(counts), "both engines worked"
    assert world.is_("chat", "Available", "True")


def test_a_killed_engine_fails_nothing_but_streams_begun_on_it(world: LiveWorld, client: Client) -> None:
    client.load(8.0, WORK)
    served(client)
    running = fault(world.serving("chat")[0], "Exit")
    served(client, 40)
    results = client.drain()
    assert {result.outcome for result in results} <= {Outcome.OK, Outcome.CUT}
    # What was on its way while its state was read may be one or two more.
    assert sum(result.outcome is Outcome.CUT for result in results) <= running + 2


def test_scaling_down_and_up_loses_nothing(world: LiveWorld, client: Client) -> None:
    client.load(6.0, WORK)
    for replicas in (1, 2):
        change(world, scaling={"minReplicas": replicas, "maxReplicas": replicas})
        settled(world, replicas)
        served(client)
    assert failures(client.drain()) == []


def test_a_rollout_loses_nothing(world: LiveWorld, client: Client) -> None:
    before = {pod["metadata"]["name"] for pod in world.serving("chat")}
    client.load(6.0, WORK)
    change(world, engine={"args": ["--seed=7"]})
    wait_until(
        lambda: not before & {pod["metadata"]["name"] for pod in world.serving("chat")}, "other engines"
    )
    settled(world)
    served(client)
    assert failures(client.drain()) == []


def test_a_router_that_leaves_loses_nothing(world: LiveWorld, client: Client) -> None:
    client.load(6.0, WORK)
    served(client)
    leaving = routers(world)[0]["metadata"]
    world.cluster.api.delete(f"/api/v1/namespaces/{world.namespace}/pods/{leaving['name']}")
    wait_until(lambda: leaving["name"] not in {pod["metadata"]["name"] for pod in routers(world)}, "it left")
    settled(world)
    served(client)
    assert failures(client.drain()) == []


def test_no_engine_that_left_during_an_outage_stays_and_requests_go_on(
    world: LiveWorld, client: Client
) -> None:
    client.load(6.0, WORK)
    served(client)
    leaving = world.serving("chat")[0]
    world.cluster.api.delete(f"/api/v1/namespaces/{world.namespace}/pods/{leaving['metadata']['name']}")
    world.cluster.kill_apiserver()
    served(client, 40)
    world.cluster.start_apiserver()
    wait_until(lambda: url(leaving) not in sliced(world), "the slices without it")
    wait_until(lambda: in_step(world), "the routers without it")
    settled(world)
    served(client)
    assert failures(client.drain()) == []


def test_the_endpoint_moves_to_the_engines_and_back_without_a_loss(world: LiveWorld, client: Client) -> None:
    def selected() -> str:
        service = world.cluster.api.get(f"/api/v1/namespaces/{world.namespace}/services/chat")
        return str(service["spec"]["selector"]["shardwright.dev/role"])

    engines = {pod["metadata"]["name"] for pod in world.serving("chat")}
    client.load(6.0, WORK)
    change(world, routing={"type": "Service"})
    wait_until(lambda: selected() == "engine", "the engines selected")
    wait_until(lambda: not routers(world), "the end of the routers")
    served(client)
    change(world, routing={"type": "Router"})
    wait_until(lambda: selected() == "router", "the routers selected")
    assert routers(world), "the Service never selects routers of which none is ready"
    settled(world)
    served(client)
    assert failures(client.drain()) == []
    assert {pod["metadata"]["name"] for pod in world.serving("chat")} == engines, "no engine moved"

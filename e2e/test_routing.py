"""A service behind the real router, with `shardwright endpoints` beside it: who comes, who leaves, and what is lost."""

from collections.abc import Iterator

import pytest

from harness.prometheus import Prometheus
from harness.waiting import wait_until
from live_world import live_world_of
from operator_process import OperatorProcess
from routed import ROUTED, Routed, served, state
from sim.clients.load import Client, Outcome, Work, lost
from sim.router import why_not
from sim.world import LiveCluster

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
MODEL = {"step_ms": 20.0, "per_prefill_token_ms": 0.05, "kv_tokens": 96_000}
WORK = Work([(200, 100), (800, 40)])


@pytest.fixture(scope="module")
def service(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[Routed]:
    with live_world_of(live, *live_operator) as world:
        world.add_node("a", gpus=8)
        live.rule({"engine": {"model": MODEL, "start_s": 20.0}})
        world.apply(world.service("chat", replicas=2, **ROUTED))
        yield Routed(world)


@pytest.fixture
def client(service: Routed) -> Iterator[Client]:
    service.settled(2)
    with service.client() as made:
        service.known_to(made)
        made.load(6.0, WORK)
        served(made)
        yield made


def test_it_answers_through_its_routers(service: Routed, client: Client) -> None:
    world = service.world
    found = world.cluster.api.get(f"/api/v1/namespaces/{world.namespace}/services/chat")
    assert found["spec"]["selector"]["shardwright.dev/role"] == "router"
    assert "--policy=kv_aware" in service.routers[0]["spec"]["containers"][0]["args"]
    assert lost(client.drain()) == {}
    assert all(state(pod)["steps"] for pod in service.engines), "both engines worked"
    assert world.is_("chat", "Available", "True")


def test_scaling_down_and_up_loses_nothing(service: Routed, client: Client) -> None:
    for replicas in (1, 2):
        service.change(scaling={"minReplicas": replicas, "maxReplicas": replicas})
        service.settled(replicas)
        served(client)
    assert lost(client.drain()) == {}


def test_a_router_that_leaves_loses_nothing(service: Routed, client: Client) -> None:
    leaving = service.routers[0]
    service.delete(leaving)
    name = leaving["metadata"]["name"]
    wait_until(lambda: name not in {pod["metadata"]["name"] for pod in service.routers}, "it left")
    service.settled(2)
    served(client)
    assert lost(client.drain()) == {}


def test_the_endpoint_moves_to_the_engines_and_back_without_a_loss(service: Routed, client: Client) -> None:
    world = service.world

    def selected() -> str:
        found = world.cluster.api.get(f"/api/v1/namespaces/{world.namespace}/services/chat")
        return str(found["spec"]["selector"]["shardwright.dev/role"])

    engines = {pod["metadata"]["name"] for pod in service.engines}
    service.change(routing={"type": "Service"})
    wait_until(lambda: selected() == "engine", "the engines selected")
    wait_until(lambda: not service.routers, "the end of the routers")
    served(client)
    service.change(routing={"type": "Router"})
    wait_until(lambda: selected() == "router", "the routers selected")
    assert service.routers, "the Service never selects routers of which none is ready"
    service.settled(2)
    served(client)
    assert lost(client.drain()) == {}
    assert {pod["metadata"]["name"] for pod in service.engines} == engines, "no engine moved"


def test_beyond_what_may_wait_it_is_refused_and_the_rest_is_answered(service: Routed) -> None:
    before = service.replicas()
    service.change(engine={"maxNumSeqs": 2}, routing={"maxQueuedRequests": 1})
    wait_until(lambda: service.replicas().keys().isdisjoint(before), "the new revision alone")
    service.settled(2)
    args = service.engines[0]["spec"]["containers"][0]["args"]
    assert "--max-num-queued-reqs=3" in args
    with service.client() as client:
        service.known_to(client)
        # Many more than may wait: the circuits of engines that refuse so often must not open.
        results = client.at_once(40, tokens=1000)
        assert {each.outcome for each in results} == {Outcome.OK, Outcome.REJECTED}
        # Two engines have three each; a router that does not see the other's requests may try a full one only.
        assert 3 <= sum(each.outcome is Outcome.OK for each in results) <= 6
        again = [each.outcome for each in client.at_once(2)]
        assert again == [Outcome.OK] * 2, "then there is room again"

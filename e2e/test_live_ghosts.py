"""Engines that are killed or leave at random, behind the real router: no ghost stays on a list, and no request is lost with them but the streams begun on the killed.

`SHARDWRIGHT_KILLS` says how many; CI has few of them.
"""

import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

from harness.api import Json
from harness.prometheus import Prometheus
from harness.waiting import wait_until
from live_world import live_world_of
from operator_process import OperatorProcess
from routed import ROUTED, Routed, listed, served, state, url
from sim.clients.load import Client, Outcome, Result, Work
from sim.router import why_not
from sim.world import LiveCluster

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
KILLS = int(os.environ.get("SHARDWRIGHT_KILLS", "10"))
REPLICAS = 5
MODEL = {"step_ms": 150.0, "per_prefill_token_ms": 0.2, "kv_tokens": 96_000}
ENGINE = {"model": MODEL, "start_s": 10.0}
WORK = Work([(200, 60)])
WAYS = ("process", "pod", "leave")
"""SIGKILL of the engine, which starts anew in its pod; deletion without grace, which kills it too; and deletion as usual, which cuts nothing."""


@pytest.fixture(scope="module")
def service(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[Routed]:
    with live_world_of(live, *live_operator) as world:
        world.add_node("a", gpus=8)
        live.rule({"engine": ENGINE})
        world.apply(world.service("chat", replicas=REPLICAS, **ROUTED))
        yield Routed(world)


@pytest.fixture
def client(service: Routed) -> Iterator[Client]:
    service.settled(REPLICAS)
    with service.client() as made:
        service.known_to(made)
        made.load(6.0, WORK)
        served(made)
        yield made


def kill(service: Routed, pod: Json, way: str) -> int:
    """Do it; give how many requests end with it."""
    if way == "leave":
        service.delete(pod)
        return 0
    found = state(pod)
    if way == "process":
        os.kill(found["pid"], signal.SIGKILL)
    else:
        service.delete(pod, grace_s=0)
    return int(found["in_flight"])


def some_may_go(service: Routed) -> list[Json]:
    """Give the engines that serve and that all routers have, if two others stay.

    Of one that was killed just now the API server may not know yet: it is asked.
    """
    known = set.intersection(*(listed(router) for router in service.routers))
    found = [pod for pod in service.engines if url(pod) in known and state(pod)["loaded"]]
    return found if len(found) >= 3 else []


def forgotten(service: Routed, address: str) -> bool:
    """Whether no router has an address."""
    return not any(address in listed(router) for router in service.routers)


def check(results: list[Result], begun: int, kills: int) -> None:
    """Whether nothing was lost but streams begun: one more each may have come between their count and the end."""
    lost = [result for result in results if result.outcome not in {Outcome.OK, Outcome.CUT}]
    assert not lost, lost
    cut = sum(result.outcome is Outcome.CUT for result in results)
    print(f"{len(results)} requests, {begun} begun on {kills} that were killed, {cut} cut")
    assert cut <= begun + kills


def test_after_random_kills_no_ghost_stays_and_nothing_is_lost_but_streams_begun(
    service: Routed, client: Client
) -> None:
    source = random.Random(5)
    begun = killed = 0
    took: list[float] = []
    for _ in range(KILLS):
        pod = source.choice(wait_until(lambda: some_may_go(service), "engines that may go"))
        way = source.choice(WAYS)
        began = time.monotonic()
        begun += kill(service, pod, way)
        killed += way != "leave"
        if way != "process" and source.random() < 0.5:  # its address does not come back
            wait_until(lambda: forgotten(service, url(pod)), f"nobody to send to {url(pod)}")  # noqa: B023
            took.append(time.monotonic() - began)
    service.settled(REPLICAS)
    addresses = {url(pod) for pod in service.engines}
    assert {address for router in service.routers for address in listed(router)} == addresses
    served(client)
    print(f"{KILLS} went; {len(took)} waited for were forgotten within {max(took, default=0.0):.1f} s")
    check(client.drain(), begun, killed)


def test_who_left_during_an_outage_of_the_api_server_is_forgotten_when_it_is_back(
    service: Routed, client: Client
) -> None:
    world, routers = service.world, service.routers
    leaving, killed, *_ = service.engines
    world.live.rule({"engine": ENGINE | {"load_fault": "OutOfMemory"}})  # the killed one does not come back
    service.delete(leaving)
    with world.cluster.without_apiserver():
        begun = kill(service, killed, "process")
        served(client, 40)
        assert all(url(killed) in listed(router) for router in routers), "nothing changes meanwhile"
    gone = {url(leaving), url(killed)}
    wait_until(lambda: not gone & service.sliced, "the slices without them")
    told = time.monotonic()
    wait_until(lambda: not any(gone & listed(router) for router in routers), "the routers without them")
    print(f"forgotten {time.monotonic() - told:.1f} s after the slices said so")
    world.live.rule({"engine": ENGINE})
    service.settled(REPLICAS)
    served(client)
    check(client.drain(), begun, 1)

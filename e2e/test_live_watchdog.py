"""The watchdog with traffic: an engine that hangs with green health, and one whose GPU fails, are replaced."""

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from harness.api import Json
from harness.prometheus import Prometheus
from harness.waiting import wait_until
from live_world import LiveWorld, live_world_of, measured_operator
from operator_process import OperatorProcess
from routed import ROUTED, Routed
from sim.clients.load import Client, Outcome, Work, failures
from sim.router import why_not
from sim.world import CONTROL, LiveCluster

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
MODEL = {"step_ms": 20.0, "per_prefill_token_ms": 0.05, "kv_tokens": 96_000}
KEY = "a key"
CASES = {
    "hang": ("Hang", "EngineStalled"),
    "hang-behind-a-key": ("Hang", "EngineStalled"),
    "xid": ("XID", "GPUFault"),
}
"""What breaks, and what it is told as, by the service's name."""


@pytest.fixture(scope="module")
def live_operator(live: LiveCluster) -> Iterator[tuple[OperatorProcess, Prometheus]]:
    # Pods' time runs five times as fast, and the operator's does not: its bound is as much shorter.
    with measured_operator(live, "--scaling-interval", "1", "--stall-seconds", "12") as running:
        yield running


@dataclass
class Case:
    """One service, its client, and the engine of it that is broken."""

    world: LiveWorld
    client: Client
    before: set[str]
    broken: Json


@pytest.fixture(scope="module")
def cases(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[dict[str, Case]]:
    """Break an engine of each service: they have nodes of their own, and wait side by side."""
    with live_world_of(live, *live_operator) as world, contextlib.ExitStack() as stack:
        live.rule({"engine": {"model": MODEL, "start_s": 20.0}})
        world.secret("keys", chat=KEY)
        for name in CASES:
            world.add_node(name, gpus=4, case=name)
            pool = {"nodeSelector": {"test.shardwright.dev/case": name}}
            key = {"apiKeySecretRef": {"name": "keys", "key": "chat"}} if "key" in name else {}
            routing = {"routing": ROUTED["routing"] | key}
            world.apply(world.service(name, replicas=3, pool=pool, **ROUTED | routing))
        made = {}
        for name in CASES:
            routed = Routed(world, name)
            routed.settled(3)
            client = stack.enter_context(routed.client(headers={"Authorization": f"Bearer {KEY}"}))
            routed.known_to(client)
            client.load(6.0, Work([(200, 40)]))
            wait_until(lambda: len(client.results) > 20, "requests")  # noqa: B023
            assert not failures(client.results), name
            made[name] = Case(world, client, names(world, name), world.serving(name)[0])
        for name, case in made.items():
            break_(case.broken, CASES[name][0])
        assert is_green(made["hang"].broken), "nothing but its tokens tells"
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


def names(world: LiveWorld, service: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in world.serving(service)}


def restarts(world: LiveWorld, service: str) -> set[int]:
    return {pod["status"]["containerStatuses"][0]["restartCount"] for pod in world.serving(service)}


@pytest.mark.parametrize("service", CASES)
def test_a_broken_engine_is_replaced_while_the_others_serve_and_no_other_request_is_lost(
    cases: dict[str, Case], service: str
) -> None:
    case, reason = cases[service], CASES[service][1]
    world, client, broken = case.world, case.client, case.broken
    name = broken["metadata"]["name"]
    told = world.until(service, "Degraded", "True", reason)
    assert name in told["message"]
    assert broken["spec"]["nodeName"] in told["message"]
    wait_until(
        lambda: name not in names(world, service) and len(names(world, service)) == 3, "another in its place"
    )
    assert names(world, service) >= case.before - {name}, "the others stay"
    assert restarts(world, service) == {0}
    Routed(world, service).serves(3)
    count = len(client.results)
    wait_until(lambda: len(client.results) > count + 30, "requests after it")
    world.ready(service)
    results = client.drain()
    lost = failures(results)
    # What had begun on it is cut with it; what had not goes to another.
    assert {result.outcome for result in lost} <= {Outcome.CUT}, lost
    assert len(results) - len(lost) > 50
    world.until_event(service, reason)

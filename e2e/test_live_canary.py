"""Canaries behind the real router: one that is slow and one that answers otherwise go back, and no request is lost.

And who goes when a service becomes smaller: the looks of the autoscaler are as close here. Each case is a service with
a node of its own; they begin together, since all of them wait most of the time.
"""

import contextlib
import json
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from harness.api import Json
from harness.prometheus import Prometheus
from harness.waiting import wait_until
from live_world import LiveWorld, live_world_of, measured_operator
from operator_process import OperatorProcess, in_a_hurry
from routed import ROUTED, Routed, served
from sim.clients.load import Client, Work, lost
from sim.router import why_not
from sim.world import LiveCluster

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
MODEL = {"step_ms": 150.0, "per_prefill_token_ms": 0.2, "kv_tokens": 96_000}
ENGINE = {"model": MODEL, "start_s": 20.0}
OTHER = "--seed=2"
CASES: dict[str, Json] = {
    "slow": {"model": MODEL | {"per_prefill_token_ms": 20.0}},
    "garbled": {"answers": "garbled"},
    "good": {},
}
"""How engines with the other argument behave. The slow ones take 0.8 s for a prompt of 200 tokens."""
SPEC = ROUTED | {
    "slo": {"ttft": {"milliseconds": 500, "percentile": 95}},
    "workload": {"inputTokens": {"p50": 200, "p95": 200}, "outputTokens": {"p50": 40, "p95": 40}},
    "rollout": {"canary": {"steps": [{"percent": 25, "minutes": 1}], "minSamples": 20}},
}
HURRY = "import shardwright.controller.canary as c\nc.MINUTE_S /= 5\n"


@dataclass
class Case:
    """One service, its client and what ran before."""

    service: Routed
    client: Client
    before: dict[str, int]

    def ended(self) -> None:
        """Check that nothing was lost of what the client sent until after the end."""
        self.service.serves(3)
        served(self.client)
        results = self.client.drain()
        print(f"{self.service.name}: {len(results)} requests")
        assert lost(results) == {}


@pytest.fixture(scope="module")
def live_operator(live: LiveCluster) -> Iterator[tuple[OperatorProcess, Prometheus]]:
    hurry = in_a_hurry(live.directory / "hurry", HURRY)
    with measured_operator(live, "--scaling-interval", "2", environment=hurry) as running:
        yield running


@pytest.fixture(scope="module")
def cases(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[dict[str, Case]]:
    with live_world_of(live, *live_operator) as world, contextlib.ExitStack() as stack:
        live.rule(
            {"engine": ENGINE},
            *(
                {"match": {"labels": {"shardwright.dev/service": name}, "argument": OTHER}, "engine": engine}
                for name, engine in CASES.items()
            ),
        )
        for name in CASES:
            world.add_node(name, gpus=4, case=name)
            pool = {"nodeSelector": {"test.shardwright.dev/case": name}}
            world.apply(world.service(name, replicas=3, pool=pool, engine={"args": ["--seed=1"]}, **SPEC))
        made = {}
        for seed, name in enumerate(CASES):
            service = Routed(world, name)
            service.settled(3)
            client = stack.enter_context(service.client(seed))
            service.known_to(client)
            client.load(5.0, Work([(200, 40)]))
            made[name] = Case(service, client, service.replicas())
        for case in made.values():
            served(case.client)
        for case in made.values():
            case.service.change(engine={"args": [OTHER]})
        yield made


@pytest.mark.parametrize(("name", "what"), [("slow", "TTFT"), ("garbled", "the answers to the same prompts")])
def test_a_canary_that_is_worse_goes_back_and_loses_nothing(
    cases: dict[str, Case], name: str, what: str
) -> None:
    case = cases[name]
    told = case.service.world.until(name, "Degraded", "True", "CanaryWorse")
    assert what in told["message"]
    wait_until(lambda: case.service.replicas() == case.before, "the old revision alone")
    case.service.world.until(name, "Available", "True")
    case.ended()


def done(case: Case) -> bool:
    found = case.service.replicas()
    return found != case.before and list(found.values()) == [3]


def test_a_canary_as_good_as_the_old_revision_takes_its_place(cases: dict[str, Case]) -> None:
    case = cases["good"]
    wait_until(lambda: done(case), "all of the new revision")
    case.ended()


def stream(pod: Json, said: list[str]) -> threading.Thread:
    """Hold a stream open on one engine, and keep its last line."""
    url = f"http://{pod['status']['podIP']}:8000/v1/completions"
    body = {"prompt": "on and on", "max_tokens": 800, "min_tokens": 800, "stream": True, "ignore_eos": True}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def read() -> None:
        with urllib.request.urlopen(request) as answer:
            said.extend(line.decode().strip() for line in answer if line.strip())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def test_the_emptiest_go_first(cases: dict[str, Case]) -> None:
    case, world = cases["good"], cases["good"].service.world
    wait_until(lambda: done(case), "its rollout")
    case.service.settled(3)
    case.client.drain()
    pods = case.service.engines
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
    wait_until(lambda: held_alone(world, pods[1], pods), "looks of the autoscaler")
    case.service.change(scaling={"minReplicas": 1, "maxReplicas": 1})
    wait_until(lambda: len(case.service.engines) == 1, "one replica")
    assert [p["metadata"]["name"] for p in case.service.engines] == [pods[1]["metadata"]["name"]]
    held.join()
    assert said[-1] == "data: [DONE]"


def held_alone(world: LiveWorld, held: Json, pods: list[Json]) -> bool:
    """Whether one engine has had a request, and the others none, for as long as a look may be old."""

    def running(how: str, pod: Json) -> list[float]:
        series = f'vllm:num_requests_running{{pod="{pod["metadata"]["name"]}"}}[8s]'
        return [float(row["value"][1]) for row in world.prometheus.query(f"{how}({series})")]

    others = [pod for pod in pods if pod["metadata"]["name"] != held["metadata"]["name"]]
    return running("min_over_time", held) > [0.0] and all(
        running("max_over_time", pod) == [0.0] for pod in others
    )

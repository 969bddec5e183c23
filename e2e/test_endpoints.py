"""The real router, `shardwright endpoints` and a real API server: whatever happens to the slices, no ghost stays."""

import contextlib
import http.server
import json
import os
import random
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.api import ApiError, Json
from harness.network import GATEWAY
from harness.ports import free_ports
from harness.processes import Process
from harness.waiting import wait_until
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.render.router import router_args
from shardwright.render.routing import TELLS_TOKENS, policy
from sim.kubelet.container import SOURCES
from sim.router import program, why_not
from sim.world import LiveCluster

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
WORKERS = 8
SPEC = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "pool": {"maxGPUs": 4}}


class Healthy(http.server.BaseHTTPRequestHandler):
    """A worker of which nothing is asked but whether it is there."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:  # what the base class prints
        pass


@dataclass
class Pair:
    """A router with its neighbour."""

    router: str
    probes: str
    process: Process
    neighbour: Process

    def listed(self) -> set[str] | None:
        found = get(f"{self.router}/list_workers")
        return None if found is None else set(json.loads(found)["urls"])

    def ready(self) -> bool:
        return get(f"{self.probes}/readyz") is not None


def get(address: str) -> str | None:
    """Read a page; None for any other answer than 200, and for none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError), opener.open(address, timeout=60) as answer:
        return str(answer.read().decode())
    return None


@pytest.fixture(scope="module")
def workers(live: LiveCluster) -> Iterator[list[int]]:
    """Give the ports of workers. They listen on the bridge: a slice holds no loopback address."""
    assert live.agent.pid, "the private network is there"
    servers = [http.server.ThreadingHTTPServer((GATEWAY, 0), Healthy) for _ in range(WORKERS)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield [server.server_address[1] for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def pair(live: LiveCluster, tmp_path: Path) -> Iterator[Pair]:
    with a_pair(live, tmp_path) as made:
        yield made


@contextlib.contextmanager
def a_pair(live: LiveCluster, tmp_path: Path, *told: str, holds: bool = False) -> Iterator[Pair]:
    """Run a router and its neighbour; `told` are further arguments of that."""
    port, metrics, probes = free_ports("127.0.0.1", 3)
    argv = [*router_args("kv_aware", refused=holds), f"--port={port}", f"--prometheus-port={metrics}"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    router = Process("router", [str(program()), *argv], tmp_path / "router.log", environment)
    sources = os.pathsep.join((str(SOURCES), str(SOURCES.parent / "operator" / "src")))
    follow = [
        *(sys.executable, "-m", "shardwright.cli.main", "endpoints", "--service=chat-engine"),
        *("--namespace=default", f"--router=http://127.0.0.1:{port}", "--address=127.0.0.1"),
        *(f"--port={probes}", f"--kubeconfig={live.cluster.kubeconfig}", *told),
    ]
    neighbour = Process(
        "endpoints", follow, tmp_path / "endpoints.log", environment | {"PYTHONPATH": sources}
    )
    made = Pair(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{probes}", router, neighbour)
    router.start()
    neighbour.start()
    try:
        yield made
    finally:
        neighbour.stop()
        router.stop()
        for item in live.cluster.api.get(SLICES)["items"]:
            if item["metadata"]["name"].startswith("w-"):
                live.cluster.api.delete(f"{SLICES}/{item['metadata']['name']}")


POLICIES = sorted(
    {
        policy(LLMServiceSpec.model_validate(SPEC | {"routing": {"type": "Router", "policy": asked}}), engine)
        for asked in ("Auto", "CacheAware", "LeastLoad", "RoundRobin", "PowerOfTwo")
        for engine in ([TELLS_TOKENS], [])
    }
)
"""What a spec can bring about."""


@pytest.mark.parametrize("chosen", POLICIES)
def test_the_router_starts_without_engines_by_each_policy_that_is_rendered(
    chosen: str, tmp_path: Path
) -> None:
    port, metrics = free_ports("127.0.0.1", 2)
    argv = [str(program()), *router_args(chosen), f"--port={port}", f"--prometheus-port={metrics}"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    router = Process("router", argv, tmp_path / "router.log", environment)
    router.start()

    def answers() -> bool:
        router.check()
        return get(f"http://127.0.0.1:{port}/liveness") is not None

    try:
        wait_until(answers, chosen)
    finally:
        router.stop()


def a_slice(port: int, *, ready: bool) -> Json:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"w-{port}",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "chat-engine"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [GATEWAY], "conditions": {"ready": ready}}],
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    }


def say(live: LiveCluster, port: int, *, ready: bool) -> None:
    live.cluster.api.apply(f"{SLICES}/w-{port}", a_slice(port, ready=ready))


def urls(ports: set[int]) -> set[str]:
    return {f"http://{GATEWAY}:{port}" for port in ports}


def test_after_a_hundred_random_changes_and_an_outage_in_between_nobody_is_left_who_is_not_served(
    live: LiveCluster, workers: list[int], pair: Pair
) -> None:
    source = random.Random(7)
    serving = set(workers[:2])
    for port in workers:
        say(live, port, ready=port in serving)
    wait_until(lambda: pair.listed() == urls(serving), "the first of them")
    wait_until(pair.ready, "the router ready")
    for number in range(100):
        if number == 50:
            with live.cluster.without_apiserver():
                pass
        port = source.choice(workers)
        serving ^= {port}
        if port in serving or source.random() < 0.5:
            say(live, port, ready=port in serving)
        else:
            with contextlib.suppress(ApiError):
                live.cluster.api.delete(f"{SLICES}/w-{port}")
    began = time.monotonic()
    wait_until(lambda: pair.listed() == urls(serving), "the list as the slices have it")
    print(f"in step {time.monotonic() - began:.2f} s after the last change")
    assert pair.ready()


def test_what_left_during_an_outage_of_the_api_server_goes_when_it_is_back(
    live: LiveCluster, workers: list[int], pair: Pair
) -> None:
    serving = set(workers[:3])
    for port in serving:
        say(live, port, ready=True)
    wait_until(lambda: pair.listed() == urls(serving), "all three")
    with live.cluster.without_apiserver():
        time.sleep(3)
        assert pair.listed() == urls(serving), "an API server that is away changes nothing"
        assert pair.ready()
    say(live, workers[0], ready=False)
    began = time.monotonic()
    wait_until(lambda: pair.listed() == urls(serving - {workers[0]}), "the list without it")
    print(f"gone {time.monotonic() - began:.2f} s after the API server said so")


def test_a_router_that_was_restarted_is_filled_before_it_is_ready(
    live: LiveCluster, workers: list[int], pair: Pair
) -> None:
    say(live, workers[0], ready=True)
    wait_until(lambda: pair.listed() == urls({workers[0]}), "the worker")
    pair.process.kill()
    wait_until(lambda: not pair.ready(), "not ready without a router")
    pair.process.start()
    wait_until(pair.ready, "ready again")
    assert pair.listed() == urls({workers[0]})

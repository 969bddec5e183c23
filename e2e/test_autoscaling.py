"""The autoscaler with a real control plane and Prometheus: up under load, never down for what is not known."""

import time
from collections.abc import Iterator

import pytest

from controller_world import SERVICES, World, install, is_ready, world_of
from harness.api import Json
from harness.cluster import Cluster
from harness.fake_vllm import Engine, FakeVLLM
from harness.prometheus import Prometheus
from harness.waiting import wait_until
from operator_process import OperatorProcess

pytestmark = pytest.mark.cluster

STAY_S = 8.0
"""Seconds that a request takes."""
LOOKS_S = 8.0
"""For how long a size is watched that must not fall: four looks of the autoscaler."""


@pytest.fixture(scope="module")
def operator(cluster: Cluster, prometheus: Prometheus) -> Iterator[OperatorProcess]:
    process = OperatorProcess(
        cluster,
        arguments=(
            *("--engine-metrics-interval", "2", "--scaling-interval", "2", "--prometheus-stale", "30"),
            *("--prometheus-url", prometheus.url),
        ),
        log_name="operator-autoscaling",
    )
    install(process)
    with process:
        yield process


class Fleet:
    """A service whose pods have engines behind them, which share the requests that come."""

    def __init__(self, world: World, vllm: FakeVLLM, prometheus: Prometheus, name: str = "chat") -> None:
        self.world, self.vllm, self.prometheus, self.name = world, vllm, prometheus, name
        self.rate_per_s, self._at_s = 0.0, time.monotonic()
        vllm.engines.clear()

    def go_on(self) -> None:
        """Let ready pods be scraped, and serve what is due by now."""
        pods = [pod["metadata"] for pod in self.world.pods() if is_ready(pod)]
        keys = {(pod["namespace"], pod["name"]) for pod in pods}
        for key in set(self.vllm.engines) - keys:
            del self.vllm.engines[key]
        for key in keys - set(self.vllm.engines):
            self.vllm.engines[key] = Engine(input_tokens=1000, output_tokens=250, tpot_s=0.03, kv_share=0.1)
        self.vllm.write(self.prometheus.directory / "targets.json")
        now = time.monotonic()
        due, self._at_s = self.rate_per_s * (now - self._at_s), now
        for engine in self.vllm.engines.values():
            engine.running = self.rate_per_s * STAY_S / len(self.vllm.engines)
            engine.serve(due / len(self.vllm.engines))

    @property
    def size(self) -> int:
        self.go_on()
        return sum(int(found["spec"]["replicas"]) for found in self.world.deployments(self.name))

    @property
    def scaling(self) -> Json:
        found: Json = self.world.get(self.name)["status"].get("scaling", {})
        return found

    def until(self, least: int) -> int:
        """Wait until it has so many replicas."""
        wait_until(lambda: self.size >= least, f"{least} replicas: {self.scaling}")
        return self.settled()

    def settled(self) -> int:
        """Wait until all replicas serve and the size does not move any more."""
        seen = [self.size]
        wait_until(lambda: self._still(seen), f"a size that stays: {self.scaling}")
        return seen[-1]

    def _still(self, seen: list[int]) -> bool:
        seen.append(self.size)
        time.sleep(0.5)
        told = self.world.get(self.name)["status"]
        return len(set(seen[-16:])) == 1 and len(seen) > 16 and told.get("readyReplicas") == seen[-1]

    def sizes(self, seconds: float = LOOKS_S) -> set[int]:
        """Give the sizes of a while."""
        began, seen = time.monotonic(), set()
        while time.monotonic() - began < seconds:
            seen.add(self.size)
            time.sleep(0.5)
        return seen


@pytest.fixture
def fleet(
    cluster: Cluster, operator: OperatorProcess, namespace: str, vllm: FakeVLLM, prometheus: Prometheus
) -> Iterator[Fleet]:
    with world_of(cluster, operator, namespace) as world:
        world.add_node("a", gpus=8)
        service = world.service("chat")
        service["spec"]["scaling"] = {"minReplicas": 1, "maxReplicas": 6}
        del service["spec"]["workload"]["concurrency"]
        world.apply(service)
        world.ready("chat")
        yield Fleet(world, vllm, prometheus)


def for_three(fleet: Fleet) -> float:
    """Give requests a second that take three replicas: the engines' are short, and one takes 2.8 times its plan's."""
    plan = fleet.world.get("chat")["status"]["plan"]
    return 5 * float(plan["requestsPerMinutePerReplica"]) / 60


def test_up_under_load_and_never_down_for_what_is_not_known(fleet: Fleet) -> None:
    world = fleet.world
    assert fleet.size == 1
    fleet.rate_per_s = for_three(fleet)
    size = fleet.until(3)
    assert size <= 6
    told = fleet.scaling
    assert (told["mode"], told["desiredReplicas"]) == ("Auto", size)
    assert told["decisions"][0]["replicas"] == size
    world.until_event("chat", "ScaledUp")
    changes = world.operator.metrics()
    assert any(name.startswith("shardwright_size_changes_total") for name in changes), changes

    fleet.rate_per_s = 0.0
    fleet.prometheus.kill()  # an outage that lasts is in test_live_ramp.py
    world.operator.stop()
    world.operator.start()
    assert fleet.sizes() == {size}, "a new operator goes on from what there was"

    fleet.prometheus.start()
    for engine in fleet.vllm.engines.values():  # back with zeros, and no engine has started anew
        engine.requests, engine.sums = 0.0, {}
    assert fleet.sizes(16) == {size}
    fleet.vllm.engines.clear()
    (fleet.prometheus.directory / "targets.json").write_text("[]")
    began = time.monotonic()
    while time.monotonic() - began < LOOKS_S:  # empty
        assert sum(int(found["spec"]["replicas"]) for found in world.deployments("chat")) == size
        time.sleep(0.5)


def test_a_steady_load_writes_nothing(fleet: Fleet) -> None:
    fleet.rate_per_s = for_three(fleet)
    size = fleet.until(3)
    wait_until(
        lambda: fleet.size and "inputTokens" in fleet.world.get("chat")["status"]["calibration"],
        "requests enough at this size to compare with the plan, which is told once",
    )
    before = fleet.world.written()
    assert fleet.sizes(16) == {size}
    assert fleet.world.written() == before


def test_an_owner_that_changes_keeps_the_size(fleet: Fleet) -> None:
    world, path = fleet.world, f"{SERVICES.format(fleet.world.namespace)}/chat"
    fleet.rate_per_s = for_three(fleet)
    size = fleet.until(3)
    service = world.get("chat")
    external = {"scaling": {"mode": "External", "minReplicas": None, "maxReplicas": None}, "replicas": size}
    world.cluster.api.merge(path, {"spec": external})
    world.ready("chat")
    wait_until(lambda: fleet.scaling.get("mode") == "External", "the other owner")
    assert fleet.sizes() == {size}
    fleet.rate_per_s = 0.1
    back = {"scaling": {"mode": "Auto", **service["spec"]["scaling"]}, "replicas": None}
    world.cluster.api.merge(path, {"spec": back})
    wait_until(lambda: fleet.scaling.get("mode") == "Auto", "the autoscaler again")
    assert fleet.sizes() == {size}

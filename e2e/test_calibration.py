"""The operator beside a real Prometheus that scrapes fake engines: measured, off, killed, back; nothing that serves moves."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller_world import World, install, is_ready, world_of
from harness.api import Json
from harness.cluster import Cluster
from harness.fake_vllm import Engine, FakeVLLM
from harness.prometheus import Prometheus
from harness.waiting import wait_until
from operator_process import NAMESPACE, OperatorProcess, render_chart

pytestmark = pytest.mark.cluster

STORE = "shardwright-calibration"
VALUES = ("calibrationStore.enabled=true",)


@dataclass
class Measured:
    """A world whose engines are scraped."""

    world: World
    vllm: FakeVLLM
    prometheus: Prometheus

    def scrape(self) -> None:
        """Have Prometheus scrape the pods of the world, each with an engine of its own."""
        for pod in self.world.pods():
            key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
            self.vllm.engines.setdefault(key, Engine())
        self.vllm.write(self.prometheus.directory / "targets.json")

    def calibration(self, name: str) -> Json:
        found: Json = self.world.get(name)["status"].get("calibration", {})
        return found

    def figures(self, name: str) -> dict[str, Json]:
        return {figure["name"]: figure for figure in self.calibration(name).get("figures", [])}

    def until(self, name: str, holds: Callable[[dict[str, Json]], bool], what: str) -> dict[str, Json]:
        """Figures that hold, all of one status."""

        def probe() -> dict[str, Json] | None:
            found = self.figures(name)
            return found if holds(found) else None

        try:
            found = wait_until(probe, what)
        except TimeoutError as late:
            raise AssertionError(f"{late}\n{self.calibration(name)}\n{self.world.operator.tail()}") from late
        assert found is not None
        return found

    def until_up(self, value: int) -> None:
        up = "shardwright_engine_metrics_up"
        wait_until(lambda: self.world.operator.metrics()[up] == value, f"{up} {value}")


@pytest.fixture(scope="module")
def scrape_interval_s() -> int:
    # A scrape may take as long as the interval; one that is late is none, and what was measured is told to be away.
    return 5


@pytest.fixture(scope="module")
def operator(cluster: Cluster, prometheus: Prometheus) -> Iterator[OperatorProcess]:
    process = OperatorProcess(
        cluster,
        values=VALUES,
        arguments=(
            *("--engine-metrics-interval", "1", "--prometheus-stale", "60"),
            *("--scaling-interval", "3600"),
            *("--prometheus-url", prometheus.url, "--calibration-store", f"{NAMESPACE}/{STORE}"),
        ),
        log_name="operator-calibration",
    )
    install(process)
    kept = [m for m in render_chart(cluster, NAMESPACE, VALUES) if m["kind"] == "ConfigMap"]
    cluster.apply(*(m | {"metadata": m["metadata"] | {"namespace": NAMESPACE}} for m in kept))
    with process:
        yield process


@pytest.fixture
def measured(
    cluster: Cluster, operator: OperatorProcess, namespace: str, vllm: FakeVLLM, prometheus: Prometheus
) -> Iterator[Measured]:
    with world_of(cluster, operator, namespace) as world:
        yield Measured(world, vllm, prometheus)


class Load:
    """Requests at a rate that does not depend on how often it is asked for them: a prediction is one for a rate."""

    def __init__(self, vllm: FakeVLLM, per_s: float) -> None:
        self._vllm, self._per_s = vllm, per_s
        self._began_s, self._served = time.monotonic(), 0

    def go_on(self) -> None:
        """Have each engine serve what is due by now."""
        due = int((time.monotonic() - self._began_s) * self._per_s)
        for engine in self._vllm.engines.values():
            engine.serve(due - self._served)
        self._served = due


def test_measured_off_killed_and_back(measured: Measured, cluster: Cluster) -> None:
    world = measured.world
    world.add_node("a", gpus=4)
    world.apply(world.service("chat", replicas=2))
    world.ready("chat")
    measured.scrape()
    predicted = world.get("chat")["status"]["plan"]["kvTokens"]
    for engine in measured.vllm.engines.values():
        engine.blocks = round(predicted * 1.05 / engine.block_tokens)
        engine.ttft_s = 60.0
    found = measured.until("chat", lambda f: bool(f.get("KVTokens", {}).get("ratio")), "the KV cache")
    assert found["KVTokens"]["ratio"] == "1.05"
    assert found["KVTokens"]["samples"] in {1, 2}, "as many as were scraped by then"
    assert found["TTFT"]["reason"] == "TooFewRequests"
    assert measured.calibration("chat")["source"] == "Prometheus"
    measured.until_up(1)

    children, pods = children_of(world), names_of(world)

    requests = Load(measured.vllm, per_s=2.0)

    def off(figures: dict[str, Json]) -> bool:
        requests.go_on()
        return bool(figures["TTFT"]["reason"] == "AbovePrediction")

    found = measured.until("chat", off, "a time to first token that is off")
    assert float(found["TTFT"]["ratio"]) > 1.25
    assert found["TTFT"]["samples"] >= 50

    def load() -> tuple[int | None, int | None]:
        told = measured.calibration("chat")
        return told.get("inputTokens"), told.get("outputTokens")

    wait_until(lambda: load() == (500, 100), "the load")
    world.until("chat", "Planned", "True", "PredictionOff")
    store = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{STORE}"
    kept = wait_until(lambda: cluster.api.get(store).get("data", {}), "what is kept")
    assert [json.loads(text)["model"] for text in kept.values()] == ["meta-llama/Llama-3.1-8B-Instruct"]

    measured.prometheus.kill()
    world.until("chat", "SLOMet", "Unknown", "MetricsUnavailable")
    assert {figure["reason"] for figure in measured.figures("chat").values()} == {"NotRead"}
    assert not any("ratio" in figure for figure in measured.figures("chat").values())
    measured.until_up(0)
    written = world.at_rest()
    assert world.at_rest() == written, "an outage is told once"
    assert world.is_("chat", "Planned", "True", "PredictionOff"), "not knowing is no verdict"
    assert world.is_("chat", "Ready", "True")

    measured.prometheus.start()
    world.until("chat", "SLOMet", "Unknown", "NotMeasured")
    measured.until("chat", lambda f: f["KVTokens"].get("ratio") == "1.05", "the KV cache again")
    assert children_of(world) == children
    assert names_of(world) == pods


def children_of(world: World) -> dict[tuple[str, str], int]:
    """Give the generation of each child: its status may change, what the operator says in it must not."""
    return {key: item["metadata"].get("generation", 0) for key, item in world.children().items()}


def names_of(world: World) -> set[str]:
    return {pod["metadata"]["name"] for pod in world.pods() if is_ready(pod)}


def test_an_operator_that_starts_anew_writes_nothing_and_keeps_what_was_measured(measured: Measured) -> None:
    world = measured.world
    world.add_node("a")
    world.apply(world.service("chat"))
    world.ready("chat")
    measured.scrape()
    predicted = world.get("chat")["status"]["plan"]["kvTokens"]
    for engine in measured.vllm.engines.values():
        # What is off is planned again when it is first put into the store, and told: then there is something to do.
        engine.blocks = round(predicted * 1.05 / engine.block_tokens)
    measured.until("chat", lambda f: f.get("KVTokens", {}).get("ratio") == "1.05", "the KV cache")
    before = world.at_rest()
    world.operator.stop()
    world.operator.start()
    time.sleep(5)
    assert world.written() == before


def test_a_prometheus_without_the_pods_changes_nothing(measured: Measured, tmp_path: Path) -> None:  # noqa: ARG001
    world = measured.world
    world.add_node("a")
    world.apply(world.service("chat"))
    world.ready("chat")
    before = world.at_rest()
    time.sleep(3)
    assert world.written() == before
    assert not measured.calibration("chat")
    assert world.is_("chat", "SLOMet", "Unknown", "NotMeasured")

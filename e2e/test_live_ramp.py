"""A ramp from one replica to six and back, through the endpoint: real Prometheus, real routers, no request lost.

Pods, engines and the autoscaler's own waits run ten times as fast as they do for a user, so that a minute is ten; loads
and targets are the wall's. Engines are what the plan predicts of them, so that what is seen corrects nothing.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from harness.prometheus import Prometheus
from harness.waiting import wait_until
from live_world import LiveWorld, live_world_of, measured_operator
from operator_process import OperatorProcess, in_a_hurry
from routed import ROUTED, Routed, Sizes, served
from sim.clients.load import Work, lost, percentile
from sim.router import why_not
from sim.world import LiveCluster

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
SCALE = 10
TTFT_S = 2.0
SLO = {
    "ttft": {"milliseconds": round(TTFT_S * 1000), "percentile": 95},
    "tpot": {"milliseconds": 100, "percentile": 95},
}
WORK = Work([(300, 60)])
WORKLOAD = {
    "inputTokens": {"p50": 300, "p95": 300},
    "outputTokens": {"p50": 60, "p95": 60},
    "concurrency": None,
}
ENGINE = {"maxNumSeqs": 4, "args": ["--stream-interval=10"]}
PLANNED = {
    "step_ms": 24.3 * SCALE,
    "per_sequence_ms": 0.016 * SCALE,
    "per_kv_token_us": 0.2 * SCALE,
    "per_prefill_token_ms": 0.123 * SCALE,
    "kv_tokens": 217_000,
}
"""An 8B model on an A6000: 2.5 of these requests a second in four seats."""
HURRY = f"""
from shardwright.autoscaler import demand, feedback, law
for module in (demand, feedback, law):
    for name, value in list(vars(module).items()):
        if name.endswith("_S") and isinstance(value, float):
            setattr(module, name, value / {SCALE})
law.WINDOW_COLD_STARTS = 0.0
"""
"""Engines start in 20 s of the pods' here, where the plan's budget for a start has 710 s."""
OUTAGE_S = 600 / SCALE


@pytest.fixture(scope="module")
def live_scale() -> float:
    return float(SCALE)


@pytest.fixture(scope="module")
def live_operator(live: LiveCluster) -> Iterator[tuple[OperatorProcess, Prometheus]]:
    hurry = in_a_hurry(live.directory / "hurry", HURRY)
    with measured_operator(live, "--scaling-interval", str(15 / SCALE), environment=hurry) as running:
        yield running


@pytest.fixture
def service(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[Routed]:
    with live_world_of(live, *live_operator) as world:
        world.add_node("a", gpus=8)
        live.rule({"engine": {"model": PLANNED, "start_s": 20.0}})
        manifest = world.service("chat", workload=WORKLOAD, engine=ENGINE, slo=SLO, **ROUTED)
        manifest["spec"]["scaling"] = {"minReplicas": 1, "maxReplicas": 6}
        del manifest["spec"]["workload"]["concurrency"]
        world.apply(manifest)
        made = Routed(world)
        made.settled(1)
        yield made


def test_a_ramp_up_and_down_loses_nothing_and_an_outage_of_prometheus_takes_no_replica(
    service: Routed,
) -> None:
    world: LiveWorld = service.world
    with service.client() as client, Sizes(service) as sizes:
        service.known_to(client)

        def size() -> int:
            return sizes.steps[-1] if sizes.steps else 0

        def until(holds: Callable[[], object], what: str) -> None:
            try:
                wait_until(holds, what)
            except TimeoutError as late:
                told = world.get("chat")["status"].get("scaling")
                raise AssertionError(f"{late}\n{sizes.steps}\n{told}\n{world.operator.tail()}") from late

        def at(rate_per_s: float, least: int) -> None:
            client.load(rate_per_s, WORK)
            until(lambda: size() >= least, f"{least} replicas")
            wait_until(lambda: len(service.engines) >= size(), "all of them")

        at(0.5, 1)
        at(2.0, 2)
        at(4.0, 3)
        up_to = size()
        world.prometheus.kill()
        out = time.monotonic()
        world.until("chat", "SLOMet", "Unknown", "MetricsUnavailable")
        wait_until(lambda: time.monotonic() - out >= OUTAGE_S, "ten minutes of the pods' time")
        world.prometheus.start()
        assert size() >= up_to
        at(6.5, 4)
        at(8.5, 5)
        at(10.5, 6)
        served(client, 100)
        client.load(0.2)
        until(lambda: size() == 1, "one replica")
        wait_until(lambda: len(world.pods_of("chat", "engine")) == 1, "the end of the others")
        results = client.drain()
    print(sizes.steps)
    assert lost(results) == {}
    top = sizes.steps.index(6)
    assert sizes.steps[: top + 1] == sorted(set(sizes.steps[: top + 1])), "up without a reversal"
    assert sizes.steps[top:] == sorted(set(sizes.steps[top:]), reverse=True), "and down"
    cold = sizes.cold()
    judged = [r.ttft_s or 0.0 for r in results if not any(a <= r.began_s <= b for a, b in cold)]
    print(
        f"{len(results)} requests, {len(judged)} of them not in a cold start: P95 {percentile(judged, 95):.2f} s"
    )
    assert len(judged) > len(results) / 2
    assert percentile(judged, 95) <= TTFT_S

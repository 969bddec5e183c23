"""Rollouts behind the real router, counted by the client: no room, room, a bad image, a node that is drained meanwhile.

Each case is a service with nodes of its own; they begin together, since all of them wait most of the time. The
operator's wait for an image runs as fast as the pods' time.
"""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from harness.api import Json
from harness.prometheus import Prometheus
from harness.waiting import wait_until
from live_world import live_world_of, measured_operator
from operator_process import OperatorProcess, in_a_hurry
from routed import ROUTED, Routed, Sizes, served
from sim.clients.load import Client, Work, lost
from sim.router import why_not
from sim.world import LiveCluster

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
MODEL = {"step_ms": 150.0, "per_prefill_token_ms": 0.2, "kv_tokens": 96_000}
WORK = Work([(200, 60), (200, 300)], [3, 1])
"""Answers of two seconds, and some of nine, which is longer than a pod that leaves still takes requests."""
NO_SUCH_IMAGE = "registry.example.com/none"
HURRY = "import shardwright.controller.starts as s\ns.REFUSED_S = s.REFUSED_S / 5\n"
GPUS = {"full": (3,), "spare": (4,), "image": (3,), "drained": (3, 3)}
"""Of the nodes of each case. All have three replicas."""


@dataclass
class Case:
    """One service, its client and what was seen of its size."""

    service: Routed
    client: Client
    sizes: Sizes
    before: dict[str, int]

    def has(self, replicas: dict[str, int]) -> bool:
        """Whether these are the replicas stated, and all serve."""
        return self.service.replicas() == replicas and len(self.service.engines) == sum(replicas.values())

    def out(self) -> bool:
        """Whether another revision alone has all replicas."""
        found = self.service.replicas()
        return list(found.values()) == [3] and found != self.before and self.has(found)

    def ended(self) -> None:
        """Check that nothing was lost of what the client sent until after the end."""
        self.service.serves(3)
        served(self.client)
        results = self.client.drain()
        assert lost(results) == {}
        print(
            f"{self.service.name}: {len(results)} requests, sizes {self.sizes.steps}, fewest {self.sizes.fewest}"
        )


@pytest.fixture(scope="module")
def live_operator(live: LiveCluster) -> Iterator[tuple[OperatorProcess, Prometheus]]:
    with measured_operator(live, environment=in_a_hurry(live.directory / "hurry", HURRY)) as running:
        yield running


@pytest.fixture(scope="module")
def cases(live: LiveCluster, live_operator: tuple[OperatorProcess, Prometheus]) -> Iterator[dict[str, Case]]:
    with live_world_of(live, *live_operator) as world, contextlib.ExitStack() as stack:
        live.rule(
            {"engine": {"model": MODEL, "start_s": 20.0}},
            {"match": {"image": NO_SUCH_IMAGE}, "pull": "not found"},
        )
        made = {}
        for name, gpus in GPUS.items():
            for number, each in enumerate(gpus):
                world.add_node(f"{name}-{number}", gpus=each, case=name)
            pool = {"nodeSelector": {"test.shardwright.dev/case": name}}
            engine = {"args": ["--stream-interval=10"]}
            world.apply(world.service(name, replicas=3, pool=pool, engine=engine, **ROUTED))
        for seed, name in enumerate(GPUS):
            service = Routed(world, name)
            service.settled(3)
            client = stack.enter_context(service.client(seed))
            service.known_to(client)
            client.load(4.0, WORK)
            sizes = stack.enter_context(Sizes(service))
            made[name] = Case(service, client, sizes, service.replicas())
        for case in made.values():
            served(case.client)
        for name, case in made.items():
            other = (
                {"image": f"{NO_SUCH_IMAGE}:1", "version": "0.33.0"} if name == "image" else {"env": env("1")}
            )
            case.service.change(engine=other)
        yield made


def env(value: str) -> list[Json]:
    return [{"name": "X", "value": value}]


def test_a_node_that_is_drained_in_the_middle_of_a_rollout(cases: dict[str, Case]) -> None:
    case = cases["drained"]
    service, world = case.service, case.service.world

    def both() -> bool:
        revisions = {pod["metadata"]["labels"]["shardwright.dev/revision"] for pod in service.engines}
        return len(revisions) == 2

    wait_until(both, "engines of both revisions")
    node = service.engines[0]["spec"]["nodeName"]
    there = {pod["metadata"]["name"] for pod in service.engines if pod["spec"]["nodeName"] == node}
    with ThreadPoolExecutor() as pool:
        # Evictions, tried again when the budget refuses them. /dev/shm is an emptyDir.
        drain = pool.submit(world.cluster.kubectl, "drain", node, "--delete-emptydir-data")
        wait_until(case.out, "the rollout")
        said = drain.result()
    assert f"node/{node} drained" in said
    assert any(f"pod/{name} evicted" in said for name in there)
    assert node not in {pod["spec"]["nodeName"] for pod in service.engines}
    case.ended()


def test_without_a_spare_gpu_one_is_replaced_after_the_other(cases: dict[str, Case]) -> None:
    case = cases["full"]
    wait_until(case.out, "the rollout")
    case.ended()
    assert max(case.sizes.steps) == 3, "there was never room for a fourth"
    assert case.sizes.fewest == 2


def test_with_a_spare_gpu_all_serve_all_the_while(cases: dict[str, Case]) -> None:
    case = cases["spare"]
    wait_until(case.out, "the rollout")
    case.ended()
    assert max(case.sizes.steps) == 4
    assert case.sizes.fewest == 3


def test_an_image_that_cannot_be_pulled_is_given_up_and_named(cases: dict[str, Case]) -> None:
    case = cases["image"]
    told = case.service.world.until("image", "Degraded", "True", "ImagePull")
    assert "image cannot be pulled" in told["message"]
    case.service.world.until("image", "Ready", "False", "RolloutFailed")
    wait_until(lambda: case.has(case.before), "what was given up to come back")
    case.ended()

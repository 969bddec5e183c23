"""Rollouts on a real control plane: where room is and where not, what does not start, pauses, and crashes.

Who serves is what the Service selects of the pods that are ready: that is looked at all the while.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller_world import CHILDREN, World, install, is_ready
from harness.api import Json
from harness.waiting import wait_until
from operator_process import OperatorProcess, in_a_hurry

pytestmark = pytest.mark.cluster
REVISION = "shardwright.dev/revision"
FAILS = "kwok.shardwright.test/fail"
NEVER = "kwok.shardwright.test/never-ready"


def env(value: str) -> Json:
    return {"env": [{"name": "X", "value": value}]}


def annotated(key: str, value: str) -> Json:
    """Give a pod template, and so a revision, whose pods do this."""
    return {"metadata": {"annotations": {key: value}}}


class Watch:
    """Looks at a service until something holds, and remembers the fewest replicas that served."""

    def __init__(self, world: World, name: str = "chat") -> None:
        self.world, self.name, self.fewest, self.most_pods = world, name, 10**6, 0

    def selector(self) -> Json:
        path = f"{CHILDREN['Service'].format(self.world.namespace)}/{self.name}"
        return dict(self.world.cluster.api.get(path)["spec"]["selector"])

    def look(self) -> None:
        before = self.selector()
        pods = self.world.pods()
        self.most_pods = max(self.most_pods, len(pods))
        if before != self.selector():
            return  # the traffic moved between the two looks
        served = [p for p in pods if is_ready(p) and before.items() <= p["metadata"]["labels"].items()]
        self.fewest = min(self.fewest, len(served))

    def until(self, holds: Callable[[], object], what: str) -> None:
        def looked() -> object:
            self.look()
            return holds()

        try:
            wait_until(looked, what)
        except TimeoutError as late:
            told = self.world.get(self.name).get("status", {})
            raise AssertionError(f"{late}\n{told}\n{self.world.operator.tail()}") from late

    def looks(self, count: int) -> None:
        """Look so often, with a moment in between."""
        for _ in range(count):
            self.look()
            time.sleep(0.05)

    def out(self, old: str, replicas: int) -> bool:
        """Whether another revision alone runs, and is Ready."""
        found = replicas_of(self.world)
        return (
            list(found.values()) == [replicas]
            and old not in found
            and self.world.is_(self.name, "Ready", "True")
        )


def replicas_of(world: World, name: str = "chat") -> dict[str, int]:
    return {d["metadata"]["labels"][REVISION]: d["spec"]["replicas"] for d in world.deployments(name)}


def running(world: World, gpus: int, replicas: int = 2, **spec: Json) -> str:
    """Run a service on a node of so many GPUs; its revision."""
    world.add_node("a", gpus=gpus)
    world.apply(world.service("chat", replicas=replicas, **spec))
    world.ready("chat")
    [revision] = replicas_of(world)
    return revision


def test_with_a_spare_gpu_all_replicas_serve_all_the_while(world: World) -> None:
    old = running(world, 3)
    world.apply(world.service("chat", replicas=2, engine=env("1"), rollout={"strategy": "Surge"}))
    watch = Watch(world)
    watch.until(lambda: watch.out(old, 2), "the rollout")
    assert watch.fewest == 2


def test_on_a_full_pool_one_is_replaced_after_the_other(world: World) -> None:
    old = running(world, 3, 3)
    world.apply(world.service("chat", replicas=3, engine=env("1")))
    watch = Watch(world)
    watch.until(lambda: watch.out(old, 3), "the rollout")
    assert watch.fewest == 2
    assert watch.most_pods <= 4  # the last moments of one that is deleted


def test_surge_on_a_full_pool_waits_and_says_for_how_many_gpus(world: World) -> None:
    old = running(world, 2)
    world.apply(world.service("chat", replicas=2, engine=env("1"), rollout={"strategy": "Surge"}))
    told = world.until("chat", "Ready", "False", "RolloutWaitsForRoom")
    assert "waits for 1 free GPU" in told["message"]
    assert sorted(replicas_of(world).values()) == [0, 2]
    assert replicas_of(world)[old] == 2
    world.add_node("b", gpus=1)
    watch = Watch(world)
    watch.until(lambda: watch.out(old, 2), "the rollout")
    assert watch.fewest == 2


def test_both_sets_together_keep_within_max_gpus(world: World) -> None:
    old = running(world, 8, pool={"maxGPUs": 3}, replicas=3)
    world.apply(world.service("chat", replicas=3, engine=env("1"), pool={"maxGPUs": 3}))
    most, watch = [], Watch(world)

    def done() -> bool:
        most.append(sum(replicas_of(world).values()))
        return watch.out(old, 3)

    watch.until(done, "the rollout")
    assert max(most) == 3
    assert watch.fewest == 2
    [old] = replicas_of(world)
    surge = {"pool": {"maxGPUs": 3}, "rollout": {"strategy": "Surge"}}
    world.apply(world.service("chat", replicas=3, engine=env("2"), **surge))
    told = world.until("chat", "Ready", "False", "RolloutWaitsForRoom")
    assert "write pool.maxGPUs 4, or spec.rollout.strategy: InPlace" in told["message"]


def test_a_plan_of_another_size_takes_the_place_of_one_that_fills_the_pool(world: World) -> None:
    pool = {"interconnect": {"policy": "Any"}}
    old = running(world, 4, parallelism={"tensor": 2}, pool=pool)
    world.apply(world.service("chat", replicas=4, parallelism={"tensor": 1}, pool=pool))
    watch = Watch(world)
    watch.until(lambda: watch.out(old, 4), "the rollout to small replicas")
    assert watch.fewest >= 1
    [small] = replicas_of(world)
    world.apply(world.service("chat", replicas=2, parallelism={"tensor": 2}, pool=pool))
    watch.until(lambda: watch.out(small, 2), "the rollout to large replicas")
    assert watch.fewest >= 1


def test_blue_green_moves_the_traffic_at_once(world: World) -> None:
    old = running(world, 4)
    never = annotated(NEVER, "true")
    world.apply(world.service("chat", replicas=2, podTemplate=never, rollout={"strategy": "BlueGreen"}))
    watch = Watch(world)
    watch.until(lambda: watch.selector().get(REVISION) == old, "the traffic held where it is")

    def moved() -> bool:
        world.cluster.mend_pods(world.namespace, "never-ready")
        return watch.selector().get(REVISION) != old

    watch.until(moved, "the traffic to move")
    watch.until(lambda: watch.out(old, 2), "the rollout")
    watch.until(lambda: REVISION not in watch.selector(), "the Service to select all again")
    assert watch.fewest == 2


def test_a_pause_holds_both_sets_until_it_is_taken_back(world: World) -> None:
    old = running(world, 2)
    never = annotated(NEVER, "true")
    world.apply(world.service("chat", replicas=2, podTemplate=never))
    wait_until(lambda: sorted(replicas_of(world).values()) == [1, 1], "one of each")
    world.apply(world.service("chat", replicas=2, podTemplate=never, rollout={"paused": True}))
    world.until("chat", "Ready", "False", "RolloutPaused")
    wait_until(lambda: world.cluster.mend_pods(world.namespace, "never-ready"), "the new one, to mend it")
    wait_until(lambda: sum(is_ready(pod) for pod in world.pods()) == 2, "both to answer")
    watch = Watch(world)
    watch.looks(30)
    assert (watch.fewest, sorted(replicas_of(world).values())) == (2, [1, 1])
    assert world.get("chat")["status"]["rollout"]["step"] == "Paused"
    world.apply(world.service("chat", replicas=2, engine=env("1"), rollout={"paused": False}))
    watch.until(lambda: watch.out(old, 2), "the rollout")
    assert watch.fewest >= 1


def test_a_bad_flag_keeps_the_old_version_serving_and_is_not_tried_again(world: World) -> None:
    old = running(world, 2)
    bad = annotated(FAILS, "CrashLoopBackOff")
    world.apply(world.service("chat", replicas=2, podTemplate=bad))
    watch = Watch(world)
    watch.until(lambda: world.is_("chat", "Ready", "False", "RolloutFailed"), "the revision to be given up")
    watch.until(lambda: replicas_of(world) == {old: 2}, "what was given up to come back")
    watch.until(lambda: sum(is_ready(pod) for pod in world.pods()) == 2, "both to answer")
    assert watch.fewest >= 1
    assert world.is_("chat", "Degraded", "True", "CrashLoop")
    [failed] = [r for r in world.get("chat")["status"]["revisions"] if "failed" in r]
    assert failed["failed"]["reason"] == "CrashLoop"
    before, pods = world.at_rest(), {pod["metadata"]["uid"] for pod in world.pods()}
    world.operator.kill()
    path = f"/apis/shardwright.dev/v1alpha1/namespaces/{world.namespace}/llmservices/chat/status"
    world.cluster.api.merge(path, {"status": {"conditions": None, "revisions": None, "plan": None}})
    world.operator.start()
    world.until("chat", "Ready", "False", "RolloutFailed")
    world.at_rest()
    assert {pod["metadata"]["uid"] for pod in world.pods()} == pods, "a lost status moves nothing"
    assert {key for key in before if key[0] == "Deployment"} == {
        key for key in world.children() if key[0] == "Deployment"
    }
    world.apply(world.service("chat", replicas=2, engine=env("2")))
    watch.until(lambda: watch.out(old, 2), "the rollout of what is mended")


@pytest.fixture
def quick(world: World, tmp_path: Path) -> Iterator[World]:
    """Run an operator that waits five seconds where it waits two minutes otherwise."""
    world.operator.stop()
    environment = in_a_hurry(tmp_path, "import shardwright.controller.starts as s\ns.REFUSED_S = 5.0\n")
    hasty = OperatorProcess(world.cluster, environment=environment, log_name="hasty")
    install(hasty)
    with hasty:
        yield world
    world.operator.start()


def test_a_bad_image_keeps_the_old_version_serving_and_names_the_cause(quick: World) -> None:
    old = running(quick, 1, 1)
    bad = annotated(FAILS, "ImagePullBackOff")
    quick.apply(quick.service("chat", podTemplate=bad))
    quick.until("chat", "Ready", "False", "RolloutFailed")
    told = quick.until("chat", "Degraded", "True", "ImagePull")
    assert "image cannot be pulled" in told["message"]
    wait_until(lambda: replicas_of(quick) == {old: 1}, "the only replica to come back")
    quick.until("chat", "Available", "True")


@pytest.mark.parametrize("strategy", ["Auto", "BlueGreen"])
def test_an_operator_that_is_killed_again_and_again_ends_the_rollout_all_the_same(
    world: World, strategy: str
) -> None:
    old = running(world, 4 if strategy == "BlueGreen" else 2)
    world.apply(world.service("chat", replicas=2, engine=env("1"), rollout={"strategy": strategy}))
    watch = Watch(world)
    for count in (1, 2, 3, 5, 8):
        watch.looks(count)
        world.operator.kill()
        watch.looks(3)
        world.operator.start()
    watch.until(lambda: watch.out(old, 2), "the rollout")
    watch.until(lambda: REVISION not in watch.selector(), "the Service to select all")
    assert watch.fewest >= (2 if strategy == "BlueGreen" else 1)
    world.at_rest()

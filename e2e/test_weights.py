"""Weights on a real control plane: the Job that fetches them comes first, tells why it fails, and is no pod of an engine.

Jobs and their pods are Kubernetes' own; kwok ends a Job's pod well as soon as it is ready.
"""

import time

import pytest

from controller_world import SMALL, World
from harness.api import Json
from harness.waiting import wait_until

pytestmark = pytest.mark.cluster

NOTE = "shardwright.dev/weights-fetched"


def cached(world: World, replicas: int = 2, **spec: Json) -> Json:
    model = {"id": SMALL, "maxContextTokens": 8192, "cache": {"type": "PVC", "claimName": "models"}}
    return world.service("chat", replicas=replicas, model=model | spec.pop("model", {}), **spec)


def make_claim(world: World) -> None:
    name, modes = f"models-{world.namespace[-6:]}", ["ReadWriteMany"]
    claim = {"namespace": world.namespace, "name": "models"}
    world.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "accessModes": modes,
                "capacity": {"storage": "100Gi"},
                "hostPath": {"path": "/models"},
                "claimRef": claim,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": claim,
            "spec": {
                "accessModes": modes,
                "resources": {"requests": {"storage": "100Gi"}},
                "storageClassName": "",
                "volumeName": name,
            },
        },
    )


def jobs(world: World) -> list[Json]:
    found: list[Json] = world.cluster.api.get(f"/apis/batch/v1/namespaces/{world.namespace}/jobs")["items"]
    return [job for job in found if "deletionTimestamp" not in job["metadata"]]


def pods_of(world: World, role: str) -> list[Json]:
    """Give the pods that have not ended."""
    return [
        pod
        for pod in world.pods()
        if pod["metadata"]["labels"]["shardwright.dev/role"] == role
        and pod["status"].get("phase") in {"Pending", "Running"}
    ]


def hold_jobs(world: World) -> None:
    """Pods that are made from now on run and do not get ready, so that a Job's pod does not end."""
    world.cluster.break_namespace(world.namespace, never_ready="true")


def let_go(world: World) -> None:
    world.cluster.mend_namespace(world.namespace, "never-ready")


def say(world: World, word: str) -> None:
    """Let the Job's container end, and wait to be started again, with the script's last words."""
    [pod] = pods_of(world, "fetch")
    container = pod["status"]["containerStatuses"][0] | {
        "ready": False,
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}},
        "lastState": {
            "terminated": {
                "exitCode": 1,
                "reason": "Error",
                "message": f"HfHubHTTPError: (address)\nshardwright fetch: {word}\n",
            }
        },
    }
    path = f"/api/v1/namespaces/{world.namespace}/pods/{pod['metadata']['name']}/status"
    world.cluster.api.merge(path, {"status": {"containerStatuses": [container]}})


def test_the_job_comes_first_and_engines_start_offline_when_it_has_ended(world: World) -> None:
    world.add_node("a")
    make_claim(world)
    hold_jobs(world)
    world.apply(cached(world))
    fetching = world.until("chat", "Ready", "False", "Fetching")
    [job] = wait_until(lambda: jobs(world), "the Job")
    assert job["metadata"]["name"] in fetching["message"]
    wait_until(lambda: pods_of(world, "fetch"), "the Job's pod")
    assert pods_of(world, "engine") == []
    [deployment] = world.deployments("chat")
    assert deployment["spec"]["replicas"] == 0
    let_go(world)
    world.ready("chat")
    assert len(jobs(world)) == 1
    [deployment] = world.deployments("chat")
    [engine] = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in engine["env"]
    records = [o for (kind, _), o in world.children("chat").items() if kind == "ControllerRevision"]
    assert [record["metadata"]["annotations"][NOTE] for record in records] == ["true"]
    before = world.at_rest()
    time.sleep(2)
    assert world.written() == before


def test_why_it_fails_is_told_while_the_old_revision_serves_also_over_a_crash(world: World) -> None:
    world.add_node("a", gpus=2)
    make_claim(world)
    world.apply(cached(world))
    world.ready("chat")
    old = {pod["metadata"]["uid"] for pod in pods_of(world, "engine")}
    hold_jobs(world)
    # Other weights, as the Job of the first may still be there.
    world.apply(cached(world, model={"revision": "v2"}))
    wait_until(lambda: pods_of(world, "fetch"), "the Job's pod")
    wait_until(lambda: pods_of(world, "fetch")[0]["status"].get("containerStatuses"), "its container")
    for word in ("HubUnauthorized", "HubRateLimited"):
        say(world, word)
        world.until("chat", "Degraded", "True", word)
        world.until("chat", "Ready", "False", word)
        assert world.is_("chat", "Available", "True")
    world.operator.kill()
    world.operator.start()
    time.sleep(1)
    world.until("chat", "Degraded", "True", "HubRateLimited")
    assert {pod["metadata"]["uid"] for pod in pods_of(world, "engine")} == old
    assert not any("failed" in told for told in world.get("chat")["status"]["revisions"])
    let_go(world)
    world.ready("chat")
    wait_until(lambda: len(world.deployments("chat")) == 1, "the new revision alone")
    assert not old & {pod["metadata"]["uid"] for pod in pods_of(world, "engine")}
    assert world.is_("chat", "Degraded", "False")


def test_a_job_that_nobody_needs_any_more_is_stopped(world: World) -> None:
    world.add_node("a")
    make_claim(world)
    hold_jobs(world)
    world.apply(cached(world))
    [first] = wait_until(lambda: jobs(world), "the Job")
    world.apply(cached(world, model={"revision": "v2"}))
    wait_until(
        lambda: [j["metadata"]["uid"] for j in jobs(world)] not in ([], [first["metadata"]["uid"]]), "another"
    )
    wait_until(lambda: len(jobs(world)) == 1, "one Job alone")
    let_go(world)
    world.ready("chat")


def test_a_job_that_fails_is_made_anew_under_its_name_for_a_spec_that_mends_it(world: World) -> None:
    world.add_node("a")
    make_claim(world)
    hold_jobs(world)
    world.apply(cached(world))
    wait_until(lambda: pods_of(world, "fetch"), "the Job's pod")
    wait_until(lambda: pods_of(world, "fetch")[0]["status"].get("containerStatuses"), "its container")
    [first] = jobs(world)
    world.apply(cached(world, engine={"env": [{"name": "A", "value": "does well"}]}))
    world.until("chat", "Ready", "False", "Fetching")
    assert [job["metadata"]["uid"] for job in jobs(world)] == [first["metadata"]["uid"]]
    say(world, "HubUnauthorized")
    wait_until(
        lambda: [j["metadata"]["uid"] for j in jobs(world)] not in ([], [first["metadata"]["uid"]]), "anew"
    )
    [second] = jobs(world)
    assert second["metadata"]["name"] == first["metadata"]["name"]
    [container] = second["spec"]["template"]["spec"]["containers"]
    assert {"name": "A", "value": "does well"} in container["env"]
    let_go(world)
    world.ready("chat")
    assert [job["metadata"]["uid"] for job in jobs(world)] == [second["metadata"]["uid"]]


def test_a_crash_between_the_job_and_what_follows_makes_no_second_one(world: World) -> None:
    world.add_node("a")
    make_claim(world)
    hold_jobs(world)
    world.apply(cached(world))
    [job] = wait_until(lambda: jobs(world), "the Job")
    wait_until(lambda: pods_of(world, "fetch"), "its pod")
    world.operator.kill()
    let_go(world)
    wait_until(lambda: jobs(world)[0]["status"].get("succeeded"), "the Job's end, which no operator sees")
    assert pods_of(world, "engine") == []
    world.operator.start()
    world.ready("chat")
    assert [found["metadata"]["uid"] for found in jobs(world)] == [job["metadata"]["uid"]]
    assert len(pods_of(world, "engine")) == 2

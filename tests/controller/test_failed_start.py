"""A revision that does not start is given up after a bounded number of tries, and what ran before comes back."""

import asyncio
import copy
import json

import pytest

from controller.kubelet import LOADING, PULL, Kubelet, ended
from shardwright.controller.starts import REFUSED_S, RESTARTS
from shardwright.render.failed_start import ANNOTATION_FAILED_START

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
TWO = {"scaling": {"minReplicas": 2, "maxReplicas": 2}}
BAD_FLAG = "INFO starting\nValueError: unknown flag --foo, token=hf_abcdefghijklmnop\n"


def env(value):
    return {"engine": {"env": [{"name": "A", "value": value}]}}


def replicas(fake):
    return {name.rpartition("-")[2]: count for name, count in fake.deployments().items()}


def failed_of(fake, revision):
    """What the status and the record say of a revision's start."""
    told = next((r for r in fake.statuses["chat"].get("revisions", []) if r["hash"] == revision), {})
    record = fake.objects["ControllerRevision", "team", f"chat-{revision}"]
    noted = record["metadata"].get("annotations", {}).get(ANNOTATION_FAILED_START)
    return told.get("failed"), noted and json.loads(noted)


async def started(fake, gpus=2, **spec):
    fake.node("n1", gpus=gpus)
    kubelet = Kubelet(fake)
    fake.put("chat", **TWO | spec)
    await kubelet.run(20)
    assert fake.condition("chat", "Ready")[0] == "True"
    return kubelet, kubelet.revision()


async def broken(kubelet, state, value="b", seconds=20, **spec):
    """Change the spec to a revision whose pods are in this state."""
    fake = kubelet.fake
    fake.put("chat", **TWO | env(value) | spec)
    await asyncio.sleep(2)
    for _ in range(10):
        revision = kubelet.revision(value)
        if revision:
            break
        await kubelet.run(5)
    kubelet.broken[revision] = state
    await kubelet.run(seconds)
    return revision


@pytest.mark.parametrize("gpus", [2, 4])
async def test_an_image_that_is_not_there_is_given_up_and_all_replicas_come_back(fake, gpus):
    kubelet, good = await started(fake, gpus)
    bad = await broken(kubelet, PULL)
    assert replicas(fake) == ({good: 1, bad: 1} if gpus == 2 else {good: 2, bad: 2})
    assert fake.condition("chat", "Ready")[1] == "RollingOut"
    await kubelet.run(REFUSED_S + 60)
    assert replicas(fake) == {good: 2}
    assert fake.condition("chat", "Ready") == ("False", "RolloutFailed")
    assert fake.condition("chat", "Available")[0] == "True"
    assert fake.condition("chat", "Degraded") == ("True", "ImagePull")
    assert fake.condition("chat", "Stalled")[0] == "True"
    for kind in ("Ready", "Degraded"):
        assert bad in fake.message("chat", kind)
        assert "image cannot be pulled" in fake.message("chat", kind)
    assert f"shardwright approve chat -n team --revision {bad}" in fake.message("chat", "Ready")
    told, noted = failed_of(fake, bad)
    assert told["reason"] == noted["reason"] == "ImagePull"
    assert fake.log.count("event RolloutFailed") == 2, "of Ready, and of the plan"
    before = fake.writes()
    await kubelet.run(3000, every=60)
    assert fake.writes() == before, "no retry without an end"


@pytest.mark.parametrize("lost", [False, True])
async def test_neither_a_restart_nor_a_lost_status_tries_it_again(fake, lost):
    kubelet, good = await started(fake)
    bad = await broken(kubelet, PULL, seconds=REFUSED_S + 60)
    if lost:
        fake.raw["chat"]["status"] = {}
        fake.statuses["chat"] = {"conditions": []}
    moved = len([entry for entry in fake.writes() if "Deployment" in entry])
    await fake.restart()
    await kubelet.run(600)
    assert replicas(fake) == {good: 2}
    assert len([entry for entry in fake.writes() if "Deployment" in entry]) == moved
    assert fake.condition("chat", "Ready") == ("False", "RolloutFailed")
    assert failed_of(fake, bad)[0]["reason"] == "ImagePull"
    fake.put("chat", **env("b"), scaling={"minReplicas": 1, "maxReplicas": 1})
    await kubelet.run(30)
    assert replicas(fake) == {good: 1}, "scaling is obeyed and tries nothing"


async def test_a_single_replica_that_was_given_up_comes_back(fake):
    one = {"scaling": {"minReplicas": 1, "maxReplicas": 1}}
    kubelet, good = await started(fake, 1, **one)
    bad = await broken(kubelet, ended(BAD_FLAG), seconds=30, **one)
    assert replicas(fake) == {good: 1}
    await kubelet.run(30)
    assert fake.condition("chat", "Available")[0] == "True"
    assert fake.condition("chat", "Degraded") == ("True", "CrashLoop")
    message = fake.message("chat", "Degraded")
    assert "unknown flag --foo" in message
    assert "hf_" not in message
    assert failed_of(fake, bad)[1]["message"] in message


async def test_a_spec_that_says_something_else_is_tried_and_the_same_again_too(fake):
    kubelet, good = await started(fake)
    bad = await broken(kubelet, ended(BAD_FLAG), seconds=60)
    assert replicas(fake) == {good: 2}
    fake.put("chat", **TWO, **env("c"))
    await kubelet.run(120)
    assert fake.condition("chat", "Ready")[0] == "True"
    assert fake.condition("chat", "Degraded")[0] == "False"
    assert failed_of(fake, bad) == (None, None)
    kubelet.broken.clear()
    fake.put("chat", **TWO, **env("b"))
    await kubelet.run(120)
    assert replicas(fake) == {bad: 2}
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_what_is_approved_by_name_is_tried_again_and_given_up_again(fake):
    kubelet, good = await started(fake)
    bad = await broken(kubelet, ended(BAD_FLAG), seconds=60)
    fake.put("chat", **TWO, **env("b"), approvedRevision=bad)
    await kubelet.run(10)
    assert bad in replicas(fake), "tried again"
    await kubelet.run(60)
    assert replicas(fake) == {good: 2}
    assert fake.condition("chat", "Ready") == ("False", "RolloutFailed")
    assert "shardwright approve chat -n team --clear" in fake.message("chat", "Ready")
    kubelet.broken.clear()
    fake.put("chat", **TWO, **env("b"))
    await kubelet.run(120)
    assert replicas(fake) == {bad: 2}
    assert fake.condition("chat", "Ready")[0] == "True"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("GatedRepoError: 401 Client Error", "HubUnauthorized"),
        ("429 Client Error: Too Many", "HubRateLimited"),
        ("Client error '429 Too Many Requests' for url 'https://hub'", "HubRateLimited"),
        (
            "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://hub",
            "HubUnavailable",
        ),
        ("OSError: We couldn't connect to 'https://huggingface.co' to load the files", "HubUnavailable"),
    ],
)
async def test_what_the_hub_refuses_is_waited_for(fake, words, reason):
    kubelet, good = await started(fake)
    bad = await broken(kubelet, ended(words, restarts=9), seconds=REFUSED_S + 300)
    assert replicas(fake) == {good: 1, bad: 1}
    assert fake.condition("chat", "Degraded") == ("True", reason)
    assert fake.condition("chat", "Available")[0] == "True"
    kubelet.broken.clear()
    await kubelet.run(60)
    assert replicas(fake) == {bad: 2}


@pytest.mark.parametrize("state", [LOADING, ended("x", restarts=RESTARTS - 1)])
async def test_a_start_that_may_still_succeed_is_waited_for(fake, state):
    kubelet, good = await started(fake)
    bad = await broken(kubelet, state, seconds=900)
    assert replicas(fake) == {good: 1, bad: 1}
    assert fake.condition("chat", "Available")[0] == "True"


async def test_a_start_beyond_its_deadline_is_given_up(fake):
    kubelet, good = await started(fake)
    bad = await broken(kubelet, LOADING)
    key = ("Deployment", "team", f"chat-{bad}")
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    fake.objects[key]["status"] = {"conditions": [late]}
    fake.edit("Deployment", f"chat-{bad}", {"metadata": {"labels": {"x": "y"}}})
    await kubelet.run(60)
    assert replicas(fake) == {good: 2}
    assert fake.condition("chat", "Degraded") == ("True", "StartTooSlow")


async def test_without_an_earlier_revision_there_is_nothing_to_go_back_to(fake):
    fake.node("n1")
    kubelet = Kubelet(fake)
    fake.put("chat", **TWO)
    await asyncio.sleep(5)
    kubelet.broken[kubelet.revision()] = PULL
    await kubelet.run(REFUSED_S + 60)
    assert fake.condition("chat", "Degraded") == ("True", "ImagePull")
    assert failed_of(fake, kubelet.revision()) == (None, None)


async def test_a_replica_that_fails_long_after_the_rollout_is_no_failed_start(fake):
    kubelet, _ = await started(fake, 4)
    fake.put("chat", **TWO, **env("b"))
    await kubelet.run(60)
    new = kubelet.revision("b")
    assert replicas(fake) == {new: 2}
    kubelet.broken[new] = ended(BAD_FLAG, restarts=50)
    await kubelet.run(300)
    assert replicas(fake) == {new: 2}
    assert fake.condition("chat", "Degraded") == ("True", "CrashLoop")


async def test_a_paused_rollout_keeps_what_fails_to_be_looked_at(fake):
    kubelet, good = await started(fake)
    bad = await broken(kubelet, PULL)
    fake.put("chat", **TWO, **env("b"), rollout={"paused": True})
    await kubelet.run(REFUSED_S + 60)
    assert replicas(fake) == {good: 1, bad: 1}
    assert fake.condition("chat", "Ready") == ("False", "RolloutPaused")
    fake.put("chat", **TWO, **env("b"))
    await kubelet.run(REFUSED_S + 60)
    assert replicas(fake) == {good: 2}


async def test_of_several_earlier_revisions_the_one_that_serves_comes_back(fake):
    kubelet, good = await started(fake)
    half = await broken(kubelet, LOADING, "b")
    bad = await broken(kubelet, ended(BAD_FLAG), "c", seconds=90)
    assert replicas(fake) == {good: 2}
    assert half != bad
    assert failed_of(fake, bad)[0]["reason"] == "CrashLoop"


@pytest.mark.parametrize("write", range(14))
@pytest.mark.parametrize("how", ["unsent", "lost"])
async def test_a_crash_between_any_two_writes_ends_in_the_same_state(fake, write, how):
    """From the change of the spec until what ran before is back."""
    kubelet, good = await started(fake)
    fake.faults = {fake.sent + write: how}
    fake.put("chat", **TWO, **env("b"))
    for _ in range(60):
        revision = kubelet.revision("b")
        if revision:
            kubelet.broken[revision] = ended(BAD_FLAG)
        if fake.faults == {}:
            await fake.restart()  # right after the write that got no answer
            fake.faults = {-1: how}
        await kubelet.run(5)
    assert replicas(fake) == {good: 2}
    assert fake.condition("chat", "Ready") == ("False", "RolloutFailed")
    assert fake.condition("chat", "Available")[0] == "True"
    services = [o for (kind, _, _), o in fake.objects.items() if kind == "Service"]
    assert not any("shardwright.dev/revision" in s["spec"]["selector"] for s in copy.deepcopy(services))

"""Weights are fetched by one Job before the first engine of a revision, and what serves goes on meanwhile."""

import asyncio
import copy

import pytest

from controller.fake_api import loop_now
from controller.kubelet import Kubelet, ended
from shardwright.cluster.errors import Forbidden, Invalid
from shardwright.render.fetch import ANNOTATION_FETCHED
from wording import small_after_a_stop

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
SMALL = {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 8192}
CACHED = {"model": SMALL | {"cache": {"type": "PVC", "claimName": "models"}}}
TWO = {"scaling": {"minReplicas": 2, "maxReplicas": 2}}
MISS = "ValueError: Invalid repository ID or local directory specified: '/cache/huggingface/shardwright/x'"


def env(value):
    return {"engine": {"env": [{"name": "A", "value": value}]}}


def claim(fake, *modes, bound=True, name="models"):
    spec = {"accessModes": list(modes)} | ({"volumeName": "pv"} if bound else {})
    fake.foreign("PersistentVolumeClaim", name, spec=spec)


def failing(word, restarts=3):
    return ended(f"HfHubHTTPError: 4xx (address)\nshardwright fetch: {word}\n", restarts)


def replicas(fake):
    return {name.rpartition("-")[2]: count for name, count in fake.deployments().items()}


def record(fake, revision):
    return fake.objects["ControllerRevision", "team", f"chat-{revision}"]


def is_noted(fake, revision):
    return ANNOTATION_FETCHED in record(fake, revision)["metadata"].get("annotations", {})


async def begun(fake, gpus=4, modes=("ReadWriteMany",), **spec):
    """A service whose Job runs."""
    fake.job_s = None
    fake.node("n1", gpus=gpus)
    claim(fake, *modes)
    fake.put("chat", **CACHED | TWO | spec)
    kubelet = Kubelet(fake)
    await kubelet.run(20)
    return kubelet


async def served(fake, **how):
    """A service that serves, and its revision."""
    kubelet = await begun(fake, **how)
    [job] = fake.jobs()
    fake.end_job(job)
    await kubelet.run(20)
    assert fake.condition("chat", "Ready")[0] == "True"
    fake.lose(("Job", "team", job))  # its time has passed
    await kubelet.run(10)
    assert fake.jobs() == []
    return kubelet, next(iter(replicas(fake)))


async def test_the_job_comes_first_and_engines_when_it_has_ended(fake):
    kubelet = await begun(fake)
    [job] = fake.jobs()
    assert list(replicas(fake).values()) == [0]
    assert fake.pods == {}
    order = [name.partition("/")[0] for name, _ in fake.applied]
    assert order.index("ControllerRevision") < order.index("Job") < order.index("Deployment")
    assert order.index("ServiceAccount") < order.index("Job"), "its pod needs one"
    for kind in ("Available", "Ready"):
        assert fake.condition("chat", kind) == ("False", "Fetching")
        assert f"the Job {job}" in fake.message("chat", kind)
        assert "claim models" in fake.message("chat", kind)
        assert "minutes" in fake.message("chat", kind)
        assert f"kubectl describe job {job}" in fake.message("chat", kind), "nothing else tells of no pod"
        assert f"kubectl describe pod -l job-name={job}" in fake.message("chat", kind), "nor of no volume"
    assert fake.condition("chat", "Reconciling") == ("True", "Fetching")
    assert fake.condition("chat", "Degraded")[0] == "False"
    assert fake.condition("chat", "Stalled")[0] == "False"
    fake.end_job(job)
    await kubelet.run(20)
    [(revision, count)] = replicas(fake).items()
    assert count == 2
    assert is_noted(fake, revision)
    assert fake.condition("chat", "Ready")[0] == "True"
    _, deployment = fake.child("Deployment")
    [engine] = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in engine["env"]


async def test_a_job_is_written_once_and_nothing_more_while_it_runs(fake):
    await begun(fake)
    before = fake.writes()
    await asyncio.sleep(1800)
    assert fake.writes() == before
    assert sum(entry.startswith("apply Job") for entry in fake.log) == 1


async def test_a_service_without_a_shared_cache_makes_no_request_for_it(fake):
    fake.node("n1")
    fake.put("chat", model=SMALL, **TWO)
    await Kubelet(fake).run(30)
    assert fake.condition("chat", "Ready")[0] == "True"
    assert not any("Job" in entry or "PersistentVolumeClaim" in entry for entry in fake.log)


@pytest.mark.parametrize("gpus", [2, 4])
@pytest.mark.parametrize("strategy", ["Auto", "Surge", "InPlace", "BlueGreen"])
async def test_the_old_revision_serves_whole_until_the_weights_are_there(fake, gpus, strategy):
    """Also where there is no room beside it, so that one is to be given up."""
    kubelet, old = await served(fake, gpus=gpus)
    fake.put("chat", **CACHED, **TWO, **env("b"), rollout={"strategy": strategy})
    await kubelet.run(300)
    [job] = fake.jobs()
    assert replicas(fake)[old] == 2
    assert kubelet.least.get("chat", 2) == 2
    assert fake.condition("chat", "Available")[0] == "True"
    assert fake.condition("chat", "Ready") == ("False", "Fetching")
    assert fake.statuses["chat"]["rollout"]["step"] == "Fetching"
    fake.end_job(job)
    await kubelet.run(120)
    if strategy in {"Auto", "InPlace"} or gpus == 4:
        assert old not in replicas(fake)
        assert fake.condition("chat", "Ready")[0] == "True"


@pytest.mark.parametrize(
    ("word", "reason", "stalled", "names"),
    [
        ("HubUnauthorized", "HubUnauthorized", "True", "spec.model.source.hub.tokenSecretRef"),
        ("HubRateLimited", "HubRateLimited", "False", "asked again"),
        ("HubUnavailable", "HubUnavailable", "False", "asked again by itself"),
        ("ModelNotFound", "ModelNotFound", "True", "spec.model.revision"),
        ("CacheFull", "CacheFull", "True", "enlarge"),
        ("FetchFailed", "FetchFailed", "False", "kubectl logs job/chat-fetch-"),
        ("SomethingOfALaterVersion", "FetchFailed", "False", "kubectl logs job/chat-fetch-"),
    ],
)
async def test_why_it_fails_is_told_while_the_old_revision_serves(fake, word, reason, stalled, names):
    kubelet, old = await served(fake)
    fake.put("chat", **CACHED, **TWO, **env("b"))
    await kubelet.run(10)
    [job] = fake.jobs()
    fake.run_job(job, failing(word))
    await kubelet.run(600)
    assert fake.condition("chat", "Degraded") == ("True", reason)
    assert fake.condition("chat", "Ready") == ("False", reason)
    assert fake.condition("chat", "Stalled")[0] == stalled
    assert fake.condition("chat", "Available")[0] == "True"
    message = fake.message("chat", "Degraded")
    assert names in message
    assert f"kubectl delete job {job}" in message
    assert "4xx" not in message, "no other words of the log"
    assert replicas(fake)[old] == 2
    new = next(revision for revision in replicas(fake) if revision != old)
    assert replicas(fake)[new] == 0
    assert all("failed" not in told for told in fake.statuses["chat"]["revisions"])
    assert "shardwright.dev/failed-start" not in record(fake, new)["metadata"].get("annotations", {})
    assert not is_noted(fake, new)
    # It tries again: what it said last is told until it is done.
    trying = failing(word) | {"state": {"running": {}}}
    fake.run_job(job, trying)
    await kubelet.run(60)
    assert fake.condition("chat", "Degraded") == ("True", reason)
    fake.end_job(job)
    fake.parts.store.remove_pod(("team", f"{job}-x"))
    await kubelet.run(120)
    assert fake.condition("chat", "Degraded")[0] == "False"
    assert replicas(fake) == {new: 2}


async def test_a_licence_that_is_missing_is_said_of_a_new_service_too(fake):
    kubelet = await begun(fake)
    [job] = fake.jobs()
    fake.run_job(job, failing("HubUnauthorized"))
    await kubelet.run(30)
    for kind in ("Available", "Ready"):
        assert fake.condition("chat", kind) == ("False", "HubUnauthorized")
    assert "licence" in fake.message("chat", "Ready")
    fake.run_job(job, failing("HubRateLimited"))  # the same state with other words is news
    await kubelet.run(30)
    assert fake.condition("chat", "Ready") == ("False", "HubRateLimited")


@pytest.mark.parametrize(
    ("state", "reason", "names"),
    [
        ({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}, "ImagePull", "spec.engine.image"),
        (
            {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "hf" not found'}}},
            "PodConfig",
            "no Secret hf",
        ),
        (ended("", reason="OOMKilled", code=137), "FetchFailed", "kubectl logs job/"),
        (ended("exec: python3: not found", reason="StartError", code=128), "FetchFailed", "kubectl logs job/"),
    ],
)  # fmt: skip
async def test_what_keeps_its_pod_from_starting_is_told_as_of_the_job(fake, state, reason, names):
    kubelet = await begun(fake)
    [job] = fake.jobs()
    fake.run_job(job, state | {"restartCount": 2})
    await kubelet.run(30)
    assert fake.condition("chat", "Degraded") == ("True", reason)
    assert names in fake.message("chat", "Degraded")
    assert job in fake.message("chat", "Degraded")


@pytest.mark.parametrize("restart", [False, True])
async def test_a_job_that_gave_up_is_made_anew_when_it_is_gone(fake, restart):
    """Kubernetes removes it after a while: that is the back-off. Why is in the status, whoever forgets it."""
    kubelet = await begun(fake)
    [job] = fake.jobs()
    fake.run_job(job, failing("HubRateLimited"))
    await kubelet.run(30)
    fake.end_job(job, "Failed", "BackoffLimitExceeded")
    fake.parts.store.remove_pod(("team", f"{job}-x"))
    if restart:
        await fake.restart()
    await kubelet.run(300)
    assert fake.condition("chat", "Degraded") == ("True", "HubRateLimited")
    assert sum(entry.startswith("apply Job") for entry in fake.log) == 1
    fake.lose(("Job", "team", job))
    await kubelet.run(20)
    assert fake.jobs() == [job]
    assert sum(entry.startswith("apply Job") for entry in fake.log) == 2
    fake.end_job(job)
    await kubelet.run(20)
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_one_that_took_too_long_says_so(fake):
    kubelet = await begun(fake)
    [job] = fake.jobs()
    fake.end_job(job, "Failed", "DeadlineExceeded")
    await kubelet.run(30)
    assert fake.condition("chat", "Degraded") == ("True", "FetchFailed")
    assert "goes on where it stopped" in fake.message("chat", "Degraded")
    assert f"kubectl describe job {job}" in fake.message("chat", "Degraded")


async def test_revisions_that_need_the_same_bytes_have_a_job_each_and_one_at_a_time(fake):
    kubelet, _ = await served(fake)
    fake.put("chat", **CACHED, **TWO, **env("b"))
    await kubelet.run(10)
    [job] = fake.jobs()
    fake.put("chat", **CACHED, **TWO, **env("c"))
    await kubelet.run(10)
    assert fake.jobs() == [job]
    fake.end_job(job)
    await kubelet.run(120)
    assert list(replicas(fake)) == [kubelet.revision("c")]
    assert not any(entry.startswith("delete Job") for entry in fake.log)


@pytest.mark.parametrize("how", ["at it", "over", "unlabelled"])
async def test_a_spec_that_mends_what_a_job_fails_on_is_taken_up_at_once(fake, how):
    """A wrong image or token: the bytes are the same, and so is the Job's name."""
    kubelet = await begun(fake)
    [job] = fake.jobs()
    fake.run_job(job, {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}})
    await kubelet.run(30)
    assert fake.condition("chat", "Degraded") == ("True", "ImagePull")
    if how == "over":
        fake.end_job(job, "Failed", "BackoffLimitExceeded")
        fake.parts.store.remove_pod(("team", f"{job}-x"))
    if how == "unlabelled":  # as an operator made it that did not say of which revision it is
        fake.edit("Job", job, {"metadata": {"labels": {"shardwright.dev/revision": None}}})
    fake.put("chat", **CACHED, **TWO, engine={"image": "example.org/vllm:right"})
    await kubelet.run(5)
    fake.parts.store.remove_pod(("team", f"{job}-x"))
    await kubelet.run(15)
    assert fake.jobs() == [job]
    pod = fake.child("Job")[1]["spec"]["template"]
    assert pod["spec"]["containers"][0]["image"] == "example.org/vllm:right"
    assert "shardwright.dev/revision" not in pod["metadata"]["labels"]
    assert fake.condition("chat", "Ready") == ("False", "Fetching")
    fake.run_job(job, failing("HubRateLimited"))  # of its own revision it goes on by itself
    await kubelet.run(600)
    assert sum(entry.startswith("delete Job") for entry in fake.log) == 1
    fake.end_job(job)
    fake.parts.store.remove_pod(("team", f"{job}-x"))
    await kubelet.run(60)
    assert fake.condition("chat", "Ready")[0] == "True"


def unplaced(fake, job, **condition):
    """Give a Job a pod that has no node, so far or as the scheduler says."""
    fake.run_job(job, {}, node="")
    pod = copy.deepcopy(fake.told_pods[-1])
    pod["metadata"]["creationTimestamp"] = loop_now()
    said = [{"type": "PodScheduled", "status": "False"} | condition] if condition else []
    pod["status"] = {"phase": "Pending", "conditions": said}
    fake.parts.store.set_pod(pod)


async def test_a_pod_that_no_scheduler_has_seen_yet_is_no_trouble(fake):
    """It takes a moment; one that is not seen within a minute is told."""
    kubelet = await begun(fake)
    fake.parts.reconciler.reporter.timestamp = loop_now
    [job] = fake.jobs()
    unplaced(fake, job)
    await kubelet.run(30)
    assert fake.condition("chat", "Ready") == ("False", "Fetching")
    assert fake.condition("chat", "Degraded")[0] == "False"
    await asyncio.sleep(60)
    assert fake.condition("chat", "Ready") == ("False", "Unschedulable"), "without any event"
    assert job in fake.message("chat", "Degraded")


@pytest.mark.parametrize("condition", [{}, {"reason": "Unschedulable", "message": "unbound claims"}])
async def test_a_job_that_has_no_node_for_a_moment_goes_on_for_another_spec(fake, condition):
    """What the status has not told of yet may pass by itself."""
    kubelet = await begun(fake)
    [job] = fake.jobs()
    unplaced(fake, job, **condition)
    fake.put("chat", **CACHED, **TWO, **env("b"))
    await asyncio.sleep(0.04)
    fake.run_job(job, {"state": {"running": {}}})
    await kubelet.run(30)
    assert not any(entry.startswith("delete Job") for entry in fake.log)
    unplaced(fake, job, reason="Unschedulable", message="no node")
    await kubelet.run(30)
    assert fake.condition("chat", "Degraded") == ("True", "Unschedulable")
    fake.put("chat", **CACHED, **TWO, **env("c"))
    await kubelet.run(10)
    assert sum(entry.startswith("delete Job") for entry in fake.log) == 1


async def test_a_job_that_fetches_what_nobody_asks_for_any_more_is_stopped(fake):
    kubelet = await begun(fake)
    [wrong] = fake.jobs()
    fake.put("chat", model=CACHED["model"] | {"revision": "v2"}, **TWO)
    await kubelet.run(20)
    [right] = fake.jobs()
    assert right != wrong
    assert f"delete Job/{wrong}" in fake.log
    fake.put("chat", model=SMALL, **TWO)
    await kubelet.run(30)
    assert fake.jobs() == []
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_an_earlier_revision_that_comes_back_needs_no_job(fake):
    """While its record says that its weights are there."""
    kubelet, old = await served(fake)
    fake.job_s = 1.0
    fake.put("chat", **CACHED, **TWO, **env("b"))
    await kubelet.run(120)
    made = [entry for entry in fake.log if entry.startswith("apply Job")]
    fake.put("chat", **CACHED, **TWO)
    await kubelet.run(120)
    assert replicas(fake) == {old: 2}
    assert [entry for entry in fake.log if entry.startswith("apply Job")] == made


@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("fault", ["lost", "unsent"])
async def test_an_operator_that_dies_between_any_two_writes_makes_one_job_and_no_early_engine(
    fake, at, fault
):
    fake.job_s = None
    fake.node("n1")
    claim(fake, "ReadWriteMany")
    fake.faults[at] = fault
    fake.put("chat", **CACHED, **TWO)
    await asyncio.sleep(0.3)
    await fake.restart()
    kubelet = Kubelet(fake)
    await kubelet.run(60)
    assert len(fake.jobs()) == 1
    assert list(replicas(fake).values()) == [0]
    fake.end_job(fake.jobs()[0])
    await asyncio.sleep(0.06)
    await fake.restart()  # between the Job's end and what follows from it
    await kubelet.run(30)
    assert list(replicas(fake).values()) == [2]
    assert fake.condition("chat", "Ready")[0] == "True"
    before = fake.writes()
    await fake.restart()
    await kubelet.run(30)
    assert fake.writes() == before, "a restart with nothing to do writes nothing"


async def test_the_end_of_a_job_that_nobody_saw_is_not_lost(fake):
    """The operator is away while the Job ends and is removed: it is made again, and finds all that it needs."""
    kubelet = await begun(fake)
    [job] = fake.jobs()
    fake.end_job(job)
    fake.lose(("Job", "team", job))
    await fake.restart()
    await kubelet.run(20)
    assert fake.jobs() == [job]
    fake.end_job(job)
    await kubelet.run(20)
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_a_newer_operator_moves_no_pod_of_a_service_that_fetches_by_itself(fake, monkeypatch):
    """What an earlier version has put on record: no Job, and engines that ask the hub."""
    monkeypatch.setattr("shardwright.render.manifests.fetches", lambda *_: False)
    monkeypatch.setattr("shardwright.controller.fetching.fetches", lambda *_: False)
    fake.node("n1")
    claim(fake, "ReadWriteMany")
    fake.put("chat", **CACHED, **TWO)
    kubelet = Kubelet(fake)
    await kubelet.run(30)
    old = replicas(fake)
    template = copy.deepcopy(fake.child("Deployment")[1]["spec"]["template"])
    monkeypatch.undo()
    before = fake.writes()
    await fake.restart()
    await kubelet.run(300)
    assert fake.writes() == before
    fake.put("chat", **CACHED, scaling={"minReplicas": 3, "maxReplicas": 3})
    await kubelet.run(60)
    assert replicas(fake) == dict.fromkeys(old, 3)
    assert fake.child("Deployment")[1]["spec"]["template"] == template
    assert fake.jobs() == []
    fake.put("chat", **CACHED, **TWO, **env("b"))  # and its next revision has one
    await kubelet.run(10)
    assert len(fake.jobs()) == 1


async def test_scaling_fetches_nothing(fake):
    kubelet, revision = await served(fake)
    for count in (3, 1, 4):
        fake.put("chat", **CACHED, scaling={"minReplicas": count, "maxReplicas": count})
        await kubelet.run(30)
        assert replicas(fake) == {revision: count}
    assert fake.jobs() == []


async def test_a_service_scaled_to_zero_fetches_when_it_is_scaled_up(fake):
    kubelet = await begun(fake, scaling={"mode": "External"}, replicas=0)
    assert fake.jobs() == []
    fake.put("chat", **CACHED, scaling={"mode": "External"}, replicas=1)
    await kubelet.run(20)
    assert len(fake.jobs()) == 1


async def test_a_new_revision_of_what_is_scaled_to_zero_fetches_nothing(fake):
    kubelet, _ = await served(fake, scaling={"mode": "External"}, replicas=1)
    fake.put("chat", **CACHED, scaling={"mode": "External"}, replicas=0)
    await kubelet.run(30)
    fake.put("chat", **CACHED, **env("b"), scaling={"mode": "External"}, replicas=0)
    await kubelet.run(60)
    assert fake.jobs() == []
    assert fake.condition("chat", "Ready") == ("False", "ScaledToZero")


async def test_a_deployment_that_was_refused_makes_no_early_engine(fake):
    fake.job_s = None
    fake.node("n1")
    claim(fake, "ReadWriteMany")
    fake.fail["apply Deployment"] = Invalid("a policy denied the request", status=422)
    fake.put("chat", **CACHED, **TWO)
    kubelet = Kubelet(fake)
    await kubelet.run(60)
    fake.fail.clear()
    await kubelet.run(900)
    assert list(replicas(fake).values()) == [0]
    fake.end_job(fake.jobs()[0])
    await kubelet.run(30)
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_a_growth_that_was_refused_waits_for_the_job_too(fake):
    kubelet, revision = await served(fake)
    fake.fail["apply Deployment"] = Invalid("a policy denied the request", status=422)
    fake.put("chat", **CACHED, scaling={"minReplicas": 3, "maxReplicas": 3})
    await kubelet.run(60)
    patch = {"metadata": {"annotations": {ANNOTATION_FETCHED: None, "note": "the disk was new"}}}
    fake.edit("ControllerRevision", f"chat-{revision}", patch)
    await kubelet.run(30)
    fake.fail.clear()
    await kubelet.run(900)
    assert replicas(fake) == {revision: 2}
    fake.end_job(fake.jobs()[0])
    await kubelet.run(30)
    assert replicas(fake) == {revision: 3}


async def test_a_job_that_is_refused_is_told_and_offered_again(fake):
    kubelet = await begun(fake)
    for name in fake.jobs():
        fake.lose(("Job", "team", name))
    fake.fail["apply Job"] = Forbidden("jobs.batch is forbidden", status=403)
    await kubelet.run(60)
    assert fake.condition("chat", "Accepted") == ("False", "WriteForbidden")
    assert "Job/chat-fetch-" in fake.message("chat", "Accepted")
    assert list(replicas(fake).values()) == [0]
    fake.fail.clear()
    await kubelet.run(60)
    assert len(fake.jobs()) == 1
    assert fake.condition("chat", "Accepted")[0] == "True"


async def test_a_paused_rollout_fetches_nothing(fake):
    kubelet, old = await served(fake)
    fake.put("chat", **CACHED, **TWO, **env("b"), rollout={"paused": True})
    await kubelet.run(60)
    assert fake.jobs() == []
    assert replicas(fake) == {old: 2}
    assert fake.condition("chat", "Ready") == ("False", "RolloutPaused")
    fake.put("chat", **CACHED, **TWO, **env("b"))
    await kubelet.run(20)
    assert len(fake.jobs()) == 1


async def test_a_claim_that_was_emptied_is_filled_again_and_nothing_goes_back(fake):
    kubelet, _ = await served(fake)
    fake.job_s = 1.0
    fake.put("chat", **CACHED, **TWO, **env("b"))
    await kubelet.run(120)
    new = kubelet.revision("b")
    assert replicas(fake) == {new: 2}
    for name in fake.jobs():
        fake.lose(("Job", "team", name))
    await kubelet.run(10)
    fake.job_s = None
    kubelet.broken[new] = ended(MISS, restarts=5)
    await kubelet.run(60)
    [job] = fake.jobs()
    assert not is_noted(fake, new)
    assert replicas(fake) == {new: 2}, "nothing shrinks"
    assert fake.condition("chat", "Degraded") == ("True", "WeightsMissing")
    await fake.restart()
    await kubelet.run(1200)
    assert fake.jobs() == [job]
    assert replicas(fake) == {new: 2}
    fake.end_job(job)
    await kubelet.run(30)
    assert is_noted(fake, new)
    made = sum(entry.startswith("apply Job") for entry in fake.log)
    await kubelet.run(600)  # the kubelet waits before it starts them again
    assert sum(entry.startswith("apply Job") for entry in fake.log) == made, "not before it is gone"
    kubelet.broken.clear()
    await kubelet.run(30)
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_a_first_start_that_misses_weights_is_no_failed_start(fake):
    kubelet, old = await served(fake)
    fake.job_s = 1.0
    fake.put("chat", **CACHED, **TWO, **env("b"))
    for _ in range(30):
        await kubelet.run(1, every=1)
        if revision := kubelet.revision("b"):
            kubelet.broken[revision] = ended(MISS, restarts=9)
    new = kubelet.revision("b")
    await kubelet.run(900)
    assert replicas(fake)[old] >= 1
    assert new in replicas(fake)
    assert fake.condition("chat", "Degraded") == ("True", "WeightsMissing")
    assert fake.condition("chat", "Available")[0] == "True"


async def test_whoever_takes_the_note_off_has_the_weights_fetched_again(fake):
    kubelet, revision = await served(fake)
    patch = {"metadata": {"annotations": {ANNOTATION_FETCHED: None, "note": "the disk was new"}}}
    fake.edit("ControllerRevision", f"chat-{revision}", patch)
    await kubelet.run(20)
    [job] = fake.jobs()
    assert replicas(fake) == {revision: 2}
    fake.end_job(job)
    await kubelet.run(20)
    assert is_noted(fake, revision)


@pytest.mark.parametrize(
    ("modes", "bound", "where"),
    [
        (("ReadWriteMany",), True, "anywhere"),
        (("ReadWriteMany",), False, "as engines"),
        (("ReadWriteOnce",), True, "as engines"),
        ((), True, "anywhere"),
    ],
)
async def test_where_it_runs_follows_the_claim(fake, modes, bound, where):
    fake.job_s = None
    fake.node("n1")
    claim(fake, *modes, bound=bound)
    fake.put("chat", **CACHED)
    await asyncio.sleep(10)
    affinity = fake.child("Job")[1]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    assert ("requiredDuringSchedulingIgnoredDuringExecution" in affinity) is (where == "as engines")


async def mounted_on_n2(fake):
    """A service whose weights are in a claim for one node, which an engine on n2 has mounted."""
    for name in ("n1", "n2"):
        fake.node(name)
    fake.job_s = 1.0
    claim(fake, "ReadWriteOnce")
    fake.put("chat", **CACHED)
    kubelet = Kubelet(fake, "n2")
    await kubelet.run(30)
    return kubelet


async def test_a_claim_for_one_node_is_fetched_on_the_node_that_has_it(fake):
    kubelet = await mounted_on_n2(fake)
    [old] = replicas(fake)
    for name in fake.jobs():
        fake.lose(("Job", "team", name))
    await kubelet.run(10)
    fake.job_s = None
    fake.put("chat", **CACHED, **env("b"))
    await kubelet.run(60)
    [job] = fake.jobs()
    affinity = fake.child("Job")[1]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == ["n2"]
    assert replicas(fake)[old] == 1, "it ends only when the weights are there"
    assert fake.condition("chat", "Available")[0] == "True"
    fake.end_job(job)
    await kubelet.run(60)
    assert replicas(fake) == {kubelet.revision("b"): 1}


@pytest.mark.parametrize(("labels", "arch"), [({"n1": "arm64"}, "arm64"), ({"n1": ""}, None)])
async def test_it_runs_on_the_processor_of_the_engines_nodes(fake, labels, arch):
    fake.job_s = None
    fake.node("n1")
    claim(fake, "ReadWriteMany")
    for name, label in labels.items():
        node = copy.deepcopy(fake.nodes[name])
        node["metadata"]["labels"]["kubernetes.io/arch"] = label
        node["metadata"]["resourceVersion"] = str(next(fake.versions))
        fake.parts.store.set_node(node)
    fake.put("chat", **CACHED)
    await asyncio.sleep(10)
    pod = fake.child("Job")[1]["spec"]["template"]["spec"]
    assert pod.get("nodeSelector", {}).get("kubernetes.io/arch") == arch


async def test_a_claim_of_a_lost_node_does_not_bind_its_job_to_that_node(fake):
    """It would wait for the node for ever; elsewhere it starts when Kubernetes has taken the volume away."""
    kubelet = await mounted_on_n2(fake)
    for name in fake.jobs():
        fake.lose(("Job", "team", name))
    await kubelet.run(10)
    fake.job_s = None
    fake.node("n2", ready="Unknown")
    fake.put("chat", **CACHED, **env("b"))
    await kubelet.run(30)
    assert len(fake.jobs()) == 1
    affinity = fake.child("Job")[1]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert "matchFields" not in term


async def test_a_claim_that_nothing_mounts_yet_is_bound_to_no_node_of_an_engine(fake):
    """The disk of a local volume may be on another one."""
    for name in ("n1", "n2"):
        fake.node(name)
    for name in ("models", "other"):
        claim(fake, "ReadWriteOnce", name=name)
    fake.job_s = 1.0
    fake.put("chat", **CACHED)
    kubelet = Kubelet(fake, "n2")
    await kubelet.run(30)
    fake.job_s = None
    fake.put("chat", model=SMALL | {"cache": {"type": "PVC", "claimName": "other"}})
    await kubelet.run(20)
    [name] = [name for name in fake.jobs() if "status" not in fake.objects["Job", "team", name]]
    pod = fake.objects["Job", "team", name]["spec"]["template"]["spec"]
    [term] = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert "matchFields" not in term


async def test_a_claim_for_one_pod_is_left_to_the_engine(fake):
    fake.node("n1")
    claim(fake, "ReadWriteOncePod")
    fake.put("chat", **CACHED)
    await Kubelet(fake).run(20)
    assert fake.jobs() == []
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_a_job_of_another_under_its_name_is_told(fake):
    kubelet = await begun(fake)
    [job] = fake.jobs()
    fake.remove("chat")
    await kubelet.run(10)
    assert fake.jobs() == []
    fake.foreign("Job", job)
    fake.put("chat", **CACHED, **TWO)
    await kubelet.run(30)
    assert fake.condition("chat", "Accepted") == ("False", "ChildNameTaken")
    assert list(replicas(fake).values()) == [0]


async def test_two_services_on_one_claim_have_a_job_each(fake):
    kubelet = await begun(fake)
    fake.put("other", **CACHED)
    await kubelet.run(20)
    jobs = fake.jobs()
    assert len(jobs) == 2
    assert len({name.rpartition("-")[2] for name in jobs}) == 1, "the same bytes"
    for name in jobs:
        fake.end_job(name)
    await kubelet.run(30)
    for name in ("chat", "other"):
        assert fake.condition(name, "Ready")[0] == "True"


async def test_a_pod_that_only_claims_to_be_a_jobs_counts_for_nothing(fake):
    kubelet = await begun(fake)
    [job] = fake.jobs()
    fake.run_job(job, failing("HubUnauthorized"))
    pod = {
        "metadata": {
            "name": "copied", "namespace": "team", "labels": {"shardwright.dev/role": "fetch", "shardwright.dev/service": "chat"},
            "ownerReferences": [{"kind": "Job", "name": "somebodys", "controller": True}],
        },
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "containerStatuses": [{"name": "fetch"} | failing("CacheFull")]},
    }  # fmt: skip
    fake.parts.store.set_pod(pod)
    await kubelet.run(20)
    assert fake.condition("chat", "Degraded") == ("True", "HubUnauthorized")
    assert small_after_a_stop(fake.message("chat", "Degraded")) == []


async def test_a_pod_that_leaves_says_nothing_of_the_one_after_it(fake):
    kubelet = await begun(fake)
    [job] = fake.jobs()
    fake.run_job(job, failing("HubUnauthorized"))
    left = copy.deepcopy(fake.told_pods[-1])
    left["metadata"]["name"] = f"{job}-y"
    fake.run_job(job, failing("HubRateLimited"))
    left["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    fake.parts.store.set_pod(copy.deepcopy(left))  # its end is told after the other's start
    await kubelet.run(20)
    assert fake.condition("chat", "Degraded") == ("True", "HubRateLimited")
    fake.parts.store.remove_pod(("team", f"{job}-y"))
    await kubelet.run(20)
    assert fake.condition("chat", "Degraded") == ("True", "HubRateLimited")


async def test_its_pod_is_no_engine(fake):
    kubelet = await begun(fake)
    [job] = fake.jobs()
    fake.run_job(job, {"state": {"running": {}}, "ready": True})
    await kubelet.run(20)
    assert fake.statuses["chat"].get("readyReplicas", 0) == 0
    [(name, pod)] = [(p.name, p) for p in fake.parts.store.pods.values()]
    assert name.startswith(job)
    assert pod.fetches == job
    assert pod.owner == ""
    assert fake.parts.store.pods_of(("team", "chat")) == {}
    fake.parts.store.remove_pod(("team", name))
    assert fake.parts.store.fetch_pods == {}

"""What the API server refuses: which child it is, what that keeps from being done, and until when."""

import asyncio
import copy
import json

import pytest

from controller.test_lost_answers import content
from controller.test_ownership import KINDS, serve
from shardwright.cluster.errors import Conflict, Forbidden, Gone, Invalid, Transient, error_of
from shardwright.controller.refusals import BROKEN_S, FORBIDDEN_S, INVALID_S, SURE_S
from shardwright.render.request import Capabilities

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
REFUSALS = {
    "invalid": Invalid("spec: nonsense", status=422),
    "forbidden": Forbidden("denied by policy", status=403),
    "webhook": Transient('Internal error occurred: failed calling webhook "a": no route', status=500),
}
POLICY = "ValidatingAdmissionPolicy 'images' with binding 'all' denied request: image not allowed"
REFUSALS["policy"] = error_of(
    422, json.dumps({"reason": "Invalid", "message": POLICY}).encode(), {}, "PATCH deployments/chat"
)
UNTYPED = "failed to create typed patch object (team/chat-1; apps/v1, Kind=Deployment): "
TYPO = '.spec.template.spec.containers[name="engine"].livenesProbe: field not declared in schema'
REFUSALS["untyped"] = error_of(
    500, json.dumps({"message": UNTYPED + TYPO}).encode(), {}, "PATCH deployments/chat"
)
SURE = {"untyped": 0.0, "policy": 0.0, "invalid": 0.0, "forbidden": SURE_S, "webhook": BROKEN_S}
HARMLESS = "PodDisruptionBudget"


def tries(fake, what: str) -> int:
    return sum(entry.startswith(what) for entry in fake.log)


def break_all(fake) -> None:
    """Change a value in every child, so that each has to be repaired."""
    for kind, _, name in list(fake.objects):
        fake.edit(kind, name, {"metadata": {"labels": {"app.kubernetes.io/name": "zz"}}})


@pytest.mark.parametrize("error", REFUSALS)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_refused_child_keeps_no_other_from_being_repaired(fake, kind, error):
    await serve(fake)
    wanted = content(fake)
    names = {n for k, _, n in fake.objects if k == kind}
    fake.fail[f"apply {kind}/"] = REFUSALS[error]
    break_all(fake)
    where = "Degraded" if kind == HARMLESS else "Accepted"
    healthy = fake.condition("chat", where)
    for _ in range(int(3 * SURE[error]) + 5):
        await asyncio.sleep(1)
        if fake.condition("chat", where) != healthy:
            break
    await asyncio.sleep(1)
    left = {key for key, said in content(fake).items() if said != wanted[key]}
    assert {(k, n) for k, _, n in left} == {(kind, name) for name in names}
    invalid = isinstance(REFUSALS[error], Invalid)
    of_template = invalid and kind == "Deployment" and error != "policy"
    reason = "PodTemplateRefused" if of_template else "WriteForbidden"
    told = {"Degraded": ("True", "ChildRefused"), "Accepted": ("False", reason)}[where]
    assert fake.condition("chat", where) == told
    assert f"{kind}/{min(names)}" in fake.message("chat", where)
    assert ("spec.podTemplate" in fake.message("chat", where)) == of_template
    assert ("livenesProbe: field not declared" in fake.message("chat", where)) == (error == "untyped")
    assert (fake.condition("chat", "Ready")[0] == "True") == (kind == HARMLESS)
    assert fake.condition("chat", "Available")[0] == "True"
    offered, statuses = tries(fake, f"apply {kind}/"), fake.log.count("status chat")
    await asyncio.sleep(5)
    assert tries(fake, f"apply {kind}/") == offered, "not at every event, nor again at once"
    fake.fail.clear()
    await asyncio.sleep(INVALID_S if invalid else FORBIDDEN_S)
    assert content(fake) == wanted
    assert fake.condition("chat", "Ready")[0] == "True"
    assert fake.log.count("status chat") == statuses + 1


@pytest.mark.parametrize("change", ["edited", "deleted", "wanted otherwise"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_refusal_is_forgotten_when_what_it_was_about_has_changed(fake, kind, change):
    await serve(fake)
    name, _ = fake.child(kind)
    offered = 1 + tries(fake, f"apply {kind}/{name}")
    fake.fail[f"apply {kind}/{name}"] = REFUSALS["invalid"]
    fake.edit(kind, name, {"metadata": {"labels": {"app.kubernetes.io/name": "zz"}}})
    await asyncio.sleep(SURE_S)
    assert tries(fake, f"apply {kind}/{name}") == offered
    if change == "edited":
        in_spec = kind in {"Deployment", "PodDisruptionBudget"}  # which have a generation
        fake.edit(kind, name, {"spec": {"x": "y"}} if in_spec else {"metadata": {"labels": {"x": "y"}}})
    elif change == "deleted":
        fake.server.delete((kind, "team", name))
    elif kind == "Deployment":
        fake.put("chat", scaling={"minReplicas": 2, "maxReplicas": 2})
    else:
        return  # the spec changes nothing in it
    await asyncio.sleep(SURE_S)
    assert tries(fake, f"apply {kind}/{name}") == offered + 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_new_workload_waits_for_what_its_pods_rest_on_and_for_nothing_else(fake, kind):
    fake.node("n1")
    fake.fail[f"apply {kind}/"] = REFUSALS["invalid"]
    fake.put("chat")
    await asyncio.sleep(10)
    made = {k for k, _, _ in fake.objects}
    assert made == set(KINDS) - {kind} - (
        {"Deployment"} if kind in {"ControllerRevision", "ServiceAccount"} else set()
    )


BESIDE = {
    "PodDisruptionBudget": {"spec": {"maxUnavailable": None, "minAvailable": 2}},
    "Service": {"spec": {"ports": [{"name": "http", "port": 81, "targetPort": "http"}]}},
}


@pytest.mark.parametrize("kind", BESIDE)
async def test_an_edit_beside_which_our_values_are_invalid_is_taken_out(fake, kind):
    await serve(fake)
    spec = copy.deepcopy(fake.child(kind)[1]["spec"])
    fake.edit(kind, fake.child(kind)[0], BESIDE[kind])
    await asyncio.sleep(SURE_S)
    assert fake.child(kind)[1]["spec"] == spec
    assert fake.condition("chat", "Ready")[0] == "True"
    assert fake.condition("chat", "Degraded") == ("False", "Healthy")


@pytest.mark.parametrize("asked_s", [0.5, SURE_S - 1])
@pytest.mark.parametrize("kind", [*KINDS, HARMLESS])
async def test_a_right_that_is_missing_for_a_moment_is_no_verdict(fake, kind, asked_s):
    """An API server that has just started answers 403 while it reads the roles."""
    fake.node("n1")
    fake.fail[f"apply {kind}/"] = Forbidden("User cannot patch resource", status=403)
    fake.put("chat")
    await asyncio.sleep(asked_s)
    fake.fail.clear()
    await asyncio.sleep(2 * SURE_S)
    assert len(fake.objects) == 6
    assert "WriteForbidden" not in str(fake.statuses)
    assert not [entry for entry in fake.log if entry.startswith("event") and "Forbidden" in entry]


async def test_a_kind_that_is_served_no_more_keeps_no_other_from_being_written(fake):
    fake.node("n1")
    fake.parts.reconciler.capabilities = Capabilities(pod_monitor=True)
    fake.fail["apply PodMonitor/"] = Gone("the server could not find the requested resource", status=404)
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert {k for k, _, _ in fake.objects} == set(KINDS)
    assert fake.condition("chat", "Ready")[0] == "True"
    assert "no longer serves PodMonitor" in fake.message("chat", "Degraded")


async def test_a_right_that_stays_missing_is_told_within_seconds(fake):
    fake.node("n1")
    fake.fail["apply Service/"] = Forbidden("User cannot patch resource", status=403)
    fake.put("chat")
    await asyncio.sleep(2 * SURE_S)
    assert fake.condition("chat", "Accepted") == ("False", "WriteForbidden")


FAULTS = {
    "any": Transient("PATCH: 500: Internal error occurred", status=500),
    "login": Forbidden("Unauthorized", status=401),
    "silent": Transient("no answer"),
    "conflict": Conflict("the object has been modified", status=409),
    "invalid": REFUSALS["invalid"],
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_child_that_cannot_be_written_keeps_nothing_from_being_told(fake, kind, fault):
    """Whatever is in the way of writing, the status says what is seen of pods and nodes."""
    await serve(fake)
    fake.fail[f"apply {kind}/"] = FAULTS[fault]
    break_all(fake)
    fake.node("n1", gpus=8, ready="Unknown")
    for _ in range(60):
        await asyncio.sleep(1)
        if fake.condition("chat", "Available")[0] == "False":
            break
    assert fake.condition("chat", "Available") == ("False", "NodeLost")
    assert fake.statuses["chat"]["readyReplicas"] == 0
    fake.node("n1", gpus=8)
    fake.fail.clear()
    await asyncio.sleep(INVALID_S + 30)
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_what_is_known_of_other_children_is_told_while_one_cannot_be_written(fake):
    await serve(fake)
    fake.fail["apply Deployment/"] = REFUSALS["invalid"]
    break_all(fake)
    await asyncio.sleep(5)
    assert fake.condition("chat", "Accepted") == ("False", "PodTemplateRefused")
    fake.fail["apply Service/"] = FAULTS["any"]
    fake.edit("Service", "chat", {"metadata": {"labels": {"app.kubernetes.io/name": "yy"}}})
    told = fake.log.count("status chat")
    await asyncio.sleep(60)
    assert fake.condition("chat", "Accepted") == ("False", "PodTemplateRefused")
    assert fake.log.count("status chat") == told

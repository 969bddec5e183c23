"""A write whose answer is lost ends as if it had not been: whoever wrote, whatever was written, whoever else writes."""

import asyncio
import copy

import pytest

from controller.conftest import running
from controller.fake_api import Fake
from shardwright.controller.apply import CENSUS_S
from shardwright.controller.reconcile import RECHECK_S

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
FAULTS = ("lost", "late", "unsent", "resent")
"""See `Fake.faults`."""


def content(fake: Fake) -> dict:
    """What is stored and who says what of it, without what differs from one run to the next."""
    found = {}
    for key, obj in fake.objects.items():
        seen = copy.deepcopy(obj)
        head = seen["metadata"]
        for name in ("uid", "resourceVersion", "creationTimestamp", "generation"):
            head.pop(name, None)
        fields = {entry["manager"]: entry["fieldsV1"] for entry in head.pop("managedFields")}
        found[key] = (seen, fields)
    return found


async def served(fake: Fake) -> None:
    fake.put("chat", scaling={"minReplicas": 2, "maxReplicas": 2})
    await asyncio.sleep(10)
    fake.run_pods("n1")
    await asyncio.sleep(10)
    assert fake.condition("chat", "Ready")[0] == "True"


async def nothing(_: Fake) -> None:
    pass


async def new(fake: Fake) -> None:
    fake.put("chat")


async def burst(fake: Fake) -> None:
    """So many new services that their names are listed and not looked at."""
    for index in range(6):
        fake.put(f"s{index}", at=index)


async def edit(fake: Fake) -> None:
    """A new revision, and the end of the old one."""
    fake.put("chat", engine={"env": [{"name": "A", "value": "b"}]})
    await asyncio.sleep(30)
    fake.run_pods("n1")


async def scale(fake: Fake) -> None:
    fake.put("chat", scaling={"minReplicas": 3, "maxReplicas": 3})


async def repairs(fake: Fake) -> None:
    """A value that was changed, some beside which ours are invalid, an object that was deleted."""
    fake.edit("Deployment", fake.child("Deployment")[0], {"spec": {"replicas": 7}})
    fake.edit("PodDisruptionBudget", "chat", {"spec": {"maxUnavailable": None, "minAvailable": 2}})
    fake.edit("Service", "chat", {"spec": {"ports": [{"name": "http", "port": 81}]}})
    fake.server.delete(("Service", "team", "chat-engine"))


async def run(before, scenario, faults: dict[int, str]) -> tuple[Fake, dict]:
    async with running() as fake:
        fake.node("n1", gpus=8)
        await before(fake)
        fake.sent, fake.faults = 0, faults
        await scenario(fake)
        await asyncio.sleep(3 * RECHECK_S)
        assert not fake.faults, "every fault struck"
        return fake, content(fake)


def verdicts(fake: Fake) -> dict:
    return {
        name: [(c["type"], c["status"], c["reason"]) for c in status["conditions"]]
        for name, status in fake.statuses.items()
    }


SCENARIOS = [(nothing, new), (nothing, burst), (served, edit), (served, scale), (served, repairs)]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("before", "scenario"), SCENARIOS, ids=lambda f: f.__name__)
async def test_a_fault_in_any_write_changes_nothing_in_the_end(before, scenario, fault):
    sound, wanted = await run(before, scenario, {})
    assert sound.sent >= 2
    for number in range(sound.sent):
        fake, found = await run(before, scenario, {number: fault})
        assert found == wanted, (number, fake.log)
        assert verdicts(fake) == verdicts(sound), (number, fake.log)


@pytest.mark.parametrize("lands_s", [-1, 0.01, 0.5])
@pytest.mark.parametrize("scenario", [new, burst], ids=lambda s: s.__name__)
async def test_a_write_in_flight_at_the_end_of_an_operator_is_found_by_the_next(scenario, lands_s):
    """It lands before the next one lists what there is, while that one decides, or while it writes itself."""
    _, wanted = await run(nothing, scenario, {})
    for number in range(6):
        fake = Fake()
        async with running(fake):
            fake.node("n1", gpus=8)
            fake.faults = {number: "flying"}
            await scenario(fake)
            land = await fake.flying
        if lands_s < 0:
            land()
        async with running(fake):
            if lands_s > 0:
                await asyncio.sleep(lands_s)
                land()
            await asyncio.sleep(3 * RECHECK_S)
            assert content(fake) == wanted, (number, fake.log)


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_a_controller_adds_to_a_new_object_at_once_makes_it_nobody_elses(fake, fault):
    """Some clusters add pull secrets to every account, within the second in which it is made."""
    store = fake.server.apply

    def then_add(obj, **how):
        answer = store(obj, **how)
        if obj["kind"] == "ServiceAccount":
            secrets = {"imagePullSecrets": [{"name": "registry"}]}
            fake.edit("ServiceAccount", obj["metadata"]["name"], secrets, "controller")
        return answer

    fake.server.apply = then_add
    fake.node("n1", gpus=8)
    fake.faults = {f"apply ServiceAccount/s{index}-engine": fault for index in range(6)}
    await burst(fake)
    await asyncio.sleep(3 * RECHECK_S)
    assert not fake.faults
    for index in range(6):
        assert fake.condition(f"s{index}", "Accepted")[0] == "True"
        _, account = fake.child("ServiceAccount", f"s{index}-")
        assert account["metadata"]["ownerReferences"][0]["uid"] == fake.raw[f"s{index}"]["metadata"]["uid"]
        assert account["imagePullSecrets"]


OTHERS = {
    "values that differ": {"spec": {"ports": [{"port": 81}], "type": "NodePort"}},
    "values that do not": {"spec": {"externalTrafficPolicy": "Local"}},
    "another controller": {
        "metadata": {
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "App", "name": "a", "uid": "a", "controller": True}
            ]
        },
        "spec": {"externalTrafficPolicy": "Local"},
    },
}


@pytest.mark.parametrize("ago_s", [0.1, 30])
@pytest.mark.parametrize("fault", ["", *FAULTS])
@pytest.mark.parametrize("other", OTHERS)
async def test_an_object_that_appears_after_the_census_is_left_as_it_was(fake, other, fault, ago_s):
    fake.node("n1", gpus=8)
    names = fake.names

    async def then_taken(kind, namespace):
        found = await names(kind, namespace)
        if kind.kind == "Service" and not found:
            fake.foreign("Service", "s3", **copy.deepcopy(OTHERS[other]))
            await asyncio.sleep(ago_s)
        return found - {"s3"}

    fake.names = then_taken
    fake.faults = {"apply Service/s3": fault}
    for index in range(6):
        fake.put(f"s{index}")
    await asyncio.sleep(2 * ago_s + 10)
    theirs = fake.objects["Service", "team", "s3"]
    assert fake.condition("s3", "Accepted") == ("False", "ChildNameTaken")
    assert {entry["manager"] for entry in theirs["metadata"]["managedFields"]} == {"somebody"}
    assert theirs["spec"] == OTHERS[other]["spec"]
    assert "labels" not in theirs["metadata"]
    assert not [n for k, _, n in fake.objects if k == "Deployment" and n.startswith("s3")]
    assert sum(1 for k, _, _ in fake.objects if k == "Deployment") == 5
    fake.server.delete(("Service", "team", "s3"))
    await asyncio.sleep(CENSUS_S)
    assert fake.condition("s3", "Accepted")[0] == "True"

"""Plans that wait: what is written while one does, what an approval applies, and what a restart leaves alone."""

import asyncio
import copy
import random

import pytest

from shardwright.controller.work import HISTORY
from shardwright.render import revision, template
from shardwright.render.approval import PROPOSED

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
MANUAL = {"planPolicy": "Manual"}


def env(value):
    return {"engine": {"env": [{"name": "A", "value": value}]}}


async def settle(fake, node="n1"):
    """Until nothing is left to do, with pods that serve at once."""
    for _ in range(4):
        await asyncio.sleep(5)
        fake.end_pods()
        fake.run_pods(node)
    await asyncio.sleep(5)


def records(fake):
    """Number by revision."""
    return {
        name.rpartition("-")[2]: obj["revision"]
        for (kind, _, name), obj in fake.objects.items()
        if kind == "ControllerRevision"
    }


def running(fake):
    return sorted(name.rpartition("-")[2] for kind, _, name in fake.objects if kind == "Deployment")


def proposal(fake):
    return fake.statuses["chat"].get("proposal")


def templates_as_recorded(fake):
    for (kind, namespace, name), obj in fake.objects.items():
        if kind == "Deployment":
            record = fake.objects["ControllerRevision", namespace, name]
            assert obj["spec"]["template"] == record["data"]["template"]


async def nothing_is_written_at_a_restart(fake):
    before = fake.writes()
    await fake.restart()
    await asyncio.sleep(1500)
    assert fake.writes() == before


async def test_manual_runs_nothing_before_the_first_approval_and_then_what_was_proposed(fake):
    fake.node("n1")
    fake.put("chat", **MANUAL)
    await settle(fake)
    assert {kind for kind, _, _ in fake.objects} == {"ControllerRevision"}
    [(proposed, number)] = records(fake).items()
    assert number == PROPOSED
    assert proposal(fake)["revision"] == proposed
    assert proposal(fake)["changes"][-1] == "1 pod starts"
    for kind in ("Placed", "Available", "Ready"):
        assert fake.condition("chat", kind) == ("False", "WaitsForApproval")
    assert fake.condition("chat", "Planned") == ("True", "WaitsForApproval")
    assert fake.condition("chat", "Stalled") == ("True", "WaitsForPerson")
    message = fake.message("chat", "Ready")
    assert f"shardwright approve chat -n team --revision {proposed}" in message
    assert f'spec.approvedRevision: "{proposed}"' in message
    assert "nothing runs before" in message
    assert "plan" not in fake.statuses["chat"]
    await nothing_is_written_at_a_restart(fake)
    recorded = copy.deepcopy(fake.objects["ControllerRevision", "team", f"chat-{proposed}"]["data"])
    fake.put("chat", **MANUAL, approvedRevision=proposed)
    await settle(fake)
    assert running(fake) == [proposed]
    assert records(fake) == {proposed: 1}
    assert fake.objects["ControllerRevision", "team", f"chat-{proposed}"]["data"] == recorded
    templates_as_recorded(fake)
    assert fake.condition("chat", "Ready") == ("True", "Serving")
    assert proposal(fake) is None
    await nothing_is_written_at_a_restart(fake)


async def test_a_change_under_manual_waits_with_its_differences_and_an_approval_rolls_it_out(fake):
    fake.node("n1")
    fake.put("chat")
    await settle(fake)
    [old] = running(fake)
    fake.put("chat", **MANUAL)  # what runs already needs nobody's approval
    await settle(fake)
    assert fake.condition("chat", "Ready") == ("True", "Serving")
    fake.put("chat", **MANUAL, **env("b"))
    await settle(fake)
    assert running(fake) == [old]
    new = proposal(fake)["revision"]
    assert records(fake) == {old: 1, new: PROPOSED}
    assert proposal(fake)["changes"] == ["spec.containers[engine].env[A] added", "pods restart"]
    assert fake.statuses["chat"]["plan"]["revision"] == old
    assert fake.condition("chat", "Available")[0] == "True"
    assert fake.condition("chat", "Ready") == ("False", "WaitsForApproval")
    assert f"revision {old} stays in force" in fake.message("chat", "Ready")
    await nothing_is_written_at_a_restart(fake)
    fake.put("chat", **MANUAL, **env("b"), approvedRevision=new)
    await settle(fake)
    assert running(fake) == [new]
    assert records(fake) == {old: 1, new: 2}
    assert fake.condition("chat", "Ready") == ("True", "Serving")


async def test_a_rollback_applies_the_recorded_template_again_and_what_the_spec_says_waits(fake):
    fake.node("n1")
    fake.put("chat", **env("a"))
    await settle(fake)
    [first] = running(fake)
    template = copy.deepcopy(fake.objects["Deployment", "team", f"chat-{first}"]["spec"]["template"])
    fake.put("chat", **env("b"))
    await settle(fake)
    [second] = running(fake)
    fake.put("chat", **env("b"), approvedRevision=first)
    await settle(fake)
    assert running(fake) == [first]
    assert fake.objects["Deployment", "team", f"chat-{first}"]["spec"]["template"] == template
    assert records(fake) == {first: 3, second: 2}
    assert fake.condition("chat", "Planned") == ("True", "RevisionPinned")
    assert fake.condition("chat", "Ready") == ("True", "RevisionPinned")
    assert fake.condition("chat", "Stalled")[0] == "False"
    assert proposal(fake)["revision"] == second
    assert "shardwright approve chat -n team --clear" in fake.message("chat", "Planned")
    await nothing_is_written_at_a_restart(fake)
    fake.put("chat", **env("b"))  # cleared
    await settle(fake)
    assert running(fake) == [second]
    assert records(fake) == {first: 3, second: 4}
    assert fake.condition("chat", "Ready") == ("True", "Serving")


async def test_an_unknown_revision_changes_nothing_and_the_known_ones_are_named(fake):
    fake.node("n1")
    fake.put("chat")
    await settle(fake)
    [old] = running(fake)
    fake.put("chat", **MANUAL, **env("b"), approvedRevision="00000000")
    await settle(fake)
    assert running(fake) == [old]
    assert fake.condition("chat", "Accepted") == ("False", "UnknownRevision")
    new = proposal(fake)["revision"]
    message = fake.message("chat", "Accepted")
    assert f"{new} (what the spec leads to), {old} (in force)" in message
    assert fake.condition("chat", "Available")[0] == "True"
    await nothing_is_written_at_a_restart(fake)


@pytest.mark.parametrize("policy", ["Manual", "OnSpecChange"])
async def test_an_unknown_revision_on_a_new_cluster_runs_nothing(fake, policy):
    fake.node("n1")
    fake.put("chat", planPolicy=policy, approvedRevision="00000000")
    await settle(fake)
    assert running(fake) == []
    assert fake.condition("chat", "Accepted") == ("False", "UnknownRevision")
    [proposed] = records(fake)
    assert proposed in fake.message("chat", "Accepted")
    # The same field in git on a new cluster, where the same plan comes out: it was approved.
    fake.put("chat", planPolicy=policy, approvedRevision=proposed)
    await settle(fake)
    assert running(fake) == [proposed]
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_what_is_approved_stays_when_the_spec_becomes_unusable(fake):
    fake.node("n1")
    fake.put("chat", **env("a"))
    await settle(fake)
    [first] = running(fake)
    fake.put("chat", **env("b"))
    await settle(fake)
    bad = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 200_000}}
    fake.put("chat", **bad, approvedRevision=first)
    await settle(fake)
    assert running(fake) == [first]
    assert fake.condition("chat", "Planned") == ("False", "ContextTooLong")
    assert fake.condition("chat", "Available")[0] == "True"
    await nothing_is_written_at_a_restart(fake)


async def test_a_newer_operator_changes_nothing_of_what_waits(fake, monkeypatch):
    fake.node("n1")
    fake.put("chat", **MANUAL)
    await settle(fake)
    [(name, record)] = [(k[2], o) for k, o in fake.objects.items() if k[0] == "ControllerRevision"]
    recorded = copy.deepcopy(record["data"])
    monkeypatch.setattr(revision, "TEMPLATE_VERSION", 99)
    monkeypatch.setattr(template, "PRESTOP_S", 16)
    await nothing_is_written_at_a_restart(fake)
    fake.put("chat", **MANUAL, approvedRevision=name.rpartition("-")[2])
    await settle(fake)
    assert fake.objects["ControllerRevision", "team", name]["data"] == recorded
    templates_as_recorded(fake)
    assert recorded["templateVersion"] < 99


async def test_a_deleted_record_of_what_waits_is_written_again(fake):
    fake.node("n1")
    fake.put("chat", **MANUAL)
    await settle(fake)
    [key] = list(fake.objects)
    before = copy.deepcopy(fake.objects.pop(key)["data"])
    fake.parts.store.remove_child(key[0], key[1:])
    await asyncio.sleep(20)
    assert fake.objects[key]["data"] == before


async def test_only_the_newest_proposal_is_kept_and_revisions_in_force_are_never_pruned(fake):
    fake.node("n1")
    fake.put("chat", **env("0"))
    await settle(fake)
    [first] = running(fake)
    for index in range(HISTORY + 3):
        fake.put(
            "chat", **env("0"), planPolicy="Manual", podTemplate={"metadata": {"labels": {"a": f"{index}"}}}
        )
        await settle(fake)
        assert len(records(fake)) == 2
    for index in range(HISTORY + 3):
        fake.put("chat", **env(f"{index}"), approvedRevision=first)
        await settle(fake)
        assert records(fake)[first] > PROPOSED
    assert running(fake) == [first]
    for index in range(HISTORY + 3):
        fake.put("chat", **env(f"{index}"))
        await settle(fake)
        [now] = running(fake)
        assert now in records(fake)
        assert len(records(fake)) <= HISTORY
    await nothing_is_written_at_a_restart(fake)


async def test_load_and_budget_wait_with_the_plan_and_scaling_does_not(fake):
    fake.node("n1", gpus=8)
    external = {"scaling": {"mode": "External"}}
    fake.put("chat", **external, replicas=2)
    await settle(fake)
    [old] = running(fake)
    for count in (3, 1):
        fake.put("chat", **external, replicas=count, **MANUAL, **env("b"), pool={"maxGPUs": 4})
        await settle(fake)
        assert fake.deployments() == {f"chat-{old}": count}
    assert proposal(fake)["replicas"] == 1


@pytest.mark.parametrize("rate", [60, 1500])
async def test_a_load_that_waits_takes_no_replica_and_adds_none(fake, rate):
    fake.node("n1", gpus=8)
    scaling = {"scaling": {"minReplicas": 1, "maxReplicas": 8}}
    fake.put("chat", **scaling, workload={"requestsPerMinute": 900})
    await settle(fake)
    [(name, count)] = fake.deployments().items()
    assert count > 1
    changed = {"workload": {"requestsPerMinute": rate}, "pool": {"maxGPUs": 8 if rate > 60 else 1}}
    fake.put("chat", **scaling, **changed, **MANUAL, **env("b"))
    await settle(fake)
    assert fake.deployments() == {name: count}
    await nothing_is_written_at_a_restart(fake)


@pytest.mark.parametrize("why", ["waits", "held", "pinned"])
async def test_what_stays_in_force_gets_its_places_where_its_own_pods_can_go(fake, why):
    """The spec selects other nodes by now; a replica more of what runs needs one of its own nodes all the same."""
    for name in ("n1", "n2"):
        fake.node(name)
        fake.nodes[name]["metadata"]["labels"]["group"] = name
        fake.nodes[name]["metadata"]["resourceVersion"] = str(next(fake.versions))
        fake.parts.store.set_node(copy.deepcopy(fake.nodes[name]))
    external = {"scaling": {"mode": "External"}}
    first = {"pool": {"maxGPUs": 8, "nodeSelector": {"group": "n1"}}}
    other = {"pool": {"maxGPUs": 8, "nodeSelector": {"group": "n2" if why != "held" else "none"}}}
    fake.put("chat", **external, replicas=1, **first)
    await settle(fake)
    [old] = running(fake)
    more = {"waits": MANUAL, "held": {}, "pinned": {"approvedRevision": old}}[why]
    for count in (1, 2):
        fake.put("chat", **external, replicas=count, **other, **more)
        await asyncio.sleep(5)
        [entry] = fake.parts.store.services.values()
        allocation = fake.parts.planning.ledger.allocation(tuple(entry.key), old)
        assert {slot.node for slot in allocation.slots} <= {"n1"}
        assert allocation.granted == count
    assert fake.deployments() == {f"chat-{old}": 2}


async def test_the_policy_can_be_changed_while_a_plan_waits(fake):
    fake.node("n1")
    fake.put("chat", **MANUAL)
    await settle(fake)
    [proposed] = records(fake)
    fake.put("chat")
    await settle(fake)
    assert running(fake) == [proposed]
    assert records(fake) == {proposed: 1}


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_is_edited_and_approved_only_what_may_run_runs(fake, seed):
    """A random life: edits, policies, approvals of anything, restarts. What runs is on record and was allowed."""
    choose = random.Random(seed)
    fake.node("n1", gpus=8)
    allowed: set[str] = set()
    for _ in range(14):
        policy = choose.choice(["Manual", "Manual", "OnSpecChange"])
        known = [*records(fake), "00000000", None, None]
        approved = choose.choice(known)
        spec = {"planPolicy": policy} | env(choose.choice("abc"))
        if approved:
            spec["approvedRevision"] = approved
        before = running(fake)
        fake.put("chat", **spec)
        await settle(fake)
        status = fake.statuses["chat"]
        leads_to = (status.get("proposal") or status.get("plan") or {}).get("revision", "")
        if approved in {*records(fake)}:
            allowed.add(approved)
            assert running(fake) == [approved]
        elif policy == "Manual" or approved:
            assert running(fake) == before
        else:
            allowed.add(leads_to)
            assert running(fake) == [leads_to]
        assert set(running(fake)) <= allowed
        templates_as_recorded(fake)
        waits = proposal(fake) is not None
        assert waits == (leads_to not in running(fake))
        if waits:
            assert leads_to in records(fake)
        if choose.random() < 0.4:
            await nothing_is_written_at_a_restart(fake)

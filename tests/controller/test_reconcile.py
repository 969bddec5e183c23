"""The loop against a fake API: what is written, in which order, and what an error leads to."""

import asyncio
import copy
import json

import pytest

from shardwright.api.llmservice import ServiceKey
from shardwright.cluster.errors import Forbidden, Gone, Invalid, Transient
from shardwright.controller.dispatch import BURST, BURST_S, LONGEST_BURST_S
from shardwright.controller.reconcile import RECHECK_S
from shardwright.controller.references import FRESH_S
from shardwright.controller.refusals import FORBIDDEN_S, INVALID_S, SURE_S

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
KEY = ServiceKey(("team", "chat"))


async def test_a_service_gets_its_children_once_the_record_first_and_the_workload_last(fake):
    fake.node("n1")
    fake.put("chat")
    await asyncio.sleep(5)
    written = [entry for entry in fake.log if entry.startswith("apply")]
    assert written[0].startswith("apply ControllerRevision/")
    assert written[-1].startswith("apply Deployment/")
    assert len(written) == len(set(written)) == 6
    assert fake.condition("chat", "Placed") == ("True", "Placed")
    assert fake.condition("chat", "Ready")[0] == "False"
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Ready")[0] == "True"
    assert fake.log.count("status chat") == 2
    before = fake.writes()
    await asyncio.sleep(2000)  # several resyncs
    assert fake.writes() == before


async def test_room_goes_by_age_whatever_the_order_of_arrival(fake):
    fake.node("n1", gpus=2)
    for index in (3, 0, 2, 1):
        fake.put(f"s{index}", at=index)
    await asyncio.sleep(5)
    assert [fake.condition(f"s{i}", "Placed")[0] for i in range(4)] == ["True", "True", "False", "False"]
    made = {name for kind, _, name in fake.objects if kind == "Deployment"}
    assert {name[:2] for name in made} == {"s0", "s1"}


async def test_a_waiting_service_is_served_when_a_node_comes(fake):
    fake.put("chat")
    await asyncio.sleep(3)
    assert fake.condition("chat", "Planned")[0] == "False"
    fake.node("n1")
    await asyncio.sleep(3)
    assert fake.condition("chat", "Placed")[0] == "True"


async def test_a_foreign_object_is_left_alone(fake):
    fake.node("n1")
    fake.foreign("Service", "chat", spec={"ports": [{"port": 81}]})
    before = copy.deepcopy(fake.objects["Service", "team", "chat"])
    fake.put("chat")
    await asyncio.sleep(5)
    assert fake.objects["Service", "team", "chat"] == before
    assert fake.condition("chat", "Accepted") == ("False", "ChildNameTaken")
    assert not [name for kind, _, name in fake.objects if kind == "Deployment"]
    fake.server.delete(("Service", "team", "chat"))
    await asyncio.sleep(RECHECK_S + 5)
    assert fake.condition("chat", "Accepted")[0] == "True"


async def test_a_missing_secret_is_told_and_found_later(fake):
    fake.node("n1")
    source = {"type": "Hub", "hub": {"tokenSecretRef": {"name": "hf", "key": "token"}}}
    fake.put(
        "chat", model={"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 8192, "source": source}
    )
    await asyncio.sleep(3)
    assert fake.condition("chat", "Accepted") == ("False", "MissingSecret")
    fake.objects["Secret", "team", "hf"] = {"metadata": {"name": "hf"}}
    await asyncio.sleep(RECHECK_S + 5)
    assert fake.condition("chat", "Accepted")[0] == "True"


HUB = {"type": "Hub", "hub": {"tokenSecretRef": {"name": "hf", "key": "token"}}}
BIG = {"id": "Qwen/Qwen3-32B", "maxContextTokens": 8192}


def model(**more):
    return {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 8192} | more


@pytest.mark.parametrize(
    ("edit", "condition", "told"),
    [
        ({"model": model(source=HUB)}, "Accepted", "MissingSecret"),
        ({"model": model(maxContextTokens=200_000)}, "Planned", "ContextTooLong"),
    ],
)
async def test_bad_input_stays_told_however_often_it_is_looked_at(fake, edit, condition, told):
    fake.node("n1")
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Ready")[0] == "True"
    fake.put("chat", **edit)
    await asyncio.sleep(5)
    assert fake.condition("chat", condition) == ("False", told)
    await asyncio.sleep(3 * RECHECK_S)
    fake.node("n2")
    await asyncio.sleep(5)
    assert fake.condition("chat", condition) == ("False", told)
    assert fake.condition("chat", "Available")[0] == "True"


async def test_a_budget_below_what_runs_tears_nothing_down(fake):
    fake.node("n1")
    fake.put("chat", model=BIG)
    await asyncio.sleep(5)
    [deployment] = [o for (kind, _, _), o in fake.objects.items() if kind == "Deployment"]
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Ready")[0] == "True"
    fake.put("chat", model=BIG, pool={"maxGPUs": 1})
    await asyncio.sleep(60)
    assert fake.condition("chat", "Planned") == ("False", "GPUBudgetTooSmall")
    [deployment] = [o for (kind, _, _), o in fake.objects.items() if kind == "Deployment"]
    assert deployment["spec"]["replicas"] == 1
    assert fake.condition("chat", "Available")[0] == "True"


@pytest.mark.parametrize("kept", [True, False])
async def test_a_record_that_was_deleted_by_hand_is_written_again_and_moves_no_pod(fake, kept):
    fake.node("n1")
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    [record] = [key for key in fake.objects if key[0] == "ControllerRevision"]
    if kept:  # as after a restart
        fake.parts.dispatch._undecide(KEY)
        await asyncio.sleep(5)
    before = {key: obj for key, obj in fake.objects.items() if key[0] == "Deployment"}
    fake.server.delete(record)
    await asyncio.sleep(20)
    assert record in fake.objects
    assert {key: obj for key, obj in fake.objects.items() if key[0] == "Deployment"} == before
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_an_edit_that_is_taken_back_leaves_the_first_workload_in_force(fake):
    """An edit to what cannot be placed, and back again: the first workload is the one in force."""
    fake.node("n1", gpus=1)
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    [first] = [name for kind, _, name in fake.objects if kind == "Deployment"]
    fake.put("chat", model=BIG, pool={"maxGPUs": 8})
    await asyncio.sleep(30)
    assert fake.condition("chat", "Available")[0] == "True"
    fake.put("chat")
    await asyncio.sleep(10)
    assert fake.condition("chat", "Ready")[0] == "True"
    assert [name for kind, _, name in fake.objects if kind == "Deployment"] == [first]
    assert fake.objects["Deployment", "team", first]["spec"]["replicas"] == 1


async def test_scaling_a_held_service_still_works(fake):
    fake.node("n1")
    fake.put("chat", scaling={"mode": "External"}, replicas=1)
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    held = {"scaling": {"mode": "External"}, "model": model(source=HUB)}
    for count in (1, 3, 0, 2):
        fake.put("chat", replicas=count, **held)
        await asyncio.sleep(5)
        [deployment] = [o for (kind, _, _), o in fake.objects.items() if kind == "Deployment"]
        assert deployment["spec"]["replicas"] == count
        assert fake.condition("chat", "Accepted") == ("False", "MissingSecret")


async def test_a_bad_selector_and_a_restart_leave_what_runs(fake):
    fake.node("n1")
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    fake.put("chat", pool={"maxGPUs": 8, "nodeSelector": {"no": "such"}})
    await asyncio.sleep(5)
    fake.parts.planning.proposals.clear()  # as after a restart
    fake.parts.dispatch._undecide(KEY)
    await asyncio.sleep(60)
    assert fake.condition("chat", "Planned") == ("False", "NoUsableGPUs")
    [deployment] = [o for (kind, _, _), o in fake.objects.items() if kind == "Deployment"]
    assert deployment["spec"]["replicas"] == 1
    fake.put("chat")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_without_room_no_second_replica_is_given_up_before_the_first_has_left(fake):
    fake.node("n1", gpus=2)
    two = {"scaling": {"minReplicas": 2, "maxReplicas": 2}}
    fake.put("chat", **two)
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    [old] = [key for key in fake.objects if key[0] == "Deployment"]
    fake.put("chat", engine={"env": [{"name": "A", "value": "b"}]}, **two)
    await asyncio.sleep(10)  # the pods' end has not been seen
    assert fake.objects[old]["spec"]["replicas"] == 1
    fake.parts.store.remove_pod((old[1], f"{old[2]}-1"))
    await asyncio.sleep(5)
    replicas = {
        key[2]: obj["spec"]["replicas"] for key, obj in fake.objects.items() if key[0] == "Deployment"
    }
    assert set(replicas.values()) == {1}
    assert len(replicas) == 2


async def test_where_secrets_may_not_be_read_nothing_is_called_missing(fake):
    fake.node("n1")
    fake.fail["look Secret"] = Forbidden("no", status=403)
    source = {"type": "Hub", "hub": {"tokenSecretRef": {"name": "hf", "key": "token"}}}
    fake.put(
        "chat", model={"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 8192, "source": source}
    )
    await asyncio.sleep(3)
    assert fake.condition("chat", "Placed")[0] == "True"


async def test_a_burst_of_changes_is_read_to_its_end_and_one_change_is_not_kept_waiting(fake):
    for index in range(10):
        fake.node(f"n{index}")
    names = [f"s{index}" for index in range(20)]
    for name in names:
        fake.put(name)
    await asyncio.sleep(10)
    fake.log.clear()
    fake.put("s0", scaling={"minReplicas": 2, "maxReplicas": 2})
    await asyncio.sleep(0.01)
    assert [entry for entry in fake.log if entry.startswith("apply")] == [
        next(entry for entry in fake.log if entry.startswith("apply Deployment/s0-"))
    ]
    await asyncio.sleep(5)
    fake.log.clear()
    for name in names[1:]:
        fake.put(name, scaling={"minReplicas": 2, "maxReplicas": 2})
        await asyncio.sleep(LONGEST_BURST_S / 20)
    early = [entry for entry in fake.log if entry.startswith("apply")]
    assert len(early) == BURST, "the first few were no burst yet, and the rest came within its longest time"
    await asyncio.sleep(BURST_S)
    assert len([entry for entry in fake.log if entry.startswith("apply")]) == 19
    # A stream of changes without a pause is worked on all the same.
    fake.log.clear()
    for turn in range(60):
        fake.put(names[turn % 20], scaling={"minReplicas": 1 + turn // 20 % 2, "maxReplicas": 2})
        await asyncio.sleep(0.05)
    assert len([entry for entry in fake.log if entry.startswith("apply")]) > 20


@pytest.mark.parametrize("label", ["zz", None])
async def test_a_child_whose_label_names_another_service_is_put_back(fake, label):
    fake.node("n1")
    fake.put("chat")
    await asyncio.sleep(5)
    key = next(key for key in fake.objects if key[0] == "Service" and key[2] == "chat")
    before = copy.deepcopy(fake.objects[key]["metadata"]["labels"])
    fake.edit("Service", "chat", {"metadata": {"labels": {"shardwright.dev/service": label}}})
    await asyncio.sleep(1)
    assert fake.objects[key]["metadata"]["labels"] == before


async def test_a_child_that_left_the_watch_is_looked_at_and_keeps_what_it_says(fake):
    for index in range(2):
        fake.node(f"n{index}")
    for index in range(6):  # so many new services that their names are listed instead of looked at one by one
        fake.put(f"s{index}")
    await asyncio.sleep(10)
    assert "look Service/s0" not in fake.log
    fake.log.clear()
    fake.applied.clear()
    fake.edit("Service", "s0", {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})
    await asyncio.sleep(2)
    assert fake.log[:2] == ["look Service/s0", "apply Service/s0"]
    [(_, written)] = fake.applied
    assert written["spec"]["ports"]
    assert fake.objects["Service", "team", "s0"]["metadata"]["labels"]["app.kubernetes.io/managed-by"]


async def test_overload_is_waited_out_and_nothing_is_written_twice(fake):
    fake.node("n1")
    fake.fail["apply PodDisruptionBudget"] = Transient("busy", status=429, retry_after_s=20)
    fake.put("chat")
    await asyncio.sleep(10)
    assert fake.condition("chat", "Accepted")[0] == "True"
    fake.fail.clear()
    await asyncio.sleep(30)
    written = [
        entry for entry in fake.writes() if "PodDisruptionBudget" not in entry and "status" not in entry
    ]
    assert len(written) == len(set(written)) == 5
    assert fake.condition("chat", "Placed")[0] == "True"


async def test_a_refused_child_is_a_condition_until_the_spec_changes(fake):
    fake.node("n1")
    fake.fail["apply Deployment"] = Invalid("spec.template: nonsense", status=422)
    fake.put("chat")
    await asyncio.sleep(INVALID_S - 10)
    assert fake.condition("chat", "Accepted") == ("False", "PodTemplateRefused")
    # Once as it is wanted, and once without replicas, since no GPUs are held for it from then on.
    assert sum(entry.startswith("apply Deployment") for entry in fake.log) == 2
    fake.fail.clear()
    fake.put("chat", engine={"env": [{"name": "A", "value": "b"}]})
    await asyncio.sleep(5)
    assert fake.condition("chat", "Accepted")[0] == "True"


QUOTA = 'deployments.apps "chat-1" is forbidden: exceeded quota: few, requested: count/deployments.apps=1, used: {}'


async def test_a_full_quota_is_a_condition_until_it_has_room(fake):
    fake.node("n1")
    fake.fail["apply Deployment"] = Forbidden(QUOTA.format("count/deployments.apps=4"), status=403)
    fake.put("chat")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Accepted") == ("False", "QuotaExceeded")
    fake.fail["apply Deployment"] = Forbidden(QUOTA.format("count/deployments.apps=5"), status=403)
    told = fake.log.count("status chat")
    await asyncio.sleep(300)
    tried = sum(entry.startswith("apply Deployment") for entry in fake.log)
    assert 9 <= tried <= 12
    assert fake.log.count("status chat") == told
    fake.fail.clear()
    await asyncio.sleep(RECHECK_S + 1)
    assert fake.condition("chat", "Accepted")[0] == "True"


POLICY = 'deployments.apps "chat-1" is forbidden: ValidatingAdmissionPolicy "images" denied request: not this registry'


@pytest.mark.parametrize("child", ["ServiceAccount", "Deployment"])
async def test_a_child_that_may_not_be_written_is_a_condition_and_is_tried_again(fake, child):
    fake.node("n1")
    fake.fail[f"apply {child}"] = Forbidden(POLICY, status=403)
    fake.put("chat")
    await asyncio.sleep(3 * SURE_S)
    assert fake.condition("chat", "Accepted") == ("False", "WriteForbidden")
    assert "not this registry" in fake.message("chat", "Accepted")
    assert fake.condition("chat", "Stalled")[0] == "True"
    assert fake.deployments() == {}
    told = fake.log.count("status chat")
    tried = sum(entry.startswith(f"apply {child}") for entry in fake.log)
    await asyncio.sleep(10 * FORBIDDEN_S)
    assert 9 <= sum(entry.startswith(f"apply {child}") for entry in fake.log) - tried <= 11
    assert fake.log.count("status chat") == told
    fake.fail.clear()
    await asyncio.sleep(RECHECK_S + 1)
    assert fake.condition("chat", "Accepted")[0] == "True"
    assert list(fake.deployments().values()) == [1]


async def test_what_serves_goes_on_while_its_successor_may_not_be_written(fake):
    fake.node("n1")
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    before = fake.deployments()
    fake.fail["apply Deployment"] = Forbidden(POLICY, status=403)
    fake.put("chat", engine={"env": [{"name": "A", "value": "b"}]})
    await asyncio.sleep(3 * RECHECK_S)
    assert fake.condition("chat", "Accepted") == ("False", "WriteForbidden")
    assert fake.condition("chat", "Available")[0] == "True"
    assert fake.deployments() == before
    assert not any(entry.startswith("delete") for entry in fake.log)
    fake.fail.clear()
    await asyncio.sleep(RECHECK_S + 5)
    assert fake.condition("chat", "Accepted")[0] == "True"
    assert set(before) < set(fake.deployments())


@pytest.mark.parametrize("modes", [["ReadWriteOnce"], ["ReadWriteOncePod"]])
async def test_a_cache_for_one_node_is_told_when_replicas_may_run_on_several_and_tears_nothing_down(
    fake, modes
):
    fake.node("n1")
    fake.node("n2")
    fake.objects["PersistentVolumeClaim", "team", "cache"] = {"spec": {"accessModes": modes}}
    cached = {"model": model(cache={"type": "PVC", "claimName": "cache"})}
    fake.put("chat", **cached)
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Ready")[0] == "True", "one replica can mount it"
    before = fake.deployments()
    two = {"scaling": {"minReplicas": 2, "maxReplicas": 2}}
    fake.put("chat", **cached, **two)
    await asyncio.sleep(3 * RECHECK_S)
    assert fake.condition("chat", "Accepted") == ("False", "CacheNotShareable")
    assert fake.condition("chat", "Available")[0] == "True"
    assert "ReadWriteMany" in fake.message("chat", "Accepted")
    assert fake.deployments() == before, "no pod that would hold a GPU and wait for its volume"
    assert not any(entry.startswith("delete") for entry in fake.log)
    fake.objects["PersistentVolumeClaim", "team", "cache"]["spec"]["accessModes"] = ["ReadWriteMany"]
    await asyncio.sleep(RECHECK_S + 5)
    assert fake.condition("chat", "Accepted")[0] == "True"
    assert fake.deployments() == dict.fromkeys(before, 2)


async def test_a_new_service_with_a_cache_for_one_node_gets_no_child(fake):
    fake.node("n1")
    fake.objects["PersistentVolumeClaim", "team", "cache"] = {"spec": {"accessModes": ["ReadWriteOnce"]}}
    fake.put(
        "chat",
        model=model(cache={"type": "PVC", "claimName": "cache"}),
        scaling={"minReplicas": 2, "maxReplicas": 2},
    )
    await asyncio.sleep(60)
    assert fake.condition("chat", "Accepted") == ("False", "CacheNotShareable")
    assert fake.deployments() == {}


async def test_a_login_that_expired_is_no_verdict_on_the_spec(fake):
    fake.node("n1")
    fake.fail["apply Deployment"] = Forbidden("PATCH deployments/chat: 401 Unauthorized", status=401)
    fake.put("chat")
    await asyncio.sleep(20)
    assert fake.condition("chat", "Accepted")[0] == "True"
    fake.fail.clear()
    await asyncio.sleep(40)
    assert fake.condition("chat", "Accepted")[0] == "True"


async def test_what_is_invalid_is_offered_again_when_policies_may_have_changed(fake):
    fake.node("n1")
    fake.fail["apply Deployment"] = Invalid("denied by policy", status=422)
    fake.put("chat")
    await asyncio.sleep(60)
    fake.fail.clear()
    await asyncio.sleep(INVALID_S + 1000)
    assert fake.condition("chat", "Accepted")[0] == "True"


async def test_one_services_fault_stops_no_other(fake, monkeypatch):
    fake.node("n1", gpus=8)
    propose = fake.parts.planning.propose

    def faulty(entry, *rest):
        if entry.key.name == "bad":
            raise RuntimeError("a fault")
        return propose(entry, *rest)

    monkeypatch.setattr(type(fake.parts.planning), "propose", lambda _, *args: faulty(*args))
    for name in ("a", "bad", "c"):
        fake.put(name)
    await asyncio.sleep(5)
    assert fake.condition("a", "Placed")[0] == fake.condition("c", "Placed")[0] == "True"
    assert "bad" not in fake.statuses


async def test_a_deleted_service_is_not_looked_at_again(fake):
    fake.node("n1")
    for index in range(20):
        fake.put(f"s{index}")
    await asyncio.sleep(5)
    for index in range(20):
        fake.parts.store.remove_service(("team", f"s{index}"))
    await asyncio.sleep(1000)
    assert fake.parts.queue.delayed == 0


async def test_a_deleted_service_gives_its_places_back(fake):
    fake.node("n1", gpus=1)
    fake.put("a", at=0)
    fake.put("b", at=1)
    await asyncio.sleep(3)
    assert fake.condition("b", "Placed")[0] == "False"
    fake.parts.store.remove_service(("team", "a"))
    await asyncio.sleep(3)
    assert fake.condition("b", "Placed")[0] == "True"


def running(fake) -> dict[str, int]:
    return {
        name: o["spec"]["replicas"] for (kind, _, name), o in fake.objects.items() if kind == "Deployment"
    }


def restart(fake) -> None:
    fake.parts.planning.proposals.clear()
    fake.parts.planning._decisions.clear()
    fake.parts.planning._digests.clear()
    fake.parts.dispatch._undecide(KEY)


async def test_the_stated_load_decides_the_replicas_and_a_restart_keeps_them(fake):
    """A higher load leads to the same pods: the count that it takes is on record in the status only."""
    fake.node("n1", gpus=8)
    slack = {"percentile": 50, "milliseconds": 20_000}  # so that no note differs between the loads
    bounds = {"scaling": {"minReplicas": 1, "maxReplicas": 8}, "slo": {"ttft": slack, "tpot": slack}}
    fake.put("chat", workload={"requestsPerMinute": 20}, **bounds)
    await asyncio.sleep(5)
    [(name, first)] = running(fake).items()
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert first == 1
    fake.put("chat", workload={"requestsPerMinute": 500}, **bounds)
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert running(fake).keys() == {name}
    more = running(fake)[name]
    assert more > 1
    assert fake.statuses["chat"]["plan"]["replicas"] == more
    before = fake.writes()
    restart(fake)
    await asyncio.sleep(60)
    assert running(fake) == {name: more}
    assert fake.writes() == before


async def test_a_plan_of_an_older_version_is_neither_planned_anew_nor_scaled(fake):
    """Its record has no predicted figures and another digest, for that version ignored what slo says here."""
    fake.node("n1", gpus=8)
    slo = {"tpot": {"percentile": 99, "milliseconds": 400}, "optimizeFor": "Latency"}
    bounds = {"minReplicas": 1, "maxReplicas": 8}
    fake.put("chat", slo=slo, workload={"requestsPerMinute": 300}, scaling=bounds)
    await asyncio.sleep(5)
    [record] = [o for (kind, _, _), o in fake.objects.items() if kind == "ControllerRevision"]
    [deployment] = [o for (kind, _, _), o in fake.objects.items() if kind == "Deployment"]
    assert deployment["spec"]["replicas"] > 1
    core = json.loads(record["data"]["plan"])
    del core["speed"]
    record["data"] |= {"plan": json.dumps(core), "digest": "0" * 32}
    deployment["spec"]["replicas"] = 1
    raw = copy.deepcopy(fake.raw["chat"])
    raw["status"]["plan"]["replicas"] = 1
    for changed in (record, deployment, raw):
        changed["metadata"]["resourceVersion"] = str(next(fake.versions))
    fake.parts.store.set_child(record)
    fake.parts.store.set_child(deployment)
    fake.parts.store.set_service(raw)
    fake.parts.planning._cores.clear()
    fake.parts.planning._shared.clear()
    name = deployment["metadata"]["name"]
    restart(fake)
    await asyncio.sleep(60)
    assert running(fake) == {name: 1}
    fake.put(
        "chat", slo=slo, workload={"requestsPerMinute": 300}, scaling={"minReplicas": 2, "maxReplicas": 8}
    )
    await asyncio.sleep(60)
    assert fake.condition("chat", "Planned")[0] == "True"


@pytest.mark.parametrize("error", [Forbidden("no", status=403), Gone("no", status=404)])
async def test_a_priority_that_could_not_be_read_for_a_moment_is_read_again_soon(fake, error):
    references = fake.parts.reconciler.admission.references
    fake.objects["PriorityClass", None, "high"] = {"value": 1000}
    get = fake.get

    async def refuse(*_):
        raise error

    fake.get = refuse
    assert await references.priority("high") == 0
    fake.get = get
    await asyncio.sleep(FRESH_S + 1)
    assert await references.priority("high") == 1000

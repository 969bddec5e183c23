"""The scale benchmark's own arithmetic: what it asks for, what it counts, what it calls passed."""

import json
from collections import Counter

import pytest
from bench_scale import _options
from scale import audit, report, specs
from scale.phases import _spread_over
from scale.watch import service_fact

from planner import plan_support
from shardwright.planner.choice import plan
from shardwright.planner.types import Plan

USER = "system:serviceaccount:shardwright-system:shardwright"


def entry(verb, resource, name="", *, stage=None, code=200, subresource=None, namespace="team-0"):
    target = {"resource": resource, "namespace": namespace, "name": name}
    if subresource:
        target["subresource"] = subresource
    return json.dumps(
        {
            "verb": verb,
            "stage": stage or ("ResponseStarted" if verb == "watch" else "ResponseComplete"),
            "requestURI": f"/api/v1/{resource}?x=1",
            "requestReceivedTimestamp": "2026-01-02T03:04:05.678901Z",
            "objectRef": target,
            "responseStatus": {"code": code},
        }
    )


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "audit.log"
    path.write_text("")
    return path


def append(path, *lines):
    with path.open("a") as file:
        file.write("".join(line + "\n" for line in lines))


def test_the_load_has_at_least_fifty_distinct_specs_and_is_the_same_each_time():
    distinct = {json.dumps(each, sort_keys=True) for each in specs.distinct_specs()}
    assert len(distinct) == len(specs.distinct_specs()) >= 50
    assert specs.services(120) == specs.services(120)
    names = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in specs.services(1000)}
    assert len(names) == 1000


@pytest.mark.parametrize(("count", "pods"), [(20, 100), (500, 5000)])
def test_foreign_pods_are_as_many_as_asked_and_no_node_holds_more_than_a_kubelet_takes(count, pods):
    fleet = specs.nodes(count)
    made = specs.foreign_pods(pods, fleet)
    assert len(fleet) == count
    assert len({each["metadata"]["name"] for each in made}) == pods
    by_node = {}
    for each in made:
        by_node[each["spec"]["nodeName"]] = by_node.get(each["spec"]["nodeName"], 0) + 1
    assert max(by_node.values()) <= 110
    assert any("limits" in each["spec"]["containers"][0]["resources"] for each in made)


def planned_gpus(spec):
    """GPUs of one replica where it is planned, with their product."""
    machines = ((specs.H100, 8, 8), (specs.A100, 8, 8), (specs.L40S, 4, 8), (specs.A6000, 4, 8))
    usable = [m for m in machines if m[0] in spec["pool"].get("gpuProducts", [m[0]])]
    blocks = {name: block for name, block in spec.items() if name != "model"}
    request = plan_support.request(
        spec["model"]["id"], plan_support.shapes(*usable), **blocks, model=spec["model"]
    )
    found = plan(request)
    assert isinstance(found, Plan), found
    return found.product.label, found.gpus_per_replica


@pytest.mark.parametrize("count", [4, 20, 60, 88, 200, 400, 1000])
def test_the_fleet_has_room_for_each_service_and_for_the_replicas_that_the_phases_add(count):
    options = _options(["--services", str(count)])
    fleet = specs.nodes(options.nodes)
    free = Counter()
    product = {}
    for node in fleet:
        product[node["metadata"]["name"]] = node["metadata"]["labels"].get("nvidia.com/gpu.product")
        free[product[node["metadata"]["name"]]] += int(node["status"]["allocatable"].get("nvidia.com/gpu", 0))
    for pod in specs.foreign_pods(options.foreign_pods, fleet):
        limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
        free[product[pod["spec"]["nodeName"]]] -= int(limits.get("nvidia.com/gpu", 0))
    distinct = {json.dumps(each): None for each in specs.distinct_specs()}
    needs = {text: planned_gpus(json.loads(text)) for text in distinct}
    wanted = [needs[json.dumps(each["spec"])] for each in specs.services(count)]
    for phase in (
        _spread_over(count, options.changes, start=0),
        _spread_over(count, options.burst, start=1),
    ):
        taken = Counter()
        for label, gpus in [*wanted, *(wanted[index] for index in phase)]:
            taken[label] += gpus
        assert not {label: (taken[label], free[label]) for label in taken if taken[label] > free[label]}


def test_the_full_load_is_what_was_always_measured():
    options = _options([])
    assert (options.services, options.nodes, options.foreign_pods) == (1000, 500, 5000)
    assert (options.changes, options.burst, len(specs.distinct_specs())) == (50, 100, 88)


def test_a_watch_is_counted_once_and_a_half_written_line_is_kept_for_the_next_look(log):
    reader = audit.AuditLog(log)
    append(
        log, entry("watch", "pods"), entry("watch", "pods", stage="ResponseComplete"), entry("list", "pods")
    )
    whole = entry("patch", "deployments", "a-1")
    with log.open("a") as file:
        file.write(whole[:40])
    mark = reader.refresh()
    assert audit.by_verb(reader.requests) == {"list pods": 1, "watch pods": 1}
    append(log, whole[40:])
    assert audit.by_verb(reader.since(mark)) == {"patch deployments": 1}


def test_children_status_and_events_are_counted_apart(log):
    reader = audit.AuditLog(log)
    append(
        log,
        entry("patch", "deployments", "a-1"),
        entry("patch", "deployments", "a-1"),
        entry("patch", "services", "a"),
        entry("patch", "llmservices", "a", subresource="status"),
        entry("create", "events"),
        entry("patch", "llmservices", "a"),
        entry("get", "secrets", "token"),
    )
    requests = reader.since(0)
    children = audit.writes_per_child(requests)
    assert children == {("deployments", "team-0", "a-1"): 2, ("services", "team-0", "a"): 1}
    assert audit.status_writes(requests) == {("team-0", "a"): 1}
    assert len(audit.service_writes(requests)) == 1
    assert len(audit.writes(requests)) == 6


def test_what_was_not_measured_has_not_passed():
    rows = {row["name"]: row for row in report.judge({"idleWrites": 0, "changeP99Seconds": 0.2504})}
    assert rows["idleWrites"]["pass"]
    assert not rows["restartWrites"]["pass"]
    # Judged before it is rounded to what is printed.
    assert rows["changeP99Seconds"]["value"] == 0.25
    assert not rows["changeP99Seconds"]["pass"]


def test_percentiles_are_values_that_were_measured():
    values = [float(number) for number in range(1, 101)]
    assert report.spread(values) == {"count": 100, "p50": 50.0, "p99": 99.0, "max": 100.0}
    assert report.percentile([0.3], 99) == 0.3


def test_a_service_is_settled_only_for_the_generation_that_is_stored():
    ready = {"type": "Ready", "status": "True", "reason": "Settled"}
    item = {"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "conditions": [ready]}}
    assert not service_fact(item).settled
    item["status"]["observedGeneration"] = 2
    assert service_fact(item).settled
    assert not service_fact({"metadata": {"generation": 1}}).settled

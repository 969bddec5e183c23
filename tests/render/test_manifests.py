"""Golden files, schema validity, and what may and may not change a pod template."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from render.cases import CASES
from render.planbuilder import A6000, MI300X, UID, plan, service
from render.validity import parse_argv, validate
from shardwright.planner import engine_args
from shardwright.planner.types import Parallelism, Plan
from shardwright.render.digest import revision_hash, template_digest
from shardwright.render.manifests import render
from shardwright.render.overlay import check
from shardwright.render.request import Capabilities, FetchPlace, RenderRequest
from shardwright.render.revision import RevisionError, read_revision

NO_MONITOR = Capabilities()


class YamlExtension(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "yaml"

    def serialize(self, data: Any, **_: Any) -> str:
        return str(data)


@pytest.fixture
def golden(snapshot: Any) -> Any:
    return snapshot.use_extension(YamlExtension)


def rendered(
    spec: dict[str, Any],
    chosen: Plan,
    caps: Capabilities = NO_MONITOR,
    nodes: tuple[str, ...] = (),
    **more: Any,
):
    svc = service(spec)
    values = {
        "replicas": chosen.replicas,
        "plan": chosen,
        "capabilities": caps,
        "preferred_nodes": nodes,
    } | more
    return render(RenderRequest(service=svc, revision_hash=revision_hash(svc.spec, chosen), **values))


def of_kind(objects: tuple[dict[str, Any], ...], kind: str) -> dict[str, Any]:
    return next(obj for obj in objects if obj["kind"] == kind)


def engine(objects: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    pod = of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    return next(c for c in pod["containers"] if c["name"] == "engine")


def assert_argv(objects: tuple[dict[str, Any], ...]) -> None:
    container = engine(objects)
    parse_argv(container["command"], container["args"])
    parsed = engine_args.parse(container["args"])
    assert parsed.errors == ()
    assert [index for index, _ in parsed.positional] == [0]
    unknown = [a.written for a in parsed.arguments if a.flag is None]
    assert unknown == []
    owned = [a.flag.name for a in parsed.arguments if a.flag]
    assert len(owned) == len(set(owned))


def assert_canonical(value: Any) -> None:
    """No nulls, no floats, no empty maps but the ones Kubernetes keeps (emptyDir)."""
    assert value is not None
    assert not isinstance(value, float)
    if isinstance(value, dict):
        for key, inner in value.items():
            assert inner not in ({}, []) or key == "emptyDir", key
            assert_canonical(inner)
    if isinstance(value, list):
        for inner in value:
            assert_canonical(inner)


def without_script(obj: dict[str, Any]) -> dict[str, Any]:
    """The script of a Job is a file of its own."""
    if obj["kind"] == "Job":
        [container] = obj["spec"]["template"]["spec"]["containers"]
        container["command"][-1] = "(render/fetch_script.py)"
    return obj


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, golden: Any) -> None:
    spec, chosen, caps, nodes = CASES[case]
    assert [p for p in check(service(spec).spec) if p.blocking] == []
    objects = rendered(spec, chosen, caps, nodes, fetch=FetchPlace())
    for obj in objects:
        validate(obj)
    assert_argv(objects)
    for obj in objects:
        if obj["kind"] != "ControllerRevision":  # its data is opaque to the server, which keeps it as written
            assert_canonical(obj)
    shown = [without_script(obj) for obj in objects if obj["kind"] != "ControllerRevision"]
    assert yaml.safe_dump_all(shown, sort_keys=True, width=110, allow_unicode=True) == golden


def test_revision_record_is_golden(golden: Any) -> None:
    spec, chosen, caps, nodes = CASES["8b-tp1-hub"]
    record = of_kind(rendered(spec, chosen, caps, nodes), "ControllerRevision")
    record["data"] = {key: value for key, value in record["data"].items() if key != "template"}
    assert yaml.safe_dump(record, sort_keys=True, width=110) == golden


def test_stored_revision_is_applied_verbatim() -> None:
    """An upgraded operator, or a spec that has moved on, re-applies what the revision holds."""
    spec, chosen, caps, nodes = CASES["70b-tp4-token"]
    first = rendered(spec, chosen, caps, nodes)
    data = json.loads(json.dumps(of_kind(first, "ControllerRevision")["data"]))
    data["template"]["metadata"]["annotations"]["from"] = "an older operator"
    svc = service(spec | {"engine": {"version": "0.33.0"}, "drain": {"maxSeconds": 5}})
    again = render(
        RenderRequest(service=svc, revision_hash="abcd1234", replicas=7, stored=data, capabilities=caps)
    )
    deployment = of_kind(again, "Deployment")
    assert deployment["spec"]["template"] == data["template"]
    assert deployment["spec"]["replicas"] == 7
    assert deployment["spec"]["progressDeadlineSeconds"] == data["progressDeadlineSeconds"]
    assert of_kind(again, "ControllerRevision")["data"] == data


def test_stored_revision_reads_back() -> None:
    spec, chosen, caps, nodes = CASES["moe-ep"]
    record = of_kind(rendered(spec, chosen, caps, nodes), "ControllerRevision")
    stored = read_revision(json.loads(json.dumps(record["data"])))
    assert stored.digest == template_digest(service(spec).spec)
    assert [getattr(stored.plan, f) for f in ("model", "product", "estimate", "limits", "pod_resources")] == [
        getattr(chosen, f) for f in ("model", "product", "estimate", "limits", "pod_resources")
    ]
    assert stored.plan.summary == "H100 TP8·EP ×2"
    assert stored.report.candidates[0].reason == "Chosen"
    with pytest.raises(RevisionError, match=r"data\.plan"):
        read_revision({"digest": "x"})


def test_scrape_method_is_decided_once() -> None:
    """A PodMonitor CRD that comes or goes later must not change a running pod, nor scrape it twice."""
    without = rendered({}, plan(), Capabilities(pod_monitor=False))
    data = of_kind(without, "ControllerRevision")["data"]
    svc = service()
    later = render(
        RenderRequest(
            service=svc,
            revision_hash="a",
            replicas=1,
            stored=data,
            capabilities=Capabilities(pod_monitor=True),
        )
    )
    assert "PodMonitor" not in {obj["kind"] for obj in later}
    assert (
        of_kind(later, "Deployment")["spec"]["template"] == of_kind(without, "Deployment")["spec"]["template"]
    )


def test_traffic_label_is_in_the_template_and_the_service_only() -> None:
    objects = rendered({}, plan())
    deployment = of_kind(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert labels["shardwright.dev/serving"] == "true"
    assert "shardwright.dev/serving" not in selector
    assert selector.items() <= labels.items()
    for svc in (obj for obj in objects if obj["kind"] == "Service"):
        assert svc["spec"]["selector"]["shardwright.dev/serving"] == "true"
        assert svc["spec"]["selector"].items() <= labels.items()


@pytest.mark.parametrize("case", CASES)
def test_timers_agree(case: str) -> None:
    """One start-up budget drives all timers, and the grace period holds preStop and drain."""
    spec, chosen, caps, nodes = CASES[case]
    objects = rendered(spec, chosen, caps, nodes)
    container, deployment = engine(objects), of_kind(objects, "Deployment")
    probe = container["startupProbe"]
    budget = probe["periodSeconds"] * probe["failureThreshold"]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert int(env["VLLM_ENGINE_READY_TIMEOUT_S"]) == budget
    assert deployment["spec"]["progressDeadlineSeconds"] > budget
    drain = next(int(a.split("=")[1]) for a in container["args"] if a.startswith("--shutdown-timeout="))
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace == container["lifecycle"]["preStop"]["sleep"]["seconds"] + drain + 30


@pytest.mark.parametrize("case", CASES)
def test_no_liveness_probe_ends_what_has_not_started(case: str) -> None:
    """Whatever is probed for life has two minutes to answer for the first time."""
    probed = [
        container
        for obj in rendered(*CASES[case])
        if obj["kind"] == "Deployment"
        for container in obj["spec"]["template"]["spec"]["containers"]
        if "livenessProbe" in container
    ]
    assert probed
    for container in probed:
        startup = container["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 120, container["name"]
        assert startup["httpGet"] == container["livenessProbe"]["httpGet"]


def test_budget_grows_with_bytes_and_slow_paths() -> None:
    def seconds(spec: dict[str, Any], billions: float) -> int:
        probe = engine(rendered(spec, plan(billions=billions)))["startupProbe"]
        return int(probe["failureThreshold"])

    pvc = {"model": {"id": "a/b", "source": {"type": "PVC", "pvc": {"claimName": "w"}}}}
    assert seconds({}, 70) > seconds({}, 8)
    assert seconds({}, 70) > seconds(pvc, 70)


def test_slo_targets_are_bucket_edges() -> None:
    spec = {
        "slo": {
            "ttft": {"percentile": 95, "milliseconds": 1234},
            "itl": {"percentile": 99, "milliseconds": 37},
        }
    }
    arg = next(
        a for a in engine(rendered(spec, plan()))["args"] if a.startswith("--custom-histogram-buckets=")
    )
    buckets = json.loads(arg.split("=", 1)[1])
    assert set(buckets) == {"time_to_first_token", "inter_token_latency"}
    assert 1.234 in buckets["time_to_first_token"]
    assert 0.037 in buckets["inter_token_latency"]
    for edges in buckets.values():
        assert edges == sorted(set(edges))
        assert edges[0] > 0


def test_old_engine_gets_no_unknown_flags() -> None:
    args = engine(rendered({"engine": {"version": "0.11.0"}}, plan()))["args"]
    assert not [
        a for a in args if a.startswith(("--shutdown-timeout", "--custom-histogram", "--disable-access"))
    ]


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "slo": st.fixed_dictionaries(
            {}, optional={k: st.fixed_dictionaries({"percentile": st.just(95), "milliseconds": st.integers(1, 10**6)}) for k in ("ttft", "tpot", "itl")}
        ),
        "drain": st.fixed_dictionaries({"maxSeconds": st.integers(0, 86_400)}),
        "availability": st.fixed_dictionaries({"surviveNodeLoss": st.booleans()}),
        "engine": st.fixed_dictionaries(
            {},
            optional={
                "version": st.sampled_from(["0.18.1", "0.32.0", "0.33.0"]),
                "env": st.lists(st.fixed_dictionaries({"name": st.sampled_from(["A", "B", "C"]), "value": st.text("ab", max_size=3)}), max_size=3, unique_by=lambda e: e["name"]),
                "args": st.sampled_from([[], ["--seed=1"], ["--enable-log-requests"]]),
            },
        ),
        "pool": st.fixed_dictionaries(
            {},
            optional={
                "tolerations": st.lists(st.fixed_dictionaries({"key": st.sampled_from(["a", "nvidia.com/gpu"]), "operator": st.just("Exists")}), max_size=2),
                "nodeSelector": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["", "x"]), max_size=2),
            },
        ),
    },
)  # fmt: skip
PLANS = st.builds(
    plan,
    product=st.sampled_from([A6000, MI300X]),
    parallelism=st.builds(Parallelism, tensor=st.sampled_from([1, 2, 4, 8]), pipeline=st.sampled_from([1, 2]), expert=st.booleans()),
    billions=st.floats(0.1, 1000),
    replicas=st.integers(0, 100),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(SPECS, PLANS, st.integers(0, 10_000), st.lists(st.sampled_from(["n1", "n2", "n3"])))
def test_render_is_deterministic_valid_and_blind_to_replicas(
    spec: dict[str, Any], chosen: Plan, replicas: int, nodes: list[str]
) -> None:
    monitored = Capabilities(pod_monitor=True)
    one = rendered(spec, chosen, monitored, nodes=tuple(nodes), replicas=1)
    two = rendered(
        spec
        | {"scaling": {"mode": "External", "maxReplicas": 9}, "replicas": replicas, "planPolicy": "Manual"},
        chosen,
        monitored,
        nodes=tuple(reversed(nodes)),
        replicas=replicas,
    )
    for obj in one:
        validate(obj)
    assert_argv(one)
    for kind in ("Deployment", "ControllerRevision"):
        first, second = of_kind(one, kind), of_kind(two, kind)
        assert first["metadata"] == second["metadata"]
    deployment = of_kind(two, "Deployment")["spec"]
    assert deployment["replicas"] == replicas
    assert deployment["template"] == of_kind(one, "Deployment")["spec"]["template"]
    assert json.dumps(one) == json.dumps(rendered(spec, chosen, monitored, nodes=tuple(nodes), replicas=1))


def test_children_are_owned_and_labelled() -> None:
    for obj in rendered({}, plan(), Capabilities(pod_monitor=True)):
        (owner,) = obj["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": "shardwright.dev/v1alpha1", "kind": "LLMService", "name": "chat", "uid": UID, "controller": True,
        }  # fmt: skip
        assert obj["metadata"]["labels"]["shardwright.dev/service"] == "chat"
        assert obj["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "shardwright"


def test_neither_plan_nor_revision_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs a plan"):
        render(RenderRequest(service=service(), revision_hash="a", replicas=1))


def test_flag_list_is_the_one_with_the_source() -> None:
    text = (Path(__file__).parents[1] / "data" / "vllm_flags.txt").read_text()
    assert "0.32.0" in text.splitlines()[0]


def accepts(terms: list[dict[str, Any]], labels: dict[str, str]) -> bool:
    """Kubernetes' own reading of required node affinity, for the operators that are rendered."""

    def meets(rule: dict[str, Any]) -> bool:
        have = labels.get(rule["key"])
        match rule["operator"]:
            case "In":
                return have in rule["values"]
            case "NotIn":
                return have not in rule["values"]
            case "DoesNotExist":
                return have is None
            case "Gt":
                return have is not None and int(have) > int(rule["values"][0])
        raise AssertionError(rule)

    return any(all(meets(rule) for rule in term["matchExpressions"]) for term in terms)


@pytest.mark.parametrize(
    ("labels", "fits"),
    [
        ({}, True),
        ({"nvidia.com/gpu.count": None}, True),
        ({"nvidia.com/gpu.count": "2"}, False),
        ({"nvidia.com/gpu.count": "8"}, False),
        ({"nvidia.com/gpu.sharing-strategy": "time-slicing"}, False),
        ({"nvidia.com/gpu.sharing-strategy": "none"}, True),
        ({"nvidia.com/mig.strategy": "single"}, True),
        ({"shardwright.dev/gpu-fault": "20261130T180000Z"}, False),
        ({"shardwright.dev/gpu-fault": ""}, False),
        ({"nvidia.com/gpu.product": "NVIDIA-RTX-A6000-SHARED"}, False),
        ({"nvidia.com/gpu.product": "RTX-A6000"}, True),
        ({"nvidia.com/gpu.memory": "46068"}, False),
        ({"nvidia.com/gpu.memory": None}, True),
        ({"nvidia.com/cuda.driver-version.major": "535"}, False),
        ({"nvidia.com/cuda.driver-version.major": None, "nvidia.com/cuda.driver.major": "535"}, False),
        ({"nvidia.com/cuda.driver-version.major": None, "nvidia.com/cuda.driver.major": "570"}, True),
        ({"nvidia.com/cuda.driver-version.major": None}, True),
    ],
)
def test_affinity_accepts_the_nodes_that_the_plan_runs_on(labels: dict[str, str | None], fits: bool) -> None:
    chosen = plan(
        product=A6000,
        parallelism=Parallelism(tensor=4),
        min_gpu_memory_mib=49140,
        most_node_gpus=4,
        min_driver_major=550,
    )
    node = {
        "nvidia.com/gpu.product": "NVIDIA-RTX-A6000",
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.memory": "49140",
        "nvidia.com/cuda.driver-version.major": "550",
    } | labels
    pod = of_kind(rendered({}, chosen), "Deployment")["spec"]["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found = {key: value for key, value in node.items() if value is not None}
    assert accepts(required["nodeSelectorTerms"], found) is fits

"""The Job that fetches weights: who has one, where it runs, what its name stands for, and what it shares with engines."""

import json
from dataclasses import replace

import pytest

from render.cases import CASES, TOKEN
from render.planbuilder import MI300X, plan, service
from render.test_manifests import engine, of_kind, rendered
from render.validity import validate
from shardwright.diagnose import last_words
from shardwright.planner.types import Parallelism
from shardwright.render.digest import revision_hash
from shardwright.render.fetch import (
    ANNOTATION_FETCHED,
    fetch_data,
    fetches,
    fetches_alone,
    fetches_alone_on_record,
    read_fetch,
)
from shardwright.render.manifests import render
from shardwright.render.request import FetchPlace, RenderRequest
from shardwright.render.startup import IMAGE_PULL_S, MINIMUM_S, startup_budget
from shardwright.render.storage import FETCHED_PATH

CACHE = {"type": "PVC", "claimName": "models"}
MODEL = {"id": "meta-llama/Llama-3.1-8B-Instruct", "cache": CACHE}
LONGEST_NAME = 40
"""Of an LLMService, by its schema."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def cached(model=None, **spec):
    return {"model": MODEL | (model or {})} | spec


def job(spec=None, chosen=None, place=None, **more):
    objects = rendered(
        spec or cached(), chosen or plan(), nodes=("h100-1",), fetch=place or FetchPlace(), **more
    )
    found = of_kind(objects, "Job")
    validate(found)
    return found


def pod(found):
    return found["spec"]["template"]["spec"]


def variables(container):
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (cached(), True),
        (cached({"source": {"type": "Hub", "hub": TOKEN}}), True),
        ({}, False),
        (cached({"cache": {"type": "Ephemeral"}}), False),
        (cached({"cache": {"type": "HostPath", "path": "/models"}}), False),
        (cached({"source": {"type": "PVC", "pvc": {"claimName": "w"}}}), False),
        (cached({"source": {"type": "URI", "uri": {"uri": "s3://b/m"}}}), False),
        (cached(engine={"env": [{"name": "VLLM_USE_MODELSCOPE", "value": "1"}]}), False),
        (cached(engine={"env": [{"name": "TRANSFORMERS_OFFLINE", "value": "1"}]}), False),
    ],
)
def test_only_weights_of_a_hub_in_a_claim_are_fetched_by_a_job(spec, expected):
    assert fetches(service(spec).spec) is expected
    objects = rendered(spec, plan(), fetch=FetchPlace())
    assert any(obj["kind"] == "Job" for obj in objects) is expected
    data = of_kind(objects, "ControllerRevision")["data"]
    assert (read_fetch(data) is not None) is expected
    offline = variables(engine(objects)).get("HF_HUB_OFFLINE") == "1"
    assert offline is (expected or spec.get("model", {}).get("source", {}).get("type") == "PVC")


def test_a_claim_for_one_pod_is_left_to_the_engine():
    objects = rendered(cached(), plan(), fetch=FetchPlace(), for_one_pod=frozenset({"models"}))
    assert not any(obj["kind"] == "Job" for obj in objects)
    assert "HF_HUB_OFFLINE" not in variables(engine(objects))
    assert engine(objects)["args"][0] == MODEL["id"]


@pytest.mark.parametrize(
    "args",
    [
        ["--lora-modules", "a=b/c"],
        ["--lora_modules", "a=b/c"],
        ['--speculative-config={"model": "acme/draft", "num_speculative_tokens": 3}'],
        ["-sc", '{"model": "acme/draft"}'],
        ["--speculative_config.model", "acme/draft"],
        ["--hf-config-path", "acme/config"],
        ["--generation-config=acme/sampling"],
    ],
)
def test_an_engine_that_names_other_repositories_stays_online_and_waits_all_the_same(args):
    objects = rendered(cached(engine={"args": args}), plan(), fetch=FetchPlace())
    assert any(obj["kind"] == "Job" for obj in objects)
    assert "HF_HUB_OFFLINE" not in variables(engine(objects))
    assert engine(objects)["args"][0] == MODEL["id"]


@pytest.mark.parametrize(
    "args", [["--generation-config=vllm"], ['--speculative-config={"method": "ngram"}'], ["--enable-lora"]]
)
def test_arguments_without_a_repository_leave_it_offline(args):
    objects = rendered(cached(engine={"args": args}), plan(), fetch=FetchPlace())
    assert variables(engine(objects))["HF_HUB_OFFLINE"] == "1"


def test_engine_and_job_name_the_same_paths():
    spec = cached({"tokenizer": "acme/tok"})
    objects = rendered(spec, plan(), fetch=FetchPlace())
    [container] = pod(of_kind(objects, "Job"))["containers"]
    paths = [argument.partition("=")[2] for argument in container["args"]]
    assert engine(objects)["args"][0] == paths[0]
    assert f"--tokenizer={paths[1]}" in engine(objects)["args"]
    home = variables(container)["HF_HOME"]
    assert all(path.startswith(f"{home}/") for path in paths)
    assert len(set(paths)) == 2


def test_without_a_place_there_is_no_job():
    assert not any(obj["kind"] == "Job" for obj in rendered(cached(), plan()))


def test_it_needs_no_gpu_and_nothing_of_an_engine():
    spec = cached(
        {"source": {"type": "Hub", "hub": TOKEN}},
        engine={"env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}, {"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]},
        podTemplate={
            "metadata": {"labels": {"egress": "hub"}, "annotations": {"mesh/inject": "false"}},
            "spec": {
                "containers": [
                    {"name": "engine", "volumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/ours", "readOnly": True}]},
                    {"name": "sidecar", "image": "example.org/proxy:1"},
                ],
                "volumes": [{"name": "ca", "configMap": {"name": "ca"}}],
            },
        },
    )  # fmt: skip
    found = job(spec)
    [container] = pod(found)["containers"]
    assert not any("gpu" in name for kind in container["resources"].values() for name in kind)
    assert set(container["resources"]["requests"]) == {"cpu", "memory", "ephemeral-storage"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod(found)["securityContext"]["runAsNonRoot"] is True
    assert pod(found)["automountServiceAccountToken"] is False
    env = variables(container)
    assert env["HTTPS_PROXY"] == "http://proxy"
    assert env["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert not [name for name in env if name.startswith("VLLM_") or name == "HF_HUB_OFFLINE"]
    assert {volume["name"] for volume in pod(found)["volumes"]} == {"tmp", "cache", "ca"}
    head = found["spec"]["template"]["metadata"]
    assert head["labels"]["egress"] == "hub"
    assert head["annotations"] == {"mesh/inject": "false"}
    assert "hf_" not in json.dumps(found)


def test_no_device_of_a_node_is_in_its_reach():
    """vLLM's image asks for all GPUs in a variable, which a runtime obeys where no device plugin says less."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    overlay = {
        "spec": {
            "resourceClaims": claims,
            "schedulingGroup": {"podGroupName": "engines"},
            "containers": [{"name": "engine", "resources": {"claims": [{"name": "gpu"}]}}],
        }
    }
    found = job(cached(podTemplate=overlay))
    [container] = pod(found)["containers"]
    assert variables(container)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "claims" not in container["resources"]
    assert not pod(found).keys() & {"resourceClaims", "schedulingGroup"}


def test_it_runs_where_the_engines_image_can():
    """CPU nodes of another processor are cheap, and so where the engines' image starts nothing."""
    spec = cached(pool={"nodeSelector": {"team": "a"}})
    selected = pod(job(spec, place=FetchPlace(arch="arm64")))["nodeSelector"]
    assert selected == {"team": "a", "kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}
    assert pod(job(spec))["nodeSelector"] == {"team": "a"}
    assert "nodeSelector" not in pod(job(place=FetchPlace(as_engines=True, arch="arm64")))


def test_a_runtime_that_not_every_node_has_keeps_it_on_the_plans_nodes():
    found = job(cached(podTemplate={"spec": {"runtimeClassName": "nvidia"}}))
    assert pod(found)["runtimeClassName"] == "nvidia"
    affinity = pod(found)["affinity"]["nodeAffinity"]
    assert affinity[REQUIRED]["nodeSelectorTerms"]


def test_no_service_and_no_budget_selects_its_pod():
    objects = rendered(cached(), plan(), fetch=FetchPlace())
    labels = of_kind(objects, "Job")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        obj["spec"]["selector"] for obj in objects if obj["kind"] in {"Service", "PodDisruptionBudget"}
    ]
    selectors = [selector.get("matchLabels", selector) for selector in selectors]
    assert selectors
    assert not any(selector.items() <= labels.items() for selector in selectors)


def test_of_an_amd_image_the_user_stays_and_the_root_is_read_only():
    found = job(cached(), plan(product=MI300X, parallelism=Parallelism(tensor=2)))
    [container] = pod(found)["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "runAsUser" not in pod(found)["securityContext"]


def test_a_claim_for_many_nodes_needs_no_gpu_node():
    node = pod(job())["affinity"]["nodeAffinity"]
    assert list(node) == [PREFERRED]


def test_a_claim_for_one_node_is_fetched_where_engines_run():
    theirs = rendered(cached(), plan(), nodes=("h100-1",))
    engines = of_kind(theirs, "Deployment")["spec"]["template"]["spec"]["affinity"]
    assert pod(job(place=FetchPlace(as_engines=True)))["affinity"] == engines
    there = pod(job(place=FetchPlace(as_engines=True, node="h100-7")))["affinity"]["nodeAffinity"]
    [term] = there[REQUIRED]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["h100-7"]}]}


NAMES = [
    (cached({"revision": "v2"}), False),
    (cached({"cache": CACHE | {"claimName": "other"}}), False),
    (cached({"tokenizer": "acme/tok"}), False),
    (cached({"source": {"type": "Hub", "hub": {"endpoint": "https://mirror"}}}), False),
    (cached({"source": {"type": "Hub", "hub": TOKEN}}), True),
    (cached(engine={"args": ["--seed", "7"]}), True),
    (cached(drain={"maxSeconds": 7}), True),
]


@pytest.mark.parametrize(("spec", "same"), NAMES)
def test_its_name_stands_for_the_bytes(spec, same):
    """Revisions that need the same bytes share a Job."""
    revision = spec["model"].get("revision")
    chosen = plan(revision=revision) if revision else plan()
    assert (job(spec, chosen)["metadata"]["name"] == job()["metadata"]["name"]) is same


def test_its_name_fits_a_pods_name():
    name = fetch_data(service(cached()), plan())["name"]
    assert len(name) - len("chat") + LONGEST_NAME + len("-abcde") <= 63


def test_it_is_bounded_by_the_download_share_of_the_start_up_budget():
    for billions in (8.0, 70.6, 405.0):
        chosen = plan(billions=billions)
        budget = startup_budget(chosen, "Hub")
        spec = job(chosen=chosen)["spec"]
        assert (
            spec["activeDeadlineSeconds"]
            == budget.fetch_s
            == max(MINIMUM_S, budget.download_s) + IMAGE_PULL_S
        )
        assert budget.download_s <= budget.engine_s
        assert 0 < spec["backoffLimit"] <= 10
        assert spec["ttlSecondsAfterFinished"] > 0
    assert startup_budget(plan(), "PVC").download_s == 0


def test_a_record_of_an_earlier_operator_has_no_job_and_keeps_its_template():
    spec, chosen, caps, nodes = CASES["70b-tp4-token"]
    data = json.loads(json.dumps(of_kind(rendered(spec, chosen, caps, nodes), "ControllerRevision")["data"]))
    del data["fetch"]
    data["template"]["spec"]["containers"][0]["args"][0] = "meta-llama/Llama-3.3-70B-Instruct"
    svc = service(spec)
    request = RenderRequest(
        service=svc,
        revision_hash=revision_hash(svc.spec, chosen),
        replicas=1,
        stored=data,
        fetch=FetchPlace(),
    )
    again = render(request)
    assert not any(obj["kind"] == "Job" for obj in again)
    assert of_kind(again, "Deployment")["spec"]["template"] == data["template"]


def test_the_record_says_when_the_weights_are_there():
    for fetched in (False, True):
        record = of_kind(rendered(cached(), plan(), fetched=fetched), "ControllerRevision")
        assert (ANNOTATION_FETCHED in record["metadata"].get("annotations", {})) is fetched


def test_the_diagnosis_knows_the_path():
    assert f"{FETCHED_PATH}/" == last_words._FETCHED


def test_what_cannot_be_read_is_no_job():
    assert read_fetch({}) is None
    assert read_fetch({"fetch": {"name": "a"}}) is None
    assert read_fetch({"fetch": {"name": "a", "claim": "c", "seconds": "x"}}) is None


def test_the_plans_revision_counts_and_not_the_specs():
    """A variant has a revision of its own."""
    chosen = replace(plan(), model=replace(plan().model, model_id="acme/fp8", revision="abc"))
    [container] = pod(job(cached({"revision": "v2"}), chosen))["containers"]
    assert container["args"] == ["acme/fp8@abc=/cache/huggingface/shardwright/acme--fp8--abc"]


SOURCES = [
    {},
    {"source": {"type": "Hub", "hub": TOKEN}},
    {"source": {"type": "PVC", "pvc": {"claimName": "w"}}},
    {"source": {"type": "URI", "uri": {"uri": "s3://b/m"}}},
]
CACHES = [
    {},
    {"cache": {"type": "Ephemeral"}},
    {"cache": {"type": "HostPath", "path": "/m"}},
    {"cache": CACHE},
]
ENGINES = [
    {},
    {"env": [{"name": "VLLM_USE_MODELSCOPE", "value": "1"}]},
    {"env": [{"name": "TRANSFORMERS_OFFLINE", "value": "1"}]},
    {"args": ["--lora-modules", "sql=org/lora"]},
]


@pytest.mark.parametrize("one_pod", [frozenset(), frozenset({"models"})])
@pytest.mark.parametrize("engine_spec", ENGINES)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("source", SOURCES)
def test_who_fetches_alone_is_the_same_before_and_after_it_is_on_record(source, cache, engine_spec, one_pod):
    """A crash between the record and the workload leads to the same count."""
    spec = {"model": {"id": MODEL["id"]} | source | cache, "engine": engine_spec}
    data = of_kind(rendered(spec, plan(), for_one_pod=one_pod), "ControllerRevision")["data"]
    alone = fetches_alone(service(spec).spec)
    assert fetches_alone_on_record(json.loads(json.dumps(data))) is alone
    hub, claim = (
        source.get("source", {}).get("type", "Hub") == "Hub",
        "cache" in cache and cache["cache"] is CACHE,
    )
    assert alone is (hub and not claim and "env" not in engine_spec)

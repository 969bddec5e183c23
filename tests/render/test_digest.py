"""Which side every field of the spec falls on, and what that means for digests and revisions."""

import types
import typing
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from render.planbuilder import plan, service
from shardwright.api.defaults import PROFILES
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.support import unimplemented
from shardwright.planner.types import Parallelism
from shardwright.render.command import ITL_EDGES_S, TTFT_EDGES_S
from shardwright.render.digest import FIELDS, Side, revision_hash, template_digest
from shardwright.render.manifests import render
from shardwright.render.request import RenderRequest


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The resource model inside Optional or Annotated; lists and maps count as one field."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {Union, types.UnionType, Annotated}:
        return next((found for arg in get_args(annotation) if (found := model_in(arg))), None)
    return None


def leaves(model: type[BaseModel], prefix: str = "") -> list[str]:
    found: list[str] = []
    hints = typing.get_type_hints(model, include_extras=True)
    for name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        inner = model_in(hints[name])
        if path in FIELDS or inner is None:
            found.append(path)
        else:
            found += leaves(inner, f"{path}.")
    return found


def test_every_field_is_classified_once() -> None:
    found = leaves(LLMServiceSpec)
    assert sorted(found) == sorted(FIELDS), "classify the new field in render.digest.FIELDS"
    assert len(found) == len(set(found))


FULL: dict[str, Any] = {
    "model": {"id": "a/b", "quantization": "FP8"},
    "scaling": {"mode": "External"},
    "replicas": 1,
    "slo": {"ttft": {"percentile": 95, "milliseconds": 900}},
}
CHANGES: list[tuple[str, Any, Side]] = [
    ("model.id", "c/d", Side.TEMPLATE),
    ("model.revision", "v2", Side.TEMPLATE),
    ("model.servedName", "x", Side.TEMPLATE),
    ("model.maxContextTokens", 4096, Side.ARRANGEMENT),
    ("model.variants", [{"id": "e/f"}], Side.ARRANGEMENT),
    ("model.quantizeAtLoad", True, Side.TEMPLATE),
    ("model.source", {"type": "Hub", "hub": {"endpoint": "https://mirror.example"}}, Side.TEMPLATE),
    ("model.cache", {"type": "PVC", "claimName": "c"}, Side.TEMPLATE),
    ("model.chatTemplate", {"configMapRef": {"name": "c", "key": "k"}}, Side.TEMPLATE),
    ("model.config", {"configMapRef": {"name": "c", "key": "k"}}, Side.ARRANGEMENT),
    ("model.tokenizer", "t/t", Side.TEMPLATE),
    ("workload", {"concurrency": 12}, Side.ARRANGEMENT),
    ("workload", {"profile": "Mixed"}, Side.ARRANGEMENT),
    ("workload", {"profile": "Voice"}, Side.ARRANGEMENT),
    ("workload", {"requestsPerMinute": 60}, Side.ARRANGEMENT),
    ("slo.ttft.milliseconds", 1001, Side.TEMPLATE),
    ("slo.ttft.percentile", 99, Side.ARRANGEMENT),
    ("slo.optimizeFor", "Latency", Side.ARRANGEMENT),
    ("slo.optimizeFor", "Cost", Side.NEITHER),
    ("availability", {"surviveNodeLoss": True}, Side.TEMPLATE),
    ("pool.maxGPUs", 4, Side.ARRANGEMENT),
    ("pool.nodeSelector", {"a": "b"}, Side.TEMPLATE),
    ("pool.tolerations", [{"key": "a", "operator": "Exists"}], Side.TEMPLATE),
    ("pool.gpuProducts", ["NVIDIA-L40S"], Side.ARRANGEMENT),
    ("parallelism", {"tensor": 2}, Side.ARRANGEMENT),
    ("replicas", 5, Side.NEITHER),
    ("scaling", {"mode": "External", "maxReplicas": 9}, Side.NEITHER),
    ("planPolicy", "Manual", Side.NEITHER),
    ("approvedRevision", "0123abcd", Side.NEITHER),
    ("rollout", {"paused": True}, Side.NEITHER),
    ("routing.type", "Service", Side.NEITHER),
    ("routing.policy", "CacheAware", Side.NEITHER),
    ("routing.gatewayRef", {"name": "inference"}, Side.NEITHER),
    ("routing.apiKeySecretRef", {"name": "keys", "key": "chat"}, Side.TEMPLATE),
    ("routing.maxQueuedRequests", 9, Side.TEMPLATE),
    ("routing.maxQueueSeconds", 9, Side.NEITHER),
    ("drain", {"maxSeconds": 7}, Side.TEMPLATE),
    ("engine", {"version": "0.32.0"}, Side.TEMPLATE),
    ("engine", {"maxNumSeqs": 7}, Side.ARRANGEMENT),
    ("engine", {"args": ["--seed=1"]}, Side.TEMPLATE),
    ("podTemplate", {"metadata": {"labels": {"a": "b"}}}, Side.TEMPLATE),
]


def changed(path: str, value: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {k: dict(v) if isinstance(v, dict) else v for k, v in FULL.items()}
    spec.setdefault("pool", {"maxGPUs": 16})
    *parents, last = path.split(".")
    node = spec
    for key in parents:
        node[key] = dict(node.get(key, {}))
        node = node[key]
    node[last] = value
    return spec


@pytest.mark.parametrize(
    ("path", "value", "side"), CHANGES, ids=[f"{p}-{i}" for i, (p, _, _) in enumerate(CHANGES)]
)
def test_a_change_moves_exactly_what_its_side_says(path: str, value: Any, side: Side) -> None:
    before, after, chosen = service(FULL).spec, service(changed(path, value)).spec, plan()
    assert (template_digest(before) == template_digest(after)) is (side is Side.NEITHER)
    assert (revision_hash(before, chosen) == revision_hash(after, chosen)) is (side is not Side.TEMPLATE)


@pytest.mark.parametrize(
    ("path", "value", "side"), CHANGES, ids=[f"{p}-{i}" for i, (p, _, _) in enumerate(CHANGES)]
)
def test_the_template_follows_the_table(path: str, value: Any, side: Side) -> None:
    """For the same plan, a field outside Template renders the same pod: nothing feeds it behind the digest's back."""

    def template(spec: dict[str, Any]) -> Any:
        svc = service(spec)
        request = RenderRequest(service=svc, revision_hash="00000000", replicas=1, plan=plan())
        return render(request)[-1]["spec"]["template"]

    same = template(FULL) == template(changed(path, value))
    # The id reaches the pod through the plan's model, the revision and the resolved defaults through the plan.
    through_the_plan = path in {"model.id", "model.revision"}
    assert same is (side is not Side.TEMPLATE or through_the_plan)


def test_another_choice_is_another_revision() -> None:
    spec = service(FULL).spec
    hashes = {
        revision_hash(spec, chosen)
        for chosen in (
            plan(),
            plan(parallelism=Parallelism(tensor=2)),
            plan(revision="other"),
            plan(shm_bytes=1 << 20),
        )
    }
    assert len(hashes) == 4
    assert revision_hash(spec, plan(replicas=1)) == revision_hash(
        spec, plan(replicas=9, binding_constraint="x")
    )
    assert all(len(h) == 8 and int(h, 16) >= 0 for h in hashes)


def test_fields_that_do_nothing_yet_move_nothing() -> None:
    """What api.support reports as ignored must not roll pods; slo is the exception, its targets are edges."""
    for path in {problem.field.removeprefix("spec.") for problem in ignored()}:
        if path in FIELDS:
            assert FIELDS[path] is Side.NEITHER, path


def ignored() -> list[Any]:
    spec = {
        "model": {"id": "a/b", "adapters": [{"name": "x", "source": "y"}]},
        "pool": {"provisioning": "Elastic", "topologyKeys": ["a"], "network": {"socketInterface": "eth0"}},
        "engine": {"speculative": {"method": "ngram"}, "kvOffloadGiB": 3, "multiNode": "StatefulSet"},
    }
    found = list(unimplemented(service(spec).spec))
    assert len(found) == 7
    return found


def test_the_targets_of_every_profile_are_standard_edges() -> None:
    for profile in PROFILES.values():
        assert profile.ttft_ms / 1000 in TTFT_EDGES_S, profile.name
        between = {profile.tpot_ms / 1000, (profile.itl_ms or profile.tpot_ms) / 1000}
        assert between <= set(ITL_EDGES_S), profile.name


def test_an_upgrade_keeps_the_digest_of_a_spec_with_the_usual_percentile() -> None:
    """The figure was written by a version that counted neither percentiles nor optimizeFor."""
    slo = {
        "ttft": {"percentile": 95, "milliseconds": 900}, "tpot": {"percentile": 95, "milliseconds": 40},
        "optimizeFor": "Cost",
    }  # fmt: skip
    spec = service({"model": {"id": "a/b"}, "workload": {"requestsPerMinute": 60}, "slo": slo}).spec
    assert template_digest(spec) == "0df7f95c9d38ee57b20cdd28d28b204e"

"""What was decided and what is rendered agree: taints, formats, start-up times, and which edits move pods."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.plan_support import (
    A100_80,
    A6000,
    H100,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_MOE_FP8,
    request,
    shapes,
)  # fmt: skip
from planner.plan_support import products as catalogue
from render.planbuilder import UID
from shardwright.api.llmservice import LLMService
from shardwright.api.pool import PoolSpec
from shardwright.planner.choice import plan, spec_digest
from shardwright.planner.types import Plan
from shardwright.render.digest import revision_hash, template_digest
from shardwright.render.manifests import render
from shardwright.render.request import RenderRequest
from shardwright.topology.facts import node_facts
from shardwright.topology.pool import shape_pool
from topology.cluster_objects import node

KEYS = st.sampled_from(["nvidia.com/gpu", "amd.com/gpu", "team", "node.kubernetes.io/unreachable"])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.lists(
    st.fixed_dictionaries({"key": KEYS, "value": st.sampled_from(["", "a"]), "effect": EFFECTS}), max_size=3
)
TOLERATIONS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"key": KEYS, "operator": st.just("Exists")}, optional={"effect": EFFECTS}),
        st.fixed_dictionaries({"key": KEYS, "operator": st.just("Equal"), "value": st.just("a")}, optional={"effect": EFFECTS}),
        st.just({"operator": "Exists"}),
    ),
    max_size=3,
)  # fmt: skip


def decided(model_id: str, nodes: Any, **spec: Any) -> tuple[LLMService, Plan]:
    asked = request(model_id, nodes, **spec)
    chosen = plan(asked)
    assert isinstance(chosen, Plan), chosen.message
    metadata = {"name": "chat", "namespace": "team-a", "uid": UID, "generation": 1}
    return LLMService.model_validate(
        {"metadata": metadata, "spec": asked.spec.model_dump(mode="json", by_alias=True, exclude_none=True)}
    ), chosen


def pod_of(service: LLMService, chosen: Plan) -> dict[str, Any]:
    made = render(RenderRequest(service=service, revision_hash="00000000", replicas=1, plan=chosen))
    pod: dict[str, Any] = made[-1]["spec"]["template"]["spec"]
    return pod


def container(model_id: str, nodes: Any, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = pod_of(*decided(model_id, nodes, **spec))["containers"][0]
    return found


def tolerated(pod: dict[str, Any], taint: dict[str, str]) -> bool:
    """Kubernetes' own rule, for taints that keep a pod away for good."""
    return any(
        (not t.get("key") or t["key"] == taint["key"])
        and (t.get("operator", "Equal") == "Exists" or t.get("value", "") == taint["value"])
        and t.get("effect", taint["effect"]) == taint["effect"]
        and "tolerationSeconds" not in t
        for t in pod["tolerations"]
    )


@settings(max_examples=150, deadline=None)
@given(TAINTS, TOLERATIONS)
def test_a_node_is_counted_on_exactly_when_the_pod_tolerates_its_taints(
    taints: Any, tolerations: Any
) -> None:
    spec = PoolSpec.model_validate({"maxGPUs": 8, "tolerations": tolerations})
    usable = bool(shape_pool([node_facts(node("n1", taints=taints))], catalogue(), spec).nodes)
    pod = pod_of(*decided(LLAMA_8B, shapes((H100, 8)), pool={"tolerations": tolerations}))
    assert usable == all(t["effect"] == "PreferNoSchedule" or tolerated(pod, t) for t in taints)


def test_only_a_16_bit_checkpoint_is_quantised_at_load() -> None:
    at_load = {"quantization": "FP8", "quantizeAtLoad": True}
    assert "--quantization=fp8" in container(LLAMA_70B, shapes((H100, 8)), model=at_load)["args"]
    # The variant is FP8 already: vLLM would refuse the flag.
    args = container(LLAMA_70B, shapes((H100, 8)), model={**at_load, "variants": [{"id": LLAMA_70B_FP8}]})[
        "args"
    ]
    assert args[0] == LLAMA_70B_FP8
    assert "--quantization=fp8" not in args


@pytest.mark.parametrize("model", [LLAMA_8B, LLAMA_70B])
@pytest.mark.parametrize("kind", ["Hub", "PVC", "URI"])
def test_the_start_up_budget_holds_download_and_load(model: str, kind: str) -> None:
    block = {"PVC": {"pvc": {"claimName": "w"}}, "URI": {"uri": {"uri": "s3://b/m"}}}.get(kind, {})
    found = container(model, shapes((H100, 8)), model={"source": {"type": kind, **block}})
    probe = found["startupProbe"]
    mib = {LLAMA_8B: 14.9, LLAMA_70B: 131.4}[model] * 1024
    least = 300 + mib / 150 + (mib / 50 if kind == "Hub" else 0)
    assert probe["periodSeconds"] * probe["failureThreshold"] >= least


def test_a_streaming_pod_has_host_memory_for_its_buffers() -> None:
    pool = shapes((H100, 8))
    streamed = container(LLAMA_70B, pool, model={"source": {"type": "URI", "uri": {"uri": "s3://b/m"}}})
    read = container(LLAMA_70B, pool, model={"source": {"type": "PVC", "pvc": {"claimName": "w"}}})
    gib = [int(c["resources"]["limits"]["memory"].removesuffix("Gi")) for c in (streamed, read)]
    assert gib[0] - gib[1] >= 4 * 128256 * 8192 * 2 / 2**30  # four ranks, each with the largest tensor
    assert {"name": "RUNAI_STREAMER_MEMORY_LIMIT", "value": "0"} in streamed["env"]
    # Streamed weights never touch the disk; downloaded ones lie in the Ephemeral cache.
    hub = container(LLAMA_70B, pool)
    disk = [
        int(c["resources"]["requests"]["ephemeral-storage"].removesuffix("Gi")) for c in (streamed, read, hub)
    ]
    assert disk[0] == disk[1] < 20
    assert disk[2] > 131


EDITS: list[dict[str, Any]] = [
    {"workload": {"requestsPerMinute": 3000}},
    {"workload": {"concurrency": 300}},
    {"workload": {"profile": "Agent"}},
    {"workload": {"inputTokens": {"p50": 9000, "p95": 30_000}}},
    {"model": {"maxContextTokens": 2048}},
    {"model": {"allowedKVCacheDtypes": ["FP8"]}},
    {"model": {"quantization": "None"}},
    {"model": {"variants": [{"id": LLAMA_70B_FP8}]}},
    {"model": {"quantization": "FP8", "quantizeAtLoad": True}},
    {"model": {"source": {"type": "PVC", "pvc": {"claimName": "w"}}}},
    {"model": {"source": {"type": "URI", "uri": {"uri": "s3://b/m"}}}},
    {"model": {"cache": {"type": "PVC", "claimName": "w"}}},
    {"engine": {"args": ["--enable-lora"]}},
    {"engine": {"maxNumSeqs": 32}},
    {"engine": {"maxNumBatchedTokens": 1024}},
    {"engine": {"gpuMemoryUtilizationPercent": 70}},
    {"engine": {"version": "0.11.0", "image": "registry.example/vllm:1"}},
    {"engine": {"kvOffloadGiB": 64}},
    {"parallelism": {"tensor": 8}},
    {"parallelism": {"pipeline": 2}},
    {"parallelism": {"data": 2}},
    {"parallelism": {"expert": "Disabled"}},
    {"availability": {"surviveNodeLoss": True}},
    {"slo": {"ttft": {"percentile": 95, "milliseconds": 9000}}, "workload": {"requestsPerMinute": 900}},
    {"pool": {"maxGPUs": 4}},
    {"pool": {"maxGPUs": 400}},
    {"pool": {"gpuProducts": [A6000]}},
    {"pool": {"interconnect": {"policy": "Any"}}},
    {"pool": {"topologyKeys": ["rack"]}},
    {"planPolicy": "Manual"},
    {"drain": {"maxSeconds": 7}},
    {"podTemplate": {"metadata": {"labels": {"a": "b"}}}},
]


@pytest.mark.parametrize("edit", EDITS, ids=[str(e)[:60] for e in EDITS])
def test_a_field_that_changes_the_choice_is_in_the_digests(edit: dict[str, Any]) -> None:
    """A choice that changes behind a digest's back would be served from memory, or never be made."""
    pool = shapes((H100, 8), (A100_80, 8), (A6000, 4))
    before, after = request(LLAMA_70B, pool), request(LLAMA_70B, pool, **copy.deepcopy(edit))
    first, second = plan(before), plan(after)

    def core(decision: Any) -> Any:
        if not isinstance(decision, Plan):
            return decision.message
        shown = (
            "model",
            "product",
            "parallelism",
            "limits",
            "estimate",
            "pod_resources",
            "within_island",
            "notes",
        )
        return [getattr(decision, name) for name in shown]

    if core(first) != core(second):
        assert spec_digest(before.spec) != spec_digest(after.spec) or before.engine != after.engine
        assert template_digest(before.spec) != template_digest(after.spec)


@pytest.mark.parametrize(
    "edit",
    [{"pool": {"maxGPUs": 32}}, {"workload": {"concurrency": 64}}, {"workload": {"requestsPerMinute": 300}}],
)
def test_an_edit_that_leads_to_the_same_arrangement_moves_nothing(edit: dict[str, Any]) -> None:
    """Not even when the pool has changed meanwhile in what does not matter to the pods that run."""
    first = [node("n1"), node("n2")]
    later = [*first, node("n3", labels={"nvidia.com/cuda.driver-version.major": "535"}), node("n4", A6000, 2)]
    spec = PoolSpec.model_validate({"maxGPUs": 16, "gpuProducts": [H100]})
    found = []
    for raw, change in ((first, {}), (later, edit)):
        pool = shape_pool([node_facts(n) for n in raw], catalogue(), spec)
        service, chosen = decided(
            LLAMA_70B, pool, **{**change, "pool": {"gpuProducts": [H100], **change.get("pool", {})}}
        )
        found.append(revision_hash(service.spec, chosen))
    assert found[0] == found[1]


def test_ranks_with_own_attention_are_one_pod() -> None:
    found = container(QWEN_MOE_FP8, shapes((H100, 8)), parallelism={"tensor": 2, "data": 2})
    assert {"--tensor-parallel-size=2", "--data-parallel-size=2", "--enable-expert-parallel"} <= set(
        found["args"]
    )
    assert found["resources"]["limits"]["nvidia.com/gpu"] in {4, "4"}

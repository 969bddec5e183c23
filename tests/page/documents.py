"""Explanations of all kinds, for tests of the page: what is decided, refused, recorded, unpriced, not predicted."""

from dataclasses import replace
from functools import cache

from planner.plan_support import (
    A100_80,
    A6000,
    H100,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_MOE_FP8,
    T4,
    products,
    request,
    shapes,
)
from planner.test_explanation import BUSY, CHAT, whole
from shardwright.api.pool import PoolSpec
from shardwright.planner.choice import plan
from shardwright.planner.explanation.build import case_of, full_explanation
from shardwright.planner.explanation.recorded import recorded
from shardwright.planner.placement import place
from shardwright.planner.report import plan_status
from shardwright.topology.facts import node_facts, pod_facts
from shardwright.topology.pool import build_pool
from topology.cluster_objects import node, pod

CHAT_70B = {
    **BUSY, "pool": {"maxGPUs": 32},
    "model": {"maxContextTokens": 32768, "variants": [{"id": LLAMA_70B_FP8}]},
}  # fmt: skip
UNPRICED = "NVIDIA-H20"


def _recorded():
    asked = request(LLAMA_70B, shapes((H100, 8, 4), (A100_80, 8)), **CHAT_70B)
    decision = plan(asked)
    old = replace(decision, speed=replace(decision.speed, ttft_ms=decision.speed.ttft_ms * 1.1))
    found = [
        recorded(CHAT, asked.spec, p, plan_status(decision, "0123abcd"), engine=asked.engine, notes=("now 1 of 2 replicas serve",))
        for p in (decision, old)
    ]  # fmt: skip
    return {"recorded": found[0], "recorded by another version": found[1]}


def _placed():
    """A plan on real nodes, where foreign pods hold GPUs."""
    nodes = [node_facts(node("n1")), node_facts(node("n2"))]
    pods = [pod_facts(pod("train", "n1", 5)), pod_facts(pod("book", "n2", 6))]
    asked = request(LLAMA_70B, build_pool(nodes, pods, products(), PoolSpec(max_gpus=16)), **BUSY)
    decision = plan(asked)
    room = place(decision, asked.pool, decision.replicas)
    return full_explanation(case_of(CHAT, asked, decision, room), asked)


@cache
def documents():
    """JSON documents by name."""
    target = {"percentile": 99, "milliseconds": 60}
    asked = {
        "chat": request(LLAMA_70B, shapes((H100, 8, 4), (A100_80, 8, 2), (L40S, 4, 4)), **CHAT_70B),
        "smallest": request(LLAMA_8B, shapes((A6000, 1))),
        "in flight": request(LLAMA_8B, shapes((L40S, 4)), workload={"concurrency": 40, "profile": "Voice"}),
        "experts": request(QWEN_MOE_FP8, shapes((H100, 8)), **BUSY),
        "profile missed": request(LLAMA_70B, shapes((A6000, 8)), workload={"profile": "Voice"}),
        "too few replicas": request(LLAMA_8B, shapes((H100, 8)), workload={"requestsPerMinute": 9000}, scaling={"mode": "External"}, replicas=1),
        "high percentile": request(LLAMA_8B, shapes((H100, 8)), workload={"requestsPerMinute": 60}, slo={"tpot": target}),
        "unpriced": request(LLAMA_8B, shapes((UNPRICED, 8)), **BUSY),
        "too tight": request(LLAMA_8B, shapes((H100, 8)), slo={"ttft": {"percentile": 95, "milliseconds": 5}}),
        "cannot fit": request("Qwen/Qwen3-235B-A22B", shapes((T4, 4))),
        "too long": request(LLAMA_8B, shapes((H100, 8)), model={"maxContextTokens": 500_000}),
    }  # fmt: skip
    found = {name: whole(one) for name, one in asked.items()} | _recorded() | {"placed": _placed()}
    return {name: one.model_dump(mode="json", by_alias=True) for name, one in found.items()}

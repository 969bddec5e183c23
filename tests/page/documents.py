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
from shardwright.api.status import CalibrationStatus
from shardwright.planner.choice import plan
from shardwright.planner.explanation.build import case_of, full_explanation
from shardwright.planner.explanation.document import Proposal
from shardwright.planner.explanation.recorded import recorded
from shardwright.planner.placement import place
from shardwright.planner.report import plan_status
from shardwright.planner.types import Correction
from shardwright.topology.facts import node_facts, pod_facts
from shardwright.topology.pool import build_pool
from topology.cluster_objects import node, pod

CHAT_70B = {
    **BUSY, "pool": {"maxGPUs": 32},
    "model": {"maxContextTokens": 32768, "variants": [{"id": LLAMA_70B_FP8}]},
}  # fmt: skip
CALIBRATION = CalibrationStatus.model_validate(
    {
        "revision": "0123abcd", "source": "Prometheus", "measuredAt": "2026-01-01T00:00:00Z",
        "figures": [
            {"name": "KVTokens", "reason": "AsPredicted", "ratio": "0.98", "measured": "215000", "predicted": "219872", "samples": 2},
            {"name": "TTFT", "reason": "TooFewRequests", "samples": 12},
        ],
    }
)  # fmt: skip
PROPOSAL = Proposal(
    revision="89abcdef", reason="WaitsForApproval", summary="H100 TP8 ×1", replicas=1, gpus=8,
    price_per_hour=31.92, changes=("TP4→TP8", "pods restart"),
    approve="shardwright approve chat -n team-a --revision 89abcdef",
)  # fmt: skip
UNPRICED = "NVIDIA-H20"


def _recorded(times=1.0):
    """A plan read back; `times`: by how much this version's model differs from the one that made it."""
    asked = request(LLAMA_70B, shapes((H100, 8, 4), (A100_80, 8)), **CHAT_70B)
    decision = plan(asked)
    was = replace(decision, speed=replace(decision.speed, ttft_ms=decision.speed.ttft_ms * times))
    return recorded(
        CHAT, asked.spec, was, plan_status(decision, "0123abcd"), engine=asked.engine,
        notes=("now 1 of 2 replicas serve",), calibration=CALIBRATION, proposal=PROPOSAL,
    )  # fmt: skip


def _placed():
    """A plan on real nodes, where foreign pods hold GPUs."""
    nodes = [node_facts(node("n1")), node_facts(node("n2"))]
    pods = [pod_facts(pod("train", "n1", 5)), pod_facts(pod("book", "n2", 6))]
    asked = request(LLAMA_70B, build_pool(nodes, pods, products(), PoolSpec(max_gpus=16)), **BUSY)
    decision = plan(asked)
    room = place(decision, asked.pool, decision.replicas)
    return full_explanation(case_of(CHAT, asked, decision, room), asked)


def _asked(model_id, *nodes, **spec):
    return lambda: whole(request(model_id, shapes(*nodes), **spec))


def _corrected():
    """A plan that counts with what was measured: more memory, slower first tokens, quicker further ones."""
    measured = Correction(ttft=1.3, tpot=0.9, memory=1.2, requests=500)
    asked = replace(request(LLAMA_8B, shapes((H100, 8)), **BUSY), corrections={(LLAMA_8B, H100): measured})
    return whole(asked)


_MADE = {
    "chat": _asked(LLAMA_70B, (H100, 8, 4), (A100_80, 8, 2), (L40S, 4, 4), **CHAT_70B),
    "smallest": _asked(LLAMA_8B, (A6000, 1)),
    "in flight": _asked(LLAMA_8B, (L40S, 4), workload={"concurrency": 40, "profile": "Voice"}),
    "experts": _asked(QWEN_MOE_FP8, (H100, 8), **BUSY),
    "profile missed": _asked(LLAMA_70B, (A6000, 8), workload={"profile": "Voice"}),
    "too few replicas": _asked(LLAMA_8B, (H100, 8), workload={"requestsPerMinute": 9000}, scaling={"mode": "External"}, replicas=1),
    "high percentile": _asked(LLAMA_8B, (H100, 8), workload={"requestsPerMinute": 60}, slo={"tpot": {"percentile": 99, "milliseconds": 60}}),
    "unpriced": _asked(LLAMA_8B, (UNPRICED, 8), **BUSY),
    "cheaper mixed": _asked(
        LLAMA_8B, (L40S, 4, 4), (H100, 8),
        workload={"requestsPerMinute": 1000}, slo={"ttft": {"percentile": 95, "milliseconds": 1500}, "tpot": {"percentile": 95, "milliseconds": 60}},
    ),
    "assumed load": _asked(LLAMA_8B, (A6000, 4), slo={"ttft": {"percentile": 95, "milliseconds": 700}}),
    "too tight": _asked(LLAMA_8B, (H100, 8), slo={"ttft": {"percentile": 95, "milliseconds": 5}}),
    "no target met": _asked(
        LLAMA_70B, (A6000, 8, 2), workload={"requestsPerMinute": 20},
        slo={"ttft": {"percentile": 95, "milliseconds": 8000}, "tpot": {"percentile": 95, "milliseconds": 5}},
    ),
    "rag on many": _asked(
        "deepseek-ai/DeepSeek-V3", (H100, 8, 8), ("NVIDIA-H200", 8, 8), (A100_80, 8, 4), pool={"maxGPUs": 128},
        model={"allowedKVCacheDtypes": ["Auto", "FP8"]},
        workload={
            "profile": "RAG", "requestsPerMinute": 900, "inputTokens": {"p50": 6000, "p95": 20_000},
            "outputTokens": {"p50": 300, "p95": 900}, "sharedPrefixTokens": 1000,
        },
        slo={"ttft": {"percentile": 95, "milliseconds": 5000}, "tpot": {"percentile": 95, "milliseconds": 80}},
    ),
    "cannot fit": _asked("Qwen/Qwen3-235B-A22B", (T4, 4)),
    "too long": _asked(LLAMA_8B, (H100, 8), model={"maxContextTokens": 500_000}),
    "recorded": _recorded,
    "recorded by another version": lambda: _recorded(1.1),
    "placed": _placed,
    "corrected": _corrected,
}  # fmt: skip
NAMES = tuple(_MADE)


@cache
def explanation_of(name):
    """One explanation as a JSON document: not to be changed."""
    return _MADE[name]().model_dump(mode="json", by_alias=True)


def at(found, path):
    """What lies at a JSON pointer."""
    for part in path.strip("/").split("/"):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found

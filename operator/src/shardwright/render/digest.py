"""Which fields of the spec may move pods, and the digests over them.

Decides, for every field, whether it feeds the pod template, the choice of arrangement, or neither. A field
that is not in the table fails a test, so that a new one has to be classified. Only fields that are set count:
a field added by a later version changes no digest of a service that does not use it.
"""

import hashlib
import json
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from shardwright.api.defaults import DEFAULT_PERCENTILE
from shardwright.api.llmservice import GROUP, LLMServiceSpec
from shardwright.planner.types import Plan

TEMPLATE_VERSION: Final = 5
"""Raised with every change of what is rendered for the same plan. It rolls nothing: a revision keeps the
template it was rendered with."""
ANNOTATION_TEMPLATE_VERSION: Final = f"{GROUP}/template-version"
DIGEST_CHARS: Final = 32
HASH_CHARS: Final = 8


class Side(StrEnum):
    """What a field feeds."""

    TEMPLATE = "Template"
    """The pod itself: a change is a new revision."""
    ARRANGEMENT = "Arrangement"
    """The planner's choice: a change plans anew, and only a different choice is a new revision."""
    NEITHER = "Neither"
    """Neither: a change never moves a pod."""


_T, _A, _N = Side.TEMPLATE, Side.ARRANGEMENT, Side.NEITHER

FIELDS: Final = MappingProxyType(
    {
        "model.id": _T,
        "model.revision": _T,
        "model.servedName": _T,
        "model.maxContextTokens": _A,
        "model.variants": _A,
        "model.quantization": _A,
        "model.quantizeAtLoad": _T,
        "model.allowedKVCacheDtypes": _A,
        "model.source": _T,
        "model.cache": _T,
        "model.config": _A,
        "model.chatTemplate": _T,
        "model.tokenizer": _T,
        "model.trustRemoteCode": _T,
        "model.adapters": _N,  # not loaded yet (api.support)
        "workload.profile": _A,
        "workload.inputTokens": _A,
        "workload.outputTokens": _A,
        "workload.sharedPrefixTokens": _A,
        "workload.requestsPerMinute": _A,
        "workload.concurrency": _A,
        # A target is an edge of the latency histograms; whose percentile it is, only the planner knows.
        "slo.ttft.milliseconds": _T,
        "slo.ttft.percentile": _A,
        "slo.tpot.milliseconds": _T,
        "slo.tpot.percentile": _A,
        "slo.itl.milliseconds": _T,
        "slo.itl.percentile": _N,  # the longest pause is judged, whatever the percentile
        "slo.optimizeFor": _A,
        "availability.surviveNodeLoss": _T,
        "pool.maxGPUs": _A,
        "pool.nodeSelector": _T,
        "pool.gpuProducts": _A,
        "pool.tolerations": _T,
        "pool.schedulerName": _T,
        "pool.priorityClassName": _T,
        "pool.interconnect": _A,
        "pool.provisioning": _N,  # only existing nodes are used yet (api.support)
        "pool.shapes": _N,
        "pool.topologyKeys": _N,
        "pool.network": _N,
        "scaling": _N,
        "replicas": _N,
        "parallelism.tensor": _A,
        "parallelism.pipeline": _A,
        "parallelism.data": _A,
        "parallelism.expert": _A,
        "planPolicy": _N,
        "approvedRevision": _N,
        "rollout": _N,
        "drain": _T,
        "routing.type": _N,
        "routing.policy": _N,
        "routing.gatewayRef": _N,
        "routing.apiKeySecretRef": _T,
        "routing.maxQueuedRequests": _T,
        "routing.maxQueueSeconds": _N,
        "disaggregation": _N,
        "engine.type": _N,
        "engine.version": _T,
        "engine.image": _T,
        "engine.imagePullSecrets": _T,
        "engine.args": _T,
        "engine.env": _T,
        "engine.gpuMemoryUtilizationPercent": _A,
        "engine.maxNumSeqs": _A,
        "engine.maxNumBatchedTokens": _A,
        "engine.toolCallParser": _T,
        "engine.reasoningParser": _T,
        "engine.speculative": _N,  # not rendered yet (api.support)
        "engine.kvOffloadGiB": _N,
        "engine.multiNode": _N,
        "podTemplate": _T,
    }
)
"""Side of every field, by its path under `spec`. A path stands for all that is below it."""
_USUAL: Final = MappingProxyType(
    {
        "slo.ttft.percentile": DEFAULT_PERCENTILE,
        "slo.tpot.percentile": DEFAULT_PERCENTILE,
        "slo.optimizeFor": "Cost",
        "parallelism.data": 1,
    }
)
"""Values that count as not written: earlier versions did not count these fields, and a digest that they
stored must stay the one of the same spec."""


def template_digest(spec: LLMServiceSpec) -> str:
    """Return the digest over the fields that feed the pod template or the arrangement.

    While it stays, nothing moves. Left out: replicas, scaling, planPolicy, rollout, routers, reporting.
    """
    return _digest(_pick(spec, {Side.TEMPLATE, Side.ARRANGEMENT}))[:DIGEST_CHARS]


def revision_hash(spec: LLMServiceSpec, plan: Plan) -> str:
    """Return the 8 hex digits that name a revision: what feeds the template, and what the planner chose.

    A spec change that leads to the same pods (a larger maxGPUs, a concurrency that still fits) gives the same
    hash and so no new revision. The template version is not part of it: an upgrade of the operator finds the
    stored one.
    """
    return _digest({"spec": _pick(spec, {Side.TEMPLATE}), "plan": _choice(plan)})[:HASH_CHARS]


def _choice(plan: Plan) -> dict[str, Any]:
    """Return what of a plan reaches the pod. Predictions and replicas do not."""
    split, limits = plan.parallelism, plan.limits
    return {
        "model": [plan.model.model_id, plan.model.revision],
        "product": plan.product.label,
        "parallelism": [split.tensor, split.pipeline, split.data, split.expert],
        "limits": [
            limits.max_model_len,
            limits.max_num_seqs,
            limits.max_num_batched_tokens,
            limits.gpu_memory_utilization_percent,
            limits.kv_cache_dtype,
            limits.enforce_eager,
        ],
        "resources": list(plan.pod_resources),
        "shm": plan.shm_bytes,
        "gpuResource": plan.gpu_resource,
        # Which nodes have an old driver or more GPUs is an observation: the affinity stays as rendered.
        "node": [plan.within_island, plan.min_gpu_memory_mib],
    }


def _pick(spec: LLMServiceSpec, sides: set[Side]) -> dict[str, Any]:
    stated = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    found = {path: _at(stated, path) for path, side in FIELDS.items() if side in sides}
    return {
        path: value
        for path, value in found.items()
        if value not in (None, {}, []) and value != _USUAL.get(path)
    }


def _at(tree: Any, path: str) -> Any:  # noqa: ANN401 -- JSON
    for key in path.split("."):
        if not isinstance(tree, dict):
            return None
        tree = tree.get(key)
    return tree


def _digest(value: Any) -> str:  # noqa: ANN401 -- JSON
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()

"""Which fields this version stores but does not act on yet.

Decides the list behind `Accepted=True, reason=NotImplemented`: a field that nothing implements yet is in the
schema, and setting it gives a condition that says so. Never refuses a spec. An entry is removed in the
change that implements its field.
"""

from collections.abc import Callable
from typing import Final

from shardwright.api.defaults import idle_seconds
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason

_Rule = tuple[str, str, Callable[[LLMServiceSpec], bool]]

_QUEUE: Final = (
    "it bounds how long requests wait for a service that was scaled to zero (scaling.scaleToZero); in an "
    "engine's queue one waits for as long as its client does, and maxQueuedRequests bounds how many do"
)

_ZERO: Final = (
    "at least one replica runs: a service without replicas is woken by requests that its routers hold, and "
    "what survives the loss of a node keeps its replicas; write routing.type: Router, and no "
    "availability.surviveNodeLoss"
)

_RULES: Final[tuple[_Rule, ...]] = (
    (
        "spec.model.adapters",
        "LoRA adapters are not loaded yet; the model is served without them",
        lambda s: bool(s.model.adapters),
    ),
    (
        "spec.pool.provisioning",
        "planning against nodes that do not exist yet is not implemented; only existing nodes are used",
        lambda s: s.pool.provisioning == "Elastic",
    ),
    (
        "spec.pool.topologyKeys",
        "topology keys matter to groups that span nodes, which are not implemented yet",
        lambda s: bool(s.pool.topology_keys),
    ),
    (
        "spec.pool.network",
        "network settings matter to groups that span nodes, which are not implemented yet",
        lambda s: s.pool.network is not None,
    ),
    (
        "spec.scaling.scaleToZero",
        _ZERO,
        lambda s: bool(s.scaling and s.scaling.scale_to_zero) and idle_seconds(s) is None,
    ),
    (
        "spec.routing.type",
        "the HTTPRoute is written, and whether the Gateway takes it is not read: see its status",
        lambda s: bool(s.routing and s.routing.type == "Gateway"),
    ),
    (
        "spec.routing.policy",
        "a policy is the router's, which routing.type: Router deploys; the Service balances connections",
        lambda s: bool(s.routing and s.routing.policy and s.routing.type != "Router"),
    ),
    (
        "spec.routing.policy",
        "the router does not start with PowerOfTwo before it has engines, so CacheAware is used",
        lambda s: bool(s.routing and s.routing.policy == "PowerOfTwo" and s.routing.type == "Router"),
    ),
    (
        "spec.routing.maxQueueSeconds",
        _QUEUE,
        lambda s: bool(s.routing and s.routing.max_queue_seconds) and idle_seconds(s) is None,
    ),
    (
        "spec.disaggregation.mode",
        "separate prefill and decode engines are not implemented yet; each engine does both",
        lambda s: bool(s.disaggregation and s.disaggregation.mode != "Disabled"),
    ),
    (
        "spec.engine.speculative",
        "speculative decoding is not implemented yet; the engine runs without it",
        lambda s: bool(s.engine and s.engine.speculative),
    ),
    (
        "spec.engine.kvOffloadGiB",
        "KV offload is not implemented yet; the cache stays on the GPU",
        lambda s: bool(s.engine and s.engine.kv_offload_gib),
    ),
    (
        "spec.engine.multiNode",
        "groups that span nodes are not implemented yet; a model that needs one is not planned",
        lambda s: bool(s.engine and s.engine.multi_node),
    ),
)


def unimplemented(spec: LLMServiceSpec) -> tuple[Problem, ...]:
    """List the fields set in `spec` that this version ignores, in the reference's order; often empty."""
    return tuple(
        Problem(reason=Reason.NOT_IMPLEMENTED, field=field, message=message, blocking=False)
        for field, message, is_set in _RULES
        if is_set(spec)
    )


def unimplemented_fields() -> tuple[tuple[str, str], ...]:
    """List every field that this version ignores, with what happens instead."""
    return tuple((field, message) for field, message, _ in _RULES)

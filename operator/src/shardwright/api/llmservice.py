"""`LLMService` as a whole: spec, status and the facts that a CRD needs besides fields.

Decides the resource's shape. Never decides a plan or a default that could move a stored object.
"""

import re
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from shardwright.api.base import ApiModel, CelRule
from shardwright.api.engine import EngineSpec
from shardwright.api.model import ModelSpec
from shardwright.api.pool import ParallelismSpec, PodOverlay, PoolSpec
from shardwright.api.serving import (
    DisaggregationSpec,
    DrainSpec,
    Replicas,
    RolloutSpec,
    RoutingSpec,
    ScalingSpec,
)
from shardwright.api.status import LLMServiceStatus
from shardwright.api.workload import AvailabilitySpec, SloSpec, WorkloadSpec

GROUP = "shardwright.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "LLMService"
PLURAL = "llmservices"
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


_PRODUCT = " * ".join(
    f"(has(self.parallelism) && has(self.parallelism.{axis}) ? self.parallelism.{axis} : 1)"
    for axis in ("tensor", "pipeline", "data")
)


def _pinned_gpus(spec: "LLMServiceSpec") -> int:
    pins = spec.parallelism
    return (pins.tensor or 1) * (pins.pipeline or 1) * (pins.data or 1) if pins else 1


def _floor(spec: "LLMServiceSpec") -> int:
    return (spec.scaling.min_replicas or 0) if spec.scaling else 0


def _input_p95_tokens(spec: "LLMServiceSpec") -> int:
    return spec.workload.input_tokens.p95 if spec.workload and spec.workload.input_tokens else 0


def _survivable(spec: "LLMServiceSpec") -> bool:
    if not (spec.availability and spec.availability.survive_node_loss and spec.scaling):
        return True
    return all(n is None or n >= 2 for n in (spec.scaling.min_replicas, spec.scaling.max_replicas))


class LLMServiceSpec(ApiModel):
    """What the platform team asks for."""

    model: ModelSpec
    """The model to serve."""
    pool: PoolSpec
    """The GPUs that may be used."""
    workload: WorkloadSpec | None = None
    """The traffic to plan for."""
    slo: SloSpec | None = None
    """Latency targets."""
    availability: AvailabilitySpec | None = None
    """Failures to survive."""
    scaling: ScalingSpec | None = None
    """Who owns the replica count, and its bounds."""
    replicas: Replicas | None = None
    """Replica count with scaling.mode External; what the /scale subresource writes."""
    parallelism: ParallelismSpec | None = None
    """Pinned degrees of parallelism; the planner chooses what is absent."""
    plan_policy: Literal["OnSpecChange", "Manual", "Auto"] | None = None
    """When a new plan takes effect; OnSpecChange when absent. Manual: it waits until it is approved. Auto:
    also one that measurements lead to, which is proposed otherwise."""
    approved_revision: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$", max_length=8)] | None = None
    """Revision that shall be in force, by its 8 hex digits (quote them in YAML), whatever else the spec leads
    to; written by `shardwright approve` and `shardwright rollback`. Absent: planPolicy decides."""
    rollout: RolloutSpec | None = None
    """How a new revision replaces the old one."""
    drain: DrainSpec | None = None
    """How a replica leaves."""
    routing: RoutingSpec | None = None
    """What stands behind the endpoint."""
    disaggregation: DisaggregationSpec | None = None
    """Separate prefill and decode engines."""
    engine: EngineSpec | None = None
    """The inference engine and limits set by hand."""
    pod_template: PodOverlay | None = None
    """Overlay on the engine's pod template; what the plan owns is refused by a condition."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "(has(self.scaling) && has(self.scaling.mode) && self.scaling.mode == 'External') == "
            "has(self.replicas)",
            "spec.replicas goes with scaling.mode External: write both, or leave both out and use "
            "scaling.minReplicas",
            lambda s: (s.scaling is not None and s.scaling.mode == "External") == (s.replicas is not None),
        ),
        CelRule(
            f"{_PRODUCT} <= self.pool.maxGPUs",
            "one replica with the pinned parallelism needs tensor × pipeline × data GPUs, more than "
            "pool.maxGPUs: "
            "lower a degree or raise maxGPUs",
            lambda s: _pinned_gpus(s) <= s.pool.max_gpus,
            "parallelism",
        ),
        CelRule(
            f"!has(self.scaling) || !has(self.scaling.minReplicas) || "
            f"{_PRODUCT} > self.pool.maxGPUs || self.scaling.minReplicas * {_PRODUCT} <= self.pool.maxGPUs",
            "scaling.minReplicas × the GPUs of one replica exceeds pool.maxGPUs: lower minReplicas or "
            "raise maxGPUs",
            lambda s: _pinned_gpus(s) > s.pool.max_gpus or _floor(s) * _pinned_gpus(s) <= s.pool.max_gpus,
            "scaling",
        ),
        CelRule(
            "!has(self.availability) || !has(self.availability.surviveNodeLoss) || "
            "!self.availability.surviveNodeLoss || !has(self.scaling) || "
            "((!has(self.scaling.minReplicas) || self.scaling.minReplicas >= 2) && "
            "(!has(self.scaling.maxReplicas) || self.scaling.maxReplicas >= 2))",
            "availability.surviveNodeLoss needs two replicas: write scaling.minReplicas: 2 or more, or "
            "leave the "
            "bounds out",
            _survivable,
            "availability",
        ),
        CelRule(
            "!has(self.workload) || !has(self.workload.inputTokens) || !has(self.model.maxContextTokens) || "
            "self.workload.inputTokens.p95 <= self.model.maxContextTokens",
            "workload.inputTokens.p95 exceeds model.maxContextTokens, so such prompts would be refused: "
            "raise "
            "maxContextTokens or lower p95",
            lambda s: (
                s.model.max_context_tokens is None or _input_p95_tokens(s) <= s.model.max_context_tokens
            ),
            "workload",
        ),
    )


class ObjectMeta(ApiModel):
    """The part of the object's metadata that decisions read."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 1
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class LLMService(ApiModel):
    """A model, its SLOs and a pool of GPUs; the operator decides how to serve it."""

    metadata: ObjectMeta
    """Standard object metadata."""
    spec: LLMServiceSpec
    """What is asked for."""
    status: LLMServiceStatus | None = None
    """What is true now; written by the operator only."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "metadata.name must be a DNS-1035 label of at most 40 characters: lower-case letters, digits "
            "and '-', "
            "beginning with a letter and not ending with '-'",
            lambda s: len(s.metadata.name) <= 40 and _DNS_1035.fullmatch(s.metadata.name) is not None,
        ),
    )

    @property
    def key(self) -> "ServiceKey":
        """Namespace and name, the identity used by queue and ledger."""
        return ServiceKey((self.metadata.namespace, self.metadata.name))


class ServiceKey(tuple[str, str]):
    """(namespace, name) of an LLMService."""

    __slots__ = ()

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return self[0]

    @property
    def name(self) -> str:
        """The object's name."""
        return self[1]

    def __str__(self) -> str:
        return f"{self[0]}/{self[1]}"


RawObject = Annotated[dict[str, Any], "a Kubernetes object as the API server sends it"]

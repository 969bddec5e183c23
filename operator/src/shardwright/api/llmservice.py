"""`LLMService` as a whole: spec, status and the facts that a CRD needs besides fields.

Decides the resource's shape. Never decides a plan or a default that could move a stored object.
"""

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


class LLMServiceSpec(ApiModel):
    """What the platform team asks for."""

    model: ModelSpec
    pool: PoolSpec
    workload: WorkloadSpec | None = None
    slo: SloSpec | None = None
    availability: AvailabilitySpec | None = None
    scaling: ScalingSpec | None = None
    replicas: Replicas | None = None
    parallelism: ParallelismSpec | None = None
    plan_policy: Literal["OnSpecChange", "Manual", "Auto"] | None = None
    rollout: RolloutSpec | None = None
    drain: DrainSpec | None = None
    routing: RoutingSpec | None = None
    disaggregation: DisaggregationSpec | None = None
    engine: EngineSpec | None = None
    pod_template: PodOverlay | None = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "(has(self.scaling) && has(self.scaling.mode) && self.scaling.mode == 'External') == has(self.replicas)",
            "spec.replicas goes with scaling.mode External: write both, or leave both out and use scaling.minReplicas",
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
    spec: LLMServiceSpec
    status: LLMServiceStatus | None = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "metadata.name must be a DNS-1035 label of at most 40 characters: lower-case letters, digits and '-', "
            "starting with a letter",
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

"""`spec.pool` and `spec.parallelism`: which GPUs may be used, and what the user pins."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from shardwright.api.base import ApiModel, CelRule, LabelMap, Name

ProductLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[-A-Za-z0-9_.]+$")]
LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
Degree = Annotated[int, Field(ge=1, le=1024)]


class Toleration(ApiModel):
    """A Kubernetes toleration."""

    key: LabelKey | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: Annotated[str, Field(max_length=63)] | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None


class Interconnect(ApiModel):
    """How strictly tensor parallelism above 1 must stay on NVLink, and whether bridged pairs are fitted."""

    policy: Literal["RequireNVLink", "PreferNVLink", "Any"] | None = None
    bridges: Literal["None", "Pairs"] | None = None


class ElasticShape(ApiModel):
    """Nodes that a node autoscaler can bring."""

    product: ProductLabel
    gpus_per_node: Annotated[int, Field(ge=1, le=16)]
    max_nodes: Annotated[int, Field(ge=1, le=10_000)]


class Network(ApiModel):
    """Networking of groups that span nodes."""

    rdma_resource: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    socket_interface: Annotated[str, Field(min_length=1, max_length=64)] | None = None


class PoolSpec(ApiModel):
    """The GPUs that the service may use."""

    max_gpus: Annotated[int, Field(ge=1, le=100_000)]
    node_selector: LabelMap | None = None
    gpu_products: Annotated[list[ProductLabel], Field(max_length=32)] | None = None
    tolerations: Annotated[list[Toleration], Field(max_length=16)] | None = None
    scheduler_name: Name | None = None
    priority_class_name: Name | None = None
    interconnect: Interconnect | None = None
    provisioning: Literal["Static", "Elastic"] | None = None
    shapes: Annotated[list[ElasticShape], Field(max_length=16)] | None = None
    topology_keys: Annotated[list[LabelKey], Field(max_length=8)] | None = None
    network: Network | None = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "(has(self.provisioning) && self.provisioning == 'Elastic') == has(self.shapes)",
            "pool.shapes goes with pool.provisioning Elastic: write shapes: [{product, gpusPerNode, maxNodes}], or use Static",
        ),
    )


class ParallelismSpec(ApiModel):
    """Pins. What is absent is the planner's to choose."""

    tensor: Degree | None = None
    pipeline: Degree | None = None
    data: Degree | None = None
    expert: Literal["Auto", "Enabled", "Disabled"] | None = None


PodOverlay = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]

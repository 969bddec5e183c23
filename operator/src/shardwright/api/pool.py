"""`spec.pool` and `spec.parallelism`: which GPUs may be used, and what the user pins."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from shardwright.api.base import ApiModel, CelRule, LabelMap, LabelValue, Name

ProductLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[-A-Za-z0-9_.]+$")]
LabelKey = Annotated[
    str,
    Field(min_length=1, max_length=317, pattern=r"^([-a-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"),
]
Degree = Annotated[int, Field(ge=1, le=1024)]
_LABEL_KEY = re.compile(r"([-a-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class Toleration(ApiModel):
    """A Kubernetes toleration."""

    key: LabelKey | None = None
    """Taint key; all taints when absent, with operator Exists."""
    operator: Literal["Exists", "Equal"] | None = None
    """Exists matches any value; Equal when absent."""
    value: LabelValue | None = None
    """Taint value, with operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Taint effect; all effects when absent."""
    toleration_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None
    """How long a NoExecute taint is tolerated; forever when absent."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.value) || !has(self.operator) || self.operator != 'Exists'",
            "a toleration with operator Exists has no value: remove value, or write operator: Equal",
            lambda s: s.value is None or s.operator != "Exists",
        ),
        CelRule(
            "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
            "a toleration without key tolerates every taint and must say so: write operator: Exists, or a "
            "key",
            lambda s: s.key is not None or s.operator == "Exists",
        ),
        CelRule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds goes with effect NoExecute: write effect: NoExecute, or remove "
            "tolerationSeconds",
            lambda s: s.toleration_seconds is None or s.effect == "NoExecute",
        ),
    )


class Interconnect(ApiModel):
    """How strictly tensor parallelism above 1 must stay on NVLink, and whether bridged pairs are fitted."""

    policy: Literal["RequireNVLink", "PreferNVLink", "Any"] | None = None
    """What tensor parallelism above 1 may run over; PreferNVLink when absent."""
    bridges: Literal["None", "Pairs"] | None = None
    """Whether products with optional NVLink bridges have them fitted in pairs; None when absent."""


class ElasticShape(ApiModel):
    """Nodes that a node autoscaler can bring."""

    product: ProductLabel
    """GPU product label that such a node will carry."""
    gpus_per_node: Annotated[int, Field(ge=1, le=16)]
    """GPUs of one such node."""
    max_nodes: Annotated[int, Field(ge=1, le=10_000)]
    """How many such nodes may be planned with."""


class Network(ApiModel):
    """Networking of groups that span nodes."""

    rdma_resource: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^\S+$")] | None = None
    """Extended resource that gives a pod its RDMA devices, such as rdma/hca."""
    socket_interface: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^\S+$")] | None = None
    """Interface for NCCL and Gloo bootstrap, such as eth0."""


class PoolSpec(ApiModel):
    """The GPUs that the service may use."""

    max_gpus: Annotated[int, Field(ge=1, le=100_000)]
    """Upper bound of GPUs that the service holds at any time, a rollout's surge included."""
    node_selector: LabelMap | None = None
    """Labels that a node must have."""
    gpu_products: Annotated[list[ProductLabel], Field(min_length=1, max_length=32)] | None = None
    """Products to use, as their node label or catalogue alias; any when absent."""
    tolerations: Annotated[list[Toleration], Field(max_length=16)] | None = None
    """Tolerations of the engine pods, beside those for GPU taints."""
    scheduler_name: Name | None = None
    """Scheduler of the engine pods; the cluster's default when absent."""
    priority_class_name: Name | None = None
    """Priority class of the engine pods, and the order in which services get scarce GPUs."""
    interconnect: Interconnect | None = None
    """Rules for links between the GPUs of one replica."""
    provisioning: Literal["Static", "Elastic"] | None = None
    """Static plans on nodes that exist; Elastic on `shapes` that a node autoscaler brings. Static when
    absent."""
    shapes: Annotated[list[ElasticShape], Field(min_length=1, max_length=16)] | None = None
    """Nodes that can be brought, with provisioning Elastic."""
    topology_keys: Annotated[list[LabelKey], Field(max_length=8)] | None = None
    """Node labels, nearest first, that say which nodes share a fast network."""
    network: Network | None = None
    """Networking of replicas that span nodes."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "(has(self.provisioning) && self.provisioning == 'Elastic') == has(self.shapes)",
            "pool.shapes goes with pool.provisioning Elastic: write shapes: [{product, gpusPerNode, "
            "maxNodes}], or "
            "use Static without shapes",
            lambda s: (s.provisioning == "Elastic") == (s.shapes is not None),
        ),
        CelRule(
            "!has(self.nodeSelector) || self.nodeSelector.all(k, size(k) <= 317 && "
            "k.matches('^([-a-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))",
            "pool.nodeSelector keys are node labels: write them as kubectl get nodes --show-labels prints "
            "them",
            lambda s: all(len(k) <= 317 and _LABEL_KEY.fullmatch(k) for k in s.node_selector or {}),
            "nodeSelector",
        ),
    )


class ParallelismSpec(ApiModel):
    """Pins. What is absent is the planner's to choose."""

    tensor: Degree | None = None
    """Tensor-parallel degree."""
    pipeline: Degree | None = None
    """Pipeline-parallel degree."""
    data: Degree | None = None
    """Attention data parallelism inside one engine, for mixture-of-experts models only."""
    expert: Literal["Auto", "Enabled", "Disabled"] | None = None
    """Whether experts are spread over the ranks of an engine; Auto when absent."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!(has(self.expert) && self.expert == 'Enabled' && has(self.tensor) && self.tensor == 1 && "
            "has(self.data) && self.data == 1)",
            "parallelism.expert Enabled spreads experts over tensor × data ranks: raise one of them, or "
            "leave "
            "expert out",
            lambda s: not (s.expert == "Enabled" and s.tensor == 1 and s.data == 1),
            "expert",
        ),
    )


PodOverlay = Annotated[
    dict[str, Any], Field(max_length=64, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
]

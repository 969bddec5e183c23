"""How the service scales, rolls out, drains and is reached."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from shardwright.api.base import ApiModel, CelRule, Name, SecretKeyRef

Replicas = Annotated[int, Field(ge=0, le=10_000)]


class ScaleSchedule(ApiModel):
    """Bounds that hold from each time the cron expression fires until another schedule's does."""

    cron: Annotated[str, Field(min_length=9, max_length=100)]
    min_replicas: Replicas | None = None
    max_replicas: Replicas | None = None


class ScaleToZero(ApiModel):
    """Scale to zero after a time without requests."""

    idle_seconds: Annotated[int, Field(ge=60, le=86_400)]


class ScalingSpec(ApiModel):
    """Who owns the replica count, and its bounds."""

    mode: Literal["Auto", "External"] | None = None
    min_replicas: Replicas | None = None
    max_replicas: Replicas | None = None
    schedules: Annotated[list[ScaleSchedule], Field(max_length=16)] | None = None
    scale_to_zero: ScaleToZero | None = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "scaling.minReplicas must not exceed scaling.maxReplicas: lower the one or raise the other",
        ),
        CelRule(
            "!has(self.minReplicas) || self.minReplicas > 0 || has(self.scaleToZero)",
            "minReplicas 0 needs scaling.scaleToZero: write scaleToZero: {idleSeconds: 600}, or minReplicas: 1",
        ),
    )


class CanaryStep(ApiModel):
    """A share of traffic for a time."""

    percent: Annotated[int, Field(ge=1, le=100)]
    minutes: Annotated[int, Field(ge=1, le=1440)]


class Canary(ApiModel):
    """A rollout in steps, each judged before the next."""

    steps: Annotated[list[CanaryStep], Field(min_length=1, max_length=10)]
    min_samples: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class RolloutSpec(ApiModel):
    """How a new revision replaces the old one."""

    strategy: Literal["Auto", "Surge", "InPlace", "BlueGreen"] | None = None
    paused: bool | None = None
    canary: Canary | None = None


class DrainSpec(ApiModel):
    """How long a removed replica may finish its streams."""

    max_seconds: Annotated[int, Field(ge=0, le=86_400)]


class GatewayRef(ApiModel):
    """A Gateway API Gateway."""

    name: Name
    namespace: Name | None = None


class RoutingSpec(ApiModel):
    """What stands behind the service's endpoint."""

    type: Literal["Router", "Service", "Gateway"] | None = None
    policy: Literal["Auto", "CacheAware", "LeastLoad", "RoundRobin", "PowerOfTwo"] | None = None
    api_key_secret_ref: SecretKeyRef | None = None
    gateway_ref: GatewayRef | None = None
    max_queued_requests: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    max_queue_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "(has(self.type) && self.type == 'Gateway') == has(self.gatewayRef)",
            "routing.gatewayRef goes with routing.type Gateway, and only with it: write gatewayRef: {name: GATEWAY}",
        ),
    )


class DisaggregationSpec(ApiModel):
    """Separate prefill and decode engines."""

    mode: Literal["Disabled", "Auto", "Enabled"]

"""How the service scales, rolls out, drains and is reached."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from shardwright.api.base import ApiModel, CelRule, Name, SecretKeyRef

Replicas = Annotated[int, Field(ge=0, le=10_000)]


class ScaleSchedule(ApiModel):
    """Bounds that hold from each time the cron expression fires until another schedule's does."""

    cron: Annotated[str, Field(min_length=9, max_length=100, pattern=r"^(\S+ ){4}\S+$")]
    """Five cron fields in UTC: minute, hour, day of month, month, day of week."""
    min_replicas: Replicas | None = None
    """Lower bound while the schedule holds."""
    max_replicas: Replicas | None = None
    """Upper bound while the schedule holds."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "has(self.minReplicas) || has(self.maxReplicas)",
            "a schedule needs a bound: write minReplicas, maxReplicas or both",
            lambda s: s.min_replicas is not None or s.max_replicas is not None,
        ),
        CelRule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "a schedule's minReplicas must not exceed its maxReplicas: lower the one or raise the other",
            lambda s: s.min_replicas is None or s.max_replicas is None or s.min_replicas <= s.max_replicas,
        ),
    )


class ScaleToZero(ApiModel):
    """Scale to zero after a time without requests."""

    idle_seconds: Annotated[int, Field(ge=60, le=86_400)]
    """How long without requests."""


class ScalingSpec(ApiModel):
    """Who owns the replica count, and its bounds."""

    mode: Literal["Auto", "External"] | None = None
    """Auto: the operator, inside the bounds. External: whoever writes spec.replicas. Auto when absent."""
    min_replicas: Replicas | None = None
    """Lower bound; 1 when absent."""
    max_replicas: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Upper bound; what pool.maxGPUs holds when absent."""
    schedules: Annotated[list[ScaleSchedule], Field(max_length=16)] | None = None
    """Bounds by time of day."""
    scale_to_zero: ScaleToZero | None = None
    """Lets an idle service run no replica, with routing.type Router; a request that comes then waits for
    one."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "scaling.minReplicas must not exceed scaling.maxReplicas: lower the one or raise the other",
            lambda s: s.min_replicas is None or s.max_replicas is None or s.min_replicas <= s.max_replicas,
        ),
        CelRule(
            "!has(self.minReplicas) || self.minReplicas > 0 || has(self.scaleToZero)",
            "minReplicas 0 needs scaling.scaleToZero: write scaleToZero: {idleSeconds: 600}, or "
            "minReplicas: 1",
            lambda s: s.min_replicas is None or s.min_replicas > 0 or s.scale_to_zero is not None,
            "minReplicas",
        ),
        CelRule(
            "!has(self.scaleToZero) || !has(self.minReplicas) || self.minReplicas == 0",
            "scaling.scaleToZero never takes effect above 0 replicas: write minReplicas: 0, or remove "
            "scaleToZero",
            lambda s: s.scale_to_zero is None or s.min_replicas in {None, 0},
        ),
        CelRule(
            "!(has(self.mode) && self.mode == 'External') || (!has(self.minReplicas) && "
            "!has(self.maxReplicas) && "
            "!has(self.schedules) && !has(self.scaleToZero))",
            "with scaling.mode External whoever writes spec.replicas keeps the bounds: remove minReplicas, "
            "maxReplicas, schedules and scaleToZero, or use mode Auto",
            lambda s: (
                s.mode != "External"
                or all(v is None for v in (s.min_replicas, s.max_replicas, s.schedules, s.scale_to_zero))
            ),
        ),
    )


class CanaryStep(ApiModel):
    """A share of traffic for a time."""

    percent: Annotated[int, Field(ge=1, le=100)]
    """Share of the traffic that the new revision gets."""
    minutes: Annotated[int, Field(ge=1, le=1440)]
    """How long the step lasts at least."""


class Canary(ApiModel):
    """A rollout in steps, each judged before the next."""

    steps: Annotated[list[CanaryStep], Field(min_length=1, max_length=10)]
    """Steps, with growing shares."""
    min_samples: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Requests that a step must have seen before it is judged."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.steps.map(s, s.percent).isSorted()",
            "rollout.canary.steps must grow: write them in order of percent",
            lambda s: [step.percent for step in s.steps] == sorted(step.percent for step in s.steps),
            "steps",
        ),
    )


class RolloutSpec(ApiModel):
    """How a new revision replaces the old one."""

    strategy: Literal["Auto", "Surge", "InPlace", "BlueGreen"] | None = None
    """Auto surges when GPUs are free, and replaces in place when they are not or both mount a claim for one
    node; Auto when absent."""
    paused: bool | None = None
    """Holds the rollout where it is."""
    canary: Canary | None = None
    """Moves traffic in judged steps."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.canary) || !has(self.strategy) || self.strategy in ['Auto', 'Surge']",
            "rollout.canary needs both revisions to serve side by side: write strategy: Surge or Auto, or "
            "remove canary",
            lambda s: s.canary is None or s.strategy in {None, "Auto", "Surge"},
        ),
    )


class DrainSpec(ApiModel):
    """How long a removed replica may finish its streams."""

    max_seconds: Annotated[int, Field(ge=0, le=86_400)]
    """Longest time that open requests are waited for."""


class EndpointPicker(ApiModel):
    """The Service of an endpoint picker, such as llm-d's, in the service's namespace."""

    name: Name
    """Name of the Service."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Its gRPC port; 9002 when absent."""


class GatewayRef(ApiModel):
    """A Gateway API Gateway."""

    name: Name
    """Name of the Gateway."""
    namespace: Name | None = None
    """Its namespace; the service's own when absent."""
    section_name: Name | None = None
    """One listener of it; all when absent."""
    endpoint_picker: EndpointPicker | None = None
    """Who picks an engine for each request: an InferencePool is made for it. Without one the Gateway balances
    over the service's endpoint."""


class RoutingSpec(ApiModel):
    """What stands behind the service's endpoint."""

    type: Literal["Router", "Service", "Gateway"] | None = None
    """Router: a router that knows the engines. Service: connections are balanced. Gateway: an existing
    Gateway."""
    policy: Literal["Auto", "CacheAware", "LeastLoad", "RoundRobin", "PowerOfTwo"] | None = None
    """How the router picks an engine; Auto when absent."""
    api_key_secret_ref: SecretKeyRef | None = None
    """Key that clients must send as a bearer token: engines ask for it under /v1 (not at all paths:
    docs/routing.md), and so does what holds requests while no engine runs."""
    gateway_ref: GatewayRef | None = None
    """The Gateway, with type Gateway."""
    max_queued_requests: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Requests that may wait at each engine beyond those that it can run, and at each router while no replica
    runs; more get 503. When absent: any number at engines, 256 at routers."""
    max_queue_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    """How long a request may wait there; somewhat more than a start may take when absent."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "(has(self.type) && self.type == 'Gateway') == has(self.gatewayRef)",
            "routing.gatewayRef goes with routing.type Gateway, and only with it: write gatewayRef: {name: "
            "GATEWAY}, "
            "or another type without it",
            lambda s: (s.type == "Gateway") == (s.gateway_ref is not None),
        ),
        CelRule(
            "!(has(self.type) && self.type == 'Service') || (!has(self.policy) && "
            "!has(self.maxQueuedRequests) && "
            "!has(self.maxQueueSeconds))",
            "policy, maxQueuedRequests and maxQueueSeconds are the router's: write routing.type: Router, "
            "or remove them",
            lambda s: (
                s.type != "Service"
                or all(v is None for v in (s.policy, s.max_queued_requests, s.max_queue_seconds))
            ),
        ),
    )


class DisaggregationSpec(ApiModel):
    """Separate prefill and decode engines."""

    mode: Literal["Disabled", "Auto", "Enabled"]
    """Whether prefill and decode run in separate engines."""

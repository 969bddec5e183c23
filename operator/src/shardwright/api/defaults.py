"""What an absent field means, as one table: workload profiles, latency targets, replica bounds, policies.

Decides the value of every field of the spec that has a default independent of the cluster. Never puts a
default into the stored object (an operator upgrade must not change one), and never decides what needs a GPU
or a model: those stay None here and the planner chooses them.

The profile figures are this project's own choice of round numbers for each kind of traffic, not
measurements; a service that knows its traffic writes `spec.workload`.
"""

from dataclasses import dataclass
from math import exp, log
from types import MappingProxyType
from typing import Final

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.serving import ScalingSpec
from shardwright.api.workload import LatencyTarget, SloSpec, WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Traffic and latency targets (95th percentile) of one kind of use."""

    name: str
    input_p50_tokens: int
    input_p95_tokens: int
    output_p50_tokens: int
    output_p95_tokens: int
    ttft_ms: int
    tpot_ms: int
    itl_ms: int | None = None
    meaning: str


_PROFILES = (
    Profile(
        name="Chat", meaning="people talking to an assistant",
        input_p50_tokens=1000, input_p95_tokens=4000, output_p50_tokens=250, output_p95_tokens=800,
        ttft_ms=1000, tpot_ms=50,
    ),
    Profile(
        name="RAG", meaning="long retrieved context, short answers",
        input_p50_tokens=4000, input_p95_tokens=12_000, output_p50_tokens=250, output_p95_tokens=800,
        ttft_ms=2000, tpot_ms=50,
    ),
    Profile(
        name="Writing", meaning="short prompts, long texts",
        input_p50_tokens=500, input_p95_tokens=2000, output_p50_tokens=1000, output_p95_tokens=3000,
        ttft_ms=1500, tpot_ms=60,
    ),
    Profile(
        name="Agent", meaning="tool-calling loops with a growing context",
        input_p50_tokens=8000, input_p95_tokens=32_000, output_p50_tokens=300, output_p95_tokens=1500,
        ttft_ms=3000, tpot_ms=40,
    ),
    Profile(
        name="Voice", meaning="spoken dialogue: a quick first token and no stutter",
        input_p50_tokens=800, input_p95_tokens=3000, output_p50_tokens=80, output_p95_tokens=250,
        ttft_ms=400, tpot_ms=40, itl_ms=100,
    ),
    Profile(
        name="Mixed", meaning="several of these behind one endpoint",
        input_p50_tokens=1500, input_p95_tokens=8000, output_p50_tokens=300, output_p95_tokens=1200,
        ttft_ms=2000, tpot_ms=60,
    ),
)  # fmt: skip

PROFILES: Final = MappingProxyType({profile.name: profile for profile in _PROFILES})
"""The workload profiles by name."""

DEFAULT_PROFILE: Final = "Chat"
DEFAULT_PERCENTILE: Final = 95
DEFAULT_MIN_REPLICAS: Final = 1
MIN_REPLICAS_SURVIVING_NODE_LOSS: Final = 2
DEFAULT_CONCURRENCY_PER_REPLICA: Final = 8
"""Requests in flight that one replica's KV cache must hold when nothing is said of the load. Our choice: few
enough that the weights decide the shape in most cases, enough that a model squeezed onto a GPU without KV
room loses."""
DEFAULT_GPU_MEMORY_UTILIZATION_PERCENT: Final = 92
"""vLLM's own default since 0.22, stated explicitly so that another engine version cannot change it."""
DEFAULT_DRAIN_SECONDS: Final = 300


_P95_SIGMAS: Final = 1.6449
"""Standard deviations from the median of a normal distribution to its 95th percentile."""


def mean_of(p50: int, p95: int) -> float:
    """Return the mean of lengths with these percentiles, at most the 95th.

    Lengths of prompts and answers are skewed, and work grows with their mean, not with their median. Taken as
    log-normal: median x exp(s^2 / 2), s = ln(p95 / p50) / 1.645.
    """
    return min(float(p95), p50 * exp((log(p95 / p50) / _P95_SIGMAS) ** 2 / 2)) if p95 > p50 else float(p50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The traffic to plan for. None: not stated."""

    profile: str
    input_p50_tokens: int
    input_p95_tokens: int
    output_p50_tokens: int
    output_p95_tokens: int
    shared_prefix_tokens: int
    requests_per_minute: int | None
    """Of the whole service, as stated."""
    concurrency: int | None
    """Requests in flight of the whole service, as stated."""
    concurrency_per_replica: int
    """Requests in flight that the KV cache of one replica must hold: the stated concurrency spread over the
    planned replicas, else DEFAULT_CONCURRENCY_PER_REPLICA."""

    @property
    def input_mean_tokens(self) -> float:
        """Mean prompt, for what load takes: see `mean_of`."""
        return mean_of(self.input_p50_tokens, self.input_p95_tokens)

    @property
    def output_mean_tokens(self) -> float:
        """Mean answer, likewise."""
        return mean_of(self.output_p50_tokens, self.output_p95_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The latency targets."""

    ttft: LatencyTarget
    tpot: LatencyTarget
    itl: LatencyTarget | None
    stated: bool
    """Whether the user wrote any of them; False means that all are the profile's."""
    optimize_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The replica count and its bounds."""

    mode: str
    min_replicas: int
    max_replicas: int | None
    """None: as many as pool.maxGPUs holds."""
    planned_replicas: int
    """How many replicas to run now: spec.replicas under External, minReplicas (at least 1) otherwise."""
    idle_seconds: int | None = None
    """How long without requests before no replica runs; None: one runs always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The spec with its defaults filled in. None means that the planner, or the catalogue, decides."""

    traffic: Traffic
    targets: Targets
    scale: Scale
    survive_node_loss: bool
    interconnect_policy: str
    bridges: str
    provisioning: str
    expert: str
    plan_policy: str
    rollout_strategy: str
    drain_seconds: int
    disaggregation_mode: str
    gpu_memory_utilization_percent: int
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    max_context_tokens: int | None
    kv_cache_dtypes: tuple[str, ...]
    source_type: str
    cache_type: str
    engine_version: str | None


def resolve(spec: LLMServiceSpec) -> Resolved:
    """`spec` with the defaults of this module. Total: any spec that the API server accepts has an answer."""
    survive = bool(spec.availability and spec.availability.survive_node_loss)
    scale = _scale(spec, survive=survive)
    interconnect = spec.pool.interconnect
    engine = spec.engine
    utilization = engine.gpu_memory_utilization_percent if engine else None
    return Resolved(
        traffic=_traffic(spec.workload or WorkloadSpec(), scale.planned_replicas),
        targets=_targets(spec),
        scale=scale,
        survive_node_loss=survive,
        interconnect_policy=(interconnect and interconnect.policy) or "PreferNVLink",
        bridges=(interconnect and interconnect.bridges) or "None",
        provisioning=spec.pool.provisioning or "Static",
        expert=(spec.parallelism and spec.parallelism.expert) or "Auto",
        plan_policy=spec.plan_policy or "OnSpecChange",
        rollout_strategy=(spec.rollout and spec.rollout.strategy) or "Auto",
        drain_seconds=spec.drain.max_seconds if spec.drain else DEFAULT_DRAIN_SECONDS,
        disaggregation_mode=spec.disaggregation.mode if spec.disaggregation else "Disabled",
        gpu_memory_utilization_percent=utilization or DEFAULT_GPU_MEMORY_UTILIZATION_PERCENT,
        max_num_seqs=engine.max_num_seqs if engine else None,
        max_num_batched_tokens=engine.max_num_batched_tokens if engine else None,
        max_context_tokens=spec.model.max_context_tokens,
        kv_cache_dtypes=tuple(spec.model.allowed_kv_cache_dtypes or ("Auto",)),
        source_type=spec.model.source.type if spec.model.source else "Hub",
        cache_type=spec.model.cache.type if spec.model.cache else "Ephemeral",
        engine_version=engine.version if engine else None,
    )


def _traffic(workload: WorkloadSpec, replicas: int) -> Traffic:
    profile = PROFILES[workload.profile or DEFAULT_PROFILE]
    inputs, outputs, stated = workload.input_tokens, workload.output_tokens, workload.concurrency
    return Traffic(
        profile=profile.name,
        input_p50_tokens=inputs.p50 if inputs else profile.input_p50_tokens,
        input_p95_tokens=inputs.p95 if inputs else profile.input_p95_tokens,
        output_p50_tokens=outputs.p50 if outputs else profile.output_p50_tokens,
        output_p95_tokens=outputs.p95 if outputs else profile.output_p95_tokens,
        shared_prefix_tokens=workload.shared_prefix_tokens or 0,
        requests_per_minute=workload.requests_per_minute,
        concurrency=stated,
        concurrency_per_replica=-(-stated // max(replicas, 1)) if stated else DEFAULT_CONCURRENCY_PER_REPLICA,
    )


def _targets(spec: LLMServiceSpec) -> Targets:
    profile = PROFILES[(spec.workload and spec.workload.profile) or DEFAULT_PROFILE]
    slo = spec.slo or SloSpec()
    return Targets(
        ttft=slo.ttft or _target(profile.ttft_ms),
        tpot=slo.tpot or _target(profile.tpot_ms),
        itl=slo.itl or (_target(profile.itl_ms) if profile.itl_ms else None),
        stated=bool(slo.ttft or slo.tpot or slo.itl),
        optimize_for=slo.optimize_for or "Cost",
    )


def _scale(spec: LLMServiceSpec, *, survive: bool) -> Scale:
    scaling = spec.scaling or ScalingSpec()
    minimum = scaling.min_replicas
    idle = idle_seconds(spec)
    if minimum is None and idle is not None:
        minimum = 0
    elif minimum is None:
        minimum = MIN_REPLICAS_SURVIVING_NODE_LOSS if survive else DEFAULT_MIN_REPLICAS
        minimum = minimum if scaling.max_replicas is None else min(minimum, scaling.max_replicas)
    external = spec.replicas if scaling.mode == "External" else None
    return Scale(
        mode=scaling.mode or "Auto",
        min_replicas=minimum,
        max_replicas=scaling.max_replicas,
        # A service begins with one replica, and is planned for it: none runs only after it was idle.
        planned_replicas=max(minimum, 1) if external is None else external,
        idle_seconds=idle,
    )


def idle_seconds(spec: LLMServiceSpec) -> int | None:
    """Return after how long without requests no replica runs; None where one runs always.

    Requests that come to a service without replicas are held beside its routers, and nowhere else. What is to
    survive the loss of a node keeps its replicas.
    """
    asked = spec.scaling.scale_to_zero if spec.scaling else None
    routed = spec.routing is not None and spec.routing.type == "Router"
    survive = bool(spec.availability and spec.availability.survive_node_loss)
    return asked.idle_seconds if asked is not None and routed and not survive else None


def _target(milliseconds: int) -> LatencyTarget:
    return LatencyTarget(percentile=DEFAULT_PERCENTILE, milliseconds=milliseconds)

"""What is asked of every arrangement, and the two answers: it fits, or the reason why not.

Decides the vocabulary of trials. Never tries anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shardwright.api.defaults import Resolved
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.reasons import CandidateReason
from shardwright.catalog.types import EngineClass
from shardwright.planner.demand import Demand
from shardwright.planner.offers import Offer
from shardwright.planner.performance.rate import Limit
from shardwright.planner.types import (
    Candidate,
    Correction,
    EngineLimits,
    MemoryEstimate,
    ModelChoice,
    Parallelism,
    Speed,
    kv_mark,
)
from shardwright.topology.types import PoolNode, Resources

MISSED = frozenset(
    {
        CandidateReason.TTFT_TOO_HIGH,
        CandidateReason.TPOT_TOO_HIGH,
        CandidateReason.PAUSE_TOO_LONG,
        CandidateReason.RATE_TOO_LOW,
    }
)
"""Reasons of arrangements that fit and miss what is stated."""
STAGES, UNLINKED = 2, 3
"""Questions that capacity asks only when no earlier one is answered with yes: stages, then ranks without
links."""
UNVALIDATED_GAIN = 1.3
"""How much cheaper an arrangement must be that no measured row covers. Design of this project, section 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a trial is for: the spec with its defaults, and the engine."""

    spec: LLMServiceSpec
    resolved: Resolved
    engine: EngineClass
    added_flags: tuple[str, ...] = ()
    """Flags of `engine.args` that the plan's figures do not cover."""
    exhaustive: bool = False
    """Try also what cannot win: the answer is the same, which a test holds against."""
    corrections: Mapping[tuple[str, str], Correction] = field(default_factory=dict)
    """What was measured before, by model id and product label."""

    def correction(self, model: ModelChoice, offer: Offer) -> Correction:
        """Return what was measured of a checkpoint on a product; nothing is corrected where nothing was."""
        return self.corrections.get((model.model_id, offer.product.label), Correction())

    @property
    def asked(self) -> bool:
        """Whether a load or a target is stated, by which arrangements are judged and compared by price."""
        return self.loaded or self.resolved.targets.stated

    @property
    def loaded(self) -> bool:
        """Whether a load is stated."""
        traffic = self.resolved.traffic
        return traffic.requests_per_minute is not None or traffic.concurrency is not None

    @property
    def fastest(self) -> bool:
        """Whether the lowest latency is wanted, not the lowest price."""
        return self.resolved.targets.optimize_for == "Latency"

    @property
    def max_gpus(self) -> int:
        """The budget."""
        return self.spec.pool.max_gpus

    @property
    def replicas(self) -> int:
        """Replicas that run now; a plan needs room for one even when none runs."""
        return max(1, self.resolved.scale.planned_replicas)

    @property
    def policy(self) -> str:
        """How strictly TP above 1 must stay on NVLink."""
        return self.resolved.interconnect_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """An arrangement that holds what the work needs."""

    model: ModelChoice
    offer: Offer
    parallelism: Parallelism
    within_island: bool
    memory_mib: int
    limits: EngineLimits
    estimate: MemoryEstimate
    demand: Demand
    resources: Resources
    concurrency: int
    """Requests in flight that one engine is planned to hold, over all its ranks with own attention."""
    needed_tokens: int
    """KV tokens that the work needs in each of these ranks."""
    clamped_from: int | None
    step: int
    """Which question it answers: 0 one GPU, 1 tensor parallelism in an island, 2 stages or unlinked ranks."""
    context_tokens: int = 0
    """The length that one request may have for certain: as asked for, or the workload's longest."""
    kv_room_tokens: int = 0
    """KV tokens that are promised to requests of the workload's length."""
    replicas: int = 1
    """Replicas that are planned, at least one."""
    spare: int = 0
    """Of them, those that are there for the loss of a node."""
    room: int = 0
    """Replicas that the pool's nodes hold if all are free."""
    survives: bool = True
    """Whether the loss of a node leaves enough, where that is asked for."""
    held_back: frozenset[Limit] = frozenset()
    """What stops a replica from more, within the stated targets and within all that are kept."""
    speed: Speed | None = None
    speed_unknown: str = ""
    """Why no speed is predicted; empty when one is."""

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.parallelism.gpus

    @property
    def name(self) -> str:
        """How it is told apart from others of its checkpoint and product."""
        return str(self.parallelism) + kv_mark(self.limits.kv_cache_dtype)

    @property
    def clamped(self) -> bool:
        """Whether it holds only a shorter context than was asked for."""
        return self.clamped_from is not None

    @property
    def unvalidated(self) -> str:
        """What no measured row covers in it, as a phrase; empty when all is covered."""
        parts = []
        if self.parallelism.pipeline > 1:
            parts.append("pipeline parallelism")
        if self.parallelism.data > 1:
            parts.append("attention data parallelism")
        if self.limits.kv_cache_dtype == "fp8":
            parts.append("FP8 KV cache")
        if not self.estimate.covered:
            parts.append(self.estimate.coverage)
        if self.speed is not None and not parts:
            parts.extend(self.speed.gaps)
        return ", ".join(parts)

    @property
    def unmeasured(self) -> str:
        """The same with expert parallelism, which no row of the latency model has."""
        return self.unvalidated or ("expert parallelism" if self.parallelism.expert else "")

    @property
    def judged_gpus(self) -> float:
        """GPUs of all replicas, as they count when arrangements of one product are compared."""
        return self.gpus * self.replicas * (UNVALIDATED_GAIN if self.unmeasured else 1.0)

    @property
    def predicted(self) -> bool:
        """Whether its speed is predicted."""
        return self.speed is not None

    @property
    def slack(self) -> float:
        """Share of the load that the replicas could take beyond it; 0 when no load is stated."""
        return self.speed.most * self.replicas if self.speed is not None else 0.0


def count(number: int, noun: str) -> str:
    """Return "1 GPU", "2 GPUs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def failure(  # noqa: PLR0917 -- an arrangement and why it lost
    model: ModelChoice,
    offer: Offer,
    parallelism: Parallelism,
    reason: CandidateReason,
    message: str,
    dtype: str = "auto",
) -> Candidate:
    """Build a candidate that lost before its memory was counted."""
    return Candidate(
        kv_cache_dtype=dtype,
        model_id=model.model_id,
        product=offer.product.label,
        parallelism=parallelism,
        reason=reason,
        message=message,
    )


def next_smaller(fit: Fit, candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the largest arrangement of the same checkpoint and product with fewer GPUs, None without one.

    Only such as got so far that their memory was estimated.
    """
    smaller = [
        c
        for c in candidates
        if (c.product, c.model_id) == (fit.offer.product.label, fit.model.model_id)
        and c.parallelism.gpus < fit.gpus
        and c.estimate is not None
    ]
    return max(smaller, key=lambda c: (c.parallelism.gpus, -c.parallelism.pipeline), default=None)


def eligible(fit: Fit) -> tuple[PoolNode, ...]:
    """Return the nodes that an arrangement may run on, whatever is free on them."""
    island = fit.parallelism.ranks if fit.within_island else 1
    return fit.offer.holding(fit.gpus, fit.memory_mib, island)

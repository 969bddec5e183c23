"""What is asked of every arrangement, and the two answers: it fits, or the reason why not.

Decides the vocabulary of trials. Never tries anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardwright.api.defaults import Resolved
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.reasons import CandidateReason
from shardwright.catalog.types import EngineClass
from shardwright.planner.demand import Demand
from shardwright.planner.offers import Offer
from shardwright.planner.types import (
    Candidate,
    Correction,
    EngineLimits,
    MemoryEstimate,
    ModelChoice,
    Parallelism,
    Speed,
)
from shardwright.topology.types import PoolNode, Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a trial is for: the spec with its defaults, and the engine."""

    spec: LLMServiceSpec
    resolved: Resolved
    engine: EngineClass
    added_flags: tuple[str, ...] = ()
    """Flags of `engine.args` that the plan's figures do not cover."""
    corrections: Mapping[tuple[str, str], Correction] = field(default_factory=dict)
    """What was measured before, by model id and product label."""

    def correction(self, model: ModelChoice, offer: Offer) -> Correction:
        """Return what was measured of a checkpoint on a product; nothing is corrected where nothing was."""
        return self.corrections.get((model.model_id, offer.product.label), Correction())

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
    """Requests in flight that one engine is planned to hold."""
    needed_tokens: int
    """KV tokens that the work needs."""
    clamped_from: int | None
    step: int
    """Which question it answers: 0 one GPU, 1 tensor parallelism in an island, 2 stages or unlinked ranks."""
    context_tokens: int = 0
    """The length that one request may have for certain: as asked for, or the workload's longest."""
    kv_room_tokens: int = 0
    """KV tokens that are promised to requests of the workload's length."""
    replicas: int = 1
    """Replicas that are planned, at least one."""
    speed: Speed | None = None
    speed_unknown: str = ""
    """Why no speed is predicted; empty when one is."""

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.parallelism.gpus

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
        if self.limits.kv_cache_dtype == "fp8":
            parts.append("FP8 KV cache")
        if not self.estimate.covered:
            parts.append(self.estimate.coverage)
        if self.speed is not None and not parts:
            parts.extend(self.speed.gaps)
        return ", ".join(parts)

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


def failure(
    model: ModelChoice, offer: Offer, parallelism: Parallelism, reason: CandidateReason, message: str
) -> Candidate:
    """Build a candidate that lost before its memory was counted."""
    return Candidate(
        model_id=model.model_id,
        product=offer.product.label,
        parallelism=parallelism,
        reason=reason,
        message=message,
    )


def eligible(fit: Fit) -> tuple[PoolNode, ...]:
    """Return the nodes that an arrangement may run on, whatever is free on them."""
    island = fit.parallelism.tensor if fit.within_island else 1
    return fit.offer.holding(fit.gpus, fit.memory_mib, island)

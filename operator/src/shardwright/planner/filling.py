"""The memory of one arrangement, tried with one set of engine limits after the other.

Decides whether the KV cache that the work needs is left, with which limits and for which context, and by how
much it is short. Never looks at links, budgets or nodes.
"""

from dataclasses import replace

from shardwright.api.reasons import CandidateReason
from shardwright.catalog.types import AttentionKind
from shardwright.planner import memory
from shardwright.planner.demand import Demand, demand
from shardwright.planner.latency import unpredicted
from shardwright.planner.limits import most_seqs, options
from shardwright.planner.offers import Offer
from shardwright.planner.question import Fit, Question, count
from shardwright.planner.resources import pod_resources
from shardwright.planner.types import (
    GIB,
    Candidate,
    EngineLimits,
    MemoryEstimate,
    MemoryRequest,
    ModelChoice,
    Parallelism,
    Verdict,
)

CONTEXT_STEP = 256
"""A clamped context is a multiple of this, so that it reads as a decision and not as noise."""


def fill(
    question: Question,
    model: ModelChoice,
    offer: Offer,
    parallelism: Parallelism,
    *,
    memory_mib: int,
    within: bool,
    dtype: str,
) -> Candidate | Fit:
    """Try the engine limits in order until the KV cache is large enough.

    `within` says whether the ranks of a stage are linked; it only marks the result.
    """
    need = demand(
        question.resolved, parallelism, question.max_gpus, most_seqs(question.spec),
        predicted=not unpredicted(model, offer.product),
    )  # fmt: skip
    trials: list[Trial] = []
    steps = list(
        options(
            question.spec, question.resolved, question.engine,
            gpu=offer.product, concurrency=need.concurrency, kv_dtype=dtype,
            max_model_len=_wanted(question, model, need),
        )
    )  # fmt: skip
    while steps:
        limits = steps.pop(0)
        trial = Trial(question, model, offer, parallelism, memory_mib, need, limits)
        if trial.short_tokens() == 0:
            return trial.fit(None, within=within)
        trials.append(trial)
        if trial.beyond_help():
            steps = steps[-1:]  # the smallest batch says how little is missing
    asked = question.resolved.max_context_tokens
    clamped = [t for t in trials if t.holds_clamped()] if asked is not None else []
    if clamped:
        return max(clamped, key=lambda t: t.estimate.largest_model_len).fit(asked, within=within)
    best = min(trials, key=lambda t: (t.estimate.verdict is Verdict.OUT_OF_MEMORY, t.short_gib()))
    return best.refusal()


def retry(question: Question, fit: Fit, seqs: int, tokens: int) -> "Trial | None":
    """Try the same arrangement with other batch limits; None when its KV cache is then too small."""
    limits = replace(
        fit.limits, max_model_len=_wanted(question, fit.model, fit.demand), max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
    )  # fmt: skip
    trial = Trial(
        question, fit.model, fit.offer, fit.parallelism, fit.memory_mib, fit.demand, limits
    )  # fmt: skip
    return None if trial.short_tokens() else trial


def _wanted(question: Question, model: ModelChoice, need: Demand) -> int:
    """Return the length that must fit: what was asked for, else the longest request of the workload."""
    longest = model.architecture.max_position_embeddings
    return min(longest, question.resolved.max_context_tokens or need.floor_tokens)


def _of_length(limits: EngineLimits, length: int) -> EngineLimits:
    return limits if limits.max_model_len == length else replace(limits, max_model_len=length)


class Trial:
    """One arrangement with one set of limits."""

    __slots__ = (
        "_question",
        "demand",
        "estimate",
        "limits",
        "memory_mib",
        "model",
        "offer",
        "parallelism",
        "want",
    )

    def __init__(  # noqa: PLR0917 -- one call site
        self,
        question: Question,
        model: ModelChoice,
        offer: Offer,
        parallelism: Parallelism,
        memory_mib: int,
        need: Demand,
        limits: EngineLimits,
    ) -> None:
        self._question = question
        self.model, self.offer, self.parallelism = model, offer, parallelism
        longest = model.architecture.max_position_embeddings
        self.memory_mib = memory_mib
        self.demand = need.capped(min(longest, question.resolved.max_context_tokens or longest))
        self.want = limits.max_model_len
        self.limits = limits
        self.estimate = self._estimate(self.want)

    def _estimate(self, length: int) -> MemoryEstimate:
        return memory.estimate(
            MemoryRequest(
                architecture=self.model.architecture,
                gpu=self.offer.product,
                engine=self._question.engine,
                parallelism=self.parallelism,
                limits=_of_length(self.limits, length),
                visible_gib=self.offer.visible_gib(self.memory_mib),
                added_flags=self._question.added_flags,
                measured_ratio=self._question.correction(self.model, self.offer).memory_ratio,
            )
        )

    def _working_short(self) -> int:
        """Tokens that B requests in flight lack."""
        return max(0, self.demand.working_tokens - self._working_room())

    def _working_room(self) -> int:
        """Tokens that the KV cache holds in requests of the workload's length.

        The token count of a hybrid depends on the length that it is asked for.
        """
        if self.model.architecture.attention is AttentionKind.SLIDING_HYBRID:
            return self._estimate(self.demand.request_tokens).promised_kv_tokens
        return self.estimate.promised_kv_tokens

    @property
    def held(self) -> int:
        """Requests of the workload's long lengths that the KV cache holds."""
        return self.demand.most_held(self._working_room())

    def short_tokens(self) -> int:
        """Tokens that are missing for the work; 0 when all is held."""
        if self.estimate.verdict is not Verdict.FITS:
            return max(1, self.want - self.estimate.promised_kv_tokens, self._working_short())
        return self._working_short()

    def short_gib(self) -> float:
        """GiB that each GPU lacks."""
        estimate = self.estimate
        return max(0.0, self.need_gib() + estimate.margin_gib - estimate.kv_cache_gib_per_gpu)

    def need_gib(self) -> float:
        """GiB of KV cache that each GPU has to hold."""
        return self.required_tokens() * self.estimate.kv_bytes_per_token_per_gpu / GIB

    def _needed_for(self) -> str:
        """Say what the KV tokens are for: the larger part of the rule."""
        need = self.demand
        if self.want >= need.working_tokens:
            return f"one request of {self.want} tokens"
        each = " in each rank" if self.parallelism.data > 1 else ""
        assumed = "" if self._question.loaded else ", as many as are assumed where no load is stated"
        return (
            count(need.concurrency, "request") + f" in flight{each} of {need.request_tokens} tokens{assumed}"
        )

    def _replicas_needed(self) -> int:
        """Replicas that would hold the stated load between them; 0 when more replicas would not help."""
        total, held = self.demand.service_concurrency, self.demand.most_held(self._working_room())
        held = min(held, self.limits.max_num_seqs) * self.parallelism.data
        if total is None or held < 1 or self.estimate.verdict is not Verdict.FITS:
            return 0
        return -(-total // held)

    def beyond_help(self) -> bool:
        """Whether it lacks more than smaller batches could free.

        A hybrid's KV need shrinks with the batch too, and a context asked for may be served in part.
        """
        if self.estimate.verdict is not Verdict.OUT_OF_MEMORY:
            hybrid = self.model.architecture.attention is AttentionKind.SLIDING_HYBRID
            if hybrid or self._question.resolved.max_context_tokens is not None:
                return False
        return self.short_gib() > self.estimate.activation_gib

    def required_tokens(self) -> int:
        """Tokens that the KV cache must hold."""
        return self.demand.required_tokens(self.want)

    def holds_clamped(self) -> bool:
        """Whether a shorter context than asked for still serves the longest request of the workload."""
        floor = min(self.want, self.demand.floor_tokens)
        usable = self.estimate.verdict in {Verdict.FITS, Verdict.TOO_SMALL}
        longest = self.estimate.largest_model_len // CONTEXT_STEP * CONTEXT_STEP
        return usable and longest >= floor and self._working_short() == 0

    def fit(self, clamped_from: int | None, *, within: bool) -> Fit:
        """Build the result, with the longest context that fits unless one was asked for."""
        length = self.want
        if clamped_from is not None or self._question.resolved.max_context_tokens is None:
            declared = self.model.architecture.max_position_embeddings
            longest = self.estimate.largest_model_len
            if longest < declared:
                longest = max(length if clamped_from is None else 0, longest // CONTEXT_STEP * CONTEXT_STEP)
            length = min(declared, longest)
        estimate = self.estimate if length == self.want else self._estimate(length)
        concurrency = min(self.demand.held(self._working_room()), self.limits.max_num_seqs)
        planned = replace(self.demand, concurrency=concurrency)
        alone = self.parallelism.pipeline == 1 and (within or self._question.policy == "Any")
        return Fit(
            model=self.model,
            offer=self.offer,
            parallelism=self.parallelism,
            within_island=within,
            step=0 if self.parallelism.gpus == 1 else 1 if alone else 2,
            memory_mib=self.memory_mib,
            limits=replace(self.limits, max_model_len=length),
            estimate=estimate,
            demand=self.demand,
            resources=pod_resources(
                self._question.resolved, estimate, self.parallelism, self.model.architecture,
            ),
            concurrency=concurrency * self.parallelism.data,
            needed_tokens=planned.required_tokens(self.want if clamped_from is None else length),
            context_tokens=self.want if clamped_from is None else length,
            clamped_from=clamped_from,
            kv_room_tokens=self._working_room(),
        )  # fmt: skip

    def refusal(self) -> Candidate:
        """Build the candidate that says what is missing."""
        estimate = self.estimate
        short_gib = self.short_gib()
        if estimate.verdict is Verdict.UNKNOWN:
            reason, phrase = CandidateReason.MEMORY_UNKNOWN, estimate.coverage
            said = phrase.startswith("not predicted")
            message = f"its memory is {phrase}" if said else f"its memory cannot be predicted: {phrase}"
        elif estimate.verdict is Verdict.OUT_OF_MEMORY:
            budget = estimate.visible_gib * self.limits.gpu_memory_utilization_percent / 100
            reason = CandidateReason.WEIGHTS_DO_NOT_FIT
            message = (
                f"weights {estimate.weights_gib_per_gpu:.1f} GiB, with overheads "
                f"{budget - estimate.kv_cache_gib_per_gpu:.1f} GiB, on a GPU that gives {budget:.1f} GiB; "
                f"with {self.need_gib():.1f} GiB of KV cache and {estimate.margin_gib:.1f} GiB reserve it is "
                f"{short_gib:.1f} GiB short"
            )
        else:
            reason = CandidateReason.KV_TOO_SMALL
            has, needs = estimate.promised_kv_tokens, self.required_tokens()
            if has < needs:
                held = f"its KV cache holds {has} tokens for certain and the work needs {needs}"
            else:  # layers with a window hold the last tokens only: tokens do not say how many requests
                most = self.demand.most_held(self._working_room())
                held = f"its KV cache holds {count(most, 'request')} for certain, fewer than the work needs"
            message = f"{held} ({self._needed_for()}); {short_gib:.1f} GiB a GPU short"
        return Candidate(
            kv_cache_dtype=self.limits.kv_cache_dtype,
            model_id=self.model.model_id,
            product=self.offer.product.label,
            parallelism=self.parallelism,
            reason=reason,
            message=message,
            estimate=estimate,
            gib_short=round(short_gib, 2),
            replicas_needed=self._replicas_needed(),
        )

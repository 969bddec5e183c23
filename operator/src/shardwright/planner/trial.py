"""One arrangement put to the test of memory, budget, nodes, and what is stated of latency and load.

Decides Fit or why not, for one checkpoint, product and parallelism alone, so that each reason can be
recomputed alone. Never compares arrangements.
"""

from dataclasses import replace

from shardwright.api.reasons import CandidateReason
from shardwright.planner.filling import fill
from shardwright.planner.latency import Miss, most_replicas
from shardwright.planner.legality import illegality, kv_fp8_problem
from shardwright.planner.limits import kv_dtypes
from shardwright.planner.load import load_of
from shardwright.planner.offers import Offer
from shardwright.planner.performance.rate import Limit
from shardwright.planner.question import Fit, Question, count, eligible, failure
from shardwright.planner.ranking import held_share
from shardwright.planner.tuning import tuned
from shardwright.planner.types import Candidate, ModelChoice, Parallelism
from shardwright.topology.packing import fits as resources_fit
from shardwright.topology.packing import lacking


def dtypes(question: Question, offer: Offer) -> list[str]:
    """Return the KV dtypes that are allowed and run here; a product without any is refused before."""
    return [d for d in kv_dtypes(question.resolved) if d == "auto" or not kv_fp8_problem(offer.product)]


def judge(
    question: Question, model: ModelChoice, offer: Offer, parallelism: Parallelism, dtype: str = "auto"
) -> Candidate | Fit:
    """Try one arrangement inside one node of `offer`."""
    illegal = illegality(model.architecture, parallelism)
    if illegal:
        return failure(model, offer, parallelism, CandidateReason.ILLEGAL_TENSOR_PARALLELISM, illegal, dtype)
    if parallelism.gpus > offer.node_gpus:
        return replace(
            failure(
                model, offer, parallelism, CandidateReason.BEYOND_NODE,
                f"{parallelism.gpus} GPUs are more than a node has ({offer.node_gpus})", dtype,
            ),
            gpus_short=parallelism.gpus - offer.node_gpus,
        )  # fmt: skip
    within = parallelism.ranks <= max(1, offer.island_gpus)
    answer = _judge(question, model, offer, parallelism, dtype, within=within)
    if not within or not _others_may_do(offer, parallelism, answer):
        return answer
    unlinked = _judge(question, model, offer, parallelism, dtype, within=False)
    if isinstance(answer, Candidate) and answer.reason is CandidateReason.BEYOND_NODE:
        return unlinked
    if not isinstance(unlinked, Fit) or (isinstance(answer, Fit) and unlinked.clamped):
        return answer
    if isinstance(answer, Fit) and not answer.clamped:
        return unlinked if held_share(unlinked) > held_share(answer) else answer
    return unlinked


def _others_may_do(offer: Offer, parallelism: Parallelism, answer: Candidate | Fit) -> bool:
    """Whether nodes without links may hold what those with links, which come first, do not."""
    if isinstance(answer, Fit) and not answer.clamped:
        return held_share(answer) < 1
    too_small = isinstance(answer, Candidate) and answer.reason is CandidateReason.NODE_TOO_SMALL
    largest = offer.largest_memory(parallelism.gpus)
    return too_small or largest > offer.largest_memory(parallelism.gpus, parallelism.ranks)


def _judge(
    question: Question,
    model: ModelChoice,
    offer: Offer,
    parallelism: Parallelism,
    dtype: str,
    *,
    within: bool,
) -> Candidate | Fit:
    outcome = _by_memory_class(question, model, offer, parallelism, dtype, within=within)
    refused = not within and question.policy == "RequireNVLink"
    if isinstance(outcome, Candidate):
        return replace(outcome, replicas_needed=0) if refused else outcome
    if refused:
        linked = max(1, offer.island_gpus)
        return failure(
            model, offer, parallelism, CandidateReason.BEYOND_ISLAND,
            f"it fits, but only {linked} of its {parallelism.ranks} ranks are linked for certain, and "
            "pool.interconnect.policy is RequireNVLink", dtype,
        )  # fmt: skip
    return _affordable(question, outcome)


def judge_group(
    question: Question, model: ModelChoice, offer: Offer, parallelism: Parallelism, memory_mib: int
) -> bool:
    """Whether GPUs of this memory would hold the work, in whichever nodes; only memory is counted."""
    if illegality(model.architecture, parallelism):
        return False
    return any(
        isinstance(
            fill(question, model, offer, parallelism, memory_mib=memory_mib, within=False, dtype=dtype), Fit
        )
        for dtype in dtypes(question, offer)
    )


def _by_memory_class(
    question: Question,
    model: ModelChoice,
    offer: Offer,
    parallelism: Parallelism,
    dtype: str,
    *,
    within: bool,
) -> Candidate | Fit:
    """Take the smallest GPU memory that holds it: that leaves the most nodes to run on."""
    island = parallelism.ranks if within else 1
    outcome: Candidate | Fit | None = None
    for memory_mib in offer.memory_classes:
        if memory_mib > offer.largest_memory(parallelism.gpus, island):
            continue
        trial = fill(question, model, offer, parallelism, memory_mib=memory_mib, within=within, dtype=dtype)
        if isinstance(trial, Fit) and not trial.clamped:
            return trial
        if isinstance(trial, Fit) or not isinstance(outcome, Fit):
            outcome = trial
    return outcome or failure(
        model, offer, parallelism, CandidateReason.BEYOND_NODE,
        f"no node has {parallelism.gpus} GPUs with {island} of them linked", dtype,
    )  # fmt: skip


def _affordable(question: Question, fit: Fit) -> Candidate | Fit:
    """Check budget and node resources of an arrangement that fits by memory."""
    model, offer, parallelism, dtype = fit.model, fit.offer, fit.parallelism, fit.limits.kv_cache_dtype
    total = fit.gpus * question.replicas
    if total > question.max_gpus:
        each = "it needs"
        if question.replicas > 1:
            each = f"{question.replicas} replicas of {count(fit.gpus, 'GPU')} need"
        return replace(
            failure(
                model, offer, parallelism, CandidateReason.OVER_BUDGET,
                f"it fits, but {each} {count(total, 'GPU')} and pool.maxGPUs is {question.max_gpus}",
                dtype,
            ),
            estimate=fit.estimate,
            gpus_short=total - question.max_gpus,
        )  # fmt: skip
    nodes = eligible(fit)
    if any(resources_fit(fit.resources, node.capacity) for node in nodes):
        judged = tuned(question, fit)
        return judged if isinstance(judged, Fit) else _missed(question, fit, judged)
    closest = max(nodes, key=lambda n: (n.capacity.memory_bytes, n.capacity.ephemeral_bytes, n.name))
    return replace(
        failure(
            model, offer, parallelism, CandidateReason.NODE_TOO_SMALL,
            f"the GPUs hold it, but {closest.name}, the largest node, is too small for its pod: "
            f"{lacking(fit.resources, closest.capacity)}", dtype,
        ),
        estimate=fit.estimate,
    )  # fmt: skip


_TOO_HIGH = {
    Limit.TTFT: CandidateReason.TTFT_TOO_HIGH,
    Limit.TPOT: CandidateReason.TPOT_TOO_HIGH,
    Limit.STEP: CandidateReason.PAUSE_TOO_LONG,
    Limit.SLOTS: CandidateReason.RATE_TOO_LOW,
}


def _missed(question: Question, fit: Fit, miss: Miss) -> Candidate:
    """Say which stated target or load an arrangement that fits cannot keep."""
    total = miss.replicas * fit.gpus
    return replace(
        failure(
            fit.model,
            fit.offer,
            fit.parallelism,
            _TOO_HIGH[miss.limit],
            _miss_text(question, fit, miss),
            fit.limits.kv_cache_dtype,
        ),
        estimate=fit.estimate,
        gpus_short=max(0, total - question.max_gpus),
        replicas_needed=miss.replicas,
        overshoot=miss.overshoot,
        relaxed=miss.relaxed,
    )


def _miss_text(question: Question, fit: Fit, miss: Miss) -> str:
    targets, seen = question.resolved.targets, miss.figures
    match miss.limit:
        case Limit.TTFT:
            figure, target, what = seen.ttft_ms, targets.ttft, "slo.ttft"
        case Limit.TPOT:
            figure, target, what = seen.tpot_ms, targets.tpot, "slo.tpot"
        case Limit.STEP:
            assert targets.itl is not None
            figure, target, what = seen.itl_ms, targets.itl, "slo.itl"
        case Limit.SLOTS:
            load = load_of(question.resolved)
            most = most_replicas(question, fit.gpus)
            allowed = f"{count(most, 'replica')} {'is' if most == 1 else 'are'} allowed"
            if not miss.replicas:
                return f"not even one of the {load.total:.0f} {load.unit} keeps the stated targets"
            return (
                f"one replica takes {miss.per_replica:.0f} {load.unit} within what is stated, so that "
                f"{load.total:.0f} take {count(miss.replicas, 'replica')} "
                f"({count(miss.replicas * fit.gpus, 'GPU')}), and {allowed}"
            )
    return (
        f"a lone request is predicted at {figure:.0f} ms (P{target.percentile}), and {what} allows "
        f"{target.milliseconds} ms, margin of 15 % included; most of it is {miss.term}"
    )

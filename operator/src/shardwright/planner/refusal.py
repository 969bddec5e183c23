"""What is said when nothing in the pool serves the model.

Decides the one binding constraint and what would lift it. Never a plan.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from shardwright.api.reasons import CandidateReason, Reason
from shardwright.catalog.types import GPUProduct
from shardwright.planner.candidates import Survey
from shardwright.planner.legality import LARGEST_TENSOR, illegality, tensor_degrees
from shardwright.planner.question import Question
from shardwright.planner.trial import judge_group
from shardwright.planner.types import Candidate, ModelChoice, NoPlan, Parallelism
from shardwright.topology.types import ExcludedNode, Exclusion, Pool

_SHOWN_NODES = 3
_OUTRIGHT = {
    CandidateReason.NUMBER_FORMAT_UNSUPPORTED: Reason.NUMBER_FORMAT_UNSUPPORTED,
    CandidateReason.DRIVER_TOO_OLD: Reason.NO_USABLE_GPUS,
    CandidateReason.CONTEXT_TOO_LONG: Reason.CONTEXT_TOO_LONG,
    CandidateReason.MEMORY_UNKNOWN: Reason.MEMORY_UNKNOWN,
    CandidateReason.ILLEGAL_TENSOR_PARALLELISM: Reason.ILLEGAL_PARALLELISM,
}
_MEMORY = {CandidateReason.WEIGHTS_DO_NOT_FIT, CandidateReason.KV_TOO_SMALL}


def bad_request(question: Question, models: Sequence[ModelChoice], digest: str) -> NoPlan | None:
    """Refuse what no pool can serve: a context beyond the model's, a pinned degree that is not legal."""
    asked = question.resolved.max_context_tokens
    longest = max(m.architecture.max_position_embeddings for m in models)
    if asked is not None and asked > longest:
        return NoPlan(
            reason=Reason.CONTEXT_TOO_LONG,
            message=(
                f"model.maxContextTokens is {asked}, but {models[0].model_id} takes at most {longest} "
                "tokens: write "
                f"{longest} or less"
            ),
            candidates=(),
            inputs_digest=digest,
        )
    return _illegal_pin(question, models, digest)


def _illegal_pin(question: Question, models: Sequence[ModelChoice], digest: str) -> NoPlan | None:
    pins = question.spec.parallelism
    if pins is None or (pins.tensor is None and pins.pipeline is None):
        return None
    tensor, expert = pins.tensor or 1, question.resolved.expert
    options = {
        "Enabled": (True,), "Disabled": (False,),
    }.get(expert, (False, True))  # fmt: skip
    problems = []
    for model in models:
        moe = model.architecture.moe is not None and tensor > 1
        shapes = [
            Parallelism(tensor=tensor, pipeline=pins.pipeline or 1, expert=e) for e in options if moe or not e
        ] or [Parallelism(tensor=tensor, pipeline=pins.pipeline or 1)]
        found = [illegality(model.architecture, shape) for shape in shapes]
        if not all(found):
            return None
        problems.append(found[0])
    first = models[0]
    legal = sorted(tensor_degrees(first.architecture, LARGEST_TENSOR))
    return NoPlan(
        reason=Reason.ILLEGAL_PARALLELISM,
        message=(
            f"parallelism.tensor {tensor}, pipeline {pins.pipeline or 1} is not legal for {first.model_id}: "
            f"{problems[0]}. Legal tensor degrees are {', '.join(map(str, legal))}; leave the pin out to "
            "let the "
            "planner choose"
        ),
        candidates=(),
        inputs_digest=digest,
    )


def empty_pool(
    question: Question, pool: Pool, products: Mapping[str, GPUProduct], digest: str
) -> NoPlan | None:
    """Refuse a pool without a usable node, naming what excludes its nodes."""
    unknown = [p for p in question.spec.pool.gpu_products or () if p not in products]
    if unknown and not pool.nodes:
        message = (
            f"pool.gpuProducts names {', '.join(unknown)}, which the catalogue of GPU products does not "
            "have: write the "
            "value of the node label nvidia.com/gpu.product, and add a row to "
            "catalog/data/gpu_products.json if it is new"
        )
        return NoPlan(reason=Reason.UNKNOWN_GPU_PRODUCT, message=message, candidates=(), inputs_digest=digest)
    if pool.nodes:
        return None
    unknown_nodes = [e for e in pool.excluded if e.reason is Exclusion.UNKNOWN_PRODUCT]
    only_unknown = bool(unknown_nodes) and len(unknown_nodes) == len(pool.excluded)
    return NoPlan(
        reason=Reason.UNKNOWN_GPU_PRODUCT if only_unknown else Reason.NO_USABLE_GPUS,
        message=excluded_sentence(pool.excluded),
        candidates=(),
        inputs_digest=digest,
    )


def excluded_sentence(excluded: Sequence[ExcludedNode]) -> str:
    """Say why no node of the pool can be used: how many for which reason, and the first few by name."""
    if not excluded:
        return (
            "no node reports a GPU: install the GPU operator or the device plugin with GPU feature "
            "discovery, and see "
            "pool.nodeSelector"
        )
    counts = Counter(e.reason.value for e in excluded)
    summary = ", ".join(
        f"{count} {reason}" for reason, count in sorted(counts.items(), key=lambda c: (-c[1], c[0]))
    )
    shown = "; ".join(e.message for e in excluded[:_SHOWN_NODES])
    more = f"; and {len(excluded) - _SHOWN_NODES} more" if len(excluded) > _SHOWN_NODES else ""
    return f"none of {len(excluded)} GPU nodes can be used ({summary}): {shown}{more}"


def nothing_fits(
    question: Question, surveys: Sequence[Survey], candidates: Sequence[Candidate], digest: str
) -> NoPlan:
    """Name the binding constraint: what is nearest to being lifted comes first."""
    reason, message = _binding(question, surveys, candidates)
    return NoPlan(reason=reason, message=message, candidates=tuple(candidates), inputs_digest=digest)


def _would_fit(question: Question, surveys: Sequence[Survey]) -> str:
    """Name the smallest larger node of a product in the pool that would hold it in one island."""
    found: list[tuple[int, int, str]] = []
    for tried in surveys:
        have, pins = tried.offer.node_gpus, question.spec.parallelism
        if have == 0 or (pins is not None and (pins.tensor or pins.pipeline)):
            continue
        for degree in sorted(tensor_degrees(tried.model.architecture, LARGEST_TENSOR)):
            if question.policy == "RequireNVLink" and degree > tried.offer.product.island_gpus:
                break
            if degree > have and judge_group(question, tried.model, tried.offer, Parallelism(tensor=degree)):
                where = f"a node of {degree} {tried.offer.product.short_name}"
                found.append((degree, degree - have, f"{tried.model.model_id} would fit on {where}"))
                break
    if not found:
        return ""
    _, short, sentence = min(found)
    return f" {sentence}: {short} GPU{'s' if short > 1 else ''} more than the largest has."


def _binding(
    question: Question, surveys: Sequence[Survey], candidates: Sequence[Candidate]
) -> tuple[Reason, str]:
    by_reason: dict[CandidateReason, list[Candidate]] = {}
    for candidate in candidates:
        by_reason.setdefault(candidate.reason, []).append(candidate)
    if over := by_reason.get(CandidateReason.OVER_BUDGET):
        least = min(over, key=lambda c: (c.parallelism.pipeline, c.gpus_short, c.arrangement))
        short = f"{least.gpus_short} GPU{'s' if least.gpus_short > 1 else ''} short"
        return Reason.GPU_BUDGET_TOO_SMALL, (
            f"{short}: {least.arrangement} fits, but pool.maxGPUs is {question.max_gpus}; write "
            f"{question.max_gpus + least.gpus_short}"
        )
    if small := by_reason.get(CandidateReason.NODE_TOO_SMALL):
        return Reason.NODE_RESOURCES_TOO_SMALL, f"{small[0].arrangement}: {small[0].message}"
    if unlinked := by_reason.get(CandidateReason.BEYOND_ISLAND):
        least = min(unlinked, key=lambda c: (c.parallelism.gpus, c.arrangement))
        return Reason.DOES_NOT_FIT, (
            f"{least.arrangement}: {least.message}; write PreferNVLink or Any to let its ranks talk over PCIe"
        )
    groups = [s.group for s in surveys if s.group is not None]
    if groups:
        smallest = min(groups, key=lambda c: (c.parallelism.gpus, c.arrangement))
        return Reason.NEEDS_MULTI_NODE, f"{smallest.model_id}: {smallest.message}"
    memory = [c for c in candidates if c.reason in _MEMORY]
    if memory:
        closest = min(memory, key=lambda c: (c.gib_short, c.parallelism.gpus, c.arrangement))
        return Reason.DOES_NOT_FIT, (
            f"closest is {closest.arrangement}: {closest.message}."
            f"{_would_fit(question, surveys)} A shorter model.maxContextTokens, "
            "a quantised checkpoint in model.variants, or larger GPUs would help"
        )
    for candidate_reason, reason in _OUTRIGHT.items():
        if found := by_reason.get(candidate_reason):
            return reason, f"{found[0].arrangement}: {found[0].message}"
    first = candidates[0] if candidates else None
    return Reason.DOES_NOT_FIT, first.message if first else "no arrangement is possible on these nodes"

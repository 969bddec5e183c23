"""What is said when nothing in the pool serves the model.

Decides the one binding constraint and what would lift it. Never a plan.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardwright.api.pool import ParallelismSpec
from shardwright.api.reasons import CandidateReason, Reason
from shardwright.catalog.types import GPUProduct
from shardwright.planner.candidates import Survey
from shardwright.planner.demand import service_concurrency
from shardwright.planner.legality import LARGEST_TENSOR, illegality, quantization_mismatch, tensor_degrees
from shardwright.planner.question import MISSED, Fit, Question, count
from shardwright.planner.remedies import other_ways, unlinked
from shardwright.planner.shortfall import (
    again,
    beyond_any_budget,
    boldness,
    bounds,
    larger_budget,
    narrow_cache,
    too_slow,
)
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
_OUTRIGHT_FIX = {
    CandidateReason.NUMBER_FORMAT_UNSUPPORTED: (
        ". A checkpoint in another format, as model.id or in model.variants, or other GPUs would help"
    ),
    CandidateReason.MEMORY_UNKNOWN: (
        ". Another checkpoint, as model.id or in model.variants, another engine.version or other GPUs may be "
        "covered"
    ),
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
    mismatch = quantization_mismatch(question.spec, models[0].architecture)
    if mismatch is not None:
        return NoPlan(reason=mismatch.reason, message=mismatch.message, candidates=(), inputs_digest=digest)
    return _idle_experts(question, models, digest) or _illegal_pin(question, models, digest)


def _idle_experts(question: Question, models: Sequence[ModelChoice], digest: str) -> NoPlan | None:
    """Refuse parallelism.expert Enabled where there is nothing to spread, or nothing to spread it over."""
    if question.resolved.expert != "Enabled":
        return None
    pins = question.spec.parallelism
    if all(m.architecture.moe is None for m in models):
        message = (
            f"parallelism.expert is Enabled, but {models[0].model_id} is not a mixture-of-experts model: "
            "leave expert out"
        )
    elif pins is not None and pins.tensor == 1 and _data_of(pins) == 1:
        message = (
            "parallelism.expert is Enabled, but parallelism.tensor and data leave one rank to spread experts "
            "over: write tensor or data 2 or more, or leave one of them out"
        )
    else:
        return None
    return NoPlan(reason=Reason.ILLEGAL_PARALLELISM, message=message, candidates=(), inputs_digest=digest)


def _data_of(pins: ParallelismSpec) -> int | None:
    """Return the ranks with own attention as pinned, 1 beside pinned stages; None: the planner may choose."""
    return pins.data or (1 if (pins.pipeline or 1) > 1 else None)


def _illegal_pin(question: Question, models: Sequence[ModelChoice], digest: str) -> NoPlan | None:
    pins = question.spec.parallelism
    if pins is None or (pins.tensor is None and pins.pipeline is None and pins.data is None):
        return None
    tensor, data, expert = pins.tensor or 1, pins.data or 1, question.resolved.expert
    options = {
        "Enabled": (True,), "Disabled": (False,),
    }.get(expert, (False, True))  # fmt: skip
    problems = []
    for model in models:
        moe = model.architecture.moe is not None and tensor * data > 1
        plain = Parallelism(tensor=tensor, pipeline=pins.pipeline or 1, data=data)
        shapes = [replace(plain, expert=e) for e in options if moe or not e] or [plain]
        found = [illegality(model.architecture, shape) for shape in shapes]
        if not all(found):
            return None
        problems.append(found[0])
    first = models[0]
    legal = sorted(tensor_degrees(first.architecture, LARGEST_TENSOR))
    return NoPlan(
        reason=Reason.ILLEGAL_PARALLELISM,
        message=(
            f"parallelism.tensor {tensor}, pipeline {pins.pipeline or 1}, data {data} is not legal for "
            f"{first.model_id}: {problems[0]}. Legal tensor degrees are "
            f"{', '.join(map(str, legal))}; leave the pin out to let the planner choose"
        ),
        candidates=(),
        inputs_digest=digest,
    )


_ELASTIC = (
    "; pool.provisioning Elastic is not implemented yet, so pool.shapes bring no nodes: add one by hand"
)


def empty_pool(
    question: Question, pool: Pool, products: Mapping[str, GPUProduct], digest: str
) -> NoPlan | None:
    """Refuse a pool without a usable node, naming what excludes its nodes."""
    unknown = [p for p in question.spec.pool.gpu_products or () if p not in products]
    if unknown and not pool.nodes:
        message = (
            f"pool.gpuProducts names {', '.join(unknown)}, which the catalogue of GPU products does not "
            "have: write the value of the node label nvidia.com/gpu.product, and add a row to "
            "catalog/data/gpu_products.json if it is new"
        )
        if all("-MIG-" in label for label in unknown):
            message = (
                f"pool.gpuProducts names {', '.join(unknown)}: parts of a GPU (MIG) are not planned with; "
                "write products whose GPUs are whole"
            )
        return NoPlan(reason=Reason.UNKNOWN_GPU_PRODUCT, message=message, candidates=(), inputs_digest=digest)
    if pool.nodes:
        return None
    unknown_nodes = [e for e in pool.excluded if e.reason is Exclusion.UNKNOWN_PRODUCT]
    # Nodes that the selector leaves out are none of this pool.
    asked = [e for e in pool.excluded if e.reason is not Exclusion.SELECTOR]
    only_unknown = bool(unknown_nodes) and len(unknown_nodes) == len(asked)
    return NoPlan(
        reason=Reason.UNKNOWN_GPU_PRODUCT if only_unknown else Reason.NO_USABLE_GPUS,
        message=excluded_sentence(pool.excluded)
        + (_ELASTIC if question.resolved.provisioning == "Elastic" else ""),
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
    # What the spec itself leaves out is the least of the news.
    told = sorted(excluded, key=lambda e: e.reason in {Exclusion.PRODUCT_NOT_WANTED, Exclusion.SELECTOR})
    shown = "; ".join(e.message for e in told[:_SHOWN_NODES])
    more = f"; and {len(excluded) - _SHOWN_NODES} more" if len(excluded) > _SHOWN_NODES else ""
    return f"none of {len(excluded)} GPU nodes can be used ({summary}): {shown}{more}"


def nothing_fits(
    question: Question, surveys: Sequence[Survey], candidates: Sequence[Candidate], digest: str
) -> NoPlan:
    """Name the binding constraint: what is nearest to being lifted comes first."""
    reason, message = _binding(question, surveys, candidates)
    message += other_ways(question, surveys)
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
            memory_mib = tried.offer.memory_classes[-1]
            split = Parallelism(tensor=degree)
            if degree > have and judge_group(question, tried.model, tried.offer, split, memory_mib):
                where = f"a node of {degree} {tried.offer.product.short_name}"
                found.append((degree, degree - have, f"{tried.model.model_id} would fit on {where}"))
                break
    if not found:
        return ""
    _, short, sentence = min(found)
    return f" {sentence}: {count(short, 'GPU')} more than the largest has."


def _binding(
    question: Question, surveys: Sequence[Survey], candidates: Sequence[Candidate]
) -> tuple[Reason, str]:
    by_reason: dict[CandidateReason, list[Candidate]] = {}
    for candidate in candidates:
        by_reason.setdefault(candidate.reason, []).append(candidate)
    spread = [c for c in by_reason.get(CandidateReason.KV_TOO_SMALL, []) if c.replicas_needed]
    over = by_reason.get(CandidateReason.OVER_BUDGET, [])
    if missed := [c for c in candidates if c.reason in MISSED]:
        return too_slow(question, surveys, missed, [*over, *spread])
    if over:
        return _over_budget(question, surveys, over, spread)
    if small := by_reason.get(CandidateReason.NODE_TOO_SMALL):
        return Reason.NODE_RESOURCES_TOO_SMALL, f"{small[0].arrangement}: {small[0].message}"
    if beyond := by_reason.get(CandidateReason.BEYOND_ISLAND):
        return Reason.DOES_NOT_FIT, _without_links(question, surveys, beyond)
    if spread:
        return _more_replicas(question, surveys, spread)
    memory = [c for c in candidates if c.reason in _MEMORY]
    closest = min(memory, key=lambda c: (c.gib_short, c.parallelism.gpus, c.arrangement), default=None)
    narrow = _narrow(question, surveys, by_reason.get(CandidateReason.KV_TOO_SMALL, []))
    groups = [s.group for s in surveys if s.group is not None]
    if groups:
        smallest = min(groups, key=lambda c: (c.parallelism.gpus, c.arrangement))
        nearest = f". Closest in one node is {closest.arrangement}: {closest.message}" if closest else ""
        return (
            Reason.NEEDS_MULTI_NODE,
            f"{smallest.model_id}: {smallest.message}{nearest}{narrow and '.' + narrow}",
        )
    if closest is not None:
        return Reason.DOES_NOT_FIT, (
            f"closest is {closest.arrangement}: {closest.message}.{_would_fit(question, surveys)}"
            f"{narrow} {_remedies(question, closest)} would help"
        )
    return _not_tried(question, candidates, by_reason)


def _all_of(found: Sequence[Candidate]) -> str:
    """Write out the first few of one reason, what is the same once: each product may lack something else."""
    same: dict[str, list[str]] = {}
    for candidate in found:
        same.setdefault(candidate.message, []).append(candidate.arrangement)
    return "; ".join(f"{_some(names)}: {said}" for said, names in list(same.items())[:_SHOWN_NODES]) + (
        f"; and {len(same) - _SHOWN_NODES} more" if len(same) > _SHOWN_NODES else ""
    )


def _some(names: Sequence[str]) -> str:
    if len(names) <= _SHOWN_NODES:
        return ", ".join(names)
    return f"{', '.join(names[:_SHOWN_NODES])} and {len(names) - _SHOWN_NODES} more"


def _not_tried(
    question: Question, candidates: Sequence[Candidate], by_reason: Mapping[CandidateReason, list[Candidate]]
) -> tuple[Reason, str]:
    """Name the constraint when no arrangement came as far as having its memory counted."""
    for candidate_reason, reason in _OUTRIGHT.items():
        if found := by_reason.get(candidate_reason):
            return reason, _all_of(found) + _OUTRIGHT_FIX.get(candidate_reason, "")
    if beyond := by_reason.get(CandidateReason.BEYOND_NODE):
        least = min(beyond, key=lambda c: (c.gpus_short, c.arrangement))
        pins = question.spec.parallelism
        pinned = pins is not None and (pins.tensor or pins.pipeline)
        fix = "lower the degrees that spec.parallelism pins, leave them out, or add a larger node"
        return Reason.DOES_NOT_FIT, f"{least.arrangement}: {least.message}" + (f": {fix}" if pinned else "")
    first = candidates[0] if candidates else None
    if first is None:
        return Reason.DOES_NOT_FIT, (
            "no arrangement that spec.parallelism allows is possible on these nodes: remove a pin, see "
            "parallelism.tensor, pipeline and expert"
        )
    return Reason.DOES_NOT_FIT, f"{first.arrangement}: {first.message}; no node allows what it leaves"


def _fewer_replicas(question: Question) -> str:
    """Say how fewer replicas are asked for."""
    if question.resolved.scale.mode == "External":
        return "lower spec.replicas"
    minimum = question.spec.scaling.min_replicas if question.spec.scaling else None
    survive = minimum is None and question.resolved.survive_node_loss
    return "give up availability.surviveNodeLoss" if survive else "lower scaling.minReplicas"


def _without_links(question: Question, surveys: Sequence[Survey], beyond: Sequence[Candidate]) -> str:
    """Say what ranks over PCIe would do, where links are required and missing."""
    outcomes = list(again(unlinked(question), surveys, beyond))
    fits = [candidate for candidate, outcome in outcomes if isinstance(outcome, Fit)]
    least = min(fits or beyond, key=lambda c: (c.parallelism.gpus, c.arrangement))
    told = f"{least.arrangement}: {least.message}"
    if fits:
        return f"{told}; write PreferNVLink or Any to let its ranks talk over PCIe"
    why = next((o.message for c, o in outcomes if c is least and isinstance(o, Candidate)), "it does not fit")
    return f"{told}; over PCIe it would not do either: {why}"


def _over_budget(
    question: Question, surveys: Sequence[Survey], over: Sequence[Candidate], spread: Sequence[Candidate]
) -> tuple[Reason, str]:
    """Say which budget is enough, for what is stated too; what fits is not yet fast enough.

    `spread`: arrangements that hold the load in more replicas.
    """
    least = min(over, key=lambda c: (*boldness(c.parallelism), c.gpus_short, c.arrangement))
    gpus = question.max_gpus + least.gpus_short
    writes = f"pool.maxGPUs {gpus}"
    if question.asked:
        found = larger_budget(question, surveys, [*over, *spread])
        if found is None and (missed := beyond_any_budget(question, surveys, over)):
            return missed
        if found is not None:
            fit, replicas = found
            gpus, where = fit.gpus * replicas, f"{fit.name} on {fit.offer.product.short_name}"
            writes = f"{bounds(question, gpus, replicas)} ({count(replicas, 'replica')} of {where})"
    fewer = f", or {_fewer_replicas(question)}" if question.replicas > 1 else ""
    return Reason.GPU_BUDGET_TOO_SMALL, (
        f"{count(gpus - question.max_gpus, 'GPU')} short: {least.arrangement}: {least.message}; write "
        f"{writes}{fewer}"
    )


def _more_replicas(
    question: Question, surveys: Sequence[Survey], spread: Sequence[Candidate]
) -> tuple[Reason, str]:
    """Say how many replicas would hold the stated load: an engine need not hold what replicas can share."""
    least = min(
        spread, key=lambda c: (c.parallelism.pipeline, c.replicas_needed * c.parallelism.gpus, c.arrangement)
    )
    name, each, replicas = least.arrangement, least.parallelism.gpus, least.replicas_needed
    found = larger_budget(question, surveys, spread)
    if found is None and (missed := beyond_any_budget(question, surveys, spread)):
        return missed
    if found is not None:
        fit, replicas = found
        name, each = f"{fit.model.model_id} on {fit.offer.product.label} {fit.name}", fit.gpus
    total, source = service_concurrency(question.resolved)
    gpus = each * replicas
    short = max(0, gpus - question.max_gpus)
    return Reason.GPU_BUDGET_TOO_SMALL if short else Reason.DOES_NOT_FIT, (
        f"{count(short, 'GPU') + ' short: ' if short else ''}the load ({source}) is {total} requests in "
        f"flight, and {name} needs {count(replicas, 'replica')} to hold them within what is stated, "
        f"{count(gpus, 'GPU')}: write {bounds(question, gpus, replicas)}, or state less in spec.workload"
    )


def _narrow(question: Question, surveys: Sequence[Survey], starved: Sequence[Candidate]) -> str:
    """Say what an FP8 KV cache would make fit, if anything."""
    fit = narrow_cache(question, surveys, starved)
    if fit is None:
        return ""
    where = f"{fit.model.model_id} {fit.parallelism} on {fit.offer.product.short_name}"
    return f" With FP8 in model.allowedKVCacheDtypes {where} fits."


def _remedies(question: Question, closest: Candidate) -> str:
    """Name what would make the closest arrangement fit."""
    found = []
    if closest.reason is CandidateReason.KV_TOO_SMALL:
        asked = question.resolved.max_context_tokens is not None
        found.append("a shorter model.maxContextTokens" if asked else "shorter requests in spec.workload")
    found += ["a quantised checkpoint in model.variants", "larger GPUs"]
    text = f"{', '.join(found[:-1])} or {found[-1]}"
    return text[0].upper() + text[1:]

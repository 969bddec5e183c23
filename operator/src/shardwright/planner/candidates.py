"""Which arrangements are considered, in the order of the questions: one GPU, island, node, several nodes.

Decides what is tried for one checkpoint on one GPU product, and which of what fits is the best there. Never
compares products: that is `choice`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from shardwright.api.reasons import CandidateReason
from shardwright.planner.filling import fill
from shardwright.planner.legality import (
    format_problem,
    illegality,
    image_problem,
    is_power_of_two,
    kv_fp8_problem,
    load_format_problem,
    tensor_degrees,
)
from shardwright.planner.limits import kv_dtypes
from shardwright.planner.load import load_of
from shardwright.planner.offers import NodeKind, Offer
from shardwright.planner.question import STAGES, UNVALIDATED_GAIN, Fit, Question, failure
from shardwright.planner.ranking import EXACT, compared, cost_of, held_share, misses_defaults
from shardwright.planner.trial import dtypes, judge, judge_group
from shardwright.planner.types import Candidate, LoadKind, ModelChoice, Parallelism

MOST_GROUP_NODES = 8
"""The largest group of nodes that is named when one node is not enough."""
NOT_FOR_CAPACITY = "it fits, but stages are for what no NVLink island holds, and one holds the work"
"""Said of stages in the whole search, so that a test can judge whether such an island is there."""
_NOT_OF_KV = frozenset(
    {CandidateReason.OVER_BUDGET, CandidateReason.NODE_TOO_SMALL, CandidateReason.MEMORY_UNKNOWN}
)
"""Reasons that a smaller KV cache does not lift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Everything tried for one checkpoint on one product."""

    model: ModelChoice
    offer: Offer
    fits: tuple[Fit, ...]
    losers: tuple[Candidate, ...]
    group: Candidate | None = None
    """The smallest group of nodes that would hold it, when no single node does."""


def survey(question: Question, model: ModelChoice, offer: Offer) -> Survey:
    """Try the arrangements of one checkpoint on one product.

    One GPU and tensor parallelism first. Ranks with own attention and stages follow where these hold nothing,
    or where price decides and they may win: both are unmeasured, so that they have to be 1.3 times cheaper.
    Stages are for capacity: they are tried where no island holds the work with requests in flight to spare,
    and only between islands where it holds a single one. That is a rule, not a bound of the search: where an
    island holds the work they are not meant, though they may be cheaper.
    """
    refusal = _refused_outright(question, model, offer)
    if refusal is not None:
        return Survey(model=model, offer=offer, fits=(), losers=(refusal,))
    outcomes = list(_inside_one_stage(question, model, offer))
    pinned = bool(question.spec.parallelism and question.spec.parallelism.data)
    if question.asked or pinned:
        outcomes.extend(_with_data(question, model, offer, _bound(question, outcomes)))
    outcomes.extend(_over_stages(question, model, offer, outcomes))
    if not question.asked and not pinned and not any(isinstance(o, Fit) for o in outcomes):
        outcomes.extend(_with_data(question, model, offer, inf))
    fits = tuple(o for o in outcomes if isinstance(o, Fit))
    losers = tuple(o for o in outcomes if isinstance(o, Candidate))
    group = None if fits else _over_nodes(question, model, offer)
    if group is not None:
        losers = tuple(loser for loser in losers if loser.parallelism != group.parallelism)
    return Survey(model=model, offer=offer, fits=fits, losers=losers, group=group)


def _bound(question: Question, outcomes: Sequence[Candidate | Fit], *, stages: bool = False) -> float:
    """Return the GPUs beyond which a further arrangement cannot win; infinite while nothing bounds it."""
    whole = [o for o in outcomes if isinstance(o, Fit) and o.step < STAGES and not o.clamped]
    if not whole:
        return inf
    if not question.asked or not any(fit.predicted for fit in whole) or (stages and question.fastest):
        return 0.0
    if question.exhaustive or question.fastest:
        return inf
    cost = cost_of(question)
    same = compared(whole, cost)
    if held_share(same[0]) < 1 or not same[0].survives:
        return inf
    least = min(fit.judged_gpus for fit in same)
    return least / UNVALIDATED_GAIN if stages else least


def _in_formats(
    question: Question, model: ModelChoice, offer: Offer, parallelism: Parallelism
) -> Iterator[Candidate | Fit]:
    """Try one arrangement with each KV dtype, as long as the next may do better."""
    for dtype in dtypes(question, offer):
        outcome = judge(question, model, offer, parallelism, dtype)
        yield outcome
        if not _next_may_help(question, outcome):
            return


def _next_may_help(question: Question, outcome: Candidate | Fit) -> bool:
    """Whether a smaller KV cache may hold what this one does not, or with fewer replicas."""
    if isinstance(outcome, Candidate):
        return outcome.estimate is not None and outcome.reason not in _NOT_OF_KV
    if outcome.clamped or not question.asked:
        return outcome.clamped
    if question.exhaustive or question.fastest:
        return True
    undecided = bool(outcome.unmeasured) and misses_defaults(outcome)  # it counts 1.3 times as well
    return undecided or not outcome.survives or outcome.replicas > question.replicas


def _refused_outright(question: Question, model: ModelChoice, offer: Offer) -> Candidate | None:
    """Refuse a product on which no arrangement of this checkpoint can run."""
    one, architecture, gpu = Parallelism(), model.architecture, offer.product
    own_image = bool(question.spec.engine and question.spec.engine.image)
    problem = (
        format_problem(architecture, gpu)
        or load_format_problem(question.spec, architecture, gpu)
        or ("" if own_image else image_problem(question.engine, gpu))
    )
    if problem:
        return failure(model, offer, one, CandidateReason.NUMBER_FORMAT_UNSUPPORTED, problem)
    if kv_dtypes(question.resolved) == ("fp8",) and (missing := kv_fp8_problem(gpu)):
        return failure(
            model, offer, one, CandidateReason.NUMBER_FORMAT_UNSUPPORTED,
            f"model.allowedKVCacheDtypes allows FP8 only, and on {gpu.short_name} {missing}: add Auto",
        )  # fmt: skip
    asked = question.resolved.max_context_tokens or 0
    if asked > architecture.max_position_embeddings:
        return failure(
            model, offer, one, CandidateReason.CONTEXT_TOO_LONG,
            f"it takes at most {architecture.max_position_embeddings} tokens and {asked} are asked for",
        )  # fmt: skip
    if not offer.nodes:
        oldest = min(n.driver_major or 0 for n in offer.old_driver)
        return failure(
            model, offer, one, CandidateReason.DRIVER_TOO_OLD,
            f"its nodes run driver {oldest} and this engine version's image needs {offer.min_driver}: "
            "update the "
            "driver, or write an engine.version or engine.image built for an older CUDA",
        )  # fmt: skip
    return None


def _inside_one_stage(question: Question, model: ModelChoice, offer: Offer) -> Iterator[Candidate | Fit]:
    """Tensor parallelism alone: every power of two in a node, and the other degrees that are legal."""
    pins = question.spec.parallelism
    if pins is not None and (pins.pipeline or 1) > 1:
        return
    if pins is not None and (pins.data or 1) > 1:
        return
    pinned = pins.tensor if pins else None
    largest = offer.node_gpus
    degrees = {1 << n for n in range(largest.bit_length()) if 1 << n <= largest}
    degrees |= set(tensor_degrees(model.architecture, largest))
    degrees |= {pinned} if pinned else set()
    for degree in sorted(degrees):
        if pinned is not None and degree != pinned:
            yield failure(
                model, offer, Parallelism(tensor=degree), CandidateReason.NOT_PINNED,
                f"parallelism.tensor is {pinned}",
            )  # fmt: skip
            continue
        yield from _with_and_without_experts(question, model, offer, degree)


def _with_and_without_experts(
    question: Question, model: ModelChoice, offer: Offer, degree: int
) -> Iterator[Candidate | Fit]:
    plain, choice = Parallelism(tensor=degree), question.resolved.expert
    experts = model.architecture.moe is not None and degree > 1 and choice != "Disabled"
    if experts and choice == "Enabled":
        yield failure(model, offer, plain, CandidateReason.NOT_PINNED, "parallelism.expert is Enabled")
    elif choice == "Enabled" and model.architecture.moe is not None:
        message = "parallelism.expert is Enabled, and one rank has nothing to spread experts over"
        yield failure(model, offer, plain, CandidateReason.NOT_PINNED, message)
    else:
        yield from _in_formats(question, model, offer, plain)
    if experts:
        yield from _in_formats(question, model, offer, Parallelism(tensor=degree, expert=True))


def _with_data(
    question: Question, model: ModelChoice, offer: Offer, bound: float
) -> Iterator[Candidate | Fit]:
    """Attention data parallelism: ranks with a KV cache of their own, the experts spread over all of them."""
    pins, largest = question.spec.parallelism, offer.node_gpus
    pinned_tensor, pinned_data = (pins.tensor, pins.data) if pins else (None, None)
    if model.architecture.moe is None or pinned_data == 1 or (pins and (pins.pipeline or 1) > 1):
        return
    for data in (pinned_data,) if pinned_data else _powers_of_two(2, largest):
        for tensor in (pinned_tensor,) if pinned_tensor else _powers_of_two(1, max(1, largest // data)):
            split = Parallelism(tensor=tensor, data=data, expert=question.resolved.expert != "Disabled")
            if pinned_data is None:
                legal = split.gpus <= largest and not illegality(model.architecture, split)
                if not legal or split.gpus * question.replicas > bound:
                    continue
            yield from _in_formats(question, model, offer, split)


def _powers_of_two(least: int, most: int) -> list[int]:
    return [1 << n for n in range(most.bit_length()) if least <= 1 << n <= most]


def _spreads_experts(question: Question, model: ModelChoice) -> bool:
    return question.resolved.expert == "Enabled" and model.architecture.moe is not None


def _stages_are_for(question: Question, model: ModelChoice, offer: Offer) -> set[tuple[int, int]]:
    """Return the pairs (tensor, pipeline) of stages that some node there needs for capacity.

    Those between islands that do not hold the work with requests in flight to spare; the widest alone where
    one holds a single request. Whatever the load, the budget and other nodes: a rule that asked them would
    have less load, a smaller budget or fewer nodes lead to another plan, and to a cheaper one.
    """
    pins, found = question.spec.parallelism, set[tuple[int, int]]()
    spread, data = _spreads_experts(question, model), (pins.data if pins else None) or 1
    pinned_tensor, pinned_pipeline = (pins.tensor, pins.pipeline) if pins else (None, None)
    for kind in {(k.gpus, k.island, k.memory_mib): k for k in offer.kinds}.values():
        tensors = (pinned_tensor,) if pinned_tensor else tensor_degrees(
            model.architecture, max(1, kind.island), expert=spread
        )  # fmt: skip
        tensors = tuple(tp for tp in tensors if tp * data > 1 or not spread)
        asked_for = pinned_pipeline is not None and pinned_pipeline > 1
        if not tensors or (not asked_for and _holds(question, model, offer, kind, tensors)):
            continue
        if not asked_for and _holds(question, model, offer, kind, tensors, in_flight=1):
            tensors = (max(tensors),)
        found |= _stage_pairs(tensors, pinned_pipeline, kind.gpus // data)
    return found


def _stage_pairs(tensors: Iterable[int], pipeline: int | None, gpus: int) -> set[tuple[int, int]]:
    """Return the pairs (tensor, pipeline) of so many GPUs at most; with a pinned number of stages, those."""
    return {(tp, pp) for tp in tensors for pp in ((pipeline,) if pipeline else range(2, gpus // tp + 1))}


def _holds(
    question: Question,
    model: ModelChoice,
    offer: Offer,
    kind: NodeKind,
    tensors: Sequence[int],
    *,
    in_flight: int | None = None,
) -> bool:
    """Whether an island of such a node has memory for so many requests; None: as many as by default.

    Ranks over PCIe are no island under any policy: what `Any` permits more takes nothing away.
    """
    resolved, pins = question.resolved, question.spec.parallelism
    traffic = replace(resolved.traffic, concurrency=in_flight, requests_per_minute=None)
    alone = replace(question, resolved=replace(resolved, traffic=traffic))
    spread, data = _spreads_experts(question, model), (pins.data if pins else None) or 1
    for tensor in tensors:
        split = Parallelism(tensor=tensor, data=data, expert=spread)
        if (
            split.ranks > max(1, kind.island)
            or split.gpus > kind.gpus
            or illegality(model.architecture, split)
        ):
            continue
        for dtype in dtypes(question, offer):
            outcome = fill(alone, model, offer, split, memory_mib=kind.memory_mib, within=True, dtype=dtype)
            if isinstance(outcome, Fit) and not outcome.clamped:
                return True
    return False


def _over_stages(
    question: Question, model: ModelChoice, offer: Offer, before: Sequence[Candidate | Fit]
) -> Iterator[Candidate | Fit]:
    """Pipeline stages over the islands of one node, the fewest GPUs first, until something fits.

    Under a stated load all of them: more stages hold more KV cache, and may take it with fewer GPUs in all.
    """
    pins, island, whole = question.spec.parallelism, max(1, offer.island_gpus), question.exhaustive
    pinned_tensor, pinned_pipeline = (pins.tensor, pins.pipeline) if pins else (None, None)
    if pinned_pipeline == 1:
        return
    meant = _stages_are_for(question, model, offer)
    if not meant and not whole:
        return
    bound = _bound(question, before, stages=True)
    spread, data = _spreads_experts(question, model), (pins.data if pins else None) or 1
    tensors = (
        [pinned_tensor] if pinned_tensor else list(tensor_degrees(model.architecture, island, expert=spread))
    )
    tensors = [tp for tp in tensors if tp * data > 1 or not spread]
    every = _stage_pairs(tensors, pinned_pipeline, offer.node_gpus // data)
    pairs = [(tp * pp * data, -tp, tp, pp) for tp, pp in (every | meant if whole else meant)]
    inside = [pair for pair in pairs if pair[0] <= offer.node_gpus] or sorted(pairs)[:1]
    found, loaded = 0, load_of(question.resolved).kind is not LoadKind.NONE
    for gpus, _, tp, pp in sorted(inside):
        # What costs as much may still be what a tie goes to.
        if (found and gpus > found and not loaded) or gpus * question.replicas > bound * EXACT:
            return
        split = Parallelism(tensor=tp, pipeline=pp, data=data, expert=spread)
        for outcome in _in_formats(question, model, offer, split):
            if (tp, pp) not in meant:
                yield from _set_aside(outcome)
                continue
            yield outcome
            if isinstance(outcome, Fit) and not outcome.clamped:
                found = found or gpus


def _set_aside(outcome: Candidate | Fit) -> Iterator[Candidate]:
    """Tell of stages that only the whole search tries that they are not for this, whatever they cost."""
    if isinstance(outcome, Fit):
        reason = CandidateReason.UNVALIDATED
        told = failure(
            outcome.model, outcome.offer, outcome.parallelism, reason, NOT_FOR_CAPACITY,
            outcome.limits.kv_cache_dtype,
        )  # fmt: skip
        yield replace(told, estimate=outcome.estimate, replicas=outcome.replicas, speed=outcome.speed)


def _over_nodes(question: Question, model: ModelChoice, offer: Offer) -> Candidate | None:
    """Name a group of whole nodes that would hold it: TP in an island, PP over the rest.

    The largest nodes first, and only such as are there, with their own memory and links.
    """
    kinds = {(-k.gpus, -k.island, -k.memory_mib): k for k in offer.kinds}
    for _, shape in sorted(kinds.items()):
        group = _of_such_nodes(question, model, offer, shape)
        if group is not None:
            return group
    return None


def _of_such_nodes(question: Question, model: ModelChoice, offer: Offer, shape: NodeKind) -> Candidate | None:
    """Name the smallest group of nodes of one shape; None where links are required and they have none."""
    pins, spread = question.spec.parallelism, _spreads_experts(question, model)
    legal = tensor_degrees(model.architecture, shape.island, expert=spread)
    widest = max((tp for tp in legal if is_power_of_two(tp) and shape.gpus % tp == 0), default=1)
    tensor = (pins.tensor if pins else None) or widest
    if question.policy == "RequireNVLink" and tensor > shape.island:
        return None
    stages, alone = shape.gpus // tensor, Parallelism(tensor=tensor, expert=spread)
    if stages < 1 or (spread and tensor == 1) or illegality(model.architecture, alone):
        return None
    for nodes in range(2, MOST_GROUP_NODES + 1):
        parallelism = replace(alone, pipeline=stages * nodes)
        pinned = pins is not None and pins.pipeline not in {None, parallelism.pipeline}
        if pinned or parallelism.gpus <= offer.node_gpus:
            continue
        if judge_group(question, model, offer, parallelism, shape.memory_mib):
            return _group(question, model, offer, parallelism, shape, nodes=nodes)
    return None


def _group(
    question: Question,
    model: ModelChoice,
    offer: Offer,
    split: Parallelism,
    shape: NodeKind,
    *,
    nodes: int,
) -> Candidate:
    island = min(split.tensor, shape.island)
    have = len(offer.holding(shape.gpus, shape.memory_mib, island))
    also = []
    if have < nodes:
        also.append(f"the pool has {have} such node{'' if have == 1 else 's'}")
    if split.gpus > question.max_gpus:
        also.append(f"pool.maxGPUs is {question.max_gpus}")
    tail = f"; {' and '.join(also)}" if also else ""
    each = offer.product.price_per_gpu_hour
    price = "no price is known" if each is None else f"{each * split.gpus:.2f} an hour"
    return failure(
        model, offer, split, CandidateReason.NEEDS_MULTI_NODE,
        f"it takes a group of {nodes} nodes with {shape.gpus} {offer.product.short_name} each "
        f"({split}, "
        f"{split.gpus} GPUs a replica, {price}), and groups that span nodes are not implemented yet{tail}",
    )  # fmt: skip

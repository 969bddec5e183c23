"""Which arrangements are considered, in the order of the questions: one GPU, island, node, several nodes.

Decides what is tried for one checkpoint on one GPU product, and which of what fits is the best there. Never
compares products: that is `choice`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardwright.api.reasons import CandidateReason
from shardwright.planner.latency import load_of
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
from shardwright.planner.offers import Offer, Shape
from shardwright.planner.question import Fit, Question, failure
from shardwright.planner.trial import judge, judge_group
from shardwright.planner.types import Candidate, LoadKind, ModelChoice, Parallelism

MOST_GROUP_NODES = 8
"""The largest group of nodes that is named when one node is not enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Everything tried for one checkpoint on one product."""

    model: ModelChoice
    offer: Offer
    fits: tuple[Fit, ...]
    losers: tuple[Candidate, ...]
    group: Candidate | None = None
    """The smallest group of nodes that would hold it, when no single node does."""


def preference(fit: Fit) -> tuple[object, ...]:
    """Order in which the fits on one product are told: full context, earlier question, fewest GPUs.

    Within an island a power of two ranks before other degrees, and plain tensor parallelism before expert
    parallelism. Beyond an island, pipeline stages rank before as many ranks over PCIe: they send far less
    between GPUs.
    """
    parallelism = fit.parallelism
    context = -fit.limits.max_model_len if fit.clamped else 0
    plain = (not parallelism.expert, is_power_of_two(parallelism.tensor)) if fit.step < 2 else (True, True)
    return (
        fit.clamped, context, fit.step, not plain[0], not plain[1], fit.gpus, parallelism.expert,
        not fit.within_island, -parallelism.tensor,
    )  # fmt: skip


def survey(question: Question, model: ModelChoice, offer: Offer) -> Survey:
    """Try the arrangements of one checkpoint on one product."""
    refusal = _refused_outright(question, model, offer)
    if refusal is not None:
        return Survey(model=model, offer=offer, fits=(), losers=(refusal,))
    outcomes = list(_inside_one_stage(question, model, offer))
    if not any(isinstance(o, Fit) and o.step < 2 and not o.clamped for o in outcomes):
        outcomes.extend(_over_stages(question, model, offer))
    fits = tuple(o for o in outcomes if isinstance(o, Fit))
    losers = tuple(o for o in outcomes if isinstance(o, Candidate))
    group = None if fits else _over_nodes(question, model, offer)
    if group is not None:
        losers = tuple(loser for loser in losers if loser.parallelism != group.parallelism)
    return Survey(model=model, offer=offer, fits=fits, losers=losers, group=group)


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
        yield judge(question, model, offer, plain)
    if experts:
        yield judge(question, model, offer, Parallelism(tensor=degree, expert=True))


def _spreads_experts(question: Question, model: ModelChoice) -> bool:
    return question.resolved.expert == "Enabled" and model.architecture.moe is not None


def _over_stages(question: Question, model: ModelChoice, offer: Offer) -> Iterator[Candidate | Fit]:
    """Pipeline stages over the islands of one node, the fewest GPUs first, until something fits.

    Under a stated load all of them: more stages hold more KV cache, and may take it with fewer GPUs in all.
    """
    pins, island = question.spec.parallelism, max(1, offer.island_gpus)
    pinned_tensor, pinned_pipeline = (pins.tensor, pins.pipeline) if pins else (None, None)
    if pinned_pipeline == 1:
        return
    spread = _spreads_experts(question, model)
    tensors = (
        [pinned_tensor] if pinned_tensor else list(tensor_degrees(model.architecture, island, expert=spread))
    )
    tensors = [tp for tp in tensors if tp > 1 or not spread]
    pairs = [
        (tp * pp, -tp, tp, pp)
        for tp in tensors
        for pp in ((pinned_pipeline,) if pinned_pipeline else range(2, offer.node_gpus // tp + 1))
    ]
    inside = [pair for pair in pairs if pair[0] <= offer.node_gpus] or sorted(pairs)[:1]
    found, loaded = 0, load_of(question.resolved).kind is not LoadKind.NONE
    for gpus, _, tp, pp in sorted(inside):
        if found and gpus > found and not loaded:
            return
        outcome = judge(question, model, offer, Parallelism(tensor=tp, pipeline=pp, expert=spread))
        yield outcome
        if isinstance(outcome, Fit) and not outcome.clamped:
            found = found or gpus


def _over_nodes(question: Question, model: ModelChoice, offer: Offer) -> Candidate | None:
    """Name a group of whole nodes that would hold it: TP in an island, PP over the rest.

    The largest nodes first, and only such as are there, with their own memory and links.
    """
    for shape in sorted(offer.shapes, key=lambda s: (-s.gpus, -s.island, -s.memory_mib)):
        group = _of_such_nodes(question, model, offer, shape)
        if group is not None:
            return group
    return None


def _of_such_nodes(question: Question, model: ModelChoice, offer: Offer, shape: Shape) -> Candidate | None:
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
    shape: Shape,
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
    return failure(
        model, offer, split, CandidateReason.NEEDS_MULTI_NODE,
        f"it takes a group of {nodes} nodes with {shape.gpus} {offer.product.short_name} each "
        f"({split}, "
        f"{split.gpus} GPUs a replica), and groups that span nodes are not implemented yet{tail}",
    )  # fmt: skip

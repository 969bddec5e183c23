"""The sentence for each arrangement that fits: why it was chosen, or what put another before it.

Decides it by the rules of `ranking`, in their order: the first that sets the two apart is the reason. Never
ranks anything itself.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardwright.api.reasons import CandidateReason
from shardwright.planner.legality import is_power_of_two
from shardwright.planner.question import STAGES, UNVALIDATED_GAIN, Fit, count, failure
from shardwright.planner.ranking import (
    LATENCY_GAIN,
    Cost,
    has_power_of_two,
    has_price,
    held_share,
    misses_defaults,
    question_of,
    tie_order,
)
from shardwright.planner.types import Candidate


def told(fits: Sequence[Fit], best: Fit, winner: Fit, cost: Cost) -> list[Candidate]:
    """Say for the fits of one checkpoint and product, of which `best` is the best, what became of each."""
    lines = []
    for fit in sorted(fits, key=_preference):
        if fit is winner:
            lines.append(chosen(fit, cost))
        else:
            # What the pool holds too little of was never compared, whatever beats it on its own product.
            first = fit is best or _held_less(fit, winner) or _lost_with_a_node(fit, winner)
            lines.append(lost(fit, winner if first else best, cost))
    return lines


def _held_less(fit: Fit, other: Fit) -> bool:
    """Whether the pool holds a smaller share of the replicas that are wanted of it."""
    return held_share(fit) < held_share(other)


def _lost_with_a_node(fit: Fit, other: Fit) -> bool:
    return other.survives and not fit.survives


def _preference(fit: Fit) -> tuple[object, ...]:
    """Order in which the fits on one product are told: full context, earlier question, fewest GPUs."""
    split = fit.parallelism
    context = -fit.limits.max_model_len if fit.clamped else 0
    plain = (not split.expert, is_power_of_two(split.tensor)) if fit.step < STAGES else (True, True)
    return (
        fit.clamped, context, fit.step, not plain[0], not plain[1], fit.gpus, split.expert,
        not fit.within_island, -split.tensor, fit.limits.kv_cache_dtype,
    )  # fmt: skip


def chosen(fit: Fit, cost: Cost) -> Candidate:
    """Build the winner's own line."""
    holds, needs, speed = fit.estimate.promised_kv_tokens, fit.needed_tokens, fit.speed
    each = f" in each of {fit.parallelism.data} ranks" if fit.parallelism.data > 1 else ""
    message = f"{cost.text(fit)}; KV cache for {holds} tokens for certain{each}, the work needs {needs}"
    if speed is not None:
        message += (
            f"; TTFT P{speed.ttft_percentile} {speed.ttft_ms:.0f} ms and TPOT P{speed.tpot_percentile} "
            f"{speed.tpot_ms:.1f} ms predicted; a replica takes {int(speed.requests_per_minute)} requests "
            "a minute"
        )
    return _with(fit, CandidateReason.CHOSEN, message)


def lost(fit: Fit, other: Fit, cost: Cost) -> Candidate:
    """Say why `fit` lost to `other`."""
    name = _name(other, fit)
    return (
        _shorter(fit, other, name)
        or _unpredicted(fit, other, name, cost)
        or _not_held(fit, other, name)
        or (None if cost.fastest else _unpriced(fit, other, name))
        or _later(fit, other, name, cost)
        or _odd(fit, other, name)
        or _slower(fit, other, name, cost)
        or _unpriced(fit, other, name)
        or _dearer(fit, other, name, cost)
        or _even(fit, other, name)
    )


def _same(fit: Fit, other: Fit) -> bool:
    return fit.model is other.model and fit.offer is other.offer


def _name(other: Fit, fit: Fit) -> str:
    name = other.name if _same(fit, other) else f"{other.name} on {other.offer.product.short_name}"
    return name if fit.model.model_id == other.model.model_id else f"{other.model.model_id} with {name}"


def _with(fit: Fit, reason: CandidateReason, message: str) -> Candidate:
    made = failure(fit.model, fit.offer, fit.parallelism, reason, message, fit.limits.kv_cache_dtype)
    return replace(made, estimate=fit.estimate, replicas=fit.replicas, speed=fit.speed)


def _shorter(fit: Fit, other: Fit, name: str) -> Candidate | None:
    """Say that it holds a shorter context than another."""
    if not fit.clamped or fit.limits.max_model_len >= other.limits.max_model_len:
        return None
    served = f"it holds only {fit.limits.max_model_len} of {fit.clamped_from} tokens of context"
    holds = f"{name} holds {other.limits.max_model_len if other.clamped else 'all'}"
    return _with(fit, CandidateReason.KV_TOO_SMALL, f"{served}; {holds}")


def _unpredicted(fit: Fit, other: Fit, name: str, cost: Cost) -> Candidate | None:
    if not cost.asked or fit.predicted or not other.predicted:
        return None
    message = f"it fits, but its speed is not predicted ({fit.speed_unknown}), and that of {name} is"
    return _with(fit, CandidateReason.RANKED_LOWER, message)


def _not_held(fit: Fit, other: Fit, name: str) -> Candidate | None:
    """Say that the pool does not hold its replicas, or too few of them when a node is lost."""
    if _held_less(fit, other):
        theirs = "all" if other.room >= other.replicas else f"{other.room} of {other.replicas}"
        message = (
            f"it fits, but {count(fit.replicas, 'replica')} of it are wanted and the pool's nodes hold "
            f"{fit.room}; of {name} they hold {theirs}"
        )
        return _with(fit, CandidateReason.POOL_TOO_SMALL, message)
    if not _lost_with_a_node(fit, other):
        return None
    message = f"it fits, but not enough of it is left when a node is lost; of {name} there is"
    return _with(fit, CandidateReason.RANKED_LOWER, message)


def _unpriced(fit: Fit, other: Fit, name: str) -> Candidate | None:
    """Say that nobody knows what it costs, and what the other one does."""
    if has_price(fit) or not has_price(other):
        return None
    gpu = fit.offer.product.short_name
    message = f"it fits, but no price of {gpu} is known, and that of {name} is: state one of {gpu} to compare"
    return _with(fit, CandidateReason.PRICE_UNKNOWN, message)


def _later(fit: Fit, other: Fit, name: str, cost: Cost) -> Candidate | None:
    """Say of what fits only further down the questions that an earlier one was answered with yes."""
    if question_of(fit, cost) <= question_of(other, cost):
        return None
    if _same(fit, other) and fit.gpus > other.gpus and cost.of(fit) >= cost.of(other):
        message = f"it fits, but takes {count(fit.gpus, 'GPU')} a replica where {name} takes {other.gpus}"
        return _with(fit, CandidateReason.LARGER_THAN_NEEDED, message)
    if not cost.asked and other.gpus == 1:
        message = f"it fits, but is split over {count(fit.gpus, 'GPU')} where one GPU is enough: {name}"
        return _with(fit, CandidateReason.LARGER_THAN_NEEDED, message)
    if fit.within_island:
        message = f"it fits, but stages are for what no NVLink island holds, and {name} holds it"
        return _with(fit, CandidateReason.UNVALIDATED, message)
    theirs = f"those of {name} have links" if other.parallelism.ranks > 1 else f"{name} needs no link"
    message = (
        f"it fits for {cost.text(fit)}, but its {fit.parallelism.ranks} ranks would talk over PCIe; {theirs} "
        f"({cost.text(other)})"
    )
    return _with(fit, CandidateReason.BEYOND_ISLAND, message)


def _odd(fit: Fit, other: Fit, name: str) -> Candidate | None:
    if not has_power_of_two(fit, [other]):
        return None
    message = f"it fits, but powers of two rank first, and {name} fits too"
    return _with(fit, CandidateReason.RANKED_LOWER, message)


def _slower(fit: Fit, other: Fit, name: str, cost: Cost) -> Candidate | None:
    """Say that it is slower, where the fastest is wanted, or not enough faster for what it costs."""
    if not cost.fastest or fit.speed is None or other.speed is None:
        return None
    ours, theirs = cost.request_ms(fit), cost.request_ms(other)
    if cost.judged_ms(fit) <= cost.judged_ms(other):
        if has_price(fit) != has_price(other) or cost.of(fit) <= cost.of(other):
            return None
        message = (
            f"it fits, but a median request takes {ours:.0f} ms where {name} takes {theirs:.0f} ms, and less "
            f"than {LATENCY_GAIN - 1:.0%} is not worth {cost.text(fit)} instead of {cost.text(other)}"
        )
        return _with(fit, CandidateReason.COSTS_MORE, message)
    message = (
        f"it fits, but a median request takes {ours:.0f} ms (TTFT {fit.speed.ttft_ms:.0f} ms, TPOT "
        f"{fit.speed.tpot_ms:.1f} ms) where {name} takes {theirs:.0f} ms"
    )
    if fit.unmeasured and not other.unmeasured:
        message += f"; without a measured row ({fit.unmeasured}) it has to be {UNVALIDATED_GAIN} times faster"
    return _with(fit, CandidateReason.SLOWER, message)


def _dearer(fit: Fit, other: Fit, name: str, cost: Cost) -> Candidate | None:
    """Say that it costs more, or not enough less for what nothing measured."""
    beyond = cost.judged(fit) > cost.judged(other) * cost.tie or tie_order(fit) < tie_order(other)
    if not beyond:
        return None
    if cost.of(fit) > cost.of(other):
        if _same(fit, other) and fit.gpus > other.gpus:
            message = f"it fits, but takes {count(fit.gpus, 'GPU')} a replica where {name} takes {other.gpus}"
            message += f": {cost.text(fit)} instead of {cost.text(other)}" if cost.asked else ""
            return _with(fit, CandidateReason.LARGER_THAN_NEEDED, message)
        message = f"it fits, but takes {cost.text(fit)} where {name} takes {cost.text(other)}"
        return _with(fit, CandidateReason.COSTS_MORE, message)
    if not fit.unmeasured:
        return None
    message = (
        f"it fits for {cost.text(fit)}, but no measured row covers it ({fit.unmeasured}): it would have "
        f"to be {UNVALIDATED_GAIN} times cheaper than {name} ({cost.text(other)})"
    )
    return _with(fit, CandidateReason.UNVALIDATED, message)


def _narrow(fit: Fit, other: Fit) -> tuple[bool, bool]:
    return fit.limits.kv_cache_dtype != "auto", other.limits.kv_cache_dtype != "auto"


def _even(fit: Fit, other: Fit, name: str) -> Candidate:
    """Say what sets two apart that cost the same."""
    ours, theirs = fit.parallelism, other.parallelism
    memory = (fit.offer.product.memory_mib, other.offer.product.memory_mib)
    rules = (
        (misses_defaults(fit), misses_defaults(other), f"{name} keeps the targets of the workload's profile"),
        (fit.gpus, other.gpus, f"{name} is the smaller failure domain"),
        (bool(fit.unvalidated), bool(other.unvalidated), f"measured rows cover {name}"),
        (*_narrow(fit, other), f"the KV cache of {name} stays in the model's own format"),
        (ours.expert, theirs.expert, f"nothing predicts that expert parallelism beats {name}"),
        (not fit.within_island, not other.within_island, f"the ranks of {name} have links"),
        (ours.pipeline, theirs.pipeline, f"{name} has fewer pipeline stages"),
        (-round(fit.slack, 6), -round(other.slack, 6), f"{name} has room for more load"),
        (ours.data, theirs.data, f"{name} has fewer ranks with attention of their own"),
        (*memory, f"{name} leaves the larger GPU free"),
    )
    found = next((phrase for mine, its, phrase in rules if mine > its), f"{name} comes first by name")
    return _with(fit, CandidateReason.RANKED_LOWER, f"it fits at about the same cost, but {found}")

"""Two products that would take the stated load together for less than one does.

Decides by the figures of arrangements that fit, each within the targets by itself. Never changes the plan: a
service runs on one product yet, so that a mix is said as advice.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from shardwright.planner.load import load_of, taking
from shardwright.planner.question import UNLINKED, Fit, Question, count
from shardwright.planner.ranking import COST_TIE, Cost, has_price, question_of
from shardwright.planner.types import MixPart

Mix = tuple[tuple[Fit, int], ...]
"""Arrangements with their replicas."""


def cheaper_mix(question: Question, fits: Sequence[Fit], winner: Fit, cost: Cost) -> tuple[MixPart, ...]:
    """Return the mix that costs least, when the winner costs 5 % more or the pool does not hold it all.

    Unmeasured arrangements count 1.3 times, as everywhere. Empty without a load, for the fastest, where one
    product is enough, where the winner's price is not known, and where the loss of a node is to be survived.
    Products without a price are left out.
    """
    resolved = question.resolved
    fixed = resolved.scale.mode == "External" or resolved.survive_node_loss
    held = winner.room >= winner.replicas
    unknown = not winner.predicted or (held and not has_price(winner))
    if not question.loaded or cost.fastest or fixed or unknown:
        return ()
    limit = cost.judged(winner) / COST_TIE if held else float("inf")
    best: Mix = ()
    for first, rest in combinations(_useful(fits, cost), 2):
        for number, others in _counts(question, first, rest, limit / _judged(cost, first)):
            price = number * _judged(cost, first) + others * _judged(cost, rest)
            if price < limit * (1 - 1e-9):
                limit, best = price, ((first, number), (rest, others))
    return tuple(_part(fit, replicas, best) for fit, replicas in best)


def _judged(cost: Cost, fit: Fit) -> float:
    """Return what one replica counts."""
    return cost.judged(fit) / fit.replicas


def _useful(fits: Sequence[Fit], cost: Cost) -> list[Fit]:
    """Return for each product what is cheapest for its load, and the cheapest replica, for the rest."""
    found: dict[tuple[str, bool], Fit] = {}
    for fit in fits:
        late = fit.predicted and question_of(fit, cost) == UNLINKED
        useless = fit.clamped or late or not fit.room or not has_price(fit)
        if useless or fit.speed is None or fit.speed.most <= 0:
            continue
        label = fit.offer.product.label
        for small in (False, True):
            other = found.get((label, small))
            if other is None or _order(fit, cost, small) < _order(other, cost, small):
                found[label, small] = fit
    return list({id(fit): fit for fit in found.values()}.values())


def _order(fit: Fit, cost: Cost, small: bool) -> tuple[float, float, str]:
    assert fit.speed is not None
    each = _judged(cost, fit)
    return (each, each / fit.speed.most, fit.name) if small else (each / fit.speed.most, each, fit.name)


def _counts(question: Question, first: Fit, rest: Fit, most: float) -> Iterator[tuple[int, int]]:
    """Yield the replicas of two products that take the load within nodes, budget and bounds.

    Fewer than `most` of the first: so many alone cost too much.
    """
    assert first.speed is not None
    assert rest.speed is not None
    if first.offer is rest.offer:
        return
    load, bound = load_of(question.resolved).total, question.resolved.scale.max_replicas
    for number in range(1, first.room + 1):
        left = load - number * first.speed.most
        if left <= 0 or number >= most:
            return
        others = max(taking(left, rest.speed.most), question.replicas - number)
        gpus = number * first.gpus + others * rest.gpus
        allowed = bound is None or number + others <= bound
        if others <= rest.room and gpus <= question.max_gpus and allowed:
            yield number, others


def _part(fit: Fit, replicas: int, mix: Mix) -> MixPart:
    taken = sum(each.speed.most * number for each, number in mix if each.speed is not None)
    assert fit.speed is not None
    price = fit.offer.product.price_per_gpu_hour
    return MixPart(
        model_id=fit.model.model_id,
        product=fit.offer.product.label,
        parallelism=fit.parallelism,
        kv_cache_dtype=fit.limits.kv_cache_dtype,
        replicas=replicas,
        traffic_percent=round(100 * fit.speed.most * replicas / taken),
        price_per_hour=None if price is None else price * fit.gpus * replicas,
    )


def mix_note(parts: Sequence[MixPart], winner: Fit, cost: Cost) -> str:
    """Say a mix as advice, with the split of replicas and traffic."""
    if not parts:
        return ""
    told = " and ".join(
        f"{count(part.replicas, 'replica')} of {part.parallelism} on {part.product} with "
        f"{part.traffic_percent} % of the traffic ({part.price_per_hour or 0.0:.2f} an hour)"
        for part in parts
    )
    price = sum(part.price_per_hour or 0.0 for part in parts)
    instead = f"instead of {cost.text(winner)}" if winner.room >= winner.replicas else "within this pool"
    return (
        f"{told} would take the load for {price:.2f} an hour {instead}; a service runs on one product yet, "
        "so that this takes two services"
    )

"""Which of the arrangements that fit wins, and the sentence for each that does not.

Decides between products and checkpoints: by cost, where what nothing measured must be 1.3 times cheaper.
Knows no latency yet; when it is predicted, it joins `Cost` here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardwright.api.reasons import CandidateReason
from shardwright.planner.candidates import preference
from shardwright.planner.legality import is_power_of_two
from shardwright.planner.question import Fit, count, failure
from shardwright.planner.types import Candidate

COST_TIE = 1.05
"""Costs this close are equal: list prices differ by more between regions. Our choice."""
UNVALIDATED_GAIN = 1.3
"""How much cheaper an arrangement must be that no measured row covers. Design of this project, section 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a replica costs: dollars an hour when the price of every product that fits is known, else GPUs."""

    priced: bool

    def of(self, fit: Fit) -> float:
        """Return the cost of one replica."""
        price = fit.offer.product.price_per_gpu_hour
        return fit.gpus * price if self.priced and price is not None else float(fit.gpus)

    def judged(self, fit: Fit) -> float:
        """Return the cost that counts when arrangements are compared."""
        return self.of(fit) * (UNVALIDATED_GAIN if fit.unvalidated else 1.0)

    def text(self, fit: Fit) -> str:
        """Say the cost of one replica."""
        if self.priced:
            return f"{self.of(fit):.2f} an hour"
        return _gpus(fit.gpus)


def cost_of(fits: Sequence[Fit]) -> Cost:
    """Choose the unit of comparison for these fits."""
    return Cost(priced=all(f.offer.product.price_per_gpu_hour is not None for f in fits))


def winner_of(fits: Sequence[Fit], cost: Cost) -> Fit:
    """Choose between the best fits of each checkpoint and product.

    The full context first, then the earlier question (one GPU, an island, stages), then the cheapest. Costs
    within 5 % are a tie: it goes to the smaller failure domain, then to the smaller GPU, then by name.
    """
    whole = [f for f in fits if not f.clamped] or _longest(fits)
    step = min(f.step for f in whole)
    same = [f for f in whole if f.step == step]
    limit = min(cost.judged(f) for f in same) * COST_TIE
    close = [f for f in same if cost.judged(f) <= limit]
    return min(close, key=_tie_order)


def _tie_order(fit: Fit) -> tuple[object, ...]:
    product = fit.offer.product
    return (fit.gpus, bool(fit.unvalidated), product.memory_mib, product.label)


def _longest(fits: Sequence[Fit]) -> list[Fit]:
    longest = max(f.limits.max_model_len for f in fits)
    return [f for f in fits if f.limits.max_model_len == longest]


def _gpus(number: int) -> str:
    return count(number, "GPU")


def _with(fit: Fit, reason: CandidateReason, message: str) -> Candidate:
    return replace(failure(fit.model, fit.offer, fit.parallelism, reason, message), estimate=fit.estimate)


def chosen_candidate(fit: Fit, cost: Cost) -> Candidate:
    """Build the winner's own line."""
    holds, needs = fit.estimate.promised_kv_tokens, fit.needed_tokens
    message = f"{cost.text(fit)} a replica; KV cache for {holds} tokens for certain, the work needs {needs}"
    return _with(fit, CandidateReason.CHOSEN, message)


def lost_on_its_product(fit: Fit, best: Fit) -> Candidate:
    """Say why `fit` lost to `best` of the same checkpoint and product."""
    ours, theirs = fit.parallelism, best.parallelism
    if fit.clamped and not best.clamped:
        length = fit.limits.max_model_len
        message = f"it holds only {length} of {fit.clamped_from} tokens of context; {theirs} holds all"
        return _with(fit, CandidateReason.KV_TOO_SMALL, message)
    if fit.clamped and fit.limits.max_model_len < best.limits.max_model_len:
        message = (
            f"it holds {fit.limits.max_model_len} of {fit.clamped_from} tokens of context; {theirs} holds "
            f"{best.limits.max_model_len}"
        )
        return _with(fit, CandidateReason.KV_TOO_SMALL, message)
    if not fit.within_island and best.within_island and fit.gpus <= best.gpus:
        message = (
            f"it fits, but its {ours.tensor} ranks would talk over PCIe; {theirs} needs no link "
            f"between tensor ranks and takes {_gpus(best.gpus)}"
        )
        return _with(fit, CandidateReason.BEYOND_ISLAND, message)
    if fit.gpus > best.gpus:
        message = f"it fits, but takes {_gpus(fit.gpus)} where {theirs} takes {best.gpus}"
        return _with(fit, CandidateReason.LARGER_THAN_NEEDED, message)
    return _with(fit, CandidateReason.RANKED_LOWER, _tie(fit, best))


def _tie(fit: Fit, best: Fit) -> str:
    ours, theirs = fit.parallelism, best.parallelism
    if ours.expert and not theirs.expert:
        return f"it fits, but nothing predicts that expert parallelism beats {theirs} on {_gpus(best.gpus)}"
    if not is_power_of_two(ours.tensor) and is_power_of_two(theirs.tensor):
        return f"it fits, but powers of two rank first, and {theirs} fits too"
    if ours.pipeline > theirs.pipeline:
        return f"it fits on as many GPUs, but {theirs} has fewer pipeline stages"
    return f"it fits, but {theirs} ranks first"


def lost_between_products(fit: Fit, winner: Fit, cost: Cost) -> Candidate:
    """Say why `fit`, the best of its checkpoint and product, lost to the best of another."""
    name = f"{winner.parallelism} on {winner.offer.product.short_name}"
    if winner.model.model_id != fit.model.model_id:
        name = f"{winner.model.model_id} with {name}"
    if fit.clamped and fit.limits.max_model_len < winner.limits.max_model_len:
        message = (
            f"it holds only {fit.limits.max_model_len} of {fit.clamped_from} tokens of context; {name} holds "
            f"{winner.limits.max_model_len}"
        )
        return _with(fit, CandidateReason.KV_TOO_SMALL, message)
    if fit.step > winner.step:
        return _later_question(fit, winner, name)
    limit = cost.judged(winner) * COST_TIE
    ahead = _tie_order(fit) < _tie_order(winner)  # a tie would have gone to it
    if cost.of(fit) > limit or (ahead and cost.of(fit) > cost.of(winner)):
        message = f"it fits, but takes {cost.text(fit)} a replica where {name} takes {cost.text(winner)}"
        return _with(fit, CandidateReason.COSTS_MORE, message)
    if cost.judged(fit) > limit or (ahead and fit.unvalidated):
        message = (
            f"it fits for {cost.text(fit)} a replica, but no measured row covers it ({fit.unvalidated}): it "
            f"would have to be {UNVALIDATED_GAIN} times cheaper than {name} ({cost.text(winner)})"
        )
        return _with(fit, CandidateReason.UNVALIDATED, message)
    if fit.gpus > winner.gpus:
        message = f"it fits at about the same cost, but {name} is the smaller failure domain"
    elif fit.unvalidated and not winner.unvalidated:
        message = f"it fits at about the same cost, but measured rows cover {name}"
    elif fit.offer.product.memory_mib > winner.offer.product.memory_mib:
        message = f"it fits at about the same cost, but {name} leaves the larger GPU free"
    else:
        message = f"it fits at about the same cost; {name} comes first by name"
    return _with(fit, CandidateReason.RANKED_LOWER, message)


def _later_question(fit: Fit, winner: Fit, name: str) -> Candidate:
    """Say of what fits only further down the questions that an earlier one was answered with yes."""
    if winner.step == 0:
        message = f"it fits, but is split over {_gpus(fit.gpus)} where one GPU is enough: {name}"
        return _with(fit, CandidateReason.LARGER_THAN_NEEDED, message)
    if fit.parallelism.pipeline > 1:
        message = f"it fits, but stages are for what no NVLink island holds, and {name} holds it"
        return _with(fit, CandidateReason.UNVALIDATED, message)
    message = (
        f"it fits, but its {fit.parallelism.tensor} ranks would talk over PCIe; those of {name} have links"
    )
    return _with(fit, CandidateReason.BEYOND_ISLAND, message)


def losers(fits: Sequence[Fit], best: Fit, winner: Fit, cost: Cost) -> list[Candidate]:
    """Say for the fits of one checkpoint and product, of which `best` is the best, what became of each."""
    lines = []
    for fit in sorted(fits, key=preference):
        if fit is winner:
            lines.append(chosen_candidate(fit, cost))
        elif fit is best:
            lines.append(lost_between_products(fit, winner, cost))
        else:
            lines.append(lost_on_its_product(fit, best))
    return lines

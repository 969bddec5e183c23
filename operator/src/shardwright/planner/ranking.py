"""Which of the arrangements that fit wins, and the sentence for each that does not.

Decides by the price of all replicas that the load takes; what nothing measured must be 1.3 times cheaper.
With `slo.optimizeFor: Latency` by predicted TPOT, then TTFT. Every fit that it sees keeps what is stated.
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


STAGES, UNLINKED = 2, 3
"""Questions asked only when no earlier one is answered with yes: stages, then ranks without links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What all replicas cost: dollars an hour when every product that fits has a price, else GPUs."""

    priced: bool
    latency: bool = False
    """Whether the fastest is wanted, not the cheapest."""
    asked: bool = False
    """Whether a load or a target is stated, so that what is not predicted comes last."""

    def of(self, fit: Fit) -> float:
        """Return the cost of all replicas."""
        price, gpus = fit.offer.product.price_per_gpu_hour, fit.gpus * fit.replicas
        return gpus * price if self.priced and price is not None else float(gpus)

    def judged(self, fit: Fit) -> float:
        """Return the cost that counts when arrangements are compared."""
        return self.of(fit) * (UNVALIDATED_GAIN if unmeasured(fit) else 1.0)

    def text(self, fit: Fit) -> str:
        """Say the cost of all replicas."""
        found = f"{self.of(fit):.2f} an hour" if self.priced else _gpus(fit.gpus * fit.replicas)
        return found if fit.replicas == 1 else f"{found} for {fit.replicas} replicas"


def cost_of(fits: Sequence[Fit], *, latency: bool = False, asked: bool = False) -> Cost:
    """Choose the unit of comparison for these fits."""
    priced = all(f.offer.product.price_per_gpu_hour is not None for f in fits)
    return Cost(priced=priced, latency=latency, asked=asked)


def unmeasured(fit: Fit) -> str:
    """Say what no measured row covers, expert parallelism included: no row of the latency model has it."""
    return fit.unvalidated or ("expert parallelism" if fit.parallelism.expert else "")


def winner_of(fits: Sequence[Fit], cost: Cost) -> Fit:
    """Choose between arrangements that fit and keep what is stated.

    The full context first. Then one GPU and tensor parallelism in an island, before stages and unlinked
    ranks; where a load or a target is stated and speeds are predicted, price alone decides between the first
    two, else one GPU comes first.
    Degrees that are no power of two are left out where one is. Costs within 5 % are a tie: it goes to what
    keeps the profile's targets, then to the smaller failure domain, then by `_tie_order`.
    """
    whole = [f for f in fits if not f.clamped] or _longest(fits)
    if cost.asked:
        whole = [f for f in whole if f.predicted] or whole
    same = _earliest(whole, cost)
    same = [f for f in same if not _has_power_of_two(f, same)]
    if cost.latency and all(f.predicted for f in same):
        return min(same, key=_by_speed)
    limit = min(cost.judged(f) for f in same) * COST_TIE
    close = [f for f in same if cost.judged(f) <= limit]
    return min(close, key=_tie_order)


def _earliest(fits: Sequence[Fit], cost: Cost) -> list[Fit]:
    """Return the fits of the earliest question; one GPU or several in an island may be a matter of price."""
    step = min(_step(f) for f in fits)
    if not cost.asked:
        return [f for f in fits if _step(f) == step]
    return [f for f in fits if _step(f) == step or (_step(f) < STAGES and _comparable(f, fits, step))]


def _step(fit: Fit) -> int:
    """Return the question that it answers; ranks over PCIe send far more than stages and come after them."""
    return UNLINKED if fit.step == STAGES and not fit.within_island else fit.step


def _comparable(fit: Fit, fits: Sequence[Fit], step: int) -> bool:
    return fit.predicted and all(f.predicted for f in fits if f.step == step)


def _has_power_of_two(fit: Fit, others: Sequence[Fit]) -> bool:
    """Whether a degree that is no power of two has one that is beside it, on its own product."""
    if is_power_of_two(fit.parallelism.tensor) or fit.step >= STAGES:
        return False
    return any(
        o.model is fit.model and o.offer is fit.offer and is_power_of_two(o.parallelism.tensor)
        for o in others
    )


def _by_speed(fit: Fit) -> tuple[object, ...]:
    assert fit.speed is not None
    gain = UNVALIDATED_GAIN if unmeasured(fit) else 1.0
    return (fit.speed.tpot_ms * gain, fit.speed.ttft_ms * gain, *_tie_order(fit))


def _tie_order(fit: Fit) -> tuple[object, ...]:
    product, split = fit.offer.product, fit.parallelism
    return (
        _misses_defaults(fit), fit.gpus, bool(fit.unvalidated), split.expert, not fit.within_island,
        split.pipeline, -round(fit.slack, 6), product.memory_mib, product.label, fit.model.model_id,
    )  # fmt: skip


def _misses_defaults(fit: Fit) -> bool:
    return fit.speed is not None and bool(fit.speed.missed)


def _longest(fits: Sequence[Fit]) -> list[Fit]:
    longest = max(f.limits.max_model_len for f in fits)
    return [f for f in fits if f.limits.max_model_len == longest]


def _gpus(number: int) -> str:
    return count(number, "GPU")


def _with(fit: Fit, reason: CandidateReason, message: str) -> Candidate:
    lost = failure(fit.model, fit.offer, fit.parallelism, reason, message)
    return replace(lost, estimate=fit.estimate, replicas=fit.replicas, speed=fit.speed)


def chosen_candidate(fit: Fit, cost: Cost) -> Candidate:
    """Build the winner's own line."""
    holds, needs = fit.estimate.promised_kv_tokens, fit.needed_tokens
    message = f"{cost.text(fit)}; KV cache for {holds} tokens for certain, the work needs {needs}"
    if fit.speed is not None:
        message += f"; {_speed_text(fit)}"
    return _with(fit, CandidateReason.CHOSEN, message)


def _speed_text(fit: Fit) -> str:
    """Say what is predicted at the planned load."""
    speed = fit.speed
    assert speed is not None
    rate = int(speed.requests_per_minute)
    return (
        f"TTFT P{speed.ttft_percentile} {speed.ttft_ms:.0f} ms and TPOT P{speed.tpot_percentile} "
        f"{speed.tpot_ms:.1f} ms predicted; a replica takes {rate} requests a minute"
    )


def _shorter(fit: Fit, other: Fit, name: str) -> Candidate | None:
    """Say that it holds a shorter context than another."""
    if not fit.clamped or fit.limits.max_model_len >= other.limits.max_model_len:
        return None
    served = f"it holds only {fit.limits.max_model_len} of {fit.clamped_from} tokens of context"
    holds = f"{name} holds {other.limits.max_model_len if other.clamped else 'all'}"
    return _with(fit, CandidateReason.KV_TOO_SMALL, f"{served}; {holds}")


def _slower(fit: Fit, other: Fit, name: str, cost: Cost) -> Candidate | None:
    """Say that it is slower, where the fastest is wanted."""
    if not cost.latency or fit.speed is None or other.speed is None or _by_speed(fit) < _by_speed(other):
        return None
    ours, theirs = fit.speed, other.speed
    message = (
        f"it fits, but its TPOT is predicted at {ours.tpot_ms:.1f} ms (TTFT {ours.ttft_ms:.0f} ms) where "
        f"{name} takes {theirs.tpot_ms:.1f} ms ({theirs.ttft_ms:.0f} ms)"
    )
    if unmeasured(fit) and not unmeasured(other):
        message += (
            f"; without a measured row ({unmeasured(fit)}) it has to be {UNVALIDATED_GAIN} times faster"
        )
    return _with(fit, CandidateReason.SLOWER, message)


def lost_on_its_product(fit: Fit, best: Fit, cost: Cost) -> Candidate:
    """Say why `fit` lost to `best` of the same checkpoint and product."""
    theirs = best.parallelism
    shorter = _shorter(fit, best, str(theirs))
    if shorter is not None:
        return shorter
    if not fit.within_island and best.within_island and fit.gpus <= best.gpus:
        message = (
            f"it fits, but its {fit.parallelism.tensor} ranks would talk over PCIe; {theirs} needs no link "
            f"between tensor ranks and takes {_gpus(best.gpus)}"
        )
        return _with(fit, CandidateReason.BEYOND_ISLAND, message)
    slower = _slower(fit, best, str(theirs), cost)
    if slower is not None:
        return slower
    if _has_power_of_two(fit, [best]) and fit.gpus <= best.gpus:
        return _with(fit, CandidateReason.RANKED_LOWER, _tie(fit, best))
    if cost.of(fit) > cost.of(best):
        if fit.gpus > best.gpus:
            message = f"it fits, but takes {_gpus(fit.gpus)} a replica where {theirs} takes {best.gpus}"
            message += f": {cost.text(fit)} instead of {cost.text(best)}" if cost.asked else ""
            return _with(fit, CandidateReason.LARGER_THAN_NEEDED, message)
        message = f"it fits, but takes {cost.text(fit)} where {theirs} takes {cost.text(best)}"
        return _with(fit, CandidateReason.COSTS_MORE, message)
    return _even(fit, best, str(theirs), cost)


def _tie(fit: Fit, best: Fit) -> str:
    ours, theirs = fit.parallelism, best.parallelism
    if ours.expert and not theirs.expert:
        return f"it fits, but nothing predicts that expert parallelism beats {theirs} on {_gpus(best.gpus)}"
    if not is_power_of_two(ours.tensor) and is_power_of_two(theirs.tensor):
        return f"it fits, but powers of two rank first, and {theirs} fits too"
    if ours.pipeline > theirs.pipeline:
        return f"it fits on as many GPUs, but {theirs} has fewer pipeline stages"
    return f"it fits, but {theirs} ranks first"


def _even(fit: Fit, other: Fit, name: str, cost: Cost) -> Candidate:
    """Say why it lost to what does not cost less."""
    limit = cost.judged(other) * COST_TIE
    ahead = _tie_order(fit) < _tie_order(other)  # a tie would have gone to it
    if unmeasured(fit) and (cost.judged(fit) > limit or ahead):
        message = (
            f"it fits for {cost.text(fit)}, but no measured row covers it ({unmeasured(fit)}): it would have "
            f"to be {UNVALIDATED_GAIN} times cheaper than {name} ({cost.text(other)})"
        )
        same = fit.model is other.model and fit.offer is other.offer and fit.gpus == other.gpus
        reason = CandidateReason.RANKED_LOWER if same else CandidateReason.UNVALIDATED
        return _with(fit, reason, _tie(fit, other) if same else message)
    if fit.predicted != other.predicted:
        message = f"it fits, but its speed is not predicted ({fit.speed_unknown}), and that of {name} is"
    elif _misses_defaults(fit) and not _misses_defaults(other):
        message = f"it fits at about the same cost, but {name} keeps the targets of the workload's profile"
    elif fit.gpus > other.gpus:
        message = f"it fits at about the same cost, but {name} is the smaller failure domain"
    elif fit.unvalidated and not other.unvalidated:
        message = f"it fits at about the same cost, but measured rows cover {name}"
    elif fit.model is other.model and fit.offer is other.offer:
        message = _tie(fit, other)
    elif fit.slack < other.slack:
        message = f"it fits at about the same cost, but {name} has room for more load"
    elif fit.offer.product.memory_mib > other.offer.product.memory_mib:
        message = f"it fits at about the same cost, but {name} leaves the larger GPU free"
    else:
        message = f"it fits at about the same cost; {name} comes first by name"
    return _with(fit, CandidateReason.RANKED_LOWER, message)


def lost_between_products(fit: Fit, winner: Fit, cost: Cost) -> Candidate:
    """Say why `fit`, the best of its checkpoint and product, lost to the best of another."""
    name = f"{winner.parallelism} on {winner.offer.product.short_name}"
    if winner.model.model_id != fit.model.model_id:
        name = f"{winner.model.model_id} with {name}"
    shorter = _shorter(fit, winner, name)
    if shorter is not None:
        return shorter
    later = _step(fit) > _step(winner)
    if later and (_step(fit) >= STAGES or not cost.asked or not _both_predicted(fit, winner)):
        return _later_question(fit, winner, name)
    slower = _slower(fit, winner, name, cost)
    if slower is not None:
        return slower
    limit = cost.judged(winner) * COST_TIE
    ahead = _tie_order(fit) < _tie_order(winner)
    if cost.of(fit) > limit or (ahead and cost.of(fit) > cost.of(winner)):
        message = f"it fits, but takes {cost.text(fit)} where {name} takes {cost.text(winner)}"
        return _with(fit, CandidateReason.COSTS_MORE, message)
    return _even(fit, winner, name, cost)


def _both_predicted(fit: Fit, other: Fit) -> bool:
    return fit.predicted and other.predicted


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
            lines.append(lost_on_its_product(fit, best, cost))
    return lines

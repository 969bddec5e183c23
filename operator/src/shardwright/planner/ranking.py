"""Which of the arrangements that fit wins.

Decides by the price of all replicas that the load takes; what nothing measured must be 1.3 times cheaper.
With `slo.optimizeFor: Latency` by what a median request takes. Every fit that it sees keeps what is stated.
The sentences for those that lose are `verdict`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.planner.legality import is_power_of_two
from shardwright.planner.question import STAGES, UNLINKED, UNVALIDATED_GAIN, Fit, Question, count

COST_TIE = 1.05
"""Where nothing is stated that replicas could be judged by, costs this close are equal: list prices differ by
more between regions. Our choice."""
EXACT = 1 + 1e-9
"""Where a load or a target is stated, only the same costs are equal: else a looser target or a larger pool
could cost more."""
LATENCY_GAIN = 1.1
"""With `optimizeFor: Latency`: what is less than 10 % slower than the fastest and costs less comes before it.
Our choice: predictions are no better than that, and the last percents would take the whole budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What all replicas cost: dollars an hour of a product with a price, GPUs of one without.

    The two are never compared: what has no price comes after what has one (`priced`).
    """

    fastest: bool = False
    """Whether the fastest is wanted, not the cheapest."""
    asked: bool = False
    """Whether a load or a target is stated: price then decides between all that keeps it."""
    anywhere: bool = False
    """Whether ranks over PCIe are as good as linked ones."""
    answer_tokens: int = 1
    """Tokens of a median answer."""

    def of(self, fit: Fit) -> float:
        """Return the cost of all replicas."""
        price, gpus = fit.offer.product.price_per_gpu_hour, fit.gpus * fit.replicas
        return float(gpus) if price is None else gpus * price

    def judged(self, fit: Fit) -> float:
        """Return the cost that counts when arrangements are compared."""
        return self.of(fit) * (UNVALIDATED_GAIN if fit.unmeasured else 1.0)

    @property
    def tie(self) -> float:
        """By which factor costs may differ and still count as equal."""
        return EXACT if self.asked else COST_TIE

    def request_ms(self, fit: Fit) -> float:
        """Return what a request with a median answer takes, at the targets' percentiles."""
        assert fit.speed is not None
        return fit.speed.ttft_ms + fit.speed.tpot_ms * (self.answer_tokens - 1)

    def judged_ms(self, fit: Fit) -> float:
        """Return the time that counts when arrangements are compared."""
        return self.request_ms(fit) * (UNVALIDATED_GAIN if fit.unmeasured else 1.0)

    def text(self, fit: Fit) -> str:
        """Say the cost of all replicas."""
        found = f"{self.of(fit):.2f} an hour" if has_price(fit) else count(fit.gpus * fit.replicas, "GPU")
        return found if fit.replicas == 1 else f"{found} for {fit.replicas} replicas"


def cost_of(question: Question) -> Cost:
    """Return how costs are compared."""
    return Cost(
        fastest=question.fastest,
        asked=question.asked,
        anywhere=question.policy == "Any",
        answer_tokens=question.resolved.traffic.output_p50_tokens,
    )


def winner_of(fits: Sequence[Fit], cost: Cost) -> Fit:
    """Choose between arrangements that fit and keep what is stated.

    Costs that count as equal go to what keeps the profile's targets, then to the smaller failure domain, then
    by `tie_order`.
    """
    same = compared(fits, cost)
    if cost.fastest and all(f.predicted for f in same):
        limit = min(cost.judged_ms(f) for f in same) * LATENCY_GAIN
        close = priced([f for f in same if cost.judged_ms(f) <= limit])
        return min(close, key=lambda f: (cost.of(f), cost.judged_ms(f), *tie_order(f)))
    same = priced(same)
    limit = min(cost.judged(f) for f in same) * cost.tie
    return min((f for f in same if cost.judged(f) <= limit), key=tie_order)


def compared(fits: Sequence[Fit], cost: Cost) -> list[Fit]:
    """Return those between which price or speed decides, after the rules that come before it.

    The full context first; what is predicted, where something is asked for; what the pool's nodes hold, as
    far as possible; what survives the loss of a node, where that is asked for. Then what has a
    price, where the lowest is wanted; the questions in their order; and degrees that are a power of two where
    there is one on that product.
    """
    left = [f for f in fits if not f.clamped] or _longest(fits)
    if cost.asked:
        left = [f for f in left if f.predicted] or left
    most = max(held_share(f) for f in left)
    left = [f for f in left if held_share(f) == most]
    left = [f for f in left if f.survives] or left
    left = left if cost.fastest else priced(left)
    first = min(question_of(f, cost) for f in left)
    left = [f for f in left if question_of(f, cost) == first]
    return [f for f in left if not has_power_of_two(f, left)]


def has_price(fit: Fit) -> bool:
    """Whether the price of its product is known."""
    return fit.offer.product.price_per_gpu_hour is not None


def priced(fits: Sequence[Fit]) -> list[Fit]:
    """Return those with a price, where there are any: what the others cost is not known."""
    return [f for f in fits if has_price(f)] or list(fits)


def question_of(fit: Fit, cost: Cost) -> int:
    """Return the question that it answers.

    Ranks over PCIe send far more than stages and come after them, but under `Any`. Where speeds are
    predicted for what is asked, price decides between one GPU, an island and stages; the fastest has stages
    only where others fail.
    """
    step = UNLINKED if fit.step == STAGES and not fit.within_island and not cost.anywhere else fit.step
    if not cost.asked or not fit.predicted or step == UNLINKED:
        return step
    return STAGES if cost.fastest and step == STAGES else 0


def held_share(fit: Fit) -> float:
    """Return the share of its replicas that the pool's nodes hold if all are free."""
    return min(1.0, fit.room / fit.replicas)


def has_power_of_two(fit: Fit, others: Sequence[Fit]) -> bool:
    """Whether a degree that is no power of two has one that is beside it, on its own product."""
    if is_power_of_two(fit.parallelism.tensor) or fit.step >= STAGES:
        return False
    return any(
        o.model is fit.model and o.offer is fit.offer and is_power_of_two(o.parallelism.tensor)
        for o in others
    )


def tie_order(fit: Fit) -> tuple[object, ...]:
    """Order between arrangements that cost the same: failure domain, what is measured, slack, name."""
    product, split = fit.offer.product, fit.parallelism
    return (
        misses_defaults(fit), fit.gpus, bool(fit.unvalidated), fit.limits.kv_cache_dtype != "auto",
        split.expert, not fit.within_island, split.pipeline, -round(fit.slack, 6), split.data,
        product.memory_mib, product.label, fit.model.model_id,
    )  # fmt: skip


def misses_defaults(fit: Fit) -> bool:
    """Whether a target of the profile is missed."""
    return fit.speed is not None and bool(fit.speed.missed)


def _longest(fits: Sequence[Fit]) -> list[Fit]:
    longest = max(f.limits.max_model_len for f in fits)
    return [f for f in fits if f.limits.max_model_len == longest]

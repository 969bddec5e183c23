"""How figures of an explanation are rounded, once, so that every view shows the same.

Decides digits; what is infinite is not known. Never changes what a decision compared.
"""

from math import floor, isfinite

from shardwright.planner.explanation.document import Number
from shardwright.planner.types import Plan


def ms(value: float | None) -> Number | None:
    """Return milliseconds with three digits or so: the error band leaves no meaning to more."""
    if value is None or not isfinite(value):
        return None
    return round(value) if value >= 99.95 else round(value, 1 if value >= 9.95 else 2)


def term_ms(value: float) -> Number | None:
    """Return a summand with two decimals, so that the summands still add up to their total."""
    return round(value, 2) if isfinite(value) else None


def load(value: float | None) -> Number | None:
    """Return a rate or a number of requests: whole, or with one decimal where it is small."""
    if value is None or not isfinite(value):
        return None
    return round(value) if value >= 20 or value == int(value) else round(value, 1)


def most(value: float | None) -> Number | None:
    """Return the load that something takes, rounded down: what is said to be taken is."""
    if value is None or not isfinite(value):
        return None
    return floor(value) if value >= 1 else floor(value * 100) / 100


def two(value: float) -> Number:
    """Return an amount with two decimals: GiB, dollars, factors."""
    return round(value, 2) + 0.0


def price(plan: Plan) -> Number | None:
    """Return dollars an hour of all replicas; None without a price."""
    each = plan.product.price_per_gpu_hour
    return None if each is None else two(each * plan.gpus_per_replica * plan.replicas)

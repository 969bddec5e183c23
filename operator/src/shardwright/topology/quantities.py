"""Kubernetes quantities as integers.

Decides how "1500m", "64Gi" or "1e3" reads. Never rounds down a request: a fraction of a unit counts as one,
as the scheduler does it (k8s.io/apimachinery/pkg/api/resource, Value and MilliValue round up).
"""

from fractions import Fraction
from functools import lru_cache

_SUFFIXES: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(1 << 10),
    "Mi": Fraction(1 << 20),
    "Gi": Fraction(1 << 30),
    "Ti": Fraction(1 << 40),
    "Pi": Fraction(1 << 50),
    "Ei": Fraction(1 << 60),
}


class QuantityError(ValueError):
    """A text that is not a Kubernetes quantity."""


def _exact(text: str) -> Fraction:
    body = text.strip()
    number = body.rstrip("KMGTPEinumk")
    suffix = body[len(number) :]
    if suffix.startswith("E") and suffix not in _SUFFIXES:
        number, suffix = body, ""
    try:
        return Fraction(number) * _SUFFIXES[suffix]
    except (ValueError, KeyError, ZeroDivisionError) as error:
        raise QuantityError(f"{text!r} is not a Kubernetes quantity such as 8, 1500m or 64Gi") from error


def _ceil(value: Fraction) -> int:
    return -((-value.numerator) // value.denominator)


@lru_cache(maxsize=4096)
def _units(text: str) -> int:
    return _ceil(_exact(text))


@lru_cache(maxsize=4096)
def _thousandths(text: str) -> int:
    return _ceil(_exact(text) * 1000)


def whole(quantity: object) -> int:
    """Return the quantity in units (bytes, GPUs), rounded up; QuantityError for anything else."""
    return quantity if type(quantity) is int else _units(str(quantity))


def milli(quantity: object) -> int:
    """Return the quantity in thousandths (CPU), rounded up; QuantityError for anything else."""
    return quantity * 1000 if type(quantity) is int else _thousandths(str(quantity))

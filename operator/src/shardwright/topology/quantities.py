"""Kubernetes quantities as integers.

Decides how "1500m", "64Gi" or "1e3" reads, for any text in bounded time and with a bounded result. Never
rounds down a request: a fraction of a unit counts as one, as the scheduler does it
(k8s.io/apimachinery/pkg/api/resource, Value and MilliValue round up).
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

MOST: Final = (1 << 63) - 1
"""No quantity is larger: what is beyond it is capped (k8s.io/apimachinery/pkg/api/resource, Quantity)."""
_LONGEST = 64
"""Characters. What Kubernetes prints of an amount below `MOST` with its three decimals takes 24."""
_QUOTED = 40
_SUFFIXES: Final = {
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
_QUANTITY: Final = re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]?))"
)
_FARTHEST = 100
"""Powers of ten. With at most `_LONGEST` digits, anything beyond is capped, or a trace of one unit."""


class QuantityError(ValueError):
    """A value that is not a Kubernetes quantity, or one below zero."""


def shown(quantity: object) -> str:
    """Quote a value that should be a quantity, whatever it is and however long."""
    if isinstance(quantity, str):
        return repr(quantity[:_QUOTED])
    if isinstance(quantity, float) or (isinstance(quantity, int) and abs(quantity) <= MOST):
        return str(quantity).lower()
    if isinstance(quantity, int):
        return "an enormous number"
    return "null" if quantity is None else "a list" if isinstance(quantity, list) else "a map"


def _refused(quantity: object) -> QuantityError:
    return QuantityError(f"{shown(quantity)} is not a Kubernetes quantity such as 8, 1500m or 64Gi")


@lru_cache(maxsize=4096)
def _read(text: str, scale: int) -> int:
    """Return a text in units of 1 / `scale`."""
    found = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise _refused(text)
    sign, digits, decimals, exponent, suffix = found.groups(default="")
    power = max(-_FARTHEST, min(_FARTHEST, int(exponent or 0))) - len(decimals)
    value = int(digits + decimals) * Fraction(10) ** power * _SUFFIXES[suffix] * scale
    if value and sign == "-":
        raise _refused(text)
    return min(MOST * scale, -((-value.numerator) // value.denominator))


def _number(quantity: object, scale: int) -> int:
    """Read a number, as YAML gives it."""
    if type(quantity) is int and quantity >= 0:
        return min(MOST, quantity) * scale
    if isinstance(quantity, float):
        return _read(repr(quantity), scale)
    raise _refused(quantity)


def whole(quantity: object) -> int:
    """Return the quantity in units (bytes, GPUs), rounded up, at most `MOST`; else QuantityError."""
    return _read(quantity, 1) if isinstance(quantity, str) else _number(quantity, 1)


def milli(quantity: object) -> int:
    """Return the quantity in thousandths (CPU), rounded up, at most `MOST` units; else QuantityError."""
    return _read(quantity, 1000) if isinstance(quantity, str) else _number(quantity, 1000)

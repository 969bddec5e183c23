"""Values of options as a command line or a JSON line gives them, and the errors that refuse one.

Decides which spellings of a number, a text or a switch count. Never knows what an option is for.
"""

from argparse import ArgumentTypeError
from collections.abc import Mapping
from math import inf

from shardwright.catalog.fields import kind

_TRUE, _FALSE = frozenset({"true", "1", "yes"}), frozenset({"false", "0", "no"})


class OptionError(ValueError):
    """An option that cannot be used; the message names it and says what to write."""


class UnknownMemoryError(Exception):
    """A question that is understood, but whose memory cannot be predicted; the message says why."""


def text(values: Mapping[str, object], name: str, most: int = 256) -> str:
    """Return a text of at most `most` characters. Raises OptionError when it is missing or something else."""
    value = values.get(name)
    if value is None:
        raise OptionError(f"{name}: is missing")
    if not isinstance(value, str):
        raise OptionError(f"{name}: must be a text, not {kind(value)}")
    if len(value) > most:
        raise OptionError(f"{name}: must have at most {most} characters, not {len(value)}")
    return value


def count(values: Mapping[str, object], name: str, most: int) -> int | None:
    """Return a whole number from 1 to `most`; None when it is absent. Raises OptionError."""
    value = values.get(name)
    if value is None:
        return None
    number = _parsed(value)
    if number is None or not 1 <= number <= most or number != int(number):
        raise OptionError(f"{name}: must be a whole number from 1 to {most}, not {kind(value)}")
    return int(number)


def amount(values: Mapping[str, object], name: str, least: float, most: float) -> float | None:
    """Return a number from `least` to `most`, also a fraction; None when it is absent. Raises OptionError."""
    value = values.get(name)
    if value is None:
        return None
    number = _parsed(value)
    if number is None or not least <= number <= most:
        raise OptionError(f"{name}: must be a number from {least:g} to {most:,.0f}, not {kind(value)}")
    return number


def share(values: Mapping[str, object], name: str, least: float) -> float | None:
    """Return a share from `least` to 1; None when it is absent. Raises OptionError."""
    value = values.get(name)
    if value is None:
        return None
    number = _parsed(value)
    if number is None or not least <= number <= 1.0:
        raise OptionError(f"{name}: must be from {least:g} to 1, such as 0.9, not {kind(value)}")
    return number


def flag(values: Mapping[str, object], name: str) -> bool:
    """Return a switch, off when it is absent. Raises OptionError."""
    value = str(values.get(name, "false")).strip().lower()
    if value not in _TRUE | _FALSE:
        raise OptionError(f"{name}: must be true or false, not {kind(values[name])}")
    return value in _TRUE


def _parsed(value: object) -> float | None:
    """Return a number from a number or a text; None for anything else, so that no comparison holds."""
    if isinstance(value, bool):
        return None
    try:
        return float(str(value))
    except ValueError:
        return None


def whole(text: str, least: int = 1, most: int = 1_000_000) -> int:
    """Read a whole number from `least` to `most`. Raises ArgumentTypeError."""
    number = _parsed(text)
    if number is None or not least <= number <= most or number != int(number):
        raise ArgumentTypeError(f"{text!r}: write a whole number from {least} to {most}")
    return int(number)


def port(text: str) -> int:
    """Read a port, 0 for any free one. Raises ArgumentTypeError."""
    return whole(text, 0, 65_535)


def rate(text: str) -> float:
    """Read a number above 0. Raises ArgumentTypeError."""
    number = _parsed(text)
    if number is None or not 0 < number < inf:
        raise ArgumentTypeError(f"{text!r}: write a number above 0")
    return number


def namespaced(text: str) -> tuple[str, str]:
    """Read NAMESPACE/NAME. Raises ArgumentTypeError."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise ArgumentTypeError(f"{text!r}: write NAMESPACE/NAME")
    return namespace, name

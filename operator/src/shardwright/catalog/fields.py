"""Typed reading of JSON objects: each value is taken by name, checked, and refused with its name.

Decides what a number, flag, name or list in a catalogue row or a config.json may look like. Never fills a
gap: a missing value is None or an error, whichever the caller asks for.
"""

from collections.abc import Mapping, Sequence
from importlib import resources
from json import JSONDecodeError, loads

from shardwright.catalog.errors import CatalogError

Json = Mapping[str, object]


def read_data(name: str) -> object:
    """Return the parsed content of a file of `catalog/data`. Raises CatalogError when it is not JSON."""
    text = resources.files("shardwright.catalog").joinpath("data", name).read_text(encoding="utf-8")
    try:
        return loads(text)
    except JSONDecodeError as error:
        raise CatalogError(name, f"is not JSON: {error}") from error


def mapping(value: object, where: str) -> Json:
    """Return `value` as an object, or CatalogError naming `where`."""
    if not isinstance(value, Mapping):
        raise CatalogError(where, f"must be an object, not {kind(value)}")
    return value


def rows(value: object, where: str) -> Sequence[object]:
    """Return `value` as a list, or CatalogError naming `where`."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise CatalogError(where, f"must be a list, not {kind(value)}")
    return value


def kind(value: object) -> str:
    """Say what a JSON value is, in the words of a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return "a list" if isinstance(value, Sequence) else "an object"


class Fields:
    """One JSON object, read field by field; `where` is put before each field's name in errors."""

    __slots__ = ("data", "where")

    def __init__(self, data: object, where: str = "") -> None:
        self.data = mapping(data, where or "config.json")
        self.where = where

    def name(self, key: str) -> str:
        """Say how errors call the field."""
        return f"{self.where}.{key}" if self.where else key

    def find(self, *keys: str) -> tuple[str, object] | None:
        """Return the first of `keys` with a value other than null."""
        for key in keys:
            value = self.data.get(key)
            if value is not None:
                return key, value
        return None

    def integer(self, *keys: str, low: int = 1, high: int = 1 << 40) -> int:
        """Return the first present of `keys` as an integer within bounds. Missing or wrong: CatalogError."""
        found = self.optional_integer(*keys, low=low, high=high)
        if found is None:
            raise CatalogError(self.name(keys[0]), "is missing: copy it from the model's config.json")
        return found

    def optional_integer(self, *keys: str, low: int = 1, high: int = 1 << 40) -> int | None:
        """Read like `integer`, None when absent or null."""
        found = self.find(*keys)
        if found is None:
            return None
        key, value = found
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise CatalogError(self.name(key), f"must be a whole number, not {kind(value)}")
        if not low <= value <= high:
            raise CatalogError(self.name(key), f"must be between {low} and {high}, not {value}")
        return value

    def optional_number(self, *keys: str, low: float = 0.0, high: float = 1e12) -> float | None:
        """Return the first present of `keys` as a finite number within bounds, None when absent."""
        found = self.find(*keys)
        if found is None:
            return None
        key, value = found
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CatalogError(self.name(key), f"must be a number, not {kind(value)}")
        if not low <= value <= high:
            raise CatalogError(self.name(key), f"must be between {low} and {high}, not {value}")
        return float(value)

    def number(self, *keys: str, low: float = 0.0, high: float = 1e12) -> float:
        """Read like `optional_number`, CatalogError when absent."""
        found = self.optional_number(*keys, low=low, high=high)
        if found is None:
            raise CatalogError(self.name(keys[0]), "is missing")
        return found

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false; `default` when absent."""
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise CatalogError(self.name(key), f"must be true or false, not {kind(value)}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return a non-empty text; `default` when absent, CatalogError when there is no default either."""
        value = self.data.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value:
            raise CatalogError(self.name(key), f"must be a text, not {kind(value)}")
        return value

    def texts(self, *keys: str) -> tuple[str, ...]:
        """Return a list of texts; empty when absent."""
        found = self.find(*keys)
        if found is None:
            return ()
        key, value = found
        items = rows(value, self.name(key))
        for item in items:
            if not isinstance(item, str):
                raise CatalogError(self.name(key), f"must hold texts, not {kind(item)}")
        return tuple(str(item) for item in items)

    def inside(self, key: str) -> "Fields | None":
        """Return the object under `key`, None when absent."""
        value = self.data.get(key)
        return None if value is None else Fields(mapping(value, self.name(key)), self.name(key))

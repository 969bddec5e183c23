"""JSON in and out, typed once. Decides the one place where untyped data enters."""

from typing import Any

import msgspec

JsonObject = dict[str, Any]
"""A Kubernetes object, or a part of one."""


def loads(data: bytes | memoryview) -> Any:  # noqa: ANN401 -- JSON has no type before it is read
    """Parse JSON. Raises ValueError, for nesting without end, too."""
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def dumps(value: object) -> bytes:
    """Compact JSON in the order of insertion."""
    return msgspec.json.encode(value)


def canonical(value: object) -> bytes:
    """Compact JSON with sorted keys, so that equal values have equal bytes."""
    return msgspec.json.encode(value, order="sorted")

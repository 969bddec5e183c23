"""The fields of a Kubernetes pod spec and their types.

Decides nothing: `tests/render/pod_schema.py` makes the table from the published schema.
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, cast

from shardwright.catalog.fields import read_data


class PodFields(NamedTuple):
    """The table, and the Kubernetes version that it is of."""

    kubernetes: str
    types: Mapping[str, Mapping[str, str]]
    """By object type: each field's type, where `[]T` is a list of T and `{}T` a map of T by text."""


@cache
def load_pod_fields() -> PodFields:
    """Return the table; it is read once, when a spec has a podTemplate."""
    return PodFields(**cast("dict[str, str]", read_data("pod_fields.json")))  # type: ignore[arg-type]

"""Nodes and pods out of a file or a ConfigMap, checked before their facts are read.

Decides which shape the fields must have that decisions read. An API server has seen to that in what it sends,
so what is watched is not checked again (`docs/adr/0006-watches.md`). Raises DocumentError naming object and
field.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Required, TypedDict, TypeVar

from msgspec import ValidationError, convert

from shardwright.cluster.documents import DocumentError
from shardwright.cluster.json import JsonObject
from shardwright.topology.facts import node_facts, pod_facts
from shardwright.topology.quantities import QuantityError, whole
from shardwright.topology.types import NodeFacts, PodFacts


class _Amounts:
    """Stands for a map of Kubernetes quantities."""


class _Texts:
    """Stands for a map of texts."""


class _Metadata(TypedDict, total=False):
    name: Required[str]
    namespace: str | None
    labels: _Texts | None


class _Condition(TypedDict, total=False):
    type: str | None
    status: str | None
    reason: str | None


class _Taint(TypedDict, total=False):
    key: str | None
    value: str | None
    effect: str | None


class _NodeSpec(TypedDict, total=False):
    taints: list[_Taint] | None
    unschedulable: bool | None


class _NodeStatus(TypedDict, total=False):
    allocatable: _Amounts | None
    conditions: list[_Condition] | None


class _Node(TypedDict, total=False):
    metadata: Required[_Metadata]
    spec: _NodeSpec | None
    status: _NodeStatus | None


class _Resources(TypedDict, total=False):
    requests: _Amounts | None
    limits: _Amounts | None


class _Container(TypedDict, total=False):
    resources: _Resources | None
    restartPolicy: str | None


class _PodSpec(TypedDict, total=False):
    nodeName: str | None
    containers: list[_Container] | None
    initContainers: list[_Container] | None
    resources: _Resources | None
    overhead: _Amounts | None


class _ContainerStatus(TypedDict, total=False):
    restartCount: int | None
    state: dict[str, Any] | None
    lastState: dict[str, Any] | None


class _PodStatus(TypedDict, total=False):
    phase: str | None
    nominatedNodeName: str | None
    conditions: list[_Condition] | None
    containerStatuses: list[_ContainerStatus] | None
    initContainerStatuses: list[_ContainerStatus] | None


class _Pod(TypedDict, total=False):
    metadata: Required[_Metadata]
    spec: _PodSpec | None
    status: _PodStatus | None


Facts = TypeVar("Facts", NodeFacts, PodFacts)
_WRONG: Final = re.compile(r"Expected `([^`]*)`, got `([^`]*)`(?: - at `\$\.?(.*)`)?")
_MISSING: Final = re.compile(r"Object missing required field `([^`]*)`(?: - at `\$\.?(.*)`)?")
_AT: Final = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)
_WORDS: Final = {
    "object": "a map", "array": "a list", "str": "a text", "bool": "true or false", "int": "a whole number",
    "float": "a number", "null": "null",
}  # fmt: skip

_JSON_TYPES: Final = {
    dict: "object", list: "array", str: "str", bool: "bool", int: "int", float: "float", type(None): "null",
}  # fmt: skip


def flat(found: Iterable[object]) -> Iterator[JsonObject]:
    """Take Lists apart, as `kubectl get -o yaml` prints them. Raises DocumentError."""
    for index, value in enumerate(found):
        if isinstance(value, list):
            yield from flat(value)
            continue
        if not isinstance(value, dict):
            raise DocumentError(
                f"object {index + 1} is {_said(value)} where a Kubernetes object should be: remove it"
            )
        items = value.get("items")
        if isinstance(items, list):
            yield from flat(items)
        else:
            yield value


def declared_node(raw: JsonObject) -> NodeFacts:
    """Read a v1 Node. Raises DocumentError."""
    return _read("Node", raw, _Node, node_facts)


def declared_pod(raw: JsonObject) -> PodFacts:
    """Read a v1 Pod. Raises DocumentError."""
    return _read("Pod", raw, _Pod, pod_facts)


def _read(kind: str, raw: JsonObject, shape: Any, facts: Callable[[JsonObject], Facts]) -> Facts:  # noqa: ANN401 -- a TypedDict
    try:
        convert(raw, shape, dec_hook=_entries)
    except ValidationError as error:
        metadata = raw.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        who = f"{kind} {name[:80]}" if isinstance(name, str) else f"a {kind} without a name"
        raise DocumentError(f"{who}: {_sentence(str(error))}") from error
    return facts(raw)


def _entries(wanted: type, value: object) -> object:
    """Check a map entry by entry. msgspec puts the field to a ValueError, and `_sentence` both together."""
    if not isinstance(value, dict):
        raise ValueError(f" must be a map, not {_said(value)}")  # noqa: TRY004 -- msgspec takes a ValueError
    for name, entry in value.items():
        if wanted is _Texts and not isinstance(entry, str):
            raise ValueError(f".{name[:80]} must be a text, not {_said(entry)}: quote it")
        if wanted is _Amounts:
            try:
                whole(entry)
            except QuantityError as error:
                raise ValueError(f".{name[:80]}: {error}") from error
    return wanted()


def _sentence(problem: str) -> str:
    """Say msgspec's message in the words of a manifest."""
    if found := _WRONG.fullmatch(problem):
        wanted = _WORDS.get(found[1].removesuffix(" | null"), found[1])
        return f"{found[3] or 'it'} must be {wanted}, not {_WORDS.get(found[2], found[2])}"
    if found := _MISSING.fullmatch(problem):
        return f"{'.'.join(filter(None, (found[2], found[1])))} is missing"
    found = _AT.fullmatch(problem)
    return f"{found[2]}{found[1]}" if found else problem


def _said(value: object) -> str:
    return _WORDS[_JSON_TYPES[type(value)]]

"""The names and types of what `spec.podTemplate.spec` says, for whoever has no API server to ask.

Decides what no pod of the Kubernetes version that the table is of can have. The operator does not ask this:
its API server knows its own version, and its refusal is told.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.catalog.pod_fields import PodFields, load_pod_fields

_QUANTITY: Final = re.compile(r"[+-]?[0-9.]+[eEinumkKMGTP]*[-+]?[0-9]*")
"""As the API server writes it when an amount does not match (k8s.io/apimachinery, pkg/api/resource)."""
_WORDS: Final = {
    "string": "a text: quote it",
    "integer": "a whole number without quotes",
    "boolean": "true or false without quotes",
    "quantity": "an amount, such as 500m or 2Gi",
    "intOrString": "a whole number or a text",
}


def check(spec: LLMServiceSpec) -> list[Problem]:
    """Return what is no field of a pod, or of another type, in the order in which it is written."""
    pod = (spec.pod_template or {}).get("spec")
    if not isinstance(pod, Mapping):
        return []
    return [
        Problem(reason=Reason.POD_TEMPLATE_REFUSED, field=f"spec.podTemplate.{path}", message=message)
        for path, message in _object(pod, "PodSpec", "spec", load_pod_fields())
    ]


def _object(value: Mapping[str, Any], kind: str, path: str, known: PodFields) -> Iterator[tuple[str, str]]:
    fields = known.types[kind]
    for name, inner in value.items():
        if name in fields:
            yield from _value(inner, fields[name], f"{path}.{name}", known)
            continue
        near = get_close_matches(str(name), fields, n=1)
        meant = f": write {near[0]}, if that is meant" if near else ": leave it out"
        yield f"{path}.{name}", f"Kubernetes {known.kubernetes} has no such field{meant}"


def _value(value: Any, kind: str, path: str, known: PodFields) -> Iterator[tuple[str, str]]:  # noqa: ANN401 -- JSON
    if value is None:
        return  # what a null may do is for `overlay` to say
    if kind.startswith("[]"):
        if not isinstance(value, list):
            yield path, "write a list"
            return
        for index, inner in enumerate(value):
            yield from _value(inner, kind[2:], f"{path}[{index}]", known)
    elif kind.startswith("{}"):
        if not isinstance(value, Mapping):
            yield path, "write an object"
            return
        for name, inner in value.items():
            yield from _value(inner, kind[2:], f"{path}[{name}]", known)
    elif kind in known.types:
        if not isinstance(value, Mapping):
            yield path, "write an object"
            return
        yield from _object(value, kind, path, known)
    elif not _is(value, kind):
        yield path, f"write {_WORDS[kind]}"


def _is(value: Any, kind: str) -> bool:  # noqa: ANN401 -- JSON
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return kind not in _WORDS
    if kind == "quantity":
        number = isinstance(value, int | float)
        return number or (isinstance(value, str) and _QUANTITY.fullmatch(value) is not None)
    if kind == "string":
        return isinstance(value, str)
    if kind == "integer":
        return isinstance(value, int)
    return kind not in _WORDS or isinstance(value, int | str)

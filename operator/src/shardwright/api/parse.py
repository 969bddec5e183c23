"""A raw LLMService as a model, or every reason why the API server would refuse it.

Decides, without a cluster, what `kubectl apply` decides with one: unknown fields, types and bounds,
duplicate keys of keyed lists, and the validation rules. Never judges what needs the cluster.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shardwright.api.base import ApiModel
from shardwright.api.llmservice import API_VERSION, KIND, LLMService, LLMServiceSpec, ObjectMeta
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.api.status import LLMServiceStatus

_SHOWN: Final = 80
"""Characters of a wrong value that are quoted."""
_NO_METADATA: Final = "write metadata: {name: NAME}"


class InvalidSpec(ValueError):  # noqa: N818 -- the name of the condition reason that it leads to
    """A resource that the API server would refuse; `problems` names each field with its fix, never empty."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(f"{p.field}: {p.message}" if p.field else p.message for p in problems))
        self.problems = problems


def parse_service(raw: Mapping[str, Any], *, default_namespace: str = "default") -> LLMService:
    """Turn a Kubernetes object into a model. Raises InvalidSpec with all problems at once.

    A rule of an object is judged only when its fields are sound, as on the API server.
    """
    head = _head_problems(raw)
    if head:
        raise InvalidSpec(head)
    raw_spec = _prune(raw["spec"])
    found = list(_unknown_fields(raw_spec, LLMServiceSpec, "spec"))
    try:
        spec = LLMServiceSpec.model_validate(raw_spec, strict=True)
    except ValidationError as error:
        found += [_problem(details, "spec") for details in error.errors()]
        raise InvalidSpec(tuple(found)) from error
    metadata = _metadata(raw["metadata"], default_namespace)
    service = LLMService(metadata=metadata, spec=spec, status=_status(raw.get("status")))
    found += broken_rules(service)
    if found:
        raise InvalidSpec(tuple(found))
    return service


def _metadata(raw: Mapping[str, Any], default_namespace: str) -> ObjectMeta:
    try:
        return ObjectMeta.model_validate({"namespace": default_namespace} | _without_nulls(raw))
    except ValidationError as error:
        raise InvalidSpec(tuple(_problem(details, "metadata") for details in error.errors())) from error


def _status(raw: object) -> LLMServiceStatus | None:
    # The status of another operator version says nothing against the spec, and all of it can be made again.
    try:
        return LLMServiceStatus.model_validate(_prune(raw)) if raw else None
    except ValidationError:
        return None


def broken_rules(model: BaseModel, path: str = "") -> Iterator[Problem]:
    """Judge the rules of `model` and of all models below it, and the keys of keyed lists."""
    if isinstance(model, ApiModel):
        for rule in model.cel_rules:
            if not rule.holds(model):
                yield _invalid(_join(path, rule.field), rule.message)
    for name, field in type(model).model_fields.items():
        below = _join(path, field.alias or name)
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from broken_rules(value, below)
        elif isinstance(value, list):
            yield from _duplicates(value, _keys(field.annotation), below)
            for index, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from broken_rules(item, f"{below}[{index}]")


def _head_problems(raw: object) -> tuple[Problem, ...]:
    if not isinstance(raw, Mapping):
        return (_invalid("", f"not a Kubernetes object: write apiVersion: {API_VERSION} and kind: {KIND}"),)
    problems = []
    if raw.get("apiVersion") != API_VERSION:
        problems.append(_invalid("apiVersion", f"write {API_VERSION}, not {_short(raw.get('apiVersion'))}"))
    if raw.get("kind") != KIND:
        problems.append(_invalid("kind", f"write {KIND}, not {_short(raw.get('kind'))}"))
    metadata = raw.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        problems.append(_invalid("metadata.name", _NO_METADATA))
    if not isinstance(raw.get("spec"), Mapping):
        problems.append(_invalid("spec", "write at least model: {id: MODEL} and pool: {maxGPUs: NUMBER}"))
    return tuple(problems)


def _unknown_fields(raw: object, model: type[BaseModel], path: str) -> Iterator[Problem]:
    if not isinstance(raw, Mapping):
        return
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, value in raw.items():
        below = _join(path, str(key)[:_SHOWN])
        if key in fields:
            for child, model_below, place in _children(value, fields[key].annotation, below):
                yield from _unknown_fields(child, model_below, place)
        else:
            near = difflib.get_close_matches(str(key), fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(sorted(fields))}"
            yield _invalid(below, f"unknown field: {hint}")


def _children(value: object, annotation: object, path: str) -> Iterator[tuple[object, type[BaseModel], str]]:
    for model in _models(annotation):
        if isinstance(value, list):
            yield from ((item, model, f"{path}[{index}]") for index, item in enumerate(value))
        else:
            yield value, model, path


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models(argument)


def _keys(annotation: object) -> list[str]:
    """Find the keys of a keyed list in the marks of its annotation, which may be one side of `| None`."""
    for info in getattr(annotation, "__metadata__", ()):
        extra = getattr(info, "json_schema_extra", None)
        if isinstance(extra, Mapping) and "x-kubernetes-list-map-keys" in extra:
            return [str(key) for key in extra["x-kubernetes-list-map-keys"]]
    return [key for argument in getattr(annotation, "__args__", ()) for key in _keys(argument)]


def _duplicates(items: Iterable[object], keys: list[str], path: str) -> Iterator[Problem]:
    seen: set[tuple[object, ...]] = set()
    for index, item in enumerate(items):
        identity = tuple(getattr(item, key, None) for key in keys)
        if keys and identity in seen:
            yield _invalid(
                f"{path}[{index}]", f"{' '.join(map(str, identity))} is there already: write it once"
            )
        seen.add(identity)


def _without_nulls(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Drop nulls as the API server does: a field that is not nullable and has the value null is absent."""
    return {key: _prune(value) for key, value in raw.items() if value is not None}


def _prune(value: object) -> object:
    if isinstance(value, Mapping):
        return _without_nulls(value)
    return [_prune(item) for item in value] if isinstance(value, list) else value


def _problem(details: ErrorDetails, path: str) -> Problem:
    for part in details["loc"]:
        path = f"{path}[{part}]" if isinstance(part, int) else _join(path, str(part))
    given = details["input"]
    match details["type"]:
        case "missing":
            return _invalid(path, "required: write it")
        case "extra_forbidden":
            return _invalid(path, "unknown field: remove it")
        case _:
            shown = "" if isinstance(given, Mapping | list) else f", not {_short(given)}"
            return _invalid(path, f"{details['msg'].replace('Input should', 'it should')}{shown}")


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _join(path: str, name: str) -> str:
    return ".".join(part for part in (path, name) if part)


def _invalid(field: str, message: str) -> Problem:
    return Problem(reason=Reason.INVALID_SPEC, field=field, message=message)

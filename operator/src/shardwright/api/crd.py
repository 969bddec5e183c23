"""The CustomResourceDefinition, made from the pydantic models.

Decides how a model becomes a structural schema: references inlined, optional fields unwrapped, constants as
enums, lists typed, rules placed at the object that declares them. Never holds a field: the models do.

The API server's demands that shape this module were measured on Kubernetes 1.36: `$ref`, `anyOf` with null
and `additionalProperties: false` beside `properties` are refused, `const` is dropped silently (so any value
would pass), and a numeric `exclusiveMinimum` makes the whole object undecodable.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from shardwright.api.base import ApiModel
from shardwright.api.llmservice import GROUP, KIND, PLURAL, VERSION, LLMService, LLMServiceSpec
from shardwright.api.status import LLMServiceStatus

Schema = dict[str, Any]

_DROPPED: Final = frozenset({"title", "default", "propertyNames", "$defs"})
_COLUMNS: Final = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Replicas", "string", ".status.readySummary", 0),
    ("Plan", "string", ".status.plan.summary", 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Model", "string", ".spec.model.id", 1),
    ("Endpoint", "string", ".status.endpoint", 1),
    ("Price", "string", ".status.plan.pricePerHour", 1),
    ("Proposal", "string", ".status.proposal.summary", 1),
)


class SchemaError(ValueError):
    """A model that has no structural schema; the message names the path and what to use instead."""


def crd() -> dict[str, Any]:
    """Build the CustomResourceDefinition of LLMService as plain data, ready for YAML or JSON."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["lsvc"],
                "categories": ["llm"],
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path} | ({"priority": priority} if priority else {})
            for name, kind, path, priority in _COLUMNS
        ],
    }


def _root_schema() -> Schema:
    status = structural(LLMServiceStatus)
    # Defaulted on both levels, so that an object that nobody has seen yet already reads -1 and is not taken
    # for current by kstatus.
    status["properties"]["observedGeneration"]["default"] = -1
    status["default"] = {"observedGeneration": -1}
    return {
        "description": _sentence(LLMService),
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {
                "type": "string",
                "maxLength": 64,
                "description": "Group and version of the object.",
            },
            "kind": {"type": "string", "maxLength": 64, "description": "Kind of the object."},
            "metadata": {"type": "object"},
            "spec": structural(LLMServiceSpec),
            "status": status,
        },
        "x-kubernetes-validations": _validations(LLMService),
    }


def structural(model: type[ApiModel]) -> Schema:
    """Build the structural schema of one model. Raises SchemaError for a type that has none."""
    _, raw = models_json_schema([(model, "validation")], by_alias=True)
    models = {cls.__name__: cls for cls in models_below(model)}
    return _Converter(raw["$defs"], models).convert({"$ref": f"#/$defs/{model.__name__}"}, ())


def models_below(model: type[ApiModel]) -> Iterator[type[ApiModel]]:
    """Iterate over `model` and all models in its fields, each once, in the order of the fields."""
    seen: dict[type[ApiModel], None] = {}
    _collect(model, seen)
    return iter(seen)


def _collect(annotation: object, seen: dict[type[ApiModel], None]) -> None:
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        if annotation not in seen:
            seen[annotation] = None
            for field in annotation.model_fields.values():
                _collect(field.annotation, seen)
        return
    for argument in getattr(annotation, "__args__", ()):
        _collect(argument, seen)


def _sentence(model: type[ApiModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _validations(model: type[ApiModel]) -> list[Schema]:
    return [
        {"rule": rule.rule, "message": rule.message} | ({"fieldPath": f".{rule.field}"} if rule.field else {})
        for rule in model.cel_rules
    ]


class _Converter:
    """One pass over pydantic's schema; `path` leads from the root, for messages and against recursion."""

    def __init__(self, defs: Mapping[str, Schema], models: Mapping[str, type[ApiModel]]) -> None:
        self._defs = defs
        self._models = models

    def convert(self, node: Schema, path: tuple[str, ...]) -> Schema:
        node = _unwrap_optional(node, path)
        rules: list[Schema] = []
        if "$ref" in node:
            name = node["$ref"].rsplit("/", 1)[1]
            if name in path:
                raise SchemaError(f"{'.'.join(path)}: a recursive model has no structural schema")
            rules = _validations(self._models[name]) if name in self._models else []
            node = self._defs[name] | {key: value for key, value in node.items() if key != "$ref"}
            path = (*path, name)
        result = {key: value for key, value in node.items() if key not in _DROPPED}
        if "description" in result:
            result["description"] = " ".join(result["description"].split())
        _convert_scalars(result, path)
        self._convert_children(result, path)
        if rules:
            result["x-kubernetes-validations"] = rules
        return result

    def _convert_children(self, node: Schema, path: tuple[str, ...]) -> None:
        if "prefixItems" in node or node.get("uniqueItems"):
            raise SchemaError(f"{'.'.join(path)}: tuples and sets have no structural schema; use a list")
        if node.get("type") == "array":
            node["items"] = self.convert(node["items"], (*path, "[]"))
            node["items"].pop("description", None)
            node.setdefault("x-kubernetes-list-type", "atomic")
        if isinstance(node.get("additionalProperties"), bool):
            del node["additionalProperties"]
        elif "additionalProperties" in node:
            node["additionalProperties"] = self.convert(node["additionalProperties"], (*path, "{}"))
        if "properties" in node:
            node["properties"] = {
                name: self.convert(child, (*path, name)) for name, child in node["properties"].items()
            }


def _unwrap_optional(node: Schema, path: tuple[str, ...]) -> Schema:
    options = node.get("anyOf")
    if options is None:
        return node
    siblings = {key: value for key, value in node.items() if key not in {"anyOf", "default"}}
    kept = [option for option in options if option.get("type") != "null"]
    if len(kept) == 1:
        only: Schema = kept[0]
        return only | siblings
    if sorted(option.get("type", "") for option in kept) == ["integer", "string"]:
        return siblings | {"x-kubernetes-int-or-string": True}
    raise SchemaError(f"{'.'.join(path)}: a union has no structural schema; use one type, or a type field")


def _convert_scalars(node: Schema, path: tuple[str, ...]) -> None:
    if "const" in node:
        node["enum"] = [node.pop("const")]
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in node:
            node[inclusive] = node[exclusive]
            node[exclusive] = True
    if node.get("type") == "number":
        raise SchemaError(
            f"{'.'.join(path)}: no floats in the resource; use an integer with its unit, or Decimal"
        )

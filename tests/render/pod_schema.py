"""The fields of a pod spec and their types, from the published schema of a Kubernetes version.

`python tests/render/pod_schema.py` writes them where the offline check reads them; a test holds the two together.
"""

import json
from importlib import resources
from pathlib import Path
from typing import Any

KUBERNETES = "1.36"
_CORE = "io.k8s.api.core.v1."
_TABLE = Path(__file__).parents[2] / "operator/src/shardwright/catalog/data/pod_fields.json"
_SCALARS = {"IntOrString": "intOrString", "Quantity": "quantity", "Time": "string", "MicroTime": "string"}


def _kind(schema: dict[str, Any], found: list[str]) -> str:
    """A type in one word: `[]T` is a list of T, `{}T` a map of T, and a word with a large letter an object."""
    if "$ref" in schema:
        full = schema["$ref"].rpartition("/")[2]
        name = full.rpartition(".")[2]
        if name in _SCALARS:
            return _SCALARS[name]
        found.append(full)
        return name
    if schema.get("type") == "array" or schema.get("type") == ["array", "null"]:
        return "[]" + _kind(schema["items"], found)
    if "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
        return "{}" + _kind(schema["additionalProperties"], found)
    kind = schema.get("type", "any")
    return next(k for k in kind if k != "null") if isinstance(kind, list) else kind


def table() -> dict[str, dict[str, str]]:
    """By object type, from PodSpec on: the type of each field."""
    name = f"kubernetes-json-schema/v{KUBERNETES}.0-local/_definitions.json"
    root = resources.files("kubernetes_validate")
    definitions = json.loads(root.joinpath(name).read_text())["$defs"]
    left, made = [f"{_CORE}PodSpec"], {}
    while left:
        full = left.pop()
        short = full.rpartition(".")[2]
        if short in made:
            continue
        fields = definitions[full].get("properties", {})
        made[short] = {field: _kind(schema, left) for field, schema in sorted(fields.items())}
    return dict(sorted(made.items()))


if __name__ == "__main__":
    _TABLE.write_text(json.dumps({"kubernetes": KUBERNETES, "types": table()}, separators=(",", ":")) + "\n")

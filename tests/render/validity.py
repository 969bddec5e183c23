"""What Kubernetes and vLLM accept, strictly: object schemas, and an argument parser built from vLLM's own flag list.

Independent of the code under test: `planner.engine_args` reads a table made from the same list, this reads the list.
"""

import argparse
import csv
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from kubernetes_validate import utils

KUBERNETES = "1.36"
FLAG_LIST = Path(__file__).parents[1] / "data" / "vllm_flags.txt"

_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_OWNER = {
    "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "name", "uid"],
    "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "name": {"type": "string"},
                   "uid": {"type": "string"}, "controller": {"type": "boolean"}},
}  # fmt: skip
POD_MONITOR = {
    "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "monitoring.coreos.com/v1"},
        "kind": {"const": "PodMonitor"},
        "metadata": {
            "type": "object", "additionalProperties": False, "required": ["name"],
            "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}, "labels": _TEXTS,
                           "ownerReferences": {"type": "array", "items": _OWNER}},
        },
        "spec": {
            "type": "object", "additionalProperties": False, "required": ["podMetricsEndpoints", "selector"],
            "properties": {
                "selector": {"type": "object", "additionalProperties": False, "properties": {"matchLabels": _TEXTS}},
                "podTargetLabels": {"type": "array", "items": {"type": "string"}},
                "podMetricsEndpoints": {"type": "array", "items": {
                    "type": "object", "additionalProperties": False,
                    "properties": {"port": {"type": "string"}, "path": {"type": "string"},
                                   "interval": {"type": "string", "pattern": r"^[0-9]+(ms|s|m|h)$"}},
                }},
            },
        },
    },
}  # fmt: skip
"""The fields of a PodMonitor that are rendered, as prometheus-operator.dev/docs/api-reference/api (PodMonitorSpec) has them."""


AT_THE_SERVER = {"HTTPRoute", "InferencePool"}
"""Kinds whose schemas are not here: e2e/test_rendered.py stores them strictly with the real CRDs."""


utils.schema_contents = cache(utils.schema_contents)  # 2 MB of JSON, else read anew for each object


def validate(obj: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError for an unknown field or a wrong type, anywhere."""
    written = json.loads(json.dumps(obj))
    if obj["kind"] in AT_THE_SERVER:
        return
    if obj["kind"] == "PodMonitor":
        jsonschema.Draft202012Validator(POD_MONITOR).validate(written)
    else:
        utils.validate(written, KUBERNETES, strict=True)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ValueError(message)


def _size(text: str) -> str:
    if text != "auto" and not re.fullmatch(r"[0-9]+[kKmMgGtT]?|[0-9]+\.[0-9]+[kKmMgGtT]", text):
        raise ValueError(text)
    return text


_KINDS = {
    "int": int, "float": float, "human_readable_int": _size, "human_readable_int_or_auto": _size,
    "loads": json.loads, "parse_dataclass": json.loads,
}  # fmt: skip
_ARITY = {"0": 0, "1": None, "?": "?", "+": "+"}


@cache
def vllm_parser() -> argparse.ArgumentParser:
    """`vllm serve` as its flag list has it; abbreviations, which vLLM's parser would take, are refused."""
    parser = _Parser(prog="vllm serve", add_help=False, allow_abbrev=False)
    lines = [line for line in FLAG_LIST.read_text().splitlines() if line and not line.startswith("#")]
    for _, names, action, kind, _, choices in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        arity = _ARITY[action.partition("/")[2] or "1"]
        options = names.split()
        if arity == 0:
            parser.add_argument(*options, action="store_true", dest=options[0])
            continue
        listed = choices.split(",") if choices and kind not in {"int", "float"} else None
        named = {"dest": options[0]} if options[0].startswith("-") else {}
        parser.add_argument(*options, nargs=arity, type=_KINDS.get(kind, str), choices=listed, **named)
    return parser


def parse_argv(command: list[str], arguments: list[str]) -> dict[str, Any]:
    """Return what vLLM would read. Raises ValueError for whatever it would not, and for a flag given twice."""
    if command != ["vllm", "serve"]:
        raise ValueError(f"{command} is not vLLM's server")
    names = [a.partition("=")[0] for a in arguments if a.startswith("-")]
    if len(names) != len(set(names)):
        raise ValueError("a flag is given twice")
    found = vars(vllm_parser().parse_args(arguments))
    if found["model_tag"] is None:
        raise ValueError("there is no model")
    return found

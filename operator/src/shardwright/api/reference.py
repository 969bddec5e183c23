"""docs/api.md and docs/reasons.md as text, from the models and the reason tables.

Decides how the reference reads. Never writes a file: `cli.docs` does.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardwright.api.crd import Schema, structural
from shardwright.api.defaults import (
    DEFAULT_CONCURRENCY_PER_REPLICA,
    DEFAULT_GPU_MEMORY_UTILIZATION_PERCENT,
    PROFILES,
)
from shardwright.api.llmservice import API_VERSION, KIND, PLURAL, LLMService, LLMServiceSpec
from shardwright.api.reasons import (
    ADVICE_SENTENCES,
    CALIBRATION_SENTENCES,
    CANDIDATE_SENTENCES,
    CONDITION_SENTENCES,
    REASON_SENTENCES,
)
from shardwright.api.scaling_reasons import (
    INFEASIBLE_SENTENCES,
    RULE_SENTENCES,
    UNKNOWN_SENTENCES,
    VETO_SENTENCES,
)
from shardwright.api.status import LLMServiceStatus
from shardwright.api.support import unimplemented_fields

_GENERATED: Final = "<!-- Generated from the models by `make generate`; do not edit. -->"
_BOUNDS: Final = (
    ("minimum", "≥ {}"),
    ("maximum", "≤ {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("maxProperties", "at most {} entries"),
    ("pattern", "`{}`"),
)
_INTRODUCTION: Final = (
    f"`{PLURAL}.shardwright.dev`, `apiVersion: {API_VERSION}`, `kind: {KIND}`, namespaced, short name "
    "`lsvc`, category `llm`. The smallest valid object has `spec.model.id` and `spec.pool.maxGPUs`."
)
_ABSENT: Final = (
    "A field that is absent stays absent in the stored object; its sentence says what is then used. "
    "Defaults are resolved when a plan is made, so that an operator upgrade never changes a stored object. "
    "There are no floats and no nulls; integers carry their unit in their name."
)
_PROFILE_NOTE: Final = (
    "What `workload.profile` stands for where lengths or targets are not written: our own round numbers, "
    "not measurements. Targets are 95th percentiles. Without `workload.concurrency`, a replica's KV cache "
    f"must hold {DEFAULT_CONCURRENCY_PER_REPLICA} requests; without `engine.gpuMemoryUtilizationPercent`, "
    f"{DEFAULT_GPU_MEMORY_UTILIZATION_PERCENT} is used."
)
_HEAD: Final = "| field | type | required | meaning | bounds |\n| --- | --- | --- | --- | --- |"


def api_reference() -> str:
    """Render docs/api.md: one table for each block of the resource, then its rules."""
    parts = [
        _GENERATED,
        "# API reference",
        _INTRODUCTION,
        _ABSENT,
        _profiles(),
        _not_implemented(),
        *_blocks("spec", structural(LLMServiceSpec)),
        *_blocks("status", structural(LLMServiceStatus)),
        "## Rules of the whole object",
        _rules([{"message": rule.message} for rule in LLMService.cel_rules]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def reasons_reference() -> str:
    """Render docs/reasons.md: conditions and the reasons of conditions, candidates, advice and figures."""
    parts = [
        _GENERATED,
        "# Conditions and reasons",
        (
            "Each condition carries `observedGeneration`. The message of a condition gives the figures and "
            "names; this "
            "table says what a reason means and what to do next."
        ),
        "## Conditions",
        _table(("condition", "when it is True"), CONDITION_SENTENCES),
        "## Reasons of conditions and events",
        _table(("reason", "what it means, and what to do next"), REASON_SENTENCES),
        "## Reasons of candidates in `status.plan.candidates`",
        _table(("reason", "what it means, and what to do next"), CANDIDATE_SENTENCES),
        "## Reasons of advice in `status.plan.advice`",
        _table(("reason", "what it means, and what to do next"), ADVICE_SENTENCES),
        "## Reasons of figures in `status.calibration.figures`",
        _table(("reason", "what it means, and what to do next"), CALIBRATION_SENTENCES),
        "## Rules that set a size",
        _table(("rule", "what it means, and what to do next"), RULE_SENTENCES),
        "## Vetoes of a smaller size",
        _table(("veto", "what it means"), VETO_SENTENCES),
        "## What no number of replicas mends",
        _table(("term", "what it means, and what to do next"), INFEASIBLE_SENTENCES),
        "## What is not known in `status.scaling.unknown`",
        _table(("name", "what it means, and what to do next"), UNKNOWN_SENTENCES),
    ]
    return "\n\n".join(parts) + "\n"


def _profiles() -> str:
    rows = [
        f"| {p.name} | {p.meaning} | {p.input_p50_tokens} / {p.input_p95_tokens} | "
        f"{p.output_p50_tokens} / {p.output_p95_tokens} | {p.ttft_ms} ms | {p.tpot_ms} ms | "
        f"{f'{p.itl_ms} ms' if p.itl_ms else '–'} |"
        for p in PROFILES.values()
    ]
    return "\n".join(
        (
            "## Workload profiles",
            "",
            _PROFILE_NOTE,
            "",
            "| profile | traffic | input p50 / p95 tokens | output p50 / p95 tokens | TTFT | TPOT | ITL |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *rows,
        )
    )


def _not_implemented() -> str:
    rows = [f"| `{field}` | {message} |" for field, message in unimplemented_fields()]
    return "\n".join(
        (
            "## Fields without effect in this version",
            "",
            "Setting one of these is accepted and gives `Accepted=True, reason=NotImplemented`.",
            "",
            "| field | what happens instead |",
            "| --- | --- |",
            *rows,
        )
    )


def _blocks(path: str, schema: Schema) -> Iterator[str]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    if not properties:
        return
    yield f"## `{path}`"
    yield schema.get("description", "")
    required = frozenset(schema.get("required", ()))
    yield "\n".join((_HEAD, *(_row(name, child, name in required) for name, child in properties.items())))
    yield _rules(schema.get("x-kubernetes-validations", []))
    for name, child in properties.items():
        below = child.get("items", child)
        suffix = "[]" if "items" in child else ""
        yield from _blocks(f"{path}.{name}{suffix}", below)


def _row(name: str, schema: Schema, required: bool) -> str:
    bounds = "; ".join(_bounds(schema)).replace("|", "\\|")
    meaning = schema.get("description", "").replace("|", "\\|")
    return f"| `{name}` | {_type(schema)} | {'yes' if required else ''} | {meaning} | {bounds} |"


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return " \\| ".join(str(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "integer or string"))


def _bounds(schema: Schema) -> Iterator[str]:
    for key, text in _BOUNDS:
        if key in schema:
            yield text.format(schema[key])
    if schema.get("x-kubernetes-list-map-keys"):
        yield f"unique by {', '.join(schema['x-kubernetes-list-map-keys'])}"
    if "default" in schema:
        yield f"default {schema['default']}"


def _rules(rules: list[dict[str, Any]]) -> str:
    return "\n".join(f"- {rule['message']}." for rule in rules)


def _table(head: tuple[str, str], rows: Mapping[Any, str]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    return "\n".join(lines + [f"| {key} | {sentence} |" for key, sentence in rows.items()])

"""What must hold of the schema so that the API server takes it and users can read it."""

import re
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import Field

from shardwright.api.base import ApiModel
from shardwright.api.crd import SchemaError, crd, models_below, structural
from shardwright.api.llmservice import LLMService
from shardwright.api.status import Condition
from shardwright.cli import docs

ROOT = Path(__file__).resolve().parents[2]
VERSION = crd()["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
ALLOWED = {
    *(
        "type",
        "description",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "enum",
        "default",
        "format",
    ),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "pattern"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations"),
    "x-kubernetes-preserve-unknown-fields",
}


def walk(node, path=""):
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    if "items" in node:
        yield from walk(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from walk(node["additionalProperties"], f"{path}{{}}")


NODES = list(walk(SCHEMA))


def test_generated_files_are_in_step():
    stale = [name for name, text in docs.generated().items() if (ROOT / name).read_text() != text]
    assert not stale, "run make generate"


def test_check_names_a_stale_file_and_writing_mends_it(tmp_path, capsys):
    assert docs.main(["--root", str(tmp_path)]) == 0
    assert docs.main(["--root", str(tmp_path), "--check"]) == 0
    (tmp_path / "docs/reasons.md").write_text("old")
    assert docs.main(["--root", str(tmp_path), "--check"]) == 1
    assert "docs/reasons.md" in capsys.readouterr().err


def test_the_definition_survives_yaml():
    assert yaml.safe_load((ROOT / "crds/llmservices.shardwright.dev.yaml").read_text()) == crd()


@pytest.mark.parametrize(("path", "node"), NODES, ids=[path or "(root)" for path, _ in NODES])
def test_every_node_is_structural_bounded_and_described(path, node):
    assert set(node) <= ALLOWED
    assert node["type"] in {"object", "array", "string", "integer", "boolean"}
    assert None not in node.get("enum", [])
    if node["type"] == "array":
        assert node["maxItems"] <= 64
        assert node["x-kubernetes-list-type"] in {"atomic", "map"}
        for key in node.get("x-kubernetes-list-map-keys", ()):
            assert key in node["items"]["required"]
    if node["type"] == "string":
        assert "enum" in node or node["maxLength"] <= 4096
    if "additionalProperties" in node or "x-kubernetes-preserve-unknown-fields" in node:
        assert node["maxProperties"] <= 64
    if node["type"] == "integer" and ".spec" in path:
        assert "enum" in node or {"minimum", "maximum"} <= set(node)
    if path and "[]" not in path.rsplit(".", 1)[-1] and not path.endswith("}") and path != ".metadata":
        sentence = node["description"]
        assert 10 <= len(sentence) <= 200
        assert sentence[-1] == "."


def test_patterns_are_re2():
    unsafe = re.compile(r"\(\?[=!<]|\\[1-9]|[*+?}]\+|\(\?>|\\Z|\\z")
    patterns = [node["pattern"] for _, node in NODES if "pattern" in node]
    rules = [rule["rule"] for _, node in NODES for rule in node.get("x-kubernetes-validations", [])]
    assert len(patterns) > 20
    assert not [text for text in patterns + rules if unsafe.search(text)]
    assert all(text.startswith("^") and text.endswith("$") for text in patterns)


def test_keyed_lists_have_the_keys_that_people_think_in():
    keyed = {p: n["x-kubernetes-list-map-keys"] for p, n in NODES if "x-kubernetes-list-map-keys" in n}
    assert keyed == {
        ".spec.model.variants": ["id"],
        ".spec.model.adapters": ["name"],
        ".spec.engine.env": ["name"],
        ".spec.engine.imagePullSecrets": ["name"],
        ".status.conditions": ["type"],
        ".status.calibration.figures": ["name"],
        ".status.revisions": ["name"],
    }


def test_defaults_are_only_those_that_an_upgrade_can_never_change():
    defaults = {path: node["default"] for path, node in NODES if "default" in node}
    assert defaults == {".status": {"observedGeneration": -1}, ".status.observedGeneration": -1}


def test_paths_of_scale_columns_and_rules_exist():
    known = {path for path, _ in NODES}
    assert set(VERSION["subresources"]["scale"].values()) <= known
    for column in VERSION["additionalPrinterColumns"]:
        plain = column["jsonPath"].split("[?")[0]
        assert plain in known or plain == ".metadata.creationTimestamp"
    for path, node in NODES:
        for rule in node.get("x-kubernetes-validations", []):
            if "fieldPath" in rule:
                assert path + rule["fieldPath"] in known


def test_names_are_those_of_the_design():
    spec = crd()["spec"]
    assert spec["names"]["shortNames"] == ["lsvc"]
    assert spec["names"]["categories"] == ["llm"]
    assert [(c["name"], c.get("priority", 0)) for c in VERSION["additionalPrinterColumns"]] == [
        *(("Ready", 0), ("Replicas", 0), ("Plan", 0), ("Reason", 0), ("Age", 0)),
        *(("Model", 1), ("Endpoint", 1), ("Price", 1), ("Proposal", 1)),
    ]
    assert SCHEMA["properties"]["spec"]["required"] == ["model", "pool"]
    assert SCHEMA["properties"]["spec"]["properties"]["model"]["required"] == ["id"]
    assert SCHEMA["properties"]["spec"]["properties"]["pool"]["required"] == ["maxGPUs"]
    assert structural(Condition)["required"] == [
        *("type", "status", "reason", "message", "observedGeneration", "lastTransitionTime")
    ]


def test_field_names_keep_their_acronyms():
    names = {path.rsplit(".", 1)[-1] for path, _ in NODES}
    expected = {"maxGPUs", "allowedKVCacheDtypes", "kvOffloadGiB", "weightsGiB", "gpusPerNode", "maxNumSeqs"}
    assert expected <= names
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9]*(\[\]|\{\})?", name) for name in names - {""})


def test_messages_say_what_to_write_instead():
    for model in models_below(LLMService):
        for rule in model.cel_rules:
            assert re.search(r"\b(write|remove|leave|lower|raise|use|must|name|names)\b", rule.message), (
                rule.message
            )
            assert "\n" not in rule.message
            assert len(rule.message) <= 1024


class Odd(ApiModel):
    """What the generator must translate."""

    port: int | str
    above: Annotated[int, Field(gt=0, lt=10)]
    only: Literal["x"]
    maybe: Annotated[list[int], Field(max_length=2)] | None = None


def test_translations_of_what_the_api_server_refuses():
    properties = structural(Odd)["properties"]
    assert properties["port"] == {"x-kubernetes-int-or-string": True}
    above = {
        "type": "integer",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 10,
        "exclusiveMaximum": True,
    }
    assert properties["above"] == above
    assert properties["only"] == {"type": "string", "enum": ["x"]}
    assert properties["maybe"] == {
        "type": "array",
        "maxItems": 2,
        "items": {"type": "integer"},
        "x-kubernetes-list-type": "atomic",
    }


class Floating(ApiModel):
    """Has a float."""

    share: float


class Paired(ApiModel):
    """Has a tuple."""

    pair: tuple[int, int]


class Several(ApiModel):
    """Has a union."""

    either: int | bool


class Endless(ApiModel):
    """Contains itself."""

    below: "Endless | None" = None


@pytest.mark.parametrize(
    ("model", "words"),
    [(Floating, "no floats"), (Paired, "tuples"), (Several, "union"), (Endless, "recursive")],
)
def test_what_has_no_structural_schema_is_refused_by_name(model, words):
    with pytest.raises(SchemaError, match=words):
        structural(model)

"""The examples are valid as a user would apply them, and each is in the documentation's order of difficulty."""

from pathlib import Path

import pytest
import yaml

from shardwright.api.parse import parse_service
from shardwright.api.support import unimplemented

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))


def test_there_are_examples():
    names = {path.name for path in EXAMPLES}
    assert {
        "smallest.yaml",
        "chat-8b.yaml",
        "large-70b.yaml",
        "cannot-fit.yaml",
        "config-map-model.yaml",
    } <= names


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_valid_and_uses_only_what_works(path):
    text = path.read_text()
    documents = list(yaml.safe_load_all(text))
    services = [parse_service(document) for document in documents if document["kind"] == "LLMService"]
    assert services
    assert text.startswith("# "), "an example begins with what it shows"
    for service in services:
        assert unimplemented(service.spec) == ()
    maps = {d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "ConfigMap"}
    for service in services:
        if service.spec.model.config:
            ref = service.spec.model.config.config_map_ref
            assert ref.key in maps[ref.name]

"""Offline parsing refuses what the API server refuses, in the same sentences."""

import copy

import pytest
import yaml

from api.cases import RULES, SCHEMA, RuleCase, SchemaCase, service
from shardwright.api.crd import models_below
from shardwright.api.flags import OWNED_FLAGS
from shardwright.api.llmservice import LLMService
from shardwright.api.parse import InvalidSpec, parse_service
from shardwright.api.reasons import Reason

ALL_RULES = [rule for model in models_below(LLMService) for rule in model.cel_rules]


def problems(raw):
    try:
        parse_service(raw)
    except InvalidSpec as error:
        return [(problem.field, problem.message) for problem in error.problems]
    return []


def test_every_rule_has_an_example_and_every_example_a_rule():
    sentences = [rule.message for rule in ALL_RULES]
    assert len(set(sentences)) == len(sentences)
    for rule in ALL_RULES:
        assert [case for case in RULES if rule.message.startswith(case.sentence)], rule.message
    for case in RULES:
        assert len([s for s in sentences if s.startswith(case.sentence)]) == 1, case.sentence


@pytest.mark.parametrize("case", RULES, ids=lambda case: case.sentence)
def test_a_rule_refuses_with_its_sentence_and_nothing_else(case: RuleCase):
    found = problems(service(case.rejected, case.names[0]))
    assert [message.startswith(case.sentence) for _, message in found] == [True]
    assert problems(service(case.accepted, case.names[1])) == []


@pytest.mark.parametrize("case", SCHEMA, ids=lambda case: case.name)
def test_types_bounds_and_unknown_fields_are_refused_by_path(case: SchemaCase):
    assert [field for field, _ in problems(service(case.spec))] == [case.at]


def test_the_problems_of_one_object_come_all_at_once_with_a_fix():
    raw = service(
        {
            "pool": {"maxGPUs": "8", "interconect": {}},
            "workload": {"inputTokens": {"p50": 2, "p95": "1"}},
        }
    )
    assert problems(raw) == [
        ("spec.pool.interconect", "unknown field: did you mean interconnect?"),
        ("spec.pool.maxGPUs", "it should be a valid integer, not '8'"),
        ("spec.workload.inputTokens.p95", "it should be a valid integer, not '1'"),
    ]


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (None, ""),
        ([], ""),
        ({}, "apiVersion"),
        ({"apiVersion": "shardwright.dev/v1", "kind": "LLMService", "metadata": {"name": "a"}}, "apiVersion"),
        ({"apiVersion": "shardwright.dev/v1alpha1", "kind": "Service", "metadata": {"name": "a"}}, "kind"),
        ({"apiVersion": "shardwright.dev/v1alpha1", "kind": "LLMService", "metadata": {}}, "metadata.name"),
        ({"apiVersion": "shardwright.dev/v1alpha1", "kind": "LLMService", "metadata": {"name": "a"}}, "spec"),
        (
            {
                "apiVersion": "shardwright.dev/v1alpha1",
                "kind": "LLMService",
                "metadata": {"name": "a"},
                "spec": "x",
            },
            "spec",
        ),
    ],
)
def test_what_is_no_such_object_is_named(raw, field):
    with pytest.raises(InvalidSpec) as caught:
        parse_service(raw)
    assert caught.value.problems[0].field == field
    assert caught.value.problems[0].reason is Reason.INVALID_SPEC


def test_a_null_is_an_absent_field_as_on_the_api_server():
    raw = service({"workload": None, "engine": {"args": None, "version": None}})
    before = copy.deepcopy(raw)
    parsed = parse_service(raw)
    assert parsed.spec.workload is None
    assert parsed.spec.engine is not None
    assert parsed.spec.engine.args is None
    assert raw == before


def test_an_object_as_the_api_server_sends_it_is_accepted():
    raw = service({})
    raw["metadata"] |= {
        "uid": "u",
        "generation": 3,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"a": "b"},
    }
    raw["status"] = {"observedGeneration": -1, "written": {"by": "a newer operator"}}
    parsed = parse_service(raw)
    assert parsed.metadata.generation == 3
    assert parsed.metadata.creation_timestamp is not None
    assert parse_service(yaml.safe_load(yaml.safe_dump(raw))) == parsed


@pytest.mark.parametrize("owned", OWNED_FLAGS, ids=lambda owned: owned.flags[0])
def test_an_owned_flag_is_refused_however_it_is_written(owned):
    for flag in owned.flags:
        long = {flag, f"{flag}=1", flag[:2] + flag[2:].replace("-", "_")}
        for written in long:
            (problem,) = problems(service({"engine": {"args": ["--seed=1", written]}}))
            assert problem[0] == "spec.engine.args"
            assert owned.instead in problem[1]
        assert problems(service({"engine": {"args": [f"{flag}x", flag.lstrip("-"), f"x{flag}"]}})) == []

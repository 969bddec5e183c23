"""Random valid objects: parse, print and parse again; the schema and the models draw the same line."""

import json
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.strategies import SPECS
from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.parse import InvalidSpec, broken_rules, parse_service
from shardwright.api.problems import Problem
from shardwright.api.support import unimplemented


def parse(spec: Any) -> tuple[LLMServiceSpec | None, list[Problem]]:
    head = {"apiVersion": "shardwright.dev/v1alpha1", "kind": "LLMService"}
    raw = head | {"metadata": {"name": "chat", "namespace": "default"}, "spec": spec}
    try:
        return parse_service(raw).spec, []
    except InvalidSpec as error:
        return None, list(error.problems)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
@given(SPECS)
def test_what_the_schema_allows_the_models_take_and_give_back(spec):
    model = LLMServiceSpec.model_validate(spec, strict=True)
    printed = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert printed == spec
    assert LLMServiceSpec.model_validate_json(json.dumps(printed)) == model
    # Nothing that the schema allows makes a pure function fail.
    resolve(model)
    unimplemented(model)
    broken = list(broken_rules(model, "spec"))
    parsed, problems = parse(spec)
    assert problems == broken
    assert parsed == (None if broken else model)
    assert all(re.fullmatch(r"spec[A-Za-z.\[\]0-9]*", problem.field) for problem in broken)


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["model", "id", "pool", "maxGPUs", "engine", "env", "x"]), inner, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_parsing_is_total(junk):
    parsed, problems = parse(junk)
    assert (parsed is None) == bool(problems)
    assert all(problem.message for problem in problems)

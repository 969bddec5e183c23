"""Random objects from the schema itself."""

import string
from typing import Any

from hypothesis import strategies as st

from shardwright.api.crd import structural
from shardwright.api.llmservice import LLMServiceSpec

SCHEMA = structural(LLMServiceSpec)


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that types and bounds of a structural schema allow, small ones; the rules may still refuse them."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "integer":
            return st.integers(schema["minimum"], min(schema["maximum"], schema["minimum"] + 50))
        case "boolean":
            return st.booleans()
        case "string":
            pattern = schema.get("pattern")
            text = (
                st.from_regex(pattern, fullmatch=True, alphabet=string.printable)
                if pattern
                else st.text("ab-.")
            )
            longest = min(schema["maxLength"], 40)
            return text.filter(lambda t: schema.get("minLength", 0) <= len(t) <= longest and "\n" not in t)
        case "array":
            keys = schema.get("x-kubernetes-list-map-keys")
            return st.lists(
                values(schema["items"]),
                min_size=schema.get("minItems", 0),
                max_size=2,
                unique_by=(lambda item: tuple(item[key] for key in keys)) if keys else None,
            )
    if "additionalProperties" in schema:
        names = st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5})?", fullmatch=True)
        return st.dictionaries(names, values(schema["additionalProperties"]), max_size=2)
    if "x-kubernetes-preserve-unknown-fields" in schema:
        return st.just({"metadata": {"labels": {"a": "b"}}})
    properties = {name: values(child) for name, child in schema["properties"].items()}
    required = set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {name: child for name, child in properties.items() if name in required},
        optional={name: child for name, child in properties.items() if name not in required},
    )


SPECS = values(SCHEMA)
"""Specs that types and bounds allow."""

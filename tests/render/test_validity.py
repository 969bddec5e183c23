"""The checks of rendered objects can fail: an unknown field, a wrong type or a wrong argument anywhere is found."""

import copy
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from render.cases import CASES
from render.test_manifests import engine, rendered
from render.validity import AT_THE_SERVER, parse_argv, validate, vllm_parser
from shardwright.planner import engine_args

Place = tuple[str | int, ...]


def places(value: Any, below: Place = ()) -> Iterator[Place]:
    """Every place of an object, itself included."""
    yield below
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in children:
        yield from places(inner, (*below, key))


def at(value: Any, place: Place) -> Any:
    for key in place:
        value = value[key]
    return value


def changed(obj: dict[str, Any], place: Place, new: Any) -> dict[str, Any]:
    found = copy.deepcopy(obj)
    at(found, place[:-1])[place[-1]] = new
    return found


def opaque(kind: str, place: Place) -> bool:
    """The data of a ControllerRevision: any object. Its template is the Deployment's, which is checked there."""
    return kind == "ControllerRevision" and place[:1] == ("data",)


def test_an_unknown_field_or_a_wrong_type_anywhere_is_found() -> None:
    """In every child of every kind and each of their places, the pod and what an overlay brings into it included."""
    seen = set()
    for case in CASES:
        for obj in rendered(*CASES[case]):
            validate(obj)
            if obj["kind"] in AT_THE_SERVER:
                continue
            for place in places(obj):
                kind = obj["kind"]
                alike = (kind, tuple("*" if isinstance(key, int) else key for key in place))
                if alike not in seen and not opaque(kind, place):
                    refuses_what_is_wrong(obj, place)
                seen.add(alike)
    assert {kind for kind, _ in seen} == {
        "ServiceAccount", "Service", "PodDisruptionBudget", "PodMonitor", "ControllerRevision", "Deployment", "RoleBinding",
    }  # fmt: skip
    assert len(seen) > 400


def refuses_what_is_wrong(obj: dict[str, Any], place: Place) -> None:
    found = at(obj, place)
    if isinstance(found, dict):
        with pytest.raises(jsonschema.ValidationError):
            validate(changed(obj, (*place, "bogus"), [1]))
    if place and place != ("kind",):  # which schema is asked
        wrong: Any = {"bogus": [1]} if isinstance(found, list) else [1]
        with pytest.raises((jsonschema.ValidationError, TypeError)):
            validate(changed(obj, place, wrong))


def test_what_an_overlay_brings_is_checked_at_any_depth() -> None:
    """A field that Kubernetes does not have, in each part that a user can write."""
    spec, chosen, caps, nodes = CASES["overlay"]
    below = {"podTemplate": spec["podTemplate"]}
    for place in places(below):
        if isinstance(at(below, place), dict) and place not in {(), ("podTemplate",)}:
            bad = {**spec, **changed(below, (*place, "bogus"), [1])}
            deployment = next(o for o in rendered(bad, chosen, caps, nodes) if o["kind"] == "Deployment")
            with pytest.raises(jsonschema.ValidationError):
                validate(deployment)


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_argument_anywhere_is_found_by_both_readers(case: str) -> None:
    """vLLM's own flag list, and the parser that judges what users add, which is made from it."""
    container = engine(rendered(*CASES[case]))
    command, arguments = container["command"], container["args"]
    parse_argv(command, arguments)
    typed = 0
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if not name.startswith("--"):
            continue
        wrong = [
            [f"{name}x{equals}{value}"],
            [argument, argument],
            [f"{argument} "] if not equals else [name],
        ]
        flag = next(a for a in engine_args.parse([argument]).arguments).flag
        assert flag is not None
        if flag.kind in {"int", "float"} or flag.choices:
            typed += 1
            wrong.append([f"{name}=bogus"])
        for replaced in wrong:
            bad = [*arguments[:index], *replaced, *arguments[index + 1 :]]
            with pytest.raises(ValueError, match=r"\S"):
                parse_argv(command, bad)
            read = engine_args.parse(bad)
            twice = len({a.flag for a in read.arguments}) < len(read.arguments)
            assert (
                read.errors
                or twice
                or len(read.positional) > 1
                or any(a.flag is None for a in read.arguments)
            ), bad
    assert typed >= 6
    for bad in (["vllm"], ["python"]):
        with pytest.raises(ValueError, match="not vLLM's server"):
            parse_argv(bad, arguments)
    with pytest.raises(ValueError, match="no model"):
        parse_argv(command, arguments[1:])


def test_both_readers_know_the_same_flags() -> None:
    """Of 0.32, whose list was read from the wheel."""
    listed = {option for action in vllm_parser()._actions for option in action.option_strings}
    assert len(listed) > 300
    for option in listed:
        assert engine_args.parse([option]).arguments[0].flag is not None, option

"""Reads a `vllm serve` argument list the way the engine's own parser does, and judges what a user added.

Decides whether an argument exists, has the values it needs and may be set by hand. Never decides a value.
Spelling that the engine accepts is accepted here: `--flag=value`, underscores for hyphens, dotted JSON keys
(`--hf-overrides.key value`) and `-O3`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.catalog.flags import CHECKED_VERSIONS, OWNED, SECRET, Flag, FlagClass, classify, flags

_NUMBER = re.compile(r"^-\d+(\.\d+)?$")
_OPTIMIZATION = re.compile(r"^-O(\d)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One option as written. `flag` is None when the table has no such flag."""

    index: int
    """Position of the option in the list."""
    written: str
    flag: Flag | None
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedArgs:
    """An argument list, taken apart."""

    arguments: tuple[Argument, ...]
    positional: tuple[tuple[int, str], ...]
    errors: tuple[tuple[int, str], ...]
    """(index, sentence) for each argument that the engine would refuse."""


def parse(args: Sequence[str]) -> ParsedArgs:
    """Take `args` apart. Total: whatever cannot be read becomes an error with its index."""
    arguments: list[Argument] = []
    positional: list[tuple[int, str]] = []
    errors: list[tuple[int, str]] = []
    index = 0
    while index < len(args):
        token = args[index]
        if not _is_option(token):
            positional.append((index, token))
            index += 1
            continue
        written, inline = _split(token)
        flag = flags().get(written)
        values = _take(args, index + 1, flag, inline)
        arguments.append(Argument(index=index, written=written, flag=flag, values=values))
        sentence = _value_error(written, flag, values, inline=inline is not None)
        if sentence:
            errors.append((index, sentence))
        index += 1 + (len(values) if inline is None else 0)
    return ParsedArgs(arguments=tuple(arguments), positional=tuple(positional), errors=tuple(errors))


def check(args: Sequence[str], *, engine_version: tuple[int, int, int], path: str) -> tuple[Problem, ...]:
    """Judge the arguments a user added, in their order; `path` is the field that holds them.

    A flag that the plan owns, a secret, or one that the engine does not know is blocking. A flag that may
    change memory or latency is not: its reason is PlanNotCovered, and the plan has to say so.
    """
    parsed = parse(args)
    found = [(index, _refused(f"{path}[{index}]", sentence)) for index, sentence in parsed.errors]
    found += [
        (index, _refused(f"{path}[{index}]", f"{value!r} is not a flag; the model is set by spec.model.id"))
        for index, value in parsed.positional
    ]
    for argument in parsed.arguments:
        problem = _judge(argument, engine_version, f"{path}[{argument.index}]")
        if problem is not None:
            found.append((argument.index, problem))
    return tuple(problem for _, problem in sorted(found, key=lambda pair: pair[0]))


def uncovered(args: Sequence[str]) -> tuple[str, ...]:
    """Return the flags of `args` that the plan's figures do not cover, as written, once each."""
    found = (a for a in parse(args).arguments if a.flag is None or classify(a.flag) is FlagClass.NOT_COVERED)
    return tuple(dict.fromkeys(a.written for a in found))


def _is_option(token: str) -> bool:
    return token.startswith("-") and len(token) > 1 and not _NUMBER.match(token)


def _split(token: str) -> tuple[str, str | None]:
    """Return the option's canonical spelling and its inline value, if any."""
    level = _OPTIMIZATION.match(token)
    if level:
        return "--optimization-level", level.group(1)
    name, equals, value = token.partition("=")
    if name.startswith("--"):
        name = "--" + name[2:].split(".")[0].replace("_", "-")
    elif "." in name:
        name = name.split(".")[0]
    return name, value if equals else None


def _take(args: Sequence[str], start: int, flag: Flag | None, inline: str | None) -> tuple[str, ...]:
    if inline is not None:
        return (inline,)
    if flag is None:
        following = args[start : start + 1]
        return tuple(value for value in following if not _is_option(value))
    if flag.values == "0":
        return ()
    limit = len(args) if flag.values == "+" else start + 1
    taken: list[str] = []
    for value in args[start:limit]:
        if _is_option(value):
            break
        taken.append(value)
    return tuple(taken)


def _value_error(written: str, flag: Flag | None, values: tuple[str, ...], *, inline: bool) -> str:
    """Return what is wrong with the values, or an empty string."""
    if flag is None:
        return ""
    if flag.values == "0":
        return f"{written} takes no value: write it alone" if inline else ""
    if not values and flag.values != "?":
        return f"{written} needs a value: write {written}=VALUE"
    for value in values:
        if flag.kind in {"int", "float"} and not _is_number(value, flag.kind):
            return f"{written} needs {'a whole number' if flag.kind == 'int' else 'a number'}, not {value!r}"
        if flag.choices and value not in flag.choices:
            return f"{written} does not know {value!r}: write one of {', '.join(flag.choices)}"
    return ""


def _is_number(text: str, kind: str) -> bool:
    try:
        int(text) if kind == "int" else float(text)
    except ValueError:
        return False
    return True


def _judge(argument: Argument, version: tuple[int, int, int], path: str) -> Problem | None:
    flag = argument.flag
    checked = version[:2] in CHECKED_VERSIONS
    if flag is None or (flag.since is not None and version[:2] < flag.since):
        return _unknown(argument, version, path, checked=checked)
    match classify(flag):
        case FlagClass.SECRET:
            return _refused(path, f"{flag.name} would show a secret in the pod: use {SECRET[flag.name]}")
        case FlagClass.OWNED:
            return _refused(path, f"{flag.name} is set by the plan: use {OWNED[flag.name]}")
        case FlagClass.NOT_COVERED:
            sentence = f"{flag.name} may change memory or latency; the plan's figures do not cover it"
            return Problem(reason=Reason.PLAN_NOT_COVERED, field=path, message=sentence, blocking=False)
        case FlagClass.HARMLESS:
            return None


def _unknown(argument: Argument, version: tuple[int, int, int], path: str, *, checked: bool) -> Problem:
    name = ".".join(map(str, version))
    if checked:
        return _refused(path, f"vLLM {name} has no flag {argument.written}: correct or remove it")
    known = " and ".join(f"{major}.{minor}" for major, minor in CHECKED_VERSIONS)
    return Problem(
        reason=Reason.PLAN_NOT_COVERED,
        field=path,
        message=f"{argument.written} is not a flag of vLLM {known}; whether {name} has it cannot be checked",
        blocking=False,
    )


def _refused(path: str, sentence: str) -> Problem:
    return Problem(reason=Reason.ENGINE_ARGS_REFUSED, field=path, message=sentence)

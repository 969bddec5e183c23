"""Text that a person wrote or saved, as the plain values of JSON.

Decides what YAML and JSON may say: what `kubectl` takes (dates are texts, keys are texts), no deeper and no
longer than an object of Kubernetes gets. Work grows with the text, never with what its aliases repeat. Raises
DocumentError for everything else, and nothing but it.
"""

import json
import re
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any, Final, cast

import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST: Final = 100
"""Levels of maps and lists. An LLMService has 12, a pod 11."""
_LEAST_VALUES: Final = 10_000
"""A text without aliases has fewer values than characters; short texts may repeat themselves up to this."""
_LONGEST_NUMBER: Final = 40
"""Digits. What is longer stays a text, which the field that wanted a number then refuses by its name."""
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{spelled: True for word in ("true", "yes", "on") for spelled in (word, word.title(), word.upper())},
    **{spelled: False for word in ("false", "no", "off") for spelled in (word, word.title(), word.upper())},
}
"""YAML 1.1, as Kubernetes reads it."""
_INTEGER: Final = re.compile(r"[-+]?(?:0b[01]+|0x[0-9a-fA-F]+|0o?[0-7]+|0|[1-9][0-9]*)")
_REAL: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_TAGS: Final = frozenset(_TAG + name for name in ("int", "float", "bool", "null", "map", "seq"))
_MERGE: Final = "<<"


class DocumentError(ValueError):
    """A text that cannot be used; the message says where and what to write instead."""


def parse_json(text: str) -> object:
    """Parse one JSON value; NaN and infinities are taken, as Python and model configs write them."""
    return _checked(_json(text, float), len(text))


def parse_objects(text: str) -> list[object]:
    """Parse all documents of a YAML or JSON text, empty ones left out."""
    if text.lstrip()[:1] == "{":
        try:
            return [_checked(_json(text, str), len(text))]
        except _NotJsonError:
            pass  # YAML may begin so, too
    try:
        found = [
            value for value in _compose(yaml.parse(text, Loader=_LOADER), len(text)) if value is not None
        ]
    except yaml.YAMLError as error:
        raise DocumentError(f"is not YAML: {' '.join(str(error).split())}") from error
    return [_checked(value, len(text)) for value in found]


class _NotJsonError(DocumentError):
    pass


def _json(text: str, constant: type[float | str]) -> object:
    try:
        return json.loads(text, parse_int=_integer, parse_float=_real, parse_constant=constant)
    except RecursionError as error:
        raise DocumentError(f"is nested deeper than {DEEPEST} levels: no such file needs that") from error
    except ValueError as error:
        raise _NotJsonError(f"is not JSON: {error}") from error


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= _LONGEST_NUMBER else text


def _real(text: str) -> float | str:
    value = float(text)
    return value if isfinite(value) else text


class _Frame:
    """A map or a list that is being read; `key` waits for its value, `merged` for the end of the map."""

    __slots__ = ("holder", "key", "merged")

    def __init__(self, holder: dict[str, object] | list[object]) -> None:
        self.holder = holder
        self.key: str | None = None
        self.merged: list[object] = []

    def put(self, value: object, event: Any, plain_key: str | None) -> None:  # noqa: ANN401 -- PyYAML's events
        """Take the next value, which in a map is a key or what belongs to it."""
        if isinstance(self.holder, list):
            self.holder.append(value)
        elif self.key is None:
            key = value if plain_key is None else plain_key
            if not isinstance(key, str):
                raise _at(event, "a key must be a text")
            if key in self.holder:
                raise _at(event, f"{key[:40]!r} is given twice: keep one")
            self.key = key
        elif self.key == _MERGE:
            self.merged.append(value)
            self.key = None
        else:
            self.holder[self.key] = value
            self.key = None

    def close(self, budget: int) -> int:
        """Add what its merge keys name, where the map has no such key; return what is left of `budget`."""
        for found in self.merged:
            for source in found if isinstance(found, list) else [found]:
                if not isinstance(source, dict):
                    raise DocumentError("the merge key << takes a map, or a list of maps")
                budget -= 1 + len(source)
                if budget < 0:
                    raise _TOO_MANY
                holder = cast("dict[str, object]", self.holder)
                holder.update({key: value for key, value in source.items() if key not in holder})
        return budget


_TOO_MANY: Final = DocumentError("its aliases repeat too much: write out what they stand for")


def _at(event: Any, problem: str) -> DocumentError:  # noqa: ANN401 -- PyYAML's events
    return DocumentError(f"line {event.start_mark.line + 1}: {problem}")


def _compose(events: Iterable[Any], length: int) -> Iterator[object]:
    """Turn PyYAML's events into values, without recursion and without the constructors that can fail."""
    stack: list[_Frame] = []
    anchors: dict[str, object] = {}
    root, budget = _Frame([]), max(length, _LEAST_VALUES)
    for event in events:
        top = stack[-1] if stack else root
        match event:
            case yaml.ScalarEvent():
                value = _scalar(event)
                if event.anchor is not None:
                    anchors[event.anchor] = value
                top.put(value, event, event.value)
            case yaml.AliasEvent():
                if event.anchor not in anchors:
                    raise _at(event, f"there is no anchor &{str(event.anchor)[:40]} before it")
                top.put(anchors[event.anchor], event, None)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if event.tag is not None and event.tag not in _PLAIN_TAGS:
                    raise _at(event, _no_tag(event.tag))
                frame = _Frame({} if isinstance(event, yaml.MappingStartEvent) else [])
                if event.anchor is not None:
                    anchors[event.anchor] = frame.holder
                top.put(frame.holder, event, None)
                stack.append(frame)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                budget = stack.pop().close(budget)
            case yaml.DocumentEndEvent():
                yield cast("list[object]", root.holder)[0]
                root, anchors = _Frame([]), {}


def _no_tag(tag: str) -> str:
    return f"the tag {tag[:40]} is not read: remove it, and write the value plainly"


def _scalar(event: Any) -> object:  # noqa: ANN401 -- PyYAML's events
    text: str = event.value
    tag: str | None = event.tag
    if tag is not None:
        if tag in {"!", _TAG + "str"}:
            return text
        if tag not in _PLAIN_TAGS:
            raise _at(event, _no_tag(tag))
    elif not event.implicit[0]:
        return text
    if not text or text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-+.0123456789" or len(text) > _LONGEST_NUMBER:
        return text
    if _INTEGER.fullmatch(text):
        sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.lstrip("+"))
        octal = len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567"
        return sign * int(digits, 8 if octal else 0)
    return _real(text) if _REAL.fullmatch(text) else text


def _checked(value: object, length: int) -> object:
    """Return a value that is no deeper and no larger than its text allows, and whose texts can be printed."""
    left = max(length, _LEAST_VALUES)
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        inner, depth = waiting.pop()
        left -= 1
        if left < 0:
            raise _TOO_MANY
        if depth > DEEPEST:
            raise DocumentError(f"is nested deeper than {DEEPEST} levels: no such file needs that")
        if isinstance(inner, dict):
            waiting.extend((below, depth + 1) for below in inner.values())
            for key in inner:
                _printable(key)
        elif isinstance(inner, list):
            waiting.extend((below, depth + 1) for below in inner)
        elif isinstance(inner, str):
            _printable(inner)
    return value


def _printable(text: str) -> None:
    """Refuse half characters (surrogates), which JSON can write and nothing can print."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            problem = f"{text[:40]!a} holds half a character: remove the \\ud... in it"
            raise DocumentError(problem) from error

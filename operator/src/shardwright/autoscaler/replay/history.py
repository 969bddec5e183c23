"""Requests out of what others keep: lines of a log, or counters that a monitoring system sampled.

Decides when each request arrived and how long it was. Reads no file. A log that does not say is refused;
counters say how many came and how long they were on average, and nothing of single requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shardwright.autoscaler.replay.trace import Trace, uniform

TIMES: Final = ("arrival_s", "timestamp", "time", "ts", "created")
INPUTS: Final = ("input_tokens", "prompt_tokens", "usage.prompt_tokens", "usage.input_tokens")
OUTPUTS: Final = ("output_tokens", "completion_tokens", "usage.completion_tokens", "usage.output_tokens")
"""Where a line is looked at unless another key is named: our own names, and those of the OpenAI API."""
MILLIS: Final = 1e11
"""A time above this counts milliseconds: as seconds it would be in the year 5138."""
LATEST: Final = 1e18
"""No time is later, in whatever unit."""
LONGEST_TOKENS: Final = 10**8
MOST_REQUESTS: Final = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Where a line of a log has its figures; a dot goes into an object. Several: the first that is there."""

    time: tuple[str, ...] = TIMES
    input: tuple[str, ...] = INPUTS
    output: tuple[str, ...] = OUTPUTS


@dataclass(frozen=True, slots=True)
class Window:
    """What counters grew by in the time that ends at `end_s`."""

    end_s: float
    requests: float
    input_tokens: float
    output_tokens: float


def of_lines(lines: Iterable[tuple[int, Mapping[str, object]]], keys: Keys) -> tuple[Trace, int]:
    """Return the requests of numbered lines, and how many were left out because they have no answer.

    The first request arrives at zero. Raises ValueError naming the line and the key.
    """
    rows: list[tuple[float, int, int]] = []
    empty = 0
    for number, line in lines:
        at = _seconds(_at(line, keys.time, number), number)
        into = _tokens(_at(line, keys.input, number), number)
        out = _tokens(_at(line, keys.output, number), number)
        if into and out:
            rows.append((at, into, out))
        else:
            empty += 1
    return _trace(rows), empty


def of_windows(windows: Sequence[Window], length_s: float, seed: int) -> Trace:
    """Return requests of which as many arrive in each window as its counters say, at seeded times.

    Each has the window's mean lengths. Part of a request is carried on: none is lost to rounding.
    """
    if sum(one.requests for one in windows) > MOST_REQUESTS:
        raise ValueError(f"more than {MOST_REQUESTS} requests: choose a shorter time")
    rows: list[tuple[float, int, int]] = []
    carried = 0.0
    for number, one in enumerate(windows):
        carried += one.requests
        count = int(carried)
        carried -= count
        if not one.requests:
            continue
        if max(one.input_tokens, one.output_tokens) > LONGEST_TOKENS * one.requests:
            raise ValueError(f"more than {LONGEST_TOKENS} tokens a request at {one.end_s:g}")
        into = max(1, round(one.input_tokens / one.requests))
        out = max(1, round(one.output_tokens / one.requests))
        begin = one.end_s - length_s
        rows.extend((begin + length_s * uniform(seed + number, index), into, out) for index in range(count))
    return _trace(rows)


def _trace(rows: list[tuple[float, int, int]]) -> Trace:
    if not rows:
        raise ValueError("has no requests with a prompt and an answer")
    rows.sort()
    first = rows[0][0]
    return Trace(
        [at - first for at, _, _ in rows], [into for _, into, _ in rows], [out for _, _, out in rows]
    )


def _at(line: Mapping[str, object], keys: Sequence[str], number: int) -> object:
    for key in keys:
        found: object = line
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    raise ValueError(f"line {number}: has none of {', '.join(keys)}")


def _seconds(value: object, number: int) -> float:
    """Read seconds or milliseconds since any origin, or an RFC 3339 time."""
    if isinstance(value, str):
        try:
            read = datetime.fromisoformat(value)
        except ValueError as error:
            raise ValueError(f"line {number}: {value!r} is no RFC 3339 time") from error
        if read.tzinfo is None:
            raise ValueError(f"line {number}: {value!r} has no time zone: end it with Z or an offset")
        return read.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LATEST:
        raise ValueError(f"line {number}: {value!r} is no time")
    return value / 1000 if abs(value) > MILLIS else float(value)


def _tokens(value: object, number: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LONGEST_TOKENS:
        raise ValueError(f"line {number}: {value!r} is no number of tokens")
    return value

"""Traces of requests from files: CSV, JSON lines, answers of Prometheus.

Decides which file is of which format and how each is read. What its figures mean is for
`autoscaler.replay.history`.
"""

import csv
import gzip
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from io import StringIO
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

from shardwright.autoscaler.replay.history import Keys, Window, of_lines, of_windows
from shardwright.autoscaler.replay.trace import Trace
from shardwright.cli.files import LARGEST_BYTES, InputError, name_of, of_file, read_text
from shardwright.cluster.documents import DocumentError, parse_json

COLUMNS: Final = ("arrival_s", "input_tokens", "output_tokens")
JSON_LINES: Final = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")


def read_trace(path: str) -> Trace:
    """Read a trace: JSON lines by the file's ending, else CSV. Raises InputError."""
    if path.endswith(JSON_LINES):
        return read_json_lines(path, Keys())[0]
    return _read_csv(path)


def read_json_lines(path: str, keys: Keys) -> tuple[Trace, int]:
    """Read a log; see `of_lines`. Raises InputError."""
    try:
        return of_lines(_objects(path), keys)
    except ValueError as error:
        raise of_file(path, error) from error


def read_prometheus(
    requests: str, input_tokens: str, output_tokens: str, window_s: float, seed: int
) -> Trace:
    """Read the answers to three range queries, each of what a counter grew by in `window_s`.

    The queries' step must be the window, else requests would be counted twice or not at all. Raises
    InputError.
    """
    series = [_matrix(path) for path in (requests, input_tokens, output_tokens)]
    times = sorted(series[0])
    for before, after in pairwise(times):
        if after - before < window_s - 1e-3:
            raise InputError(
                f"{name_of(requests)}: values are {after - before:g} s apart, and each stands for "
                f"{window_s:g} s: ask with a step of that, or say --window-seconds"
            )
    windows = [Window(at, series[0][at], series[1].get(at, 0.0), series[2].get(at, 0.0)) for at in times]
    for one in windows:
        if one.requests and not (one.input_tokens and one.output_tokens):
            raise InputError(
                f"{name_of(input_tokens)} and {name_of(output_tokens)}: have no tokens at {one.end_s:.0f}, "
                f"where {name_of(requests)} has requests: ask all three for the same times"
            )
    try:
        return of_windows(windows, window_s, seed)
    except ValueError as error:
        raise InputError(f"{name_of(requests)}: {error}") from error


def _matrix(path: str) -> dict[float, float]:
    """Read what the API answered to a range query, several series added up; NaN is left out."""
    where = name_of(path)
    try:
        answer: Any = parse_json(_text(path))
    except DocumentError as error:
        raise of_file(path, error) from error
    found: dict[float, float] = defaultdict(float)
    try:
        if answer["status"] != "success" or answer["data"]["resultType"] != "matrix":
            raise InputError(f"{where}: is not the answer to a range query (/api/v1/query_range)")
        for series in answer["data"]["result"]:
            for at, value in series["values"]:
                if isfinite(number := float(value)):
                    found[float(at)] += max(0.0, number)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: is not the answer to a range query (/api/v1/query_range)") from error
    if not all(map(isfinite, found)):
        raise InputError(f"{where}: has a value at a time that is none")
    if not found:
        raise InputError(f"{where}: has no values: no series matched, or there was none at that time")
    return dict(found)


def _objects(path: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Give the objects of JSON lines. Raises ValueError naming the line."""
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = parse_json(line)
        except DocumentError as error:
            raise ValueError(f"line {number}: {error}") from error
        if not isinstance(found, dict):
            raise DocumentError(f"line {number}: must be one object")
        yield number, found


def _read_csv(path: str) -> Trace:
    text = _text(path)
    try:
        return _of_csv(text)
    except (ValueError, csv.Error) as error:
        raise of_file(path, error) from error


def _of_csv(text: str) -> Trace:
    rows = csv.DictReader(StringIO(text))
    if rows.fieldnames is None or not set(COLUMNS) <= set(rows.fieldnames):
        raise ValueError(f"the first line must name the columns {', '.join(COLUMNS)}")
    found: list[tuple[float, int, int]] = []
    for number, row in enumerate(rows, 2):
        try:
            one = (float(row["arrival_s"]), int(row["input_tokens"]), int(row["output_tokens"]))
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {number}: is not three numbers") from error
        if not (0 <= one[0] < inf and 1 <= one[1] <= 10**8 and 1 <= one[2] <= 10**8):
            raise ValueError(f"line {number}: times start at 0, and lengths are from 1 to 100000000 tokens")
        found.append(one)
    if not found:
        raise ValueError("has no requests")
    found.sort()
    return Trace([r[0] for r in found], [r[1] for r in found], [r[2] for r in found])


def _text(path: str) -> str:
    """Read a file, unpacked when its name ends in .gz; not more than a file may have."""
    if not path.endswith(".gz"):
        return read_text(path)
    try:
        with gzip.open(Path(path)) as file:
            content = file.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise InputError(
                f"{path} is larger than {LARGEST_BYTES >> 20} MiB unpacked: leave out what is not needed"
            )
        return content.decode()
    except (OSError, EOFError, UnicodeDecodeError, ValueError, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read ({error})") from error

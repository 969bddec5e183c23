"""`shardwright trace` makes a trace of requests from a log of one's own, or from Prometheus.

Decides which options go together. Prints CSV as `shardwright simulate` reads it. Exit code: 0 printed, 2 bad
input.
"""

import argparse
import sys
from math import isfinite
from typing import Final

from shardwright.autoscaler.replay.history import INPUTS, OUTPUTS, TIMES, Keys
from shardwright.autoscaler.replay.trace import Trace
from shardwright.cli.decide import complain
from shardwright.cli.files import InputError
from shardwright.cli.trace_input import COLUMNS, read_json_lines, read_prometheus

PRINTED, BAD_INPUT = 0, 2
WINDOW_S: Final = 60.0


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "trace",
        help="a trace for simulate from a log of your own, or from Prometheus",
        description="Prints a trace of requests as CSV: from JSON lines, one request a line, or from the "
        "answers to three range queries. No text and no user is in it. Exit code: 0 printed, 2 bad input.",
    )
    parser.add_argument("log", nargs="?", metavar="FILE", help="JSON lines, also .gz; - for standard input")
    parser.add_argument("--time-key", metavar="KEY", help=f"a.b goes into an object; else {', '.join(TIMES)}")
    parser.add_argument("--input-key", metavar="KEY", help=f"else {', '.join(INPUTS)}")
    parser.add_argument("--output-key", metavar="KEY", help=f"else {', '.join(OUTPUTS)}")
    parser.add_argument("--requests", metavar="FILE", help="answer of Prometheus: requests in each window")
    parser.add_argument(
        "--input-tokens", metavar="FILE", help="answer of Prometheus: prompt tokens in each window"
    )
    parser.add_argument(
        "--output-tokens", metavar="FILE", help="answer of Prometheus: generated tokens in each window"
    )
    parser.add_argument(
        "--window-seconds",
        type=float,
        default=WINDOW_S,
        metavar="S",
        help="that one value stands for (%(default)g)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the times within a window")


def run(args: argparse.Namespace) -> int:
    """Read and print; return the exit code."""
    try:
        trace = _trace(args)
    except InputError as error:
        complain("trace", error)
        return BAD_INPUT
    print(",".join(COLUMNS))
    for at, into, out in zip(trace.arrival_s, trace.input_tokens, trace.output_tokens, strict=True):
        print(f"{at:.3f},{into},{out}")
    return PRINTED


def _trace(args: argparse.Namespace) -> Trace:
    answers = (args.requests, args.input_tokens, args.output_tokens)
    if (args.log is None) != all(answers) or (args.log is not None and any(answers)):
        raise InputError("name one log, or all of --requests, --input-tokens and --output-tokens")
    if not (isfinite(args.window_seconds) and args.window_seconds > 0):
        raise InputError(f"--window-seconds: must be above 0, not {args.window_seconds:g}")
    if args.log is None:
        return read_prometheus(*answers, args.window_seconds, args.seed)
    trace, empty = read_json_lines(args.log, _keys(args))
    if empty:
        print(f"left out {empty} requests without a prompt or an answer", file=sys.stderr)
    return trace


def _keys(args: argparse.Namespace) -> Keys:
    named = Keys()
    return Keys(
        time=(args.time_key,) if args.time_key else named.time,
        input=(args.input_key,) if args.input_key else named.input,
        output=(args.output_key,) if args.output_key else named.output,
    )

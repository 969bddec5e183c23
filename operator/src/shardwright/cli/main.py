"""The command `shardwright`: which subcommands there are, and which one to run.

Decides nothing itself. Only the chosen subcommand's module is imported, so that the offline commands load
neither kopf nor kubernetes.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from typing import Protocol, cast

COMMANDS = {
    "estimate": "will this model start on this GPU, and with how much KV cache?",
    "plan": "the operator's own decision for an LLMService, offline or against a cluster",
    "explain": "why the decision is what it is: text, JSON or a page with pictures",
    "simulate": "what the autoscaler would do with a log of requests",
    "trace": "a trace for simulate from a log of your own, or from Prometheus",
    "diff": "what a change does, before it is applied",
    "approve": "put a plan in force that waits",
    "rollback": "put an earlier revision in force again",
    "crds": "print the CustomResourceDefinition",
    "run": "run the operator",
    "endpoints": "keep a router's list of engines as the EndpointSlices have it",
}
BAD_INPUT = 2
CUT_OFF = 128 + 13
"""As a shell tells that SIGPIPE ended a command."""


class Command(Protocol):
    """What a subcommand's module offers."""

    def add_parser(self, subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        """Add the command's own parser."""

    def run(self, args: argparse.Namespace) -> int:
        """Run it and return the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code (2: bad input)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # not in tests
            stream.reconfigure(errors="backslashreplace")  # an odd name must not stop what is said of it
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="shardwright", description="Decides how to serve an LLM with vLLM, and says why."
    )
    parser.add_argument("--version", action="version", version=f"shardwright {_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    module: Command | None = None
    for name, summary in COMMANDS.items():
        if name == chosen:
            module = cast("Command", importlib.import_module(f"shardwright.cli.{name}"))
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary, add_help=False)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as stopped:  # argparse has printed what is wrong, or the help
        return stopped.code if isinstance(stopped.code, int) else BAD_INPUT
    return BAD_INPUT if module is None else _run(module, args)


def _run(module: Command, args: argparse.Namespace) -> int:
    try:
        code = module.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # head, or a pager that was left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CUT_OFF
    return code


def _version() -> str:
    try:
        return version("shardwright")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())

"""`shardwright diff`: what a change of manifests does, before it is applied.

Decides how the answer is printed and which exit code says it, after kubectl diff: 0 nothing is different, 1
something is, above 1 an error (2 bad input, 3 a new spec cannot run, 4 pods restart and that was not wanted).
What happens to a service is `cli.diff_service`'s.
"""

import argparse
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from shardwright.cli import live, pool_options
from shardwright.cli.decide import complain
from shardwright.cli.diff_input import applied_over, before_of_file, before_of_live, read_live, read_side
from shardwright.cli.diff_report import DiffReport, Running, ServiceDiff, Total
from shardwright.cli.diff_service import compare
from shardwright.cli.diff_text import text
from shardwright.cli.files import InputError
from shardwright.render.difference import Pods

SAME, DIFFERENT, BAD_INPUT, REFUSED, RESTARTS = 0, 1, 2, 3, 4
_DESCRIPTION: Final = (
    "What the operator will do when NEW takes the place of OLD, or, with -f, of what is live: "
    "plans, GPUs, price, and which pods restart. Exit code: 0 nothing is different, 1 something is, 2 bad "
    "input, 3 a new spec cannot run, 4 pods restart (only with --fail-on restart)."
)
_WHICH: Final = "write OLD NEW, or -f FILE to compare with the live objects"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "diff", help="what a change does, before it is applied", description=_DESCRIPTION
    )
    parser.add_argument(
        "files", nargs="*", metavar="OLD NEW",
        help="files, or folders of them, with the ConfigMap of a config.json beside its service; - for "
        "standard input, /dev/null for nothing",
    )  # fmt: skip
    parser.add_argument("-f", "--filename", metavar="FILE", help="compare this with the live objects")
    parser.add_argument(
        "-n", "--namespace", metavar="NS",
        help="of documents that name none; default: the context's with -f, else default",
    )  # fmt: skip
    parser.add_argument("--context", metavar="NAME", help="kubeconfig context for --cluster")
    pool_options.add(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument(
        "--fail-on", action="append", choices=("restart",), default=[], help="exit with 4 when pods restart"
    )


def run(args: argparse.Namespace) -> int:
    """Read, compare, print; return the exit code."""
    try:
        report = report_of(_against_live(args) if args.filename is not None else _of_files(args))
    except InputError as error:
        complain("diff", error)
        return BAD_INPUT
    if args.output == "json":
        print(json.dumps(report.model_dump(mode="json", by_alias=True), indent=2, ensure_ascii=False))
    else:
        print("\n".join(text(report)))
    if report.verdict == "Refused":
        return REFUSED
    if report.restarts and "restart" in args.fail_on:
        return RESTARTS
    return SAME if report.verdict == "NoChange" else DIFFERENT


def _of_files(args: argparse.Namespace) -> list[ServiceDiff]:
    if len(args.files) != 2:
        raise InputError(f"which two? {_WHICH}")
    if args.files.count("-") == 2:
        raise InputError("only one of OLD and NEW can be standard input")
    namespace = args.namespace or "default"
    old, new = (read_side(name, namespace=namespace) for name in args.files)
    nodes = pool_options.Nodes(args)
    found = []
    for key in sorted({*old, *new}):
        before = before_of_file(old[key], nodes) if key in old else None
        found.append(compare(key, before, new.get(key), nodes, live=False))
    return found


def _against_live(args: argparse.Namespace) -> list[ServiceDiff]:
    if args.files:
        raise InputError(_WHICH)
    namespace = args.namespace or live.namespace_of(args.context)
    new = read_side(args.filename, namespace=namespace)
    there = read_live(args.context, new)
    nodes = pool_options.Nodes(args)
    found = []
    for key, document in sorted(new.items()):
        before = before_of_live(there[key].found) if key in there else None
        merged = applied_over(document, there[key]) if key in there else document
        found.append(compare(key, before, merged, nodes, live=True))
    return found


def report_of(services: Sequence[ServiceDiff]) -> DiffReport:
    """Put services together."""
    verdict = "Changes" if any(s.change != "Unchanged" for s in services) else "NoChange"
    if any(s.refused for s in services):
        verdict = "Refused"
    return DiffReport.model_validate(
        {
            "verdict": verdict,
            "restarts": sum(1 for s in services if s.pods == Pods.RESTART.value),
            "before": _total([s.before for s in services if s.before is not None]),
            "after": _total([s.after for s in services if s.after is not None]),
            "services": list(services),
        }
    )


def _total(running: Sequence[Running]) -> Total:
    """Add up; nothing is known of the whole when something of a part is not."""
    gpus = [each.gpus for each in running if each.gpus is not None]
    prices = [Decimal(each.price_per_hour) for each in running if each.price_per_hour is not None]
    return Total(
        gpus=sum(gpus) if len(gpus) == len(running) else None,
        price_per_hour=f"{sum(prices, Decimal(0)):.2f}" if len(prices) == len(running) else None,
    )

"""`shardwright approve`: put a plan in force that waits, by `spec.approvedRevision`.

Decides what is asked before anything is written, and which exit code says what became of it: 0 written (or
printed), 1 not done, 2 bad input. What an approved revision runs is on record and cannot change.
"""

import argparse
import sys
from typing import Final

from shardwright.cli import counts, live, revisions
from shardwright.cli.files import InputError
from shardwright.cli.revisions import Live, Revision

DONE, NOT_DONE, BAD_INPUT = 0, 1, 2
_DESCRIPTION: Final = (
    "Puts a plan in force that waits for approval (planPolicy Manual), or that calibration proposes: writes "
    "spec.approvedRevision of the live object, with your own rights, or prints the line to commit to git. "
    "Exit code: 0 written or printed, 1 not done, 2 bad input."
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser("approve", help="put a plan in force that waits", description=_DESCRIPTION)
    parser.add_argument("name", metavar="NAME", help="the LLMService")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--revision",
        metavar="HASH",
        help="the revision that you were shown; default: what waits, after a question",
    )
    what.add_argument(
        "--clear",
        action="store_true",
        help="remove spec.approvedRevision: planPolicy alone decides again, and what the spec leads to takes "
        "effect unless it is Manual",
    )
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what approve and rollback share."""
    parser.add_argument("--context", metavar="NAME", help="kubeconfig context; default: the current one")
    parser.add_argument("-n", "--namespace", metavar="NS", help="default: the context's namespace")
    parser.add_argument(
        "--print", action="store_true", dest="only_print",
        help="write nothing, and print the line for git",
    )  # fmt: skip
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--force", action="store_true",
        help="write the live object although git states the field and will put its own value back",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Read, ask, write; return the exit code."""
    try:
        found = look(args)
        if args.clear:
            return clear(args, found)
        chosen = revisions.to_approve(found, args.revision)
        if found.approved == chosen.revision:
            print(f"revision {chosen.revision} of {found.name} is approved already")
            return DONE
        return put_in_force(args, found, chosen, asked_for=bool(args.revision), option="--revision")
    except InputError as error:
        print(f"shardwright approve: {error}", file=sys.stderr)
        return BAD_INPUT


def look(args: argparse.Namespace) -> Live:
    """Read the service. Raises InputError."""
    namespace = args.namespace or live.namespace_of(args.context)
    where = f"{namespace}/{args.name}"
    return live.ask(args.context, where, lambda api: revisions.read(api, namespace, args.name))


def clear(args: argparse.Namespace, found: Live) -> int:
    """Remove the field. Raises InputError."""
    if not found.approved:
        print(f"{found.name} has no spec.approvedRevision")
        return NOT_DONE
    if args.only_print:
        print(f"# under spec of LLMService {found.namespace}/{found.name}, remove:")
        print(revisions.line(found.approved))
        return DONE
    if _states_elsewhere(args, found, None):
        return NOT_DONE
    _write(args, found, None)
    print(f"spec.approvedRevision of {found.name} is removed")
    return DONE


def put_in_force(
    args: argparse.Namespace, found: Live, chosen: Revision, *, asked_for: bool, option: str
) -> int:
    """Write or print the field. Raises InputError, when nobody can be asked among others.

    `option` is how a revision is named, and `asked_for` says that this one was.
    """
    if args.only_print:
        print(f"# under spec of LLMService {found.namespace}/{found.name}:", file=sys.stderr)
        print(revisions.line(chosen.revision))
        return DONE
    for text in describe(found, chosen):
        print(text)
    if _states_elsewhere(args, found, chosen):
        return NOT_DONE
    if not (args.yes or asked_for) and not _agreed(chosen, option):
        return NOT_DONE
    _write(args, found, chosen.revision)
    print(f"revision {chosen.revision} of {found.name} is approved: {revisions.line(chosen.revision)}")
    tool = revisions.manager_of(found)
    if tool and not revisions.writers_of_the_field(found):
        print(f"note: {tool} manages {found.name}: commit this line too, so that git says what runs")
    return DONE


def _write(args: argparse.Namespace, found: Live, revision: str | None) -> None:
    where = f"{found.namespace}/{found.name}"
    live.ask(args.context, where, lambda api: revisions.write(api, found, revision))


def describe(found: Live, chosen: Revision) -> list[str]:
    """Return what is about to be in force, and what is different from what is."""
    running = found.in_force
    now = f"revision {running.revision} ({counts.summary(found, running)})" if running else "nothing"
    lines = [
        f"LLMService {found.namespace}/{found.name}: {now} is in force",
        f"to be in force: revision {chosen.revision} ({counts.summary(found, chosen)})",
    ]
    if found.proposal.get("revision") == chosen.revision:
        lines += [f"  {change}" for change in found.proposal.get("changes") or ()]
    return lines


def _agreed(chosen: Revision, option: str) -> bool:
    if not sys.stdin.isatty():
        raise InputError(
            f"there is nobody to ask: name what you were shown ({option} {chosen.revision}), or give --yes"
        )
    print("Put it in force? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _states_elsewhere(args: argparse.Namespace, found: Live, chosen: Revision | None) -> bool:
    """Whether git states the field, so that a write here would be put back; says what to do instead."""
    tool, writers = revisions.manager_of(found), revisions.writers_of_the_field(found)
    if not tool or not writers or args.force:
        return False
    change = f"commit {revisions.line(chosen.revision)}" if chosen else "remove the line there"
    print(
        f"{tool} manages {found.name} and states spec.approvedRevision ({', '.join(writers)}), so a change "
        f"here would be put back: {change}, or give --force",
        file=sys.stderr,
    )
    return True

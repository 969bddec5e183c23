"""`shardwright rollback`: put an earlier revision in force again, exactly as it was recorded.

Decides which revision is meant and how revisions are listed. Writing is `shardwright approve`'s.
"""

import argparse
import sys
from typing import Final

from shardwright.cli import approve, counts, revisions
from shardwright.cli.approve import BAD_INPUT, DONE
from shardwright.cli.files import InputError
from shardwright.cli.revisions import Live

_DESCRIPTION: Final = (
    "Puts an earlier revision in force again, as it was recorded: the same pods under the same name. It "
    "writes spec.approvedRevision of the live object, with your own rights, or prints the line to commit to "
    "git; what the rest of the spec leads to waits until `shardwright approve NAME --clear`. Exit code: 0 "
    "written, printed or listed, 1 not done, 2 bad input."
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "rollback", help="put an earlier revision in force again", description=_DESCRIPTION
    )
    parser.add_argument("name", metavar="NAME", help="the LLMService")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--to", metavar="HASH", help="the revision; default: the one that was in force before")
    what.add_argument("--list", action="store_true", dest="only_list", help="list the revisions on record")
    approve.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Read, ask, write; return the exit code."""
    try:
        found = approve.look(args)
        if args.only_list:
            print("\n".join(table(found)))
            return DONE
        chosen = revisions.to_roll_back(found, args.to)
        running = found.in_force
        if running is not None and running.revision == chosen.revision and found.approved == chosen.revision:
            print(f"revision {chosen.revision} of {found.name} is in force already")
            return DONE
        code = approve.put_in_force(args, found, chosen, asked_for=bool(args.to), option="--to")
    except InputError as error:
        print(f"shardwright rollback: {error}", file=sys.stderr)
        return BAD_INPUT
    if code == DONE and not args.only_print:
        print(
            "what the rest of the spec leads to waits now: put the spec right, then run "
            f"shardwright approve {found.name} -n {found.namespace} --clear"
        )
    return code


def table(found: Live) -> list[str]:
    """Return the revisions, the one in force first, each with the replicas that it runs or would run."""
    running = found.in_force
    rows = [("REVISION", "NUMBER", "PLAN", "STATE")]
    for revision in found.revisions:
        state = "in force" if running is not None and revision.revision == running.revision else "earlier"
        if revision.proposed:
            state = "waits"
        if revision.failed is not None:
            state = f"did not start ({revision.failed.reason})"
        if state == "earlier" and (left := counts.pods_left(found, revision)):
            state = f"earlier, {left} still there"
        if revision.revision == found.approved:
            state += ", approved"
        rows.append((revision.revision, str(revision.number), counts.summary(found, revision), state))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]

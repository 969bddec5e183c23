"""What is said of a plan that waits: to be approved, or beside a revision that is pinned.

Decides the sentence, with the command and the line that put the plan in force. Never decides that it waits.
"""

from typing import Final

from shardwright.api.reasons import Reason
from shardwright.diagnose.facts import ServiceFacts, WaitingFacts

_MOST_CHANGES: Final = 6


def reason_of(waiting: WaitingFacts) -> Reason:
    """Return the reason that a waiting plan gives to Planned, and to Ready."""
    return Reason.WAITS_FOR_APPROVAL if waiting.manual else Reason.REVISION_PINNED


def _shown(changes: list[str]) -> str:
    """Return the first changes and the last one, which says what becomes of the pods."""
    if len(changes) <= _MOST_CHANGES:
        return ", ".join(changes)
    left_out = f"{len(changes) - _MOST_CHANGES} more in status.proposal.changes"
    return ", ".join([*changes[: _MOST_CHANGES - 1], left_out, changes[-1]])


def sentence(facts: ServiceFacts, waiting: WaitingFacts) -> str:
    """Return what waits, what stays in force, and what to do."""
    proposal = waiting.proposal
    what = f"revision {proposal.revision} ({proposal.summary}: {_shown(proposal.changes)})"
    line = f'spec.approvedRevision: "{proposal.revision}"'
    command = f"shardwright approve {facts.name} -n {facts.namespace}"
    if waiting.manual:
        stays = f"revision {waiting.in_force} stays in force" if waiting.in_force else "nothing runs before"
        return (
            f"{what[0].upper()}{what[1:]} waits for approval; {stays}. To approve it: {command} --revision "
            f"{proposal.revision}, or write {line}"
        )
    return (
        f"spec.approvedRevision keeps revision {waiting.in_force} in force; the rest of the spec leads to "
        f"{what}, which waits. To run it: {command} --clear, or remove the field, or write {line}"
    )

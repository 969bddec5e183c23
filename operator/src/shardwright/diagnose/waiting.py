"""What is said of a plan that is not in force: it waits, another is pinned, or it was planned anew.

Decides the sentence, with the command and the line that put the plan in force. Never decides that it waits.
"""

from typing import Final

from shardwright.api.reasons import Reason
from shardwright.api.status import ProposalStatus
from shardwright.diagnose.facts import RecalculatedFacts, ServiceFacts, WaitingFacts

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


def _what(proposal: ProposalStatus) -> str:
    return f"revision {proposal.revision} ({proposal.summary}: {_shown(proposal.changes)})"


def approve_command(namespace: str, name: str, revision: str = "") -> str:
    """Return the command that puts in force what is proposed; of a `revision`, no other one."""
    return f"shardwright approve {name} -n {namespace}{revision and ' --revision ' + revision}"


def planned_anew(facts: ServiceFacts, found: RecalculatedFacts | None) -> str:
    """Return what becomes of a plan that is not as predicted; without a full stop."""
    if found is None:
        return "this plan stays, and a change of the spec plans anew"
    if found.refused:
        return f"counting with it nothing keeps what is stated ({found.refused}), and this plan stays"
    proposal = found.proposal
    if proposal is None:
        more = (
            f", and the load takes {found.replicas} replicas of it: write spec.scaling.minReplicas: "
            f"{found.replicas}"
        )
        return f"a plan that counts with it is the same{more if found.replicas else ''}"
    told = f"counting with it leads to {_what(proposal)}; revision {facts.target_revision} stays in force"
    if found.automatic and not found.left_before:
        when = "this has been measured for an hour without a pause, and there is room"
        return f"{told} until {when} (planPolicy Auto)"
    back = ", since planPolicy Auto goes back to nothing that was in force" if found.automatic else ""
    command = approve_command(facts.namespace, facts.name, proposal.revision)
    return f'{told}{back}. To run it: {command}, or write spec.approvedRevision: "{proposal.revision}"'


def sentence(facts: ServiceFacts, waiting: WaitingFacts) -> str:
    """Return what waits, what stays in force, and what to do."""
    proposal = waiting.proposal
    what = _what(proposal)
    line = f'spec.approvedRevision: "{proposal.revision}"'
    command = approve_command(facts.namespace, facts.name)
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

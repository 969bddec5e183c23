"""Which revision of a service shall be in force, and which one waits.

Decides from what is on record, from what the spec leads to and from what was approved. Nothing here looks at
pods, and nothing is rendered: a revision is named by its hash, and what is on record under that name is what
runs. The operator and `shardwright diff` both ask here, so that a diff says what the operator will do.

A revision's number says whether it was ever in force: the operator records what waits as number 0, and puts a
revision in force by giving it a number above all others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from shardwright.api.llmservice import LLMServiceSpec

PROPOSED: Final = 0
"""Number of a revision that is on record and was never in force."""


class Record(Protocol):
    """What of a ControllerRevision matters here."""

    @property
    def revision(self) -> str:
        """Hash of the revision."""
        ...

    @property
    def number(self) -> int:
        """Its number; PROPOSED when it was never in force."""
        ...

    @property
    def template_digest(self) -> str:
        """Digest of the spec that it was made for (`render.digest.template_digest`)."""
        ...


R = TypeVar("R", bound=Record)


def newest_first(records: Iterable[R]) -> list[R]:
    """Return records with the one in force first, and those that were never in force last."""
    return sorted(records, key=lambda record: -record.number)


def in_force(records: Iterable[R]) -> R | None:
    """Return the revision in force: of those that were ever in force, the newest."""
    return next((record for record in newest_first(records) if record.number > PROPOSED), None)


def on_record(records: Sequence[R], digest: str, decided: str) -> R | None:
    """Return the revision that a spec is known to lead to, without planning; else None.

    `digest` is the spec's own; `decided` is the revision that the status names for this very generation, or
    empty. A change that led to the same pods is known from there only: a revision's data cannot change.
    """
    for record in newest_first(records):
        if record.template_digest == digest:
            return record
    return next((record for record in records if record.revision == decided), None) if decided else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What shall be in force. Revisions are named by their hashes; empty: none."""

    force: str
    """The revision to run."""
    waits: str = ""
    """The revision that the spec leads to, while another one is in force, or none."""
    unknown: bool = False
    """`spec.approvedRevision` names no revision that is on record or that the spec leads to."""


def rule(spec: LLMServiceSpec, *, leads_to: str, records: Sequence[Record]) -> Ruling:
    """Decide which revision shall be in force.

    `leads_to` is the revision that the spec leads to, empty while it leads to none (it cannot be used or has
    no plan). An approved revision is in force whatever the policy is and whatever else the spec says. Without
    one, planPolicy Manual leaves in force what is, and the other policies take what the spec leads to.
    """
    running = in_force(records)
    force = running.revision if running is not None else ""
    approved, unknown = spec.approved_revision or "", False
    if approved:
        if approved == leads_to or any(record.revision == approved for record in records):
            force = approved
        else:
            unknown = True
    elif spec.plan_policy != "Manual" and leads_to:
        force = leads_to
    return Ruling(force=force, waits=leads_to if leads_to != force else "", unknown=unknown)

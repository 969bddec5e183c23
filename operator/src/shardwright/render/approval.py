"""Which revision of a service shall be in force, and which one waits.

Decides from what is on record, from what the spec leads to and from what was approved. Nothing here looks at
pods, and nothing is rendered: a revision is named by its hash, and what is on record under that name is what
runs. The operator and `shardwright diff` both ask here, so that a diff says what the operator will do.

A revision's number says whether it was ever in force: the operator records what waits as number 0, and puts a
revision in force by giving it a number above all others.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from shardwright.api.defaults import Resolved
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.planner.load import load_of, replicas_of
from shardwright.planner.types import LoadKind, Plan

PROPOSED: Final = 0
"""Number of a revision that is on record and was never in force."""


CALIBRATED: Final = "+calibration"
"""End of the digest that goes on record with what calibration alone proposes: its spec leads to it only once
it is approved or was in force."""


def led_to(proposal: Mapping[str, object]) -> str:
    """Return the revision of a status' proposal that its spec leads to; what calibration proposes is none."""
    return "" if proposal.get("cause") == "Calibration" else str(proposal.get("revision", ""))


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


def on_record(records: Sequence[R], digest: str, decided: str, *, approved: str = "") -> R | None:
    """Return the revision that a spec is known to lead to, without planning; else None.

    `digest` is the spec's own; `decided` is the revision that the status names for this very generation, or
    empty. A change that led to the same pods is known from there only: a revision's data cannot change. Of
    several that were made for one spec the `approved` one comes first, then the one in force last.
    """
    ours = [r for r in newest_first(records) if r.template_digest in {digest, digest + CALIBRATED}]
    for record in ours:
        if record.revision == approved:
            return record
    for record in ours:
        if record.number > PROPOSED or record.template_digest == digest:
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
    failed: str = ""
    """The revision that would be in force, had it started."""


def rule(
    spec: LLMServiceSpec,
    *,
    leads_to: str,
    records: Sequence[Record],
    failed: Collection[str] = (),
    running: Mapping[str, int] | None = None,
) -> Ruling:
    """Decide which revision shall be in force.

    `leads_to` is the revision that the spec leads to, empty while it leads to none (it cannot be used or has
    no plan). An approved revision is in force whatever the policy is and whatever else the spec says. Without
    one, planPolicy Manual leaves in force what is, and the other policies take what the spec leads to. In
    place of one that `failed` to start comes the one before it (`_before`).
    """
    newest = in_force(records)
    force = newest.revision if newest is not None else ""
    approved, unknown = spec.approved_revision or "", False
    if approved:
        if approved == leads_to or any(record.revision == approved for record in records):
            force = approved
        else:
            unknown = True
    elif spec.plan_policy != "Manual" and leads_to:
        force = leads_to
    back = _before(records, failed, running) if force in failed else ""
    given_up, force = (force, back) if back else ("", force)
    waits = leads_to if leads_to != force else ""
    return Ruling(force=force, waits=waits, unknown=unknown, failed=given_up)


def _before(records: Sequence[Record], failed: Collection[str], running: Mapping[str, int] | None) -> str:
    """Return the revision to go back to; empty when there is none.

    The one in force, once that is another one again. Until then the one of which most replicas answer, of
    those that still have a workload (`running`: answering replicas by revision; None: not known, any has).
    """
    newest = in_force(records)
    if newest is not None and newest.revision not in failed:
        return newest.revision
    left = [
        record
        for record in records
        if record.number > PROPOSED
        and record.revision not in failed
        and (running is None or record.revision in running)
    ]
    best = max(
        left, key=lambda record: ((running or {}).get(record.revision, 0), record.number), default=None
    )
    return best.revision if best is not None else ""


def replicas_beside(plan: Plan, resolved: Resolved, max_gpus: int, *, recorded: int, live: int) -> int:
    """Return the replicas of a revision in force that the spec does not lead to.

    Scaling is obeyed. What else the spec says waits with the plan that it leads to: neither its load nor its
    budget takes a replica from what runs, nor adds one. `recorded` is how many were wanted of this revision
    so far, 0 when it was not in force; `live` is how many it has.
    """
    each, scale = max(1, plan.gpus_per_replica), resolved.scale
    most = max(max_gpus // each, recorded)
    wanted = replicas_of(plan, resolved, most * each)
    if scale.mode == "External" or plan.speed is None or load_of(resolved).kind is LoadKind.NONE:
        return wanted
    return min(max(recorded or max(wanted, live), scale.planned_replicas), most)


def replicas_held(plan: Plan, resolved: Resolved, max_gpus: int, *, running: int) -> int:
    """Return the replicas of what the last spec left running, while this one leads to nothing.

    What the last load took stays until a spec can be run; scaling is obeyed, and nothing is added beyond what
    `scaling` itself asks for. `running` counts the replicas of all revisions.
    """
    each, scale = max(1, plan.gpus_per_replica), resolved.scale
    wanted = replicas_of(plan, resolved, max(max_gpus, running * each))
    if plan.speed is not None and plan.speed.kind is not LoadKind.NONE and scale.mode != "External":
        wanted = max(wanted, running)
    return min(wanted, max(running, scale.planned_replicas))

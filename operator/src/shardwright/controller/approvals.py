"""What policy, `spec.approvedRevision` and failed starts let be in force of what a spec leads to.

Decides a service's target where that is not simply what the spec leads to: `render.approval` rules, and here
the ruling becomes a proposal with what waits beside it. Never plans and never writes: what is put in force of
what is on record is applied as it was recorded.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from shardwright.api.llmservice import LLMService
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.cluster.facts import ChildFacts, ServiceEntry
from shardwright.controller.planning import Planning, Proposal, Waiting
from shardwright.planner.types import NoPlan, Plan
from shardwright.render.approval import PROPOSED, in_force, rule
from shardwright.render.failed_start import failed_for
from shardwright.render.revision import RevisionError

_LOG = logging.getLogger(__name__)

_MOST_NAMED: Final = 8


def govern(
    planning: Planning,
    entry: ServiceEntry,
    service: LLMService,
    wanted: Proposal,
    revisions: list[ChildFacts],
    *,
    running: Mapping[str, int],
) -> Proposal:
    """Return what is to be in force, given what the spec leads to (`wanted`) and what is on record.

    `running` has the answering replicas of each revision that has a workload.
    """
    spec = service.spec
    failed: frozenset[str] = frozenset()
    if any(revision.failed is not None for revision in revisions):
        failed = failed_for(revisions, planning.start_key(entry, service))
    if spec.approved_revision is None and spec.plan_policy != "Manual" and not failed:
        return wanted
    readable = [r for r in revisions if _core(planning, entry, r) is not None]
    leads_to = "" if wanted.held else wanted.target
    ruling = rule(spec, leads_to=leads_to, records=readable, failed=failed, running=running)
    governed = wanted
    if ruling.waits or ruling.force != wanted.target:
        governed = _instead(
            planning, entry, wanted, next((r for r in readable if r.revision == ruling.force), None)
        )
    if ruling.waits:
        governed.waiting = _waiting(wanted, revisions)
    governed.failed = ruling.failed
    if ruling.unknown:
        governed.problems = (*governed.problems, _unknown(spec.approved_revision or "", leads_to, readable))
        governed.held = bool(governed.target)
    return governed


def _instead(
    planning: Planning, entry: ServiceEntry, wanted: Proposal, record: ChildFacts | None
) -> Proposal:
    """Return a proposal of what is on record, or of nothing, in place of what the spec leads to."""
    same = record is not None and entry.status.plan_revision == record.revision
    return replace(
        wanted,
        decision=wanted.decision if isinstance(wanted.decision, NoPlan) else None,
        held=record is not None and (wanted.held or not wanted.target),
        target=record.revision if record is not None else "",
        core=planning.core_of(entry.uid, record) if record is not None else None,
        record=record,
        recorded_replicas=entry.status.plan_replicas if same else 0,
    )


def _waiting(wanted: Proposal, revisions: list[ChildFacts]) -> Waiting:
    if wanted.core is None:
        raise ValueError("what waits has a plan")
    return Waiting(
        revision=wanted.target,
        core=wanted.core,
        record=next((r for r in revisions if r.revision == wanted.target), None),
        decision=wanted.decision if isinstance(wanted.decision, Plan) else None,
    )


def _core(planning: Planning, entry: ServiceEntry, revision: ChildFacts) -> Plan | None:
    try:
        return planning.core_of(entry.uid, revision)
    except RevisionError as error:
        _LOG.warning("revision unreadable service=%s revision=%s error=%s", entry.key, revision.name, error)
        return None


def _unknown(approved: str, leads_to: str, revisions: list[ChildFacts]) -> Problem:
    running = in_force(revisions)
    # Of those that were never in force only what the spec leads to stays on record.
    names = {leads_to: " (what the spec leads to)"} if leads_to else {}
    names |= {r.revision: "" for r in revisions if r.number > PROPOSED and r.revision != leads_to}
    if running is not None:
        names[running.revision] = " (in force)"
    listed = ", ".join(f"{name}{mark}" for name, mark in [*names.items()][:_MOST_NAMED]) or "none yet"
    return Problem(
        reason=Reason.UNKNOWN_REVISION,
        field="spec.approvedRevision",
        message=f"there is no revision {approved}; there are: {listed}. Write one of them, or remove the "
        "field",
    )

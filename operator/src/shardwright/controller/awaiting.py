"""What is told of a revision that waits: its choice, and what is different from the one in force.

Decides that nothing is proposed which is not on record: what is approved is exactly what was shown.
"""

from typing import Final

from shardwright.api.defaults import resolve
from shardwright.api.status import ProposalStatus
from shardwright.cluster.facts import ChildFacts
from shardwright.cluster.json import JsonObject
from shardwright.controller.work import Situation
from shardwright.diagnose.facts import WaitingFacts
from shardwright.planner.load import replicas_of
from shardwright.planner.report import decimal
from shardwright.render.difference import MAX_CHANGES, Outline, arrangement, phrases, template_changes

_LONGEST: Final = 200
"""Characters of one change in a status."""


def waiting_facts(now: Situation) -> WaitingFacts | None:
    """Return what waits; None when nothing does, or while it is not on record yet."""
    waiting = now.proposal.waiting
    record = now.record_of(waiting.revision) if waiting is not None else None
    if waiting is None or record is None:
        return None
    spec = now.service.spec
    count = replicas_of(waiting.core, now.entry.resolved or resolve(spec), spec.pool.max_gpus)
    after = Outline(revision=waiting.revision, plan=waiting.core, replicas=count)
    core, before = now.proposal.core, None
    if core is not None:
        before = Outline(revision=now.target, plan=core, replicas=now.desired)
    changes = list(phrases(before, after))
    running = now.record_of(now.target)
    if core is not None and running is not None:
        same = not arrangement(core, waiting.core)
        changes[-1:-1] = template_changes(_template(running), _template(record), same_arrangement=same)
    price = after.price_per_hour
    proposal = ProposalStatus(
        revision=waiting.revision,
        summary=after.summary,
        replicas=count,
        gpus=after.gpus,
        price_per_hour=None if price is None else decimal(price),
        changes=_bounded(changes),
    )
    return WaitingFacts(proposal=proposal, in_force=now.target, manual=spec.plan_policy == "Manual")


def _template(record: ChildFacts) -> JsonObject:
    template: JsonObject = record.stored().get("template") or {}
    return template


def _bounded(changes: list[str]) -> list[str]:
    """Keep the last, which says what becomes of the pods."""
    clipped = [change if len(change) <= _LONGEST else f"{change[: _LONGEST - 1]}…" for change in changes]
    if len(clipped) <= MAX_CHANGES:
        return clipped
    left_out = f"{len(clipped) - MAX_CHANGES + 1} more"
    return [*clipped[: MAX_CHANGES - 2], left_out, clipped[-1]]

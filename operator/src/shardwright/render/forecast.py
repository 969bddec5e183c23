"""What the operator will do when a spec takes the place of another: the same rules, ahead of time.

Decides which revision is in force afterwards, which one waits, and how many replicas run, from what is on
record before. Whether a revision is new is the digest's and the hash's to say (`render.digest`), which one
runs and how many of it `render.approval`'s. Never plans: it is told what the planner says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.planner.load import Sized, replicas_of, size_kept
from shardwright.planner.types import Plan
from shardwright.render.approval import PROPOSED, in_force, on_record, replicas_beside, replicas_held, rule
from shardwright.render.difference import Outline, Pods, pods_between
from shardwright.render.digest import revision_hash, template_digest
from shardwright.render.failed_start import FailedStart, failed_for, spec_key
from shardwright.render.request import JsonObject
from shardwright.render.revision import read_revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A revision that is on record, or that a decision leads to."""

    revision: str
    number: int = PROPOSED
    template_digest: str = ""
    plan: Plan | None = None
    """None when only its name is known."""
    template: JsonObject | None = None
    """Its pod template as recorded; None when it is not on record."""
    pod_monitor: bool = False
    """How its metrics are scraped, which a new revision goes on with as long as the cluster does."""
    failed: FailedStart | None = None
    """That it did not start."""

    def outline(self, replicas: int) -> Outline | None:
        """Return it with its replicas; None when only its name is known."""
        if self.plan is None:
            return None
        return Outline(revision=self.revision, plan=self.plan, replicas=replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Before and after."""

    before: Revision | None = None
    """In force before."""
    after: Revision | None = None
    """In force afterwards."""
    waits: Revision | None = None
    """What the spec leads to, when that is not in force afterwards."""
    unknown: bool = False
    """The spec approves a revision that there is none of."""
    failed: str = ""
    """The revision that would be in force afterwards, had it started when it was tried."""
    replicas_before: int = 0
    replicas_after: int = 0
    replicas_waiting: int = 0

    @property
    def pods(self) -> Pods:
        """What becomes of the pods."""
        before, after = self.outlines
        if (before is None) == (self.before is None) and (after is None) == (self.after is None):
            return pods_between(before, after)
        # Only the name of one is known: it runs, as far as anybody can tell.
        names = [revision.revision if revision else "" for revision in (self.before, self.after)]
        if names[0] == names[1]:
            return Pods.STAY
        return Pods.RESTART if all(names) else Pods.START if names[1] else Pods.STOP

    @property
    def outlines(self) -> tuple[Outline | None, Outline | None]:
        """What runs before and afterwards; None where nothing does, or nothing but a name is known."""
        return (
            self.before.outline(self.replicas_before) if self.before else None,
            self.after.outline(self.replicas_after) if self.after else None,
        )

    @property
    def waiting(self) -> Outline | None:
        """What waits, with its replicas; None when nothing does."""
        return self.waits.outline(self.replicas_waiting) if self.waits else None


def known_without_planning(records: Sequence[Revision], spec: LLMServiceSpec) -> Revision | None:
    """Return the revision on record that a spec leads to; the planner is only asked when there is none."""
    found = on_record(records, template_digest(spec), "", approved=spec.approved_revision or "")
    return found if found is not None and found.plan is not None else None


def led_to(records: Sequence[Revision], spec: LLMServiceSpec, decision: Plan) -> Revision:
    """Return the revision that a new plan leads to: the one on record when it makes the same pods."""
    name = revision_hash(spec, decision)
    known = next((record for record in records if record.revision == name), None)
    return Revision(
        revision=name,
        number=known.number if known else PROPOSED,
        template_digest=known.template_digest if known else template_digest(spec),
        plan=decision,
        template=known.template if known else None,
    )


def forecast(
    records: Sequence[Revision],
    spec: LLMServiceSpec,
    leads_to: Revision | None,
    *,
    replicas: int,
    sized: Sized | None = None,
) -> Forecast:
    """Return what happens when `spec` is applied to a service with these records and so many replicas.

    `sized`: the size that its status tells; None while the planned count holds.

    `leads_to` is what the spec leads to, None when it leads to nothing: then what runs keeps running.
    """
    before = in_force(records)
    failed: frozenset[str] = frozenset()
    if any(record.failed is not None for record in records):
        failed = failed_for(records, spec_key(template_digest(spec), spec.approved_revision))
    name = leads_to.revision if leads_to else ""
    ruling = rule(spec, leads_to=name, records=records, failed=failed)
    after = _named(ruling.force, leads_to, records)
    waits = _named(ruling.waits, leads_to, records)
    resolved, max_gpus = resolve(spec), spec.pool.max_gpus
    same = before is not None and after is not None and before.revision == after.revision
    count = replicas if same else 0
    if after is not None and after.plan is not None:
        if leads_to is None or ruling.unknown:
            count = replicas_held(after.plan, resolved, max_gpus, running=replicas)
        elif after.revision == leads_to.revision:
            count = replicas_of(after.plan, resolved, max_gpus)
        else:
            count = replicas_beside(after.plan, resolved, max_gpus, recorded=count, live=count)
        if sized is not None and resolved.scale.mode != "External":
            leads = leads_to is not None and not ruling.unknown and after.revision == leads_to.revision
            each, scale = max(1, after.plan.gpus_per_replica), resolved.scale
            low = max(scale.min_replicas, count) if resolved.survive_node_loss else scale.min_replicas
            count = size_kept(
                sized,
                planned=count if leads else None,
                low=low,
                high=scale.max_replicas,
                most=max(max_gpus // each, 0 if leads else replicas),
                sleeps=scale.idle_seconds is not None and scale.min_replicas == 0,
            )
    return Forecast(
        before=before,
        after=after,
        waits=waits,
        unknown=ruling.unknown,
        failed=ruling.failed,
        replicas_before=replicas,
        replicas_after=count,
        replicas_waiting=replicas_of(waits.plan, resolved, max_gpus) if waits and waits.plan else 0,
    )


def _named(name: str, leads_to: Revision | None, records: Sequence[Revision]) -> Revision | None:
    """Return a revision by its name: with the new plan's figures when the spec leads to it."""
    if not name:
        return None
    if leads_to is not None and leads_to.revision == name:
        return leads_to
    return next((record for record in records if record.revision == name), None)


def read_record(data: dict[str, Any], *, revision: str, number: int) -> Revision:
    """Read a ControllerRevision's `data`. Raises RevisionError."""
    stored = read_revision(data)
    return Revision(
        revision=revision,
        number=number,
        template_digest=stored.digest,
        plan=stored.plan,
        template=stored.template,
        pod_monitor=stored.pod_monitor,
    )

"""One service of `shardwright diff`: what the operator will do with it.

Decides how a forecast is said. The forecast itself is `render.forecast`'s, from the operator's own rules; the
plan is the planner's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMService
from shardwright.api.reasons import Reason
from shardwright.cli.decide import decide_service
from shardwright.cli.diff_fields import changed_fields, running_of
from shardwright.cli.diff_input import Before, Document, Key, render_template
from shardwright.cli.diff_report import Refusal, ServiceDiff
from shardwright.cli.files import InputError, UsageError, one_line
from shardwright.cli.plan_input import with_models
from shardwright.cli.pool_options import Nodes
from shardwright.diagnose.budget import cut_by_budget
from shardwright.planner.types import NoPlan
from shardwright.render.approval import in_force
from shardwright.render.difference import Outline, Pods, arrangement, phrases, pods_phrase, template_changes
from shardwright.render.forecast import Forecast, Revision, forecast, known_without_planning, led_to

Change = Literal["Added", "Removed", "Changed", "Unchanged"]


@dataclass(slots=True)
class Comparison:
    """One service while it is compared."""

    key: Key
    old: Before
    added: bool
    notes: list[str] = field(default_factory=list)
    refused: Refusal | None = None
    planned: bool = False
    """The planner was asked; a refusal is then its own."""

    def made(
        self, change: Change, said: list[str], found: Forecast, *, service: LLMService | None = None
    ) -> ServiceDiff:
        """Return the report."""
        old = self.old.service
        return ServiceDiff(
            namespace=self.key[0],
            name=self.key[1],
            change=change,
            pods=found.pods.value,
            summary=", ".join(said),
            phrases=said,
            before=running_of(found.before, found.replicas_before),
            after=running_of(found.after, found.replicas_after),
            waits=running_of(found.waits, found.replicas_waiting),
            waits_phrases=list(_differences(found.outlines[1], found.waiting, found.after)),
            refused=self.refused,
            fields=changed_fields(old.spec, service.spec) if old is not None and service is not None else [],
            pod_changes=list(_pod_changes(service, found)) if service is not None else [],
            notes=[*self.old.notes, *self.notes, *([] if change == "Unchanged" else _advice(found))],
        )


def _advice(found: Forecast) -> Iterator[str]:
    """Give what is advised of the plan that the new spec leads to, and was not of the one before."""
    before, later = found.before, found.waits or found.after
    known = {each.message for each in before.plan.advice} if before and before.plan else set()
    for each in later.plan.advice if later and later.plan else ():
        if each.message not in known:
            yield f"{each.message} ({each.reason})"


def compare(
    key: Key, before: Before | None, new: Document | None, nodes: Nodes, *, live: bool
) -> ServiceDiff:
    """Return what happens to one service when `new` takes the place of what is there. Raises UsageError."""
    this = Comparison(key=key, old=before or Before(), added=before is None)
    running, count = in_force(this.old.records), this.old.replicas
    if new is None:
        gone = Forecast(before=running, replicas_before=count)
        return this.made("Removed", ["removed", *_whole(gone)], gone)
    try:
        service = new.service()
    except InputError as error:
        this.refused = Refusal(reason=error.reason.value, message=one_line(error))
        kept = Forecast(before=running, after=running, replicas_before=count, replicas_after=count)
        said = [_refusal(this.refused, runs=running is not None)]
        return this.made("Added" if this.added else "Changed", said, kept)
    leads_to = _leads_to(this, service, new, nodes)
    records = [*this.old.records, *_only_named(this, service, leads_to, live=live)]
    found = forecast(records, service.spec, leads_to, replicas=count, sized=this.old.sized)
    if found.unknown:
        _refuse_unknown(this, service, records)
    _note_cut(this, service, found)
    return _report(this, service, found)


def _note_cut(this: Comparison, service: LLMService, found: Forecast) -> None:
    """Note that `pool.maxGPUs` leaves fewer replicas than are asked for."""
    plan = found.after.plan if found.after is not None else None
    if plan is None:
        return
    cut = cut_by_budget(
        service.spec,
        resolve(service.spec),
        gpus_per_replica=plan.gpus_per_replica,
        run=found.replicas_after,
    )
    if cut is not None:
        this.notes.append(cut.sentence)


def _leads_to(this: Comparison, service: LLMService, new: Document, nodes: Nodes) -> Revision | None:
    """Return the revision that the spec leads to; None, and the refusal is noted, when it leads to none."""
    known = known_without_planning(this.old.records, service.spec)
    if known is not None:
        return known
    try:
        decided = decide_service(with_models(service, new.config_maps), nodes)
    except UsageError:
        raise
    except InputError as error:
        this.refused = Refusal(reason=error.reason.value, message=one_line(error))
        return None
    this.notes += decided.notes
    this.planned = True
    if isinstance(decided.decision, NoPlan):
        this.refused = Refusal(reason=decided.decision.reason.value, message=decided.decision.message)
        return None
    return led_to(this.old.records, service.spec, decided.decision)


def _only_named(
    this: Comparison, service: LLMService, leads_to: Revision | None, *, live: bool
) -> Iterator[Revision]:
    """Give the approved revision when only the cluster knows it: it is taken to be on record there."""
    approved = service.spec.approved_revision
    names = {record.revision for record in this.old.records} | ({leads_to.revision} if leads_to else set())
    if approved and approved not in names and not live:
        this.notes.append(f"revision {approved} is taken to be on record; -f FILE looks")
        yield Revision(revision=approved)


def _refuse_unknown(this: Comparison, service: LLMService, records: list[Revision]) -> None:
    """Note that the approved revision is none. The operator says a spec's problems first, then its plan's."""
    known = ", ".join(record.revision for record in records) or "none yet"
    approved = service.spec.approved_revision
    unknown = Refusal(
        reason=Reason.UNKNOWN_REVISION.value,
        message=f"spec.approvedRevision: there is no revision {approved}; there are: {known}",
    )
    first, second = (this.refused, unknown) if this.refused and not this.planned else (unknown, this.refused)
    this.refused = first
    if second is not None:
        this.notes.append(second.message)


def _report(this: Comparison, service: LLMService, found: Forecast) -> ServiceDiff:
    old = this.old.service
    same = old is not None and old.spec == service.spec and found.pods is Pods.STAY
    if same and not this.added:
        return this.made("Unchanged", ["no change"], found, service=service)
    said = [*_said(this, service, found)]
    return this.made("Added" if this.added else "Changed", said, found, service=service)


def _said(this: Comparison, service: LLMService, found: Forecast) -> Iterator[str]:
    """Give the parts of a service's line."""
    before, after = found.outlines
    if this.refused is not None:
        yield _refusal(this.refused, runs=found.after is not None)
    if this.added and after is not None:
        yield f"new: {after.summary}"
    if this.refused is None or before != after:
        yield from _whole(found)
    if found.waits is not None:
        waiting = found.waiting
        parts = ", ".join(_differences(after, waiting, found.after))
        what = f" ({': '.join(part for part in (waiting.summary, parts) if part)})" if waiting else ""
        why = "for approval" if service.spec.plan_policy == "Manual" else "while another is pinned"
        if found.failed == found.waits.revision:
            why = "since it did not start"
        yield f"revision {found.waits.revision}{what} waits {why}"


def _whole(found: Forecast) -> tuple[str, ...]:
    """Return what changes in what runs; where only a name is known, the name."""
    before, after = found.outlines
    if (before is None) == (found.before is None) and (after is None) == (found.after is None):
        return phrases(before, after)
    names = [revision.revision if revision else "nothing" for revision in (found.before, found.after)]
    pods = "pods start" if found.pods is Pods.START else pods_phrase(found.pods, before, after)
    return (pods,) if names[0] == names[1] else (f"revision {names[0]}→{names[1]}", pods)


def _differences(
    after: Outline | None, waiting: Outline | None, in_force_then: Revision | None
) -> tuple[str, ...]:
    """Return what would change if what waits were approved; nothing while only a name is in force."""
    if waiting is None or (after is None and in_force_then is not None):
        return ()
    return phrases(after, waiting)


def _refusal(refused: Refusal, *, runs: bool) -> str:
    kept = "what runs keeps running" if runs else "nothing starts"
    return f"cannot run ({refused.reason}: {refused.message.rstrip('.')}), {kept}"


def _pod_changes(service: LLMService, found: Forecast) -> tuple[str, ...]:
    """Return what is different in the pods, between what runs and what will, or would when approved."""
    before, later = found.before, found.waits or found.after
    if before is None or later is None or before.revision == later.revision:
        return ()
    if before.plan is None or later.plan is None:
        return ()
    old = render_template(service, before, pod_monitor=before.pod_monitor)
    new = render_template(service, later, pod_monitor=before.pod_monitor)
    if old is None or new is None:
        return ()
    return template_changes(old, new, same_arrangement=not arrangement(before.plan, later.plan))

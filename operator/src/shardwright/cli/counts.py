"""How many replicas a revision runs, or would run if it were put in force, beside the recorded count.

Decides what is told of a live service's revisions: what the status knows, else what the operator's own rules
say. A record keeps the count of the day that it was made; /scale and `scaling` have their say afterwards.
"""

from shardwright.cli.diff_input import before_of_live
from shardwright.cli.revisions import Live, Raw, Revision
from shardwright.render.approval import led_to, on_record
from shardwright.render.digest import template_digest
from shardwright.render.forecast import forecast


def summary(found: Live, revision: Revision) -> str:
    """Return its plan with the replicas that run of it, or would, and the recorded ones where they differ."""
    shape, _, recorded = revision.summary.rpartition(" ×")
    count = of_plan(_status(found), revision.revision)
    if count is None:
        count = _if_in_force(found, revision)
    if count is None or not shape or recorded == str(count):
        return revision.summary
    return f"{shape} ×{count} (recorded with ×{recorded})"


def pods_left(found: Live, revision: Revision) -> int:
    """Return the replicas that a workload of this revision states now, as the status says."""
    told = _status(found).get("revisions") or ()
    return sum(int(each.get("replicas") or 0) for each in told if each.get("hash") == revision.revision)


def of_plan(status: Raw, revision: str) -> int | None:
    """Return the replicas that a status says are wanted of a revision, or would be; None when it does not."""
    for told in (status.get("plan") or {}, status.get("proposal") or {}):
        if told.get("revision") == revision and told.get("replicas") is not None:
            return int(told["replicas"])
    return None


def _if_in_force(found: Live, revision: Revision) -> int | None:
    """Ask the operator's rules; None when the record or the spec cannot be read."""
    before = before_of_live(found)
    if before.service is None:
        return None
    spec, status = before.service.spec, _status(found)
    decided = led_to(status.get("proposal") or {}) or str((status.get("plan") or {}).get("revision", ""))
    leads_to = on_record(before.records, template_digest(spec), decided, approved=revision.revision)
    approved = spec.model_copy(update={"approved_revision": revision.revision})
    then = forecast(before.records, approved, leads_to, replicas=before.replicas, sized=before.sized)
    if then.after is None or then.after.revision != revision.revision or then.after.plan is None:
        return None
    return then.replicas_after


def _status(found: Live) -> Raw:
    status: Raw = found.service.get("status") or {}
    return status

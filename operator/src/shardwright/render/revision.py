"""A revision as it is kept: the `data` of an apps/v1 ControllerRevision.

Decides what of a revision is stored, so that a restarted or upgraded operator re-applies exactly what runs
without planning or rendering anew. Stored data is never rewritten: Kubernetes refuses it, and so a template
cannot drift.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from shardwright.api.status import PlanStatus
from shardwright.planner.report import plan_status
from shardwright.planner.types import Plan
from shardwright.render.digest import TEMPLATE_VERSION
from shardwright.render.request import JsonObject


class RevisionError(ValueError):
    """The data of a ControllerRevision is not what this operator, or a compatible one, has written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRevision:
    """A revision read back."""

    plan: Plan
    """As chosen, without its candidates and advice: those are in `report`, where a reason is any word."""
    report: PlanStatus
    template: JsonObject
    template_version: int
    digest: str
    """`template_digest` of the spec that it was made for."""
    progress_deadline_s: int
    startup_s: int
    pod_monitor: bool
    """Metrics are scraped through a PodMonitor; else the template carries annotations."""


def revision_data(
    plan: Plan,
    *,
    revision_hash: str,
    digest: str,
    template: JsonObject,
    progress_deadline_s: int,
    startup_s: int,
    pod_monitor: bool,
    fetch: JsonObject | None = None,
) -> JsonObject:
    """Return the `data` of a new revision.

    The plan itself is one JSON text: fractions and absent values then come back exactly as written, whatever
    the API server and its clients do to numbers and nulls. `fetch` is what `render.fetch` keeps of its Job.
    """
    core, report = _written(plan, revision_hash)
    data = {
        "plan": core,
        "report": report,
        "template": template,
        "templateVersion": TEMPLATE_VERSION,
        "digest": digest,
        "progressDeadlineSeconds": progress_deadline_s,
        "startupSeconds": startup_s,
        "podMonitor": pod_monitor,
    }
    return data | ({"fetch": fetch} if fetch else {})


@lru_cache(maxsize=128)
def _written(plan: Plan, revision_hash: str) -> tuple[str, JsonObject]:
    """Return a plan and its report as they are stored. Equal services have equal ones: not to be changed."""
    core = _plans().dump_json(replace(plan, candidates=(), advice=()))
    report = plan_status(plan, revision_hash)
    return core.decode(), report.model_dump(mode="json", by_alias=True, exclude_none=True)


def read_revision(data: Mapping[str, Any]) -> StoredRevision:
    """Read the `data` of a ControllerRevision. Raises RevisionError that names what is missing."""
    try:
        return StoredRevision(
            plan=_plans().validate_json(data["plan"]),
            report=PlanStatus.model_validate(data["report"]),
            template=dict(data["template"]),
            template_version=int(data["templateVersion"]),
            digest=str(data["digest"]),
            progress_deadline_s=int(data["progressDeadlineSeconds"]),
            startup_s=int(data["startupSeconds"]),
            pod_monitor=bool(data["podMonitor"]),
        )
    except KeyError as error:
        raise RevisionError(
            f"data.{error.args[0]} is missing: delete the ControllerRevision to plan anew"
        ) from error
    except (ValidationError, TypeError, ValueError) as error:
        raise RevisionError(
            f"data cannot be read ({error}): delete the ControllerRevision to plan anew"
        ) from error


@cache
def _plans() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)

"""A revision that did not start, as it is put on record: an annotation of its ControllerRevision.

Decides what is noted, and for how long it counts: until the spec says something else of what its pods are
made of, or of `approvedRevision`. Scaling, pausing and the like do not try a failed revision again. Never
decides that a start has failed.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from shardwright.api.llmservice import GROUP

ANNOTATION_FAILED_START: Final = f"{GROUP}/failed-start"
_LONGEST: Final = 1024


class FailedStart(NamedTuple):
    """Why, when and for which spec a revision was given up."""

    reason: str
    """A reason of conditions, such as ImagePull."""
    message: str
    at: str
    """RFC 3339."""
    spec: str
    """`spec_key` of the spec that it was tried for."""


def spec_key(digest: str, approved: str | None) -> str:
    """Name what a spec says of its pods, by its `template_digest`, and of what is approved."""
    return f"{digest}/{approved or ''}"


def annotation(failed: FailedStart) -> dict[str, str]:
    """Return the annotation."""
    return {ANNOTATION_FAILED_START: json.dumps(failed._asdict(), separators=(",", ":"), sort_keys=True)}


def read_annotation(annotations: Mapping[str, str] | None) -> FailedStart | None:
    """Read the annotation; None when there is none, or none that can be read: then it is tried again."""
    text = (annotations or {}).get(ANNOTATION_FAILED_START)
    if text is None:
        return None
    try:
        found: Any = json.loads(text)
        reason, message, at, spec = (str(found[key]) for key in FailedStart._fields)
    except (ValueError, KeyError, TypeError):
        return None
    return FailedStart(reason=reason[:64], message=message[:_LONGEST], at=at[:32], spec=spec)


class _Record(Protocol):
    @property
    def revision(self) -> str: ...

    @property
    def failed(self) -> FailedStart | None: ...


def failed_for(records: Iterable[_Record], key: str) -> frozenset[str]:
    """Return the revisions that did not start and that this spec does not have tried again."""
    return frozenset(r.revision for r in records if r.failed is not None and r.failed.spec == key)

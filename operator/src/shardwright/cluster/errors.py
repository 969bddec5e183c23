"""What can go wrong between us and the API server, by what a caller should do about it.

Decides the class of an error from its status code. Never retries: the work queue does. Messages come
from the API server's Status object and never hold a request body, which could carry a secret.
"""

import re
from collections.abc import Mapping
from typing import Final

from shardwright.cluster.json import JsonObject, loads

NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
"""Cause of the 403 for an object in a namespace that is being deleted (k8s.io/api/core/v1)."""
RETRYABLE: Final = frozenset({408, 429, 500, 502, 503, 504})
_LONGEST_RETRY_AFTER_S: Final = 60.0
_UNTYPED: Final = re.compile(
    r"failed to (?:create typed patch|convert new) object \(.*?\)(?: to proper version)?: "
)
"""How a 500 begins that says of an applied object that it is none of its kind: a field that the kind does not
have, or a value of another type (k8s.io/apimachinery, util/managedfields/internal/structuredmerge.go)."""


class ClusterError(Exception):
    """Base of all.

    `status` is the HTTP status, 0 when there was no answer; `said` is the server's own sentence, `fields` the
    paths that it names, such as `spec.ports[1].name`.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        said: str = "",
        fields: tuple[str, ...] = (),
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.said = said or message
        self.status = status
        self.reason = reason
        self.fields = fields
        self.retry_after_s = retry_after_s


class Invalid(ClusterError):  # noqa: N818 -- named for what to do, not for how it is raised
    """The API server refuses the object: the same request will fail again.

    That is 400, 413, 415, 422, and 500 for a field or a type that the object's kind does not have.
    """


class Transient(ClusterError):  # noqa: N818
    """No answer, overload or a server fault: the same request may succeed later."""


class Conflict(ClusterError):  # noqa: N818
    """Another writer owns a field or the precondition failed (409)."""


class Gone(ClusterError):  # noqa: N818
    """The object, its namespace or its kind is not there (404, 410)."""


class Forbidden(ClusterError):  # noqa: N818
    """Not allowed, or not logged in (401, 403)."""


def error_of(status: int, body: bytes, headers: Mapping[str, str], what: str) -> ClusterError:
    """Make the error for an answer of 400 or above.

    `what` names verb and object, such as `PATCH deployments/chat`.
    """
    reason, message, causes = _status_text(body)
    text = f"{what}: {status} {reason}: {message}" if message else f"{what}: {status} {reason}".rstrip()
    ending = any(cause.get("reason") == NAMESPACE_TERMINATING for cause in causes)
    kind: type[ClusterError] = Invalid
    untyped = _UNTYPED.match(message) if status == 500 else None
    if untyped is not None:
        message = message[untyped.end() :].lstrip(".")
    elif status in RETRYABLE or status >= 500:
        kind = Transient
    elif status == 409:
        # A 409 from a namespace that is going away, or from an object being created at the same time, is no
        # field conflict, but is retried all the same.
        kind = Conflict
    elif status in {404, 410} or (status == 403 and ending):
        kind = Gone
    elif status in {401, 403}:
        kind = Forbidden
    return kind(
        text,
        status=status,
        reason=reason,
        said=message,
        fields=tuple(str(cause["field"]) for cause in causes if cause.get("field")),
        retry_after_s=_retry_after(headers),
    )


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds of a Retry-After header; the API server sends whole seconds, never a date."""
    value = headers.get("Retry-After", "")
    return min(float(value), _LONGEST_RETRY_AFTER_S) if value.isdigit() else 0.0


def _status_text(body: bytes) -> tuple[str, str, list[JsonObject]]:
    """Reason, message and causes."""
    try:
        status = loads(body)
    except ValueError:
        return "", body[:200].decode(errors="replace").strip(), []
    if not isinstance(status, dict):
        return "", "", []
    causes: list[JsonObject] = (status.get("details") or {}).get("causes") or []
    return str(status.get("reason") or ""), str(status.get("message") or "")[:1000], causes

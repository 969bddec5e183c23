"""What the API server refuses to store, as verdicts that are believed for a while.

Decides which errors say something of one child, what they are told as, when they count (a right that is
missing for a moment is no verdict), and when the same is offered again: at once when the object or what we
would write has changed, else after a while. Never writes, and never decides what else waits for it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.cluster.errors import ClusterError, Forbidden, Gone, Invalid, Transient
from shardwright.cluster.facts import ChildFacts, ChildKey
from shardwright.diagnose.trouble import over_quota

_LOG = logging.getLogger(__name__)

INVALID_S: Final = 300.0
"""How long what the API server called invalid is not offered again: its policies may have changed."""
FORBIDDEN_S: Final = 30.0
"""The same for a right or a quota, which are put right sooner and are not watched."""
SURE_S: Final = 5.0
"""A 403 counts as a verdict once it has been repeated for so long: an API server that has just started
answers so while it still reads the roles. A full quota counts at once."""
BROKEN_S: Final = 30.0
"""The same for an admission webhook that does not answer."""
_WEBHOOK: Final = "failed calling webhook"
"""The API server's words in the 500 that it answers then (k8s.io/apiserver, pkg/util/webhook/error.go)."""
_DENIED: Final = ("denied request", "denied the request")
"""How a ValidatingAdmissionPolicy and a webhook say no, with 422, 403 or whatever status they choose
(k8s.io/apiserver, pkg/admission/plugin: policy/validating/dispatcher.go, webhook/errors/statuserror.go)."""
_LOGIN: Final = 401
BESIDE: Final = frozenset({"PodDisruptionBudget", "PodMonitor", "HTTPRoute", "InferencePool"})
"""Kinds without which a service serves as well: their refusal is told, and makes nothing unready."""

_About = tuple[bytes, tuple[str, bytes, str, bool] | None]
"""What a verdict is about: the digest of what we would write, and the live object."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A child that the API server did not take."""

    problem: Problem
    since_s: float
    """When it was first refused in a row."""
    until_s: float
    """When it is offered again."""
    about: _About
    sure: bool
    """Whether it counts as a verdict."""


@dataclass(slots=True)
class Refusals:
    """Refusals of all services, by their uid and by child. `clock` gives seconds."""

    clock: Callable[[], float]
    _held: dict[str, dict[ChildKey, Refusal]] = field(default_factory=dict)

    def standing(self, uid: str, child: ChildKey, digest: bytes, live: ChildFacts | None) -> Refusal | None:
        """Return the verdict that still holds on a child, if there is one."""
        known = self._held.get(uid, {}).get(child)
        if known is None or known.until_s <= self.clock() or known.about != _about(digest, live):
            return None
        return known

    def note(
        self,
        uid: str,
        child: ChildKey,
        digest: bytes,
        live: ChildFacts | None,
        error: ClusterError,
    ) -> Refusal | None:
        """Take a refusal; None while it is too early to believe it, and it is to be tried again soon."""
        now = self.clock()
        held = self._held.setdefault(uid, {})
        known = held.get(child)
        since_s = known.since_s if known is not None else now
        sure = now - since_s >= _doubt_s(error)
        refusal = Refusal(
            problem=verdict(child, error),
            since_s=since_s,
            until_s=now + (INVALID_S if isinstance(error, Invalid) else FORBIDDEN_S) if sure else now,
            about=_about(digest, live),
            sure=sure,
        )
        held[child] = refusal
        if not sure:
            return None
        if known is None or not known.sure or known.problem != refusal.problem:
            _LOG.warning("child refused child=%s/%s/%s error=%s", *child, error)
        return refusal

    def drop(self, uid: str, child: ChildKey) -> None:
        """Forget the refusal of a child that is as it should be."""
        held = self._held.get(uid)
        if held is not None:
            held.pop(child, None)

    def keep(self, uid: str, children: set[ChildKey]) -> None:
        """Forget the refusals of all other children of a service."""
        held = self._held.get(uid)
        if held is not None:
            self._held[uid] = {key: known for key, known in held.items() if key in children}
            if not self._held[uid]:
                del self._held[uid]

    def forget(self, uid: str) -> None:
        """Forget a service that is gone."""
        self._held.pop(uid, None)


def _about(digest: bytes, live: ChildFacts | None) -> _About:
    return digest, None if live is None else (live.uid, live.mark, live.edition, live.deleting)


def is_of_child(child: ChildKey, error: ClusterError) -> bool:
    """Whether an error says something of this child, not of the API server, our login or the namespace."""
    if isinstance(error, Gone):
        return child[0] in BESIDE  # its kind is served no more; of a namespace the other kinds tell
    return _WEBHOOK in error.said or (isinstance(error, Invalid | Forbidden) and error.status != _LOGIN)


def _doubt_s(error: ClusterError) -> float:
    """How long an error has to be repeated to count."""
    if isinstance(error, Forbidden) and over_quota(error.said) is None:
        return SURE_S
    return BROKEN_S if isinstance(error, Transient) else 0.0


def verdict(child: ChildKey, error: ClusterError) -> Problem:
    """Say what the API server refused, without the counts of a quota, which others change."""
    name, said = f"{child[0]}/{child[2]}", error.said[:1000]
    quota = over_quota(error.said)
    reason, at = Reason.WRITE_FORBIDDEN, ""
    if quota is not None:
        reason = Reason.QUOTA_EXCEEDED
        room = f"the ResourceQuota {quota[0]} leaves no room for {name} ({quota[1]})"
        message = f"{room}: raise it, or delete what uses it up"
    elif _WEBHOOK in error.said:
        message = f"no answer whether {name} may be stored ({said}): mend the admission webhook that is named"
    elif isinstance(error, Gone):
        message = f"the API server no longer serves {child[0]} ({said}): install it, or restart the operator"
    elif isinstance(error, Forbidden):
        denied = f"the API server forbids the operator to write {name} ({said})"
        message = f"{denied}: grant the right, or change the policy that is named"
    elif any(words in error.said for words in _DENIED):
        message = f"a policy refuses {name} ({said}): change what it refuses, or the policy that is named"
    elif child[0] == "Deployment":
        reason, at = Reason.POD_TEMPLATE_REFUSED, "spec.podTemplate"
        message = f"the API server refuses {name}, which this spec renders: {said}"
    else:
        denied = f"the API server refuses {name} ({said})"
        message = f"{denied}: change the policy that is named, or delete the object so that it is made anew"
    if child[0] in BESIDE:
        return Problem(reason=Reason.CHILD_REFUSED, message=message, blocking=False)
    return Problem(reason=reason, field=at, message=message)

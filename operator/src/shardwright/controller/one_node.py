"""Claims that only one node can mount at a time, and what a rollout does about them.

Decides which revisions are in the way of another one: a new pod on another node would wait for the volume of
an old one for ever, and the old one for the new one to serve. Never decides how many replicas there are.
"""

from collections.abc import Iterable
from typing import Final

from shardwright.cluster.facts import ChildFacts
from shardwright.controller.references import claims
from shardwright.controller.situation import Situation
from shardwright.render.storage import claims_of

_CLAIM_IN_JSON: Final = b'"persistentVolumeClaim"'


def recorded_claims(revisions: Iterable[ChildFacts]) -> frozenset[str]:
    """Return the claims that the pods of revisions on record mount."""
    return frozenset().union(*map(_of_record, revisions))


def in_the_way(now: Situation) -> dict[str, str]:
    """Return the other revisions that have a workload or pods, and such a claim in common with the target.

    By revision: the claim.
    """
    ours = (
        claims_of_revision(now, now.target) & now.proposal.for_one_node
        if now.proposal.for_one_node
        else frozenset()
    )
    if not ours:
        return {}
    wanted = (revision for revision, deployment in now.deployments.items() if deployment.replicas)
    there = {*wanted, *(pod.revision for pod in now.pods.values())} - {now.target}
    shared = {revision: claims_of_revision(now, revision) & ours for revision in sorted(there)}
    return {revision: min(names) for revision, names in shared.items() if names}


def claims_of_revision(now: Situation, revision: str) -> frozenset[str]:
    """Return the claims that the pods of a revision mount."""
    record = now.record_of(revision)
    if record is None and revision == now.target:
        record = now.proposal.record
        if record is None:  # it is new, so that its template will be the spec's
            return claims(now.service.spec)
    return _of_record(record) if record is not None else frozenset()


def _of_record(record: ChildFacts) -> frozenset[str]:
    if _CLAIM_IN_JSON not in record.data:
        return frozenset()
    template = record.stored().get("template") or {}
    return frozenset(name for _, name in claims_of(template.get("spec")))

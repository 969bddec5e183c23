"""What one service needs now: objects to have, objects to remove, facts to report. No I/O.

Decides the children of a service from its proposal, its places and what is live. A pod moves only when
the revision changes; a workload shrinks only when fewer replicas are wanted, when its successor serves,
or when its pods find no node.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.defaults import Resolved, resolve
from shardwright.api.llmservice import LLMService
from shardwright.api.names import workload_name
from shardwright.cluster.facts import ChildFacts, ServiceEntry
from shardwright.cluster.json import JsonObject
from shardwright.cluster.store import Store
from shardwright.controller.apply import Desired
from shardwright.controller.one_node import in_the_way
from shardwright.controller.planning import Planning, Proposal, revisions_of, wanted_replicas
from shardwright.controller.rollout import Old, Progress, live_replicas, retire
from shardwright.planner.types import Plan
from shardwright.render.approval import CALIBRATED, PROPOSED
from shardwright.render.manifests import render, workload
from shardwright.render.request import Capabilities, RenderRequest
from shardwright.topology.types import Allocation, PodFacts, Resources

HISTORY: Final = 5
"""Revisions kept of those that were ever in force, the one that is included; what waits is kept besides."""
_UNSCHEDULABLE: Final = "Unschedulable"


@dataclass(slots=True, kw_only=True)
class Situation:
    """A service with what is live of it."""

    entry: ServiceEntry
    service: LLMService
    proposal: Proposal
    allocation: Allocation
    desired: int
    deployments: dict[str, ChildFacts]
    """Ours and not being deleted, by revision."""
    revisions: list[ChildFacts]
    """The newest first."""
    pods: Mapping[str, PodFacts]
    barred: bool = False
    """No further pod of the target can be made now (`controller.barred`)."""

    @property
    def target(self) -> str:
        """Hash of the revision to run."""
        return self.proposal.target

    @property
    def resolved(self) -> Resolved:
        """The spec with its defaults."""
        return self.entry.resolved or resolve(self.service.spec)

    def pods_of(self, revision: str) -> list[PodFacts]:
        """Pods of a revision, those being deleted included."""
        return [pod for pod in self.pods.values() if pod.revision == revision]

    def record_of(self, revision: str) -> ChildFacts | None:
        """Return the ControllerRevision of a revision, None when there is none."""
        return next((record for record in self.revisions if record.revision == revision), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A workload to have."""

    revision: str
    replicas: int
    number: int
    """Of its ControllerRevision."""


@dataclass(slots=True, kw_only=True)
class Work:
    """What to do."""

    target: Intent | None = None
    """With it go the children that all revisions share. None: the target has no place, or there is none."""
    earlier: list[Intent] = field(default_factory=list)
    """Workloads of earlier revisions that stay for now."""
    record: Intent | None = None
    """A revision to have on record only: it waits."""
    remove: list[ChildFacts] = field(default_factory=list)
    ends_first: str = ""
    """Claim for one node, for which old replicas end before the target's are made; empty when none do."""

    @property
    def renders(self) -> bool:
        """Whether there is anything to have."""
        return self.target is not None or bool(self.earlier) or self.record is not None

    def replicas(self) -> dict[str, int]:
        """Replicas of each workload, by revision."""
        kept = [*([self.target] if self.target else []), *self.earlier]
        return {intent.revision: intent.replicas for intent in kept}


def observe(
    store: Store, planning: Planning, entry: ServiceEntry, service: LLMService, proposal: Proposal
) -> Situation:
    """Put together what is known of a service."""
    children = store.children_of(entry.key)
    core = proposal.core
    most = planning.most_pods(entry, proposal.target) if core else None
    return Situation(
        entry=entry,
        service=service,
        proposal=proposal,
        allocation=planning.allocation(entry.key, proposal.target) if core else Allocation(wanted=0),
        desired=wanted_replicas(entry, service, proposal, children.values()),
        deployments={
            child.revision: child
            for child in children.values()
            if child.kind == "Deployment" and child.belongs_to(entry.uid) and not child.deleting
        },
        revisions=revisions_of(children, entry.uid),
        # Who cannot be reached does not serve, whatever its status still says.
        pods={
            name: pod if store.reachable(pod) else pod._replace(ready=False)
            for name, pod in store.pods_of(entry.key).items()
        },
        barred=most is not None,
    )


def plan_work(now: Situation, planning: Planning) -> Work:
    """Decide what to have and what to remove."""
    work = Work(record=_record(now))
    core = now.proposal.core
    staying = {now.target, work.record.revision if work.record else ""}
    work.remove += [r for r in now.revisions if r.number == PROPOSED and r.revision not in staying]
    if core is None:
        return work
    current, first = now.deployments.get(now.target), in_the_way(now)
    work.ends_first = min(first.values(), default="")
    # Without a place it is offered without replicas, and nothing is given up for what may not be taken.
    if current is not None or now.allocation.granted or not now.desired or now.barred or now.deployments:
        count = live_replicas(
            desired=now.desired,
            granted=now.allocation.granted,
            live=current.replicas if current else 0,
            stuck=sum(1 for p in now.pods_of(now.target) if not p.node and p.trouble == _UNSCHEDULABLE),
        )
        if current is not None and now.barred and not current.create_failure:
            count = now.desired  # as it was refused, so that it is seen when it no longer is
        if first:
            count = min(count, current.replicas if current else 0)
        work.target = Intent(revision=now.target, replicas=count, number=_number(now))
    _retire(now, planning, core, work, first)
    if work.target is not None and set(now.deployments) <= {now.target}:
        earlier = [r for r in now.revisions if r.number > PROPOSED]
        work.remove += [r for r in earlier[HISTORY:] if r.revision not in staying]
    return work


def _record(now: Situation) -> Intent | None:
    """Return what waits, to be had on record: what is approved then is exactly what was proposed."""
    waiting = now.proposal.beside
    if waiting is None or waiting.revision == now.target:
        return None
    known = now.record_of(waiting.revision) or waiting.record
    number = known.number if known is not None else PROPOSED
    return Intent(revision=waiting.revision, replicas=waiting.core.replicas, number=number)


def _number(now: Situation) -> int:
    """Give the number of the target's ControllerRevision; going back puts an earlier one in force again."""
    if not now.revisions:
        return 1
    newest = now.revisions[0]
    in_force = newest.revision == now.target and newest.number > PROPOSED
    return newest.number if in_force else newest.number + 1


def _retire(now: Situation, planning: Planning, core: Plan, work: Work, first: Collection[str]) -> None:
    """Shrink or remove the workloads of earlier revisions, the oldest first; of `first` all at once."""
    earlier = [d for revision, d in now.deployments.items() if revision != now.target]
    if not earlier:
        return
    numbers = {r.revision: r.number for r in now.revisions}
    earlier.sort(key=lambda d: numbers.get(d.revision, 0))
    old = tuple(Old(revision=d.revision, replicas=d.replicas) for d in earlier)
    replicas = retire(old, _progress(now, planning, core), frozenset(first))
    for deployment in earlier:
        count = replicas[deployment.revision]
        if count == 0:
            work.remove.append(deployment)
        elif deployment.revision in numbers:
            work.earlier.append(
                Intent(revision=deployment.revision, replicas=count, number=numbers[deployment.revision])
            )


def _progress(now: Situation, planning: Planning, core: Plan) -> Progress:
    old = [pod for pod in now.pods.values() if pod.revision != now.target]
    return Progress(
        desired=now.desired,
        granted=now.allocation.granted,
        ready=sum(1 for p in now.pods_of(now.target) if p.ready and not p.terminating),
        leaving=_leaving(now, old),
        helps=not now.barred and now.target in now.deployments and _helps(now, planning, core, old),
    )


def _leaving(now: Situation, old: list[PodFacts]) -> int:
    """Count the pods of earlier revisions beyond what their Deployments state.

    Those are on their way out, whether or not their end has been seen yet: a Deployment is written well
    before the deletion of its pods arrives by the watch.
    """
    there = Counter(pod.revision for pod in old)
    stated = {revision: deployment.replicas for revision, deployment in now.deployments.items()}
    return sum(max(0, count - stated.get(revision, 0)) for revision, count in there.items())


def _helps(now: Situation, planning: Planning, core: Plan, old: list[PodFacts]) -> bool:
    """Whether a replica of the target would have room on some node if the old pods left it."""
    held: dict[str, Resources] = {}
    for pod in old:
        if pod.node:
            held[pod.node] = held.get(pod.node, Resources()).plus(pod.requests)
    nodes = set(planning.eligible(now.service, now.proposal))
    return any(
        core.pod_resources.fits_in(planning.ledger.free(node).plus(given))
        for node, given in held.items()
        if node in nodes
    )


def desired_children(
    now: Situation, work: Work, capabilities: Capabilities, planning: Planning
) -> list[Desired]:
    """Render what is to be had: of the target everything, of earlier revisions the workload only."""
    objects: list[JsonObject] = []
    digest = planning.template_digest(now.entry, now.service)
    if work.target is not None:
        objects += render(_request(now, work.target, capabilities, digest))
    for intent in work.earlier:
        objects.append(workload(_request(now, intent, capabilities, digest))[1])
    if work.record is not None:
        objects.append(workload(_request(now, work.record, capabilities, digest))[0])
    # The record first, so that what runs is always on record; workloads last, when all they rest on is there.
    order = {"ControllerRevision": 0, "Deployment": 2}
    objects.sort(key=lambda obj: order.get(obj["kind"], 1))
    return [Desired.of(obj) for obj in objects]


def _request(now: Situation, intent: Intent, capabilities: Capabilities, digest: str) -> RenderRequest:
    proposal = now.proposal
    target = intent.revision == now.target
    other = proposal.beside
    waiting = other if other is not None and other.revision == intent.revision else None
    if waiting is not None and not target and proposal.waiting is None:
        digest += CALIBRATED
    last_seen = proposal.record if target else waiting.record if waiting else None
    stored = now.record_of(intent.revision) or last_seen
    decision = proposal.decision if target else waiting.decision if waiting else None
    return RenderRequest(
        service=now.service,
        revision_hash=intent.revision,
        replicas=intent.replicas,
        plan=decision if stored is None and isinstance(decision, Plan) else None,
        stored=stored.stored() if stored is not None else None,
        template_digest=digest,
        revision_number=intent.number,
        preferred_nodes=tuple(slot.node for slot in now.allocation.slots) if target else (),
        capabilities=capabilities,
    )


def signature(now: Situation, work: Work, capabilities: Capabilities) -> tuple[object, ...]:
    """Name what rendering depends on: equal signatures render equal children."""
    wanted = work.target, tuple(work.earlier), work.record
    return now.entry.uid, now.entry.generation, *wanted, capabilities


def names(now: Situation) -> set[str]:
    """Names of the Deployments of a service, the target's included."""
    found = {deployment.name for deployment in now.deployments.values()}
    return found | ({workload_name(now.entry.key.name, now.target)} if now.target else set())

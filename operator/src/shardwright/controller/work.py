"""What one service needs now: objects to have, objects to remove, facts to report. No I/O.

Decides the children of a service from its proposal, its places and what is live. A pod moves only when
the revision changes; a workload shrinks only when fewer replicas are wanted, when its successor serves,
or when its pods find no node.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from shardwright.api.names import workload_name
from shardwright.api.problems import Problem
from shardwright.cluster.facts import ChildFacts
from shardwright.cluster.json import JsonObject
from shardwright.controller.apply import Desired
from shardwright.controller.canaries import CanaryNow
from shardwright.controller.fetching import (
    Fetching,
    FetchStep,
    fetching,
    is_fetched,
    left_over,
    may_begin,
)
from shardwright.controller.one_node import in_the_way
from shardwright.controller.planning import Planning
from shardwright.controller.rolling import others, state_of, within_budget
from shardwright.controller.rollout import Decision, State, Step, decide, hold
from shardwright.controller.situation import Situation
from shardwright.controller.staggered import at_once
from shardwright.planner.types import Plan
from shardwright.render.approval import CALIBRATED, PROPOSED
from shardwright.render.failed_start import FailedStart
from shardwright.render.manifests import render, workload
from shardwright.render.request import Capabilities, RenderRequest

HISTORY: Final = 5
"""Revisions kept of those that were ever in force, the one that is included; what waits is kept besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A workload to have."""

    revision: str
    replicas: int
    number: int
    """Of its ControllerRevision."""
    failed: FailedStart | None = None
    """That it did not start, to be on its ControllerRevision."""
    fetched: bool = False
    """Its weights are in the cache claim, to be on its ControllerRevision."""


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
    lifted: list[Intent] = field(default_factory=list)
    """Records that no longer say that their revision did not start."""
    ends_first: str = ""
    """Claim for one node, for which old replicas end before the target's are made; empty when none do."""
    state: State | None = None
    """Where the rollout stands; None where there is none."""
    decision: Decision = field(default_factory=lambda: Decision(new=0))
    canary: CanaryNow | None = None
    routed: bool = False
    """The Service selects the routers."""
    lacking: tuple[Problem, ...] = ()
    """What the spec asks for and the cluster does not serve."""
    fetching: Fetching | None = None
    """Where the weights of the target stand; None when its engines wait for nothing."""
    fetches: bool = False
    """The Job is there, or to be made."""
    staggered: bool = False
    """Further engines are made when those that fetch their weights now have started."""

    @property
    def renders(self) -> bool:
        """Whether there is anything to have."""
        wanted = self.target or self.earlier or self.record or self.lifted
        return bool(wanted)

    @property
    def awaited(self) -> Fetching | None:
        """The Job that the target's engines wait for; None while there is none to have."""
        return self.fetching if self.fetches else None

    def replicas(self) -> dict[str, int]:
        """Replicas of each workload, by revision."""
        kept = [*([self.target] if self.target else []), *self.earlier]
        return {intent.revision: intent.replicas for intent in kept}


def plan_work(
    now: Situation,
    planning: Planning,
    failed: FailedStart | None = None,
    canary: CanaryNow | None = None,
) -> Work:
    """Decide what to have and what to remove.

    That the target has `failed` to start is put on record first, and nothing moves with it: what is to be in
    force then is decided from the record.
    """
    work = Work(record=_record(now))
    core = now.proposal.core
    staying = {now.target, work.record.revision if work.record else ""}
    work.remove += [r for r in now.revisions if r.number == PROPOSED and r.revision not in staying]
    if core is None:
        return work
    work.fetching = fetching(now)
    waits = work.fetching is not None and work.fetching.waits
    work.remove += left_over(now, work.fetching)
    first = in_the_way(now)
    work.ends_first = min(first.values(), default="")
    work.canary = canary
    current = now.deployments.get(now.target)
    made = current is not None
    if len(now.deployments) == made and not now.serves and not first:  # as nearly always
        count = within_budget(now, core)
        stated = current.replicas if current is not None else 0
        work.decision = Decision(new=min(count, stated) if waits else count)
    else:
        work.state = state_of(now, planning, core, first, canary.goal if canary else None)
        if failed is not None:
            work.decision = hold(work.state)
        elif waits and now.desired and not work.state.paused:
            work.decision = hold(work.state, Step.FETCHING)
        else:
            work.decision = decide(work.state)
    work.fetches = waits and may_begin(now) and work.decision.step is not Step.PAUSED
    wanted = work.decision.new
    if current is not None and now.barred and not current.create_failure and not waits:
        wanted = now.desired  # as it was refused, so that it is seen when it no longer is
    count = at_once(now, wanted)
    work.staggered = count < wanted
    # Without a place it is offered without replicas, and nothing is given up for what may not be taken.
    offered = now.barred or now.deployments or work.fetches or (first and now.allocation.granted)
    if made or ((count or not now.desired or offered) and work.decision.step is not Step.PAUSED):
        work.target = Intent(
            revision=now.target,
            replicas=count,
            number=_number(now),
            failed=failed,
            fetched=is_fetched(now, work.fetching),
        )
    _keep_old(now, work, work.decision)
    work.routed = now.routing.may_route()
    work.remove += now.routing.left_over(now.service.spec)
    if any(record.failed is not None for record in now.revisions):
        work.lifted = [*_lifted(now, planning, work)]
    if work.target is not None and set(now.deployments) <= {now.target}:
        earlier = [r for r in now.revisions if r.number > PROPOSED]
        work.remove += [r for r in earlier[HISTORY:] if r.revision not in staying]
    return work


def _lifted(now: Situation, planning: Planning, work: Work) -> Iterator[Intent]:
    """Give the records of what did not start for another spec: this one may have it tried again."""
    written = {work.target.revision if work.target else "", work.record.revision if work.record else ""}
    for record in now.revisions:
        if record.failed is None or record.revision in written:
            continue
        if record.failed.spec != planning.start_key(now.entry, now.service):
            yield Intent(revision=record.revision, replicas=0, number=record.number, fetched=record.fetched)


def _record(now: Situation) -> Intent | None:
    """Return what waits, to be had on record: what is approved then is exactly what was proposed."""
    waiting = now.proposal.beside
    if waiting is None or waiting.revision == now.target:
        return None
    known = now.record_of(waiting.revision) or waiting.record
    number = known.number if known is not None else PROPOSED
    failed = known.failed if known is not None and waiting.revision == now.proposal.failed else None
    return Intent(
        revision=waiting.revision,
        replicas=waiting.core.replicas,
        number=number,
        failed=failed,
        fetched=known is not None and known.fetched,
    )


def _number(now: Situation) -> int:
    """Give the number of the target's ControllerRevision; going back puts an earlier one in force again."""
    if not now.revisions:
        return 1
    newest = now.revisions[0]
    in_force = newest.revision == now.target and newest.number > PROPOSED
    return newest.number if in_force else newest.number + 1


def _keep_old(now: Situation, work: Work, decision: Decision) -> None:
    """Keep the workloads of earlier revisions as far as the rollout says, or remove them.

    One without replicas stays until the rollout is over: it says that there is one, and what it replaces.
    """
    for deployment in others(now) if decision.old else ():
        count, record = decision.old[deployment.revision], now.record_of(deployment.revision)
        if count == 0 and (decision.over or record is None):
            work.remove.append(deployment)
        elif record is not None:
            intent = Intent(
                revision=deployment.revision, replicas=count, number=record.number, fetched=record.fetched
            )
            work.earlier.append(intent)


def desired_children(
    now: Situation, work: Work, capabilities: Capabilities, planning: Planning
) -> list[Desired]:
    """Render what is to be had: of the target everything, of earlier revisions the workload only."""
    objects: list[JsonObject] = []
    digest = planning.template_digest(now.entry, now.service)
    if work.target is not None:
        wanted, serves = _request(now, work.target, capabilities, digest), work.decision.serves
        job = work.awaited
        place = job.place if job is not None and job.step is FetchStep.WANTED else None
        objects += render(replace(wanted, serves=serves, routed=work.routed, fetch=place))
    for intent in work.earlier:
        objects.append(workload(_request(now, intent, capabilities, digest))[1])
    for intent in (*work.lifted, *([work.record] if work.record else [])):
        objects.append(workload(_request(now, intent, capabilities, digest))[0])
    objects = [obj for obj in objects if now.routing.may_write(obj)]
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
        failed=intent.failed,
        fetched=intent.fetched,
        for_one_pod=proposal.for_one_pod,
    )


def signature(now: Situation, work: Work, capabilities: Capabilities) -> tuple[object, ...]:
    """Name what rendering depends on: equal signatures render equal children."""
    wanted = (
        work.target,
        tuple(work.earlier),
        work.record,
        tuple(work.lifted),
        work.decision.serves,
        work.routed,
        work.awaited,
    )
    return now.entry.uid, now.entry.generation, now.routing.left_alone, *wanted, capabilities


def names(now: Situation) -> set[str]:
    """Names of the Deployments of a service, the target's included."""
    found = {deployment.name for deployment in now.deployments.values()}
    return found | ({workload_name(now.entry.key.name, now.target)} if now.target else set())

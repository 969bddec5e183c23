"""What a rollout of one service looks at: where its revisions stand, as values for `controller.rollout`.

Decides what counts as answering, as leaving and as room; never what happens next.
"""

from collections import Counter
from collections.abc import Iterable

from shardwright.api.llmservice import LLMService
from shardwright.cluster.facts import ChildFacts, ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.planning import Planning, Proposal, revisions_of
from shardwright.controller.rollout import New, Old, State, Strategy, beside, bounded, live_replicas
from shardwright.controller.situation import Situation
from shardwright.controller.starts import Start
from shardwright.planner.load import replicas_of
from shardwright.planner.types import Plan
from shardwright.render.approval import PROPOSED
from shardwright.render.revision import RevisionError
from shardwright.topology.types import PodFacts, Resources

_UNSCHEDULABLE = "Unschedulable"


def state_of(
    now: Situation, planning: Planning, core: Plan, in_the_way: Iterable[str], most: int | None = None
) -> State:
    """Return where the rollout of a service stands; with no old workload there is none.

    `most` bounds the new replicas for now, but takes none away that is there.
    """
    earlier = others(now)
    spec = now.service.spec.rollout
    strategy = Strategy(spec.strategy) if spec and spec.strategy else Strategy.AUTO
    leaving = _leaving(now)
    plans = {
        revision: _plan(now.entry.uid, now.record_of(revision), planning) or core
        for revision in (*leaving, *_revisions(earlier))
    }
    # Nothing is given up for what may not be taken: the target's workload is there before.
    taken = not now.barred and now.target in now.deployments
    return State(
        target=now.target,
        new=_new(now, core, most if earlier else None),
        old=tuple(_old(now, d, plans[d.revision]) for d in earlier),
        leaving=sum(leaving.values()),
        leaving_gpus=sum(count * plans[revision].gpus_per_replica for revision, count in leaving.items())
        + leaving_of(now) * core.gpus_per_replica,
        taken=taken,
        helps=bool(earlier) and taken and _helps(now, planning, core),
        max_gpus=_budget(now.service, core),
        strategy=strategy,
        paused=bool(spec and spec.paused),
        serves=now.serves,
        in_the_way=frozenset(in_the_way),
    )


def others(now: Situation) -> list[ChildFacts]:
    """Return the workloads of other revisions than the target, the oldest first."""
    numbers = {r.revision: r.number for r in now.revisions}
    found = [d for revision, d in now.deployments.items() if revision != now.target]
    return sorted(found, key=lambda d: (numbers.get(d.revision, PROPOSED), d.revision))


def answering(store: Store, entry: ServiceEntry) -> dict[str, int]:
    """Return the answering replicas of each revision that has a workload."""
    found = dict.fromkeys(
        (
            child.revision
            for child in store.children_of(entry.key).values()
            if child.is_workload and child.belongs_to(entry.uid) and not child.deleting
        ),
        0,
    )
    for pod in store.pods_of(entry.key).values():
        if pod.revision in found and _answers(pod) and store.reachable(pod):
            found[pod.revision] += 1
    return found


def needs_a_whole_set(service: LLMService, target: str, children: Iterable[ChildFacts], uid: str) -> bool:
    """Whether places for a part of the replicas are of no use: a blue-green rollout has not begun."""
    rollout = service.spec.rollout
    if rollout is None or rollout.strategy != "BlueGreen":
        return False
    theirs = {c.revision: c.replicas for c in children if c.is_workload and c.belongs_to(uid)}
    return bool(theirs) and not theirs.get(target)


def claimable(
    entry: ServiceEntry,
    service: LLMService,
    proposal: Proposal,
    wanted: int,
    *,
    planning: Planning,
    store: Store,
) -> int:
    """Return for how many replicas of the target places are of use now.

    A rollout that stands still holds no places for what it may not make: others may use them meanwhile. That
    is one that is paused, and one that gives nothing up while `pool.maxGPUs` holds no more beside the old.
    """
    rollout, core = service.spec.rollout, proposal.core
    stands = rollout is not None and (rollout.paused or rollout.strategy in {"Surge", "BlueGreen"})
    if rollout is None or core is None or not stands:
        return wanted
    children = store.children_of(entry.key)
    theirs = {
        c.revision: c.replicas
        for c in children.values()
        if c.is_workload and c.belongs_to(entry.uid) and not c.deleting
    }
    stated = theirs.pop(proposal.target, 0)
    if not theirs:
        return wanted
    if rollout.paused:
        return min(wanted, stated)
    records, held = {r.revision: r for r in revisions_of(children, entry.uid)}, 0
    for revision, replicas in theirs.items():
        old = _plan(entry.uid, records.get(revision), planning) or core
        held += replicas * old.gpus_per_replica
    allowed = beside(_budget(service, core), held, core.gpus_per_replica)
    if rollout.strategy == "BlueGreen" and allowed < wanted:
        allowed = 0
    return bounded(wanted, stated, allowed)


def _budget(service: LLMService, core: Plan) -> int:
    """Return the GPUs that all replicas may hold; one replica of a plan in force is not taken away."""
    return max(service.spec.pool.max_gpus, core.gpus_per_replica)


def _revisions(deployments: Iterable[ChildFacts]) -> list[str]:
    return [d.revision for d in deployments]


def _plan(uid: str, record: ChildFacts | None, planning: Planning) -> Plan | None:
    """Return the plan of a revision on record; None when there is none that can be read."""
    try:
        return planning.core_of(uid, record) if record is not None else None
    except RevisionError:
        return None


def _answers(pod: PodFacts) -> bool:
    return pod.ready and pod.serving and not pod.terminating


def placed_of(now: Situation) -> int:
    """Return the replicas to state for the target, were there no other revision."""
    current = now.deployments.get(now.target)
    return live_replicas(
        desired=now.desired,
        granted=now.allocation.granted,
        live=current.replicas if current else 0,
        stuck=sum(1 for p in now.pods_of(now.target) if not p.node and p.trouble == _UNSCHEDULABLE),
    )


def _new(now: Situation, core: Plan, most: int | None) -> New:
    current = now.deployments.get(now.target)
    pods = [pod for pod in now.pods_of(now.target) if not pod.terminating]
    stated = current.replicas if current else 0
    return New(
        desired=now.desired,
        goal=now.desired if most is None else min(now.desired, max(most, stated)),
        granted=now.allocation.granted,
        stated=stated,
        placed=placed_of(now),
        pods=len(pods),
        ready=ready_of(now),
        gpus=core.gpus_per_replica,
    )


def _old(now: Situation, deployment: ChildFacts, plan: Plan) -> Old:
    pods = [pod for pod in now.pods_of(deployment.revision) if not pod.terminating]
    record = now.record_of(deployment.revision)
    return Old(
        revision=deployment.revision,
        replicas=deployment.replicas,
        ready=sum(1 for pod in pods if _answers(pod)),
        lost=sum(1 for pod in pods if pod.name in now.lost),
        # Its own figures for the load of now: replicas of two sizes carry different shares of it.
        whole=max(1, replicas_of(plan, now.resolved, now.service.spec.pool.max_gpus)),
        gpus=plan.gpus_per_replica,
        failed=record is not None and record.failed is not None,
    )


def _leaving(now: Situation) -> dict[str, int]:
    """Count the pods of other revisions beyond what their Deployments state.

    Those are on their way out, whether or not their end has been seen yet: a Deployment is written well
    before the deletion of its pods arrives by the watch. Who cannot be reached is not waited for.
    """
    there = Counter(
        pod.revision for name, pod in now.pods.items() if pod.revision != now.target and name not in now.lost
    )
    stated = {revision: deployment.replicas for revision, deployment in now.deployments.items()}
    beyond = {revision: count - stated.get(revision, 0) for revision, count in there.items()}
    return {revision: count for revision, count in beyond.items() if count > 0}


def leaving_of(now: Situation) -> int:
    """Count the pods of the target that leave, on nodes in reach."""
    return sum(1 for pod in now.pods_of(now.target) if pod.terminating and pod.name not in now.lost)


def within_budget(now: Situation, core: Plan) -> int:
    """Return the replicas to state for the target without another revision: what leaves holds its GPUs."""
    placed, leaving = placed_of(now), leaving_of(now)
    if not leaving:
        return placed
    current, each = now.deployments.get(now.target), core.gpus_per_replica
    allowed = beside(_budget(now.service, core), leaving * each, each)
    return bounded(placed, current.replicas if current else 0, allowed)


def _helps(now: Situation, planning: Planning, core: Plan) -> bool:
    """Whether a replica of the target would have room on some node, if the old pods left it."""
    held: dict[str, Resources] = {}
    for pod in now.pods.values():
        if pod.node and pod.revision != now.target:
            held[pod.node] = held.get(pod.node, Resources()).plus(pod.requests)
    nodes = set(planning.eligible(now.service, now.proposal))
    return any(
        core.pod_resources.fits_in(planning.ledger.free(node).plus(held.get(node, Resources())))
        for node in nodes
    )


def ready_of(now: Situation) -> int:
    """Count the pods of the target that answer."""
    return sum(1 for pod in now.pods_of(now.target) if _answers(pod))


def starts_of(now: Situation) -> list[Start]:
    """Return the pods of the target that do not answer."""
    return [
        Start(
            pod=pod.name,
            bound=bool(pod.node),
            restarts=pod.restarts,
            trouble=now.troubles.get((pod.namespace, pod.name)),
        )
        for pod in now.pods_of(now.target)
        if not pod.ready and not pod.terminating and pod.name not in now.lost
    ]

"""Where the weights of a service's target stand, and what its engines wait for. No I/O.

Decides from the record, the Jobs and the pods alone whether the Job that fetches weights is to be made, runs,
has ended, or has done its work, and where it may run. A Job that failed stays until Kubernetes removes it
(`render.fetch.AGAIN_S`) and is made anew then: that is the back-off, and no clock of ours. Never decides what
a rollout does meanwhile, and never marks a revision: a hub that does not answer is no fault of it.
"""

from dataclasses import dataclass
from enum import StrEnum

from shardwright.api.reasons import Reason
from shardwright.cluster.facts import COMPLETE, ChildFacts
from shardwright.controller.one_node import claims_of_revision
from shardwright.controller.situation import Situation
from shardwright.diagnose.facts import FetchFacts, PodTrouble
from shardwright.diagnose.fetch import is_told
from shardwright.diagnose.trouble import BENIGN, trouble_of
from shardwright.render.fetch import ARCH_LABEL, Fetch, fetch_data, fetches, read_fetch
from shardwright.render.request import FetchPlace


class FetchStep(StrEnum):
    """What there is of a Job."""

    WANTED = "Wanted"
    """It is to be made."""
    RUNNING = "Running"
    FAILED = "Failed"
    """It has ended, and another is made when it is gone."""
    DONE = "Done"
    """The weights are in the claim, and that is to be on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """What the engines of the target wait for, or, when it is done, waited for."""

    fetch: Fetch
    step: FetchStep
    place: FetchPlace

    @property
    def waits(self) -> bool:
        """Whether no further engine may be made yet."""
        return self.step is not FetchStep.DONE


def fetching(now: Situation) -> Fetching | None:
    """Return where the weights stand; None when engines need wait for nothing."""
    record = now.record_of(now.target) or now.proposal.record
    fetch = record.fetch if record is not None else _new(now)
    if fetch is None:
        return None
    if record is not None and record.fetched and not _missing(now):
        return None
    return Fetching(fetch=fetch, step=_step(now.jobs.get(fetch.job)), place=_place(now, fetch.claim))


def is_fetched(now: Situation, found: Fetching | None) -> bool:
    """Whether the record of the target is to say that its weights are in the claim."""
    if found is not None:
        return found.step is FetchStep.DONE
    record = now.record_of(now.target) or now.proposal.record
    return record is not None and record.fetched


def may_begin(now: Situation) -> bool:
    """Whether it is time for the Job: engines are wanted, and have a place or will be given one."""
    return now.desired > 0 and bool(now.allocation.granted or now.deployments)


def left_over(now: Situation, found: Fetching | None) -> list[ChildFacts]:
    """Return Jobs that are in the way.

    Those under way that fetch what the target does not need, and the target's own where another revision
    fails with it: the image or the token may be another by now, and a Job's template cannot change.
    """
    wanted = found.fetch.job if found is not None else ""
    others = [job for name, job in now.jobs.items() if name != wanted and not job.ended]
    job = now.jobs.get(wanted)
    if found is None or job is None or found.step is FetchStep.DONE or job.revision == now.target:
        return others
    return [*others, job] if job.ended or _fails(now, wanted) else others


def _fails(now: Situation, job: str) -> bool:
    """Whether a Job's pod is in trouble. That it has no node may pass, and counts once it is told."""
    trouble = fetch_pod_trouble(now, job)
    if trouble is None or trouble.reason in BENIGN:
        return False
    passing = trouble_of(trouble).reason is Reason.UNSCHEDULABLE
    return not passing or is_told(job, now.entry.status.conditions)


def fetch_facts(now: Situation, found: Fetching | None) -> FetchFacts | None:
    """Return what is told of it; None when nothing is waited for."""
    if found is None or not found.waits:
        return None
    job = now.jobs.get(found.fetch.job)
    return FetchFacts(
        job=found.fetch.job,
        claim=found.fetch.claim,
        minutes=-(-found.fetch.seconds // 60),
        since=job.since if job is not None else "",
        ended=job.ended if job is not None else "",
        trouble=fetch_pod_trouble(now, found.fetch.job),
    )


def fetch_pod_trouble(now: Situation, job: str) -> PodTrouble | None:
    """Return what is wrong with a Job's pod."""
    namespace = now.entry.key.namespace
    pod = now.fetch_pods.get((namespace, job))
    return now.troubles.get((namespace, pod)) if pod else None


def _new(now: Situation) -> Fetch | None:
    """Return the Job of a revision that is not on record yet."""
    core = now.proposal.core
    if core is None or not fetches(now.service.spec, now.proposal.for_one_pod):
        return None
    return read_fetch({"fetch": fetch_data(now.service, core)})


def _step(job: ChildFacts | None) -> FetchStep:
    if job is None:
        return FetchStep.WANTED
    if not job.ended:
        return FetchStep.RUNNING
    return FetchStep.DONE if job.ended == COMPLETE else FetchStep.FAILED


def _missing(now: Situation) -> bool:
    """Whether an engine of the target does not find its weights: somebody emptied the claim."""
    for pod in now.pods_of(now.target):
        trouble = now.troubles.get((pod.namespace, pod.name))
        if trouble is not None and trouble_of(trouble).reason is Reason.WEIGHTS_MISSING:
            return True
    return False


def _place(now: Situation, claim: str) -> FetchPlace:
    alone = claim in now.proposal.for_one_node
    placed = [pod for name, pod in now.pods.items() if pod.node and name not in now.lost] if alone else []
    mounting = {
        revision
        for revision in {pod.revision for pod in placed}
        if claim in claims_of_revision(now, revision)
    }
    nodes = sorted({pod.node for pod in placed if pod.revision in mounting})
    return FetchPlace(
        as_engines=alone or claim in now.proposal.unbound,
        node=nodes[0] if nodes else "",
        arch=_arch(now),
    )


def _arch(now: Situation) -> str:
    """Return the processor of the nodes that the engines are on, or are to be on, where it is one."""
    names = {slot.node for slot in now.allocation.slots} | {pod.node for pod in now.pods.values()}
    found = {node.labels.get(ARCH_LABEL, "") for name in names if (node := now.nodes.get(name))}
    return found.pop() if len(found) == 1 else ""

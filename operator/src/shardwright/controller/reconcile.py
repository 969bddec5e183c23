"""One service brought to what it should be: observe, decide, render, apply, report.

Decides the order of the steps and what an error means. Never decides a plan, a manifest or a condition.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from shardwright.api.llmservice import LLMService, ServiceKey
from shardwright.api.names import workload_name
from shardwright.api.reasons import Reason
from shardwright.cluster.facts import ChildKey, ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.admission import Admission
from shardwright.controller.apply import Applier, Desired, Outcome
from shardwright.controller.canaries import LOOK_S, Canaries, CanaryNow
from shardwright.controller.dispatch import Dispatch
from shardwright.controller.emptiest import Emptiest
from shardwright.controller.gpu_faults import GPUFaults
from shardwright.controller.planning import Planning, Proposal
from shardwright.controller.report import Reporter
from shardwright.controller.rolling import ready_of, starts_of
from shardwright.controller.situation import Situation, observe
from shardwright.controller.starts import Starts
from shardwright.controller.work import Work, desired_children, plan_work, signature
from shardwright.diagnose.canary import Verdict
from shardwright.metrics.exposition import Exposition
from shardwright.planner.types import NoPlan
from shardwright.render.failed_start import FailedStart, failed_for
from shardwright.render.gateway import lacking
from shardwright.render.request import Capabilities

_LOG = logging.getLogger(__name__)

RESYNC_S: Final = 600.0
_RESYNC_JITTER: Final = 0.2
REPORT_S: Final = 1.0
LONGEST_REPORT_S: Final = 3.0
"""A report waits in steps, and so long at most, while other services may still wait for their children: those
come first, and what is reported later has settled further."""
RECHECK_S: Final = 30.0
"""How soon to look again when a reference is missing or a child's name is taken: neither is watched."""


@dataclass(frozen=True, slots=True)
class Result:
    """When to look again, in seconds; None: never, since the service is gone."""

    requeue_after_s: float | None


@dataclass(slots=True)
class Reconciler:
    """Reconciles services. One for the whole operator."""

    store: Store
    planning: Planning
    dispatch: Dispatch
    admission: Admission
    applier: Applier
    reporter: Reporter
    metrics: Exposition
    clock: Callable[[], float]
    timestamp: Callable[[], str]
    capabilities: Capabilities = field(default_factory=Capabilities)
    starts: Starts = field(default_factory=Starts)
    canaries: Canaries = field(default_factory=Canaries)
    emptiest: Emptiest | None = None
    """None: Kubernetes chooses which pods of a smaller workload go."""
    gpu_faults: GPUFaults | None = None
    # All by uid: a service made anew under the same name is another one.
    _rendered: dict[str, tuple[tuple[object, ...], tuple[tuple[ChildKey, bytes], ...]]] = field(
        default_factory=dict
    )
    """What was rendered last: its signature, and the digest of each child."""
    _unreported: dict[str, float] = field(default_factory=dict)
    """Since when a report waits."""

    async def reconcile(self, key: ServiceKey) -> Result:
        """Bring one service to what it should be. Raises ClusterError when that has to be tried again."""
        await self.admission.ensure(key)
        entry = self.store.services.get(key)
        proposal = self.planning.proposals.get(key)
        if entry is None:
            return Result(None)
        if entry.deleting or proposal is None:
            return _later()
        try:
            if entry.service is None:
                return _later(await self.reporter.report_unreadable(entry))
            return await self._run(entry, entry.service, proposal)
        finally:
            live = self.store.services.get(key)
            if live is None or live.uid != entry.uid:
                self.forget(entry.uid)  # it went meanwhile

    def forget(self, uid: str) -> None:
        """Forget a service that is gone."""
        self._rendered.pop(uid, None)
        self.applier.forget(uid)
        self._unreported.pop(uid, None)
        self.starts.forget(uid)
        self.canaries.forget(uid)
        self.planning.forget(uid)
        self.reporter.forget(uid)
        self.reporter.recorder.forget(uid)
        if self.gpu_faults is not None:
            self.gpu_faults.replacer.forget(uid)

    async def _run(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> Result:
        with self.metrics.cpu("decide"):
            now, work, look_s = self._decide(entry, service, proposal)
        with self.metrics.cpu("render"):
            desired = self._render(now, work)
        if self.emptiest is not None:
            await self.emptiest.choose(now, work)
        outcome = await self.applier.apply(entry, desired, work.remove)
        live = self.store.services.get(entry.key)
        if live is None or live.deleting or (live.uid, live.generation) != (entry.uid, entry.generation):
            return _later()
        self._bar(live, service, work, desired, outcome)
        if outcome.written and work.target is not None and work.target.replicas < now.desired:
            self.dispatch.queue.add(entry.key)  # it was taken, so that room may be made for it
        after = observe(self.store, self.planning, live, service, proposal)
        if now.routing.leaves and not after.routing.routed:
            self.dispatch.queue.add(entry.key)  # the Service has left its routers: they may go
        if self.gpu_faults is not None:
            await self.gpu_faults.look(live, after.pods.values())
        if work.target is not None and work.target.failed is not None:
            self._give_up(after)
            return _later(REPORT_S)
        self._wait_for_room(after)
        if self._report_later(entry.uid, written=outcome.written > 0):
            if outcome.retry is not None:
                raise outcome.retry
            return _later(REPORT_S)
        wait = await self.reporter.report(after, work, outcome)
        if outcome.conflicts or any(problem.blocking for problem in proposal.problems):
            self.dispatch.recheck(entry.key, RECHECK_S)
        if outcome.retry is not None:
            raise outcome.retry
        return _later(wait, min(outcome.next_s, look_s))

    def _report_later(self, uid: str, *, written: bool) -> bool:
        """Whether the children of others come before this report."""
        queue = self.dispatch.queue
        now = self.clock()
        since = self._unreported.setdefault(uid, now)
        if (len(queue) or (written and not queue.alone)) and now - since < LONGEST_REPORT_S:
            return True
        del self._unreported[uid]
        return False

    def _give_up(self, now: Situation) -> None:
        """Decide anew, now that it is on record that the target did not start."""
        record = now.record_of(now.target)
        if record is not None and record.failed is not None:
            _LOG.info(
                "start failed service=%s revision=%s reason=%s",
                now.entry.key,
                now.target,
                record.failed.reason,
            )
            self.dispatch.undecided.add(now.entry.key)
            self.dispatch.queue.add(now.entry.key)

    def _decide(
        self, entry: ServiceEntry, service: LLMService, proposal: Proposal
    ) -> tuple[Situation, Work, float]:
        """Claim what is wanted now, and decide what to do with what is granted; also when to look again."""
        if proposal.core is not None:
            before = self.planning.allocation(entry.key, proposal.target).granted
            self.admission.claim(entry, service, proposal)
            allocation = self.planning.allocation(entry.key, proposal.target)
            if allocation.granted < before:
                self.dispatch.settle_soon()
            if allocation.short:
                self.planning.ledger.settle(self.clock())
                self.dispatch.wake_changed(entry.key)
        now = observe(self.store, self.planning, entry, service, proposal)
        failed, look_s = self._failed_start(now)
        canary = self._canary(now)
        if canary is not None and not canary.done:
            look_s = min(look_s, LOOK_S)
            failed = failed or self._worse(now, canary)
        work = plan_work(now, self.planning, failed, canary)
        work.lacking = lacking(now.service.spec, self.capabilities)
        return now, work, look_s

    def _canary(self, now: Situation) -> CanaryNow | None:
        """Return the canary that is under way."""
        if len(now.deployments) == (now.target in now.deployments):  # no other one
            self.canaries.forget(now.entry.uid)
            return None
        return self.canaries.look(now, ready=ready_of(now), now_s=self.clock())

    def _worse(self, now: Situation, canary: CanaryNow) -> FailedStart | None:
        """Return that the target serves worse than what it replaces, when it does and is not paused."""
        rollout = now.service.spec.rollout
        if canary.judgement.verdict is not Verdict.WORSE or (rollout and rollout.paused):
            return None
        if now.target not in now.deployments:
            return None
        return FailedStart(
            reason=Reason.CANARY_WORSE,
            message=canary.judgement.message,
            at=self.timestamp(),
            spec=self.planning.start_key(now.entry, now.service),
        )

    def _failed_start(self, now: Situation) -> tuple[FailedStart | None, float]:
        """Return that the target has failed to start, when it has; and when to look again, in seconds.

        Only while there is another revision to go back to. A paused rollout is left as it is.
        """
        uid, rollout = now.entry.uid, now.service.spec.rollout
        current = now.deployments.get(now.target)
        if current is None or len(now.deployments) == 1:
            self.starts.forget(uid)
            return None, inf
        key = self.planning.start_key(now.entry, now.service)
        good = now.deployments.keys() - failed_for(now.revisions, key) - {now.target}
        if not good or (rollout and rollout.paused):
            self.starts.forget(uid)
            return None, inf
        trouble, look_s = self.starts.judge(
            uid,
            starts_of(now),
            create_failure=current.create_failure,
            deadline_exceeded=current.deadline_exceeded,
            now_s=self.clock(),
        )
        if trouble is None:
            return None, inf if look_s is None else look_s
        message = trouble.message
        return FailedStart(reason=trouble.reason, message=message, at=self.timestamp(), spec=key), inf

    def _bar(
        self, entry: ServiceEntry, service: LLMService, work: Work, desired: list[Desired], outcome: Outcome
    ) -> None:
        """Claim nothing for a target whose Deployment is not taken, and claim again once it is."""
        if work.target is None:
            return
        key = ("Deployment", entry.key.namespace, workload_name(entry.key.name, work.target.revision))
        missing = any(self.applier.differs(key, child.digest) for child in desired if child.key == key)
        refused = bool(outcome.conflicts) or any(problem.blocking for problem in outcome.refused)
        if missing and not refused:
            return  # it was not answered
        if self.planning.barred.note(entry.uid, work.target.revision, refused=missing):
            proposal = self.planning.proposals.get(entry.key)
            if proposal is not None and proposal.target == work.target.revision:
                self.admission.claim(entry, service, proposal)
            self.dispatch.settle_soon()
            self.dispatch.queue.add(entry.key)

    def _render(self, now: Situation, work: Work) -> list[Desired]:
        """Render, unless the same was rendered before and nothing live differs from it."""
        if not work.renders:
            return []
        uid = now.entry.uid
        wanted = signature(now, work, self.capabilities)
        known = self._rendered.get(uid)
        if known is not None and known[0] == wanted and not self._drifted(known[1]):
            return []
        desired = desired_children(now, work, self.capabilities, self.planning)
        self._rendered[uid] = (wanted, tuple((child.key, child.digest) for child in desired))
        return desired

    def _drifted(self, children: tuple[tuple[ChildKey, bytes], ...]) -> bool:
        return any(self.applier.differs(child, digest) for child, digest in children)

    def _wait_for_room(self, now: Situation) -> None:
        """Keep track of who may be helped by more room or another node."""
        decision = now.proposal.decision
        if isinstance(decision, NoPlan) or now.allocation.granted < now.desired:
            self.dispatch.waiting.add(now.entry.key)
        else:
            self.dispatch.waiting.discard(now.entry.key)
            now.proposal.forget_candidates(now.revisions)


def _later(wait_s: float | None = None, at_latest_s: float = inf) -> Result:
    """Look again after `wait_s`, or at the next resync."""
    if wait_s is None:
        jitter = random.uniform(-_RESYNC_JITTER, _RESYNC_JITTER)  # noqa: S311 -- spreads load
        wait_s = RESYNC_S * (1 + jitter)
    return Result(min(wait_s, at_latest_s))

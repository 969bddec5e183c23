"""One service brought to what it should be: observe, decide, render, apply, report.

Decides the order of the steps and what an error means. Never decides a plan, a manifest or a condition.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.llmservice import LLMService, ServiceKey
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.cluster.errors import Forbidden, Invalid
from shardwright.cluster.facts import ChildKey, ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.admission import Admission
from shardwright.controller.apply import Applier, Desired, Outcome
from shardwright.controller.dispatch import Dispatch
from shardwright.controller.planning import Planning, Proposal
from shardwright.controller.report import Reporter
from shardwright.controller.work import Situation, Work, desired_children, observe, plan_work, signature
from shardwright.metrics.exposition import Exposition
from shardwright.planner.types import NoPlan
from shardwright.render.request import Capabilities

_LOG = logging.getLogger(__name__)

RESYNC_S: Final = 600.0
_RESYNC_JITTER: Final = 0.2
REPORT_S: Final = 1.0
LONGEST_REPORT_S: Final = 3.0
"""A report waits in steps, and so long at most, while other services may still wait for their children: those
come first, and what is reported later has settled further."""
INVALID_S: Final = 1800.0
"""How long a child that the API server called invalid is not offered again: its policies may have changed."""
RECHECK_S: Final = 30.0
"""How soon to look again when a reference is missing, a child's name is taken or a quota is used up: none of
these is watched."""


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
    capabilities: Capabilities = field(default_factory=Capabilities)
    # All by uid: a service made anew under the same name is another one.
    _rendered: dict[str, tuple[tuple[object, ...], tuple[tuple[ChildKey, bytes], ...]]] = field(
        default_factory=dict
    )
    """What was rendered last: its signature, and the digest of each child."""
    _refused: dict[str, tuple[int, float, Problem]] = field(default_factory=dict)
    """What the API server said of a child that it refused: of which generation, and until when it counts."""
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
        self._refused.pop(uid, None)
        self._unreported.pop(uid, None)
        self.planning.forget(uid)
        self.reporter.forget(uid)
        self.reporter.recorder.forget(uid)

    async def _run(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> Result:
        with self.metrics.cpu("decide"):
            now, work = self._decide(entry, service, proposal)
        refused = self._refused_now(entry)
        outcome = Outcome()
        if not refused:
            with self.metrics.cpu("render"):
                desired = self._render(now, work)
            try:
                outcome = await self.applier.apply(entry, desired)
                if not outcome.conflicts:
                    for child in work.remove:
                        await self.applier.delete(child)
            except (Invalid, Forbidden) as error:
                if error.status == 401:
                    raise  # a login, not a verdict on the child
                refused = self._refuse(entry, error)
        live = self.store.services.get(entry.key)
        if live is None or live.deleting or (live.uid, live.generation) != (entry.uid, entry.generation):
            return _later()
        after = observe(self.store, self.planning, live, service, proposal)
        self._wait_for_room(after)
        if self._report_later(entry.uid, written=outcome.written > 0):
            return _later(REPORT_S)
        wait = await self.reporter.report(after, work, conflicts=outcome.conflicts, refused=refused)
        passing = any(problem.reason is not Reason.POD_TEMPLATE_REFUSED for problem in refused)
        if outcome.conflicts or passing or any(problem.blocking for problem in proposal.problems):
            self.dispatch.recheck(entry.key, RECHECK_S)
        return _later(wait)

    def _report_later(self, uid: str, *, written: bool) -> bool:
        """Whether the children of others come before this report."""
        queue = self.dispatch.queue
        now = self.clock()
        since = self._unreported.setdefault(uid, now)
        if (len(queue) or (written and not queue.alone)) and now - since < LONGEST_REPORT_S:
            return True
        del self._unreported[uid]
        return False

    def _decide(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> tuple[Situation, Work]:
        """Claim what is wanted now, and decide what to do with what is granted."""
        if proposal.core is not None:
            self.admission.claim(entry, service, proposal)
            allocation = self.planning.allocation(entry.key, proposal.target)
            if allocation.short:
                self.planning.ledger.settle(self.clock())
                self.dispatch.wake_changed(entry.key)
        now = observe(self.store, self.planning, entry, service, proposal)
        return now, plan_work(now, self.planning)

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

    def _refused_now(self, entry: ServiceEntry) -> tuple[Problem, ...]:
        known = self._refused.get(entry.uid)
        if known is None or known[0] != entry.generation or known[1] <= self.clock():
            return ()
        return (known[2],)

    def _refuse(self, entry: ServiceEntry, error: Invalid | Forbidden) -> tuple[Problem, ...]:
        """Remember that the API server refuses a child, so as not to ask again at every event.

        What is invalid stays so until the spec changes, or a policy of the cluster does. A quota or a right
        is looked at again soon.
        """
        known = self._refused.get(entry.uid)
        problem = _refusal(error)
        if known is None or known[2] != problem:
            _LOG.warning("child refused service=%s error=%s", entry.key, error)
        wait_s = INVALID_S if isinstance(error, Invalid) else RECHECK_S / 2
        self._refused[entry.uid] = (entry.generation, self.clock() + wait_s, problem)
        return (problem,)


def _refusal(error: Invalid | Forbidden) -> Problem:
    """Say what the API server refused, without the counts of a quota, which others change."""
    if isinstance(error, Invalid):
        return Problem(
            reason=Reason.POD_TEMPLATE_REFUSED,
            field="spec.podTemplate",
            message=f"the API server refuses what this spec renders: {error.said}"[:1000],
        )
    said = error.said.partition(", used: ")[0][:1000]
    if "exceeded quota" in said:
        return Problem(
            reason=Reason.QUOTA_EXCEEDED,
            message=f"a ResourceQuota of the namespace leaves no room for a child ({said}): raise it, or "
            "delete what uses it up",
        )
    return Problem(
        reason=Reason.WRITE_FORBIDDEN,
        message=f"the API server forbids the operator to write a child ({said}): grant the right, or "
        "change the policy that is named",
    )


def _later(wait_s: float | None = None) -> Result:
    """Look again after `wait_s`, or at the next resync."""
    if wait_s is not None:
        return Result(wait_s)
    jitter = random.uniform(-_RESYNC_JITTER, _RESYNC_JITTER)  # noqa: S311 -- spreads load
    return Result(RESYNC_S * (1 + jitter))

"""What is told of a service: its status, and events of transitions.

Decides when a status is worth a write: at once when a verdict changes, a little later when only counts
move or when a start makes progress, so that replicas which come up together are told together. Never
decides what a condition says.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from pydantic import ValidationError

from shardwright.api.llmservice import KIND, LLMService
from shardwright.api.names import workload_name
from shardwright.api.status import Condition, PlanStatus, ScalingStatus
from shardwright.cluster.api import Api
from shardwright.cluster.events import Recorder
from shardwright.cluster.facts import ChildFacts, ServiceEntry, StatusFacts, seconds, status_facts
from shardwright.cluster.json import JsonObject
from shardwright.cluster.store import Store
from shardwright.controller.apply import Outcome
from shardwright.controller.awaiting import failed_facts, recalculated_facts, rollout_facts, waiting_facts
from shardwright.controller.elsewhere import room_elsewhere
from shardwright.controller.fetching import fetch_facts, fetch_pod_trouble
from shardwright.controller.planning import Planning
from shardwright.controller.rolling import claimable
from shardwright.controller.situation import Situation
from shardwright.controller.work import Work, names
from shardwright.diagnose.budget import cut_by_budget
from shardwright.diagnose.events import events, scaling_events
from shardwright.diagnose.facts import (
    EngineFault,
    FetchFacts,
    ForeignEdit,
    Holder,
    MetricsFacts,
    PlacementFacts,
    PodTrouble,
    RecalculatedFacts,
    ServiceFacts,
    WaitingFacts,
    WorkloadFacts,
)
from shardwright.diagnose.status import status as full_status
from shardwright.diagnose.trouble import NODE_GONE, NODE_LOST
from shardwright.metrics.exposition import Exposition
from shardwright.planner.report import plan_status
from shardwright.planner.types import NoPlan, Plan
from shardwright.topology.types import PodFacts

PROGRESS_S: Final = 3.0
"""How long a status waits whose only news is that a start makes progress."""
_PLANS: Final = 256
_GOOD_NEWS: Final = ("Planned=", "Degraded=")
"""Good news worth a request for each service; the rest is in the conditions."""
Facts = WaitingFacts | RecalculatedFacts
"""Of a plan that is not in force."""
_URGENT: Final = ("Accepted", "Planned", "Placed", "Ready", "Degraded", "Stalled")


@dataclass(slots=True)
class Reporter:
    """Writes statuses. `clock` gives seconds, `timestamp` RFC 3339 in whole seconds."""

    api: Api
    store: Store
    planning: Planning
    recorder: Recorder
    metrics: Exposition
    clock: Callable[[], float]
    timestamp: Callable[[], str]
    engine_metrics: Callable[[ServiceEntry, str], MetricsFacts] = lambda _entry, _revision: MetricsFacts()
    """What the engines of a service's revision report."""
    scaling: Callable[[ServiceEntry, str, int], ScalingStatus | None] = lambda _entry, _revision, _size: None
    """How the size of a service's revision came about."""
    asleep: Callable[[ServiceEntry, LLMService], bool] = lambda _entry, _service: False
    """Whether a service without replicas gets one with the next request."""
    faults: Callable[[ServiceEntry], tuple[EngineFault, ...]] = lambda _entry: ()
    """Engines that are replaced."""
    _news_since: dict[str, float] = field(default_factory=dict)
    """By uid: since when a status differs from the live one and waits."""
    _told: dict[str, tuple[bytes, ServiceFacts]] = field(default_factory=dict)
    """By uid: the digest of the status that is live, and the facts, without times, that it tells."""
    _plans: dict[tuple[str, str], PlanStatus] = field(default_factory=dict)
    _awaited: dict[str, tuple[tuple[object, ...], Facts | None]] = field(default_factory=dict)
    """By uid: what the facts of a plan that is not in force depend on, and the facts."""

    async def report(self, now: Situation, work: Work, outcome: Outcome) -> float | None:
        """Write the status if it is worth it; in how many seconds to look again, None for no such time."""
        look_s = self._turns_s(now, work)
        wait = await self._report(now, work, outcome)
        soonest = min(look_s, inf if wait is None else wait)
        return None if soonest == inf else soonest

    def _turns_s(self, now: Situation, work: Work) -> float:
        """In how many seconds a trouble begins or ends to be told, without any event."""
        found = [self.store.troubles.get((pod.namespace, pod.name)) for pod in now.pods.values()]
        if work.awaited is not None:
            found.append(fetch_pod_trouble(now, work.awaited.fetch.job))
        turns = [at for trouble in found if trouble is not None for at in (trouble.from_s, trouble.until_s)]
        if not any(0 < at < inf for at in turns):
            return inf
        at_s = seconds(self.timestamp())
        # A second more: the time is told in whole ones.
        return min((at - at_s + 1 for at in turns if at_s < at < inf), default=inf)

    async def _report(self, now: Situation, work: Work, outcome: Outcome) -> float | None:
        with self.metrics.cpu("report"):
            facts = self._facts(now, work, outcome)
            timeless = replace(facts, now="", previous=(), previous_rollout=None)
            if self._told.get(now.entry.uid) == (now.entry.status.digest, timeless):
                self._news_since.pop(now.entry.uid, None)
                return None
            wanted = full_status(facts)
        return await self._write(now.entry, wanted, timeless)

    async def report_unreadable(self, entry: ServiceEntry) -> float | None:
        """Report a service whose spec cannot be read."""
        facts = ServiceFacts(
            namespace=entry.key.namespace,
            name=entry.key.name,
            generation=entry.generation,
            now=self.timestamp(),
            previous=entry.status.conditions,
            problems=entry.problems,
        )
        return await self._write(entry, full_status(facts))

    def forget(self, uid: str) -> None:
        """Forget a service that is gone."""
        self._news_since.pop(uid, None)
        self._told.pop(uid, None)
        self._awaited.pop(uid, None)

    async def _write(
        self, entry: ServiceEntry, wanted: JsonObject, timeless: ServiceFacts | None = None
    ) -> float | None:
        with self.metrics.cpu("report"):
            after = status_facts(wanted)
        if after.digest == entry.status.digest:
            self._news_since.pop(entry.uid, None)
            self._tell(entry, entry.resource_version, timeless)
            return None
        wait = 0.0 if _urgent(entry.status, after) else self._wait(entry.uid)
        if wait > 0:
            self.metrics.status_written("deferred")
            return wait
        answer = await self.api.apply_status(entry.key.namespace, entry.key.name, wanted, entry.uid)
        self.metrics.status_written("written")
        self._news_since.pop(entry.uid, None)
        self.store.hold_status(entry.key, answer, after)
        self._tell(entry, answer["resourceVersion"], timeless)
        told = (
            *events(entry.status.conditions, after.conditions),
            *scaling_events(entry.status.scaling, after.scaling),
        )
        for event in told:
            if event.type == "Normal" and not event.message.startswith(_GOOD_NEWS) and not event.action:
                continue
            await self.recorder.post(
                entry.key,
                entry.uid,
                reason=event.reason,
                note=event.message,
                action=event.action or event.message.partition("=")[0],
                warning=event.type == "Warning",
            )
        return None

    def _tell(self, entry: ServiceEntry, version: str, timeless: ServiceFacts | None) -> None:
        """Take note that `timeless` is told by the status of `version`, while that is the live one.

        Its digest is not that of what was written where others have a say in the status.
        """
        live = self.store.services.get(entry.key)
        if timeless is None or live is None:
            return
        if (live.uid, live.resource_version) == (entry.uid, version):
            self._told[entry.uid] = (live.status.digest, timeless)

    def _wait(self, uid: str) -> float:
        now = self.clock()
        since = self._news_since.setdefault(uid, now)
        return max(0.0, since + PROGRESS_S - now)

    def _facts(self, now: Situation, work: Work, outcome: Outcome) -> ServiceFacts:
        resolved = now.resolved
        proposal, waiting = now.proposal, self._waiting(now)
        core = proposal.core if waiting is None or proposal.waiting is None else proposal.waiting.core
        in_force = work.target is not None
        placement = self._placement(now)
        cut = placement is not None and placement.cut is not None
        scaling = now.service.spec.scaling
        by_clock = scaling is not None and bool(scaling.schedules)
        asleep = core is not None and not now.desired and self.asleep(now.entry, now.service)
        return ServiceFacts(
            namespace=now.entry.key.namespace,
            name=now.entry.key.name,
            generation=now.entry.generation,
            now=self.timestamp(),
            previous=now.entry.status.conditions,
            problems=(*work.lacking, *proposal.problems, *(p for p in outcome.refused if p.blocking)),
            child_conflicts=tuple(outcome.conflicts),
            child_refusals=tuple(p.message for p in outcome.refused if not p.blocking),
            foreign_autoscalers=self._autoscalers(now, "Deployment", names(now)),
            idle_autoscalers=()
            if resolved.scale.mode == "External"
            else self._autoscalers(now, KIND, {now.entry.key.name}),
            foreign_edits=tuple(
                ForeignEdit(child=f"{child.kind}/{child.name}", field=at, manager=manager)
                for child in self.store.children_of(now.entry.key).values()
                if child.belongs_to(now.entry.uid)
                for at, manager in child.additions
            ),
            decision=proposal.decision or (None if proposal.held else core),
            plan=self._plan(now),
            target_revision="" if proposal.held else now.target,
            waiting=waiting,
            recalculated=self._recalculated(now),
            # What the spec's own budget leaves out is no promise, nor is a minimum that a schedule lowers.
            needed_replicas=now.desired
            if cut or by_clock or asleep
            else max(now.desired, resolved.scale.planned_replicas),
            desired_replicas=now.desired
            if in_force or now.proposal.core
            else resolved.scale.planned_replicas,
            asleep=asleep,
            placement=placement,
            rollout=rollout_facts(work),
            previous_rollout=now.entry.status.rollout,
            failed=failed_facts(now),
            ends_first=work.ends_first,
            fetch=self._fetch(now, work),
            staggered=work.staggered,
            faults=self.faults(now.entry),
            workloads=self._workloads(now, work),
            router=now.routing.facts(),
            metrics=self.engine_metrics(now.entry, now.target),
            scaling=self.scaling(now.entry, now.target, now.desired),
        )

    def _autoscalers(self, now: Situation, kind: str, of: set[str]) -> tuple[str, ...]:
        found = self.store.autoscalers_at(now.entry.key.namespace, kind, of)
        return tuple(f"HorizontalPodAutoscaler/{name}" for name in found)

    def _waiting(self, now: Situation) -> WaitingFacts | None:
        """Give what waits; it is worked out once for what it depends on."""
        if now.proposal.waiting is None:
            return None
        found = self._once(now, now.proposal.waiting.revision, waiting_facts)
        return found if isinstance(found, WaitingFacts) else None

    def _recalculated(self, now: Situation) -> RecalculatedFacts | None:
        """Give what planning anew leads to, where nothing waits."""
        other = now.proposal.recalculated
        if other is None or now.proposal.waiting is not None:
            return None
        found = self._once(
            now,
            (other.inputs_digest if isinstance(other, NoPlan) else other.core.inputs_digest),
            recalculated_facts,
        )
        return found if isinstance(found, RecalculatedFacts) else None

    def _once(self, now: Situation, what: str, work_out: Callable[[Situation], Facts | None]) -> Facts | None:
        records = tuple((r.revision, r.uid, r.number) for r in now.revisions)
        depends = work_out, now.entry.generation, now.target, now.desired, what, records
        known = self._awaited.get(now.entry.uid)
        if known is None or known[0] != depends:
            known = self._awaited[now.entry.uid] = depends, work_out(now)
        return known[1]

    def _plan(self, now: Situation) -> PlanStatus | None:
        """Give the plan in force as status shows it: as on record, else as just decided."""
        if now.proposal.core is None:
            return None
        stored = now.record_of(now.target)
        if stored is None:
            decision = now.proposal.decision
            return plan_status(decision, now.target) if isinstance(decision, Plan) else None
        # Equal specs have equal plans: their reports are one object.
        same = (now.target, now.proposal.core.inputs_digest)
        report = self._plans.get(same)
        if report is None:
            report = self._read_plan(now, stored)
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            self._plans[same] = report
        return report

    @staticmethod
    def _read_plan(now: Situation, stored: ChildFacts) -> PlanStatus:
        try:
            return PlanStatus.model_validate(stored.stored()["report"])
        except (ValidationError, KeyError):
            assert now.proposal.core is not None
            return plan_status(now.proposal.core, now.target)

    def _placement(self, now: Situation) -> PlacementFacts | None:
        core = now.proposal.core
        if core is None:
            return None
        allocation = now.allocation
        holders: tuple[Holder, ...] = ()
        detail = ""
        elsewhere: tuple[str, ...] = ()
        wanted = claimable(
            now.entry, now.service, now.proposal, now.desired, planning=self.planning, store=self.store
        )
        short = allocation.granted < wanted
        if short and not now.barred:
            ledger = self.planning.ledger
            nodes = self.planning.eligible(now.service, now.proposal)
            own = f"{now.entry.key}"
            holders = tuple(Holder(name=who, gpus=gpus) for who, gpus in ledger.holders(nodes) if who != own)
            detail = ledger.obstacle(
                self.planning.claim_of(now.entry, now.service, now.proposal, now.desired)
            )
            plan = None if now.proposal.held else self._plan(now)
            if plan is not None:
                pool = self.planning.pool(now.service.spec.pool)
                elsewhere = room_elsewhere(plan, core.pod_resources, pool, ledger.free)
        return PlacementFacts(
            wanted=wanted,
            granted=min(allocation.granted, wanted),
            gpus_per_replica=core.gpus_per_replica,
            given_up=short and now.barred,
            holders=holders,
            detail=detail,
            elsewhere=elsewhere,
            cut=cut_by_budget(
                now.service.spec,
                now.resolved,
                gpus_per_replica=core.gpus_per_replica,
                run=now.desired,
            ),
        )

    def _workloads(self, now: Situation, work: Work) -> tuple[WorkloadFacts, ...]:
        gone = {child.revision for child in work.remove if child.kind == "Deployment"}
        revisions = dict.fromkeys([*now.deployments, *work.replicas()])
        return tuple(self._workload(now, revision) for revision in revisions if revision not in gone)

    def _workload(self, now: Situation, revision: str) -> WorkloadFacts:
        deployment = self.store.children.get(
            ("Deployment", now.entry.key.namespace, workload_name(now.entry.key.name, revision))
        )
        staying = [pod for pod in now.pods_of(revision) if not pod.terminating]
        core = now.proposal.core
        if revision != now.target:
            record = now.record_of(revision)
            core = self.planning.core_of(now.entry.uid, record) if record is not None else core
        desired = deployment.replicas if deployment else 0
        return WorkloadFacts(
            name=workload_name(now.entry.key.name, revision),
            revision=revision,
            summary=replace(core, replicas=desired).summary if core else "",
            desired=desired,
            pods=len(staying),
            ready=sum(1 for pod in staying if pod.ready and pod.serving)
            if now.serves in {"", revision}
            else 0,
            deadline_exceeded=bool(deployment and deployment.deadline_exceeded),
            create_failure=deployment.create_failure if deployment else "",
            troubles=self._troubles(staying),
        )

    def _fetch(self, now: Situation, work: Work) -> FetchFacts | None:
        """Return what is told of a Job that fetches weights; of its trouble only what it is time to tell."""
        facts = fetch_facts(now, work.awaited)
        if facts is None or facts.trouble is None or self._is_told(facts.trouble):
            return facts
        return replace(facts, trouble=None)

    def _troubles(self, pods: list[PodFacts]) -> tuple[PodTrouble, ...]:
        """Put equal troubles together; the message is one pod's."""
        found: dict[tuple[str, str, str, int | None], PodTrouble] = {}
        for pod in sorted(pods):
            trouble = self.store.troubles.get((pod.namespace, pod.name))
            if pod.node and not self.store.reachable(pod):
                there = pod.node in self.store.nodes
                trouble = PodTrouble(reason=NODE_LOST if there else NODE_GONE, message=pod.node)
            if trouble is None or not self._is_told(trouble):
                continue
            trouble = replace(trouble, from_s=0.0, until_s=inf)
            same = (trouble.container, trouble.reason, trouble.last_exit, trouble.exit_code)
            known = found.get(same)
            found[same] = replace(known, pods=known.pods + 1) if known else trouble
        return tuple(found.values())

    def _is_told(self, trouble: PodTrouble) -> bool:
        """Whether it is the time to tell a trouble."""
        if trouble.from_s == 0 and trouble.until_s == inf:
            return True
        return trouble.from_s <= seconds(self.timestamp()) < trouble.until_s


def _urgent(live: StatusFacts, wanted: StatusFacts) -> bool:
    """Whether a verdict changes, other than a start's progress towards Ready."""
    if live.observed_generation != wanted.observed_generation or not live.conditions:
        return True
    if live.plan_revision != wanted.plan_revision:
        return True
    if _size(live) != _size(wanted):  # where a new operator goes on from
        return True
    before = {c.type: c for c in live.conditions}
    after = {c.type: c for c in wanted.conditions}
    if any(_verdict(before.get(kind)) != _verdict(after.get(kind)) for kind in _URGENT):
        return True
    was, is_now = before.get("Available"), after.get("Available")
    return was is not None and is_now is not None and was.status == "True" and is_now.status != "True"


def _size(status: StatusFacts) -> int:
    return status.scaling.desired_replicas if status.scaling else 0


def _verdict(condition: Condition | None) -> tuple[str, str]:
    return (condition.status, condition.reason) if condition else ("", "")

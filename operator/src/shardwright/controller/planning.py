"""Plans, kept plans and claims of all services: the part of deciding that looks beyond one service.

Decides what a service should run (the plan in force while its digest holds, else what the planner
chooses) and claims places for it. Nothing here does I/O; references were checked before. Pools and
decisions are remembered by what they depend on, so that a thousand services of fifty kinds are planned
fifty times.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from shardwright.api.defaults import Resolved, resolve
from shardwright.api.llmservice import LLMService, ServiceKey
from shardwright.api.pool import PoolSpec
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.catalog.engines import engine_class
from shardwright.catalog.types import GPUProduct
from shardwright.cluster.drift import digest
from shardwright.cluster.facts import ChildFacts, ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.barred import Barred
from shardwright.planner.choice import plan as choose
from shardwright.planner.corrections import of_models
from shardwright.planner.load import replicas_of
from shardwright.planner.placement import nodes_of
from shardwright.planner.types import (
    Correction,
    CorrectionKey,
    Decision,
    ModelChoice,
    NoPlan,
    Plan,
    PlanRequest,
)
from shardwright.render.approval import CALIBRATED, newest_first, on_record, replicas_beside, replicas_held
from shardwright.render.digest import revision_hash, template_digest
from shardwright.render.failed_start import spec_key
from shardwright.render.revision import read_revision
from shardwright.render.scheduling import pool_of_template
from shardwright.topology.ledger import Ledger
from shardwright.topology.pool import pool_key, shape_pool
from shardwright.topology.types import Allocation, Claim, PodFacts, Pool

_SHARED: Final = 4096
"""Plans known by their digest, so that equal ones are one object; some 2 kB each."""
_DECISIONS: Final = 256
"""Decisions remembered: each can hold dozens of candidates, some 50 kB."""


@dataclass(slots=True, kw_only=True)
class Waiting:
    """The revision that a spec leads to while another one is in force, or none."""

    revision: str
    core: Plan
    """Its plan without its candidates."""
    record: ChildFacts | None = None
    """Its record as last seen."""
    decision: Plan | None = None
    """The plan with its candidates, until it is on record."""


@dataclass(slots=True, kw_only=True)
class Proposal:
    """What a service should run, for one generation of it."""

    generation: int
    problems: tuple[Problem, ...] = ()
    decision: Decision | None = None
    """What the planner said; None when it was not asked, or when the revision that it led to is on record."""
    target: str = ""
    """Hash of the revision to run; empty while there is none."""
    core: Plan | None = None
    """The target's plan without its candidates."""
    record: ChildFacts | None = None
    """The target's revision as last seen: it is written again from this when someone deletes it."""
    recorded_replicas: int = 0
    """Replicas that the status says were wanted, where the target's figures are an earlier spec's; else 0."""
    waiting: Waiting | None = None
    """What the spec leads to, where that is not the target (see `controller.approvals`)."""
    failed: str = ""
    """The revision that would be in force, had it started; the target is what ran before it."""
    recalculated: Waiting | NoPlan | None = None
    """What planning the same spec again leads to, counting with what was measured; never in force by itself
    (see `controller.recalculation`)."""
    seen: tuple[object, ...] = ()
    """What was known of its engines when it was decided (`Recalculation.known`)."""
    kept: bool = False
    """The target is the revision in force, and nothing was planned."""
    held: bool = False
    """This generation cannot be run, and the target is what the last one left running."""
    priority: int = 0
    for_one_node: frozenset[str] = frozenset()
    """Claims, of this spec and of what is on record, that only one node can mount at a time."""
    for_one_pod: frozenset[str] = frozenset()
    """The cache's claim, when one pod alone can mount it."""
    unbound: frozenset[str] = frozenset()
    """The cache's claim, while it has no volume."""
    fingerprint: str = ""
    """Of the pool that was planned against."""

    @property
    def beside(self) -> Waiting | None:
        """The plan that is to be on record and is not the target; no two of them are at once."""
        if self.waiting is not None:
            return self.waiting
        return self.recalculated if isinstance(self.recalculated, Waiting) else None

    @property
    def blocked(self) -> bool:
        """Whether a problem keeps this generation from being run."""
        return any(problem.blocking for problem in self.problems)

    def forget_candidates(self, revisions: list[ChildFacts]) -> None:
        """Let go of plans with all their candidates that are on record by now."""
        records = {revision.revision: revision for revision in revisions}
        if not self.held and self.target in records:
            self.record, self.decision = records[self.target], None
        other = self.beside
        if other is not None and other.revision in records:
            other.record, other.decision = records[other.revision], None


class Planning:
    """Proposals and claims. `store` and `ledger` are shared with the controller."""

    def __init__(self, store: Store, ledger: Ledger, products: dict[str, GPUProduct]) -> None:
        self._store = store
        self.ledger = ledger
        self._products = products
        self.proposals: dict[ServiceKey, Proposal] = {}
        self.barred = Barred()
        self.plans = 0
        self._pools: dict[tuple[object, ...], Pool] = {}
        self._eligible: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._recorded: dict[str, tuple[PoolSpec, PoolSpec]] = {}
        """By uid of a revision's record: the pool that the spec stated, and that of the record beside it."""
        self._decisions: OrderedDict[tuple[object, ...], tuple[Decision, Plan | None, str]] = OrderedDict()
        """By what they depend on: the decision, the plan without candidates, the revision's hash."""
        self._digests: dict[bytes, str] = {}
        self._cores: dict[tuple[str, str], Plan] = {}
        self._shared: dict[bytes, Plan] = {}
        self.corrections: Mapping[CorrectionKey, Correction] = {}
        """What was measured before, for plans that are made from now on."""
        self.scaled: Scaled = unscaled
        """The autoscaler's say."""

    # What there is.

    def nodes_changed(self) -> None:
        """Forget what depended on the nodes."""
        self._pools.clear()
        self._eligible.clear()

    def part(self, key: ServiceKey) -> None:
        """Plan for a service no more, and give its places up. Pods that are bound keep theirs."""
        self.proposals.pop(key, None)
        self.ledger.release((key[0], key[1]))

    def forget(self, uid: str) -> None:
        """Forget the plans of a service that is gone."""
        self.barred.forget(uid)
        for known in [k for k in self._cores if k[0] == uid]:
            del self._cores[known]
        if len(self._recorded) >= _SHARED:
            self._recorded.clear()

    def pool(self, spec: PoolSpec) -> Pool:
        """Return the nodes of a pool, as if all were free."""
        key = pool_key(spec)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = shape_pool(self._store.nodes.values(), self._products, spec)
        return pool

    def eligible(self, service: LLMService, proposal: Proposal) -> tuple[str, ...]:
        """Return the names of nodes where a replica of the target may run. There must be a target.

        Equal questions get one shared tuple.
        """
        core = proposal.core
        if core is None:
            raise ValueError(f"{service.key} has no target to run")
        spec = service.spec.pool
        if proposal.record is not None and (proposal.held or proposal.waiting is not None):
            spec = self._recorded_pool(spec, proposal.record)
        key = (pool_key(spec), core.inputs_digest, core.product.label, core.pod_resources)
        names = self._eligible.get(key)
        if names is None:
            names = self._eligible[key] = nodes_of(core, self.pool(spec))
        return names

    def _recorded_pool(self, spec: PoolSpec, record: ChildFacts) -> PoolSpec:
        """Return the pool of a revision that the spec does not lead to: where its pods can be scheduled."""
        known = self._recorded.get(record.uid)
        if known is None or known[0] != spec:
            made = pool_of_template(record.stored().get("template") or {}, spec)
            known = self._recorded[record.uid] = (spec, made)
        return known[1]

    # What should be.

    def template_digest(self, entry: ServiceEntry, service: LLMService) -> str:
        """Return `render.digest.template_digest` of a service, once for equal specs."""
        found = self._digests.get(entry.spec_digest)
        if found is None:
            if len(self._digests) >= _SHARED:
                self._digests.clear()
            found = self._digests[entry.spec_digest] = template_digest(service.spec)
        return found

    def start_key(self, entry: ServiceEntry, service: LLMService) -> str:
        """Name what a start that failed was tried for."""
        return spec_key(self.template_digest(entry, service), service.spec.approved_revision)

    def keep(
        self, entry: ServiceEntry, service: LLMService, revisions: list[ChildFacts]
    ) -> ChildFacts | None:
        """Find the revision that this spec is known to lead to, without planning; the one in force first."""
        if not revisions:
            return None
        status, decided = entry.status, ""
        # Of a generation that cannot be run, the status names what the last one left running.
        if status.observed_generation == entry.generation and status.holds("Planned"):
            decided = status.proposal_revision or status.plan_revision
        approved = service.spec.approved_revision or ""
        return on_record(revisions, self.template_digest(entry, service), decided, approved=approved)

    def propose_kept(
        self,
        entry: ServiceEntry,
        service: LLMService,
        revision: ChildFacts,
        problems: tuple[Problem, ...],
    ) -> Proposal:
        """Propose what is on record.

        A revision that another spec led to earlier has the figures of that one's load: how many replicas this
        one takes is on record in the status only, like the choice itself.
        """
        own = revision.template_digest.removesuffix(CALIBRATED) == self.template_digest(entry, service)
        return Proposal(
            generation=entry.generation,
            recorded_replicas=0 if own else entry.status.plan_replicas,
            problems=problems,
            target=revision.revision,
            core=self.core_of(entry.uid, revision),
            record=revision,
            kept=True,
        )

    def propose(
        self,
        entry: ServiceEntry,
        service: LLMService,
        models: tuple[ModelChoice, ...],
        problems: tuple[Problem, ...],
    ) -> Proposal:
        """Ask the planner."""
        decision, core, target = self.decide(entry, service, models)
        return Proposal(
            generation=entry.generation,
            problems=problems,
            decision=decision,
            target=target,
            core=core,
            fingerprint=self.pool(service.spec.pool).fingerprint,
        )

    def decide(
        self, entry: ServiceEntry, service: LLMService, models: tuple[ModelChoice, ...]
    ) -> tuple[Decision, Plan | None, str]:
        """Return what the planner says, its plan without candidates, and the revision that it leads to."""
        pool = self.pool(service.spec.pool)
        corrections = of_models(self.corrections, models, entry.engine_version)
        key = (entry.spec_digest, pool.fingerprint, models, tuple(corrections.items()))
        known = self._decisions.get(key)
        if known is not None:
            self._decisions.move_to_end(key)
            return known
        request = PlanRequest(
            spec=service.spec,
            models=models,
            pool=pool,
            engine=engine_class(entry.engine_version),
            products=self._products,
            corrections=corrections,
        )
        decision = choose(request)
        self.plans += 1
        core, target = None, ""
        if isinstance(decision, Plan):
            core, target = replace(decision, candidates=()), revision_hash(service.spec, decision)
        self._decisions[key] = (decision, core, target)
        if len(self._decisions) > _DECISIONS:
            self._decisions.popitem(last=False)
        return self._decisions[key]

    def correction_of(self, entry: ServiceEntry, plan: Plan) -> Correction | None:
        """Return what was measured of a plan's model on its GPUs with the engine that its service runs."""
        return self.corrections.get((plan.model.model_id, plan.product.label, entry.engine_version))

    def pods_of(self, key: ServiceKey) -> list[PodFacts]:
        """Return the pods of a service that are on a node."""
        return [pod for pod in self._store.pods_of(key).values() if pod.node]

    def core_of(self, uid: str, revision: ChildFacts) -> Plan:
        """Read the plan of a revision on record, once; equal plans are one object. Raises RevisionError."""
        key = (uid, revision.revision)
        core = self._cores.get(key)
        if core is None:
            stored = revision.stored()
            same = digest(stored.get("plan"))
            core = self._shared.get(same)
            if core is None:
                if len(self._shared) >= _SHARED:
                    self._shared.clear()
                core = self._shared[same] = read_revision(stored).plan
            self._cores[key] = core
        return core

    # Claims.

    def claim_of(
        self,
        entry: ServiceEntry,
        service: LLMService,
        proposal: Proposal,
        replicas: int,
        *,
        all_or_none: bool = False,
    ) -> Claim:
        """Build what a service claims for its target. The proposal must have one."""
        if proposal.core is None:
            raise ValueError(f"{entry.key} has no target to claim for")
        return Claim(
            service=(entry.key[0], entry.key[1]),
            revision=proposal.target,
            pod=proposal.core.pod_resources,
            nodes=self.eligible(service, proposal),
            replicas=replicas,
            priority=proposal.priority,
            created_s=entry.created_s,
            minimum=replicas if all_or_none else 1,
            spread=bool(service.spec.availability and service.spec.availability.survive_node_loss),
        )

    def most_pods(self, entry: ServiceEntry, target: str) -> int | None:
        """Return how many pods of a target there can be; None while nothing keeps them from being made."""
        key = entry.key
        return self.barred.most_pods(entry, target, self._store.children_of(key), self._store.pods_of(key))

    def allocation(self, key: ServiceKey, revision: str) -> Allocation:
        """Return what a revision has."""
        return self.ledger.allocation((key[0], key[1]), revision)


Scaled = Callable[[ServiceEntry, LLMService, Proposal, int, int], int | None]
"""The autoscaler's size of a service: see `controller.sizes.Sizes.wanted`."""


def unscaled(
    _entry: ServiceEntry, _service: LLMService, _proposal: Proposal, _planned: int, _live: int
) -> None:
    """Have no say."""


def wanted_replicas(
    entry: ServiceEntry,
    service: LLMService,
    proposal: Proposal,
    children: Iterable[ChildFacts],
    scaled: Scaled = unscaled,
) -> int:
    """Return the replicas that scaling asks for, as far as `pool.maxGPUs` goes; 0 without a target.

    In Auto mode this is what the stated load takes by the plan's own figures, at least minReplicas, until
    `scaled`, the autoscaler, has a say. The budget of a generation that cannot be run takes nothing from what
    runs of its `children`. A claim that further nodes cannot mount keeps replicas from being added: their
    pods would hold GPUs and never start.
    """
    core = proposal.core
    if core is None:
        return 0
    resolved, max_gpus = entry.resolved or resolve(service.spec), service.spec.pool.max_gpus
    ours = [c for c in children if c.is_workload and c.belongs_to(entry.uid)]
    running = sum(c.replicas for c in ours)
    live = sum(c.replicas for c in ours if c.revision == proposal.target)
    if proposal.waiting is not None and not proposal.held:
        recorded = proposal.recorded_replicas
        wanted = replicas_beside(core, resolved, max_gpus, recorded=recorded, live=live)
    else:
        wanted = _for_load(core, proposal, resolved, max_gpus, running)
    own = scaled(entry, service, proposal, wanted, live)
    wanted = wanted if own is None else own
    if any(problem.reason is Reason.CACHE_NOT_SHAREABLE for problem in proposal.problems):
        return min(wanted, max(1, running))
    return wanted


def _for_load(core: Plan, proposal: Proposal, resolved: Resolved, max_gpus: int, running: int) -> int:
    """Return the replicas that the load takes, whatever can be mounted."""
    scale, each = resolved.scale, max(1, core.gpus_per_replica)
    if proposal.held:
        return replicas_held(core, resolved, max_gpus, running=running)
    if proposal.recorded_replicas and scale.mode != "External":
        return min(max(proposal.recorded_replicas, scale.planned_replicas), max_gpus // each)
    return replicas_of(core, resolved, max_gpus)


def outcome(decision: Decision) -> str:
    """Name a decision for metrics."""
    return str(decision.reason) if isinstance(decision, NoPlan) else "Planned"


def revisions_of(children: Mapping[tuple[str, str], ChildFacts], uid: str) -> list[ChildFacts]:
    """Return the revisions of a service: the one in force first, those never in force last."""
    own = (c for c in children.values() if c.kind == "ControllerRevision" and c.belongs_to(uid))
    return newest_first(c for c in own if not c.deleting)

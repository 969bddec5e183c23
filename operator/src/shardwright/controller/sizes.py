"""The sizes that services have by themselves, and what is remembered of each.

Decides from which size a service goes on: after a restart from what the status says and what runs, with a new
revision from what the last one did, from one owner to the other from where it is. Never ticks the law, and
never makes a service smaller for what is not known.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMService, ServiceKey
from shardwright.api.status import ScalingStatus
from shardwright.autoscaler import journal
from shardwright.autoscaler.planned import carried
from shardwright.autoscaler.replica import capacity
from shardwright.autoscaler.schedule import bounds_at
from shardwright.autoscaler.signals import ScalingPlan
from shardwright.autoscaler.state import State
from shardwright.cluster.facts import ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.planning import Proposal
from shardwright.controller.scaling import Plans
from shardwright.planner.load import Sized, size_kept


@dataclass(slots=True, kw_only=True)
class Memory:
    """What is remembered of a service that has a size of its own."""

    uid: str
    revision: str
    desired: int
    planned: int
    """What its stated load took when the size was last looked at."""
    plan: ScalingPlan | None = None
    state: State = field(default_factory=State)
    at_s: float | None = None
    """When it was last ticked."""
    told: ScalingStatus | None = None
    standing: journal.Standing = field(default_factory=journal.Standing)
    asked: tuple[object, ...] | None = None
    """What the planner was last asked for, where no size keeps a target."""
    complete: bool = True
    external: bool = False
    """Somebody else sizes it."""

    def rebase(self, plan: ScalingPlan) -> None:
        """Go on with a plan; what was seen of another replica says nothing of this one."""
        if self.plan is None or self.plan.model != plan.model:
            self.state = State()
        self.plan = plan


@dataclass(slots=True)
class Sizes:
    """See the module. `now` gives the time of day in UTC."""

    store: Store
    now: Callable[[], datetime]
    reads: bool = False
    """Whether engines are read. If not, schedules alone change a count."""
    memories: dict[ServiceKey, Memory] = field(default_factory=dict)
    _plans: Plans = field(default_factory=Plans)

    def wanted(
        self, entry: ServiceEntry, service: LLMService, proposal: Proposal, planned: int, live: int
    ) -> int | None:
        """Return the replicas to have; None where the planned count holds.

        `live` is what the target's workload states.
        """
        resolved = entry.resolved or resolve(service.spec)
        schedules = service.spec.scaling.schedules if service.spec.scaling else None
        if not self.reads and not schedules:
            return None
        if resolved.scale.mode == "External":
            self._follow_external(entry, proposal, planned)
            return None
        memory = self._recall(entry, service, proposal, planned, live)
        if memory is not None:
            return memory.desired
        return (
            self._within(entry, service, proposal, Sized(replicas=planned, planned=None), None)
            if schedules
            else None
        )

    def status_of(self, entry: ServiceEntry, revision: str, desired: int) -> ScalingStatus | None:
        """Return what is to be told of a service's size; None where the planned count holds."""
        memory = self.memories.get(entry.key)
        if not self.reads or memory is None or memory.uid != entry.uid:
            return None
        if entry.resolved is not None and entry.resolved.scale.mode == "External":
            return ScalingStatus(mode="External", revision=revision, desired_replicas=desired)
        told = memory.told or ScalingStatus(mode="Auto", revision=revision, desired_replicas=desired)
        return told.model_copy(
            update={
                "mode": "Auto",
                "revision": revision,
                "desired_replicas": memory.desired,
                "planned_replicas": memory.planned,
                "min_replicas": memory.plan.min_replicas if memory.plan else told.min_replicas,
                "max_replicas": memory.plan.most if memory.plan else told.max_replicas,
            }
        )

    def forget(self) -> None:
        """Forget services that are gone."""
        services = self.store.services
        self.memories = {key: memory for key, memory in self.memories.items() if key in services}

    @property
    def scaled(self) -> dict[str, int]:
        """Count the services with a size of their own, by whether all is known of their engines."""
        ticked = [memory for memory in self.memories.values() if memory.at_s is not None]
        known = sum(memory.complete for memory in ticked)
        return {"known": known, "unknown": len(ticked) - known}

    def _follow_external(self, entry: ServiceEntry, proposal: Proposal, planned: int) -> None:
        """Remember what somebody else asks for: whoever sizes next goes on from it."""
        memory = self.memories.get(entry.key)
        if memory is None or memory.uid != entry.uid or not memory.external:
            memory = Memory(
                uid=entry.uid, revision=proposal.target, desired=planned, planned=planned, external=True
            )
            self.memories[entry.key] = memory
        memory.revision, memory.desired = proposal.target, planned

    def _recall(
        self, entry: ServiceEntry, service: LLMService, proposal: Proposal, planned: int, live: int
    ) -> Memory | None:
        """Return the size of a service and what goes with it, brought to the spec as it is now.

        After a restart it goes on from the status, and from what runs where that is more: the last size may
        have been written to the workload only. A status that somebody emptied takes no replica either.
        """
        memory = self.memories.get(entry.key)
        if memory is None or memory.uid != entry.uid:
            memory = self._from_status(entry, proposal, planned, live)
            if memory is None and self.may_sleep(entry, service):
                memory = self._from_objects(entry, proposal, planned, live)
            if memory is None:
                return None
            self.memories[entry.key] = memory
        if memory.revision != proposal.target:
            self._carry(entry, service, proposal, memory)
        before, counts = memory.planned, proposal.waiting is None and not proposal.held
        memory.planned = planned if counts or memory.external else before
        sized = Sized(replicas=memory.desired, planned=None if memory.external else before)
        memory.external = False
        memory.desired = self._within(entry, service, proposal, sized, planned if counts else None)
        return memory

    @staticmethod
    def _from_status(entry: ServiceEntry, proposal: Proposal, planned: int, live: int) -> Memory | None:
        recorded = entry.status.scaling
        if recorded is not None:
            own = recorded.mode == "Auto"
            return Memory(
                uid=entry.uid,
                revision=proposal.target,
                desired=max(recorded.desired_replicas, live),
                planned=recorded.planned_replicas if own else planned,
                told=recorded if own else None,
            )
        if entry.status.observed_generation < 0 and live > planned:
            return Memory(uid=entry.uid, revision=proposal.target, desired=live, planned=planned)
        return None

    def _from_objects(self, entry: ServiceEntry, proposal: Proposal, planned: int, live: int) -> Memory:
        """Begin with the planned count, or at zero with the workloads: an emptied status wakes nobody."""
        workloads = [
            child
            for child in self.store.children_of(entry.key).values()
            if child.is_workload and child.belongs_to(entry.uid) and not child.deleting
        ]
        at_zero = bool(workloads) and not any(child.replicas for child in workloads)
        size = 0 if at_zero else max(planned, live)
        return Memory(uid=entry.uid, revision=proposal.target, desired=size, planned=planned)

    def _carry(self, entry: ServiceEntry, service: LLMService, proposal: Proposal, memory: Memory) -> None:
        """Give another revision the size that does what the last one's did."""
        before, after = memory.plan, self.plan(entry, service, proposal)
        memory.revision = proposal.target
        if before is None or after is None or not memory.desired:
            return  # without replicas a new revision is made, and nothing else
        rates = [
            capacity(plan.model, plan.input_tokens, plan.output_tokens, plan.tpot_s).rate_per_s
            for plan in (before, after)
        ]
        memory.desired = carried(memory.desired, before, after, (rates[0], rates[1]))
        memory.rebase(after)

    def plan(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> ScalingPlan | None:
        """Return what the law decides within; None when no speed is predicted of the target."""
        if proposal.core is None:
            return None
        return self._plans.of(
            proposal.core,
            service.spec,
            entry.resolved or resolve(service.spec),
            entry.engine_version,
            bounds=self.bounds_of(entry, service),
            max_gpus=self._budget(entry, service, proposal),
        )

    def may_sleep(self, entry: ServiceEntry, service: LLMService) -> bool:
        """Whether no replica may run now, after a time without requests."""
        resolved = entry.resolved or resolve(service.spec)
        return (
            self.reads and resolved.scale.idle_seconds is not None and self.bounds_of(entry, service)[0] == 0
        )

    def is_asleep(self, entry: ServiceEntry, service: LLMService) -> bool:
        """Whether a service has no replica, and the next request gives it one."""
        memory = self.memories.get(entry.key)
        if memory is None or memory.uid != entry.uid or memory.desired or memory.external:
            return False
        return self.may_sleep(entry, service) and self.bounds_of(entry, service)[1] != 0

    def asleep(self) -> tuple[ServiceKey, ...]:
        """Return all services that are asleep."""
        services = self.store.services
        at_zero = (key for key, memory in self.memories.items() if not memory.desired)
        entries = [services[key] for key in at_zero if key in services]
        return tuple(
            entry.key
            for entry in entries
            if entry.service is not None and not entry.deleting and self.is_asleep(entry, entry.service)
        )

    def bounds_of(self, entry: ServiceEntry, service: LLMService) -> tuple[int, int | None]:
        """Return the bounds that hold now. What is to survive the loss of a node keeps what is planned."""
        resolved = entry.resolved or resolve(service.spec)
        scale, schedules = resolved.scale, service.spec.scaling.schedules if service.spec.scaling else None
        low, high = scale.min_replicas, scale.max_replicas
        if schedules:
            low, high = bounds_at(scale, schedules, self.now())
        memory = self.memories.get(entry.key)
        if resolved.survive_node_loss and memory is not None:
            low = max(low, memory.planned) if high is None else min(max(low, memory.planned), high)
        return low, high

    def _budget(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> int:
        """Return the GPUs that the target may have; a budget that waits with its plan takes none away."""
        budget = service.spec.pool.max_gpus
        if proposal.core is None or not (proposal.held or proposal.waiting is not None):
            return budget
        running = sum(
            child.replicas
            for child in self.store.children_of(entry.key).values()
            if child.is_workload and child.belongs_to(entry.uid)
        )
        return max(budget, running * proposal.core.gpus_per_replica)

    def _within(
        self, entry: ServiceEntry, service: LLMService, proposal: Proposal, sized: Sized, planned: int | None
    ) -> int:
        """Return a size within the bounds that hold now, and the budget."""
        low, high = self.bounds_of(entry, service)
        each = max(1, proposal.core.gpus_per_replica if proposal.core else 1)
        most = self._budget(entry, service, proposal) // each
        sleeps = self.may_sleep(entry, service)
        return size_kept(sized, planned=planned, low=low, high=high, most=most, sleeps=sleeps)

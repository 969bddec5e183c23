"""A service with what is live of it, put together once for all that decide about it. No I/O.

Decides what of the store counts as the service's own now. Never decides what to do about it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shardwright.api.defaults import Resolved, resolve
from shardwright.api.llmservice import LLMService
from shardwright.cluster.facts import ChildFacts, ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.planning import Planning, Proposal, revisions_of, wanted_replicas
from shardwright.controller.routers import Routing, seen_routing
from shardwright.diagnose.facts import PodTrouble
from shardwright.topology.types import Allocation, NodeFacts, PodFacts


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
    lost: frozenset[str] = frozenset()
    """Pods on nodes that cannot be reached; they are not ready."""
    troubles: Mapping[tuple[str, str], PodTrouble] = field(default_factory=dict)
    """What is wrong with pods, by namespace and name; of all services."""
    serves: str = ""
    """The revision that alone gets traffic, as the Service says; empty: all do."""
    routing: Routing = field(default_factory=Routing)
    jobs: Mapping[str, ChildFacts] = field(default_factory=dict)
    """Those that fetch weights, by name."""
    fetch_pods: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Their pods, by namespace and Job; of all services."""
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    """By name; of the whole cluster."""
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


def observe(
    store: Store, planning: Planning, entry: ServiceEntry, service: LLMService, proposal: Proposal
) -> Situation:
    """Put together what is known of a service."""
    children = store.children_of(entry.key)
    core = proposal.core
    pods = store.pods_of(entry.key)
    # Who cannot be reached does not serve, whatever its status still says.
    lost = frozenset(name for name, pod in pods.items() if pod.node and not store.reachable(pod))
    endpoint = children.get(("Service", entry.key.name))
    most = planning.most_pods(entry, proposal.target) if core else None
    return Situation(
        entry=entry,
        service=service,
        proposal=proposal,
        allocation=planning.allocation(entry.key, proposal.target) if core else Allocation(wanted=0),
        desired=wanted_replicas(entry, service, proposal, children.values(), planning.scaled),
        deployments={
            child.revision: child
            for child in children.values()
            if child.is_workload and child.belongs_to(entry.uid) and not child.deleting
        },
        revisions=revisions_of(children, entry.uid),
        pods={name: pod._replace(ready=False) if name in lost else pod for name, pod in pods.items()}
        if lost
        else pods,
        lost=lost,
        troubles=store.troubles,
        fetch_pods=store.fetch_pods,
        nodes=store.nodes,
        routing=seen_routing(children, entry, frozen=proposal.held),
        serves=endpoint.revision if endpoint is not None and endpoint.belongs_to(entry.uid) else "",
        jobs=_jobs_of(children.values(), entry.uid),
        barred=most is not None,
    )


def _jobs_of(children: Iterable[ChildFacts], uid: str) -> dict[str, ChildFacts]:
    """Return a service's Jobs by name."""
    return {c.name: c for c in children if c.kind == "Job" and c.belongs_to(uid) and not c.deleting}

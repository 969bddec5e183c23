"""Services that can have no further pod now, so that no GPUs are held for any.

Decides how many pods a target can have while the API server refuses its Deployment, or the pods of that.
Never claims, and never decides that a refusal is over: what is refused stays offered, without replicas where
there is no Deployment yet, and the first answer that takes it ends this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardwright.api.names import workload_name
from shardwright.cluster.facts import ChildFacts, ServiceEntry
from shardwright.topology.types import PodFacts


@dataclass(slots=True)
class Barred:
    """The targets whose Deployment is not taken, by uid of the service."""

    _targets: dict[str, str] = field(default_factory=dict)

    def note(self, uid: str, target: str, *, refused: bool) -> bool:
        """Take note whether the Deployment of a target was refused; whether that is news."""
        before = self._targets.get(uid) == target
        if refused:
            self._targets[uid] = target
        else:
            self._targets.pop(uid, None)
        return before != refused

    def forget(self, uid: str) -> None:
        """Forget a service that is gone."""
        self._targets.pop(uid, None)

    def most_pods(
        self,
        entry: ServiceEntry,
        target: str,
        children: Mapping[tuple[str, str], ChildFacts],
        pods: Mapping[str, PodFacts],
    ) -> int | None:
        """Return how many pods of a target there can be; None while nothing keeps them from being made."""
        live = children.get(("Deployment", workload_name(entry.key.name, target)))
        if live is not None and (live.deleting or not live.belongs_to(entry.uid)):
            live = None
        if live is not None and live.create_failure:
            return sum(1 for pod in pods.values() if pod.revision == target and not pod.terminating)
        if self._targets.get(entry.uid) == target:
            return live.replicas if live is not None else 0
        return None

"""Which pods of a workload that becomes smaller go: the emptiest, so that the fewest streams are waited for.

Decides by the requests in flight at the last look of the autoscaler. Kubernetes takes pods that do not answer
first, and of the others those with the lowest deletion cost: that is written before the workload is. Nothing
is written when not all are known, nor is anything held up by it: then Kubernetes chooses.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shardwright.api.llmservice import ServiceKey
from shardwright.cluster import kinds
from shardwright.cluster.api import Api
from shardwright.cluster.errors import ClusterError
from shardwright.controller.situation import Situation
from shardwright.controller.work import Intent, Work
from shardwright.topology.types import PodFacts

_LOG = logging.getLogger(__name__)

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
EPOCH_S: Final = 1_767_225_600
"""2026-01-01: a cost is the time of the choice as seconds before it, so that the last choice counts. It fits
into 32 bits until 2094."""
MANAGER: Final = "shardwright-drain"


def emptiest(pods: Sequence[PodFacts], leave: int, in_flight: Mapping[str, float]) -> tuple[str, ...]:
    """Return the pods to go of those that answer, so that `leave` of all go; none when one is not known."""
    staying = [pod for pod in pods if not pod.terminating]
    ready = [pod for pod in staying if pod.ready]
    count = leave - (len(staying) - len(ready))
    if not 0 < count < len(ready) or any(pod.name not in in_flight for pod in ready):
        return ()
    ready.sort(key=lambda pod: (in_flight[pod.name], pod.name))
    return tuple(pod.name for pod in ready[:count])


@dataclass(slots=True)
class Emptiest:
    """Writes the choice to the pods."""

    api: Api
    in_flight: Callable[[ServiceKey], Mapping[str, float]]
    """Requests running and waiting of each pod that was read at the last look."""
    epoch_s: Callable[[], float]
    _forbidden: bool = False

    async def choose(self, now: Situation, work: Work) -> None:
        """Mark who goes of each workload that becomes smaller and stays."""
        if self._forbidden:
            return
        cost = str(EPOCH_S - int(self.epoch_s()))
        for intent in (*((work.target,) if work.target else ()), *work.earlier):
            for name in self._of(now, intent):
                if not self._forbidden:
                    await self._mark(now.entry.key, name, cost)

    def _of(self, now: Situation, intent: Intent) -> tuple[str, ...]:
        live = now.deployments.get(intent.revision)
        if live is None or not 0 < intent.replicas < live.replicas:
            return ()
        pods = now.pods_of(intent.revision)
        return emptiest(pods, live.replicas - intent.replicas, self.in_flight(now.entry.key))

    async def _mark(self, key: ServiceKey, name: str, cost: str) -> None:
        patch = {"metadata": {"annotations": {DELETION_COST: cost}}}
        try:
            await self.api.merge_as(kinds.POD, key[0], name, patch, manager=MANAGER)
        except ClusterError as error:
            self._forbidden = error.status == 403
            _LOG.info("pod not marked as the first to go pod=%s/%s error=%s", key[0], name, error)

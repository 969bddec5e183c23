"""Pods that the operator deletes by itself, so that their Deployment makes others, and what is told of them.

Decides nothing about which: `controller.watchdog` and `controller.gpu_faults` do. What is told is remembered
for a while only; a restart forgets it, and the event stays.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from shardwright.api.llmservice import ServiceKey
from shardwright.cluster.api import Api
from shardwright.cluster.errors import ClusterError, Forbidden
from shardwright.cluster.events import Recorder
from shardwright.cluster.facts import ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.queue import WorkQueue
from shardwright.diagnose.facts import EngineFault, Step
from shardwright.diagnose.replaced import GRACE_S, sentences
from shardwright.metrics.exposition import Exposition
from shardwright.topology.types import PodFacts

_LOG = logging.getLogger(__name__)

TOLD_S: Final = 600.0
"""How long a replacement is told: our choice, longer than most starts. Afterwards the event and the metric
say so."""


@dataclass(slots=True)
class Replacer:
    """See the module."""

    api: Api
    recorder: Recorder
    metrics: Exposition
    queue: WorkQueue[ServiceKey]
    clock: Callable[[], float]
    _notes: dict[str, dict[str, tuple[EngineFault, float]]] = field(default_factory=dict)
    """By uid of the service and name of the pod: what is told, and since when."""

    def told(self, entry: ServiceEntry) -> tuple[EngineFault, ...]:
        """Return what is to be told of a service now."""
        now = self.clock()
        notes = self._notes.get(entry.uid, {}).values()
        return tuple(sorted(fault for fault, at_s in notes if now - at_s < TOLD_S))

    def forget(self, uid: str) -> None:
        """Forget a service that is gone."""
        self._notes.pop(uid, None)

    def note(self, entry: ServiceEntry, fault: EngineFault) -> None:
        """Have something told of a service; the same again prolongs it."""
        known = self._notes.setdefault(entry.uid, {})
        before = known.get(fault.pod)
        known[fault.pod] = (fault, self.clock())
        if before is None or before[0] != fault:
            self.queue.add(entry.key)

    def recall(self, entry: ServiceEntry, pod: str) -> None:
        """Tell no longer of a pod that is all right again."""
        known = self._notes.get(entry.uid)
        found = known.get(pod) if known else None
        if known is not None and found is not None and found[0].step is not Step.REPLACED:
            del known[pod]
            self.queue.add(entry.key)

    def tidy(self, store: Store) -> None:
        """Drop what was told for long enough, or was to be done by somebody and is, and tell it no longer."""
        if not self._notes:
            return
        keys = {entry.uid: key for key, entry in store.services.items()}
        now = self.clock()
        for uid, known in list(self._notes.items()):
            pods = store.pods_of(keys[uid]) if uid in keys else {}
            old = [
                name
                for name, (fault, at_s) in known.items()
                if now - at_s >= TOLD_S or (fault.step is not Step.REPLACED and _leaves(pods.get(name)))
            ]
            for pod in old:
                del known[pod]
            if old and uid in keys:
                self.queue.add(keys[uid])
            if not known or uid not in keys:
                del self._notes[uid]

    async def replace(self, entry: ServiceEntry, pod: PodFacts, fault: EngineFault) -> bool:
        """Delete a pod and tell why; whether it is on its way out. What fails is to be tried again."""
        try:
            # Its name is used once: pods of a Deployment get random ones.
            await self.api.end_pod(pod.namespace, pod.name, grace_s=GRACE_S)
        except Forbidden:
            self.note(entry, replace(fault, step=Step.REFUSED))
            return False
        except ClusterError as error:
            _LOG.warning("cannot replace pod=%s/%s error=%s", pod.namespace, pod.name, error)
            return False
        self.metrics.replaced(fault.reason.value)
        self.note(entry, fault)
        [(_, note)] = sentences([fault], pod.namespace)
        await self.recorder.post(
            entry.key,
            entry.uid,
            reason=fault.reason.value,
            note=note,
            action="ReplaceEngine",
            warning=True,
        )
        return True


def _leaves(pod: PodFacts | None) -> bool:
    """Whether a pod is gone, or on its way."""
    return pod is None or pod.terminating

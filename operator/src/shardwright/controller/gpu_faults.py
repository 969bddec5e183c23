"""Engines whose GPU failed: their pods are replaced, and a node with two of them gets none for a while.

Decides which ended engines are replaced instead of restarted, and when a node is left out. Never cordons a
node, and touches nothing that runs there. Where the operator may label nodes, the label has the time at which
it ends, so that it does end whatever becomes of the operator that set it; else only our own planning leaves
the node out.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from shardwright.api.names import FIELD_MANAGER, LABEL_GPU_FAULT
from shardwright.api.reasons import Reason
from shardwright.cluster.errors import ClusterError
from shardwright.cluster.facts import ServiceEntry
from shardwright.cluster.kinds import NODE
from shardwright.cluster.store import Store
from shardwright.controller.replacing import Replacer
from shardwright.diagnose.facts import EngineFault, Step
from shardwright.planner.signals import PodKey
from shardwright.topology.types import PodFacts

_LOG = logging.getLogger(__name__)

FAULTS: Final = 2
"""Engines that end so on one node before it is left out: one may be a stray ECC error that a reset row
mends."""
WINDOW_S: Final = 3600.0
"""Within which they count together. Our choice: a GPU that fails does so at each start, within minutes."""
KEPT_OFF_S: Final = 4 * 3600.0
"""How long new pods stay away: our choice, long enough for somebody on call to look."""
MOST: Final = 3
"""Pods of one service that are replaced within WINDOW_S; further ones restart with the kubelet's growing
pauses, so that words which were misread cannot make a loop without any."""
LOOK_S: Final = 60.0
_VALUE: Final = "%Y%m%dT%H%M%SZ"


@dataclass(slots=True, kw_only=True)
class GPUFaults:
    """See the module. `clock` gives seconds, `now` the time of day in UTC."""

    store: Store
    replacer: Replacer
    clock: Callable[[], float]
    now: Callable[[], datetime]
    marks_nodes: bool = False
    """The operator may label nodes."""
    _ended: dict[PodKey, float] = field(default_factory=dict)
    """Pods that were seen to have ended so, and when."""
    _gone: set[PodKey] = field(default_factory=set)
    """Of those, the ones that were deleted."""
    _by_service: dict[str, list[float]] = field(default_factory=dict)
    """By uid: when pods were replaced lately."""
    _on: dict[str, dict[PodKey, float]] = field(default_factory=dict)
    """By node: what ended there lately."""
    _labelled: dict[str, str] = field(default_factory=dict)
    """Labels that were written and that the watch has not told of yet."""

    async def look(self, entry: ServiceEntry, pods: Iterable[PodFacts]) -> None:
        """Replace the pods of a service whose engines ended so."""
        for pod in pods:
            key = (pod.namespace, pod.name)
            trouble = self.store.troubles.get(key)
            if trouble is None or not trouble.gpu_fault or pod.terminating or key in self._gone:
                continue
            if key not in self._ended:
                self._ended[key] = self.clock()
                _LOG.warning("gpu fault pod=%s/%s node=%s words=%s", *key, pod.node, trouble.gpu_fault)
                await self._count(pod)
            fault = self._fault(pod, trouble.gpu_fault)
            if self._too_many(entry.uid):
                self.replacer.note(entry, replace(fault, step=Step.LEFT))
            elif await self.replacer.replace(entry, pod, fault):
                self._gone.add(key)
                self._by_service.setdefault(entry.uid, []).append(self.clock())

    async def run(self) -> None:
        """End what has lasted long enough, now and then, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.tick()

    async def tick(self) -> None:
        """End what has lasted long enough."""
        self._forget()
        self.replacer.tidy(self.store)
        for name, facts in list(self.store.nodes.items()):
            value = facts.labels.get(LABEL_GPU_FAULT)
            if value is None or not self._is_over(value):
                continue
            if name in self.store.marks:
                self.store.mark_node(name, {})
            elif self.marks_nodes:
                await self._label(name, None)

    def kept_off(self) -> int:
        """Count the nodes that get no new pods."""
        return sum(LABEL_GPU_FAULT in facts.labels for facts in self.store.nodes.values())

    def _forget(self) -> None:
        old = self.clock() - WINDOW_S
        self._ended = {key: at for key, at in self._ended.items() if key in self.store.pods}
        self._gone &= self._ended.keys()
        self._labelled.clear()
        by_service = {uid: [at for at in times if at > old] for uid, times in self._by_service.items()}
        self._by_service = {uid: times for uid, times in by_service.items() if times}
        on = {node: {key: at for key, at in seen.items() if at > old} for node, seen in self._on.items()}
        self._on = {node: seen for node, seen in on.items() if seen}

    def _too_many(self, uid: str) -> bool:
        recent = [at for at in self._by_service.get(uid, ()) if at > self.clock() - WINDOW_S]
        return len(recent) >= MOST

    def _fault(self, pod: PodFacts, words: str) -> EngineFault:
        facts = self.store.nodes.get(pod.node)
        kept_off = facts.labels.get(LABEL_GPU_FAULT) if facts is not None else None
        kept_off = kept_off or self._labelled.get(pod.node, "")
        return EngineFault(
            reason=Reason.GPU_FAULT,
            node=pod.node,
            step=Step.REPLACED,
            pod=pod.name,
            said=words,
            kept_off=kept_off,
            marked=bool(kept_off) and pod.node not in self.store.marks,
        )

    async def _count(self, pod: PodFacts) -> None:
        """Count an engine that ended on a node, and leave the node out when it was not the only one."""
        seen = self._on.setdefault(pod.node, {})
        seen[pod.namespace, pod.name] = self.clock()
        recent = [at for at in seen.values() if at > self.clock() - WINDOW_S]
        facts = self.store.nodes.get(pod.node)
        if len(recent) < FAULTS or facts is None or LABEL_GPU_FAULT in facts.labels:
            return
        if pod.node in self._labelled:
            return
        value = (self.now() + timedelta(seconds=KEPT_OFF_S)).strftime(_VALUE)
        _LOG.warning("node gets no new pods node=%s until=%s", pod.node, value)
        if self.marks_nodes and await self._label(pod.node, value):
            self._labelled[pod.node] = value
        else:
            self.store.mark_node(pod.node, {LABEL_GPU_FAULT: value})

    async def _label(self, node: str, value: str | None) -> bool:
        """Write the label of a node, or take it off; whether that was done."""
        patch = {"metadata": {"labels": {LABEL_GPU_FAULT: value}}}
        try:
            await self.replacer.api.merge_as(NODE, "", node, patch, manager=FIELD_MANAGER)
        except ClusterError as error:
            _LOG.warning("cannot label node=%s error=%s", node, error)
            return False
        return True

    def _is_over(self, value: str) -> bool:
        """Whether the time of a label has passed; one that somebody set by hand may have none, and stays."""
        try:
            return datetime.strptime(value, _VALUE).replace(tzinfo=UTC) <= self.now()
        except ValueError:
            return False

"""From what changed to the keys that have to look at it.

Decides which services a change concerns and how soon they look. Never reconciles. Keeps the ledger in
step with nodes and pods.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.llmservice import KIND, ServiceKey
from shardwright.cluster.facts import AutoscalerFacts, ChildFacts, ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.planning import Planning
from shardwright.controller.queue import WorkQueue
from shardwright.topology.types import NodeFacts, PodFacts

ARRIVAL_S: Final = 0.1
"""A new service waits so long for others that arrive with it: places go by rank, not by arrival."""
PODS_S: Final = 0.3
"""Changes of a service's pods that come together are looked at together."""
CHILD_S: Final = 0.02
NODES_S: Final = 0.2
SETTLE_S: Final = 0.05
EXPIRY_S: Final = 30.0
BURST: Final = 4
"""Spec changes within BURST_S that are worked on at once; more are a burst."""
BURST_S: Final = 0.25
"""A burst is read to its end, which is so long without a change, before its children are written: otherwise
the other controllers' work on the first of them delays the API server's answers to the rest."""
LONGEST_BURST_S: Final = 0.5


@dataclass(slots=True)
class Dispatch:
    """The store's listener."""

    store: Store
    planning: Planning
    queue: WorkQueue[ServiceKey]
    forget: Callable[[str], None]
    """Called with the uid of a service that is gone."""
    undecided: set[ServiceKey] = field(default_factory=set)
    """Services whose generation, pool or chance of room changed since they were decided."""
    waiting: set[ServiceKey] = field(default_factory=set)
    """Services without a plan or without all their places: more room or another node may help them."""
    started: bool = False
    _rechecks: set[ServiceKey] = field(default_factory=set)
    _changes: deque[float] = field(default_factory=lambda: deque(maxlen=BURST))
    """When the last specs changed."""
    _burst: dict[ServiceKey, None] = field(default_factory=dict)
    """Services of a burst that is being read."""
    _burst_end: asyncio.TimerHandle | None = None
    _burst_latest: float = 0.0
    _settling: asyncio.TimerHandle | None = None
    _replanning: asyncio.TimerHandle | None = None
    _turned: set[str] = field(default_factory=set)
    """Nodes that came, went or changed their readiness since the last replanning."""

    # The store's listener.

    def service_changed(
        self, key: ServiceKey, before: ServiceEntry | None, after: ServiceEntry | None
    ) -> None:
        """See Listener."""
        if before is not None and (after is None or before.uid != after.uid):
            self._part(key)
            self.forget(before.uid)
            self.queue.forget(key)
            before = None
        if after is None:
            return
        if after.deleting:
            # It keeps what runs until garbage collection. Places held for pods to come are for others.
            if before is not None and not before.deleting:
                self._part(key)
            return
        if before is None:
            self.undecided.add(key)
            self.queue.add_after(key, ARRIVAL_S if self.started else 0.0)
            return
        if before.generation != after.generation or before.spec_digest != after.spec_digest:
            self.undecided.add(key)
            if self._in_burst(key):
                return
        self.queue.add(key)

    def _part(self, key: ServiceKey) -> None:
        """Plan for a service no more, and offer what it held to others."""
        self.undecided.discard(key)
        self.waiting.discard(key)
        self.planning.part(key)
        self.settle_soon()

    def _in_burst(self, key: ServiceKey) -> bool:
        """Take note of a spec change; whether it waits for those that come with it."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        crowded = len(self._changes) == BURST and now - self._changes[0] < BURST_S
        self._changes.append(now)
        if not crowded:
            return False
        if self._burst_end is None:
            self._burst_latest = now + LONGEST_BURST_S
        else:
            self._burst_end.cancel()
        self._burst[key] = None
        self._burst_end = loop.call_at(min(now + BURST_S, self._burst_latest), self._release)
        return True

    def _release(self) -> None:
        """Work on a burst."""
        self._burst_end = None
        keys, self._burst = self._burst, {}
        for key in keys:
            self.queue.add(key)

    def node_changed(self, before: NodeFacts | None, after: NodeFacts | None) -> None:
        """See Listener."""
        ledger = self.planning.ledger
        if after is not None:
            ledger.set_node(after)
        elif before is not None:
            ledger.remove_node(before.name)
        self.planning.nodes_changed()
        if not self.started:
            return
        if (before is not None and before.ready) != (after is not None and after.ready):
            self._turned.update(facts.name for facts in (before, after) if facts is not None)
        if self._replanning is None:
            self._replanning = asyncio.get_running_loop().call_later(NODES_S, self._replan)

    def pod_changed(self, before: PodFacts | None, after: PodFacts | None) -> None:
        """See Listener."""
        ledger = self.planning.ledger
        if after is not None:
            ledger.set_pod(after)
        elif before is not None:
            ledger.remove_pod(before.namespace, before.name)
        # Both: whoever changes the label takes the pod from its service.
        for facts in (before, after):
            if facts is not None and facts.owner:
                self.queue.add_after(ServiceKey((facts.namespace, facts.owner)), PODS_S)
            elif facts is not None and facts.fetches:
                job = self.store.children.get(("Job", facts.namespace, facts.fetches))
                if job is not None:
                    self.queue.add_after(job.key, PODS_S)
        self.wake_changed()  # a foreign pod may have taken a place that was reserved
        if before is not None and (after is None or after.node != before.node) and self.waiting:
            self.settle_soon()

    def child_changed(self, before: ChildFacts | None, after: ChildFacts | None) -> None:
        """See Listener."""
        if before is not None and after is not None:
            same = before._replace(resource_version=after.resource_version, mark=after.mark)
            if same == after:
                return
        # Both: whoever changes the label takes the child from its service.
        for facts in (before, after):
            if facts is not None and facts.service:
                self.queue.add_after(facts.key, CHILD_S)

    def autoscaler_changed(self, before: AutoscalerFacts | None, after: AutoscalerFacts | None) -> None:
        """See Listener."""
        for facts in (before, after):
            if facts is None:
                continue
            if facts.target_kind == KIND:
                service = ServiceKey((facts.namespace, facts.target_name))
                if service in self.store.services:
                    self.queue.add(service)
            if facts.target_kind != "Deployment":
                continue
            child = self.store.children.get(("Deployment", facts.namespace, facts.target_name))
            if child is not None:
                self.queue.add(child.key)

    # Room.

    def settle_soon(self) -> None:
        """Offer what came free to those that wait, shortly."""
        if self._settling is None and self.started:
            self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self.settle)

    def settle(self) -> None:
        """Offer what came free to those that wait, in rank order, and wake those that got something."""
        self._settling = None
        self.planning.ledger.settle(asyncio.get_running_loop().time())
        self.wake_changed()

    def wake_changed(self, but: ServiceKey | None = None) -> None:
        """Wake the services whose places changed without their asking, `but` for one."""
        for service in self.planning.ledger.take_changed():
            key = ServiceKey(service)
            if key in self.store.services and key != but:
                self.queue.add(key)

    def recheck(self, key: ServiceKey, delay_s: float) -> None:
        """Decide a service anew after a time, since nothing will tell when what it lacks is there."""
        if key not in self._rechecks:
            self._rechecks.add(key)
            asyncio.get_running_loop().call_later(delay_s, self._undecide, key)

    def _undecide(self, key: ServiceKey) -> None:
        self._rechecks.discard(key)
        entry = self.store.services.get(key)
        if entry is not None and not entry.deleting:
            self.undecided.add(key)
            self.queue.add(key)

    async def expire_forever(self) -> None:
        """Give up places whose pods never came."""
        while True:
            await asyncio.sleep(EXPIRY_S)
            for service in self.planning.ledger.expire(asyncio.get_running_loop().time()):
                self.queue.add(ServiceKey(service))
            self.settle()

    def _replan(self) -> None:
        """Nodes changed: whoever waits is decided anew, and whoever has a pod or lost a place there looks."""
        self._replanning = None
        turned, self._turned = self._turned, set()
        for pod in self.store.pods.values() if turned else ():
            if pod.owner and pod.node in turned:
                self.queue.add(ServiceKey((pod.namespace, pod.owner)))
        for key in self.waiting:
            self.undecided.add(key)
            self.queue.add(key)
        self.settle()

"""Requests that the end of a drain cuts, counted and told.

Decides when an engine that leaves is read for the last time: just before its time is over. What it still has
then is cut. Never prolongs a drain, and never counts what could not be read or what leaves with less time
than its plan gives it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.reasons import Reason
from shardwright.cluster.events import Recorder
from shardwright.cluster.facts import ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.tasks import end
from shardwright.metrics.exposition import Exposition
from shardwright.metrics.source import MetricsSource, Target
from shardwright.planner.growth import number
from shardwright.planner.signals import PodKey, Signal
from shardwright.render.template import PRESTOP_S, TEARDOWN_S
from shardwright.topology.types import PodFacts

SCAN_S: Final = 5.0
BEFORE_S: Final = 1.0
"""How long before the end an engine is read: it answers in time, and hardly anything ends in between."""


@dataclass(slots=True, kw_only=True)
class Drains:
    """See the module. `source` reads the engines themselves, `now` gives seconds since the epoch."""

    store: Store
    source: MetricsSource
    recorder: Recorder
    metrics: Exposition
    now: Callable[[], float]
    _looks: dict[PodKey, asyncio.Task[None]] = field(default_factory=dict)
    """Of pods that are there: one look each."""

    async def run(self) -> None:
        """Look for drains that are about to end, until cancelled."""
        while True:
            await asyncio.sleep(SCAN_S)
            self.scan()

    def scan(self) -> None:
        """Plan the last look at each engine whose drain ends before the next scan."""
        now, there = self.now(), set()
        for key, entry in self.store.services.items():
            for pod in self.store.pods_of(key).values():
                if not pod.terminating:
                    continue
                name = (pod.namespace, pod.name)
                there.add(name)
                wait_s = _over_s(pod) - BEFORE_S - now
                # Twice the distance of scans, for one may come late; up to the end itself it is worth a look.
                if name not in self._looks and -BEFORE_S < wait_s <= 2 * SCAN_S and pod.address:
                    look = self._last_look(entry, pod, max(0.0, wait_s))
                    self._looks[name] = asyncio.get_running_loop().create_task(look)
        self._looks = {name: task for name, task in self._looks.items() if name in there or not task.done()}

    async def close(self) -> None:
        """Look at nobody any more."""
        await end(self._looks.values())
        await self.source.close()

    async def _last_look(self, entry: ServiceEntry, pod: PodFacts, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        name = (pod.namespace, pod.name)
        there = self.store.pods_of(entry.key).get(pod.name)
        if there is None or there.ends_s != pod.ends_s:
            return  # it had ended all of them, or was given less time since
        readings = await self.source.read([Target(name, pod.address)])
        running, waiting = (number(readings.of(one, name)) for one in (Signal.RUNNING, Signal.WAITING))
        left = (running or 0.0) + (waiting or 0.0)
        if left <= 0:
            return
        self.metrics.cut(left)
        drain_s = pod.grace_s - PRESTOP_S - TEARDOWN_S  # its own, and not the spec's by now
        await self.recorder.post(
            entry.key,
            entry.uid,
            reason=Reason.STREAMS_CUT.value,
            note=f"{pod.name} on node {pod.node} had {left:.0f} requests left when its drain of {drain_s} s "
            "ended, and they are cut: raise spec.drain.maxSeconds if answers may take longer",
            action="Drain",
            warning=True,
        )


def _over_s(pod: PodFacts) -> float:
    """Return when a drain is over, in seconds since the epoch: the rest of the grace period is teardown."""
    return pod.ends_s - TEARDOWN_S

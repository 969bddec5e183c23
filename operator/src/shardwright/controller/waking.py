"""Who of the services without replicas is woken: those whose routers hold a request, or held one meanwhile.

Decides whom to ask, and what an answer means. A router that does not answer is unknown: it wakes nobody, and
without its word no service is scaled to zero. Never makes anything smaller, and never chooses a size: that is
`autoscaler.law`'s.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.llmservice import ServiceKey
from shardwright.cluster.store import Store
from shardwright.controller.routers import seen_routing
from shardwright.metrics.held import Held

_LOG = logging.getLogger(__name__)

ASK_S: Final = 1.5
"""Between two rounds. A start takes minutes: sooner would be of no use to who waits."""
HOLD_S: Final = 5.0
"""Between two rounds to the routers of services that are idle."""
AT_ONCE: Final = 64
SHARE: Final = 0.2
"""Part of the time that rounds may take, where there are so many services that one takes long."""


def calls(before: Mapping[str, int], seen: Mapping[str, Held | None]) -> bool:
    """Whether routers ask for a replica; `before`: what had arrived at each when it was asked last.

    Requests that wait do. So do those that came since and gave up: somebody is there. What a router says for
    the first time since its service went to zero, or since this operator runs, has no earlier figure to be
    compared with: it may be of a time before, so that only who waits counts. A figure that fell is of a new
    process, and all of it is new.
    """
    for pod, held in seen.items():
        if held is None:
            continue
        known = before.get(pod)
        if held.waiting or (known is not None and held.arrived > (known if held.arrived >= known else 0)):
            return True
    return False


@dataclass(slots=True)
class Waker:
    """See the module.

    `asleep` gives the services without replicas that a request wakes, `wake` wakes one; `idle` gives those
    whose last replica has nothing to do.
    """

    store: Store
    ask: Callable[[str], Awaitable[Held | None]]
    clock: Callable[[], float]
    asleep: Callable[[], Collection[ServiceKey]] = tuple
    wake: Callable[[ServiceKey], None] = lambda _key: None
    idle: Callable[[], Collection[ServiceKey]] = tuple
    holding: frozenset[ServiceKey] = frozenset()
    """Of the idle services those of which all routers that get requests said lately that they would hold
    them."""
    _arrived: dict[ServiceKey, dict[str, int]] = field(default_factory=dict)

    async def run(self) -> None:
        """Ask now and then, until cancelled. Routers that are silent must not delay a wake."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._again(self.look, ASK_S))
            tasks.create_task(self._again(self.see, HOLD_S))

    async def _again(self, ask: Callable[[], Awaitable[int]], every_s: float) -> None:
        while True:
            began, asked = self.clock(), 0
            try:
                asked = await ask()
            except Exception:  # noqa: BLE001 -- the next round may succeed
                _LOG.exception("asking the routers failed")
            # A round of few takes long for who is silent alone, and that is no load.
            took = self.clock() - began if asked > AT_ONCE else 0.0
            await asyncio.sleep(max(every_s, took * (1 / SHARE - 1)))

    async def look(self) -> int:
        """Ask the routers of services that are asleep, once; return how many were asked."""
        asleep = frozenset(self.asleep())
        self._arrived = {key: known for key, known in self._arrived.items() if key in asleep}
        found = await self._asked(asleep)
        for key in asleep.intersection(self.asleep()):
            before = self._arrived.get(key, {})
            if calls(before, found[key]):
                _LOG.info("woken service=%s", key)
                self._arrived.pop(key, None)
                self.wake(key)
                continue
            seen = {pod: held.arrived for pod, held in found[key].items() if held is not None}
            self._arrived[key] = {pod: n for pod, n in before.items() if pod in found[key]} | seen
        return sum(map(len, found.values()))

    async def see(self) -> int:
        """Ask the routers of services that are idle, once; return how many were asked."""
        routed = [key for key in self.idle() if self._is_routed(key)]
        found = await self._asked(routed, ready=True)
        self.holding = frozenset(key for key in routed if found[key] and None not in found[key].values())
        return sum(map(len, found.values()))

    def _is_routed(self, key: ServiceKey) -> bool:
        entry = self.store.services.get(key)
        return entry is not None and seen_routing(self.store.children_of(key), entry).routed

    async def _asked(
        self, keys: Collection[ServiceKey], *, ready: bool = False
    ) -> dict[ServiceKey, dict[str, Held | None]]:
        """Ask the routers of services; `ready`: those alone, for others get no requests."""
        pods = [
            (key, pod)
            for key in keys
            for pod in self.store.routers_of(key).values()
            if pod.address and (not ready or (pod.ready and not pod.terminating))
        ]
        slots = asyncio.Semaphore(AT_ONCE)

        async def asked(address: str) -> Held | None:
            async with slots:
                return await self.ask(address)

        answers = await asyncio.gather(*(asked(pod.address) for _, pod in pods))
        found: dict[ServiceKey, dict[str, Held | None]] = {key: {} for key in keys}
        for (key, pod), answer in zip(pods, answers, strict=True):
            found[key][pod.name] = answer
        return found

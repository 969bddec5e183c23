"""Keeps one router's worker list as the EndpointSlices of a Service have it.

Decides when to look: at once on news, every POLL_S at the router (which may have been restarted, and is
empty then), every LIST_S at the API server (a watch may be silent and dead). An API server that cannot be
reached changes nothing. Never decides who serves: that is `endpoints.pool`.
"""

import asyncio
import logging
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from shardwright.cluster.api import Api
from shardwright.cluster.errors import ClusterError
from shardwright.cluster.json import JsonObject
from shardwright.cluster.kinds import Kind
from shardwright.cluster.watch import Watch
from shardwright.endpoints.activator import Activator
from shardwright.endpoints.pool import Slices, difference, is_filled
from shardwright.endpoints.router import Router, RouterGoneError

_LOG = logging.getLogger(__name__)

ENDPOINT_SLICE: Final = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
POLL_S: Final = 0.5
LIST_S: Final = 5.0
LIST_TIMEOUT_S: Final = 5.0
SILENT_S: Final = 10.0
"""How long a router that does not answer keeps its requests. What makes one slow makes its neighbours slow
too, and without all of them every request is refused; one that is dead ends by its liveness probe."""
STUCK_S: Final = 60.0
"""A look takes some seconds at most; after so long without one this process is dead."""


@dataclass(slots=True)
class Follower:
    """Follows the slices of the Service `service` for one router."""

    api: Api
    router: Router
    namespace: str
    service: str
    activator: Activator | None = None
    """The worker that the router has while there is no engine."""
    slices: Slices = field(init=False)
    filled: bool = False
    """The router may get requests."""
    beat_at: float = 0.0
    """Loop time of the last look at the router."""
    _answered_at: float = -math.inf
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _adding: dict[str, "asyncio.Task[bool]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slices = Slices(self._news.set)

    @property
    def labels(self) -> str:
        """Selector of the slices."""
        return f"kubernetes.io/service-name={self.service}"

    async def run(self) -> None:
        """Follow until cancelled."""
        clock = asyncio.get_running_loop().time
        self.beat_at = clock()
        watch = Watch(
            self.api, ENDPOINT_SLICE, self.slices, namespace=self.namespace, labels=self.labels, clock=clock
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch.run())
            tasks.create_task(self._list_forever())
            tasks.create_task(self._mend_forever())

    async def _mend_forever(self) -> None:
        while True:
            self._news.clear()
            await self.mend()
            self.beat_at = asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._news.wait(), POLL_S)
            except TimeoutError:
                continue

    async def _list_forever(self) -> None:
        while True:
            await asyncio.sleep(LIST_S * random.uniform(0.8, 1.0))  # noqa: S311 -- spreads load
            await self.list_once()

    async def list_once(self) -> None:
        """List the slices. What fails changes nothing."""
        items: list[JsonObject] = []
        version = ""
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                async for page, version in self.api.list_pages(  # noqa: B007 -- the last one's counts
                    ENDPOINT_SLICE, self.namespace, labels=self.labels
                ):
                    items += page
            self.slices.listed(items, version)
        except (ClusterError, TimeoutError, KeyError, ValueError) as error:
            _LOG.info("no list of endpoint slices, keeping the last one error=%s", error)

    async def mend(self) -> None:
        """Look at the router once, and mend what differs: first who leaves, for whom nobody is waited."""
        listed = await self._listed()
        wanted = self.slices.wanted()
        if listed is None:
            if wanted and self.activator is not None and self.activator.draining:
                self.activator.release(wanted)  # to an engine directly: the router cannot be told of it
            return
        if wanted is None:
            self.filled = is_filled(None, listed, before=self.filled)
            return
        own = self.activator.url if self.activator else ""
        if own and not wanted:
            listed = await self._to_activator(own, listed)
        else:
            listed = await self._to_engines(own, wanted, listed)
        # With the activator a router can serve as with an engine.
        wanted |= {own} if own else set()
        self.filled = is_filled(wanted, listed, before=self.filled)

    async def _listed(self) -> frozenset[str] | None:
        """Ask the router for its list; None without an answer, with `filled` decided."""
        now = asyncio.get_running_loop().time
        try:
            listed = await self.router.workers()
        except RouterGoneError:
            self.filled = False
            return None
        if listed is not None:
            self._answered_at = now()
        elif now() - self._answered_at > SILENT_S:
            self.filled = False
        return listed

    async def _to_engines(self, own: str, wanted: frozenset[str], listed: frozenset[str]) -> frozenset[str]:
        """Let the engines be listed, and what is held go to them when the router has no one else."""
        change = difference(wanted, listed)
        if own and listed - {own} and not wanted & listed:
            # The next engine is not taken yet: between the last one and it a request finds nobody else.
            listed = await self._to_activator(own, listed)
        else:
            listed -= await self._remove(url for url in change.remove if url != own)
        listed |= await self._add(change.add)
        if self.activator is None or not wanted & listed:
            return listed
        if own in listed:
            listed -= await self._remove((own,))
        # One that is still being added may be listed any moment, and would be sent back what it passes on.
        if own not in listed and own not in self._adding:
            self.activator.release(wanted & listed)
        return listed

    async def _to_activator(self, own: str, listed: frozenset[str]) -> frozenset[str]:
        """Let the activator be listed before the last engine is not: a request finds one or the other."""
        assert self.activator is not None
        self.activator.hold()
        if own not in listed:
            listed |= await self._add((own,))
        if own in listed:
            listed -= await self._remove(listed - {own})
        return listed

    async def _remove(self, urls: Iterable[str]) -> frozenset[str]:
        """Remove workers; return those that the router has let go."""
        gone = set()
        for url in urls:
            if await self.router.remove(url):
                gone.add(url)
                _LOG.info("removed url=%s", url)
        return frozenset(gone)

    async def _add(self, urls: tuple[str, ...]) -> frozenset[str]:
        """Begin to add workers; return those that the router has taken by now.

        One that does not answer is waited for beside: it must hold up neither the others nor a removal.
        """
        for url in urls:
            if url not in self._adding:
                task = self._adding[url] = asyncio.create_task(self.router.add(url))
                task.add_done_callback(lambda _done: self._news.set())
        taken = [url for url, task in self._adding.items() if task.done() and task.result()]
        self._adding = {url: task for url, task in self._adding.items() if not task.done()}
        if self._adding and not taken:
            await asyncio.wait(self._adding.values(), timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
            taken = [url for url, task in self._adding.items() if task.done() and task.result()]
            self._adding = {url: task for url, task in self._adding.items() if not task.done()}
        for url in taken:
            _LOG.info("added url=%s", url)
        return frozenset(taken)

"""Liveness, readiness and metrics, on one port.

Decides when the process is better restarted: a watch without a sign of life, a worker that ended, kopf's
tasks gone, a queue that does not move, or a kopf watch that lags behind what the API server lists. An API
server that does not answer is no reason to restart.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from shardwright.cluster.api import Api
from shardwright.cluster.errors import ClusterError
from shardwright.cluster.kinds import Kind
from shardwright.cluster.watch import HEARTBEAT_LIMIT_S, Watch
from shardwright.metrics.exposition import CONTENT_TYPE, Exposition

_LOG = logging.getLogger(__name__)

Versions = dict[tuple[str, str], str]
CANARY_S: Final = 60.0
FIRST_CANARY_S: Final = 5.0
QUEUE_LIMIT_S: Final = 600.0
"""Keys that wait while for so long none is taken or finished: every worker hangs. A request without an answer
ends after seconds, so the queue moves in an outage too."""


@dataclass(slots=True)
class Canary:
    """Compares what kopf has shown of a kind with what the API server lists; bookmarks do not reach handlers.

    An object that lags in two looks in a row means a dead watch; one that is listed no more was missed
    while kopf listed anew, and is removed.
    """

    api: Api
    kind: Kind
    scopes: tuple[str | None, ...]
    seen: Callable[[], Versions]
    remove: Callable[[tuple[str, str]], None]
    clock: Callable[[], float]
    beat_at: float = 0.0
    dead: bool = False
    _behind: Versions = field(default_factory=dict)
    _absent: set[tuple[str, str]] = field(default_factory=set)

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        self.beat_at = self.clock()
        await asyncio.sleep(FIRST_CANARY_S)
        while True:
            try:
                await self.look()
            except ClusterError as error:
                _LOG.debug("canary got no answer kind=%s error=%s", self.kind.plural, error)
            await asyncio.sleep(CANARY_S)

    async def look(self) -> None:
        """Compare once."""
        listed: Versions = {}
        for scope in self.scopes:
            listed |= await self.api.versions(self.kind, scope)
        seen = self.seen()
        still = {k: v for k, v in self._behind.items() if _older(seen.get(k), v) and k in listed}
        self.dead = bool(still)
        if still:
            _LOG.error("watch is dead kind=%s behind=%d", self.kind.plural, len(still))
        self._behind = {k: v for k, v in listed.items() if _older(seen.get(k), v)}
        absent = seen.keys() - listed.keys()
        for key in absent & self._absent:
            _LOG.info("forgetting unlisted object kind=%s name=%s", self.kind.plural, "/".join(key))
            self.remove(key)
        self._absent = absent - self._absent
        if not still:
            self.beat_at = self.clock()


def _older(seen: str | None, listed: str) -> bool:
    return seen is None or (seen.isdigit() and listed.isdigit() and int(seen) < int(listed))


@dataclass(slots=True)
class Health:
    """What makes the process healthy and ready."""

    clock: Callable[[], float]
    watches: list[Watch] = field(default_factory=list)
    canaries: list[Canary] = field(default_factory=list)
    tasks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    """Tasks that must not end."""
    queue_stuck_s: Callable[[], float] = lambda: 0.0
    """For how long keys have waited in a queue that does not move."""
    ready: bool = False
    stopping: bool = False

    def faults(self) -> list[str]:
        """List what is wrong; empty: healthy."""
        now = self.clock()
        found = [
            f"watch of {watch.kind.plural} has been silent for {now - watch.beat_at:.0f} s"
            for watch in self.watches
            if now - watch.beat_at > HEARTBEAT_LIMIT_S
        ]
        found += [f"watch of {canary.kind.plural} is dead" for canary in self.canaries if canary.dead]
        stuck_s = self.queue_stuck_s()
        if stuck_s > QUEUE_LIMIT_S:
            found.append(f"the queue has not moved for {stuck_s:.0f} s")
        if not self.stopping:
            found += [f"{name} has ended" for name, task in self.tasks.items() if task.done()]
        return found


async def serve(health: Health, metrics: Exposition, address: str, port: int) -> tuple[web.AppRunner, int]:
    """Open the port; its runner, to clean up, and the port."""

    async def healthz(_: web.Request) -> web.Response:
        faults = health.faults()
        return web.Response(status=503 if faults else 200, text="\n".join(faults) or "ok")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(status=200 if health.ready else 503, text="ok" if health.ready else "starting")

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", exposition)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, address, port)
    await site.start()
    return runner, int(runner.addresses[0][1])

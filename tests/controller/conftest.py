"""The loop with four workers over a fake API server."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web  # noqa: F401 -- loaded before the loop is faked

from controller.fake_api import Fake
from shardwright.controller.options import Options
from shardwright.controller.parts import Parts
from shardwright.controller.workers import work_forever
from shardwright.metrics.exposition import Exposition


class Operators:
    """One operator after the other, each with its own memory."""

    def __init__(self, api: Fake) -> None:
        self.api = api
        self.options = Options()
        self.workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        metrics = Exposition()
        parts = Parts.wire(self.api, self.options, metrics)  # type: ignore[arg-type]
        self.api.start(parts)
        loops = (work_forever(parts.queue, parts.reconciler.reconcile, metrics) for _ in range(4))
        self.workers = [asyncio.create_task(loop) for loop in loops]

    async def stop(self) -> None:
        self.api.parts.queue.close()
        for worker in self.workers:
            worker.cancel()
        await asyncio.gather(*self.workers, return_exceptions=True)

    async def restart(self, options: Options | None = None) -> None:
        await self.stop()
        self.options = options or self.options
        self.start()


@asynccontextmanager
async def running(api: Fake | None = None):
    """Run an operator over a server; over one that was there before, it finds what there is."""
    operators = Operators(api or Fake())
    operators.start()
    operators.api.restart = operators.restart
    yield operators.api
    await operators.stop()


@pytest.fixture
async def fake():
    async with running() as api:
        yield api

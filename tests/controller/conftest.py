"""The loop with four workers over a fake API server."""

import asyncio

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
        self.workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        metrics = Exposition()
        parts = Parts.wire(self.api, Options(), metrics)  # type: ignore[arg-type]
        self.api.start(parts)
        loops = (work_forever(parts.queue, parts.reconciler.reconcile, metrics) for _ in range(4))
        self.workers = [asyncio.create_task(loop) for loop in loops]

    async def stop(self) -> None:
        self.api.parts.queue.close()
        for worker in self.workers:
            worker.cancel()
        await asyncio.gather(*self.workers, return_exceptions=True)

    async def restart(self) -> None:
        await self.stop()
        self.start()


@pytest.fixture
async def fake():
    api = Fake()
    operators = Operators(api)
    operators.start()
    api.restart = operators.restart
    yield api
    await operators.stop()

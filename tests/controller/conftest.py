"""The loop with four workers over a fake API server."""

import asyncio

import pytest
from aiohttp import web  # noqa: F401 -- loaded before the loop is faked

from controller.fake_api import Fake
from shardwright.controller.options import Options
from shardwright.controller.parts import Parts
from shardwright.controller.workers import work_forever
from shardwright.metrics.exposition import Exposition


@pytest.fixture
async def fake():
    api = Fake()
    metrics = Exposition()
    parts = Parts.wire(api, Options(), metrics)  # type: ignore[arg-type]
    api.parts = parts
    parts.dispatch.started = True
    workers = [
        asyncio.create_task(work_forever(parts.queue, parts.reconciler.reconcile, metrics)) for _ in range(4)
    ]
    yield api
    parts.queue.close()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)

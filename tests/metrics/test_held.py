"""Asking an activator over a real socket: what it says, and all that is no answer."""

import asyncio

import pytest
from aiohttp import web

from shardwright.metrics import held
from shardwright.metrics.held import Activators, Held


@pytest.mark.parametrize(
    ("status", "text", "found"),
    [
        (200, '{"waiting": 2, "arrived": 5}', Held(2, 5)),
        (404, '{"waiting": 2, "arrived": 5}', None),
        (200, "ok", None),
        (200, '{"waiting": 2, "arrived": 5}' + " " * 5000 + "x", None),
        (302, "", None),
        (None, "", None),
    ],
)
async def test_what_is_no_answer_is_not_known(monkeypatch, status, text, found):
    never = asyncio.Event()

    async def answer(_):
        if status is None:
            await never.wait()
        return web.Response(status=status, text=text, headers={"Location": "/held"})

    app = web.Application()
    app.router.add_get("/held", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setattr(held, "TIMEOUT_S", 0.05 if status is None else 60)
    activators = Activators(runner.addresses[0][1])
    try:
        assert await activators.ask("127.0.0.1") == found
    finally:
        never.set()
        await activators.close()
        await runner.cleanup()
    closed = Activators(1)
    assert await closed.ask("127.0.0.1") is None
    await closed.close()

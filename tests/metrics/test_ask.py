"""One token asked of an engine: what each answer, and each silence, says of it."""

import asyncio

import pytest
from aiohttp import web

from patience import PATIENCE_S, Clock
from shardwright.metrics.ask import Answer, ask_for_a_token

pytestmark = pytest.mark.asyncio


async def asked_of(handler, timeout_s=PATIENCE_S):
    """What is found of a server that answers so, and what it was asked."""
    seen = []

    async def answer(request):
        seen.append((request.path, await request.json()))
        return await handler(request)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    try:
        return await ask_for_a_token("127.0.0.1", "chat", timeout_s, port=port), seen
    finally:
        await runner.cleanup()


def status(code):
    async def answer(_):
        return web.json_response({}, status=code)

    return answer


async def test_it_asks_for_one_token_of_the_served_model():
    found, [(path, body)] = await asked_of(status(200))
    assert (found, path) == (Answer.TOKEN, "/v1/completions")
    assert (body["model"], body["max_tokens"]) == ("chat", 1)
    assert "stream" not in body, "a stream begins before there is a token"


@pytest.mark.parametrize("code", [429, 503])
async def test_a_full_queue_brings_no_token(code):
    assert (await asked_of(status(code)))[0] is Answer.SILENCE


@pytest.mark.parametrize("login", [401, 403])
@pytest.mark.parametrize(
    ("code", "found"), [(200, Answer.TOKEN), (503, Answer.SILENCE), (404, Answer.UNKNOWN)]
)
async def test_who_demands_a_key_is_asked_where_none_is_demanded(login, code, found):
    async def answer(request):
        return web.json_response({}, status=code if request.path == "/invocations" else login)

    said, asked = await asked_of(answer)
    assert said is found
    assert [path for path, _ in asked] == ["/v1/completions", "/invocations"]
    assert asked[0][1] == asked[1][1]


@pytest.mark.parametrize("code", [302, 400, 401, 403, 404, 500])
async def test_what_refuses_says_nothing_of_the_engine(code):
    assert (await asked_of(status(code)))[0] is Answer.UNKNOWN


async def test_an_engine_that_takes_it_and_says_nothing_is_silent():
    clock, arrived = Clock(asyncio.get_running_loop()), asyncio.Event()

    async def never(_):
        arrived.set()
        await asyncio.Event().wait()

    asking = asyncio.create_task(asked_of(never))
    await arrived.wait()
    assert not asking.done()
    clock.advance(PATIENCE_S + 1)
    found, _ = await asking
    assert found is Answer.SILENCE


async def test_a_connection_that_breaks_says_nothing():
    async def breaks(request):
        request.transport.abort()
        return web.Response()

    assert (await asked_of(breaks))[0] is Answer.UNKNOWN


async def test_nobody_there_says_nothing(unused_tcp_port):
    assert await ask_for_a_token("127.0.0.1", "chat", PATIENCE_S, port=unused_tcp_port) is Answer.UNKNOWN
    assert await ask_for_a_token("::1", "chat", PATIENCE_S, port=unused_tcp_port) is Answer.UNKNOWN

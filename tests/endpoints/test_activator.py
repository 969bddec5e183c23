"""Requests that are held while no engine serves: over real sockets, with a router that hands on what it is told."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from patience import eventually
from shardwright.endpoints import activator as module
from shardwright.endpoints.activator import PASSED, RETRY_AFTER_S, Activator, Limits

NEVER = aiohttp.ClientTimeout(total=None)
LONG = Limits(requests=3, wait_s=600.0, drain_s=600.0)


class Upstream:
    """A router, or an engine. `answers` may be replaced by a test."""

    def __init__(self):
        self.seen, self.answers, self.go = [], self.stream, asyncio.Event()

    async def take(self, request):
        self.seen.append((request.path_qs, await request.read(), dict(request.headers)))
        return await self.answers(request)

    async def stream(self, request):
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Engine": "a"})
        await answer.prepare(request)
        await answer.write(b"data: one\n\n")
        await self.go.wait()
        await answer.write(b"data: [DONE]\n\n")
        return answer


@asynccontextmanager
async def served(handler):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1, max_field_size=1 << 20)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class World:
    def __init__(self, router, made, url, session):
        self.router, self.activator, self.url, self.session = router, made, url, session

    def ask(self, prompt="hi", path="/v1/completions?x=1", **headers):
        async def asked():
            async with self.session.post(self.url + path, json={"prompt": prompt}, headers=headers) as answer:
                return answer.status, await answer.text(), answer.headers

        return asyncio.create_task(asked())

    async def held(self, count):
        await eventually(lambda: self.activator.waiting == count)


@asynccontextmanager
async def world(limits=LONG, router=None, key=""):
    upstream = Upstream()
    async with served(upstream.take) as base, aiohttp.ClientSession(timeout=NEVER) as session:
        made = Activator(router or base, "http://127.0.0.1:8002", "chat", limits, key)
        runner = await made.serve("127.0.0.1", 0)
        try:
            yield World(upstream, made, f"http://127.0.0.1:{runner.addresses[0][1]}", session)
        finally:
            await runner.cleanup()
            await made.close()


async def test_what_is_held_is_answered_once_an_engine_is_there_and_streams_both_ways():
    async with world() as found:
        tasks = [found.ask(f"prompt {i}", Authorization="Bearer k") for i in range(3)]
        await found.held(3)
        assert not found.router.seen
        assert found.activator.arrived == 3
        found.activator.release(["http://10.0.0.1:8000"])
        await eventually(lambda: len(found.router.seen) == 3)
        found.router.go.set()
        for status, text, headers in await asyncio.gather(*tasks):
            assert (status, text) == (200, "data: one\n\ndata: [DONE]\n\n")
            assert (headers["X-Engine"], headers["Content-Type"]) == ("a", "text/event-stream")
        path, body, headers = min(found.router.seen)
        assert (path, body) == ("/v1/completions?x=1", b'{"prompt": "prompt 0"}')
        assert headers["Authorization"] == "Bearer k"
        await asyncio.wait_for(found.activator.quiet.wait(), 60)


async def test_without_the_key_nothing_is_held_nor_counted():
    async with world(key="k") as found:
        for said in (
            {},
            {"Authorization": "Bearer x"},
            {"Authorization": "k"},
            {"Authorization": "Bearer \u00e9"},
            {"Authorization": "Basic k"},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer  k"},
            {"Authorization": "Bearer k k"},
        ):
            status, text, _ = await found.ask(**said)
            assert (status, found.activator.arrived, found.activator.waiting) == (401, 0, 0)
        for path in ("/v1/responses", "/v2/rerank", "/inference/v1/generate", "/cohere/v2/chat"):
            status, _, _ = await found.ask(path=path)
            assert (status, found.activator.arrived) == (401, 0), (
                "an engine would refuse it, and is not woken"
            )
            assert "k;" not in text
        async with found.session.get(f"{found.url}/v1/models") as answer:
            assert answer.status == 401
        async with found.session.get(f"{found.url}/health") as answer:
            assert answer.status == 200, "the router asks without a key"
        # An engine takes the scheme in any case of letters.
        tasks = [found.ask(said, Authorization=said) for said in ("Bearer k", "bearer k", "BEARER k")]
        await found.held(3)
        for task in tasks:
            task.cancel()
        assert "'k'" not in repr(found.activator)


async def test_the_first_piece_comes_before_the_last_is_made():
    async with world() as found:
        found.activator.release(["http://10.0.0.1:8000"])
        async with found.session.post(f"{found.url}/v1/completions", data=b"x") as answer:
            assert await answer.content.readuntil(b"\n\n") == b"data: one\n\n"
            found.router.go.set()
            assert await answer.read() == b"data: [DONE]\n\n"


async def test_beyond_the_bound_it_is_refused_with_a_time_to_come_back():
    async with world() as found:
        tasks = [found.ask(f"{i}") for i in range(3)]
        await found.held(3)
        status, text, headers = await found.ask("one more")
        assert status == 503
        assert RETRY_AFTER_S[0] <= int(headers["Retry-After"]) <= RETRY_AFTER_S[1]
        assert "as many requests" in text
        others = [(await found.ask(f"another {i}"))[2]["Retry-After"] for i in range(20)]
        assert len(set(others)) > 1, "who is refused at once does not come back at once"
        assert found.activator.arrived == 24
        for task in tasks:
            task.cancel()


async def test_the_tries_of_one_request_neither_wait_twice_nor_count_twice(clock):
    async with world(Limits(requests=3, wait_s=100.0)) as found:
        asked = found.ask("slow")
        await found.held(1)
        clock.advance(101)
        assert (await asked)[0] == 503
        assert (await found.ask("slow"))[0] == 503, "a try of the router"
        assert found.activator.arrived == 1
        clock.advance(module.AGAIN_S + 1)
        again = found.ask("slow")
        await found.held(1)
        assert found.activator.arrived == 2, "the client itself has come back"
        other = found.ask("another")
        await found.held(2)
        for task in (again, other):
            task.cancel()


async def test_who_gives_up_frees_the_place_and_has_been_there():
    async with world() as found:
        asked = found.ask()
        await found.held(1)
        asked.cancel()
        await found.held(0)
        assert found.activator.arrived == 1
        found.activator.release(["http://10.0.0.1:8000"])
        assert not found.router.seen


async def test_what_the_router_gives_back_does_not_go_round():
    async with world() as found:
        rounds = []

        async def back(request):
            rounds.append(request.headers[PASSED])
            body = await request.read()
            async with found.session.post(
                f"{found.url}{request.path_qs}", data=body, headers={PASSED: request.headers[PASSED]}
            ) as answer:
                return web.Response(
                    status=answer.status, headers={"Retry-After": answer.headers["Retry-After"]}
                )

        found.router.answers = back
        found.activator.release(["http://10.0.0.1:8000"])
        status, _, headers = await found.ask()
        assert (status, len(rounds)) == (503, 1)
        assert int(headers["Retry-After"]) >= RETRY_AFTER_S[0]
        # The mark of somebody else is none.
        found.router.answers = lambda _request: asyncio.sleep(0, web.Response(text="fine"))
        assert (await found.ask(**{PASSED: "guess"}))[:2] == (200, "fine")


async def test_probes_and_lists_are_answered_and_start_nothing():
    async with world() as found:
        async with found.session.get(f"{found.url}/health") as answer:
            assert answer.status == 200
        async with found.session.get(f"{found.url}/v1/models") as answer:
            listed = (await answer.json())["data"]
            assert [(each["id"], each["object"]) for each in listed] == [("chat", "model")]
            assert all(isinstance(each["created"], int) for each in listed), "typed clients refuse it else"
        for path in ("/v1/completions/render", "/v1/chat/completions/render", "/tokenize"):
            status, _, headers = await found.ask(path=path)
            assert (status, "Retry-After" in headers) == (503, True), "a client may ask this, too"
        async with found.session.get(f"{found.url}/get_server_info") as answer:
            assert answer.status == 503
        assert (found.activator.arrived, found.activator.waiting) == (0, 0)


async def test_a_body_that_is_too_large_wakes_and_is_to_come_again(monkeypatch):
    monkeypatch.setattr(module, "BODY_BYTES", 1000)
    async with world() as found:
        status, text, headers = await found.ask("x" * 1000)
        assert (status, "too large" in text, "Retry-After" in headers) == (503, True, True)

        async def pieces():
            for _ in range(20):
                yield b"x" * 100

        async with found.session.post(f"{found.url}/v1/completions", data=pieces()) as answer:
            assert answer.status == 503
        assert found.activator.arrived == 2


async def test_headers_that_the_router_takes_are_held_and_not_logged(caplog):
    async with world() as found:
        key = "Bearer " + "k" * 400_000  # 417,792 bytes of headers are what vllm-router takes
        many = {f"X-{i}": "v" for i in range(95)}  # and a hundred of them
        task = found.ask(Authorization=key, **many)
        await found.held(1)
        found.activator.release(["http://10.0.0.1:8000"])
        found.router.go.set()
        assert (await task)[0] == 200
        assert found.router.seen[0][2]["Authorization"] == key
        assert "kkk" not in caplog.text


async def test_headers_count_as_what_is_held(monkeypatch):
    monkeypatch.setattr(module, "BODIES_BYTES", 10_000)
    async with world() as found:
        first = found.ask(Authorization="k" * 3_000)
        await found.held(1)
        assert (await found.ask("another", Authorization="k" * 3_000))[0] == 503
        first.cancel()


async def test_the_bodies_of_all_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "BODIES_BYTES", 10_000)
    async with world() as found:
        first = found.ask("x" * 6000)
        await found.held(1)
        assert (await found.ask("y" * 6000))[0] == 503
        second = found.ask("z" * 1000)
        await found.held(2)
        first.cancel()
        await found.held(1)
        third = found.ask("y" * 7000)
        await found.held(2)
        for task in (second, third):
            task.cancel()


async def test_a_router_that_takes_nothing_new_is_passed_by():
    engine = Upstream()
    engine.go.set()
    async with served(engine.take) as base, world(router="http://127.0.0.1:9") as found:
        asked = found.ask()
        await found.held(1)
        found.activator.drain()
        found.activator.release([base])
        assert (await asked)[0] == 200
        assert len(engine.seen) == 1


async def test_at_its_end_what_is_held_is_refused_and_not_dropped(clock):
    async with world() as found:
        asked = found.ask()
        await found.held(1)
        found.activator.drain()
        clock.advance(LONG.drain_s + 1)
        status, _, headers = await asked
        assert (status, "Retry-After" in headers) == (503, True)
        await asyncio.wait_for(found.activator.quiet.wait(), 60)


async def test_an_answer_that_breaks_does_not_look_whole():
    async with world() as found:

        async def breaks(request):
            answer = web.StreamResponse()
            await answer.prepare(request)
            await answer.write(b"data: one\n\n")
            request.transport.abort()
            return answer

        found.router.answers = breaks
        found.activator.release(["http://10.0.0.1:8000"])
        with pytest.raises(aiohttp.ClientError):
            await found.ask()


async def test_a_connection_that_breaks_before_an_answer_may_be_tried_again():
    async with world() as found:

        async def breaks(request):
            request.transport.abort()
            return web.Response()

        found.router.answers = breaks
        found.activator.release(["http://10.0.0.1:8000"])
        assert (await found.ask())[0] == 502

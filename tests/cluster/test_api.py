"""The adapter and the watch against a scripted HTTP server."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from patience import eventually
from shardwright.cluster.api import Api
from shardwright.cluster.errors import Conflict, Forbidden, Gone, Invalid, Transient
from shardwright.cluster.kinds import CONFIG_MAP, DEPLOYMENT, SERVICE
from shardwright.cluster.transport import AiohttpTransport, TokenBucket
from shardwright.cluster.watch import INACTIVITY_S, Watch

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OBJECT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "x", "namespace": "n"},
    "spec": {},
}


class Login:
    """Fake credentials: a token that a reload changes."""

    proxy = None
    tls_server_name = None

    def __init__(self, server: str) -> None:
        self.server = server
        self.reloads = 0

    def tls(self):
        return None

    async def reload(self) -> None:
        self.reloads += 1

    async def authorization(self) -> str:
        return f"bearer t{self.reloads}"


class Script:
    """A server that answers with what a test puts into `answers`, in order, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Handler] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path_qs, dict(request.headers), await request.read()))
        if not self.answers:
            await asyncio.sleep(3600)
        return await self.answers.pop(0)(request)

    def say(self, status: int, body: object = None, **headers: str) -> None:
        async def handler(_: web.Request) -> web.Response:
            return web.json_response(
                body or {}, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()}
            )

        self.answers.append(handler)

    def stream(self, *events: object, cut: bool = False, hang: bool = False) -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for event in events:
                await response.write(json.dumps(event).encode() + b"\n")
            if cut:
                request.transport.abort()
            if hang:
                await asyncio.sleep(3600)
            return response

        self.answers.append(handler)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[tuple[Script, Api, Login]]:
    script = Script()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.answer)
    running = TestServer(app)
    await running.start_server()
    login = Login(f"http://127.0.0.1:{running.port}")
    transport = AiohttpTransport(login)
    yield script, Api(transport), login
    await transport.close()
    await running.close()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, Invalid), (403, Forbidden), (404, Gone), (409, Conflict), (410, Gone), (422, Invalid),
        (429, Transient), (500, Transient), (503, Transient),
    ],
)  # fmt: skip
async def test_a_status_becomes_an_error_by_what_to_do_about_it(server, status, error):
    script, api, _ = server
    script.say(status, {"kind": "Status", "reason": "Because", "message": "of this"}, Retry_After="7")
    with pytest.raises(error, match="of this") as raised:
        await api.apply(OBJECT)
    assert raised.value.status == status
    assert raised.value.reason == "Because"
    assert raised.value.retry_after_s == 7


async def test_a_namespace_that_is_going_away_is_gone_and_not_forbidden(server):
    script, api, _ = server
    body = {"message": "x is being terminated", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    script.say(403, body)
    with pytest.raises(Gone):
        await api.apply(OBJECT)


async def test_a_login_that_has_expired_is_renewed_once(server):
    script, api, login = server
    script.say(401)
    script.say(200, {"metadata": {}})
    await api.get(CONFIG_MAP, "n", "x")
    assert login.reloads == 1
    assert [asked[2]["Authorization"] for asked in script.asked] == ["bearer t0", "bearer t1"]
    script.say(401)
    script.say(401)
    with pytest.raises(Forbidden):
        await api.get(CONFIG_MAP, "n", "x")


async def test_an_apply_is_server_side_by_our_manager_and_asks_for_metadata_only(server):
    script, api, _ = server
    script.say(201, {"metadata": {"uid": "u"}})
    applied = await api.apply(OBJECT)
    assert applied.created
    assert applied.metadata == {"uid": "u"}
    method, target, headers, body = script.asked[0]
    assert (method, target) == (
        "PATCH",
        "/apis/apps/v1/namespaces/n/deployments/x?fieldManager=shardwright&force=true",
    )
    assert headers["Content-Type"] == "application/apply-patch+yaml"
    assert "PartialObjectMetadata" in headers["Accept"]
    assert json.loads(body) == OBJECT


async def test_no_answer_is_transient():
    transport = AiohttpTransport(Login("http://127.0.0.1:9"))
    with pytest.raises(Transient, match="no answer"):
        await Api(transport).get(CONFIG_MAP, "n", "x")
    await transport.close()


async def test_an_answer_in_chunks_is_read_whole(server):
    script, api, _ = server
    script.stream({"metadata": {"name": "x" * 100_000}})
    assert len((await api.get(CONFIG_MAP, "n", "x"))["metadata"]["name"]) == 100_000


async def test_a_connection_that_was_closed_while_idle_is_replaced(server):
    script, api, _ = server

    transports = []

    async def answer_once(request: web.Request) -> web.Response:
        transports.append(request.transport)
        return web.json_response({"metadata": {"name": "a"}})

    script.answers.append(answer_once)
    script.say(200, {"metadata": {"name": "b"}})
    await api.get(CONFIG_MAP, "n", "a")
    transports[0].abort()
    await eventually(lambda: not api._transport._direct._idle)
    assert (await api.get(CONFIG_MAP, "n", "b"))["metadata"]["name"] == "b"
    assert len(script.asked) == 2


async def test_an_answer_that_breaks_off_is_transient(server):
    script, api, _ = server

    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"{")
        request.transport.abort()
        return response

    script.answers.append(break_off)
    with pytest.raises(Transient, match="connection lost"):
        await api.get(CONFIG_MAP, "n", "x")


async def test_an_error_never_holds_what_was_sent(server):
    script, api, _ = server
    script.say(422, {"message": "no"})
    with pytest.raises(Invalid) as raised:
        await api.apply(OBJECT | {"spec": {"secret": "hunter2"}})
    assert "hunter2" not in str(raised.value)


async def test_deleting_what_is_gone_is_no_error_and_only_that_uid_is_deleted(server):
    script, api, _ = server
    script.say(404)
    await api.delete(DEPLOYMENT, "n", "x", uid="u")
    assert json.loads(script.asked[0][3])["preconditions"] == {"uid": "u"}
    script.say(409)
    with pytest.raises(Conflict):
        await api.delete(DEPLOYMENT, "n", "x", uid="u")


async def test_a_pod_is_ended_with_its_own_grace_and_one_that_is_gone_is_no_error(server):
    script, api, _ = server
    script.say(404)
    await api.end_pod("n", "x", grace_s=45)
    method, target, _, body = script.asked[0]
    assert (method, target) == ("DELETE", "/api/v1/namespaces/n/pods/x")
    assert json.loads(body) == {"gracePeriodSeconds": 45}
    script.say(403)
    with pytest.raises(Forbidden):
        await api.end_pod("n", "x", grace_s=45)


async def test_lists_are_paged(server):
    script, api, _ = server
    script.say(200, {"metadata": {"resourceVersion": "5", "continue": "more&"}, "items": [thing("a", 1)]})
    script.say(200, {"metadata": {"resourceVersion": "5"}, "items": [thing("b", 2)]})
    pages = [page async for page, _ in api.list_pages(SERVICE, None, labels="a=b")]
    assert pages == [[thing("a", 1)], [thing("b", 2)]]
    assert "continue=more%26" in script.asked[1][1]
    assert "labelSelector=a%3Db" in script.asked[1][1]


def test_the_bucket_lets_a_burst_through_and_then_the_rate():
    now = [0.0]
    bucket = TokenBucket(10, 3, lambda: now[0])
    assert [bucket.delay_s() for _ in range(3)] == [0, 0, 0]
    assert bucket.delay_s() == pytest.approx(0.1)
    assert bucket.delay_s() == pytest.approx(0.2)
    now[0] = 10
    assert bucket.delay_s() == 0
    bucket.block(5)
    assert bucket.delay_s() == pytest.approx(5)


# The watch.


class Names:
    """A fake sink that keeps names."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], str] = {}

    def upsert(self, obj) -> None:
        self.held[obj["metadata"]["namespace"], obj["metadata"]["name"]] = obj["metadata"]["resourceVersion"]

    def remove(self, key, _version) -> None:
        self.held.pop(key, None)

    def keys(self):
        return set(self.held)


def thing(name: str, version: int) -> dict:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(version)}}


def listing(version: int, *items: dict) -> dict:
    return {"metadata": {"resourceVersion": str(version)}, "items": list(items)}


@pytest_asyncio.fixture
async def watch(server, clock):
    script, api, _ = server
    sink = Names()
    watching = Watch(api, SERVICE, sink, clock=clock)
    task = asyncio.create_task(watching.run())
    yield script, watching, sink
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_cut_stream_is_resumed_where_it_was(watch):
    script, watching, sink = watch
    script.say(200, listing(10, thing("a", 9)))
    script.stream(
        {"type": "ADDED", "object": thing("b", 11)}, {"type": "BOOKMARK", "object": thing("", 20)}, cut=True
    )
    script.stream({"type": "DELETED", "object": thing("a", 21)}, hang=True)
    await eventually(lambda: sink.held == {("n", "b"): "11"})
    assert watching.lists == 1
    assert "resourceVersion=20" in script.asked[2][1]


async def test_a_version_that_is_too_old_is_listed_anew_and_what_went_meanwhile_is_removed(watch):
    script, watching, sink = watch
    script.say(200, listing(10, thing("a", 9), thing("b", 9)))
    script.stream({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}})
    script.say(200, listing(30, thing("b", 25)))
    script.stream(hang=True)
    await eventually(lambda: sink.held == {("n", "b"): "25"})
    assert watching.lists == 2


async def test_faults_are_waited_out(watch):
    script, watching, sink = watch
    script.say(500)
    script.say(403)
    script.say(200, listing(10, thing("a", 9)))
    script.say(503)
    script.stream({"type": "ADDED", "object": thing("b", 11)}, hang=True)
    await eventually(lambda: set(sink.held) == {("n", "a"), ("n", "b")})
    assert watching.lists == 1


async def test_a_watch_that_the_server_cannot_open_yet_lists_meanwhile(watch):
    script, watching, sink = watch
    script.say(200, listing(10, thing("a", 9)))
    script.say(429)
    script.say(200, listing(12, thing("a", 9), thing("b", 11)))
    script.stream(hang=True)
    await eventually(lambda: set(sink.held) == {("n", "a"), ("n", "b")})
    assert watching.lists == 2
    await eventually(lambda: len(script.asked) == 4)
    assert "resourceVersion=12" in script.asked[3][1]


async def test_an_object_that_cannot_be_read_does_not_stop_the_watch(watch, caplog):
    script, _, sink = watch
    script.say(200, listing(10))
    broken = thing("x", 11) | {"metadata": {"name": "x", "resourceVersion": "11"}}
    script.stream({"type": "ADDED", "object": broken}, {"type": "ADDED", "object": thing("b", 12)}, hang=True)
    await eventually(lambda: set(sink.held) == {("n", "b")})
    assert "unreadable object" in caplog.text


@pytest.fixture
def begun(monkeypatch) -> list[str]:
    """Answers whose head the client has read, by their paths."""
    found = []
    start = aiohttp.ClientResponse.start

    async def started(response, connection):
        await start(response, connection)
        found.append(response.url.path_qs)
        return response

    monkeypatch.setattr(aiohttp.ClientResponse, "start", started)
    return found


async def test_a_quiet_watch_is_asked_for_again_where_it_was_and_is_no_fault(watch, begun, clock, caplog):
    """Where no object of a kind was ever made the API server sends no bookmark."""
    script, watching, sink = watch
    script.say(200, listing(10, thing("a", 9)))
    for _ in range(3):
        script.stream(hang=True)
    script.stream({"type": "ADDED", "object": thing("b", 11)}, hang=True)
    beat = watching.beat_at
    for count in (1, 2, 3):
        await eventually(lambda count=count: len(begun) == count)
        assert sink.held == {("n", "a"): "9"}
        clock.advance(2 * INACTIVITY_S)
    await eventually(lambda: set(sink.held) == {("n", "a"), ("n", "b")})
    assert watching.lists == 1
    assert all("resourceVersion=10" in asked[1] for asked in script.asked[1:5])
    assert watching.beat_at >= beat + 6 * INACTIVITY_S
    assert caplog.text == ""


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_in_a_hurry(watch, caplog):
    script, watching, _ = watch
    script.say(200, listing(10))
    for _ in range(1000):
        script.stream()
    await eventually(lambda: script.asked)
    began = time.monotonic()
    await eventually(lambda: len(script.asked) >= 10)
    assert time.monotonic() - began > 7 * 0.05, "more than 20 requests a second"
    assert watching.lists == 1
    assert caplog.text == ""


async def test_a_server_that_takes_connections_and_says_nothing_is_a_fault(watch, clock, caplog):
    script, watching, sink = watch
    script.say(200, listing(10))
    await eventually(lambda: len(script.asked) == 2)
    clock.advance(INACTIVITY_S)
    await eventually(lambda: len(script.asked) == 3)
    assert "watch interrupted kind=services failures=1" in caplog.text
    script.stream({"type": "ADDED", "object": thing("b", 11)}, hang=True)
    clock.advance(INACTIVITY_S)
    await eventually(lambda: set(sink.held) == {("n", "b")})
    assert watching.lists == 1

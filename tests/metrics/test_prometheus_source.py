"""What the source sends, and what it makes of servers that are no good. Figures: e2e/test_prometheus_source.py."""

import asyncio
import socket

import pytest
from aiohttp import web

from patience import PATIENCE_S, eventually
from shardwright.metrics import prometheus
from shardwright.metrics.login import Login
from shardwright.metrics.prometheus import PrometheusSource, queries
from shardwright.metrics.source import BUCKETS, Target
from shardwright.planner.signals import ABSENT, UNREACHABLE, Signal, Value

POD = ("team", "chat-1")
EMPTY = {"status": "success", "data": {"resultType": "vector", "result": []}}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(prometheus, "QUERY_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(prometheus, "READ_TIMEOUT_S", PATIENCE_S)


class Server:
    """Answers every query with `answer`."""

    def __init__(self):
        self.requests, self.answer = [], EMPTY

    async def handle(self, request):
        self.requests.append(request)
        answer = await self.answer() if callable(self.answer) else self.answer
        return web.json_response(answer) if isinstance(answer, dict | list) else answer


@pytest.fixture
async def server():
    found = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


async def read(login, now=lambda: 1000.0):
    source = PrometheusSource(login, stale_s=60.0, now=now)
    return await source.read([Target(POD, "")])


async def test_each_query_is_about_one_instant_and_carries_the_login(server, tmp_path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    token = tmp_path / "token"
    token.write_text("hunter2\n")
    login = Login(url=f"{server.url}/tenant/prom/", bearer_token_file=str(token), tenant="team-a")
    assert not (await read(login)).failure
    assert len(server.requests) == len(Signal) - len(BUCKETS), "no edge is asked for"
    assert {r.path for r in server.requests} == {"/tenant/prom/api/v1/query"}
    assert {r.query["time"] for r in server.requests} == {"998.000"}
    assert [r.query["query"] for r in server.requests] == list(queries("namespace", "pod").values())
    assert {r.headers["Authorization"] for r in server.requests} == {"Bearer hunter2"}
    assert {r.headers["X-Scope-OrgID"] for r in server.requests} == {"team-a"}


async def test_one_query_for_all_edges_of_the_fleet_and_each_pod_gets_its_own(server):
    def row(pod, le, value):
        return {"metric": {"namespace": "team", "pod": pod, "le": le}, "value": [998, value]}

    async def answer():
        query = server.requests[-1].query["query"]
        if "_bucket" in query:
            rows = [
                row("chat-1", "1.0", "7"),
                row("chat-1", "0.5", "3"),
                row("chat-2", "0.5", "0"),
                row("chat-3", "x", "9"),
            ]
        elif "timestamp" in query:
            rows = [row(f"chat-{n}", "", "990") for n in range(1, 4)]
        else:
            rows = []
        return {"data": {"result": rows}}

    server.answer = answer
    source = PrometheusSource(Login(url=server.url), stale_s=60.0, now=lambda: 1000.0)
    edges = [{Signal.TTFT_WITHIN: 1.0}, {Signal.TTFT_WITHIN: 0.5}, {Signal.TTFT_WITHIN: 2.0}]
    pods = [("team", f"chat-{n}") for n in range(1, 4)]
    found = await source.read([Target(pod, "", each) for pod, each in zip(pods, edges, strict=True)])
    (asked,) = [r.query["query"] for r in server.requests if "_bucket" in r.query["query"]]
    assert r'le=~"0\\.5|1|1\\.0|2|2\\.0"' in asked
    assert found.of(Signal.TTFT_WITHIN, pods[0]) == Value(7.0)
    assert found.of(Signal.TTFT_WITHIN, pods[1]).number == 0
    assert found.of(Signal.TTFT_WITHIN, pods[2]) is ABSENT


async def test_a_renewed_token_is_used_at_once(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("first")
    source = PrometheusSource(Login(url=server.url, bearer_token_file=str(token)), stale_s=60.0)
    await source.read([])
    token.write_text("second")
    await source.read([])
    sent = [r.headers["Authorization"] for r in server.requests]
    assert (sent[0], sent[-1]) == ("Bearer first", "Bearer second")


BAD = {
    "status 503": (web.Response(status=503, text="hunter2"), "Prometheus answers with status 503"),
    "status 403": (web.Response(status=403), "Prometheus answers with status 403: check the login"),
    "redirect": (web.Response(status=302, headers={"Location": "/x"}), "Prometheus answers with status 302"),
    "no JSON": (web.Response(text="<html>"), "what answers is no Prometheus"),
    "other JSON": ({"items": []}, "what answers is no Prometheus"),
    "a list": ([], "what answers is no Prometheus"),
    "no vector": ({"data": {"result": "5"}}, "what answers is no Prometheus"),
    "too long": (web.Response(text=" " * 5000), "what answers is no Prometheus"),
}


@pytest.mark.parametrize("kind", BAD)
async def test_a_server_that_is_no_good_is_a_failure_in_stable_words(server, kind, monkeypatch):
    monkeypatch.setattr(prometheus, "MOST_BYTES", 4000)
    server.answer, words = BAD[kind]
    found = await read(Login(url=server.url))
    assert found.failure == words
    assert len(server.requests) == 1, "the first failure ends a reading"
    assert found.of(Signal.TTFT_COUNT, POD) is UNREACHABLE


async def test_a_server_that_says_nothing_is_a_failure(monkeypatch):
    monkeypatch.setattr(prometheus, "QUERY_TIMEOUT_S", 0.2)
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as silent:  # the kernel takes connections, and nobody reads them
        found = await read(Login(url=f"http://127.0.0.1:{silent.getsockname()[1]}"))
    assert found.failure == "Prometheus does not answer in time"
    assert found.of(Signal.TTFT_COUNT, POD) is UNREACHABLE


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"metric": None, "value": None},
        {"metric": {"namespace": "team", "pod": "chat-1"}},
        {"metric": {"namespace": "team", "pod": "chat-1"}, "value": [1, "x"]},
        {"metric": {"namespace": "team", "pod": "chat-1"}, "value": []},
        {"metric": {"namespace": ["team"], "pod": 7}, "value": [1, "2"]},
    ],
)
async def test_a_row_that_is_no_figure_is_no_figure(server, row):
    server.answer = {"data": {"result": [row]}}
    found = await read(Login(url=server.url))
    assert getattr(found.of(Signal.TTFT_COUNT, POD), "number", None) is None


async def test_a_reading_under_way_is_not_joined_by_another(server, clock):
    gate = asyncio.Event()

    async def slowly():
        await gate.wait()
        return EMPTY

    server.answer = slowly
    source = PrometheusSource(Login(url=server.url), stale_s=60.0)
    first = asyncio.create_task(source.read([]))
    await eventually(lambda: server.requests)
    assert (await source.read([])).failure == "Prometheus does not answer in time"
    clock.advance(PATIENCE_S)
    assert (await first).failure == "Prometheus does not answer in time"
    assert (await source.read([])).failure == "Prometheus does not answer in time"
    assert len(server.requests) == 1
    gate.set()
    server.answer = EMPTY
    await eventually(source._running.done)
    assert not (await source.read([])).failure


async def test_no_server_and_a_missing_secret_are_failures_by_name(tmp_path):
    assert (await read(Login(url="http://127.0.0.1:1"))).failure == "Prometheus cannot be reached"
    missing = str(tmp_path / "token")
    assert missing in (await read(Login(url="http://127.0.0.1:1", bearer_token_file=missing))).failure

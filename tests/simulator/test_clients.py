"""What a client counts, against a server that answers in every way; and where a Service's connections go."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from harness.ports import free_ports
from harness.waiting import wait_until
from sim.clients.endpoints import Endpoints, addresses
from sim.clients.load import Client, Outcome, Work, failures, percentile
from sim.kubelet.rules import Rules, write
from sim.kubelet.targets import Targets

PORT = [{"name": "http", "port": 8000}]


def endpoint(address, **conditions):
    return {"addresses": [address], "conditions": conditions}


@pytest.mark.parametrize(
    ("endpoints", "said"),
    [
        ([endpoint("a", ready=True), endpoint("b", ready=False)], ("a:8000",)),
        (
            [endpoint("a", ready=True), endpoint("b", ready=False, serving=True, terminating=True)],
            ("a:8000",),
        ),
        ([endpoint("b", ready=False, serving=True, terminating=True)], ("b:8000",)),
        ([endpoint("b", ready=False, serving=False, terminating=True)], ()),
        (None, ()),
    ],
)
def test_connections_go_where_a_nodes_proxy_would_send_them(endpoints, said):
    assert addresses([{"ports": PORT, "endpoints": endpoints}]) == said


class FakeApi:
    def __init__(self, events):
        self.events = events

    async def watch(self, _path: str, _selector: str) -> AsyncIterator[tuple[str, object]]:
        for after_s, kind, piece in self.events:
            await asyncio.sleep(after_s)
            yield kind, piece
        await asyncio.Event().wait()


def piece(*endpoints):
    return {"metadata": {"uid": "1"}, "ports": PORT, "endpoints": list(endpoints)}


@pytest.mark.looptime
async def test_a_change_is_learnt_late_and_in_order():
    both = piece(endpoint("a", ready=True), endpoint("b", ready=True))
    events = [(10, "ADDED", both), (0, "MODIFIED", piece(endpoint("a", ready=True))), (0, "DELETED", both)]
    known = Endpoints(FakeApi(events), "ns", "chat", scale=1.0, seed=3)
    following = asyncio.ensure_future(known.follow())
    seen = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() - began < 20:
        if not seen or seen[-1][1] != known.known:
            seen.append((loop.time() - began, known.known))
        await asyncio.sleep(0.01)
    following.cancel()
    assert seen[0][1] == ()
    assert seen[1][1] in {("a:8000", "b:8000"), ("a:8000",), ()}, "never one that is older than what is known"
    times = [at for at, _ in seen[1:]]
    assert all(12 <= at <= 15.1 for at in times)
    assert seen[-1][1] == ()


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """Answer as the prompt's first word says."""

    async def answer(request: web.Request) -> web.StreamResponse:
        how = (await request.json())["prompt"].split()[0]
        if how.isdigit():
            return web.Response(status=int(how), text="no")
        response = web.StreamResponse()
        await response.prepare(request)
        frame = {"choices": [{"text": "word"}]}
        await response.write(f"data: {json.dumps(frame)}\n\n".encode())
        if how == "cut":
            request.transport.abort()
        elif how in {"ok", "system"}:
            await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    (port,) = free_ports("127.0.0.1", 1)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield f"http://127.0.0.1:{port}"
    await runner.cleanup()


async def test_what_became_of_a_request(server: str):
    (nobody,) = free_ports("127.0.0.1", 1)

    def ask() -> dict[str, Outcome]:
        with Client("m", target=server) as client:
            said = {
                how: client.ask(f"{how} 1").outcome for how in ("ok", "503", "429", "500", "cut", "short")
            }
        with Client("m", target=f"http://127.0.0.1:{nobody}") as client:
            return said | {"nobody": client.ask("ok").outcome}

    assert await asyncio.to_thread(ask) == {
        "ok": Outcome.OK,
        "503": Outcome.REJECTED,
        "429": Outcome.REJECTED,
        "500": Outcome.FAILED,
        "cut": Outcome.CUT,
        "short": Outcome.CUT,
        "nobody": Outcome.FAILED,
    }


async def test_an_open_loop_sends_whether_or_not_it_is_answered(server: str):
    def load():
        with Client("m", target=server, seed=1) as client:
            client.load(200.0, Work([(3, 1)], shared_prefix_tokens=1))
            wait_until(lambda: len(client.results) >= 50, "requests", every_s=0.01)
            return client.drain()

    results = await asyncio.to_thread(load)
    assert failures(results) == []
    assert {(result.prompt_tokens, result.tokens) for result in results} == {(3, 1)}


def test_a_client_that_knows_no_endpoint_fails_and_says_so():
    with Client("m") as client:
        found = client.ask("ok")
    assert (found.outcome, found.said) == (Outcome.FAILED, "no endpoint is known")


def test_the_same_seed_draws_the_same_work():
    work = Work([(5, 1), (50, 2)], [0.5, 0.5], shared_prefix_tokens=4)
    drawn = [work.draw(random.Random(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(prompt.startswith("system system system system ") for prompt, _ in drawn)
    assert percentile([1, 2, 3, 4], 50) == 3


def test_rules_are_matched_and_the_last_wins(tmp_path: Path):
    rules = Rules(tmp_path / "rules.json")
    pod = {"metadata": {"namespace": "n", "labels": {"app": "a"}}}
    container = {"name": "engine", "image": "vllm/vllm-openai:v1", "args": ["--max-num-seqs=8"]}
    assert rules.engine(pod, container) == {}
    write(
        tmp_path / "rules.json",
        [
            {"engine": {"start_s": 1, "speed": 2}},
            {"match": {"labels": {"app": "a"}, "argument": "max-num-seqs"}, "engine": {"start_s": 5}},
            {"match": {"namespace": "other"}, "engine": {"start_s": 9}},
            {"match": {"image": "v1"}, "pull": "not found"},
        ],
    )
    assert rules.engine(pod, container) == {"start_s": 5, "speed": 2}
    assert rules.pull_error(pod, container) == "not found"


def test_targets_come_with_an_address_and_go_with_the_pod(tmp_path: Path):
    path = tmp_path / "targets.json"
    targets = Targets(path)
    metadata = {"uid": "1", "name": "p", "namespace": "n"}
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"}
    targets.put({"metadata": metadata | {"annotations": annotations}, "status": {}})
    assert not path.exists()
    targets.put({"metadata": metadata | {"annotations": annotations}, "status": {"podIP": "10.244.0.2"}})
    (group,) = json.loads(path.read_text())
    assert group["targets"] == ["10.244.0.2:8000"]
    assert group["labels"] == {"__metrics_path__": "/metrics", "namespace": "n", "pod": "p"}
    targets.drop("1")
    assert json.loads(path.read_text()) == []

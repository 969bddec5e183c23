"""Engines read one by one: the page against prometheus_client's own parser, and servers that misbehave."""

import asyncio
import re
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from patience import PATIENCE_S, eventually
from shardwright.metrics import engines as module
from shardwright.metrics.engines import AT_ONCE, FIRST_REST_S, EngineSource, signals
from shardwright.metrics.source import (
    ALIVE,
    BUCKETS,
    CACHE,
    CACHE_LABELS,
    HTTP,
    MEANS,
    NAMES,
    PARTS,
    Target,
    kv_tokens,
)
from shardwright.planner.signals import (
    ABSENT,
    NOT_A_NUMBER,
    UNREACHABLE,
    ZERO,
    Signal,
    Unknown,
    Value,
)

LIST = (Path(__file__).parents[1] / "data/vllm_metrics.txt").read_text()
POD = ("team", "chat-1")
PAGE = """\
# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a}b\\"c"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="chat"} 4.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="chat"} 5.0
vllm:time_to_first_token_seconds_count{engine="1",model_name="chat"} 2.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="chat"} 1.5e0
vllm:time_to_first_token_seconds_sum{engine="1",model_name="chat"} 0.5 1764460800000
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="chat"} 5.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.5",model_name="chat"} 1.0
vllm:request_time_per_output_token_seconds_bucket{engine="0",le="0.05",model_name="chat"} 3.0
vllm:num_requests_waiting{engine="0",model_name="chat"} 2.0
vllm:num_requests_waiting{engine="1",model_name="chat"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="chat"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="chat"} 0.25
vllm:request_success_total{engine="0",finished_reason="stop",model_name="chat"} 3.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="chat"} 4.0
vllm:prompt_tokens_total{engine="0",model_name="chat"} 0.0
vllm:generation_tokens_total{engine="0",model_name="chat"} NaN
vllm:inter_token_latency_seconds_count{engine="0",model_name="chat"} 99.0
vllm:request_time_per_output_token_seconds_count{engine="0",model_name="chat"} 4.0
vllm:time_per_output_token_seconds_sum{engine="0",model_name="chat"} 7.0
vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="1000"} 1.0
vllm:cache_config_info{block_size="16",engine="1",kv_cache_size_tokens="15000",num_gpu_blocks="1000"} 1.0
http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 6.0
http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 2.0
http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 1.0
http_requests_total{handler="/load",method="GET",status="5xx"} 9.0
process_start_time_seconds 1.7e9
"""


def listed():
    """Sample names of the committed scrape, and the labels of each."""
    found = {}
    for line in LIST.partition("# Conditional families")[0].splitlines():
        if line and not line.startswith("#"):
            name, _, labels, *_ = [*line.split("\t"), "", ""]
            stem, _, parts = name.partition("_{")
            for each in [f"{stem}_{p}" for p in parts.rstrip("}").split(",")] if parts else [name]:
                found[each] = set(labels.split(","))
    return found


def test_the_newest_name_of_each_signal_is_one_that_vllm_exposes():
    known = listed()
    for signal, names in NAMES.items():
        assert names[0] in known, signal
    assert ALIVE in known
    assert set(CACHE_LABELS) <= known[CACHE]
    # Queries group by these, so that two scrapes of one engine count once.
    for signal, names in NAMES.items():
        part = {PARTS[signal]} if signal in PARTS else set()
        # What the HTTP server refuses it counts for all ranks at once.
        rank = set() if signal is Signal.REFUSED else {"engine"}
        assert known[names[0]] in ({"model_name"} | rank | part, {""})
    assert {known[name] == {"engine", "model_name"} for name in BUCKETS.values()} == {True}
    assert known[HTTP] == {"handler", "method", "status"}


def test_a_page_of_two_ranks():
    edges = {Signal.TTFT_WITHIN: 0.5, Signal.TPOT_WITHIN: 0.06, Signal.PROMPTS_WITHIN: 500.0}
    assert signals(PAGE, 100.0, edges) == {
        Signal.RUNNING: Value(3.0),
        Signal.WAITING: Value(3.0),
        Signal.KV_SHARE: Value(0.375),
        Signal.FINISHED: Value(7.0),
        Signal.GAP_SUM: Value(7.0),
        Signal.GAP_COUNT: Value(99.0),
        Signal.TTFT_WITHIN: Value(5.0),
        Signal.TTFT_SUM: Value(2.0),
        Signal.TTFT_COUNT: Value(7.0),
        Signal.TPOT_SUM: Value(7.0),
        Signal.TPOT_COUNT: Value(4.0),
        Signal.PROMPT_TOKENS: ZERO,
        Signal.GENERATION_TOKENS: NOT_A_NUMBER,
        Signal.STARTED: Value(1.7e9),
        Signal.KV_TOKENS: Value(15000.0),
        Signal.ANSWERED: Value(9.0),
        Signal.FAILED: Value(2.0),
        Signal.SAMPLED: Value(100.0),
    }


def test_an_empty_page_or_another_server_s_has_no_signal():
    assert signals("", 1.0) == {}
    assert signals("<html>vllm:num_requests_running 1</html>", 1.0) == {}


def test_older_versions_name_blocks_and_their_size():
    assert kv_tokens({"num_gpu_blocks": "1000", "block_size": "16"}) == 16000
    assert kv_tokens({"num_gpu_blocks": "None", "block_size": "16"}) is None
    assert kv_tokens({"kv_cache_size_tokens": "-5", "block_size": "16"}) is None


VALUES = st.sampled_from(["0", "1.0", "2.5e3", "+Inf", "-Inf", "NaN", "1_0", "abc", "12"])
LINES = st.lists(
    st.tuples(
        st.sampled_from(sorted({n for names in NAMES.values() for n in names} | {ALIVE, "other_total"})),
        st.sampled_from(["", '{engine="0"}', '{engine="1",model_name="a b"}', '{x="}\\" y"}']),
        VALUES,
    ),
    max_size=12,
)


@given(LINES)
def test_the_page_is_read_as_prometheus_client_reads_it(lines):
    text = "".join(f"{name}{labels} {value}\n" for name, labels, value in lines)
    good = "".join(
        f"{n}{labels} {v}\n" for n, labels, v in lines if re.fullmatch(r"[+-]?(Inf|NaN|[0-9.e]+)", v)
    )
    sums, broken = {}, {name for name, _, value in lines if value in {"1_0", "abc"}}
    for family in text_string_to_metric_families(good):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    found = signals(text, 1.0)
    for signal, names in NAMES.items():
        name = next((n for n in names if n in sums or n in broken), None)
        if name is None:
            assert signal not in found
        elif name in broken or not abs(sums[name]) < float("inf"):
            assert found[signal] is NOT_A_NUMBER
        else:
            lines_of_it = sum(n == name for n, _, _ in lines) if signal in MEANS else 1
            assert found[signal].number == sums[name] / lines_of_it


SILENCE = object()


class Engines:
    """Servers on loopback addresses, one answer for each; none is given while `open` is not set."""

    def __init__(self):
        self.asked = []
        self.answers = {}
        self.at_once = self.most = 0
        self.open = asyncio.Event()
        self.open.set()

    async def handle(self, request):
        self.asked.append(request.host.partition(":")[0])
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.open.wait()
            answer = self.answers.get(request.host.partition(":")[0], PAGE)
            if answer is SILENCE:
                await asyncio.Event().wait()
            return answer if isinstance(answer, web.StreamResponse) else web.Response(text=answer)
        finally:
            self.at_once -= 1


@pytest.fixture
async def engines(monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_S", 2 * PATIENCE_S)
    servers = Engines()
    app = web.Application()
    app.router.add_get("/metrics", servers.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", 0)
    await site.start()
    servers.port = runner.addresses[0][1]
    yield servers
    await runner.cleanup()


def target(index):
    return Target(("team", f"chat-{index}"), f"127.0.0.{index}")


async def test_each_engine_answers_for_itself(engines, clock, monkeypatch):
    engines.answers = {
        "127.0.0.2": web.Response(status=500),
        "127.0.0.3": SILENCE,
        "127.0.0.4": "x" * (5 << 20),
        "127.0.0.5": web.Response(status=302, headers={"Location": "http://127.0.0.1/"}),
        "127.0.0.6": web.Response(body=b"\xff\xfe"),
    }
    pages = []
    monkeypatch.setattr(module, "signals", lambda page, at_s, _: pages.append(page) or signals(page, at_s))
    now = [0.0]
    source = EngineSource(lambda: now[0], port=engines.port, now=lambda: 50.0)
    targets = [*(target(index) for index in range(1, 7)), Target(("team", "new"), "")]
    reading = asyncio.create_task(source.read(targets))
    await eventually(lambda: len(engines.asked) == 6 and pages)
    assert not reading.done()
    clock.advance(module.TIMEOUT_S)
    found = await reading
    assert not found.failure
    assert found.of(Signal.TTFT_COUNT, ("team", "chat-1")) == Value(7.0)
    for index in range(2, 7):
        assert found.of(Signal.TTFT_COUNT, ("team", f"chat-{index}")) is UNREACHABLE
    assert found.of(Signal.TTFT_COUNT, ("team", "new")) is ABSENT
    # Those that failed are left alone for a while, then tried again.
    engines.asked.clear()
    engines.answers.clear()
    again = await source.read(targets)
    assert set(engines.asked) == {"127.0.0.1"}
    assert isinstance(again.of(Signal.TTFT_COUNT, ("team", "chat-2")), Unknown)
    now[0] = FIRST_REST_S + 1
    assert (await source.read(targets)).of(Signal.TTFT_COUNT, ("team", "chat-2")) == Value(7.0)
    await source.close()


async def test_only_some_engines_are_asked_at_once(engines):
    source = EngineSource(lambda: 0.0, port=engines.port)
    engines.open.clear()
    reading = asyncio.create_task(source.read([target(index) for index in range(1, 101)]))
    await eventually(lambda: engines.at_once >= AT_ONCE)
    for _ in range(100):  # one more would come in these turns of the loop
        await asyncio.sleep(0)
    engines.open.set()
    found = await reading
    assert len(engines.asked) == 100
    assert engines.most <= AT_ONCE
    assert found.of(Signal.TTFT_COUNT, ("team", "chat-100")) == Value(7.0)
    await source.close()


async def test_no_engine_no_request(engines):
    source = EngineSource(lambda: 0.0, port=engines.port)
    assert not (await source.read([])).failure
    await source.close()


async def test_each_engine_is_asked_only_when_it_is_calm(engines):
    calm, all_wait, waits = asyncio.Event(), asyncio.Event(), []

    async def wait():
        waits.append(None)
        if len(waits) == AT_ONCE:
            all_wait.set()
        await calm.wait()

    source = EngineSource(lambda: 0.0, port=engines.port, calm=wait)
    reading = asyncio.create_task(source.read([target(index) for index in range(1, 41)]))
    await all_wait.wait()
    assert not engines.asked
    calm.set()
    await reading
    assert len(engines.asked) == len(waits) == 40
    await source.close()

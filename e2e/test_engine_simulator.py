"""The simulated engine as a process, held against what was observed of vLLM 0.32; the same against a real one if there is one.

A real vLLM takes part when SHARDWRIGHT_VLLM names its program.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.ports import free_ports
from harness.processes import Process
from harness.waiting import PATIENCE_S, wait_until
from sim.engine.api import TOO_MANY
from sim.engine.arguments import parse
from sim.engine.behaviour import VARIABLE
from sim.engine.metrics import Metrics

REAL = os.environ.get("SHARDWRIGHT_VLLM", "")
HOST = "127.0.0.1"
JSON = {"Content-Type": "application/json"}
SIMULATED = "a simulated one"
KINDS = pytest.mark.parametrize(
    "kind",
    [
        SIMULATED,
        pytest.param(
            "a real one",
            marks=pytest.mark.skipif(not REAL, reason="no real vLLM: SHARDWRIGHT_VLLM is not set"),
        ),
    ],
)


@dataclass
class Engine:
    """A server under test."""

    process: Process
    port: int
    control: int

    def ask(self, method: str, path: str, body: object = None, port: int | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(HOST, port or self.port, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), JSON)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def complete(self, **more: object) -> tuple[int, Any]:
        question = {"model": "chat", "prompt": "a b c", "max_tokens": 4, "temperature": 0} | more
        status, text = self.ask("POST", "/v1/completions", question)
        return status, json.loads(text) if text.startswith("{") else text

    def metric(self, name: str) -> float:
        lines = self.ask("GET", "/metrics")[1].splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def health(self) -> int:
        return self.ask("GET", "/health")[0]

    def held(self, tokens: int) -> "Stream":
        """Begin a stream that brings no token before the engine recovers, so that no test has to be quick."""
        self.fail("Hang")
        stream = Stream(self, tokens)
        wait_until(lambda: self.metric("vllm:num_requests_waiting{") == 1, "the stream")
        return stream

    def fail(self, fault: str) -> None:
        assert self.ask("POST", "/faults", {"fault": fault}, self.control)[0] == 200

    def end(self) -> int:
        """Wait for its end and give the exit code."""
        wait_until(lambda: self.process.exit_code is not None, "the end")
        code = self.process.exit_code
        assert code is not None
        return code


@dataclass
class Stream:
    """A streamed answer, read by a thread."""

    engine: Engine
    tokens: int
    lines: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        connection = http.client.HTTPConnection(HOST, self.engine.port, timeout=120)
        question = {
            "model": "chat",
            "prompt": "a",
            "max_tokens": self.tokens,
            "ignore_eos": True,
            "stream": True,
        }
        try:
            connection.request("POST", "/v1/completions", json.dumps(question), JSON)
            for line in connection.getresponse():
                if line.strip():
                    self.lines.append(line.decode().strip())
        except (OSError, http.client.HTTPException) as error:
            self.lines.append(f"cut: {type(error).__name__}")
        finally:
            connection.close()
            self.ended.set()

    @property
    def whole(self) -> bool:
        return self.ended.wait(120) and self.lines[-1:] == ["data: [DONE]"]


Start = Callable[..., Engine]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Process] = []

    def start_one(*flags: str, kind: str = SIMULATED, **behaviour: object) -> Engine:
        port, control = free_ports(HOST, 2)
        given = {"start_s": 0.2, "speed": 4.0, "control_port": control} | behaviour
        sources = str(
            Path(__file__).parent
        )  # the process runs elsewhere, where a relative path names nothing
        environment = os.environ | {VARIABLE: json.dumps(given), "PYTHONPATH": sources}
        program, model = [sys.executable, "-m", "sim.engine"], ["meta-llama/Llama-3.1-8B-Instruct"]
        if kind != SIMULATED:
            made = str(tmp_path / "model")
            maker = [
                str(Path(REAL).with_name("python")),
                str(Path(__file__).with_name("tiny_model.py")),
                made,
            ]
            subprocess.run(maker, check=True)
            program, model = [REAL], [made, "--load-format=dummy", "--enforce-eager", "--dtype=float32"]
            environment |= {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
        common = ["--served-model-name=chat", f"--port={port}", "--max-model-len=1024", *flags]
        process = Process(
            "engine", [*program, "serve", *model, *common], tmp_path / "engine.log", environment
        )
        process.start()
        running.append(process)
        return Engine(process, port, control)

    yield start_one
    for process in running:
        process.kill()


def serving(engine: Engine) -> bool:
    engine.process.check()
    return engine.health() == 200


@KINDS
def test_an_idle_connection_is_closed_when_the_environment_says(
    start: Start, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "1")
    engine = start(kind=kind)
    wait_until(lambda: serving(engine), "the engine")
    connection = http.client.HTTPConnection(HOST, engine.port, timeout=PATIENCE_S)
    connection.request("GET", "/v1/models")
    connection.getresponse().read()
    assert connection.sock.recv(1) == b"", "closed by the engine, which would else keep it for an hour"
    connection.close()
    # Nothing else is known of the default but that it is there: no test waits for it.
    assert parse(["serve", "some/model"], {}).keep_alive_s == 5


@KINDS
def test_a_key_guards_v1_and_not_invocations(start: Start, kind: str) -> None:
    engine = start("--api-key=secret", kind=kind)
    wait_until(lambda: serving(engine), "the engine")
    assert engine.complete()[0] == 401
    assert engine.ask("GET", "/v1/models")[0] == 401
    for model in ({"model": "chat"}, {}):
        question = model | {"prompt": "a b c", "max_tokens": 4, "temperature": 0}
        status, text = engine.ask("POST", "/invocations", question)
        assert status == 200, text
        assert json.loads(text)["usage"]["completion_tokens"] <= 4
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}
    assert engine.ask("POST", "/invocations", chat)[0] in ({200} if kind == SIMULATED else {200, 400})


def test_nobody_listens_while_it_loads(start: Start) -> None:
    engine = start(start_s=10_000.0)
    wait_until(lambda: "Starting to load model" in engine.process.tail(), "its loading")
    with pytest.raises(ConnectionRefusedError):
        engine.health()


@KINDS
def test_the_life_of_an_engine(start: Start, kind: str) -> None:
    engine = start("--shutdown-timeout=60", "--max-num-queued-reqs=2", kind=kind)
    if kind != SIMULATED:
        with pytest.raises(ConnectionRefusedError):
            engine.health()
    wait_until(lambda: serving(engine), "the engine")
    assert json.loads(engine.ask("GET", "/v1/models")[1])["data"][0]["id"] == "chat"
    status, answer = engine.complete()
    assert status == 200, answer
    assert answer["usage"]["prompt_tokens"] > 0
    assert len(engine.ask("POST", "/v1/completions/render", {"model": "chat", "prompt": "a b"})[1]) > 20
    assert engine.complete()[1]["choices"] == answer["choices"], "greedy"
    assert engine.complete(model="other")[0] == 404
    assert engine.complete(prompt="word " * 2000)[0] == 400
    if kind == SIMULATED:
        engine.fail("Hang")
    tokens = 100 if kind == SIMULATED else 900
    streams = [Stream(engine, tokens), Stream(engine, tokens)]
    in_flight = ("vllm:num_requests_running", "vllm:num_requests_waiting{")
    wait_until(lambda: sum(engine.metric(name) for name in in_flight) == 2, "two streams")
    assert engine.complete()[0] == 503, "the queue limit"
    assert engine.metric("vllm:admission_rejections_total") == 1
    assert engine.metric("vllm:cache_config_info{") == 1
    page = engine.ask("GET", "/metrics")[1]

    engine.process.signal(signal.SIGTERM)
    wait_until(lambda: engine.complete()[0] in {500, 503}, "no new requests")
    assert engine.health() == 200, "while it drains"
    assert sum(engine.metric(name) for name in in_flight) > 0, "and says what it still has"
    if kind == SIMULATED:
        engine.fail("Recovery")
    assert all(stream.whole for stream in streams), [stream.lines[-1] for stream in streams]
    assert engine.end() == 0
    shown = {
        line.partition("{")[0].partition(" ")[0] for line in page.splitlines() if line.startswith("vllm:")
    }
    ours = Metrics(parse(["serve", "m"], {}), 1000).page().decode()
    assert {line.partition("{")[0] for line in ours.splitlines() if line.startswith("vllm:")} <= shown
    reasons = [line for line in page.splitlines() if line.startswith("vllm:admission_rejections_total{")]
    assert [f'reason="{TOO_MANY}"' in line for line in reasons if line.endswith(" 1.0")] == [True], reasons


def test_new_requests_get_500_while_it_drains(start: Start) -> None:
    engine = start("--shutdown-timeout=60")
    wait_until(lambda: serving(engine), "the engine")
    stream = engine.held(20)
    engine.process.signal(signal.SIGTERM)
    wait_until(lambda: engine.complete()[0] == 500, "a refusal")
    assert "cannot schedule new futures after shutdown" in engine.complete()[1]["error"]["message"]
    assert not stream.ended.is_set()
    engine.fail("Recovery")
    assert stream.whole


def test_streams_longer_than_the_drain_are_cut(start: Start) -> None:
    engine = start("--shutdown-timeout=4")
    wait_until(lambda: serving(engine), "the engine")
    stream = engine.held(20)
    engine.process.signal(signal.SIGTERM)
    assert engine.end() == 0
    assert not stream.whole


def test_without_a_shutdown_timeout_streams_hang_and_the_process_stays(start: Start) -> None:
    engine = start()
    wait_until(lambda: serving(engine), "the engine")
    stream = engine.held(20)
    engine.process.signal(signal.SIGTERM)
    wait_until(lambda: refused(engine), "a closed listener")
    assert engine.process.pid is not None
    assert not stream.ended.is_set()
    engine.process.kill()
    assert not stream.whole


def refused(engine: Engine) -> bool:
    try:
        engine.health()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("OutOfMemory", "CUDA out of memory"),
        ("NoKVCache", "No available memory for the cache blocks"),
        ("HubUnauthorized", "GatedRepoError"),
        ("HubRateLimited", "429 Client Error"),
    ],
)
def test_a_load_that_fails_says_why(start: Start, fault: str, said: str) -> None:
    engine = start(load_fault=fault)
    assert engine.end() == 1
    assert said in engine.process.tail()


def test_a_context_that_the_cache_does_not_hold_is_refused_at_the_start(start: Start) -> None:
    engine = start(model={"kv_tokens": 1000})
    assert engine.end() == 1
    assert "larger than the available KV cache memory" in engine.process.tail()


@pytest.mark.parametrize(("fault", "code"), [("EngineDeath", 0), ("XID", 1)])
def test_an_engine_that_dies(start: Start, fault: str, code: int) -> None:
    engine = start()
    wait_until(lambda: serving(engine), "the engine")
    stream = engine.held(20)
    engine.fail(fault)
    assert engine.health() == 503
    assert engine.complete()[0] == 500
    assert not stream.whole
    assert engine.end() == code
    assert ("Xid" in engine.process.tail()) == (fault == "XID")


def test_an_engine_that_hangs_is_healthy_and_brings_no_token(start: Start) -> None:
    engine = start("--max-model-len=32768")
    wait_until(lambda: serving(engine), "the engine")
    # Minutes of tokens; nobody waits for them.
    Stream(engine, 30_000)
    wait_until(lambda: engine.metric("vllm:generation_tokens_total") > 3, "the stream")
    engine.fail("Hang")
    before = engine.metric("vllm:generation_tokens_total")
    another = Stream(engine, 5)
    wait_until(lambda: engine.metric("vllm:num_requests_waiting{") == 1, "another request")
    assert engine.health() == 200
    assert engine.metric("vllm:generation_tokens_total") <= before + 1
    assert engine.metric("vllm:num_requests_running") == 1
    assert not another.ended.is_set()


def test_metrics_that_are_not_numbers_and_an_end_without_a_word(start: Start) -> None:
    engine = start(faults=["NaNMetrics"])
    wait_until(lambda: serving(engine), "the engine")
    assert "vllm:num_requests_running" in engine.ask("GET", "/metrics")[1]
    assert engine.metric("vllm:num_requests_running") != engine.metric("vllm:num_requests_running")
    engine.fail("Exit")
    assert engine.end() == 1


def test_a_prompt_is_rendered_and_the_load_is_told_when_asked_for(start: Start) -> None:
    engine = start("--enable-server-load-tracking")
    wait_until(lambda: serving(engine), "the engine")
    question = {"model": "chat", "prompt": "a b a", "messages": [{"role": "user", "content": "a b a"}]}
    (first,) = json.loads(engine.ask("POST", "/v1/completions/render", question)[1])
    assert first["token_ids"][0] == first["token_ids"][2] != first["token_ids"][1]
    chat = json.loads(engine.ask("POST", "/v1/chat/completions/render", question)[1])
    assert len(chat["token_ids"]) == 4, "and the role"
    engine.held(20)
    wait_until(lambda: json.loads(engine.ask("GET", "/load")[1])["server_load"] == 1, "the load")


def test_a_key_guards_v1_only(start: Start) -> None:
    engine = start("--api-key=secret")
    wait_until(lambda: serving(engine), "the engine")
    assert engine.ask("GET", "/v1/models")[0] == 401
    assert engine.ask("GET", "/metrics")[0] == 200

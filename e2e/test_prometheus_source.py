"""The source against a real Prometheus that scrapes fake engines: states, joins, restarts, logins, outages."""

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.certs import Authority
from harness.fake_vllm import LABELS, Engine, FakeVLLM
from harness.prometheus import Prometheus
from harness.waiting import PATIENCE_S, wait_until
from shardwright.metrics import prometheus as module
from shardwright.metrics.login import Login
from shardwright.metrics.prometheus import PrometheusSource, queries
from shardwright.metrics.source import BUCKETS, NAMES, Target
from shardwright.planner.signals import ABSENT, NOT_A_NUMBER, STALE, ZERO, Readings, Signal, Value

ROOT = Path(__file__).resolve().parent.parent
BUSY, IDLE, GONE, OLD, NEVER = (("team", name) for name in ("busy", "idle", "gone", "old", "never"))
BCRYPT = "$2b$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8."
"""Of hunter2, by crypt(3)."""
JOBS = 2
"""Each engine is scraped by two jobs, as a PodMonitor beside scrape annotations does."""


class Pages:
    """Engines whose pages a test writes itself."""

    def __init__(self, vllm: FakeVLLM) -> None:
        self.vllm = vllm

    def set(self, pod: tuple[str, str], page: str) -> None:
        engine = Engine()
        engine.page = lambda: page  # type: ignore[method-assign]
        self.vllm.engines[pod] = engine


@pytest.fixture(scope="module")
def vllm() -> Iterator[FakeVLLM]:
    with FakeVLLM() as server:
        server.engines |= {BUSY: Engine(), IDLE: Engine(blocks=None), GONE: Engine()}
        server.engines[BUSY].serve(100)
        server.engines[BUSY].failed = server.engines[BUSY].refused = 4
        pages = Pages(server)
        pages.set(
            OLD,
            f"vllm:num_requests_running{LABELS} 1\n"
            f"vllm:time_per_output_token_seconds_sum{LABELS} 4\n"
            f"vllm:time_per_output_token_seconds_count{LABELS} 80\n"
            f"vllm:gpu_prefix_cache_hits_total{LABELS} 30\n"
            f"vllm:prompt_tokens_total{LABELS} NaN\n",
        )
        yield server


def scrape(vllm: FakeVLLM) -> list[dict[str, Any]]:
    return [{"job_name": f"job-{n}", "static_configs": vllm.targets()} for n in range(JOBS)]


@pytest.fixture(scope="module")
def prometheus(vllm: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with Prometheus(tmp_path_factory.mktemp("prometheus"), scrape(vllm)) as server:
        scraped = lambda: len(server.query("vllm:num_requests_running")) == JOBS * len(vllm.engines)  # noqa: E731
        wait_until(scraped, "the first scrapes")
        yield server


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERY_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(module, "READ_TIMEOUT_S", PATIENCE_S)


def read_scraped(login: Login, *pods: tuple[str, str]) -> Readings:
    """Read once each pod has a scrape: a reading is about two seconds ago, and a slow scrape is none."""

    def scraped() -> Readings | None:
        found = read(login, *pods)
        return found if all(isinstance(found.of(Signal.SAMPLED, pod), Value) for pod in pods) else None

    found = wait_until(scraped, f"scrapes of {pods}")
    assert found is not None
    return found


def read(
    login: Login,
    *pods: tuple[str, str],
    stale_s: float = 60.0,
    offset_s: float = 0.0,
    edges: dict[Signal, float] | None = None,
) -> Readings:
    async def once() -> Readings:
        source = PrometheusSource(login, stale_s=stale_s, now=lambda: time.time() + offset_s)
        try:
            return await source.read([Target(pod, "", edges or {}) for pod in pods])
        finally:
            await source.close()

    return asyncio.run(once())


def test_the_fake_engines_expose_only_what_vllm_does() -> None:
    known: set[str] = set()
    for line in (ROOT / "tests/data/vllm_metrics.txt").read_text().splitlines():
        stem, _, parts = line.split("\t")[0].partition("_{")
        known |= {f"{stem}_{part}" for part in parts.rstrip("}").split(",")} if parts else {stem}
    shown = {line.partition("{")[0].partition(" ")[0] for line in Engine(refused=4).page().splitlines()}
    assert shown <= known
    assert {names[0] for names in NAMES.values()} | set(BUCKETS.values()) <= shown


def test_value_zero_and_unknown(prometheus: Prometheus, vllm: FakeVLLM) -> None:
    found = read_scraped(Login(url=prometheus.url), BUSY, IDLE, OLD)
    assert not found.failure
    assert found.of(Signal.TTFT_COUNT, BUSY) == Value(100.0)
    assert found.of(Signal.TTFT_SUM, BUSY) == Value(10.0)
    assert found.of(Signal.KV_TOKENS, BUSY) == Value(16000.0)
    assert found.of(Signal.ANSWERED, BUSY) == Value(104.0)
    assert found.of(Signal.FAILED, BUSY) == Value(4.0)
    assert found.of(Signal.REFUSED, BUSY) == Value(4.0), "whatever the reason, once for each of two scrapes"
    assert found.of(Signal.REFUSED, IDLE) is ABSENT, "no series before the first"
    assert found.of(Signal.ANSWERED, IDLE) is found.of(Signal.FAILED, IDLE) is ZERO
    assert found.of(Signal.FAILED, OLD) is ABSENT, "a page without the server's requests"
    started = found.of(Signal.STARTED, BUSY)
    assert isinstance(started, Value)
    assert started.number == pytest.approx(vllm.engines[BUSY].started, abs=1)
    assert found.of(Signal.TTFT_COUNT, IDLE) is ZERO
    assert found.of(Signal.KV_TOKENS, IDLE) is ABSENT
    # Older names, and a figure that is no number.
    assert found.of(Signal.TPOT_COUNT, OLD) == Value(80.0)
    assert found.of(Signal.PREFIX_HIT_TOKENS, OLD) == Value(30.0)
    assert found.of(Signal.TTFT_COUNT, OLD) is ABSENT
    assert found.of(Signal.PROMPT_TOKENS, OLD) is NOT_A_NUMBER
    never = read(Login(url=prometheus.url), NEVER)
    assert not never.failure
    assert never.of(Signal.TTFT_COUNT, NEVER) is ABSENT


def test_series_of_pods_that_do_not_exist_are_nothing(prometheus: Prometheus) -> None:
    found = read_scraped(Login(url=prometheus.url), BUSY)
    assert {pod for known in found.by_signal.values() for pod in known} == {BUSY}


def test_what_is_too_old_is_stale(prometheus: Prometheus) -> None:
    login = Login(url=prometheus.url)
    wait_until(lambda: read(login, BUSY, stale_s=1e-6).of(Signal.TTFT_COUNT, BUSY) is STALE, "a scrape")
    assert not read(Login(url=prometheus.url), BUSY, offset_s=-3600).by_signal[Signal.TTFT_COUNT]


def test_one_query_for_each_signal_whatever_the_fleet(prometheus: Prometheus) -> None:
    counter = "prometheus_http_requests_total"

    def asked() -> float:
        with_handler = f'{counter}{{handler="/api/v1/query"}}'
        text = prometheus._get("/metrics")
        lines = [line for line in text.splitlines() if line.startswith(with_handler[: len(counter)])]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if 'handler="/api/v1/query"' in line)

    before = asked()
    read(Login(url=prometheus.url), *(("team", f"pod-{n}") for n in range(1000)))
    assert asked() - before == len(Signal) - len(BUCKETS) == len(queries("namespace", "pod"))


def test_counts_up_to_an_edge_and_the_state_of_an_engine(prometheus: Prometheus, vllm: FakeVLLM) -> None:
    engine = vllm.engines[BUSY]
    edges = {Signal.TTFT_WITHIN: 0.5, Signal.TPOT_WITHIN: 0.05, Signal.PROMPTS_WITHIN: 200.0}
    engine.running, engine.waiting, engine.kv_share = 3, 2, 0.25

    def holds() -> Readings | None:
        found = read(Login(url=prometheus.url), BUSY, edges=edges)
        return found if found.of(Signal.WAITING, BUSY) == Value(2.0) else None

    found = wait_until(holds, "a scrape of what waits")
    assert found is not None
    assert found.of(Signal.RUNNING, BUSY) == Value(3.0)
    assert found.of(Signal.KV_SHARE, BUSY) == Value(0.25)
    assert found.of(Signal.FINISHED, BUSY) == Value(100.0), "of two reasons and two scrapes"
    assert found.of(Signal.TTFT_WITHIN, BUSY) == Value(100.0)
    assert found.of(Signal.PROMPTS_WITHIN, BUSY) is ZERO, "prompts of 500 tokens"
    assert found.of(Signal.TPOT_WITHIN, BUSY) == Value(100.0)
    elsewhere = read(Login(url=prometheus.url), BUSY, edges={Signal.TTFT_WITHIN: 0.7})
    assert elsewhere.of(Signal.TTFT_WITHIN, BUSY) is ABSENT


def test_other_label_names(prometheus: Prometheus) -> None:
    login = Login(url=prometheus.url, namespace_label="job", pod_label="instance")
    found = read_scraped(login, ("job-0", "busy"))
    assert found.of(Signal.TTFT_COUNT, ("job-0", "busy")) == Value(100.0)


def test_an_engine_that_restarts_begins_at_zero(prometheus: Prometheus, vllm: FakeVLLM) -> None:
    vllm.engines[GONE].serve(1000)
    login = Login(url=prometheus.url)

    def seen() -> bool:
        return read(login, GONE).of(Signal.TTFT_COUNT, GONE) == Value(1000.0)

    wait_until(seen, "the requests")
    before = read_scraped(login, GONE).of(Signal.STARTED, GONE)
    vllm.engines[GONE].restart()
    vllm.engines[GONE].started += 100
    wait_until(lambda: read(login, GONE).of(Signal.TTFT_COUNT, GONE) is ZERO, "the restart")
    after = read_scraped(login, GONE).of(Signal.STARTED, GONE)
    assert isinstance(after, Value)
    assert after != before


@pytest.mark.parametrize("login", ["password", "tls"])
def test_logins(login: str, vllm: FakeVLLM, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    authority = Authority(tmp_path / "pki")
    server = authority.serving("server", ["localhost"], ["127.0.0.1"])
    client = authority.client("client", "operator")
    if login == "password":
        web: dict[str, Any] = {"basic_auth_users": {"me": BCRYPT}}
        right: dict[str, str] = {"username": "me", "password_file": str(secret)}
    else:
        web = {
            "tls_server_config": {
                "cert_file": str(server.certificate),
                "key_file": str(server.key),
                "client_auth_type": "RequireAndVerifyClientCert",
                "client_ca_file": str(authority.certificate),
            }
        }
        right = {
            "ca_file": str(authority.certificate),
            "client_certificate_file": str(client.certificate),
            "client_key_file": str(client.key),
        }
    with Prometheus(tmp_path / "prometheus", scrape(vllm), web_config=web) as running:
        wrong = read(Login(url=running.url), BUSY)
        assert wrong.failure
        assert wrong.of(Signal.TTFT_COUNT, BUSY) is not ZERO
        if login == "password":
            assert wrong.failure == "Prometheus answers with status 401: check the login"
        good = Login(url=running.url, **right)
        wait_until(lambda: read(good, BUSY).of(Signal.TTFT_COUNT, BUSY) == Value(100.0), "a scrape")
    assert read(good, BUSY).failure == "Prometheus cannot be reached"
    assert "hunter2" not in caplog.text + json.dumps(repr(good))

"""The ticker with a source that is told what to say: what it writes, what it leaves alone, and what it remembers."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from controller.fake_api import Fake
from shardwright.api.llmservice import ServiceKey
from shardwright.cluster.errors import Forbidden, Gone
from shardwright.controller.calibration import FAILS, LONGEST_WAIT_S, SILENT_S, Calibrator
from shardwright.controller.calibration_store import REST_S, CalibrationStore
from shardwright.controller.parts import clock
from shardwright.metrics.exposition import Exposition
from shardwright.planner.growth import COUNTERS
from shardwright.planner.signals import Readings, Signal, reading

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
KEY = ServiceKey(("team", "chat"))
EPOCH = 1_764_460_800.0
EVERY_S = 30.0


class Scripted:
    """A source: engines that answer as they are told, at the loop's time."""

    name = "Prometheus"

    def __init__(self):
        self.failure, self.silent, self.reads = "", False, 0
        self.ttft_s, self.kv_tokens, self.requests_per_s, self.within = 0.05, None, 1.0, 1.0

        self.task = None

    def start(self, fake):
        """In the test itself: the fixtures' loop runs by the real clock."""
        self.task = asyncio.create_task(fake.parts.calibrator.run())

    async def read(self, targets):
        self.reads += 1
        if self.failure or self.silent:
            return Readings(failure=self.failure)
        now = clock()
        requests = self.requests_per_s * now
        each = dict(
            zip(
                COUNTERS,
                (
                    requests * self.ttft_s,
                    requests,
                    requests * 0.01,
                    requests,
                    requests * 900,
                    requests * 200,
                    0.0,
                    requests * self.within,
                    requests,
                ),
                strict=True,
            )
        ) | {Signal.SAMPLED: EPOCH + now, Signal.STARTED: 1.0}
        if self.kv_tokens:
            each[Signal.KV_TOKENS] = self.kv_tokens
        pods = [target.pod for target in targets]
        return Readings(by_signal={signal: {pod: reading(v) for pod in pods} for signal, v in each.items()})

    async def close(self):
        pass


def rfc3339():
    return datetime.fromtimestamp(EPOCH + clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
async def source(fake):
    scripted = Scripted()
    parts = fake.parts
    parts.calibrator = Calibrator(
        store=parts.store,
        planning=parts.planning,
        queue=parts.queue,
        source=scripted,
        metrics=Exposition(),
        clock=clock,
        timestamp=rfc3339,
        interval_s=EVERY_S,
    )
    parts.reconciler.reporter.engine_metrics = parts.calibrator.facts_of
    yield scripted
    if scripted.task is not None:
        scripted.task.cancel()


async def serving(fake: Fake, source: Scripted):
    source.start(fake)
    fake.node("n1")
    fake.put("chat")
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(5)
    assert fake.condition("chat", "Ready")[0] == "True"


def figures(fake):
    return {f["name"]: f for f in fake.statuses["chat"].get("calibration", {}).get("figures", ())}


async def test_nothing_is_asked_while_nothing_runs(fake, source):
    source.start(fake)
    await asyncio.sleep(600)
    fake.node("n1")
    fake.put("chat")
    await asyncio.sleep(600)
    assert source.reads == 0
    assert "calibration" not in fake.statuses["chat"]


async def test_engines_are_read_when_no_service_waits_but_not_never(fake, source):
    await serving(fake, source)
    await asyncio.sleep(2 * EVERY_S)
    before = source.reads
    assert before
    queue = fake.parts.queue
    queue._processing.add(KEY)  # one that takes long
    await asyncio.sleep(EVERY_S + LONGEST_WAIT_S - 15)
    assert source.reads <= before + 1
    await asyncio.sleep(EVERY_S)
    assert source.reads > before
    queue.done(KEY)
    before = source.reads
    await asyncio.sleep(3 * EVERY_S)
    assert source.reads >= before + 2


async def test_what_is_measured_is_told_once(fake, source):
    await serving(fake, source)
    predicted = fake.statuses["chat"]["plan"]["kvTokens"]
    source.kv_tokens = predicted * 1.04
    await asyncio.sleep(3 * EVERY_S)
    assert figures(fake)["KVTokens"]["ratio"] == "1.04"
    assert figures(fake)["TTFT"]["samples"] >= 50
    before = fake.writes()
    await asyncio.sleep(4 * 3600)
    assert fake.writes() == before, "the same again is no news"


async def test_a_prediction_that_is_off_moves_nothing_but_the_status(fake, source):
    await serving(fake, source)
    source.ttft_s = 5.0
    children = [entry for entry in fake.log if entry.startswith(("apply", "delete"))]
    await asyncio.sleep(1200)
    assert fake.condition("chat", "Planned") == ("True", "PredictionOff")
    assert [entry for entry in fake.log if entry.startswith(("apply", "delete"))] == children
    assert fake.condition("chat", "Ready")[0] == "True"
    source.ttft_s = 0.05
    await asyncio.sleep(3600)
    told = figures(fake)["TTFT"]
    assert told["reason"] in {"AsPredicted", "BelowPrediction"}


async def test_a_source_that_fails_is_told_once_and_touches_nothing(fake, source):
    await serving(fake, source)
    source.kv_tokens = 100_000.0
    await asyncio.sleep(3 * EVERY_S)
    children = [entry for entry in fake.log if not entry.startswith("status")]
    writes = fake.log.count("status chat")
    for words in ("Prometheus cannot be reached", "Prometheus answers with status 503"):
        source.failure = words  # other words of the same outage are no news
        await asyncio.sleep(1000)
    assert fake.condition("chat", "SLOMet") == ("Unknown", "MetricsUnavailable")
    assert {f["reason"] for f in figures(fake).values()} == {"NotRead"}
    assert fake.log.count("status chat") == writes + 1
    assert not fake.parts.calibrator.up
    source.failure = ""
    await asyncio.sleep(1000)
    assert fake.condition("chat", "SLOMet") == ("Unknown", "NotMeasured")
    assert figures(fake)["KVTokens"]["ratio"]
    assert fake.log.count("status chat") <= writes + 3
    assert [entry for entry in fake.log if not entry.startswith("status")] == children


async def test_stated_targets_are_held_against_the_measured_percentiles(fake, source):
    source.start(fake)
    fake.node("n1")
    fake.put("chat", slo={"ttft": {"milliseconds": 1000, "percentile": 95}})
    await asyncio.sleep(5)
    fake.run_pods("n1")
    await asyncio.sleep(10 * EVERY_S)
    assert fake.condition("chat", "SLOMet") == ("True", "TargetsKept")
    assert "TTFT P95 1000 ms" in fake.message("chat", "SLOMet")
    assert "TPOT" not in fake.message("chat", "SLOMet"), "nobody stated it"
    before = fake.writes()
    await asyncio.sleep(3600)
    assert fake.writes() == before
    source.within = 0.5
    await asyncio.sleep(1200)
    assert fake.condition("chat", "SLOMet") == ("False", "TargetMissed")
    source.requests_per_s = 0.0
    await asyncio.sleep(3600)
    assert fake.condition("chat", "SLOMet") == ("False", "TargetMissed"), "a quiet hour is no verdict"


async def test_short_failures_are_no_news(fake, source):
    await serving(fake, source)
    source.kv_tokens = 100_000.0
    await asyncio.sleep(3 * EVERY_S)
    before = fake.writes()
    for _ in range(50):
        source.failure = "away"
        await asyncio.sleep((FAILS - 1) * EVERY_S)
        source.failure = ""
        await asyncio.sleep(EVERY_S)
    assert fake.writes() == before


async def test_a_prometheus_without_our_engines_is_told(fake, source):
    source.silent = True
    await serving(fake, source)
    await asyncio.sleep(SILENT_S / 2)
    assert fake.condition("chat", "SLOMet") == ("Unknown", "NotMeasured")
    await asyncio.sleep(SILENT_S)
    assert fake.condition("chat", "SLOMet") == ("Unknown", "EnginesNotScraped")


async def test_a_source_that_raises_is_asked_again(fake, source):
    await serving(fake, source)
    read = source.read

    async def broken(_):
        raise RuntimeError("a fault of ours")

    source.read = broken
    await asyncio.sleep(300)
    source.read = read
    source.kv_tokens = 100_000.0
    await asyncio.sleep(300)
    assert figures(fake)["KVTokens"]["ratio"]


async def test_what_a_status_says_stands_after_a_restart(fake, source):
    await serving(fake, source)
    source.kv_tokens = 100_000.0
    await asyncio.sleep(3 * EVERY_S)
    told, before = fake.statuses["chat"]["calibration"], fake.writes()
    fake.parts.calibrator._facts.clear()
    fake.parts.calibrator._samples.clear()
    fake.parts.reconciler.reporter.forget("uid-chat")
    fake.parts.queue.add(KEY)
    await asyncio.sleep(5)
    assert fake.writes() == before
    await asyncio.sleep(3 * EVERY_S)
    assert fake.statuses["chat"]["calibration"]["figures"] == told["figures"]
    assert fake.writes() == before


class Kept:
    """The API server as the store sees it: one ConfigMap."""

    def __init__(self, data=None):
        self.data, self.writes, self.error = data, 0, None

    async def get(self, _kind, namespace, name):
        assert (namespace, name) == ("ops", "calibration")
        if self.data is None:
            raise Gone("not there", status=404)
        return {"data": self.data}

    async def apply(self, obj):
        if self.error:
            raise self.error
        assert (obj["metadata"]["namespace"], obj["metadata"]["name"]) == ("ops", "calibration")
        self.data, self.writes = obj["data"], self.writes + 1


@pytest.fixture
def kept():
    return Kept()


def memory_of(kept):
    return CalibrationStore(kept, ("ops", "calibration"), clock)


async def test_what_was_measured_is_kept_and_read_back(fake, source, kept):
    memory = fake.parts.calibrator.memory = memory_of(kept)
    await memory.load()
    await serving(fake, source)
    source.ttft_s, source.kv_tokens = 5.0, fake.statuses["chat"]["plan"]["kvTokens"]
    await asyncio.sleep(2000)
    (text,) = kept.data.values()
    entry = json.loads(text)
    assert entry["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert entry["ttft"] == 2.0, "bounded"
    assert entry["memory"] == 1.0
    assert entry["requests"] > 50
    assert kept.writes <= 2
    again = memory_of(kept)
    await again.load()
    assert again.corrections == memory.corrections
    assert len(again.corrections) == 1


async def test_a_store_that_cannot_be_written_stops_nothing(fake, source, kept, caplog):
    kept.error = Forbidden("no", status=403)
    fake.parts.calibrator.memory = memory_of(kept)
    await serving(fake, source)
    source.kv_tokens = 100_000.0
    await asyncio.sleep(10 * REST_S)
    assert figures(fake)["KVTokens"]["ratio"]
    assert caplog.text.count("calibration not kept") == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"model":"m","gpu":"g","engine":"1","ttft":9}', '{"model":"m","ttft":"x"}']
)
async def test_entries_that_cannot_be_read_are_left_out(text):
    good = json.dumps({"model": "m", "gpu": "g", "engine": "1.2.3", "tpot": 1.1, "requests": 70})
    memory = memory_of(Kept({"a": text, "b": good}))
    await memory.load()
    assert list(memory.corrections) == [("m", "g", "1.2.3")]


async def test_only_the_next_plan_counts_with_what_was_measured(fake, source, kept):
    memory = fake.parts.calibrator.memory = memory_of(kept)
    fake.parts.planning.corrections = memory.corrections
    await serving(fake, source)
    source.ttft_s = 5.0
    await asyncio.sleep(2000)
    assert memory.corrections
    records = [name for kind, _, name in fake.objects if kind == "ControllerRevision"]
    fake.parts.dispatch.undecided.add(KEY)
    fake.parts.queue.add(KEY)
    await asyncio.sleep(5)
    assert [name for kind, _, name in fake.objects if kind == "ControllerRevision"] == records
    assert "what was measured of" not in fake.message("chat", "Planned")
    source.task.cancel()
    fake.put("chat", model={"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 4096})
    await asyncio.sleep(5)
    assert "Counts with what was measured of this model on this GPU: TTFT x2.00" in fake.message(
        "chat", "Planned"
    )

"""`--calibration FILE`: commands count with what the operator's store holds, and with nothing of it in silence."""

import json

import pytest
import yaml

from planner.plan_support import H100, LLAMA_8B
from shardwright.catalog.engines import DEFAULT_ENGINE_VERSION
from shardwright.cli.main import main
from shardwright.planner.corrections import entry_name, entry_text, read_entries
from shardwright.planner.types import Correction

SERVICE = {
    "apiVersion": "shardwright.dev/v1alpha1", "kind": "LLMService", "metadata": {"name": "chat", "namespace": "team-a"},
    "spec": {
        "model": {"id": LLAMA_8B}, "pool": {"maxGPUs": 8}, "workload": {"requestsPerMinute": 60},
        "slo": {"tpot": {"percentile": 95, "milliseconds": 11}},
    },
}  # fmt: skip
KEY = (LLAMA_8B, H100, DEFAULT_ENGINE_VERSION)
SLOW = Correction(tpot=1.5, requests=900)


def store(entries):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "shardwright-calibration"},
        "data": entries,
    }


def kept(key=KEY, correction=SLOW):
    return {entry_name(key): entry_text(key, correction)}


@pytest.fixture
def run(tmp_path, capsys):
    def asked(command, *, measured=None, service=SERVICE, options=()):
        (tmp_path / "svc.yaml").write_text(yaml.safe_dump(service))
        where = (
            ["/dev/null", str(tmp_path / "svc.yaml")]
            if command == "diff"
            else ["-f", str(tmp_path / "svc.yaml")]
        )
        args = [command, *where, "--gpu", "H100:8", "-o", "json", *options]
        if measured is not None:
            (tmp_path / "measured.yaml").write_text(
                measured if isinstance(measured, str) else yaml.safe_dump(measured)
            )
            args += ["--calibration", str(tmp_path / "measured.yaml")]
        code = main(args)
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if code < 2 else captured.err

    return asked


def summary(command, found):
    match command:
        case "plan":
            return found["plan"]["summary"]
        case "explain":
            return found["choice"]["summary"]
        case _:
            return found["services"][0]["after"]["summary"]


@pytest.mark.parametrize("command", ["plan", "explain", "diff"])
@pytest.mark.parametrize("listed", [False, True])
def test_what_was_measured_is_counted_with(run, command, listed):
    measured = store(kept())
    if listed:  # as kubectl gives several
        measured = {"apiVersion": "v1", "kind": "List", "items": [measured]}
    assert summary(command, run(command)[1]) == "H100 TP1 ×1"
    assert summary(command, run(command, measured=measured)[1]) == "H100 TP2 ×1"


def test_it_is_told(run):
    notes = run("explain", measured=store(kept()))[1]["notes"]
    assert any(
        "counts with what was measured of this model on this GPU: TPOT x1.50" in note for note in notes
    )


@pytest.mark.parametrize(
    "key",
    [
        ("another/model", H100, DEFAULT_ENGINE_VERSION),
        (LLAMA_8B, "NVIDIA-L40S", DEFAULT_ENGINE_VERSION),
        (LLAMA_8B, H100, "0.20.0"),
    ],
)
def test_what_was_measured_of_something_else_is_not(run, key):
    measured = run("explain", measured=store(kept(key)))[1]
    assert measured["choice"] == run("explain")[1]["choice"]


@pytest.mark.parametrize(
    ("measured", "sentence"),
    [
        ({"kind": "List", "items": []}, "holds 0 ConfigMaps: give one"),
        ({"kind": "List", "items": [store({}), store({})]}, "holds 2 ConfigMaps: give one"),
        (store({"a": "not JSON"}), "key a: JSONDecodeError"),
        (store({"a": "[]"}), "key a: TypeError"),
        (store({"a": "{}"}), "key a: KeyError"),
        (store({"a": 5}), "key a: TypeError: it is no text"),
        (store({"a": json.dumps({"model": "m", "gpu": "g", "engine": "1", "ttft": 9})}), "a ratio is outside 0.5 to 2.0"),
        (store({"a": '{"model": "m", "gpu": "g", "engine": "1", "tpot": NaN}'}), "a ratio is outside 0.5 to 2.0"),
        (
            store({"a": '{"model": "m", "gpu": "g", "engine": "1", "constants": 999}'}),
            "of version 999 of the latency model's constants",
        ),
        (store({"a": '{"model": "m", "gpu": "g", "engine": "1", "requests": 1e999}'}), "key a: OverflowError"),
        ("]", "is not YAML"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_its_key(run, measured, sentence):
    for command in ("plan", "explain", "diff"):
        code, complaint = run(command, measured=measured)
        assert code == 2
        assert sentence in complaint


def test_an_empty_store_is_one(run):
    assert run("plan", measured=store({}))[0] == 0


def test_an_entry_is_read_back_as_it_was_written():
    found, refused = read_entries(kept(correction=Correction(ttft=0.5, memory=2.0, requests=7)))
    assert found == {KEY: Correction(ttft=0.5, memory=2.0, requests=7)}
    assert refused == []

"""`shardwright trace` prints what `shardwright simulate` reads, from a log or from answers of Prometheus."""

import gzip
import json

import pytest

from cli.test_exit_codes import REPLICA
from shardwright.cli.main import main

LOG = [
    {"ts": 1_772_359_200 + n, "model": "chat", "usage": {"prompt_tokens": 900, "completion_tokens": 40}}
    for n in range(1200)
]


def answer(*series):
    result = [{"metric": {}, "values": [[at, str(value)] for at, value in one]} for one in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


@pytest.fixture
def trace(tmp_path, capsys):
    def call(*words, code=0, **files):
        for name, content in files.items():
            (tmp_path / name).write_text(content)
        words = [str(tmp_path / word) if word in files else word for word in words]
        assert main(["trace", *words]) == code
        told = capsys.readouterr()
        return told.out if code == 0 else told.err

    return call


def test_a_log_becomes_a_trace_that_simulate_replays_to_the_same_figures_as_the_log(trace, tmp_path, capsys):
    printed = trace("log", log="\n".join(map(json.dumps, LOG)))
    assert printed.splitlines()[:2] == ["arrival_s,input_tokens,output_tokens", "0.000,900,40"]
    (tmp_path / "trace.csv").write_text(printed)
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, LOG)).encode()))
    (tmp_path / "replica.json").write_text(json.dumps(REPLICA))
    figures = []
    for name in ("trace.csv", "log.jsonl.gz"):
        words = ["--trace", str(tmp_path / name), "--replica-model", str(tmp_path / "replica.json")]
        assert main(["simulate", *words, "--ttft-ms=2000", "--tpot-ms=150", "-o", "json"]) == 0
        figures.append(json.loads(capsys.readouterr().out))
    assert figures[0] == figures[1]


def test_requests_without_an_answer_are_left_out_and_counted(trace, tmp_path, capsys):
    (tmp_path / "log").write_text(
        '{"ts": 1, "prompt_tokens": 5, "completion_tokens": 0}\n\n' + json.dumps(LOG[0])
    )
    assert main(["trace", str(tmp_path / "log")]) == 0
    told = capsys.readouterr()
    assert told.out.count("\n") == 2
    assert "left out 1 " in told.err


def test_answers_of_prometheus_become_requests_of_their_mean_lengths(trace):
    words = ["--requests", "r", "--input-tokens", "i", "--output-tokens", "o"]
    printed = trace(
        *words,
        r=answer([(60, 2), (120, 1)], [(60, 2), (120, "NaN")]),
        i=answer([(60, 4000), (120, 500)]),
        o=answer([(60, 400), (120, 50)]),
    )
    rows = [line.split(",")[1:] for line in printed.splitlines()[1:]]
    assert rows == [["1000", "100"]] * 4 + [["500", "50"]]


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"r": "{", "i": answer(), "o": answer()}, "is not JSON"),
        ({"r": '{"status": "error"}', "i": answer(), "o": answer()}, "range query"),
        ({"r": "[]", "i": answer(), "o": answer()}, "range query"),
        ({"r": answer(), "i": answer([(60, 1)]), "o": answer([(60, 1)])}, "has no values"),
        ({"r": answer([(60, 1)]), "i": answer([(70, 1)]), "o": answer([(60, 1)])}, "same times"),
        (
            {"r": answer([(60, 1), (75, 1)]), "i": answer([(60, 1)]), "o": answer([(60, 1)])},
            "--window-seconds",
        ),
        ({"r": answer([(60, 1e12)]), "i": answer([(60, 1e12)]), "o": answer([(60, 1e12)])}, "shorter time"),
    ],
)
def test_answers_that_cannot_be_used_are_refused_by_name(trace, files, named):
    assert named in trace("--requests", "r", "--input-tokens", "i", "--output-tokens", "o", code=2, **files)


@pytest.mark.parametrize(
    "words", [[], ["log", "--requests", "log"], ["--requests", "log"], ["log", "--window-seconds=0"]]
)
def test_options_that_do_not_go_together_are_refused(trace, words):
    trace(*words, code=2, log=json.dumps(LOG[0]))

"""Any value in any place of a trace, a log, an answer of Prometheus or a replica model: figures, or one sentence that names the file."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.test_any_input import FUZZ, ODD, changed, mutants, places, sweep, written
from cli.test_exit_codes import REPLICA
from cli.test_trace import answer
from shardwright.cli.main import main

LINE = {"time": 1.5, "prompt_tokens": 900, "usage": {"completion_tokens": 40}}
ANSWER = json.loads(answer([(60, 2), (120, 1)], [(60, 2)]))
ROWS = [["arrival_s", "input_tokens", "output_tokens"], ["1", "900", "40"], ["700.5", "900", "40"]]
TARGETS = ["--ttft-ms=2000", "--tpot-ms=150"]


@pytest.fixture
def run(capsys):
    def call(*words, named):
        code = main(list(words))
        told = capsys.readouterr()
        assert code in {0, 2}
        if code == 2:
            assert told.out == ""
            assert str(named) in told.err
            assert told.err.count("\n") == 1
            assert len(told.err) < 20_000
        return code

    return call


def lined(tmp_path, *lines):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


def simulated(run, trace, model=REPLICA, named=None):
    model = written(model)
    return run("simulate", "--trace", trace, "--replica-model", model, *TARGETS, named=named or trace)


def test_each_place_of_a_line_of_a_log(run, tmp_path):
    assert simulated(run, lined(tmp_path, LINE)) == 0
    for line in [*sweep(LINE), *(changed(LINE, place, 10**400, "replace") for place in places(LINE))]:
        simulated(run, lined(tmp_path, line, LINE))


def test_each_place_of_a_replica_model(run):
    trace = written("\n".join(map(",".join, ROWS)).encode())
    assert simulated(run, trace) == 0
    for key in REPLICA:
        for odd in (None, True, "36", -1, [], float("nan"), float("inf"), 10**10, 10**400, "1" * 5000):
            path = written({**REPLICA, key: odd})
            assert run("simulate", "--trace", trace, "--replica-model", path, *TARGETS, named=path) == 2
    digits = written(json.dumps(REPLICA).replace("36", "1" * 5000).encode())
    assert run("simulate", "--trace", trace, "--replica-model", digits, *TARGETS, named=digits) == 2


def test_each_place_of_an_answer_of_prometheus(run):
    whole = written(ANSWER)
    for odd in [*sweep(ANSWER), *(changed(ANSWER, place, 10**400, "replace") for place in places(ANSWER))]:
        path = written(odd)
        run("trace", "--requests", path, "--input-tokens", whole, "--output-tokens", whole, named=path)
        run("trace", "--requests", whole, "--input-tokens", path, "--output-tokens", path, named=path)


@pytest.mark.parametrize("cell", ["", "nan", "-1", "1e400", "1e9", "x", "\0", '"', "1" * 5000, "1" * 200_000])
@pytest.mark.parametrize("place", [(row, column) for row in range(3) for column in range(3)])
def test_each_cell_of_a_table(run, cell, place):
    rows = [list(row) for row in ROWS]
    rows[place[0]][place[1]] = cell
    assert simulated(run, written("\n".join(map(",".join, rows)).encode())) == 2


def test_times_of_two_units_are_refused_and_not_replayed_for_hours(run, tmp_path):
    path = lined(tmp_path, {**LINE, "time": 1_700_000_000}, {**LINE, "time": 1})
    assert simulated(run, path) == 2
    assert run("trace", path, named="all of one unit") == 2
    table = written(b"arrival_s,input_tokens,output_tokens\n1700000000,9,9\n")
    assert simulated(run, table, named="all of one unit") == 2


def test_a_line_may_hold_what_ends_lines_elsewhere(run, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"prompt": "\u2028", "time": 1, "prompt_tokens": 9, "completion_tokens": 9}\n', "utf-8")
    assert simulated(run, str(path)) == 0


@FUZZ
@given(mutants(LINE) | ODD)
def test_any_value_in_a_line_of_a_log(line):
    assert main(["trace", written(line)]) in {0, 2}


@FUZZ
@given(mutants(ANSWER) | ODD, st.booleans())
def test_any_value_in_an_answer_of_prometheus(odd, first):
    files = (written(odd), written(ANSWER)) if first else (written(ANSWER), written(odd))
    words = ["--requests", files[0], "--input-tokens", files[1], "--output-tokens", files[1]]
    assert main(["trace", *words]) in {0, 2}


@pytest.mark.parametrize(
    "option",
    [
        "--ttft-ms=0", "--tpot-ms=0", "--ttft-ms=nan", "--percentile=0", "--unscored-seconds=-1",
        "--unscored-seconds=nan", "--policy=wva:3",
    ],
)  # fmt: skip
def test_a_number_that_no_option_takes_is_refused_and_not_replaced(run, option):
    trace = written("\n".join(map(",".join, ROWS)).encode())
    words = ["--trace", trace, "--replica-model", written(REPLICA), *TARGETS, option]
    named = option.split("=")[0] if "percentile" not in option else "percentile"
    assert run("simulate", *words, named=named) == 2


def test_a_trace_that_is_no_longer_than_what_is_left_out_is_judged_whole(capsys):
    trace = written(b"arrival_s,input_tokens,output_tokens\n1,9,9\n500,9,90\n")
    words = ["simulate", "--trace", trace, "--replica-model", written(REPLICA), *TARGETS, "-o", "json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["gpuHours"] > 0, "hours count from where judging begins"

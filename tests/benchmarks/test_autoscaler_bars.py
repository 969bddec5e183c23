"""The autoscaler keeps its bars on the chat trace and two hours of the mixed day; the whole is `make bench-autoscaler`."""

import json
from pathlib import Path

import pytest
from autoscaler_picture import picture
from bench_autoscaler import CASES, QUICK, RESULTS, case_rows, failures, infeasible_rows, markdown

from shardwright.autoscaler.replay.fleet import Snapshot
from shardwright.autoscaler.replay.rivals import hpa_in_flight, keda_waiting


def test_the_bars_hold_on_what_ci_replays():
    rows = [one for case in QUICK for one in case_rows(case, quick=True, alone=True)]
    assert failures([*rows, *infeasible_rows()], QUICK) == []


def test_the_committed_results_keep_the_bars():
    rows = json.loads(RESULTS.read_text())["rows"]
    assert failures(rows, CASES) == []


@pytest.mark.parametrize("figures", [{"gpuHours": 8.9}, {"attainment": 0.98}])
def test_a_clairvoyant_that_is_worse_than_the_reference_s_misses_a_bar(figures):
    rows = json.loads(RESULTS.read_text())["rows"]
    worse = [one | figures if (one["trace"], one["rule"]) == ("conv", "clairvoyant") else one for one in rows]
    [missed] = failures(worse, CASES)
    assert missed.startswith("conv: the clairvoyant's")


def test_the_documents_show_the_committed_results():
    rows = json.loads(RESULTS.read_text())["rows"]
    docs = Path(__file__).parents[2] / "docs"
    assert markdown(rows) in (docs / "autoscaling.md").read_text()
    assert picture(rows) == (docs / "images/autoscaling.svg").read_text()


def test_rivals_follow_their_formulas():
    seen = Snapshot(
        now_s=15, interval_s=15, ready=4, starting=0, draining=0, running=40, waiting=12, in_flight=52,
        kv_shares=(0.2,) * 4, queues=(3,) * 4, arrived=0, first=0, late=0, long=0, finished=0, slow=0, input_tokens=0,
        output_tokens=0, tokens=0, token_s=0.0,
    )  # fmt: skip
    assert hpa_in_flight(8).decide(seen) == 7
    assert hpa_in_flight(1).decide(seen) == 8, "at most double, or four more"
    assert hpa_in_flight(12.5).decide(seen) == 4, "within the tolerance"
    assert keda_waiting(5).decide(seen) == 4, "the size found is the first recommendation of the window"

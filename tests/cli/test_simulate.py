"""`shardwright simulate` gives the figures of the replay, and takes targets and bounds from service or options."""

import gzip
import json
import re

import pytest
import yaml

from cli.test_diff import service
from cli.test_exit_codes import REPLICA
from shardwright.cli.main import main

KEYS = {"attainment", "gpuHours", "p95TtftMs", "reversals", "resizes", "cutRequests"}


@pytest.fixture
def simulate(tmp_path, capsys):
    rows = "".join(f"{n / 4},900,120\n" for n in range(7200))
    (tmp_path / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    (tmp_path / "trace.csv.gz").write_bytes(gzip.compress((tmp_path / "trace.csv").read_bytes()))
    (tmp_path / "replica.json").write_text(json.dumps(REPLICA))
    (tmp_path / "svc.yaml").write_text(yaml.safe_dump(service(scaling={"minReplicas": 3, "maxReplicas": 3})))

    def call(*words, trace="trace.csv"):
        words = [str(tmp_path / word) if word == "svc.yaml" else word for word in words]
        files = ["--trace", str(tmp_path / trace), "--replica-model", str(tmp_path / "replica.json")]
        code = main(["simulate", *files, *words, "-o", "json"])
        told = capsys.readouterr()
        assert code == 0, told.err
        return json.loads(told.out)

    return call


def test_it_prints_the_figures_and_the_same_ones_again(simulate):
    targets = ["--ttft-ms=2000", "--tpot-ms=150"]
    figures = simulate(*targets)
    assert set(figures) == KEYS
    assert figures["attainment"] > 0.95
    assert simulate(*targets, trace="trace.csv.gz") == figures


def test_bounds_and_targets_come_from_the_service_unless_options_say_otherwise(simulate):
    hours = (7199 / 4 - 600) / 3600
    assert simulate("-f", "svc.yaml")["gpuHours"] == pytest.approx(3 * hours, abs=0.01)
    assert simulate("-f", "svc.yaml")["resizes"] == 0
    wider = simulate("-f", "svc.yaml", "--min-replicas=5", "--max-replicas=5", "--gpus-per-replica=1")
    assert wider["gpuHours"] == pytest.approx(5 * hours, abs=0.01)


@pytest.mark.parametrize(
    "policy",
    [
        "fixed:4",
        "hpa-in-flight:30",
        "hpa-kv",
        "keda-waiting",
        "llm-d",
        "knative",
        "wva",
        "ray:20",
        "dynamo:0.5",
        "clairvoyant:0.9",
    ],
)
def test_every_rival_can_be_named(simulate, policy):
    assert set(simulate("--ttft-ms=2000", "--tpot-ms=150", "--policy", policy)) == KEYS


def test_copies_make_the_load_larger(simulate):
    targets = ["--ttft-ms=2000", "--tpot-ms=150"]
    assert simulate(*targets, "--trace-scale=3")["gpuHours"] > 1.8 * simulate(*targets)["gpuHours"]


def test_several_rules_are_compared_in_the_order_in_which_they_are_named(simulate):
    rules = ["fixed:4", "hpa-kv", "fixed:4"]
    rows = simulate("--ttft-ms=2000", "--tpot-ms=150", *(f"--policy={rule}" for rule in rules))
    assert [row.pop("policy") for row in rows] == ["fixed:4", "hpa-kv"]
    assert rows[0] == simulate("--ttft-ms=2000", "--tpot-ms=150", "--policy=fixed:4")


def test_the_clairvoyant_attains_its_share_for_no_more_hours_than_the_rule_that_does(simulate):
    targets = ["--ttft-ms=2000", "--tpot-ms=150"]
    own = simulate(*targets)
    best = simulate(*targets, f"--policy=clairvoyant:{own['attainment'] - 0.01:.4f}")
    assert best["attainment"] >= own["attainment"] - 0.01
    assert best["gpuHours"] <= own["gpuHours"]


def test_the_page_has_the_figures_that_are_printed(simulate, tmp_path):
    page = tmp_path / "page.html"
    rows = simulate(
        "--ttft-ms=2000", "--tpot-ms=150", "--policy=shardwright", "--policy=hpa-kv", "--html", str(page)
    )
    text = page.read_text()
    data = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)[1])
    assert [{key: run[key] for key in row} for run, row in zip(data["runs"], rows, strict=True)] == rows
    assert sum(data["requestsPerSecond"]) * data["slotSeconds"] == pytest.approx(7200, abs=1)
    assert all(run["sizes"][0][0] == 0 for run in data["runs"])
    for path, shown in re.findall(r'data-path="([^"]+)">([^<]*)<', text):
        found = data
        for part in path.strip("/").split("/"):
            found = found[int(part)] if isinstance(found, list) else found[part]
        assert shown == str(found), path


def test_the_replica_is_the_plan_s_without_a_model(tmp_path, capsys, simulate):
    words = [
        "simulate",
        "-f",
        str(tmp_path / "svc.yaml"),
        "--trace",
        str(tmp_path / "trace.csv"),
        "-o",
        "json",
    ]
    assert main([*words, "--gpu", "H100:8"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) == KEYS
    assert figures["attainment"] > 0.95
    hours = (7199 / 4 - 600) / 3600
    assert figures["gpuHours"] == pytest.approx(3 * hours, abs=0.01)
    assert main(words) == 2
    assert "which GPUs?" in capsys.readouterr().err
    assert main([*words[:1], *words[3:]]) == 2
    assert "--replica-model: is needed without -f" in capsys.readouterr().err
    assert main([*words, "--gpu", "T4:1"]) == 2
    assert "there is no plan to take a replica from" in capsys.readouterr().err


def test_schedules_are_not_replayed_and_that_is_told(tmp_path, capsys, simulate):
    assert simulate
    clocked = service(scaling={"maxReplicas": 4, "schedules": [{"cron": "0 8 * * *", "minReplicas": 3}]})
    (tmp_path / "svc.yaml").write_text(yaml.safe_dump(clocked))
    files = ["--trace", str(tmp_path / "trace.csv"), "--replica-model", str(tmp_path / "replica.json")]
    assert main(["simulate", "-f", str(tmp_path / "svc.yaml"), *files]) == 0
    assert "spec.scaling.schedules: not replayed" in capsys.readouterr().err


def test_a_service_that_goes_to_zero_is_refused(tmp_path, capsys, simulate):
    assert simulate
    sleepy = service(scaling={"scaleToZero": {"idleSeconds": 600}}, routing={"type": "Router"})
    (tmp_path / "svc.yaml").write_text(yaml.safe_dump(sleepy))
    files = ["--trace", str(tmp_path / "trace.csv"), "--replica-model", str(tmp_path / "replica.json")]
    assert main(["simulate", "-f", str(tmp_path / "svc.yaml"), *files]) == 2
    assert "spec.scaling.scaleToZero: a replay keeps at least one replica" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "words", "told"),
    [
        ("0,1,99999999999", [], "line 2: times start at 0, and lengths are from 1 to 100000000 tokens"),
        ("nan,1,1", [], "line 2: times start at 0"),
        ("5,1,1", ["--unscored-seconds=6"], "--unscored-seconds: must be from 0 to 5"),
        ("5,1,1", ["--unscored-seconds=-1"], "--unscored-seconds: must be from 0 to 5"),
    ],
)
def test_a_trace_of_which_nothing_is_judged_is_refused(tmp_path, capsys, row, words, told):
    (tmp_path / "trace.csv").write_text(f"arrival_s,input_tokens,output_tokens\n{row}\n")
    (tmp_path / "replica.json").write_text(json.dumps(REPLICA))
    files = ["--trace", str(tmp_path / "trace.csv"), "--replica-model", str(tmp_path / "replica.json")]
    assert main(["simulate", *files, "--ttft-ms=2000", "--tpot-ms=150", *words]) == 2
    assert told in capsys.readouterr().err

"""`shardwright explain`: a file, a live object, three outputs of one document."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cli.test_plan import LARGE
from planner.plan_support import H100, LLAMA_70B, explained, on_record, request, shapes
from shardwright.api.parse import parse_service
from shardwright.cli import explain
from shardwright.cli.main import main
from shardwright.cli.plan_input import InputError
from shardwright.planner.choice import plan
from shardwright.planner.explanation.recorded import recorded
from shardwright.planner.explanation.text import whole_text
from shardwright.planner.question import count
from shardwright.planner.report import plan_status
from topology.cluster_objects import L40S, node, pod

BUSY = LARGE + "  workload: {requestsPerMinute: 360}\n  slo: {ttft: {percentile: 95, milliseconds: 1500}}\n"


@pytest.fixture
def files(tmp_path):
    def write(service=BUSY, nodes=None, pods=()):
        (tmp_path / "svc.yaml").write_text(service)
        args = ["explain", "-f", str(tmp_path / "svc.yaml")]
        if nodes is not None:
            (tmp_path / "nodes.yaml").write_text(yaml.safe_dump({"kind": "List", "items": [*nodes, *pods]}))
            args += ["--nodes", str(tmp_path / "nodes.yaml")]
        return args

    return write


def test_golden_text(files, capsys, snapshot):
    assert main([*files(), "--gpu", "H100:8x2", "--gpu", "L40S:4"]) == 0
    assert capsys.readouterr().out == snapshot


def test_golden_json(files, capsys, snapshot):
    assert main([*files(nodes=[node("n1")], pods=[pod("train", "n1", 3)]), "-o", "json"]) == 0
    assert capsys.readouterr().out == snapshot


def test_a_page_alone_prints_nothing_and_beside_json_holds_the_same(files, tmp_path, capsys):
    page = tmp_path / "chat.html"
    assert main([*files(), "--gpu", "H100:8", "--html", str(page)]) == 0
    assert capsys.readouterr().out == ""
    first = page.read_text()
    assert main([*files(), "--gpu", "H100:8", "--html", str(page), "-o", "json"]) == 0
    assert page.read_text() == first
    embedded = re.search(r'<script type="application/json" id="explanation">(.*?)</script>', first, re.DOTALL)
    assert json.loads(embedded.group(1)) == json.loads(capsys.readouterr().out)


def test_no_plan_exits_1_and_is_explained_in_all_forms(files, tmp_path, capsys):
    args = files(nodes=[node("n1", L40S, 1)])
    assert main(args) == 1
    assert "no plan, " in capsys.readouterr().out
    assert main([*args, "-o", "json", "--html", str(tmp_path / "x.html")]) == 1
    assert json.loads(capsys.readouterr().out)["planned"] is False
    assert "No plan" in (tmp_path / "x.html").read_text() or "no plan" in (tmp_path / "x.html").read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "which service? give the NAME"),
        (["chat", "-f", "x.yaml"], "which service? give the NAME"),
        (["chat", "--gpu", "H100:8"], "go with -f"),
        (["chat", "--calibration", "x.yaml"], "go with -f"),
        (["-f", "/does/not/exist", "--gpu", "H100:8"], "cannot read /does/not/exist"),
    ],
)
def test_bad_input_exits_2(options, sentence, capsys):
    assert main(["explain", *options]) == 2
    assert sentence in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_told(files, capsys):
    assert main([*files(), "--gpu", "H100:8", "--html", "/does/not/exist.html"]) == 2
    assert "--html: cannot write /does/not/exist.html: No such file" in capsys.readouterr().err


def test_a_cluster_that_cannot_be_reached_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["explain", "chat", "-n", "team-a"]) == 2
    assert "shardwright explain: team-a/chat: " in capsys.readouterr().err


def test_the_offline_path_loads_neither_kopf_nor_kubernetes(files, tmp_path):
    code = (
        "import sys; from shardwright.cli.main import main; code = main(sys.argv[1:]); "
        "heavy = {'kopf', 'kubernetes', 'aiohttp'} & set(sys.modules); assert not heavy, heavy; sys.exit(code)"
    )
    source = Path(__file__).parents[2] / "operator" / "src"
    done = subprocess.run(
        [sys.executable, "-c", code, *files(nodes=[node("n1")]), "--html", str(tmp_path / "x.html")],
        env={"PYTHONPATH": str(source)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def live(**status):
    """A service as the API server gives it, and the ControllerRevision of its plan."""
    raw = yaml.safe_load(BUSY)
    raw["metadata"] |= {
        "uid": "u",
        "generation": 1,
        "resourceVersion": "7",
        "managedFields": [{"manager": "kubectl"}],
    }
    spec = parse_service(raw).spec
    asked = request(
        LLAMA_70B,
        shapes((H100, 8)),
        workload={"requestsPerMinute": 360},
        slo={"ttft": {"percentile": 95, "milliseconds": 1500}},
    )
    decision = plan(asked)
    report = plan_status(decision, "0123abcd").model_dump(mode="json", by_alias=True, exclude_none=True)
    raw["status"] = {"observedGeneration": 1, "plan": report, "replicas": 1, "readyReplicas": 0} | status
    data = on_record(decision)
    revision = {"metadata": {"name": "chat-0123abcd"}, "data": json.loads(json.dumps(data))}
    return raw, revision, decision, spec


def condition(kind, status, reason, message):
    return {
        "type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip


def test_a_live_object_tells_what_is_recorded_and_how_it_is_now():
    told = condition("Available", "False", "Starting", "no replica serves yet")
    raw, revision, decision, _ = live(conditions=[told, condition("Accepted", "True", "Accepted", "fine")])
    found = explain.live_explanation(raw, revision)
    assert (found.source.type, found.source.revision) == ("Recorded", "0123abcd")
    assert found.choice.summary == decision.summary
    assert [c.message for c in found.candidates] == [c.message for c in decision.candidates]
    assert found.notes[-2:] == (
        "now 0 of 1 replicas serve",
        "now Available is False, Starting: no replica serves yet",
    )
    assert found.curves is not None
    assert found.cost == ()


PROPOSED = {
    "revision": "89abcdef", "summary": "H100 TP8 ×1", "replicas": 1, "gpus": 8, "pricePerHour": "31.92",
    "changes": ["TP4→TP8", "+4 GPUs", "+$15.96/h", "pods restart"],
}  # fmt: skip


@pytest.mark.parametrize("runs", [True, False])
def test_a_proposal_that_waits_is_told_in_all_forms(runs, monkeypatch, capsys, tmp_path):
    waits = condition("Planned", "True", "WaitsForApproval", "Revision 89abcdef waits")
    raw, revision, _, _ = live(proposal=PROPOSED, conditions=[waits])
    if not runs:
        del raw["status"]["plan"]
    monkeypatch.setattr(explain, "read_service_and_revision", lambda *_: (raw, revision))
    page = tmp_path / "chat.html"
    assert main(["explain", "chat", "-n", "team-a", "-o", "json", "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)["proposal"]
    command = "shardwright approve chat -n team-a --revision 89abcdef"
    assert found == {**PROPOSED, "pricePerHour": 31.92, "reason": "WaitsForApproval", "approve": command}
    assert main(["explain", "chat", "-n", "team-a"]) == 0
    for told in (capsys.readouterr().out, page.read_text()):
        assert all(part in told for part in (command, "H100 TP8 ×1", "31.92", *PROPOSED["changes"]))


def test_nothing_proposed_is_not_told():
    raw, revision, _, _ = live()
    assert explain.live_explanation(raw, revision).proposal is None


def test_a_cheaper_mix_is_told_of_a_file_and_of_what_was_recorded():
    asked = request(
        "meta-llama/Llama-3.1-8B-Instruct", shapes(("NVIDIA-L40S", 4, 4), (H100, 8)),
        workload={"requestsPerMinute": 720},
        slo={name: {"percentile": 95, "milliseconds": ms} for name, ms in (("ttft", 1500), ("tpot", 60))},
    )  # fmt: skip
    decision = plan(asked)
    decided = explained(asked, decision)
    core = replace(decision, candidates=(), advice=())
    kept = recorded(decided.service, asked.spec, core, plan_status(decision, "0123abcd"), engine=asked.engine)
    assert decided.cheaper_mix.price_per_hour < decided.choice.price_per_hour
    for found in (decided, kept):
        assert found.cheaper_mix == decided.cheaper_mix
        assert found.advice == decided.advice
        told = whole_text(found)
        for part in found.cheaper_mix.parts:
            assert f"{part.traffic_percent:>3} % of the traffic" in told
            assert f"×{part.replicas}, {count(part.gpus, 'GPU')}, {part.price_per_hour:.2f}/h" in told


def test_a_live_refusal_is_told():
    refused = condition("Planned", "False", "DoesNotFit", "closest is TP8: it is 3.0 GiB short.")
    raw, _, _, _ = live(plan=None, conditions=[refused])
    found = explain.live_explanation(raw, None)
    assert (found.planned, found.reason, found.message) == (
        False,
        "DoesNotFit",
        "closest is TP8: it is 3.0 GiB short",
    )


def test_a_live_object_that_nobody_has_planned_or_that_cannot_be_read_is_told():
    raw, revision, _, _ = live()
    with pytest.raises(InputError, match="has no plan yet"):
        explain.live_explanation({**raw, "status": {}}, None)
    del revision["data"]["plan"]
    with pytest.raises(InputError, match=r"ControllerRevision chat-0123abcd: data\.plan is missing"):
        explain.live_explanation(raw, revision)


def test_what_kubectl_prints_of_a_live_object_is_input_for_a_new_decision(tmp_path, capsys):
    raw, _, decision, _ = live()
    (tmp_path / "live.yaml").write_text(yaml.safe_dump(raw))
    assert main(["explain", "-f", str(tmp_path / "live.yaml"), "--gpu", "H100:8"]) == 0
    assert decision.summary in capsys.readouterr().out


def test_every_model_of_the_examples_is_explained(tmp_path, capsys):
    for example in sorted((Path(__file__).parents[2] / "examples").glob("*.yaml")):
        page = tmp_path / f"{example.stem}.html"
        assert main(
            [
                "explain",
                "-f",
                str(example),
                "--gpu",
                "H100:8",
                "--gpu",
                "NVIDIA-RTX-A6000:4",
                "--html",
                str(page),
            ]
        ) in {0, 1}
        assert page.stat().st_size > 20_000

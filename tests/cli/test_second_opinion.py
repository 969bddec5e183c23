"""The second opinion: what is asked, and what happens when its process does not do what it should."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from shardwright.catalog.engines import engine_class
from shardwright.catalog.gpus import load_products
from shardwright.catalog.models import load_models
from shardwright.cli import second_opinion
from shardwright.cli.main import main
from shardwright.cli.second_opinion import NoOpinionError, SecondOpinion, hf_config, question
from shardwright.planner.performance.types import PerformanceRequest
from shardwright.planner.types import Parallelism

ROOT = Path(__file__).resolve().parents[2]
REAL = ROOT / ".venv-aic" / "bin" / "python"
ESTIMATE = (
    "estimate", "--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--tp", "2", "--max-model-len", "16384",
    "--input-tokens", "1024", "--output-tokens", "128", "--concurrency", "16", "-o", "json",
)  # fmt: skip


def ask(model="Qwen/Qwen3-32B", gpu="H100", tp=2, **more):
    return PerformanceRequest(
        architecture=load_models()[model],
        gpu=load_products()[gpu],
        engine=engine_class(),
        parallelism=Parallelism(tensor=tp),
        input_tokens=1024,
        output_tokens=128,
        **({"concurrency": 16} | more),
    )


@pytest.fixture
def fake_python(tmp_path):
    """A fake interpreter: whatever it is told to run, it runs these lines of Python instead."""

    def make(body):
        path = tmp_path / "fake-python"
        path.write_text(f"#!{sys.executable}\nimport json, sys\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_each_question_gets_its_own_answer(fake_python):
    python = fake_python(
        "for line in sys.stdin: print(json.dumps({'tpotMs': json.loads(line)['batch']}), flush=True)"
    )
    with SecondOpinion(python) as other:
        assert [other.tpot_ms(ask(), running) for running in (3, 7.6, 0.2)] == [3, 8, 1]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("print(json.dumps({'reason': 'no such table'}))", "no such table"),
        ("print('{')", "its process failed"),
        ("print('[]')", "its process failed"),
        ("print(json.dumps({'tpotMs': 'fast'}))", "its process failed"),
        ("print(json.dumps({'tpotMs': 0}))", "it answered 0 ms"),
        ("print(json.dumps({'tpotMs': float('nan')}))", "it answered nan ms"),
        ("print(json.dumps({'tpotMs': float('inf')}))", "it answered inf ms"),
        ("raise SystemExit(3)", "it ended without an answer"),
    ],
)
def test_whatever_its_process_does_there_is_a_reason_and_no_opinion(fake_python, body, reason):
    with SecondOpinion(fake_python(body)) as other, pytest.raises(NoOpinionError, match=reason):
        other.tpot_ms(ask(), 16)


@pytest.mark.parametrize("said", ["", "x" * 10])
def test_half_an_answer_or_none_is_waited_for_so_long(fake_python, monkeypatch, said):
    monkeypatch.setattr(second_opinion, "ANSWER_S", 0.5)
    body = f"sys.stdout.write({said!r}); sys.stdout.flush(); sys.stdin.read()"
    with SecondOpinion(fake_python(body)) as other, pytest.raises(NoOpinionError, match=r"within 0\.5 s"):
        other.tpot_ms(ask(), 16)


def test_an_interpreter_that_is_not_there_is_told():
    with SecondOpinion("no/such/python") as other, pytest.raises(NoOpinionError, match="its process failed"):
        other.tpot_ms(ask(), 16)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"gpu": "A6000"}, "no vLLM tables for A6000"),
        ({"model": "google/gemma-3-27b-it"}, "is not put to it"),
        ({"shared_prefix_tokens": 10}, "shared prefixes"),
        ({"nvlink": False}, "over PCIe"),
    ],
)
def test_what_it_cannot_know_is_not_asked(more, reason):
    with pytest.raises(NoOpinionError, match=reason):
        question(ask(**more), 16)


def test_every_architecture_is_put_to_it_or_refused_with_a_reason():
    asked, reasons = 0, set()
    for model in load_models().values():
        try:
            assert hf_config(model)["num_hidden_layers"] == model.num_layers
            asked += 1
        except NoOpinionError as error:
            reasons.add(str(error))
    assert asked > 100
    assert all(reasons)


def test_the_estimate_has_its_figures_with_and_without_it(fake_python, capsys):
    assert main([*ESTIMATE]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert "secondOpinion" not in alone
    assert main([*ESTIMATE, "--second-opinion", fake_python("print(json.dumps({'tpotMs': 1000}))")]) == 0
    both = json.loads(capsys.readouterr().out)
    second = both.pop("secondOpinion")
    assert both == alone
    assert second["verdict"] == "Disagrees"
    assert second["tpotErrorBand"]["high"] == pytest.approx(1000 / alone["tpotMs"], rel=1e-3)
    assert main([*ESTIMATE, "--second-opinion", fake_python("raise SystemExit(1)")]) == 0
    silent = json.loads(capsys.readouterr().out)
    assert silent.pop("secondOpinion")["reason"]
    assert silent == alone


def test_the_lock_and_the_extra_name_the_same_version():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["aic"]
    assert extra == (ROOT / "requirements/aic.in").read_text().split()
    assert (ROOT / "requirements/aic.lock").read_text().startswith(extra[0])


def test_nothing_but_its_process_loads_the_library():
    code = (
        "import sys, shardwright.cli.main as m, shardwright.cli.second_opinion, shardwright.controller.app\n"
        "assert not any(name.startswith('aiconfigurator') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


@pytest.mark.skipif(not REAL.exists(), reason="make aic installs the real library (600 MB)")
def test_the_real_library_answers_and_agrees_on_a_plain_dense_model():
    with SecondOpinion(str(REAL)) as other:
        small, large = other.tpot_ms(ask(), 1), other.tpot_ms(ask(), 128)
        assert 5 < small < large < 100
        # Its answers are remembered by the load alone inside one of its backends: another model, another answer.
        assert other.tpot_ms(ask(model="Qwen/Qwen3-8B", tp=1), 16) != other.tpot_ms(ask(tp=1), 16)
        for model, gpu, tp in (
            ("openai/gpt-oss-120b", "H200", 1),
            ("nvidia/Llama-3.1-70B-Instruct-FP8", "H100", 2),
            ("Qwen/Qwen3-30B-A3B", "H100", 1),
            ("deepseek-ai/DeepSeek-V3", "H200", 8),
        ):
            assert 1 < other.tpot_ms(ask(model=model, gpu=gpu, tp=tp), 16) < 200


EXPLAIN = ("explain", "-f", str(ROOT / "examples/chat-8b.yaml"), "--gpu", "H100:8")


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("print(json.dumps({'tpotMs': 1000}))", "Disagrees"),
        ("print(json.dumps({'tpotMs': TPOT}))", "Agrees"),
        ("raise SystemExit(1)", None),
    ],
)
def test_an_explanation_tells_it_in_each_form_and_chooses_nothing_by_it(
    fake_python, capsys, tmp_path, body, verdict
):
    assert main([*EXPLAIN, "-o", "json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["prediction"].pop("secondOpinion") is None
    median = str(alone["prediction"]["tpot"]["medianMs"])
    page, asked = tmp_path / "page.html", ("--second-opinion", fake_python(body.replace("TPOT", median)))
    assert main([*EXPLAIN, *asked, "-o", "json", "--html", str(page)]) == 0
    both = json.loads(capsys.readouterr().out)
    second = both["prediction"].pop("secondOpinion")
    assert both == alone
    assert second["verdict"] == verdict
    assert second["said"] in page.read_text()
    if verdict == "Disagrees":
        assert second["tpotBandHigh"] == pytest.approx(second["tpotRatio"])
    assert main([*EXPLAIN, *asked]) == 0
    assert second["said"] in capsys.readouterr().out


def test_a_live_object_is_not_asked_about(capsys):
    assert main(["explain", "chat", "--second-opinion"]) == 2
    assert "--second-opinion go with -f" in capsys.readouterr().err

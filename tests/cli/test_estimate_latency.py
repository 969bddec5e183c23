"""`shardwright estimate` with a load: keys, terms, what has no figure and why, batches, bad input, text."""

import json
import re
import shlex
from dataclasses import replace
from math import isclose
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.catalog.engines import engine_class
from shardwright.catalog.gpus import load_products
from shardwright.catalog.models import load_models
from shardwright.cli import estimate, estimate_load, estimate_options
from shardwright.cli.estimate_latency import KEYS
from shardwright.cli.main import main
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.types import PerformanceRequest
from shardwright.planner.types import Parallelism

ROOT = Path(__file__).resolve().parents[2]
LLAMA = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "H100", "--max-model-len", "8192"]
LARGE = ["--model", "nvidia/Llama-3.3-70B-Instruct-FP8", "--max-model-len", "8192"]
LENGTHS = ["--input-tokens", "1024", "--output-tokens", "128"]
LOAD = [*LENGTHS, "--concurrency", "16"]
ADDED = {*KEYS, "latencyReason", "latencyNotes"}


def ask(capsys, *options):
    code = main(["estimate", *options])
    out = capsys.readouterr()
    return code, out.out, out.err


def strict(text):
    """JSON as everybody else reads it: no NaN, no Infinity."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def answer(capsys, *options):
    code, out, err = ask(capsys, *options, "-o", "json")
    assert out, err
    return code, strict(out)


def batch(capsys, tmp_path, lines, *options):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    code, out, _ = ask(capsys, "--batch", str(rows), *options)
    return code, [strict(line) for line in out.splitlines()]


def test_a_load_only_adds_keys(capsys):
    _, plain = answer(capsys, *LLAMA)
    code, loaded = answer(capsys, *LLAMA, *LOAD)
    assert code == 0
    assert not ADDED & plain.keys()
    assert loaded.keys() - plain.keys() == ADDED
    assert {key: loaded[key] for key in plain} == plain


def test_figures_are_the_models_at_the_memory_models_capacity(capsys):
    _, found = answer(
        capsys, *LARGE, "--gpu", "H100", "--tp", "2", "--input-tokens", "4096", "--output-tokens", "512",
        "--shared-prefix-tokens", "1000", "--rate", "1.5", "--kv-cache-dtype", "fp8", "--engine-version", "0.19.0",
        "--max-num-seqs", "64", "--max-num-batched-tokens", "4096",
    )  # fmt: skip
    expected = predict(
        PerformanceRequest(
            architecture=load_models()["nvidia/Llama-3.3-70B-Instruct-FP8"],
            gpu=load_products()["H100"],
            engine=engine_class("0.19.0"),
            parallelism=Parallelism(tensor=2),
            input_tokens=4096,
            output_tokens=512,
            shared_prefix_tokens=1000,
            rate_per_s=1.5,
            max_num_seqs=64,
            max_num_batched_tokens=4096,
            kv_capacity_tokens=found["kvTokens"],
            fp8_kv=True,
        )
    )
    assert found["ttftMs"] == pytest.approx(expected.ttft_ms, abs=1e-3)
    assert found["tpotMs"] == pytest.approx(expected.tpot_ms, abs=1e-3)
    assert found["outputTokensPerSecond"] == pytest.approx(1.5 * 512, rel=1e-5)
    assert found["requestsPerSecond"] == pytest.approx(1.5)
    assert found["running"] == pytest.approx(expected.running, abs=1e-3)
    assert found["utilisation"] == pytest.approx(expected.utilisation, abs=1e-3)
    assert found["saturated"] is False
    assert found["errorBand"] == {
        "low": expected.band.low,
        "high": expected.band.high,
        "covered": False,
        "phrase": expected.band.phrase,
        "gaps": list(expected.band.gaps),
    }
    assert len(expected.band.gaps) == 2  # FP8 cache, prefix hits


@pytest.mark.parametrize("load", [["--concurrency", "1"], ["--concurrency", "3000"], ["--rate", "3"]])
def test_terms_add_up_and_tails_are_marked(capsys, load):
    _, found = answer(capsys, *LLAMA, *LENGTHS, *load)
    assert sum(found["ttftTermsMs"].values()) == pytest.approx(found["ttftMs"], abs=0.001)
    assert sum(found["tpotTermsMs"].values()) == pytest.approx(found["tpotMs"], abs=0.001)
    assert found["ttftMs"] < found["ttftP95Ms"] < found["ttftP99Ms"]
    assert found["tpotMs"] < found["tpotP95Ms"] <= found["tpotP99Ms"]
    assert found["tailsValidated"] is False
    assert found["latencyReason"] is None


def test_a_saturated_rate_is_null_and_says_the_highest_one(capsys):
    code, found = answer(capsys, *LLAMA, *LENGTHS, "--rate", "500")
    assert code == 0
    assert (found["ttftMs"], found["ttftP95Ms"], found["ttftP99Ms"]) == (None, None, None)
    assert found["ttftTermsMs"]["slots"] is None
    assert found["ttftTermsMs"]["request"] > 0
    assert found["saturated"] is True
    assert found["tpotMs"] > 0
    sentence = " ".join(found["latencyNotes"])
    highest = re.search(r"at most ([\d.]+) requests/s .*KV cache", sentence).group(1)
    assert float(highest) == pytest.approx(found["requestsPerSecond"], rel=0.01)
    _, below = answer(capsys, *LLAMA, *LENGTHS, "--rate", highest)
    assert (below["saturated"], below["ttftMs"] > 0) == (False, True)
    _, few = answer(capsys, *LLAMA, *LENGTHS, "--rate", "500", "--max-num-seqs", "8")
    assert "max-num-seqs 8" in " ".join(few["latencyNotes"])
    assert few["running"] == 8


def test_more_in_flight_than_fit_wait_for_their_turn(capsys):
    _, found = answer(capsys, *LLAMA, *LENGTHS, "--concurrency", "3000")
    assert found["saturated"] is True
    assert found["ttftTermsMs"]["slots"] > 0
    assert "of 3000 requests run at once (the KV cache holds no more)" in found["latencyNotes"][0]


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (["--model", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "H100"], 1, "out of memory"),
        (["--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--max-model-len", "40960"], 1, "--max-model-len of at most"),
        (["--model", "Qwen/Qwen3-8B", "--gpu", "H100", "--max-model-len", "1100"], 0, "longer than --max-model-len"),
        (["--model", "Qwen/Qwen3.8-27B", "--gpu", "H200"], 3, "known by name only"),
        ([*LLAMA, "--engine-version", "nightly"], 3, "names no release"),
        (["--model", "MiniMaxAI/MiniMax-M2.5", "--gpu", "H200", "--tp", "8"], 3, "expected to refuse"),
    ],
)  # fmt: skip
def test_what_does_not_start_has_no_latency_and_says_why(capsys, options, code, reason):
    got, found = answer(capsys, *options, *LOAD)
    assert got == code
    assert {found[key] for key in KEYS} == {None}
    assert reason in found["latencyReason"]
    _, out, _ = ask(capsys, *options, *LOAD)
    assert reason in out


def test_a_cache_that_is_not_predicted_does_not_limit_and_is_said(capsys):
    options = ["--model", "nvidia/Nemotron-H-56B-Base-8K", "--gpu", "B200", *LENGTHS, "--concurrency", "900"]
    code, found = answer(capsys, *options)
    assert (code, found["verdict"], found["kvTokens"]) == (3, "Unknown", None)
    assert found["ttftMs"] > 0
    assert (found["running"], found["saturated"]) == (900, False)
    assert "KV cache is not predicted" in found["latencyNotes"][0]
    assert found["errorBand"]["covered"] is False
    assert "Note: The KV cache is not predicted" in ask(capsys, *options)[1]


def test_weights_of_an_unknown_format_have_no_time(capsys, tmp_path):
    path = tmp_path / "config.json"
    config = {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
        "quantization_config": {"quant_method": "made-up"},
    }  # fmt: skip
    path.write_text(json.dumps(config))
    options = ["--model", "me/mine", "--gpu", "H100", "--config", str(path), "--weight-bytes", "9000000000"]
    code, found = answer(capsys, *options, *LOAD)
    assert (code, found["ttftMs"]) == (0, None)
    assert "--quantization" in found["latencyReason"]


def test_a_missing_fact_of_the_card_is_a_reason(capsys, monkeypatch):
    bare = replace(load_products()["H100"], memory_gbytes_s=None)
    monkeypatch.setattr(estimate_options, "find_product", lambda _: bare)
    code, found = answer(capsys, *LLAMA, *LOAD)
    assert (code, found["verdict"], found["tpotMs"]) == (0, "Fits", None)
    assert "memory_gbytes_s of H100" in found["latencyReason"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--output-tokens", "128", "--concurrency", "1"], ["input_tokens", "missing", "output_tokens"]),
        (["--input-tokens", "128", "--concurrency", "1"], ["output_tokens", "missing"]),
        (["--concurrency", "1"], ["input_tokens", "missing", "concurrency"]),
        (["--interconnect", "pcie"], ["input_tokens", "missing", "interconnect"]),
        (LENGTHS, ["concurrency, rate", "exactly one"]),
        ([*LOAD, "--rate", "2"], ["concurrency, rate", "exactly one"]),
        ([*LENGTHS, "--rate", "0"], ["rate:", "0.0001"]),
        ([*LENGTHS, "--rate", "-1"], ["rate:", "number"]),
        ([*LENGTHS, "--rate", "nan"], ["rate:", "number"]),
        ([*LENGTHS, "--rate", "inf"], ["rate:", "number"]),
        ([*LENGTHS, "--rate", "fast"], ["rate:", "number", "fast"]),
        ([*LENGTHS, "--concurrency", "0.5"], ["concurrency:", "from 1"]),
        (["--input-tokens", "0", *LOAD[2:]], ["input_tokens:", "from 1"]),
        (["--input-tokens", "1e300", *LOAD[2:]], ["input_tokens:", "1,073,741,824"]),
        ([*LOAD, "--output-tokens", "-5"], ["output_tokens:", "from 1"]),
        ([*LOAD, "--shared-prefix-tokens", "1024"], ["shared_prefix_tokens:", "input_tokens (1024)"]),
        ([*LOAD, "--shared-prefix-tokens", "-1"], ["shared_prefix_tokens:", "from 0"]),
        ([*LOAD, "--interconnect", "carrier-pigeon"], ["interconnect:", "nvlink or pcie"]),
        ([*LOAD, "--gpu", "L40S", "--tp", "2", "--interconnect", "nvlink"], ["interconnect:", "no NVLink", "pcie"]),
        ([*LOAD, "--gpu", "A6000", "--tp", "4", "--interconnect", "nvlink"], ["interconnect:", "at most 2 GPUs"]),
    ],
)  # fmt: skip
def test_bad_loads_name_the_option_and_the_fix(capsys, options, words):
    code, out, err = ask(capsys, *LLAMA, *options)
    assert (code, out) == (2, "")
    assert all(word in err for word in words), err


def test_a_batch_takes_loads_from_lines_and_from_the_command_line(capsys, tmp_path):
    model = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100", "max_model_len": 8192}
    lines = [
        {**model, "id": "common"},
        {**model, "inputTokens": 1024, "output-tokens": 128, "request_rate": 2},
        {**model, "rate": 2, "concurrency": 3},
        {**model, "concurrency": -3},
        "not json",
        {**model, "gpu": "H1000"},
        {**model, "model": "meta-llama/Llama-3.3-70B-Instruct"},
        {**model, "id": "last"},
    ]
    code, found = batch(capsys, tmp_path, lines, *LOAD)
    assert code == 2
    assert [one.get("id") for one in found] == ["common", *[None] * 6, "last"]
    assert found[0] | {"id": 0, "line": 0} == found[7] | {"id": 0, "line": 0}
    assert found[0]["running"] == 16
    assert found[1]["requestsPerSecond"] == pytest.approx(2)
    assert ["error" in one for one in found] == [False, False, True, True, True, True, False, False]
    assert "concurrency, rate" in found[2]["error"]
    assert "concurrency" in found[3]["error"]
    for one in (found[2], found[3], found[5], found[6]):
        assert {one[key] for key in KEYS} == {None}
        assert one["latencyReason"]
    _, plain = batch(capsys, tmp_path, [model, {**model, "gpu": "H1000"}])
    assert not any(ADDED & one.keys() for one in plain)


@pytest.mark.parametrize(
    ("gpu", "tensor", "asked", "nvlink", "word"),
    [
        ("H100", 1, None, True, ""),
        ("H100", 8, None, True, ""),
        ("H100", 16, None, False, "between nodes"),
        ("H100", 2, "pcie", False, ""),
        ("L40S", 2, None, False, "PCIe"),
        ("L40S", 1, "nvlink", True, ""),
        ("A6000", 2, None, False, "--interconnect nvlink"),
        ("A6000", 2, "nvlink", True, ""),
        ("A6000", 4, None, False, "PCIe"),
        ("MI300X", 8, None, True, ""),
    ],
)
def test_the_wires_follow_the_product_and_the_arrangement(gpu, tensor, asked, nvlink, word):
    load = estimate_load.Load(input_tokens=1, output_tokens=1, concurrency=1, interconnect=asked)
    found, sentence = estimate_load.link(load, load_products()[gpu], Parallelism(tensor=tensor))
    assert found is nvlink
    assert (word in sentence) if word else not sentence


def test_wires_reach_the_figures(capsys):
    options = [*LARGE, "--gpu", "A100-80", "--tp", "2", *LOAD]
    _, fast = answer(capsys, *options)
    _, slow = answer(capsys, *options, "--interconnect", "pcie")
    assert slow["ttftTermsMs"]["communication"] > 2 * fast["ttftTermsMs"]["communication"]


def test_text_shows_figures_terms_and_how_sure(capsys, snapshot):
    code, out, _ = ask(capsys, *LARGE, "--gpu", "A6000", "--tp", "2", "--pp", "2", *LENGTHS, "--rate", "0.5")
    assert code == 0
    assert out.partition("\nLoad:")[2] == snapshot
    _, full, _ = ask(capsys, *LLAMA, *LENGTHS, "--rate", "500", "--enforce-eager")
    assert "Load: 500 requests/s, 1024 input + 128 output tokens: TTFT without end" in full
    assert "Note: Without CUDA graphs" in full
    assert "inf" not in full.replace("information", "")


def test_the_readme_shows_what_the_command_prints(capsys):
    text = (ROOT / "README.md").read_text()
    block = re.search(
        r"^\$ (shardwright estimate [^$]+?) \| grep (\S+)\n(.+?)```", text, re.DOTALL | re.MULTILINE
    )
    assert block, "README.md: the example of a latency"
    command, pattern, shown = block.groups()
    code, out, _ = ask(capsys, *shlex.split(command.replace("\\\n", " "))[2:])
    assert code == 0
    assert "".join(f"{line}\n" for line in out.splitlines() if re.search(pattern, line)) == shown, (
        "README.md: figures"
    )


NUMBER = st.none() | st.integers() | st.floats() | st.sampled_from(["nan", "-inf", "0", "1", "8k", "1e9", ""])


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*estimate_load.LOAD_OPTIONS, "tp", "pp", "max_num_seqs"]), NUMBER),
    st.sampled_from(["H100", "A6000", "L4", "MI300X", "T4"]),
)
def test_any_load_is_answered_or_refused_as_json(options, gpu):
    line = json.dumps({"model": "Qwen/Qwen3-8B", "gpu": gpu, "max_model_len": 8192, **options})
    code, found = estimate._answer(line, {}, None)
    text = json.dumps(found, allow_nan=False)
    assert ("error" in found) == (code == 2), text
    if found.get("ttftMs") is not None:
        assert isclose(sum(found["ttftTermsMs"].values()), found["ttftMs"], rel_tol=1e-6, abs_tol=0.001)
        assert found["requestsPerSecond"] > 0

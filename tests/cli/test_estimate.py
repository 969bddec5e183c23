"""`shardwright estimate`: keys, exit codes, batches, bad input, and no Kubernetes library loaded."""

import json
import os
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.catalog.errors import CatalogError
from shardwright.cli.estimate_options import from_mapping, question
from shardwright.cli.main import main
from shardwright.cli.option_values import OptionError, UnknownMemoryError
from shardwright.planner.memory import estimate

KEYS = {
    "weightsGiBPerGPU", "activationGiB", "nonTorchGiB", "cudaGraphGiB", "kvCacheGiBPerGPU", "kvTokens",
    "maxConcurrency", "marginGiB", "verdict", "coverage",
}  # fmt: skip
LLAMA = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "H100-80GB"]
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip


def ask(capsys, *options):
    code = main(["estimate", *options])
    out = capsys.readouterr()
    return code, out.out, out.err


def answer(capsys, *options):
    code, out, _ = ask(capsys, *options, "-o", "json")
    return code, json.loads(out)


def test_json_has_the_contract_keys(capsys):
    code, found = answer(
        capsys, *LLAMA, "--tp", "1", "--pp", "1", "--quantization", "None", "--kv-cache-dtype", "auto",
        "--gpu-memory-utilization", "0.95", "--max-model-len", "8192", "--max-num-seqs", "1024",
        "--max-num-batched-tokens", "8192", "--engine-version", "0.19.0",
    )  # fmt: skip
    assert code == 0
    assert set(found) >= KEYS
    assert found["verdict"] == "Fits"
    assert found["kvTokens"] == pytest.approx(476_016, rel=0.001)
    assert found["kvCacheGiBPerGPU"] == pytest.approx(58.11, abs=0.01)
    assert found["notes"] == []


def test_defaults_are_those_of_the_device_and_are_said(capsys):
    _, found = answer(capsys, *LLAMA, "--engine-version", "0.19.0")
    text = " ".join(found["notes"])
    assert all(
        part in text for part in ("max-num-seqs 1024", "max-num-batched-tokens 8192", "0.90", "131072")
    )
    _, small = answer(capsys, "--model", "Qwen/Qwen3-8B", "--gpu", "L40S")
    assert "max-num-seqs 256" in " ".join(small["notes"])
    assert "0.92" in " ".join(small["notes"])


def test_text_shows_the_bill(capsys):
    code, out, _ = ask(capsys, *LLAMA)
    assert code == 0
    assert all(word in out for word in ("It fits.", "Weights", "Activation peak", "KV cache", "Coverage:"))


@pytest.mark.parametrize(
    ("options", "code", "verdict"),
    [
        (["--model", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "H100"], 1, "OutOfMemory"),
        (["--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--max-model-len", "40960"], 1, "TooSmall"),
        (["--model", "nvidia/Nemotron-H-56B-Base-8K", "--gpu", "B200"], 3, "Unknown"),
        (["--model", "Qwen/Qwen3.8-27B", "--gpu", "H200"], 3, "Unknown"),
    ],
)
def test_exit_code_says_the_verdict(capsys, options, code, verdict):
    got, found = answer(capsys, *options)
    assert (got, found["verdict"]) == (code, verdict)
    assert set(found) >= KEYS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "meta-llama/Llama-3.1-8b", "--gpu", "H100"], ["model", "meta-llama/Llama-3.1-8B"]),
        (["--model", "Qwen/Qwen3-8B", "--gpu", "H1000"], ["gpu", "H100"]),
        (["--gpu", "H100"], ["model", "missing"]),
        ([*LLAMA, "--tp", "3"], ["tp", "attention heads"]),
        (["--model", "microsoft/phi-4", "--gpu", "H100", "--tp", "4"], ["tp", "10 KV heads"]),
        ([*LLAMA, "--tp", "two"], ["tp", "whole number"]),
        ([*LLAMA, "--pp", "64"], ["pp", "32 layers"]),
        ([*LLAMA, "--ep"], ["ep", "experts"]),
        ([*LLAMA, "--gpu-memory-utilization", "90"], ["gpu_memory_utilization", "0.9"]),
        ([*LLAMA, "--kv-cache-dtype", "int3"], ["kv_cache_dtype", "fp8"]),
        ([*LLAMA, "--quantization", "fp3"], ["quantization", "awq"]),
        ([*LLAMA, "--engine-version", "newest"], ["engine.version"]),
        (
            ["--model", "Qwen/Qwen3-32B-FP8", "--gpu", "H100", "--quantization", "awq"],
            ["quantization", "FP8"],
        ),
        (["--model", "a/b", "--gpu", "H100", "--config", "/nowhere/config.json"], ["config", "cannot read"]),
        (["--batch", "/nowhere/rows.jsonl"], ["batch"]),
    ],
)
def test_bad_input_names_the_option_and_the_fix(capsys, options, words):
    code, out, err = ask(capsys, *options)
    assert code == 2
    assert out == ""
    assert all(word in err for word in words), err


def test_config_of_a_model_outside_the_catalogue(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    _, own = answer(capsys, "--model", "me/mine", "--gpu", "H100", "--config", str(path))
    _, known = answer(capsys, *LLAMA)
    assert own["kvTokens"] == known["kvTokens"]
    path.write_text(json.dumps({**CONFIG, "num_attention_heads": 0}))
    code, _, err = ask(capsys, "--model", "me/mine", "--gpu", "H100", "--config", str(path))
    assert code == 2
    assert "num_attention_heads" in err
    path.write_text("{")
    code, _, err = ask(capsys, "--model", "me/mine", "--gpu", "H100", "--config", str(path))
    assert (code, "not JSON" in err) == (2, True)


def test_quantizing_a_16_bit_model_halves_its_linear_layers(capsys):
    _, plain = answer(capsys, *LLAMA)
    _, eight = answer(capsys, *LLAMA, "--quantization", "fp8")
    assert eight["weightsGiBPerGPU"] == pytest.approx(8.49, abs=0.02)
    assert plain["weightsGiBPerGPU"] == pytest.approx(14.99, abs=0.01)
    assert any("FP8" in note for note in eight["notes"])


def test_batch_answers_each_line_and_the_exit_code_tells(capsys, tmp_path):
    rows = tmp_path / "rows.jsonl"
    lines = [
        {"id": 1, "model": "Qwen/Qwen3-8B", "gpu": "H100", "max_model_len": 8192, "tp": "2"},
        {"model": "Qwen/Qwen3-8B", "gpu": "H100", "max-model-len": 8192, "tp": 2},
        {"model": "Qwen/Qwen3-8B", "gpu": "H100", "maxModelLen": 8192, "tensorParallelSize": 2},
        {"model": "Qwen/Qwen3-8B", "gpu": "H100", "max_modle_len": 8192},
    ]
    rows.write_text("\n".join(json.dumps(line) for line in lines) + "\n\nnot json\n[1]\n")
    code, out, _ = ask(capsys, "--batch", str(rows))
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 2
    assert len(answers) == 6
    assert [found.pop("line") for found in answers] == [1, 2, 3, 4, 6, 7], "line 5 is empty"
    assert answers[0].pop("id") == 1
    assert answers[0] == answers[1] == answers[2]
    assert set(answers[0]) >= KEYS
    assert all(set(found) >= {*KEYS, "error"} and found["verdict"] == "Unknown" for found in answers[3:])
    assert all(found["kvTokens"] is None and found["covered"] is False for found in answers[3:])
    assert "max_modle_len" in answers[3]["error"]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([("Qwen/Qwen3-8B", "H100")], 0),
        ([("Qwen/Qwen3-8B", "H100"), ("meta-llama/Llama-3.3-70B-Instruct", "L4")], 1),
        ([("meta-llama/Llama-3.3-70B-Instruct", "L4"), ("Qwen/Qwen3.8-27B", "H100")], 3),
        ([("Qwen/Qwen3.8-27B", "H100"), ("no/such", "H100")], 2),
    ],
)
def test_batch_exit_code_is_the_worst(capsys, tmp_path, lines, code):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"model": model, "gpu": gpu}) for model, gpu in lines))
    assert ask(capsys, "--batch", str(rows))[0] == code


def test_a_batch_line_overrides_the_command_line_under_any_spelling(capsys, tmp_path):
    rows = tmp_path / "rows.jsonl"
    lines = [
        {"model": "Qwen/Qwen3-14B", "gpu": "H100", "vllmVersion": "0.16.0", "max_model_len": float("nan")},
        {"model": "Qwen/Qwen3-14B", "gpu": "H100", "engine-version": None},
    ]
    rows.write_text("\n".join(json.dumps(line) for line in lines))
    _, out, _ = ask(capsys, "--batch", str(rows), "--engine-version", "0.18.0")
    old, new = (json.loads(line) for line in out.splitlines())
    assert old["activationGiB"] == pytest.approx(5.64, abs=0.02)
    assert new["activationGiB"] == pytest.approx(2.23, abs=0.02)


@pytest.mark.parametrize("version", ["nightly", "latest", "not stated (2026)"])
def test_a_version_without_a_number_is_unknown(capsys, version):
    code, found = answer(capsys, *LLAMA, "--engine-version", version)
    assert (code, found["verdict"]) == (3, "Unknown")
    assert "engine_version" in found["coverage"]


def test_what_cannot_be_told_is_unknown_and_not_guessed(capsys):
    for options, word in (
        ([*LLAMA, "--quantization", "float32"], "32 bit"),
        (["--model", "MiniMaxAI/MiniMax-M2.5", "--gpu", "H200", "--tp", "8"], "quantisation block 128"),
        (["--model", "Qwen/Qwen3-235B-A22B-FP8", "--gpu", "H200", "--tp", "8"], "quantisation block 128"),
    ):
        code, found = answer(capsys, *options)
        assert (code, found["verdict"], found["kvTokens"]) == (3, "Unknown", None)
        assert word in found["coverage"]
    assert answer(capsys, "--model", "MiniMaxAI/MiniMax-M2.5", "--gpu", "H200", "--tp", "4")[0] == 0
    with_experts = ["--model", "MiniMaxAI/MiniMax-M2.5", "--gpu", "H200", "--tp", "8", "--ep"]
    assert answer(capsys, *with_experts)[0] == 0


def test_a_version_number_that_may_have_lost_its_zero_is_refused():
    with pytest.raises(OptionError, match="engine_version"):
        from_mapping({"model": "Qwen/Qwen3-8B", "gpu": "H100", "engine_version": 0.2})
    assert from_mapping({"model": "a", "gpu": "b", "engine_version": 0.19}).engine_version == "0.19"
    with pytest.raises(OptionError, match="engine_version"):
        from_mapping({"model": "a", "gpu": "b", "engine_version": True})


def test_a_share_between_whole_percents_counts_exactly(capsys):
    low, middle, high = (
        answer(capsys, *LLAMA, "--engine-version", "0.19.0", "--gpu-memory-utilization", share)[1]
        for share in ("0.90", "0.905", "0.91")
    )
    between = (low["kvCacheGiBPerGPU"] + high["kvCacheGiBPerGPU"]) / 2
    assert middle["kvCacheGiBPerGPU"] == pytest.approx(between, abs=0.001)


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({"max_num_batched_tokens": 512}, (512, 512)),
        ({"max_num_seqs": 1, "max_model_len": 4096}, (1, 4096)),
        ({"max_num_seqs": 64, "max_model_len": 4096}, (64, 8192)),
        ({"max_num_seqs": 2048, "max_num_batched_tokens": 1024}, (2048, 1024)),
    ],
)
def test_a_default_fits_the_limit_beside_it(given, limits):
    asked = question(
        from_mapping({"model": "Qwen/Qwen3-8B", "gpu": "H100", "engine_version": "0.19", **given})
    )
    found = asked.request.limits
    assert (found.max_num_seqs, found.max_num_batched_tokens) == limits


@pytest.mark.parametrize(
    "name",
    ["bfloat16", "float16", "bf16 (auto)", "compressed-tensors", "None", "modelopt", "auto"],
)
def test_names_that_leave_the_weights_as_they_are(name):
    plain = question(from_mapping({"model": "Qwen/Qwen3-8B", "gpu": "H100"})).request
    assert (
        question(from_mapping({"model": "Qwen/Qwen3-8B", "gpu": "H100", "quantization": name})).request
        == plain
    )


def test_a_quantised_checkpoint_on_a_gpu_without_its_kernels_gets_a_note(capsys):
    _, found = answer(capsys, "--model", "openai/gpt-oss-20b", "--gpu", "Tesla-T4")
    assert any("MXFP4" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gpu", "Tesla-V100-SXM2-32GB"], ["BF16 needs 8.0", "built with CUDA 13"]),
        (["--gpu", "Tesla-V100-SXM2-32GB", "--engine-version", "0.19.0"], ["BF16 needs 8.0"]),
        (["--gpu", "Tesla-V100-SXM2-32GB", "--engine-version", "0.19.0", "--quantization", "float16"], []),
        (["--gpu", "A100-40", "--kv-cache-dtype", "fp8"], ["an FP8 KV cache needs compute capability 8.9"]),
        (["--gpu", "H100", "--kv-cache-dtype", "fp8"], []),
    ],
)
def test_what_the_gpu_has_no_kernels_for_gets_a_note(capsys, options, words):
    assert main(["estimate", "--model", "Qwen/Qwen3-8B", "--max-model-len", "8192", *options]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "vLLM may refuse it" in line]
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


@pytest.mark.parametrize("load", [[], ["--input-tokens", "1000", "--output-tokens", "100", "--rate", "1"]])
def test_the_offline_command_loads_no_kubernetes_library(load):
    program = (
        "import sys; from shardwright.cli.main import main; "
        f"code = main(['estimate', '--model', 'Qwen/Qwen3-8B', '--gpu', 'H100', *{load!r}]); "
        "print(sorted({'kopf', 'kubernetes', 'aiohttp', 'prometheus_client'} & set(sys.modules)), code)"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[] 0"


def test_unknown_command_and_help(capsys):
    assert main(["frobnicate"]) == 2
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "estimate" in capsys.readouterr().out


@settings(max_examples=120, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["tp", "pp", "dp", "ep", "quantization", "max_model_len", "max_num_seqs", "engine_version",
                         "gpu_memory_utilization", "enforce_eager", "kv_cache_dtype", "config", "weight_bytes"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.lists(st.integers())
        | st.sampled_from(["nan", "inf", "0", "1", "8k", "0.9", "true"]),
    )
)  # fmt: skip
def test_any_option_is_answered_or_refused(options):
    with suppress(OptionError, CatalogError, UnknownMemoryError):
        asked = question(from_mapping({"model": "Qwen/Qwen3-8B", "gpu": "H100", **options}))
        assert estimate(asked.request).margin_gib >= 0

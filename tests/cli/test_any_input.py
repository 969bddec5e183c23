"""Any bytes in any file, any value in any place: an answer, or an error that names file and field. Never a traceback.

Valid inputs with every place replaced by odd values, one at a time, and with bytes damaged.
"""

import copy
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shardwright.cli.main import main
from topology.cluster_objects import node, pod

CODES = {"plan": {0, 1, 2, 4}, "explain": {0, 1, 2}, "diff": {0, 1, 2, 3}, "estimate": {0, 1, 2, 3}}
MOST_CPU_S = 120.0
"""Of one run: what grows without end is meant, and no slow machine. A few hundredths of a second are usual."""
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": False, "head_dim": 128,
    "sliding_window": 4096, "layer_types": ["full_attention"] * 32, "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    "quantization_config": {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
                            "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float", "group_size": 128}}}},
    "vision_config": {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096},
}  # fmt: skip
EXPERTS = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "intermediate_size": 18432,
    "num_attention_heads": 128, "vocab_size": 129280, "max_position_embeddings": 163840, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}, "moe_layer_freq": 1,
}  # fmt: skip
SERVICE = {
    "apiVersion": "shardwright.dev/v1alpha1", "kind": "LLMService",
    "metadata": {"name": "chat", "namespace": "team-a", "labels": {"a": "b"}, "generation": 2,
                 "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {
        "model": {"id": "team/own", "config": {"configMapRef": {"name": "cfg", "key": "config.json"}, "weightBytes": 16 << 30},
                  "maxContextTokens": 8192, "allowedKVCacheDtypes": ["Auto"],
                  "source": {"type": "Hub", "hub": {"tokenSecretRef": {"name": "hf", "key": "token"}}},
                  "cache": {"type": "HostPath", "path": "/cache"}},
        "workload": {"profile": "Chat", "inputTokens": {"p50": 1000, "p95": 4000}, "outputTokens": {"p50": 200, "p95": 800},
                     "requestsPerMinute": 60},
        "slo": {"ttft": {"percentile": 95, "milliseconds": 2000}},
        "pool": {"maxGPUs": 8, "gpuProducts": ["H100"], "nodeSelector": {"pool": "a"},
                 "tolerations": [{"key": "x", "operator": "Exists"}], "interconnect": {"policy": "PreferNVLink"}},
        "scaling": {"minReplicas": 1, "maxReplicas": 2},
        "parallelism": {"tensor": 2},
        "engine": {"version": "0.33.0", "args": ["--enable-prefix-caching"], "env": [{"name": "A", "value": "b"}]},
        "podTemplate": {
            "metadata": {"labels": {"team": "a"}},
            "spec": {"containers": [{"name": "engine", "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                                     "resources": {"requests": {"cpu": "8"}}},
                                    {"name": "side", "image": "i", "env": [{"name": "X", "value": "y"}]}],
                     "volumes": [{"name": "v", "emptyDir": {}}], "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["h"]}]},
        },
    },
}  # fmt: skip
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "cfg", "namespace": "team-a"},
    "data": {"config.json": json.dumps(CONFIG)},
}
FOREIGN = pod("busy", "n1", 2, owner="other")
FOREIGN["spec"]["initContainers"] = [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}]
FOREIGN["spec"]["overhead"] = {"cpu": "250m"}
FOREIGN["status"] = {
    "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [{"restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"reason": "OOMKilled"}}}],
}  # fmt: skip
NODES = {
    "kind": "List",
    "items": [
        node("n1", taints=[{"key": "a", "value": "b", "effect": "PreferNoSchedule"}], labels={"pool": "a"}),
        FOREIGN,
    ],
}
LINE = {
    "id": 1, "model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100", "tp": 1, "maxModelLen": "8k", "quantization": "fp8",
    "engine_version": "0.33.0", "gpu-memory-utilization": 0.9, "kv_cache_dtype": "auto", "enforce_eager": False,
    "input_tokens": 1000, "output_tokens": 100, "concurrency": 8, "interconnect": "nvlink", "weight_bytes": 16_000_000_000,
}  # fmt: skip
OWN_LINE = {"model": "a/b", "gpu": "NVIDIA-H100-80GB-HBM3", "config": EXPERTS, "tp": 8}


def deep(levels):
    value = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


ODD = st.one_of(
    st.sampled_from([
        None, True, 0, -1, 1.5, 1e308, float("nan"), float("inf"), 2**63, 10**39, 10**300, "", " ", "²", "٣", "8", "-8", "1e400",
        "1e999999999", "\0", "\ud800", "\x1b[31m", "x" * 5000, "9" * 5000, "a\nb", "2026-99-99", "{", "((((", [], {}, [None], [[]],
        [{}], {"": None}, {"a": 1}, {"\ud800": 1}, {"name": [1]}, [{"name": {}}], [{"name": "engine"}], deep(40), deep(200),
    ]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    ),
)  # fmt: skip


def places(value, below=()):
    """Every place of a value, itself included."""
    yield below
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in children:
        yield from places(inner, (*below, key))


def changed(value, place, odd, how):
    """The value with one place replaced, removed, or with an odd neighbour."""
    if not place:
        return odd
    found = copy.deepcopy(value)
    holder = found
    for key in place[:-1]:
        holder = holder[key]
    if how == "remove":
        del holder[place[-1]]
    elif how == "beside" and isinstance(holder, dict):
        holder[f"{place[-1]}²"] = odd
    elif how == "again" and isinstance(holder, list):
        holder.append(odd)
    else:
        holder[place[-1]] = odd
    return found


def mutants(base):
    where = sorted(set(places(base)), key=repr)
    how = st.sampled_from(["replace", "replace", "replace", "remove", "beside", "again"])
    return st.builds(changed, st.just(base), st.sampled_from(where), ODD, how)


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    started = time.process_time()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(arguments))
    assert time.process_time() - started < MOST_CPU_S, "it grows without end"
    assert code in CODES[arguments[0]]
    return code, out.getvalue(), err.getvalue()


def written(content):
    """A file with this content: bytes, or a value as JSON."""
    file = Path(tempfile.mkdtemp(dir=ROOM.name)) / "input"
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(file)


ROOM = tempfile.TemporaryDirectory()


def check_plan(service, nodes, output="json"):
    paths = written(service), written(nodes)
    if output == "diff":
        return run("diff", written(FILES[0]), paths[0], "--nodes", paths[1], "-o", "json")[0]
    if output == "page":
        code, out, err = run("explain", "-f", paths[0], "--nodes", paths[1], "--html", f"{paths[0]}.html")
    else:
        code, out, err = run("plan", "-f", paths[0], "--nodes", paths[1], "-o", output)
    if code == 2:
        assert out == ""
        assert all(any(path in line for path in paths) for line in err.splitlines()), err
        assert len(err) < 20_000
    elif output == "json":
        json.loads(out, parse_constant=pytest.fail)
    return code


FUZZ = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def test_the_valid_inputs_are_valid():
    both = {"kind": "List", "items": [SERVICE, CONFIG_MAP]}
    assert check_plan(both, NODES) == 0
    assert check_plan(both, NODES, "manifests") == 0
    assert check_plan(both, NODES, "page") == 0
    assert check_plan(both, NODES, "diff") == 0
    assert run("estimate", "--model", "a/b", "--gpu", "H100", "--config", written(CONFIG))[0] == 0
    assert run("estimate", "--batch", written(LINE))[0] == 0
    assert run("estimate", "--batch", written(OWN_LINE))[0] == 1


TELLING = [[[1]], {"a": {"b": 1}}, None, True, -1, "²"]
"""Each breaks another assumption: unhashable, nested; and one of: absent, a number that is none, below zero, no ASCII digit."""


def sweep(base):
    for place in places(base):
        for odd in (*TELLING[:2], TELLING[2 + len(place) % 4]):
            yield changed(base, place, odd, "replace")


def test_each_place_of_a_service_with_each_telling_value():
    for number, service in enumerate(sweep(SERVICE)):
        check_plan(
            {"kind": "List", "items": [service, CONFIG_MAP]}, NODES, ("json", "manifests", "diff")[number % 3]
        )


def test_each_place_of_nodes_and_pods_with_each_telling_value():
    service = {**SERVICE, "spec": {"model": {"id": "Qwen/Qwen3-8B"}, "pool": {"maxGPUs": 8}}}
    for nodes in sweep(NODES):
        check_plan(service, nodes)


@pytest.mark.parametrize(
    "base", [LINE, OWN_LINE, {**OWN_LINE, "config": CONFIG}], ids=["known", "experts", "dense"]
)
def test_each_place_of_an_estimate_with_each_telling_value(base):
    lines = list(sweep(base))
    _, out, _ = run("estimate", "--batch", written("\n".join(map(json.dumps, lines)).encode()))
    answers = [json.loads(answer, parse_constant=pytest.fail) for answer in out.splitlines()]
    assert len(answers) == len(lines)
    assert all(len(found.get("error", "")) < 2000 for found in answers)


@FUZZ
@given(mutants(SERVICE), st.sampled_from(["json", "text", "manifests", "page", "diff"]))
def test_any_value_in_a_service(service, output):
    check_plan({"kind": "List", "items": [service, CONFIG_MAP]}, NODES, output)


@FUZZ
@given(
    mutants(CONFIG_MAP)
    | mutants(CONFIG).map(lambda c: {**CONFIG_MAP, "data": {"config.json": json.dumps(c)}})
)
def test_any_value_in_a_config_map(config_map):
    check_plan({"kind": "List", "items": [SERVICE, config_map]}, NODES)


@FUZZ
@given(mutants(NODES))
def test_any_value_in_nodes_and_pods(nodes):
    check_plan({"kind": "List", "items": [SERVICE, CONFIG_MAP]}, nodes)


@FUZZ
@given(mutants(CONFIG) | mutants(EXPERTS))
def test_any_value_in_a_config(config):
    path = written(config)
    code, out, err = run("estimate", "--model", "a/b", "--gpu", "H100", "--config", path, "-o", "json")
    if code == 2:
        assert f"config: {path}: " in err
        assert len(err) < 2000
    else:
        json.loads(out, parse_constant=pytest.fail)


@FUZZ
@given(mutants(LINE) | mutants(OWN_LINE))
def test_any_value_in_a_line_of_a_batch(line):
    code, out, _ = run("estimate", "--batch", written(line))
    (found,) = (json.loads(answer) for answer in out.splitlines())
    assert (code == 2) == ("error" in found)
    assert len(found.get("error", "")) < 2000


@FUZZ
@given(
    st.sampled_from(["--model", "--gpu", "--tp", "--pp", "--dp", "--quantization", "--kv-cache-dtype", "--max-model-len",
                     "--gpu-memory-utilization", "--max-num-seqs", "--engine-version", "--weight-bytes", "--rate",
                     "--input-tokens", "--interconnect", "--config", "--batch"]),
    ODD.map(str),
)  # fmt: skip
@example("--batch", "\0")
@example("--gpu", "H100 " + "9" * 400 + " GB")
@example("--gpu", "(" * 100_000)
@example("--max-model-len", "9" * 5000 + "k")
@example("--engine-version", "1." + "9" * 5000)
def test_any_text_in_an_option(option, text):
    load = ["--input-tokens=1000", "--output-tokens=100", "--concurrency=4"]
    code, _, err = run("estimate", "--model=Qwen/Qwen3-8B", "--gpu=H100", *load, f"{option}={text}")
    assert (code == 2) == bool(err)
    assert len(err) < 8000


@FUZZ
@given(st.text(max_size=20) | st.from_regex(r"\A[A-Z0-9]{1,6}:[0-9²٣]{0,30}(x[0-9²٣]{0,30})?\Z"))
@example("H100:²")
@example("H100:8x99999999999")
@example("H100:1024x10000")
def test_any_text_as_assumed_gpus(text):
    service = {**SERVICE, "spec": {"model": {"id": "Qwen/Qwen3-8B"}, "pool": {"maxGPUs": 8}}}
    code, _, err = run("plan", "-f", written(service), f"--gpu={text}")
    assert code != 2 or "--gpu" in err


FILES = [
    json.dumps({"kind": "List", "items": [SERVICE, CONFIG_MAP]}).encode(),
    yaml.safe_dump_all([SERVICE, CONFIG_MAP]).encode(),
]
PIECES = st.one_of(
    st.binary(max_size=4),
    st.sampled_from([b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"&a ", b"*a", b"<<: *a\n", b"!!python/object:os.system ", b"? ", b"[", b"{",
                     b"---\n", b"...", b"9" * 5000, b"0x_", b"0b_", b"!!int x", b"!!timestamp x ", b"=", b"\xfe\xff", b"\xef\xbb\xbf"]),
)  # fmt: skip


@FUZZ
@given(st.sampled_from(FILES), st.integers(0, 4000), st.integers(0, 8), PIECES)
def test_any_damage_to_the_bytes_of_a_file(content, at, cut, piece):
    damaged = content[:at] + piece + content[at + cut :]
    check_plan(damaged, NODES)
    check_plan(FILES[0], damaged)


@FUZZ
@given(st.binary(max_size=300))
def test_any_bytes_in_every_file(content):
    path = written(content)
    assert run("plan", "-f", path, "--gpu=H100")[0] == 2
    assert run("estimate", "--model=a/b", "--gpu=H100", "--config", path)[0] == 2
    assert run("estimate", "--batch", path)[0] in {0, 2}


BOMB = "a: &a [x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghi", "bcdefghij", strict=True)
)
MERGES = (
    "a: &a {"
    + ",".join(f"k{i}: 1" for i in range(2000))
    + "}\nb:\n"
    + f"- <<: [{','.join(['*a'] * 100)}]\n" * 100
)


@pytest.mark.parametrize(
    "text",
    [BOMB, MERGES, "&a {a: *a}", "&a [*a]", "{a: 1, a: 2}", '{"a":' * 100_000, "[" * 100_000, "- " * 100_000,
     '{"kind":"List","items":' * 2000, "? [1]\n: 2", "kind: List\nitems: [null]", "kind: List\nitems: [1, {kind: List, items: [2]}]"],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_what_grows_without_end_is_refused(text):
    for arguments in (["plan", "-f", written(text.encode()), "--gpu=H100"],
                      ["plan", "-f", written(FILES[0]), "--nodes", written(text.encode())],
                      ["estimate", "--model=a/b", "--gpu=H100", "--config", written(text.encode())]):  # fmt: skip
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert arguments[-1] in err or arguments[2] in err


def test_a_file_without_end_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("shardwright.cli.files.LARGEST_BYTES", 1 << 16)
    huge = tmp_path / "huge"
    huge.write_bytes(b" " * (1 << 17))
    for path in (str(huge), "/dev/zero"):
        code, _, err = run("plan", "-f", path, "--gpu=H100")
        assert (code, f"{path} is larger than" in err) == (2, True)
    code, _, err = run("estimate", "--batch", "/dev/zero")
    assert (code, "/dev/zero, line 1 is longer than" in err) == (2, True)


def test_dates_keys_and_merges_read_as_kubectl_reads_them(tmp_path):
    text = yaml.safe_dump({**SERVICE, "spec": {"model": {"id": "Qwen/Qwen3-8B"}, "pool": {"maxGPUs": 8}}})
    text = text.replace("a: b", "1: yes-it-is\n    when: 2026-01-01\n    <<: &more {b: c}")
    assert run("plan", "-f", written(text.encode()), "--gpu=H100")[0] == 0


def test_standard_input_that_is_not_utf_8_is_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    code, _, err = run("plan", "-f", "-", "--gpu=H100")
    assert (code, "standard input is not UTF-8" in err) == (2, True)
    monkeypatch.setattr(sys, "stdin", None)
    assert run("estimate", "--batch", "-")[0] == 2


def test_a_reader_that_leaves_ends_the_command_quietly():
    command = "import sys; from shardwright.cli.main import main; sys.exit(main(['crds']))"
    source = Path(__file__).parents[2] / "operator" / "src"
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" | head -c 1; echo "${PIPESTATUS[0]}"', sys.executable, command],
        env={"PYTHONPATH": str(source), "PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1].endswith("141")
    assert done.stderr == ""

"""Every command ends with the codes of docs/commands.md and with no others, and bad usage is 2 everywhere."""

import json
import re
import signal
import socket
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import yaml

from cli.test_approve import A, B, cluster  # noqa: F401 -- a fixture
from cli.test_diff import service
from shardwright.cli.main import COMMANDS, main
from topology.cluster_objects import node, pod

TABLE = (Path(__file__).parents[2] / "docs/commands.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if line.startswith("| `")
]
DOCUMENTED = {
    (row[0].strip("`"), code): meaning for row in ROWS for code, meaning in enumerate(row[1:]) if meaning
}
H100 = "--gpu=H100:8x4"
GOOD = {
    "estimate": ["--model=Qwen/Qwen3-8B", "--gpu=H100"],
    "plan": ["-f", "SERVICE", H100],
    "explain": ["-f", "SERVICE", H100],
    "simulate": ["--trace", "TRACE", "--replica-model", "REPLICA", "--ttft-ms=2000", "--tpot-ms=150"],
    "trace": ["LOG"],
    "diff": ["SERVICE", "SERVICE", H100],
    "approve": ["chat", "-n", "team-a", "--revision", B],
    "rollback": ["chat", "-n", "team-a", "--list"],
    "crds": [],
}
OTHERS = {
    ("estimate", 1): ["--model=Qwen/Qwen3-32B", "--gpu=L40S"],
    ("estimate", 3): ["--model=Qwen/Qwen3-8B", "--gpu=H100", "--engine-version=nightly"],
    ("plan", 1): ["-f", "SERVICE", "--gpu=T4:1"],
    ("plan", 4): ["-f", "SERVICE", "--nodes", "FULL"],
    ("explain", 1): ["-f", "SERVICE", "--gpu=T4:1"],
    ("diff", 1): ["SERVICE", "OTHER", H100],
    ("diff", 3): ["SERVICE", "REFUSED", H100],
    ("diff", 4): ["SERVICE", "OTHER", H100, "--fail-on=restart"],
    ("approve", 1): ["chat", "-n", "team-a", "--clear"],
    ("rollback", 1): ["chat", "-n", "team-a", "--to", A],
}
TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{n},900,40\n" for n in range(1200))
REPLICA = {
    "stepMs": 36, "perSequenceMs": 0.3, "perKvTokenUs": 0.55, "perPrefillTokenMs": 0.16, "kvTokens": 90_000,
    "tokenBudget": 2048, "seats": 256, "coldStartSeconds": 120,
}  # fmt: skip
SIMULATE = ["simulate", "--trace", "TRACE", "--replica-model", "REPLICA"]
POOL = [
    [], ["--gpu=nonsense"], ["--gpu=H100:0"], ["--gpu=H100:8x²"], ["--gpu=H100", "--gpu="], ["--gpu=X1:8"], ["--nodes=/does/not/exist"],
    ["--nodes", "SERVICE"], ["--nodes", "FULL", H100], ["--cluster", H100], [H100, "--no-such-option"], [H100, "-o", "xml"],
]  # fmt: skip
BAD = [
    *(["estimate", *words] for words in ([], ["--model=Qwen/Qwen3-8B"], ["--model=Qwen/Qwen3-8B", "--gpu=X1"],
        ["--model=Qwen/Qwen3-8B", "--gpu=H100", "--tp=0"], ["--model=a/b", "--gpu=H100"], ["--batch=/does/not/exist"])),
    *([*command, *words] for words in POOL for command in (
        ["plan", "-f", "SERVICE"], ["explain", "-f", "SERVICE"], ["diff", "SERVICE", "OTHER"], ["diff", "/dev/null", "SERVICE"],
        ["diff", "SERVICE", "REFUSED"])),
    ["plan"], ["plan", "-f", "/does/not/exist", H100], ["plan", "-f", "REFUSED", H100],
    ["simulate"], SIMULATE, [*SIMULATE, "--ttft-ms=1"], [*SIMULATE, "-f", "/does/not/exist"], [*SIMULATE, "-f", "SERVICE", "--policy=best"],
    *([*SIMULATE, "-f", "SERVICE", *words] for words in (["--trace", "ODD"], ["--trace", "SERVICE"], ["--trace=/does/not/exist"],
        ["--replica-model", "TRACE"], ["--replica-model", "SERVICE"], ["--trace-scale=0"], ["--percentile=101"],
        ["--min-replicas=9", "--max-replicas=3"], ["--policy=fixed:-1"],
        ["--min-replicas=-1"], ["--max-replicas=0"], ["--gpus-per-replica=0"], ["--unscored-seconds=nan"])),
    [*SIMULATE, "-f", "SERVICE", "--html=/does/not/exist"], [*SIMULATE, "-f", "SERVICE", "--policy=clairvoyant:2"],
    ["trace"], ["trace", "/does/not/exist"], ["trace", "SERVICE"], ["trace", "LOG", "--requests=LOG"],
    ["trace", "--requests=LOG", "--input-tokens=LOG", "--output-tokens=LOG"],
    ["explain"], ["explain", "chat", "-f", "SERVICE", H100], ["explain", "chat", H100], ["explain", "-f", "REFUSED", H100],
    ["diff"], ["diff", "SERVICE", H100], ["diff", "-", "-", H100], ["diff", "SERVICE", "/does/not/exist", H100],
    ["diff", "-f", "SERVICE", "OTHER", H100],
    ["approve"], ["approve", "chat", "-n", "team-a", "--revision", B, "--clear"], ["approve", "chat", "-n", "team-a", "--revision", "none"],
    ["approve", "other", "-n", "team-a"], ["rollback"], ["rollback", "chat", "-n", "team-a", "--to", "none"],
    ["rollback", "chat", "-n", "team-a", "--to", B, "--list"], ["crds", "more"],
    *(["run", *words] for words in (
        ["--workers=0"], ["--workers=-1"], ["--metrics-port=-1"], ["--metrics-port=65536"], ["--requests-per-second=0"],
        ["--requests-per-second=nan"], ["--requests-per-second=inf"], ["--burst=0"], ["--pool-config-map=a"], ["--pool-config-map=a/b"],
        ["--engine-metrics-interval=nan"], ["--prometheus-tenant=a"], ["--log-level=loud"], ["--endpoints-role=a"], ["--endpoints-role=Role/"])),
    ["endpoints"], ["endpoints", "--service=a", "--namespace=b", "--router=127.0.0.1"], ["endpoints", "--service=a", "--namespace=b", "--port=-1"],
    [], ["no-such-command"], ["--no-such-option"],
]  # fmt: skip


@pytest.fixture
def run(tmp_path, capsys, cluster):  # noqa: F811 -- the fixture
    del cluster
    full = {"kind": "List", "items": [node("n1"), pod("busy", "n1", 8)]}
    files = {
        "SERVICE": service(),
        "OTHER": service(engine={"args": ["--seed=1"]}),
        "REFUSED": service(model={"id": "team/unknown"}),
        "FULL": full,
        "TRACE": TRACE,
        "REPLICA": json.dumps(REPLICA),
        "LOG": '{"time": 1, "prompt_tokens": 9, "completion_tokens": 3}\n',
        "ODD": "arrival_s,input_tokens,output_tokens\n1,none,3\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else yaml.safe_dump(content))

    def call(*words):
        code = main([str(tmp_path / word) if word in files else word for word in words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def test_each_command_and_each_of_its_codes_is_documented_and_tried():
    assert {command for command, _ in DOCUMENTED} == set(COMMANDS)
    tried = {*((command, 0) for command in GOOD), *OTHERS, *((words[0], 2) for words in BAD if words)}
    assert set(DOCUMENTED) - tried == set(product(("run", "endpoints"), (0, 1))), "these take a process"


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"crds", "run"}))
def test_the_help_says_what_the_table_says(run, command):
    told = " ".join(run(command, "--help")[1].replace("-\n", "-").split())
    codes = re.search(r"Exit code: (.*?)\.(?: |$)", told)[1]
    for (name, code), meaning in DOCUMENTED.items():
        if name == command:
            assert f"{code} {meaning}" in codes


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        *((command, 0, words) for command, words in GOOD.items()),
        *((command, code, words) for (command, code), words in OTHERS.items()),
    ],
)
def test_each_code_is_said_for_what_the_table_says(run, cluster, command, code, words):  # noqa: F811
    if (command, code) == ("rollback", 1):  # git states the field
        fields = {"f:spec": {"f:approvedRevision": {}}}
        cluster.service["metadata"]["managedFields"] = [{"manager": "argocd-controller", "fieldsV1": fields}]
    assert run(command, *words)[0] == code, DOCUMENTED[command, code]


@pytest.mark.parametrize("words", BAD, ids=" ".join)
def test_bad_usage_is_2_and_is_told_on_standard_error_alone(run, words):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.strip()
    assert "Traceback" not in err


def operator(*words):
    return process("run", *words)


def process(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "shardwright.cli.main", *words, "--kubeconfig=/does/not/exist"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def test_the_operator_ends_with_0_when_it_is_told_to():
    with operator("--metrics-address=127.0.0.1", "--metrics-port=0") as started:
        assert any("listening" in line for line in iter(started.stderr.readline, ""))
        started.send_signal(signal.SIGTERM)
        started.communicate(timeout=60)
    assert started.returncode == 0


def test_the_operator_ends_with_1_when_it_cannot_start():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with operator("--metrics-address=127.0.0.1", f"--metrics-port={port}") as started:
            _, err = started.communicate(timeout=60)
    assert started.returncode == 1
    assert f"127.0.0.1 port={port}" in err
    assert "Traceback" not in err


FOLLOW = ("endpoints", "--service=chat-engine", "--namespace=team", "--address=127.0.0.1")


def test_what_follows_endpoints_waits_for_a_login_and_ends_with_0_when_it_is_told_to():
    with process(*FOLLOW, "--port=0") as started:
        assert any("cannot log in yet" in line for line in iter(started.stderr.readline, ""))
        started.send_signal(signal.SIGTERM)
        started.communicate(timeout=60)
    assert started.returncode == 0


def test_what_follows_endpoints_ends_with_1_when_it_cannot_listen():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with process(*FOLLOW, f"--port={taken.getsockname()[1]}") as started:
            _, err = started.communicate(timeout=60)
    assert started.returncode == 1
    assert "cannot listen" in err
    assert "Traceback" not in err

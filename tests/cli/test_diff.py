"""`shardwright diff` of files: golden answers, exit codes, and that pods restart exactly when the digests say so."""

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import yaml

from render.test_digest import CHANGES
from shardwright.cli.decide import decide_service
from shardwright.cli.diff_report import DiffReport
from shardwright.cli.main import main
from shardwright.cli.plan_input import read_service
from shardwright.cli.pool_options import Nodes
from shardwright.planner.types import Plan
from shardwright.render.digest import revision_hash, template_digest
from topology.cluster_objects import A6000, H100, L40S, node

LLAMA_8B, LLAMA_70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"


def service(name="chat", namespace="team-a", **spec):
    body = {"model": {"id": LLAMA_8B}, "pool": {"maxGPUs": 8}} | spec
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": metadata,
        "spec": body,
    }


BIG = {"model": {"id": LLAMA_70B}, "pool": {"maxGPUs": 32}, "workload": {"requestsPerMinute": 120}}
OLD = [
    service(**BIG),
    service("gone"),
    service("same", "team-b"),
    service("scaled", "team-b"),
    service("loaded", "team-b", workload={"requestsPerMinute": 600}),
    service("moved", "team-b", pool={"maxGPUs": 8, "gpuProducts": [H100]}),
    service("asks", "team-c", planPolicy="Manual"),
    service("pinned", "team-c", approvedRevision="11111111"),
    service("breaks", "team-d"),
]
NEW = [
    service(
        **BIG,
        parallelism={"tensor": 8},
        engine={"args": ["--seed=1"], "env": [{"name": "A", "value": "secret"}]},
    ),
    service("new"),
    service("same", "team-b"),
    service("scaled", "team-b", scaling={"minReplicas": 3}),
    service("loaded", "team-b", workload={"requestsPerMinute": 3000}),
    service("moved", "team-b", pool={"maxGPUs": 8, "gpuProducts": [L40S]}),
    service("asks", "team-c", planPolicy="Manual", engine={"maxNumSeqs": 17}),
    service("pinned", "team-c", approvedRevision="11111111", drain={"maxSeconds": 10}),
    service("breaks", "team-d", model={"id": LLAMA_8B, "maxContextTokens": 200_000}),
    service("refused", "team-d", pool={"maxGPUs": 0}),
]


@pytest.fixture
def diff(tmp_path, capsys):
    """Run it on lists of manifests; the exit code, what was printed, and what was complained of."""

    def run(old, new, *options, nodes=("--gpu", "H100:8x4", "--gpu", "L40S:4x2")):
        names = []
        for name, manifests in (("old", old), ("new", new)):
            path = tmp_path / f"{name}.yaml"
            path.write_text(yaml.safe_dump_all(manifests) if isinstance(manifests, list) else manifests)
            names.append(str(path))
        code = main(["diff", *names, *nodes, *options])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_golden_text(diff, snapshot):
    code, out, _ = diff(OLD, NEW)
    assert code == 3
    assert out == snapshot


def test_golden_json(diff, snapshot):
    code, out, _ = diff(OLD, NEW, "-o", "json")
    assert code == 3
    assert json.loads(out) == snapshot
    assert DiffReport.model_validate_json(out).schema_version == 1
    assert "secret" not in out


def one(out):
    [found] = json.loads(out)["services"]
    return found


def test_a_count_that_the_budget_cuts_is_noted(diff):
    one_replica, eight, twenty = (service(scaling={"mode": "External"}, replicas=n) for n in (1, 8, 20))
    words = "spec.replicas asks for 20 replicas of 1 GPU each, and pool.maxGPUs is 8"
    for new, told in ((eight, False), (twenty, True)):
        found = one(diff([one_replica], [new], "-o", "json")[1])
        assert found["after"]["replicas"] == 8
        assert any(words in note for note in found["notes"]) is told


@pytest.mark.parametrize(
    ("new", "options", "expected"),
    [
        (service(), [], 0),
        (service(scaling={"minReplicas": 2}), [], 1),
        (service(scaling={"minReplicas": 2}), ["--fail-on", "restart"], 1),
        (service(engine={"args": ["--seed=1"]}), [], 1),
        (service(engine={"args": ["--seed=1"]}), ["--fail-on", "restart"], 4),
        (service(engine={"args": ["--no-such-flag"]}), ["--fail-on", "restart"], 3),
        (service(model={"id": "team/unknown"}), [], 3),
        (service(nothing=1), [], 3),
        (service(parallelism={"tensor": 3}), [], 3),
    ],
)
def test_exit_codes(diff, new, options, expected):
    assert diff([service()], [new], *options)[0] == expected


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "write OLD NEW"),
        (["a.yaml"], "write OLD NEW"),
        (["-f", "a.yaml", "b.yaml"], "write OLD NEW, or -f FILE"),
        (["a.yaml", "b.yaml"], "cannot read a.yaml"),
        (["-", "-"], "only one of OLD and NEW"),
    ],
)
def test_bad_input_exits_2_and_says_what_to_write(capsys, words, sentence):
    assert main(["diff", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_broken_files_are_bad_input(diff):
    assert "is not YAML" in diff([service()], "a: [")[2]
    assert "is there twice" in diff([service()], [service(), service()])[2]
    assert diff("", [service()], nodes=())[0] == 2  # which GPUs?


def test_an_unchanged_spec_that_cannot_run_says_why(diff):
    unknown = service(model={"id": "team/unknown"})
    code, out, _ = diff([unknown], [unknown])
    assert code == 3
    assert "team/unknown is not in the catalogue" in out


@pytest.mark.parametrize("value", [None, 1, "a", [], [1], {}, {"a": [{}]}])
@pytest.mark.parametrize(
    "place",
    [
        "metadata",
        "spec",
        "metadata.name",
        "metadata.namespace",
        "spec.model",
        "spec.model.config",
        "spec.pool",
    ],
)
def test_whatever_is_written_is_answered(diff, place, value):
    broken = service()
    *parents, last = place.split(".")
    below = broken
    for key in parents:
        below = below[key]
    below[last] = value
    code, out, err = diff([service()], [broken, {"kind": "ConfigMap", "metadata": value, "data": value}])
    assert code in {0, 1, 2, 3}
    assert out or err


def test_folders_are_read_whole_and_a_service_may_move_between_files(diff, tmp_path, capsys):
    for side, names in (("a", ("one.yaml", "sub/two.yml")), ("b", ("all.yaml",))):
        (tmp_path / side / "sub").mkdir(parents=True)
        for index, name in enumerate(names):
            manifests = [service(f"s{index}")] if len(names) > 1 else [service("s0"), service("s1")]
            (tmp_path / side / name).write_text(yaml.safe_dump_all(manifests))
        (tmp_path / side / "README.md").write_text("a: [")
        (tmp_path / side / "kustomization.yaml").write_text("resources: [one.yaml]\n")
        (tmp_path / side / ".hidden.yaml").write_text("a: [")
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--gpu", "H100:8"]) == 0
    assert capsys.readouterr().out.endswith("No change in 2 services.\n")
    assert main(["diff", "/dev/null", str(tmp_path / "b"), "--gpu", "H100:8"]) == 1
    assert capsys.readouterr().out.endswith("In all: +2 GPUs, +$7.98/h, no pod restarts.\n")


def test_a_config_map_belongs_to_its_namespace(diff):
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096,
        "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }  # fmt: skip
    own = service(model={"id": "team/own", "config": {"configMapRef": {"name": "cfg", "key": "c"}}})

    def beside(namespace):
        metadata = {"name": "cfg", "namespace": namespace}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"c": json.dumps(config)},
        }

    assert diff([], [own, beside("team-a")])[0] == 1
    code, out, _ = diff([], [own, beside("team-b")], "-o", "json")
    assert code == 3
    assert one(out)["refused"]["reason"] == "MissingConfigMap"


def decided(path, nodes):
    """The digest and the revision that the operator would name for a file."""
    found = decide_service(read_service(path), nodes)
    made = found.decision
    spec = found.inputs.service.spec
    return template_digest(spec), revision_hash(spec, made) if isinstance(made, Plan) else None


FULL = {"model": {"id": LLAMA_8B, "maxContextTokens": 8192}, "pool": {"maxGPUs": 8}}


def changed(path, value):
    spec = json.loads(json.dumps(FULL))
    *parents, last = path.split(".")
    below = spec
    for key in parents:
        below = below.setdefault(key, {})
    below[last] = value
    return spec


USABLE = [
    (path, LLAMA_70B if path == "model.id" else value)
    for path, value, _ in CHANGES
    if path not in {"model.config", "replicas", "scaling", "model.quantizeAtLoad", "model.variants"}
]


@pytest.mark.parametrize(("path", "value"), USABLE, ids=[f"{p}-{i}" for i, (p, _) in enumerate(USABLE)])
def test_pods_restart_exactly_when_digest_and_revision_are_others(diff, tmp_path, path, value):
    """The operator's own rule, put to each field of the table that says which may move a pod."""
    new = changed(path, value)
    code, out, _ = diff([service(**FULL)], [service(**new)], "-o", "json")
    found = one(out)
    nodes = Nodes(
        Namespace(gpu=["H100:8x4", "L40S:4x2"], nodes=None, cluster=False, calibration=None, prices=None)
    )
    if found["refused"]:
        assert found["pods"] == "Stay"
        return
    (old_digest, old_hash), (new_digest, new_hash) = (
        decided(str(tmp_path / f"{n}.yaml"), nodes) for n in ("old", "new")
    )
    waits = new.get("planPolicy") == "Manual" or new.get("approvedRevision") not in {None, new_hash}
    moves = old_digest != new_digest and old_hash != new_hash and not waits
    assert (found["pods"] == "Restart") == (moves or new.get("approvedRevision") is not None)
    assert code == 1
    assert found["before"]["revision"] == old_hash
    assert waits or found["after"]["revision"] in {new_hash, old_hash}


def test_what_only_the_cluster_knows_is_said_and_nothing_is_made_up(diff):
    """A revision that is named in git, and whose plan is on record in the cluster only."""
    pinned = service(approvedRevision="11111111")
    code, out, _ = diff([pinned], [service(approvedRevision="22222222")], "-o", "json")
    found = one(out)
    assert (code, found["pods"]) == (1, "Restart")
    for side, name in (("before", "11111111"), ("after", "22222222")):
        assert {key: value for key, value in found[side].items() if value is not None} == {"revision": name}
    assert json.loads(out)["before"] == {"gpus": None, "pricePerHour": None}
    assert "revision 11111111→22222222" in found["summary"]
    same = one(diff([pinned], [pinned], "-o", "json")[1])
    assert (same["change"], same["pods"]) == ("Unchanged", "Stay")
    cleared = one(diff([pinned], [service()], "-o", "json")[1])
    assert (cleared["pods"], cleared["after"]["summary"]) == ("Restart", "L40S TP1 ×1")
    assert any("only the cluster knows it" in note for note in cleared["notes"])


def test_an_approval_in_git_rolls_out_what_waited(diff):
    old, asks = service(planPolicy="Manual"), service(planPolicy="Manual", engine={"maxNumSeqs": 17})
    found = one(diff([old], [asks], "-o", "json")[1])
    assert (found["pods"], found["waitsPhrases"]) == ("Stay", ["max-num-seqs 256→17", "pods restart"])
    revision, before = found["waits"]["revision"], found["before"]["revision"]
    approved = asks | {"spec": asks["spec"] | {"approvedRevision": revision}}
    kept = asks | {"spec": asks["spec"] | {"approvedRevision": before}}
    found = one(diff([kept], [approved], "-o", "json")[1])
    assert (found["pods"], found["after"]["revision"], found["waits"]) == ("Restart", revision, None)


def test_the_first_plan_of_manual_starts_nothing(diff):
    found = one(diff([], [service(planPolicy="Manual")], "-o", "json")[1])
    assert (found["change"], found["pods"], found["after"]) == ("Added", "Stay", None)
    assert found["waitsPhrases"] == ["+1 GPU", "+$2.25/h", "1 pod starts"]


def test_real_nodes_decide(diff, tmp_path):
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump({"kind": "List", "items": [node("n1", A6000, 4)]}))
    nodes = ("--nodes", str(tmp_path / "nodes.yaml"))
    found = one(diff([], [service(model={"id": "Qwen/Qwen3-32B"})], "-o", "json", nodes=nodes)[1])
    assert found["after"]["gpuProduct"] == A6000


def test_comparing_files_loads_neither_kopf_nor_kubernetes(tmp_path):
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(service()))
    code = (
        "import sys; from shardwright.cli.main import main; code = main(sys.argv[1:]); "
        "heavy = {'kopf', 'kubernetes', 'aiohttp'} & set(sys.modules); assert not heavy, heavy; sys.exit(code)"
    )
    words = ["diff", "a.yaml", "a.yaml", "--gpu", "H100:8"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "operator/src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_documented_schema_is_the_one_that_is_printed():
    schema = json.loads((Path(__file__).parents[2] / "docs/diff.schema.json").read_text())
    assert schema == DiffReport.model_json_schema(by_alias=True, mode="serialization")


def test_a_cheaper_mix_is_told_of_what_the_new_spec_leads_to(diff):
    slo = {name: {"percentile": 95, "milliseconds": ms} for name, ms in (("ttft", 1500), ("tpot", 60))}
    pool = {"maxGPUs": 16}
    old = service(pool=pool, slo=slo, workload={"requestsPerMinute": 100})
    new = service(pool=pool, slo=slo, workload={"requestsPerMinute": 720})
    nodes = ("--gpu", "H100:8", "--gpu", "L40S:4x4")
    code, out, _ = diff([old], [new], "-o", "json", nodes=nodes)
    found = one(out)
    assert code == 1
    assert found["before"]["cheaperMix"] is None
    mix = found["after"]["cheaperMix"]
    assert sum(part["trafficPercent"] for part in mix) == 100
    assert sum(float(part["pricePerHour"]) for part in mix) < float(found["after"]["pricePerHour"])
    assert sum("(CheaperMix)" in note for note in found["notes"]) == 1
    text = diff([old], [new], nodes=nodes)[1]
    for part in mix:
        assert f"with {part['trafficPercent']} % of the traffic" in text
    assert f"instead of {found['after']['pricePerHour']} an hour" in text
    assert "(CheaperMix)" not in diff([new], [new], nodes=nodes)[1]


def test_several_mistakes_of_one_spec_are_told_in_one_line(diff):
    wrong = service(pool={"maxGPU": 8})
    new, old = (diff(*pair)[1].splitlines() for pair in (([service()], [wrong]), ([wrong], [service()])))
    words = "spec.pool.maxGPU: unknown field: did you mean maxGPUs?; spec.pool.maxGPUs: required: write it"
    assert words in new[0]
    assert any(f"nothing is known to run: {words}" in line for line in old)

"""`shardwright plan`: the operator's decision from files alone, with exit codes for CI."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from shardwright.cli.main import main
from topology.cluster_objects import A6000, H100, L40S, node, pod

SERVICE = """
apiVersion: shardwright.dev/v1alpha1
kind: LLMService
metadata: {name: chat, namespace: team-a}
spec:
  model: {id: MODEL}
  pool: {maxGPUs: 8}
"""
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"
LARGE = SERVICE.replace("MODEL", LLAMA_70B)


@pytest.fixture
def files(tmp_path):
    def write(service=LARGE, nodes=None, pods=()):
        (tmp_path / "svc.yaml").write_text(service)
        args = ["plan", "-f", str(tmp_path / "svc.yaml")]
        if nodes is not None:
            (tmp_path / "nodes.yaml").write_text(yaml.safe_dump({"kind": "List", "items": [*nodes, *pods]}))
            args += ["--nodes", str(tmp_path / "nodes.yaml")]
        return args

    return write


def test_a_plan_is_told_in_short_and_exits_0(files, capsys):
    assert main(files(nodes=[node("n1"), node("n2", A6000, 4)])) == 0
    out = capsys.readouterr().out
    assert out.startswith("Plan: ")
    for part in ("not smaller", "Room now: 1 of 1 replicas", "candidates: shardwright explain tells each"):
        assert part in out
    assert "Questions, in order:" not in out


def test_json_has_the_status_of_the_plan_and_its_placement(files, capsys):
    nodes = [node("n1"), node("n2")]
    assert main([*files(nodes=nodes, pods=[pod("busy", "n1", 5)]), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["planned"] is True
    assert found["plan"]["summary"] == "H100 TP4 ×1"
    assert found["placement"]["nodes"] == {"n2": 1}
    assert found["podResources"]["gpus"] == 4


def test_a_plan_without_room_exits_4_and_names_the_holders(files, capsys):
    args = files(
        nodes=[node("n1")],
        pods=[pod("training", "n1", 6), pod("ours", "n1", 2, namespace="team-a", owner="chat")],
    )
    assert main(args) == 4
    out = capsys.readouterr().out
    assert "Room now: 0 of 1 replicas" in out
    assert "n1 with 2" in out  # the service's own pods count as free
    assert "work/training (6)" in out


def test_no_plan_exits_1_with_the_binding_constraint(files, capsys):
    assert main(files(nodes=[node("n1", L40S, 1)])) == 1
    assert "No plan: " in capsys.readouterr().out
    assert main([*files(nodes=[node("n1", L40S, 1)]), "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["planned"] is False
    assert main([*files(nodes=[node("n1", L40S, 1)]), "-o", "manifests"]) == 1
    assert capsys.readouterr().out == ""


def test_manifests_are_the_children(files, capsys):
    assert main([*files(), "--gpu", "H100:8", "-o", "manifests"]) == 0
    kinds = {o["kind"] for o in yaml.safe_load_all(capsys.readouterr().out)}
    assert {"Deployment", "Service", "ServiceAccount", "PodDisruptionBudget"} <= kinds


def test_assumed_gpus_come_from_the_option_or_the_spec(files, capsys):
    assert main([*files(), "--gpu", "H100:8x2"]) == 0
    assert "nodes are assumed" in capsys.readouterr().err
    listed = LARGE.replace("maxGPUs: 8", f"maxGPUs: 8, gpuProducts: [{H100}]")
    assert main(files(listed)) == 0
    assert "H100 TP4" in capsys.readouterr().out


CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


def with_config(text):
    service = SERVICE.replace(
        "{id: MODEL}", "{id: team/own, config: {configMapRef: {name: cfg, key: config.json}}}"
    )
    return (
        service
        + "---\n"
        + yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "cfg"},
                "data": {"config.json": text},
            }
        )
    )


def test_a_model_outside_the_catalogue_works_from_its_config(files, capsys):
    assert main([*files(with_config(json.dumps(CONFIG))), "--gpu", "H100:1"]) == 0
    assert "team/own" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("service", "options", "sentence"),
    [
        (SERVICE.replace("MODEL", "team/unknown"), ["--gpu", "H100:8"], "spec.model.id: "),
        (LARGE, [], "which GPUs?"),
        (LARGE, ["--gpu", "X9000:8"], "X9000"),
        (LARGE, ["--gpu", "H100:many"], "write PRODUCT:GPUS"),
        (LARGE.replace("maxGPUs: 8", "maxGPU: 8"), ["--gpu", "H100:8"], "did you mean maxGPUs"),
        (LARGE.replace("maxGPUs: 8", "maxGPUs: 0"), ["--gpu", "H100:8"], "maxGPUs"),
        (LARGE.replace("  pool: {maxGPUs: 8}\n", ""), ["--gpu", "H100:8"], "spec.pool"),
        (SERVICE.replace("v1alpha1", "v1"), ["--gpu", "H100:8"], "write shardwright.dev/v1alpha1"),
        ("a: [", ["--gpu", "H100:8"], "is not YAML"),
        ("- 1", ["--gpu", "H100:8"], "where a Kubernetes object should be"),
        ("kind: Pod\n", ["--gpu", "H100:8"], "0 objects of kind LLMService"),
        (with_config("{"), ["--gpu", "H100:8"], "ConfigMap cfg, key config.json"),
        (with_config("{}").split("---")[0], ["--gpu", "H100:8"], "put the ConfigMap cfg into the same file"),
    ],
)  # fmt: skip
def test_bad_input_exits_2_and_says_what_to_write(files, capsys, service, options, sentence):
    assert main([*files(service), *options]) == 2
    assert sentence in capsys.readouterr().err


def test_bad_nodes_are_named(files, capsys):
    broken = node("n1", host={"memory": "lots"})
    assert main(files(nodes=[broken])) == 2
    assert (
        "Node n1: status.allocatable.memory: 'lots' is not a Kubernetes quantity" in capsys.readouterr().err
    )
    assert main(files(nodes=[])) == 2
    assert "kubectl get nodes,pods -A -o yaml" in capsys.readouterr().err
    assert main(["plan", "-f", "/does/not/exist", "--gpu", "H100:8"]) == 2


def test_the_offline_path_loads_neither_kopf_nor_kubernetes(files):
    code = (
        "import sys; from shardwright.cli.main import main; code = main(sys.argv[1:]); "
        "heavy = {'kopf', 'kubernetes', 'aiohttp'} & set(sys.modules); assert not heavy, heavy; sys.exit(code)"
    )
    source = Path(__file__).parents[2] / "operator" / "src"
    for output in ("text", "json", "manifests"):
        done = subprocess.run(
            [sys.executable, "-c", code, *files(nodes=[node("n1")]), "-o", output],
            env={"PYTHONPATH": str(source)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_what_the_operator_refuses_is_refused_here_and_what_it_ignores_is_told(files, capsys):
    """The decision offline is the operator's own: its checks come first."""
    refused = LARGE + "  engine: {args: [--no-such-flag]}\n  podTemplate: {spec: {nodeName: n1}}\n"
    assert main(files(refused, nodes=[node("n1")])) == 2
    err = capsys.readouterr().err
    assert "spec.engine.args[0]" in err
    assert "spec.podTemplate.spec.nodeName" in err
    typo = LARGE + "  podTemplate: {spec: {hostNetworkk: true}}\n"
    assert main(files(typo, nodes=[node("n1")])) == 2
    assert "hostNetwork, if that is meant" in capsys.readouterr().err
    ignored = LARGE + "  disaggregation: {mode: Auto}\n  engine: {args: [--enable-lora]}\n"
    assert main(files(ignored, nodes=[node("n1")])) == 0
    err = capsys.readouterr().err
    assert "note: spec.disaggregation.mode: " in err
    assert "note: spec.engine.args[0]: " in err


def test_the_shapes_of_an_elastic_pool_are_the_nodes_to_assume(files, capsys):
    shape = "{product: NVIDIA-H100-80GB-HBM3, gpusPerNode: 8, maxNodes: 9000}"
    elastic = LARGE.replace("{maxGPUs: 8}", f"{{maxGPUs: 8, provisioning: Elastic, shapes: [{shape}]}}")
    assert main(files(elastic)) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Plan: H100 TP4")
    assert "spec.pool.provisioning" in captured.err
    assert main(files(elastic.replace("NVIDIA-H100-80GB-HBM3", "NVIDIA-X1"))) == 2
    assert "spec.pool.shapes" in capsys.readouterr().err


def test_a_config_that_is_not_text_is_named(files, capsys):
    config = LARGE.replace(LLAMA_70B, "x/y, config: {configMapRef: {name: c, key: k}}")
    config += "---\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: 5}\n"
    assert main(files(config, nodes=[node("n1")])) == 2
    assert "ConfigMap c, key k" in capsys.readouterr().err

"""What a user may add by hand: engine arguments, variables, pod overlay."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from render.planbuilder import service
from shardwright.api.flags import OWNED_ENV as API_OWNED_ENV
from shardwright.api.flags import OWNED_FLAGS
from shardwright.api.reasons import Reason
from shardwright.catalog.flags import HARMLESS, OWNED, SECRET, FlagClass, classify, flags
from shardwright.planner import engine_args
from shardwright.render.environment import OWNED_ENV
from shardwright.render.overlay import REFUSED_ENGINE, REFUSED_POD, apply, check

FLAG_LIST = Path(__file__).parents[1] / "data" / "vllm_flags.txt"


def listed() -> list[list[str]]:
    lines = [line for line in FLAG_LIST.read_text().splitlines() if line and not line.startswith("#")]
    return [
        row for row in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if row[1].startswith("-")
    ]


def test_the_table_is_the_list() -> None:
    for row in listed():
        for option in row[1].split():
            flag = flags()[option]
            _, _, values = row[2].partition("/")
            assert flag.values == (values or "1"), option
            if flag.choices:
                assert flag.choices == tuple(row[5].split(",")), option
    old = {f.name for f in flags().values() if f.since is None}
    assert len(old) == len(listed())


def test_every_named_flag_exists() -> None:
    names = {flag.name for flag in flags().values()}
    assert set(OWNED) | set(SECRET) | HARMLESS <= names
    assert not set(OWNED) & (set(SECRET) | HARMLESS)
    kinds = [classify(flag) for flag in set(flags().values())]
    assert {kind: kinds.count(kind) for kind in FlagClass}[FlagClass.NOT_COVERED] > 100


def test_what_the_api_server_refuses_is_owned_here() -> None:
    """The CRD refuses some entries at apply; the same entries are refused here, where spelling is resolved."""
    here = {
        option
        for flag in set(flags().values())
        if classify(flag) in {FlagClass.OWNED, FlagClass.SECRET}
        for option in flag.options
    }
    there = {flag for row in OWNED_FLAGS for flag in row.flags}
    assert there & set(flags()) <= here
    assert set(API_OWNED_ENV) == set(OWNED_ENV)


def problems(spec: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return [(p.field, p.reason.value, p.blocking) for p in check(service(spec).spec)]


def of_args(*args: str, version: str = "0.33.0") -> list[tuple[str, str, bool]]:
    return problems({"engine": {"args": list(args), "version": version}})


REFUSED = Reason.ENGINE_ARGS_REFUSED.value
NOT_COVERED = Reason.PLAN_NOT_COVERED.value


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--seed=7", "--enable-log-requests", "--max-num-queued-reqs", "8"], []),
        (["--max-num-seqs=9"], [(0, REFUSED, True)]),
        (["--max_num_seqs", "9"], [(0, REFUSED, True)]),
        (["-tp", "2"], [(0, REFUSED, True)]),
        (["--no-enable-expert-parallel"], [(0, REFUSED, True)]),
        (["--api-key", "s3cret"], [(0, REFUSED, True)]),
        (["--hf-token=x"], [(0, REFUSED, True)]),
        (["--seed=7", "--no-such-flag"], [(1, REFUSED, True)]),
        (["--enforce-eager"], [(0, NOT_COVERED, False)]),
        (["--hf-overrides.rope_scaling", "x"], [(0, NOT_COVERED, False)]),
        (["-O3"], [(0, NOT_COVERED, False)]),
        (["--seed"], [(0, REFUSED, True)]),
        (["--seed", "seven"], [(0, REFUSED, True)]),
        (["--scheduling-policy=lifo"], [(0, REFUSED, True)]),
        (["--enable-log-requests=yes"], [(0, REFUSED, True)]),
        (["other/model"], [(0, REFUSED, True)]),
        (["--config=/etc/x"], [(0, REFUSED, True)]),
        (["--middleware", "a", "--seed", "-1"], []),
    ],
)
def test_engine_args(args: list[str], expected: list[tuple[int, str, bool]]) -> None:
    assert of_args(*args) == [
        (f"spec.engine.args[{i}]", reason, blocking) for i, reason, blocking in expected
    ]


def test_a_refusal_names_the_field_to_use() -> None:
    (problem,) = check(service({"engine": {"args": ["--max-model-len=8k"]}}).spec)
    assert "spec.model.maxContextTokens" in problem.message


def test_versions_that_were_not_read() -> None:
    assert of_args("--sleep-mode-backend=x", version="0.32.0") == [("spec.engine.args[0]", REFUSED, True)]
    assert of_args("--sleep-mode-backend=x") == [("spec.engine.args[0]", NOT_COVERED, False)]
    assert of_args("--of-tomorrow=x", version="0.40.0") == [("spec.engine.args[0]", NOT_COVERED, False)]


@given(
    st.lists(
        st.one_of(st.text(max_size=12), st.sampled_from(sorted(flags())), st.text("-=.O3_a", max_size=6))
    )
)
def test_any_list_is_read_whole(args: list[str]) -> None:
    parsed = engine_args.parse(args)
    starts = {a.index for a in parsed.arguments} | {index for index, _ in parsed.positional}
    values = sum(
        len(a.values)
        for a in parsed.arguments
        if "=" not in args[a.index] and not re.fullmatch(r"-O\d", args[a.index])
    )
    assert len(starts) + values >= len(args)
    for problem in engine_args.check(args, engine_version=(0, 33, 0), path="p"):
        assert problem.message
        assert problem.field.startswith("p[")


@pytest.mark.parametrize(
    ("variable", "reason"),
    [
        ({"name": "HF_TOKEN", "value": "x"}, REFUSED),
        ({"name": "HF_TOKEN", "secretRef": {"name": "a", "key": "b"}}, REFUSED),
        ({"name": "VLLM_API_KEY", "value": "x"}, REFUSED),
        ({"name": "VLLM_API_KEY", "secretRef": {"name": "a", "key": "b"}}, None),
        ({"name": "CUDA_VISIBLE_DEVICES", "value": "0"}, REFUSED),
        ({"name": "NCCL_DEBUG", "value": "INFO"}, None),
        ({"name": "BOTH", "value": "x", "secretRef": {"name": "a", "key": "b"}}, Reason.INVALID_SPEC.value),
    ],
)
def test_environment(variable: dict[str, Any], reason: str | None) -> None:
    found = problems({"engine": {"env": [variable]}})
    assert found == ([] if reason is None else [("spec.engine.env[0]", reason, True)])


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ({"quantization": "INT4", "quantizeAtLoad": True}, "spec.model.quantization"),
        ({"source": {"type": "URI", "uri": {"uri": "hdfs://x"}}}, "spec.model.source.uri.uri"),
        (
            {"source": {"type": "PVC", "pvc": {"claimName": "c", "path": "a/../../b"}}},
            "spec.model.source.pvc.path",
        ),
        (
            {"source": {"type": "PVC", "pvc": {"claimName": "c"}}, "variants": [{"id": "x/y"}]},
            "spec.model.variants",
        ),
    ],
)
def test_model(model: dict[str, Any], field: str) -> None:
    assert problems({"model": {"id": "a/b"} | model}) == [(field, "InvalidSpec", True)]


def of_pod(**pod: Any) -> list[tuple[str, str, bool]]:
    return problems({"podTemplate": {"spec": pod}})


def test_overlay_refusals() -> None:
    for name in REFUSED_POD:
        assert (f"spec.podTemplate.spec.{name}", "PodTemplateRefused", True) in of_pod(**{name: {}})
    for name in REFUSED_ENGINE:
        path = f"spec.podTemplate.spec.containers[engine].{name}"
        assert of_pod(containers=[{"name": "engine", name: {}}]) == [(path, "PodTemplateRefused", True)]


@pytest.mark.parametrize(
    ("overlay", "field"),
    [
        ({"kind": "Pod"}, "kind"),
        ({"metadata": {"name": "x"}}, "metadata.name"),
        (
            {"metadata": {"labels": {"shardwright.dev/serving": "false"}}},
            "metadata.labels[shardwright.dev/serving]",
        ),
        (
            {"metadata": {"labels": {"app.kubernetes.io/name": "x"}}},
            "metadata.labels[app.kubernetes.io/name]",
        ),
        ({"metadata": {"annotations": {"a": 1}}}, "metadata.annotations[a]"),
        ({"spec": {"containers": {"engine": {}}}}, "spec.containers"),
        *(
            (
                {
                    "spec": {
                        "containers": [{"name": "engine", "volumeMounts": [{"name": "x", "mountPath": path}]}]
                    }
                },
                f"spec.containers[engine].volumeMounts[{path.rstrip('/')}]",
            )
            for path in ("/cache", "/cache/", "/dev/shm", "/tmp", "/models")
        ),
        *(
            (
                {"spec": {"containers": [{"name": "engine", "resources": {"limits": {name: "1"}}}]}},
                "spec.containers[engine].resources",
            )
            for name in ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "amd.com/gpu")
        ),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers"),
        ({"spec": {"containers": [{"name": "side"}]}}, "spec.containers[side]"),
        ({"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}}, "spec.volumes[cache]"),
        ({"spec": {"hostNetwork": None}}, "spec.hostNetwork"),
        (
            {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}},
            "spec.containers[engine].resources",
        ),
    ],
)
def test_overlay_shapes(overlay: dict[str, Any], field: str) -> None:
    assert problems({"podTemplate": overlay}) == [(f"spec.podTemplate.{field}", "PodTemplateRefused", True)]


def test_memory_of_the_engine_may_be_raised_and_is_said() -> None:
    entry = {"name": "engine", "resources": {"limits": {"memory": "200Gi"}}}
    assert [(reason, blocking) for _, reason, blocking in of_pod(containers=[entry])] == [
        (NOT_COVERED, False)
    ]


def test_merge_is_by_name_and_changes_neither_side() -> None:
    below = {
        "spec": {
            "containers": [{"name": "engine", "volumeMounts": [{"mountPath": "/a", "name": "a"}]}],
            "x": [1],
        }
    }
    above = {
        "spec": {
            "containers": [
                {"name": "engine", "volumeMounts": [{"mountPath": "/a", "readOnly": True}, {"mountPath": "/b", "name": "b"}]},
                {"name": "side", "image": "i"},
            ],
            "x": [2],
        }
    }  # fmt: skip
    merged = apply(below, above)
    assert merged["spec"]["containers"][0]["volumeMounts"] == [
        {"mountPath": "/a", "name": "a", "readOnly": True},
        {"mountPath": "/b", "name": "b"},
    ]
    assert [c["name"] for c in merged["spec"]["containers"]] == ["engine", "side"]
    assert merged["spec"]["x"] == [2]
    assert below["spec"]["containers"][0]["volumeMounts"] == [{"mountPath": "/a", "name": "a"}]
    assert apply(below, {}) == below


def test_what_the_plan_cannot_count_is_told_and_not_refused() -> None:
    """Host ports let one engine run on a node; a network device beside the GPUs is none of the plan's."""
    host = problems({"podTemplate": {"spec": {"hostNetwork": True}}})
    assert host == [("spec.podTemplate.spec.hostNetwork", NOT_COVERED, False)]
    rdma = {"name": "engine", "resources": {"limits": {"nvidia.com/hostdev": "1"}}}
    assert [blocking for _, _, blocking in problems({"podTemplate": {"spec": {"containers": [rdma]}}})] == [
        False
    ]

"""Every rendered object on a real API server: accepted strictly, kept as written, and quiet when applied again."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from harness.cluster import Cluster, CommandError
from harness.crds import gateway_crds
from render.cases import CASES
from render.planbuilder import service
from shardwright.render.digest import revision_hash
from shardwright.render.manifests import render
from shardwright.render.request import RenderRequest

pytestmark = pytest.mark.cluster


def lost(want: object, have: object, path: str = "") -> list[str]:
    """List what of `want` reads back differently; the server may add fields, never change ours."""
    if isinstance(want, dict):
        have = have if isinstance(have, dict) else {}
        return [
            found
            for key, value in want.items()
            for found in (lost(value, have[key], f"{path}.{key}") if key in have else [f"{path}.{key}"])
        ]
    if isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
        pairs = enumerate(zip(want, have, strict=True))
        return [found for index, (a, b) in pairs for found in lost(a, b, f"{path}[{index}]")]
    return [] if want == have else [f"{path}: {want!r} became {have!r}"]


def objects_of(case: str, namespace: str) -> list[dict[str, Any]]:
    """Render a case without owner, or the garbage collector would take it away. No replicas, no PodMonitor."""
    spec, plan, _, nodes = CASES[case]
    owner = service(spec)
    metadata = owner.metadata.model_copy(update={"uid": "", "namespace": namespace})
    owner = owner.model_copy(update={"metadata": metadata})
    chosen = replace(plan, replicas=0)
    request = RenderRequest(
        service=owner,
        revision_hash=revision_hash(owner.spec, chosen),
        replicas=0,
        plan=chosen,
        preferred_nodes=nodes,
    )
    return list(render(request))


def apply(cluster: Cluster, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    text = yaml.safe_dump_all(objects)
    command = (
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=shardwright",
        "--validate=strict",
    )
    applied = cluster.kubectl(*command, "-o", "yaml", "-f", "-", stdin=text)
    found = yaml.safe_load(applied)
    return found["items"] if found["kind"] == "List" else [found]


@pytest.fixture(scope="module", autouse=True)
def crds(cluster: Cluster) -> None:
    """Let the real schemas check what leads from a Gateway."""
    cluster.define(*gateway_crds())


@pytest.mark.parametrize("case", CASES)
def test_objects_are_kept_as_written(cluster: Cluster, namespace: str, case: str) -> None:
    objects = objects_of(case, namespace)
    first = apply(cluster, objects)
    assert [
        f"{o['kind']}{path}" for o, live in zip(objects, first, strict=True) for path in lost(o, live)
    ] == []
    second = apply(cluster, objects)
    for before, after in zip(first, second, strict=True):
        if before["kind"] in {"Deployment", "PodDisruptionBudget"}:  # their status moves by itself
            assert before["metadata"]["generation"] == after["metadata"]["generation"]
        else:
            assert before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("case", "violation"),
    [
        ("8b-tp1-hub", ""),
        ("70b-tp4-token", ""),
        ("uri", ""),
        ("pcie-tp4", ""),
        ("pvc", "hostPath"),
        ("amd", "runAsNonRoot"),
    ],
)
def test_pods_meet_the_restricted_standard(
    cluster: Cluster, namespace: str, case: str, violation: str
) -> None:
    """All but a HostPath cache and the ROCm image, whose user is not known."""
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    template = next(o for o in objects_of(case, namespace) if o["kind"] == "Deployment")["spec"]["template"]
    spec = {key: value for key, value in template["spec"].items() if key != "priorityClassName"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "engine", "namespace": namespace} | template["metadata"],
        "spec": spec | {"serviceAccountName": "default"},
    }
    if violation:
        with pytest.raises(CommandError, match=violation):
            cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))
    else:
        cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))

"""Bad input that only the cluster can judge: a condition that names the field, and nothing that runs is torn down.

Each case is given to a new service, which must get no child, and as an edit to one that serves, whose pod must stay.
"""

import contextlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from controller_world import SERVICES, SMALL, World, world_of
from harness.api import ApiError, Json
from harness.cluster import Cluster
from harness.waiting import wait_until
from operator_process import OperatorProcess

pytestmark = pytest.mark.cluster

MODEL: Json = {"id": SMALL, "maxContextTokens": 8192}
CONFIG_MAPS = {
    "not-json": {"config.json": "{not json"},
    "a-list": {"config.json": "[1, 2]"},
    "no-layers": {"config.json": json.dumps({"model_type": "llama", "hidden_size": 4096})},
    "other-key": {"model.json": "{}"},
}


@dataclass(frozen=True)
class Case:
    """A change of the spec, and what it must be told."""

    name: str
    spec: Json
    reason: str
    words: tuple[str, ...]
    condition: str = "Accepted"
    model: Json = field(default_factory=dict)

    def service(self, world: World, name: str) -> Json:
        made = world.service(name, **self.spec)
        made["spec"]["model"] = self.model or MODEL
        return made


def config(name: str) -> Json:
    reference = {"name": name, "key": "config.json"}
    return {"id": "some/model", "maxContextTokens": 4096, "config": {"configMapRef": reference}}


CASES = (
    Case("unknown model", {}, "UnknownModel", ("spec.model.id", "config"), model={"id": "some/model"}),
    Case(
        "config is not JSON", {}, "InvalidModelConfig", ("not-json", "config.json"), model=config("not-json")
    ),
    Case("config is a list", {}, "InvalidModelConfig", ("a-list", "config.json"), model=config("a-list")),
    Case(
        "config lacks fields",
        {},
        "InvalidModelConfig",
        ("no-layers", "num_attention_heads"),
        model=config("no-layers"),
    ),
    Case(
        "config of another key",
        {},
        "InvalidModelConfig",
        ("other-key", "config.json"),
        model=config("other-key"),
    ),
    Case(
        "no ConfigMap",
        {},
        "MissingConfigMap",
        ("spec.model.config.configMapRef", "ConfigMap none"),
        model=config("none"),
    ),
    Case(
        "no Secret",
        {},
        "MissingSecret",
        ("spec.model.source.hub.tokenSecretRef", "Secret hf"),
        model=MODEL | {"source": {"type": "Hub", "hub": {"tokenSecretRef": {"name": "hf", "key": "token"}}}},
    ),
    Case(
        "no claim of a cache",
        {},
        "MissingClaim",
        ("spec.model.cache.claimName", "PersistentVolumeClaim none"),
        model=MODEL | {"cache": {"type": "PVC", "claimName": "none"}},
    ),
    Case(
        "no claim of a source",
        {},
        "MissingClaim",
        ("spec.model.source.pvc.claimName", "PersistentVolumeClaim none"),
        model=MODEL | {"source": {"type": "PVC", "pvc": {"claimName": "none", "path": "model"}}},
    ),
    Case(
        "a cache for one node",
        {"scaling": {"minReplicas": 2, "maxReplicas": 2}},
        "CacheNotShareable",
        ("spec.model.cache.claimName: claim one-node is ReadWriteOnce", "ReadWriteMany"),
        model=MODEL | {"cache": {"type": "PVC", "claimName": "one-node"}},
    ),
    Case(
        "unknown product",
        {"pool": {"gpuProducts": ["NVIDIA-X900"]}},
        "UnknownGPUProduct",
        ("pool.gpuProducts", "NVIDIA-X900"),
        "Planned",
    ),
    Case(
        "illegal pin",
        {"parallelism": {"tensor": 3}},
        "IllegalParallelism",
        ("parallelism.tensor 3", "1, 2, 4"),
        "Planned",
    ),
    Case(
        "context longer than the model's",
        {},
        "ContextTooLong",
        ("maxContextTokens", "131072"),
        "Planned",
        model={"id": SMALL, "maxContextTokens": 200000},
    ),
    Case(
        "FP8 where there is none",
        {},
        "NumberFormatUnsupported",
        ("allowedKVCacheDtypes", "A6000"),
        "Planned",
        model=MODEL | {"allowedKVCacheDtypes": ["FP8"]},
    ),
    Case(
        "a format that the checkpoint does not have",
        {},
        "QuantizationMismatch",
        ("quantization", "FP8"),
        "Planned",
        model=MODEL | {"quantization": "FP8"},
    ),
    Case("no node", {"pool": {"nodeSelector": {"no": "such"}}}, "NoUsableGPUs", ("nodeSelector",), "Planned"),
)


@pytest.fixture(scope="module")
def served(cluster: Cluster, operator: OperatorProcess) -> Iterator[tuple[World, set[str]]]:
    """One service that serves, for all cases."""
    namespace = f"bad-input-{secrets.token_hex(3)}"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    with world_of(cluster, operator, namespace) as world:
        maps = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": namespace},
                "data": data,
            }
            for name, data in CONFIG_MAPS.items()
        ]
        cluster.apply(*maps)
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        world.cluster.api.post(
            f"/api/v1/namespaces/{namespace}/persistentvolumeclaims",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "one-node"},
                "spec": claim,
            },
        )
        world.add_node("a")
        world.apply(world.service("chat"))
        world.ready("chat")
        yield world, {pod["metadata"]["uid"] for pod in world.pods()}
    cluster.api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input_is_told_and_what_serves_goes_on(served: tuple[World, set[str]], case: Case) -> None:
    world, pods = served
    world.apply(case.service(world, "new"))
    world.apply(case.service(world, "chat"))
    for name in ("new", "chat"):
        told = world.until(name, case.condition, "False", case.reason)
        assert [word for word in case.words if word not in told["message"]] == [], told["message"]
        assert world.conditions(name)["Ready"]["reason"] == case.reason
    assert world.is_("chat", "Available", "True")
    assert world.is_("new", "Available", "False")
    assert world.children("new") == {}
    assert {pod["metadata"]["uid"] for pod in world.pods()} == pods
    world.cluster.api.delete(f"{SERVICES.format(world.namespace)}/new")
    world.apply(world.service("chat"))
    world.ready("chat")
    assert {pod["metadata"]["uid"] for pod in world.pods()} == pods


def test_a_node_of_an_unknown_product_is_named(served: tuple[World, set[str]]) -> None:
    world, _ = served
    unknown = world.add_node("unknown")
    label = {"nvidia.com/gpu.product": "NVIDIA-X900", "test.shardwright.dev/ns": f"{world.namespace}-x"}
    world.cluster.api.merge(f"/api/v1/nodes/{unknown}", {"metadata": {"labels": label}})
    world.apply(
        world.service("other", pool={"nodeSelector": {"test.shardwright.dev/ns": f"{world.namespace}-x"}})
    )
    told = world.until("other", "Planned", "False", "UnknownGPUProduct")["message"]
    assert "NVIDIA-X900" in told
    assert "nvidia.com/gpu.product" in told
    world.cluster.api.delete(f"{SERVICES.format(world.namespace)}/other")


def quota(world: World, name: str, **hard: str) -> str:
    path = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    made = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {"hard": {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}},
    }
    world.cluster.api.post(path, made)
    wait_until(
        lambda: world.cluster.api.get(f"{path}/{name}")["status"].get("hard"), "the quota to be counted"
    )
    return f"{path}/{name}"


def test_a_quota_on_children_is_told_and_the_service_comes_once_it_is_raised(
    served: tuple[World, set[str]],
) -> None:
    world, pods = served
    path = quota(world, "few", count__deployments_apps="1")
    world.apply(world.service("over"))
    told = world.until("over", "Accepted", "False", "QuotaExceeded")["message"]
    assert "few" in told
    assert "deployments.apps" in told
    world.until("over", "Stalled", "True")
    assert world.deployments("over") == []
    world.cluster.api.delete(path)
    world.ready("over")
    world.cluster.api.delete(f"{SERVICES.format(world.namespace)}/over")
    assert pods <= {pod["metadata"]["uid"] for pod in world.pods()}


def test_a_quota_on_gpus_is_told(served: tuple[World, set[str]]) -> None:
    world, pods = served
    path = quota(world, "gpus", requests_nvidia_com__gpu="1")
    world.apply(world.service("over"))
    told = world.until("over", "Degraded", "True", "QuotaExceeded")["message"]
    assert "gpus" in told
    assert world.is_("over", "Ready", "False", "QuotaExceeded")
    world.cluster.api.delete(path)
    world.apply(world.service("chat"))
    assert pods <= {pod["metadata"]["uid"] for pod in world.pods()}
    world.cluster.api.delete(f"{SERVICES.format(world.namespace)}/over")


POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@contextlib.contextmanager
def forbidden_deployments(world: World, prefix: str) -> Iterator[None]:
    """Forbid Deployments of a name, as a cluster's own policies do, and wait until that is in force."""
    name = f"forbid-{world.namespace}"
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["deployments"],
    }
    validation = {
        "expression": f"!object.metadata.name.startsWith('{prefix}')",
        "message": "not in this namespace",
        "reason": "Forbidden",
    }
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": where}
    made = {"ValidatingAdmissionPolicy": (POLICIES, policy)}
    made["ValidatingAdmissionPolicyBinding"] = (BINDINGS, binding)
    api = world.cluster.api
    for kind, (path, spec) in made.items():
        head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
        api.post(path, head | {"spec": spec})
    labels = {"app": "probe"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    probe = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{prefix}probe", "namespace": world.namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    }

    def in_force() -> bool:
        try:
            api.post(f"/apis/apps/v1/namespaces/{world.namespace}/deployments?dryRun=All", probe)
        except ApiError as error:
            return error.status == 403
        return False

    try:
        wait_until(in_force, "the policy in force")
        yield
    finally:
        for path, _ in made.values():
            api.delete(f"{path}/{name}")


def test_a_policy_that_forbids_a_child_is_told_and_the_service_comes_once_it_is_gone(
    served: tuple[World, set[str]],
) -> None:
    world, pods = served
    with forbidden_deployments(world, "over-"):
        world.apply(world.service("over"))
        told = world.until("over", "Accepted", "False", "WriteForbidden")["message"]
        assert "not in this namespace" in told
        world.until("over", "Stalled", "True")
        assert world.deployments("over") == []
    world.ready("over")
    world.cluster.api.delete(f"{SERVICES.format(world.namespace)}/over")
    assert pods <= {pod["metadata"]["uid"] for pod in world.pods()}

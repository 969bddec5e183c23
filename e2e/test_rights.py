"""The operator uses every right that the chart gives it, and asks for no other: counted in the API server's audit log.

A control plane of its own, because the audit policy is a flag of the API server.
"""

import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
import yaml

from harness import nodes
from harness.api import ApiError, Json
from harness.cluster import Cluster
from harness.crds import gateway_crds
from harness.waiting import wait_until
from operator_process import NAMESPACE, OperatorProcess

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parent.parent
RIGHTS = yaml.safe_load((ROOT / "charts/shardwright/files/rights.yaml").read_text())
USER = f"system:serviceaccount:{NAMESPACE}:shardwright"
FORBIDDEN = 403
CREATED = 201

Right = tuple[str, str, str]

POD_MONITORS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podmonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "PodMonitor", "listKind": "PodMonitorList", "plural": "podmonitors"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def cluster(audit_log: Path) -> Iterator[Cluster]:
    """Start a control plane that records the operator's requests; the fixture `namespace` uses it too."""
    policy = audit_log.with_name("policy.yaml")
    rules = [{"level": "Metadata", "users": [USER]}, {"level": "None"}]
    document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}
    policy.write_text(yaml.safe_dump(document | {"omitStages": ["RequestReceived"]}))
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={audit_log}", "--audit-log-mode=blocking")
    with Cluster(apiserver_args=flags) as running:
        yield running


def requests(audit_log: Path) -> Iterator[tuple[Right, int]]:
    """Give each request for a resource as the right it needs, with the answer's code."""
    for line in audit_log.read_text().splitlines():
        entry = json.loads(line)
        target = entry.get("objectRef", {})
        if "resource" not in target:
            continue  # discovery, which every account may read
        resource = target["resource"] + (f"/{target['subresource']}" if "subresource" in target else "")
        code = entry.get("responseStatus", {}).get("code", 0)
        group = target.get("apiGroup", "")
        yield (group, resource, entry["verb"]), code
        if entry["verb"] == "patch" and code == CREATED:
            # Server-side apply of an object that did not exist: the server asks for both.
            yield (group, resource, "create"), code


ELSEWHERE: set[Right] = {("", "pods", "patch")}
"""Asked for by the figures of engines, which no pod has here: test_live_canary.py has them."""


def granted() -> set[Right]:
    return {
        triple
        for group in RIGHTS.values()
        for rule in group
        for triple in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


def service(namespace: str, tokens: int) -> Json:
    """Name one object of each kind that a service may refer to."""
    return {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": {
            "model": {
                "id": "meta-llama/Llama-3.1-8B-Instruct",
                "maxContextTokens": tokens,
                "source": {"type": "Hub", "hub": {"tokenSecretRef": {"name": "hub", "key": "token"}}},
                "cache": {"type": "PVC", "claimName": "cache"},
                "chatTemplate": {"configMapRef": {"name": "template", "key": "chat.jinja"}},
            },
            "pool": {"maxGPUs": 2, "priorityClassName": "models"},
            "scaling": {"minReplicas": 2, "maxReplicas": 2},
        },
    }


def referred(namespace: str) -> list[Json]:
    metadata = {"namespace": namespace}
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "models"},
            "value": 7,
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata | {"name": "hub"},
            "stringData": {"token": "t"},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata | {"name": "template"},
            "data": {"chat.jinja": "{{ messages }}"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "cache"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "capacity": {"storage": "100Gi"},
                "hostPath": {"path": "/cache"},
                "claimRef": {"namespace": namespace, "name": "cache"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata | {"name": "cache"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "100Gi"}},
                "storageClassName": "",
            },
        },
    ]


def names(cluster: Cluster, namespace: str, plural: str) -> list[str]:
    found = cluster.api.get(f"/apis/apps/v1/namespaces/{namespace}/{plural}")["items"]
    return sorted(item["metadata"]["name"] for item in found)


def gone(probe: Callable[[], object]) -> bool:
    try:
        probe()
    except ApiError as error:
        return error.status == 404
    return False


def test_what_is_granted_is_what_is_used(cluster: Cluster, namespace: str, audit_log: Path) -> None:
    cluster.define(POD_MONITORS, *gateway_crds())
    cluster.apply(*nodes.demo_pool(), *referred(namespace))
    path = f"/apis/shardwright.dev/v1alpha1/namespaces/{namespace}/llmservices/chat"
    values = ("rbac.markNodes=true", "rbac.gateways=true")
    with OperatorProcess(cluster, values=values, arguments=("--mark-nodes", "--gateways")) as operator:
        assert operator.user == USER
        # A second generation, so that a workload goes; and enough of them, so that the history is trimmed.
        for tokens in range(4096, 4096 + 8 * 256, 256):
            cluster.apply(service(namespace, tokens))
            wait_until(lambda: settled(cluster.api.get(path)), f"the plan for {tokens} tokens")
        wait_until(lambda: len(names(cluster, namespace, "deployments")) == 1, "the last workload alone")
        wait_until(lambda: len(names(cluster, namespace, "controllerrevisions")) < 8, "a trimmed history")
        replace_jobs(cluster, namespace, path)
        # Routers, made and taken away.
        for kind, count in (("Router", 2), ("Service", 1)):
            cluster.api.merge(path, {"spec": {"routing": {"type": kind}}})
            wait_until(lambda: len(names(cluster, namespace, "deployments")) == count, kind)  # noqa: B023
            wait_until(lambda: settled(cluster.api.get(path)), f"the service by {kind}")
        # The way from a Gateway, made and taken away.
        reference = {"name": "inference", "endpointPicker": {"name": "picker"}}
        gateway = {"type": "Gateway", "gatewayRef": reference}
        routes = f"/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/httproutes/chat"
        pools = f"/apis/inference.networking.k8s.io/v1/namespaces/{namespace}/inferencepools/chat"
        cluster.api.merge(path, {"spec": {"routing": gateway}})
        wait_until(lambda: settled(cluster.api.get(path)), "the service by a Gateway")
        (backend,) = cluster.api.get(routes)["spec"]["rules"][0]["backendRefs"]
        assert (backend["kind"], backend["name"]) == ("InferencePool", "chat")
        assert cluster.api.get(pools)["spec"]["endpointPickerRef"]["name"] == "picker"
        cluster.api.merge(path, {"spec": {"routing": {"gatewayRef": {"endpointPicker": None}}}})
        wait_until(lambda: gone(lambda: cluster.api.get(pools)), "the end of the InferencePool")
        assert cluster.api.get(routes)["spec"]["rules"][0]["backendRefs"][0]["kind"] == "Service"
        cluster.api.merge(path, {"spec": {"routing": {"type": "Service", "gatewayRef": None}}})
        wait_until(lambda: gone(lambda: cluster.api.get(routes)), "the end of the HTTPRoute")
        fail_gpus(cluster, namespace)
        cluster.api.delete(path)
        wait_until(lambda: gone(lambda: cluster.api.get(path)), "the end of the service")

    seen = list(requests(audit_log))
    refused = {right for right, code in seen if code == FORBIDDEN}
    assert not refused, "the chart does not grant this"
    used = {right for right, _ in seen}
    assert not granted() - used - ELSEWHERE, "the chart grants this and nobody uses it"


def replace_jobs(cluster: Cluster, namespace: str, service: str) -> None:
    """Ask for other weights while a Job still fetches those that were asked for before."""
    label = "kwok.shardwright.test/never-ready"
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    seen: set[str] = set()

    def another() -> set[str]:
        """Give the one Job that runs, when it is none of those that were seen."""
        found = cluster.api.get(jobs)["items"]
        running = {job["metadata"]["uid"] for job in found if not job["status"].get("succeeded")}
        return running if len(running) == 1 and not running & seen else set()

    cluster.break_namespace(namespace, never_ready="true")
    for revision in ("v2", "v3"):
        cluster.api.merge(service, {"spec": {"model": {"revision": revision}}})
        seen |= wait_until(another, f"the Job of {revision} alone")
    cluster.api.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {label: None}}})
    cluster.api.merge(service, {"spec": {"model": {"revision": None}}})
    wait_until(lambda: settled(cluster.api.get(service)), "what ran before")


def fail_gpus(cluster: Cluster, namespace: str) -> None:
    """Let engines end with the words of a broken GPU, until their node gets no new pods."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    label = "shardwright.dev/gpu-fault"

    def engines() -> dict[str, Json]:
        found = cluster.api.get(path)["items"]
        return {
            pod["metadata"]["name"]: pod
            for pod in found
            if pod["metadata"]["labels"].get("shardwright.dev/role") == "engine"
            and "deletionTimestamp" not in pod["metadata"]
            and pod["status"].get("containerStatuses")
        }

    wait_until(lambda: len(engines()) == 2, "two engines")
    said = "CUDA error: uncorrectable ECC error encountered"
    for name, pod in engines().items():
        (container,) = pod["status"]["containerStatuses"]
        ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": said}}
        status = {"containerStatuses": [container | {"ready": False, "state": ended}]}
        cluster.api.merge(f"{path}/{name}/status", {"status": status})
        wait_until(lambda name=name: name not in engines(), f"the end of {name}")
    marked = [
        node["metadata"]["name"]
        for node in cluster.api.get("/api/v1/nodes")["items"]
        if label in node["metadata"]["labels"]
    ]
    assert marked == [pod["spec"]["nodeName"]], "both ran there"
    cluster.api.merge(f"/api/v1/nodes/{marked[0]}", {"metadata": {"labels": {label: None}}})


def settled(found: Json) -> bool:
    """Tell whether the latest generation is served and fully out."""
    status, generation = found["status"], found["metadata"]["generation"]
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
    return bool(ready and status["observedGeneration"] == generation)


@pytest.fixture
def profile(cluster: Cluster) -> Iterator[None]:
    """Take away what another profile granted to the same account, before and after."""
    kinds = "clusterrole,clusterrolebinding,role,rolebinding"
    command = ("delete", kinds, "-A", "-l", "app.kubernetes.io/name=shardwright", "--ignore-not-found")
    cluster.kubectl(*command)
    yield
    cluster.kubectl(*command)


def plain(namespace: str) -> Json:
    return {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": "plain", "namespace": namespace},
        "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "pool": {"maxGPUs": 1}},
    }


def serve(
    cluster: Cluster, namespace: str, audit_log: Path, values: tuple[str, ...], *arguments: str
) -> None:
    """Run the operator with one profile's rights: it serves its namespace, leaves another alone, is refused nothing."""
    mark = len(list(requests(audit_log))) if audit_log.exists() else 0
    cluster.apply(*nodes.demo_pool())
    operator = OperatorProcess(
        cluster,
        values=("scope=Namespaced", f"namespaces={{{namespace}}}", *values),
        arguments=("--namespace", namespace, *arguments),
    )
    with operator:
        cluster.apply(plain("default"), plain(namespace))
        own = f"/apis/shardwright.dev/v1alpha1/namespaces/{namespace}/llmservices/plain"
        wait_until(lambda: settled(cluster.api.get(own)), "the service")
        other = "/apis/shardwright.dev/v1alpha1/namespaces/default/llmservices/plain"
        assert cluster.api.get(other)["status"]["observedGeneration"] == -1
        cluster.api.delete(other)
    seen = list(requests(audit_log))[mark:]
    assert seen
    assert not {right for right, code in seen if code == FORBIDDEN}


@pytest.mark.usefixtures("profile")
def test_the_namespaced_profile_suffices(cluster: Cluster, namespace: str, audit_log: Path) -> None:
    serve(cluster, namespace, audit_log, ())


@pytest.mark.usefixtures("profile")
def test_a_declared_pool_suffices(cluster: Cluster, namespace: str, audit_log: Path) -> None:
    items = [
        {
            "metadata": {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"]},
            "spec": {"taints": node.get("spec", {}).get("taints", [])},
            "status": {
                "allocatable": node["status"]["allocatable"],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for node in nodes.demo_pool()
        if not node.get("spec", {}).get("unschedulable")
    ]
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "gpu-pool", "namespace": namespace},
            "data": {"nodes.yaml": yaml.safe_dump({"items": items})},
        }
    )
    values = ("nodeAccess=false", "poolConfigMap.name=gpu-pool", f"poolConfigMap.namespace={namespace}")
    serve(cluster, namespace, audit_log, values, "--pool-config-map", f"{namespace}/gpu-pool")

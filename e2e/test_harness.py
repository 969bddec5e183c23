"""The local control plane itself: what every other end-to-end test relies on."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from harness.api import Api, ApiError, Json
from harness.cluster import Cluster
from harness.crds import gateway_crds
from harness.nodes import GPU_RESOURCE, Manifest
from harness.processes import is_alive
from harness.waiting import wait_until

pytestmark = pytest.mark.cluster
READY_AFTER = "kwok.shardwright.test/ready-after"
NEVER_READY = "kwok.shardwright.test/never-ready"
FAIL = "kwok.shardwright.test/fail"


def deployment(
    name: str,
    namespace: str,
    *,
    product: str,
    gpus: int,
    replicas: int = 1,
    annotations: dict[str, str] | None = None,
) -> Manifest:
    on_product = {"key": "nvidia.com/gpu.product", "operator": "In", "values": [product]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [on_product]}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
                "spec": {
                    "affinity": {
                        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
                    },
                    "containers": [
                        {
                            "name": "engine",
                            "image": "engine:1",
                            "resources": {"limits": {GPU_RESOURCE: str(gpus)}},
                        }
                    ],
                },
            },
        },
    }


def pods(cluster: Cluster, namespace: str) -> list[Json]:
    return list(cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"])


def ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def unschedulable(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


def wait_for_pods(
    cluster: Cluster, namespace: str, count: int, condition: Callable[[Json], bool] = ready
) -> list[Json]:
    def probe() -> list[Json] | None:
        found = [pod for pod in pods(cluster, namespace) if condition(pod)]
        return found if len(found) == count else None

    found = wait_until(probe, f"{count} pods in {namespace}")
    assert found is not None
    return found


@pytest.mark.usefixtures("demo_nodes")
def test_scheduler_places_pods_by_gpu_label_and_capacity(cluster: Cluster, namespace: str) -> None:
    cluster.apply(deployment("big", namespace, product="NVIDIA-H100-80GB-HBM3", gpus=8, replicas=3))
    # Eight free GPUs, no taint, not cordoned: of seven H100 nodes that is h100-2 alone. The controller makes
    # one pod first and the others a moment later, so it is the scheduler's refusal that is waited for.
    wait_for_pods(cluster, namespace, 2, unschedulable)
    assert [pod["spec"]["nodeName"] for pod in wait_for_pods(cluster, namespace, 1)] == ["h100-2"]
    assert len(pods(cluster, namespace)) == 3


@pytest.mark.usefixtures("demo_nodes")
def test_pod_runs_before_it_is_ready_when_it_loads_a_model(cluster: Cluster, namespace: str) -> None:
    annotations = {READY_AFTER: "3s"}
    cluster.apply(deployment("slow", namespace, product="NVIDIA-L40S", gpus=1, annotations=annotations))
    [pod] = wait_for_pods(cluster, namespace, 1)
    ready_at = next(c["lastTransitionTime"] for c in pod["status"]["conditions"] if c["type"] == "Ready")
    running_at = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    took = datetime.fromisoformat(ready_at) - datetime.fromisoformat(running_at)
    assert took >= timedelta(seconds=2), "whole seconds are written"


@pytest.mark.usefixtures("demo_nodes")
def test_failure_by_annotation_and_recovery(cluster: Cluster, namespace: str) -> None:
    annotations = {FAIL: "OOMKilled"}
    cluster.apply(deployment("oom", namespace, product="NVIDIA-L40S", gpus=1, annotations=annotations))

    def crashed(pod: Json) -> bool:
        statuses = pod["status"].get("containerStatuses", [])
        return any(each["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff" for each in statuses)

    pod = wait_for_pods(cluster, namespace, 1, crashed)[0]
    last = pod["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (last["reason"], last["exitCode"]) == ("OOMKilled", 137)
    cluster.kubectl("annotate", "pods", "-n", namespace, "--all", f"{FAIL}-")
    wait_for_pods(cluster, namespace, 1)


@pytest.mark.usefixtures("demo_nodes")
def test_namespace_label_breaks_pods_whose_template_is_not_ours(cluster: Cluster, namespace: str) -> None:
    cluster.break_namespace(namespace, never_ready="true")
    cluster.apply(deployment("never", namespace, product="NVIDIA-L40S", gpus=1))
    pod = wait_for_pods(cluster, namespace, 1, lambda pod: pod["status"]["phase"] == "Running")[0]
    assert pod["metadata"]["annotations"][NEVER_READY] == "true"
    assert not ready(pod)


def test_service_account_may_do_what_rbac_gives_and_no_more(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    path = cluster.service_account_kubeconfig(namespace, "reader")
    api = Api(path)
    with pytest.raises(ApiError) as refused:
        api.get(f"/api/v1/namespaces/{namespace}/pods")
    assert refused.value.status == 403
    cluster.kubectl("create", "role", "reader", "-n", namespace, "--verb=list", "--resource=pods")
    subject = f"--serviceaccount={namespace}:reader"
    cluster.kubectl("create", "rolebinding", "reader", "-n", namespace, "--role=reader", subject)
    assert wait_until(lambda: api.get(f"/api/v1/namespaces/{namespace}/pods"), "RBAC")["items"] == []
    answer = cluster.kubectl("delete", "pods", "--all", "-n", namespace, check=False, kubeconfig=path)
    assert answer.startswith("No resources found")
    with pytest.raises(ApiError, match="403"):
        api.delete(f"/api/v1/namespaces/{namespace}/pods")
    api.close()


@pytest.mark.usefixtures("demo_nodes")
def test_node_goes_silent_and_comes_back(cluster: Cluster) -> None:
    def taints() -> list[str]:
        return [each["key"] for each in cluster.api.get("/api/v1/nodes/a100-1")["spec"].get("taints", [])]

    cluster.kubectl("annotate", "node", "a100-1", "kwok.shardwright.test/lost=true")
    wait_until(lambda: "node.kubernetes.io/unreachable" in taints(), "the taint")
    cluster.kubectl("annotate", "node", "a100-1", "kwok.shardwright.test/lost-")
    wait_until(lambda: not taints(), "the end of the taint")


@pytest.mark.usefixtures("demo_nodes")
def test_work_goes_on_after_an_outage_of_the_api_server(cluster: Cluster, namespace: str) -> None:
    with cluster.without_apiserver(), pytest.raises(ConnectionError, match="refused"):
        cluster.api.get("/readyz")
    cluster.apply(deployment("after", namespace, product="NVIDIA-RTX-A6000", gpus=1, replicas=2))
    wait_for_pods(cluster, namespace, 2)


def test_what_is_defined_is_served_at_once_also_after_an_outage(cluster: Cluster) -> None:
    """An API server that has just started answers the first request for it with 429, which nobody may have to expect."""
    definitions = gateway_crds()
    cluster.define(*definitions)
    paths = [f"/apis/{d['spec']['group']}/v1/{d['spec']['names']['plural']}" for d in definitions]
    assert [cluster.api.get(path)["items"] for path in paths] == [[], []]
    with cluster.without_apiserver():
        pass
    assert [cluster.api.get(path)["items"] for path in paths] == [[], []]


def test_a_fault_of_a_namespace_is_in_force_at_once_and_so_is_its_end(
    cluster: Cluster, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = {"containers": [{"name": "main", "image": "none"}]}

    def faults(name: str) -> Json:
        return cluster.api.post(pods, {"metadata": {"name": name}, "spec": spec})["metadata"].get(
            "annotations", {}
        )

    for number in range(5):
        cluster.break_namespace(namespace, never_ready="true")
        assert faults(f"broken-{number}")[NEVER_READY] == "true"
        cluster.mend_namespace(namespace, "never-ready")
        assert not faults(f"whole-{number}")
    found = cluster.api.get(pods)["items"]
    assert len(found) == 10
    assert not [pod for pod in found if NEVER_READY in pod["metadata"].get("annotations", {})]


def test_two_clusters_know_nothing_of_each_other_and_stop_leaves_nothing(cluster: Cluster) -> None:
    with Cluster() as other:
        pids = list(other.pids.values())
        assert len(pids) == 5
        assert not set(pids) & set(cluster.pids.values())
        assert other.server_url != cluster.server_url
        intruder = _with_token_of(cluster, other)
        with pytest.raises(ApiError, match="401"):
            intruder.get("/api/v1/nodes")
        intruder.close()
    assert not any(is_alive(pid) for pid in pids)
    assert not other.state_dir.exists()


def _with_token_of(issuer: Cluster, target: Cluster) -> Api:
    """Log in at one cluster with a token of another."""
    foreign = issuer.service_account_kubeconfig("default", "default").read_text()
    own = target.service_account_kubeconfig("default", "default")
    token = next(line for line in foreign.splitlines() if "token:" in line)
    lines = [token if "token:" in line else line for line in own.read_text().splitlines()]
    mixed = target.state_dir / "mixed.kubeconfig"
    mixed.write_text("\n".join(lines))
    return Api(mixed)

"""What the tests of the controller share: one test's namespace and nodes, and the operator that looks after them.

It decides nothing about the operator: it applies, reads and waits.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from harness import nodes
from harness.api import ApiError, Json
from harness.cluster import Cluster
from harness.processes import ProcessError
from harness.waiting import PATIENCE_S, wait_until
from operator_process import OperatorProcess
from shardwright.api.names import FIELD_MANAGER, STATUS_FIELD_MANAGER

SERVICES = "/apis/shardwright.dev/v1alpha1/namespaces/{}/llmservices"
CHILDREN = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}
MANAGERS = {FIELD_MANAGER, STATUS_FIELD_MANAGER}
OURS = "labelSelector=app.kubernetes.io/managed-by=shardwright"
SMALL = "meta-llama/Llama-3.1-8B-Instruct"
A6000 = "NVIDIA-RTX-A6000"


@contextlib.contextmanager
def running_operator(cluster: Cluster) -> Iterator[OperatorProcess]:
    """Install the rights and run the operator."""
    process = OperatorProcess(cluster)
    install(process)
    with process:
        yield process


def install(process: OperatorProcess) -> None:
    """`kubectl wait` fails when it sees a CRD before its first condition; then the next attempt sees it."""
    for _ in range(3):
        try:
            process.install()
        except (RuntimeError, ProcessError):
            time.sleep(1)
        else:
            return
    process.install()


@dataclass
class World:
    """One test's namespace and nodes."""

    cluster: Cluster
    operator: OperatorProcess
    namespace: str
    made: list[str]

    def add_node(self, name: str, gpus: int = 4, product: str = A6000) -> str:
        full = f"{self.namespace[-6:]}-{name}"
        node = nodes.gpu_node(full, product, gpus=gpus, labels={"test.shardwright.dev/ns": self.namespace})
        self.cluster.apply(node)
        self.made.append(full)
        wait_until(lambda: self.node_ready(full), f"node {full}")
        return full

    def node_ready(self, name: str) -> bool:
        node = self.cluster.api.get(f"/api/v1/nodes/{name}")
        taints = node["spec"].get("taints") or []
        return not taints and any(
            c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", [])
        )

    def service(self, name: str, *, replicas: int = 1, max_gpus: int = 8, **spec: Json) -> Json:
        body = {
            "model": {"id": SMALL, "maxContextTokens": 8192},
            "pool": {"maxGPUs": max_gpus, "nodeSelector": {"test.shardwright.dev/ns": self.namespace}},
            "scaling": {"minReplicas": replicas, "maxReplicas": replicas},
            "workload": {"profile": "Chat", "concurrency": 4},
        }
        for key, value in spec.items():
            body[key] = (body.get(key) or {}) | value if isinstance(value, dict) else value
        return {
            "apiVersion": "shardwright.dev/v1alpha1",
            "kind": "LLMService",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": body,
        }

    def apply(self, service: Json) -> None:
        self.cluster.api.apply(f"{SERVICES.format(self.namespace)}/{service['metadata']['name']}", service)

    def get(self, name: str) -> Json:
        return self.cluster.api.get(f"{SERVICES.format(self.namespace)}/{name}")

    def conditions(self, name: str) -> dict[str, Json]:
        live = self.get(name)
        status = live.get("status", {})
        if status.get("observedGeneration") != live["metadata"]["generation"]:
            return {}
        return {c["type"]: c for c in status.get("conditions", [])}

    def is_(self, name: str, kind: str, status: str, reason: str | None = None) -> bool:
        return self._condition(name, kind, status, reason) is not None

    def _condition(self, name: str, kind: str, status: str, reason: str | None) -> Json | None:
        found = self.conditions(name).get(kind, {})
        return found if found.get("status") == status and reason in {None, found.get("reason")} else None

    def until(self, name: str, kind: str, status: str, reason: str | None = None) -> Json:
        try:
            return wait_until(lambda: self._condition(name, kind, status, reason), f"{name} {kind}={status}")
        except TimeoutError as late:
            raise AssertionError(f"{late}\n{self.conditions(name)}\n{self.operator.tail()}") from late

    def ready(self, name: str) -> None:
        self.until(name, "Ready", "True")

    def until_event(self, name: str, reason: str) -> None:
        """Wait for an event of a service: it is posted after the status that tells the same."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"

        def posted() -> bool:
            found = self.cluster.api.get(path)["items"]
            return any((e["regarding"]["name"], e["reason"]) == (name, reason) for e in found)

        wait_until(posted, f"the event {reason} of {name}")

    def children(self, name: str | None = None) -> dict[tuple[str, str], Json]:
        found = {}
        for kind, path in CHILDREN.items():
            for item in self.cluster.api.get(f"{path.format(self.namespace)}?{OURS}")["items"]:
                if name is None or item["metadata"]["labels"].get("shardwright.dev/service") == name:
                    found[kind, item["metadata"]["name"]] = item
        return found

    def written(self) -> dict[tuple[str, str], Json]:
        """Give what the operator has written, and when, of each object; what others write is left out.

        Controllers of Kubernetes write statuses after a service is Ready, at any time later on a busy machine.
        """
        found = self.children()
        for item in self.cluster.api.get(SERVICES.format(self.namespace))["items"]:
            found["LLMService", item["metadata"]["name"]] = item
        return {key: _written(item["metadata"]) for key, item in found.items()}

    def pods(self) -> list[Json]:
        return self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]

    def deployments(self, name: str) -> list[Json]:
        return [item for (kind, _), item in self.children(name).items() if kind == "Deployment"]

    def at_rest(self) -> dict[tuple[str, str], Json]:
        """Give what is written once the operator has been quiet for a while; one that goes on writing never rests.

        The while is seconds and a number of looks, which last longer where everything does.
        """
        began = time.monotonic()
        before, since, looks = self.written(), began, 0
        while looks < 12 or time.monotonic() - since < 3:
            assert time.monotonic() - began < PATIENCE_S, f"still being written: {before}"
            time.sleep(0.25)
            now = self.written()
            looks += 1
            if now != before:
                before, since, looks = now, time.monotonic(), 0
        return before


def _written(metadata: Json) -> Json:
    ours = [entry for entry in metadata.get("managedFields", []) if entry["manager"] in MANAGERS]
    return metadata["uid"], metadata.get("generation"), ours


@contextlib.contextmanager
def world_of(cluster: Cluster, operator: OperatorProcess, namespace: str) -> Iterator[World]:
    """Give a test its world, with the operator running, and clear it away afterwards."""
    if not operator.is_running:
        operator.start()
    made: list[str] = []
    yield World(cluster, operator, namespace, made)
    for service in cluster.api.get(SERVICES.format(namespace))["items"]:
        cluster.api.delete(f"{SERVICES.format(namespace)}/{service['metadata']['name']}")
    for name in made:
        with contextlib.suppress(ApiError):
            cluster.api.delete(f"/api/v1/nodes/{name}")


def gone(cluster: Cluster, path: str) -> bool:
    """Whether nothing is at a path; an API server that answers otherwise says nothing of it."""
    try:
        cluster.api.get(path)
    except ApiError as error:
        return error.status == 404
    return False


def is_ready(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", [])
    )

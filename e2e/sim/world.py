"""A world with traffic: a control plane, the node agent and Prometheus in a private network.

It decides how these are started and where their files are. What a test does to it is the test's: nodes, rules,
services, load.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import nodes
from harness.api import Json
from harness.cluster import Cluster
from harness.components import FAKE_NODE_ANNOTATION
from harness.network import GATEWAY, Network
from harness.processes import Process
from harness.waiting import wait_until
from sim.kubelet import rules
from sim.kubelet.container import SOURCES
from sim.kubelet.nodes import LABEL

CONTROL = 9999


@dataclass
class LiveCluster:
    """A control plane whose nodes may run pods. While it lives, the main thread is in its network."""

    cluster: Cluster
    agent: Process
    scale: float
    directory: Path

    def rule(self, *given: dict[str, Any]) -> None:
        """Say how containers behave that start from now on; see `rules.Rules`."""
        rules.write(self.directory / "rules.json", list(given))

    def add_node(self, name: str, product: str, gpus: int = 4, labels: dict[str, str] | None = None) -> str:
        """Make a node that the agent looks after, and wait until pods may be bound to it."""
        self.cluster.apply(agent_node(nodes.gpu_node(name, product, gpus=gpus, labels=labels)))
        wait_until(lambda: self._ready(name), f"node {name}")
        return name

    @property
    def targets(self) -> Path:
        """The list of pods to scrape, for Prometheus' file_sd."""
        return self.directory / "targets.json"

    def log(self, pod: Json, container: str = "engine", restart: int = 0) -> str:
        """Give what a container wrote."""
        path = self.directory / "pods" / pod["metadata"]["uid"] / container / f"{restart}.log"
        return path.read_text() if path.exists() else ""

    def _ready(self, name: str) -> bool:
        self.agent.check()
        node = self.cluster.api.get(f"/api/v1/nodes/{name}")
        return not node["spec"].get("taints") and any(
            c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", [])
        )


def agent_node(manifest: Json) -> Json:
    """Make a node of kwok's one of the agent's."""
    annotations = {k: v for k, v in manifest["metadata"]["annotations"].items() if k != FAKE_NODE_ANNOTATION}
    labels = manifest["metadata"]["labels"] | {LABEL: "true"}
    return manifest | {"metadata": manifest["metadata"] | {"labels": labels, "annotations": annotations}}


@contextlib.contextmanager
def live_cluster(
    directory: Path, *, scale: float = 1.0, programs: dict[str, list[str]] | None = None
) -> Iterator[LiveCluster]:
    """Start it. `scale` is how much faster the pods' time runs; `programs` are what containers may run besides vllm."""
    directory.mkdir(parents=True, exist_ok=True)
    with Network(), Cluster(directory / "cluster", host=GATEWAY) as cluster:
        rules.write(directory / "rules.json", [])
        (directory / "targets.json").write_text("[]")
        argv = [
            *(sys.executable, "-m", "sim.kubelet", "--kubeconfig", str(cluster.kubeconfig)),
            *("--logs", str(directory / "pods"), "--rules", str(directory / "rules.json")),
            *("--targets", str(directory / "targets.json")),
            *("--time-scale", str(scale), "--programs", json.dumps(programs or {})),
        ]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"}
        agent = Process("node-agent", argv, directory / "node-agent.log", environment)
        agent.start()
        try:
            yield LiveCluster(cluster, agent, scale, directory)
        finally:
            agent.stop()

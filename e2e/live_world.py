"""What tests with traffic share: agent nodes, the operator, a Prometheus that scrapes the pods, and clients.

It decides nothing about the operator: it applies, sends and counts. Pods' time, and the engines', runs `scale` times
as fast as the wall's; Prometheus and the operator keep the wall's.
"""

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from controller_world import A6000, SERVICES, World, install, is_ready
from harness.api import ApiError, Json
from harness.prometheus import Prometheus, listed_in
from harness.waiting import wait_until
from operator_process import OperatorProcess
from sim.clients.load import Client
from sim.world import LiveCluster

SCRAPE_S = 1


@dataclass
class LiveWorld(World):
    """One test's namespace, nodes and clients."""

    live: LiveCluster = field(kw_only=True)
    prometheus: Prometheus = field(kw_only=True)

    def add_node(self, name: str, gpus: int = 4, product: str = A6000, **labels: str) -> str:
        full = f"{self.namespace[-6:]}-{name}"
        self.made.append(full)
        own = {f"test.shardwright.dev/{key}": value for key, value in labels.items()}
        return self.live.add_node(full, product, gpus, {"test.shardwright.dev/ns": self.namespace} | own)

    def client(self, service: str, *, seed: int = 0, headers: dict[str, str] | None = None) -> Client:
        """Make a client of a Service: it learns late of pods that come and go."""
        client = Client(service, seed=seed, headers=headers)
        return client.follow(self.cluster.kubeconfig, self.namespace, service, self.live.scale)

    def secret(self, name: str, **content: str) -> None:
        """Make a Secret."""
        made = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": content,
        }
        self.cluster.api.post(f"/api/v1/namespaces/{self.namespace}/secrets", made)

    def serving(self, service: str) -> list[Json]:
        """Give the engine pods of a service that are ready."""
        return self.ready_pods(service, "engine")

    def pods_of(self, service: str, role: str) -> list[Json]:
        """Give all pods of one role, with those that leave."""
        label = f"labelSelector=shardwright.dev/service={service},shardwright.dev/role={role}"
        found: list[Json] = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods?{label}")["items"]
        return found

    def ready_pods(self, service: str, role: str) -> list[Json]:
        """Give the pods of one role that are ready."""
        return [pod for pod in self.pods_of(service, role) if is_ready(pod)]


@contextlib.contextmanager
def measured_operator(
    live: LiveCluster, *arguments: str, environment: dict[str, str] | None = None
) -> Iterator[tuple[OperatorProcess, Prometheus]]:
    """Run Prometheus over all pods, and the operator with its address."""
    with Prometheus(
        live.directory / "prometheus", listed_in(live.targets), scrape_interval_s=SCRAPE_S
    ) as prometheus:
        measured = (
            "--engine-metrics-interval",
            "1",
            "--prometheus-stale",
            "60",
            "--prometheus-url",
            prometheus.url,
        )
        operator = OperatorProcess(
            live.cluster, arguments=(*measured, *arguments), environment=environment or {}
        )
        install(operator)
        with operator:
            yield operator, prometheus


@contextlib.contextmanager
def live_world_of(
    live: LiveCluster, operator: OperatorProcess, prometheus: Prometheus
) -> Iterator[LiveWorld]:
    """Give a test a namespace, and clear away what was in it."""
    name = f"live-{secrets.token_hex(3)}"
    api = live.cluster.api
    api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait_until(lambda: api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"), "the account")
    world = LiveWorld(live.cluster, operator, name, [], live=live, prometheus=prometheus)
    yield world
    live.rule()
    for service in api.get(SERVICES.format(name))["items"]:
        api.delete(f"{SERVICES.format(name)}/{service['metadata']['name']}")
    api.delete(f"/api/v1/namespaces/{name}")
    for node in world.made:
        with contextlib.suppress(ApiError):
            api.delete(f"/api/v1/nodes/{node}")

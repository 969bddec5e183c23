"""What tests of a service behind the real router share: its routers, their lists, and who serves by the EndpointSlices.

It decides nothing about the operator: it reads, changes the spec and breaks engines.
"""

import json
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Self

from controller_world import SERVICES
from harness.api import Json
from harness.waiting import wait_until
from live_world import LiveWorld
from sim.clients.load import Client
from sim.engine.behaviour import CONTROL_PORT

ROUTED = {"routing": {"type": "Router"}, "drain": {"maxSeconds": 120}}
"""Of the spec; the drain is longer than any answer of these tests."""


@dataclass(frozen=True)
class Routed:
    """One service of a world, by name."""

    world: LiveWorld
    name: str = "chat"

    @property
    def engines(self) -> list[Json]:
        """Engine pods that are ready."""
        return self.world.serving(self.name)

    @property
    def routers(self) -> list[Json]:
        """Router pods that are ready."""
        return self.world.ready_pods(self.name, "router")

    @property
    def sliced(self) -> set[str]:
        """Who serves, as the EndpointSlices of the engines' Service have it."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.world.namespace}/endpointslices"
        label = f"labelSelector=kubernetes.io/service-name={self.name}-engine"
        return {
            f"http://{endpoint['addresses'][0]}:8000"
            for piece in self.world.cluster.api.get(f"{path}?{label}")["items"]
            for endpoint in piece.get("endpoints") or []
            if endpoint["conditions"].get("ready")
        }

    @property
    def in_step(self) -> bool:
        """Whether each router's list is what the slices have."""
        wanted = self.sliced
        return all(listed(router) == wanted for router in self.routers)

    def settled(self, replicas: int) -> None:
        """Wait until it is Ready with so many engines."""
        self.world.ready(self.name)
        self.serves(replicas)

    def serves(self, replicas: int) -> None:
        """Wait until so many engines serve, and both routers know them."""
        wait_until(lambda: len(self.engines) == replicas, f"the engines of {self.name}")
        wait_until(lambda: len(self.routers) == 2, f"the routers of {self.name}")
        wait_until(lambda: self.in_step, f"the routers' lists of {self.name}")

    def client(self, seed: int = 0, headers: dict[str, str] | None = None) -> Client:
        """Make a client of the endpoint."""
        return self.world.client(self.name, seed=seed, headers=headers)

    def known_to(self, client: Client) -> None:
        """Wait until a client knows the routers, and nobody else."""
        wait_until(
            lambda: set(client.targets) == {url(pod) for pod in self.routers}, "the routers' addresses"
        )

    def change(self, **spec: Json) -> None:
        """Merge this into the spec."""
        path = f"{SERVICES.format(self.world.namespace)}/{self.name}"
        self.world.cluster.api.merge(path, {"spec": spec})

    def delete(self, pod: Json, *, grace_s: int | None = None) -> None:
        """Delete a pod; with no grace it is gone at once."""
        query = "" if grace_s is None else f"?gracePeriodSeconds={grace_s}"
        path = f"/api/v1/namespaces/{self.world.namespace}/pods/{pod['metadata']['name']}"
        self.world.cluster.api.delete(path + query)

    def replicas(self) -> dict[str, int]:
        """Give the replicas that each revision's Deployment states."""
        return {
            item["metadata"]["labels"]["shardwright.dev/revision"]: item["spec"]["replicas"]
            for item in self.world.deployments(self.name)
            if "shardwright.dev/revision" in item["metadata"]["labels"]
        }


@dataclass
class Sizes:
    """What was seen of a service all the while: the time, the replicas that are stated, and those that serve."""

    service: Routed
    seen: list[tuple[float, int, int]] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        while not self._end.is_set():
            time.sleep(0.2)
            stated = sum(self.service.replicas().values())
            self.seen.append((time.monotonic(), stated, len(self.service.engines)))

    @property
    def steps(self) -> list[int]:
        """The sizes that were stated, one after the other."""
        found: list[int] = []
        for _, stated, _ in list(self.seen):
            if found[-1:] != [stated]:
                found.append(stated)
        return found

    @property
    def fewest(self) -> int:
        """The fewest engines that served."""
        return min(serving for _, _, serving in self.seen)

    def cold(self) -> list[tuple[float, float]]:
        """From when to when replicas were stated that did not serve yet."""
        found: list[tuple[float, float]] = []
        since: float | None = None
        for at, stated, serving in self.seen:
            if serving < stated:
                since = since or at
            elif since is not None:
                found.append((since, at))
                since = None
        return found


def url(pod: Json) -> str:
    return f"http://{pod['status']['podIP']}:8000"


def get(address: str) -> Json:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=60) as answer:
        return json.load(answer)


def listed(router: Json) -> set[str]:
    return set(get(f"{url(router)}/list_workers")["urls"])


def state(pod: Json) -> Json:
    """Give what an engine does."""
    return get(f"http://{pod['status']['podIP']}:{CONTROL_PORT}/state")


def served(client: Client, more: int = 20) -> None:
    """Wait until so many further requests have ended."""
    begun = len(client.results)
    wait_until(lambda: len(client.results) >= begun + more, "requests")

"""Sees objects as they change, from the harness's side, with the time at which each change arrived.

It decides what is kept of an object (a few small fields) and how to wait for a state. It never polls.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import aiohttp

from scale.client import Client, Json

Key = tuple[str, str]
Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Seen(Generic[Fact]):
    """The last known state of an object and when it arrived, in seconds of time.monotonic()."""

    fact: Fact
    at_s: float


class Watcher(Generic[Fact]):
    """Lists, then watches, one collection; restarts when the server goes away."""

    def __init__(
        self, client: Client, path: str, key: Callable[[Json], Key], reduce: Callable[[Json], Fact]
    ) -> None:
        self._client = client
        self._path = path
        self._key = key
        self._reduce = reduce
        self._waiters: dict[Key, list[tuple[Callable[[Fact], bool], asyncio.Future[None]]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._listed = asyncio.Event()
        self.seen: dict[Key, Seen[Fact]] = {}

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        await self._listed.wait()
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait_for_object(
        self, key: Key, predicate: Callable[[Fact], bool], what: str, timeout_s: float = 600.0
    ) -> float:
        """Wait until one object fulfils the predicate and give the time at which that state arrived.

        Only changes of this object are looked at: waking a hundred waiters at every event took more CPU than
        what is measured.
        """
        if key not in self.seen or not predicate(self.seen[key].fact):
            found = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(key, []).append((predicate, found))
            try:
                await asyncio.wait_for(found, timeout_s)
            except TimeoutError:
                raise TimeoutError(f"{what}: not after {timeout_s:.0f} s") from None
        return self.seen[key].at_s

    def _hold(self, key: Key, now: Seen[Fact]) -> None:
        """Take a state; what did not change keeps its time of arrival."""
        if key in self.seen and self.seen[key].fact == now.fact:
            return
        self.seen[key] = now
        waiting = self._waiters.pop(key, [])
        for predicate, found in waiting:
            if not found.done() and predicate(now.fact):
                found.set_result(None)
        left = [waiter for waiter in waiting if not waiter[1].done()]
        if left:
            self._waiters[key] = left

    async def _run(self) -> None:
        while True:
            try:
                version = await self._list()
                self._listed.set()
                async for event in self._client.watch(self._path, version):
                    if event["type"] == "ERROR":
                        break
                    self._take(event["type"], event["object"])
            except (aiohttp.ClientError, RuntimeError, OSError):
                # The API server is away on purpose in one phase.
                await asyncio.sleep(0.1)

    async def _list(self) -> str:
        answer = await self._client.list(self._path)
        arrived = time.monotonic()
        fresh = {self._key(item): Seen(self._reduce(item), arrived) for item in answer["items"]}
        for key in self.seen.keys() - fresh.keys():
            del self.seen[key]
        for key, now in fresh.items():
            self._hold(key, now)
        return str(answer["metadata"]["resourceVersion"])

    def _take(self, kind: str, item: Json) -> None:
        arrived, key = time.monotonic(), self._key(item)
        if kind == "DELETED":
            self.seen.pop(key, None)
        else:
            self._hold(key, Seen(self._reduce(item), arrived))


@dataclass(frozen=True, slots=True)
class ServiceFact:
    """What the benchmark reads from an LLMService."""

    generation: int
    observed_generation: int
    ready: bool
    placed: bool
    replicas: int
    reasons: tuple[str, ...]

    @property
    def settled(self) -> bool:
        """Ready for the generation that is stored."""
        return self.ready and self.generation == self.observed_generation


@dataclass(frozen=True, slots=True)
class WorkloadFact:
    """What the benchmark reads from a Deployment."""

    replicas: int


def service_fact(item: Json) -> ServiceFact:
    """Reduce an LLMService."""
    status = item.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    false = tuple(
        f"{name}={conditions[name]['reason']}"
        for name in ("Accepted", "Planned", "Placed", "Available", "Ready")
        if name in conditions and conditions[name]["status"] != "True"
    )
    return ServiceFact(
        generation=item["metadata"]["generation"],
        observed_generation=status.get("observedGeneration", -1),
        ready=conditions.get("Ready", {}).get("status") == "True",
        placed=conditions.get("Placed", {}).get("status") == "True",
        replicas=status.get("readyReplicas", 0),
        reasons=false,
    )


def service_key(item: Json) -> Key:
    """Namespace and name of an LLMService."""
    return item["metadata"]["namespace"], item["metadata"]["name"]


def workload_fact(item: Json) -> WorkloadFact:
    """Reduce a Deployment."""
    return WorkloadFact(replicas=item["spec"].get("replicas", 0))


def workload_key(item: Json) -> Key:
    """Namespace and service name of a Deployment."""
    return item["metadata"]["namespace"], item["metadata"]["labels"]["shardwright.dev/service"]

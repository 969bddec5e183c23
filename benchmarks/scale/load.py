"""Brings the load onto a cluster and waits until it stands.

It decides the order: nodes, then other people's pods, then the services. It never starts the operator.
"""

import asyncio
import time
from collections.abc import Callable

from scale import specs
from scale.client import Client, Json

Say = Callable[[str], None]
_STANDS_TIMEOUT_S = 300.0


async def create_fleet(client: Client, node_count: int, pod_count: int, say: Say) -> None:
    """Create nodes and foreign pods, and wait until all nodes are ready and all pods run."""
    began = time.monotonic()
    await _create_namespaces(client)
    fleet = specs.nodes(node_count)
    await client.create_all(fleet)
    await _until_all(client, "/api/v1/nodes", len(fleet), _node_ready)
    say(f"{len(fleet)} nodes ready after {time.monotonic() - began:.0f} s")
    pods = specs.foreign_pods(pod_count, fleet)
    await client.create_all(pods)
    await _until_all(client, "/api/v1/pods?fieldSelector=status.phase=Running", len(pods), lambda _: True)
    say(f"{len(pods)} foreign pods running after {time.monotonic() - began:.0f} s")


async def create_services(client: Client, count: int, say: Say) -> None:
    """Create the services."""
    began = time.monotonic()
    await client.create_all(specs.services(count))
    say(f"{count} services created in {time.monotonic() - began:.0f} s")


async def _create_namespaces(client: Client) -> None:
    names = specs.namespaces()
    await client.create_all(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names
    )
    # A pod is refused until its namespace has its own account.
    for name in names:
        deadline = time.monotonic() + 30
        while True:
            try:
                await client.get(f"/api/v1/namespaces/{name}/serviceaccounts/default")
                break
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)


async def _until_all(client: Client, path: str, count: int, good: Callable[[Json], bool]) -> None:
    deadline = time.monotonic() + _STANDS_TIMEOUT_S
    while True:
        items = (await client.get(path))["items"]
        if sum(good(item) for item in items) >= count:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path}: fewer than {count} after {_STANDS_TIMEOUT_S:.0f} s")
        await asyncio.sleep(1.0)


def _node_ready(node: Json) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

"""The nodes of the agent: ready, with a heartbeat, as long as the agent lives and is not told to be silent.

It decides a node's conditions and its lease. It makes no node: a test applies one with its labels and capacity, and
the label that says whose it is; kwok looks after those with its own annotation only.
"""

import asyncio
import datetime as dt
from contextlib import suppress
from typing import Any

from sim.kubelet.api import APPLY, AWAY, STRATEGIC, Api, RefusedError
from sim.kubelet.status import timestamp

Json = Any
LABEL = "sim.shardwright.dev/node-agent"
SILENT = "sim.shardwright.dev/silent"
"""An annotation: the node says that it is lost, and sends no heartbeat. Its pods run on."""
_HEARTBEAT_S = 10.0
_RETRY_S = 0.2
_LEASE_S = 40
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


class Nodes:
    """All nodes with the label."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._nodes: dict[str, Json] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    async def follow(self) -> None:
        """Take in nodes as they come and go."""
        async for kind, node in self._api.watch("/api/v1/nodes", f"labelSelector={LABEL}"):
            name = node["metadata"]["name"]
            if kind == "DELETED":
                self._nodes.pop(name, None)
                continue
            self._nodes[name] = node
            if _said(node) != _wanted(node):
                await self._try(self._tell(node))

    async def look(self, name: str) -> bool:
        """Ask the server about a node that is not known yet."""
        while True:
            try:
                node = await self._api.get(f"/api/v1/nodes/{name}")
            except RefusedError as error:
                if error.status == 404:
                    return False
            except AWAY:
                pass
            else:
                return LABEL in node["metadata"].get("labels", {})
            await asyncio.sleep(_RETRY_S)

    async def beat(self) -> None:
        """Renew all leases, for ever."""
        while True:
            for name, node in list(self._nodes.items()):
                if _said(node) != _wanted(node):
                    # What it was told before was not taken, and nothing has happened to it since.
                    await self._try(self._tell(node))
                elif _wanted(node) == "True":
                    await self._try(self._renew(name))
            await asyncio.sleep(_HEARTBEAT_S)

    async def _try(self, work: Any) -> None:  # noqa: ANN401 - any coroutine
        with suppress(*AWAY):
            await work

    async def _tell(self, node: Json) -> None:
        now, ready = timestamp(), _wanted(node)
        conditions = [_condition(kind, "False", f"Kubelet has no {kind}", now) for kind in _PRESSURES]
        said = (
            "kubelet is posting ready status" if ready == "True" else "Kubelet stopped posting node status."
        )
        conditions.append(_condition("Ready", ready, said, now))
        status = {
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": "10.244.0.1"},
                {"type": "Hostname", "address": node["metadata"]["name"]},
            ],
        }
        await self._renew(node["metadata"]["name"])
        path = f"/api/v1/nodes/{node['metadata']['name']}/status"
        await self._api.send("PATCH", path, {"status": status}, STRATEGIC)

    async def _renew(self, name: str) -> None:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": _LEASE_S,
                "renewTime": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        await self._api.send("PATCH", f"{_LEASES}/{name}?fieldManager=node-agent&force=true", lease, APPLY)


def _wanted(node: Json) -> str:
    return "Unknown" if SILENT in node["metadata"].get("annotations", {}) else "True"


def _said(node: Json) -> str:
    conditions = node.get("status", {}).get("conditions", [])
    return next((str(each["status"]) for each in conditions if each["type"] == "Ready"), "")


def _condition(kind: str, status: str, message: str, now: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": f"Kubelet{kind}" if kind == "Ready" else f"KubeletHasNo{kind}",
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }

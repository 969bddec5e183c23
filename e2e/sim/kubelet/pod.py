"""One pod from its binding to its end: namespace, containers, status, deletion.

It decides what is written to the pod's status and when the object goes. A status that the server does not take is
written again until it does; containers run on meanwhile.
"""

import asyncio
import sys
from typing import Any

from harness.network import GATEWAY, PodNetwork, PodNetworks
from sim.kubelet.api import AWAY, STRATEGIC, RefusedError
from sim.kubelet.container import Container, Host
from sim.kubelet.status import ContainerState, pod_status

Json = Any
_RETRY_S = 0.2
_GONE = (404, 409)
"""The object is not there any more, or one of the same name is another."""


class Pod:
    """One pod; `run` returns when nothing of it is left."""

    def __init__(self, host: Host, networks: PodNetworks, manifest: Json) -> None:
        self._host = host
        self._networks = networks
        self._manifest = manifest
        self._containers: list[Container] = []
        self._network: PodNetwork | None = None
        self._dirty = asyncio.Event()
        self._deleted = asyncio.Event()
        self._gone = asyncio.Event()
        self._ending = False

    def update(self, manifest: Json) -> None:
        """Take note of a newer version of the object."""
        self._manifest = manifest
        if manifest["metadata"].get("deletionTimestamp"):
            self._deleted.set()

    def vanish(self) -> None:
        """Take note that the object is gone: what runs is killed."""
        self._gone.set()
        for container in self._containers:
            container.kill()

    async def run(self) -> None:
        """Live, and leave nothing behind."""
        reporting = asyncio.ensure_future(self._report_changes())
        try:
            await self._live()
        finally:
            for container in self._containers:
                container.kill()
            reporting.cancel()
            if self._network is not None:
                self._network.close()

    async def _live(self) -> None:
        spec = self._manifest["spec"]
        if not self._deleted.is_set():
            if spec.get("initContainers"):
                raise NotImplementedError("the node agent runs no init containers")
            self._network = self._networks.add()
            self._containers = [
                Container(self._host, self._manifest, container, self._network, self._dirty.set)
                for container in spec["containers"]
            ]
            self._dirty.set()
            running = asyncio.gather(*(container.run() for container in self._containers))
            ends = [asyncio.ensure_future(event.wait()) for event in (self._deleted, self._gone)]
            first: list[asyncio.Future[Any]] = [running, *ends]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                # A pod that came to its own end stays until it is deleted; a mistake of ours is told.
                running.result()
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await self._stop()
            await running
            for end in ends:
                end.cancel()
        if not self._gone.is_set():
            self._ending = True
            await self._report()
            await self._remove()

    async def _stop(self) -> None:
        grace_s = float(self._manifest["metadata"].get("deletionGracePeriodSeconds", 0))
        stops = asyncio.gather(*(container.stop(grace_s) for container in self._containers))
        gone = asyncio.ensure_future(self._gone.wait())
        first: list[asyncio.Future[Any]] = [stops, gone]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        for container in self._containers:
            container.kill()
        await stops
        gone.cancel()

    async def _report_changes(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self._report()

    async def _report(self) -> None:
        states = [container.state for container in self._containers] or [
            ContainerState(each["name"], each["image"]) for each in self._manifest["spec"]["containers"]
        ]
        uid = self._manifest["metadata"]["uid"]
        while not self._gone.is_set():
            address = self._network.address if self._network else ""
            status = pod_status(self._manifest, states, address, GATEWAY, ending=self._ending)
            body = {"metadata": {"uid": uid}, "status": status}
            try:
                self._manifest = await self._host.api.send("PATCH", f"{self._path()}/status", body, STRATEGIC)
            except RefusedError as error:
                if error.status in _GONE:
                    return
                print(f"{self._path()}: {error}", file=sys.stderr, flush=True)
            except AWAY:
                pass
            else:
                return
            await asyncio.sleep(_RETRY_S)

    async def _remove(self) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": self._manifest["metadata"]["uid"]},
        }
        while not self._gone.is_set():
            try:
                await self._host.api.send("DELETE", self._path(), options)
            except RefusedError as error:
                if error.status in _GONE:
                    return
            except AWAY:
                pass
            else:
                return
            await asyncio.sleep(_RETRY_S)

    def _path(self) -> str:
        metadata = self._manifest["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def ended(manifest: Json) -> bool:
    """Whether a pod came to its end before this agent saw it."""
    return manifest.get("status", {}).get("phase") in {"Succeeded", "Failed"}

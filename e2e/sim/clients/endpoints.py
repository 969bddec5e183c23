"""Which addresses a client of a Service may use, learnt as late as a node's proxy learns it.

It decides when a change of the EndpointSlices reaches clients: after a seeded delay each, in their order. There is no
kube-proxy here; as one would, it takes the ready endpoints, and the terminating ones that still serve when none is.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from sim.kubelet.api import Api

Json = Any
DELAY_S = (2.0, 5.0)


@dataclass(slots=True)
class Endpoints:
    """The addresses of one Service as its clients know them."""

    api: Api
    namespace: str
    service: str
    scale: float = 1.0
    seed: int = 0
    known: tuple[str, ...] = ()
    """`host:port` of each."""
    _slices: dict[str, Json] = field(default_factory=dict)

    async def follow(self) -> None:
        """Learn of changes, for ever."""
        delays = random.Random(self.seed)
        loop = asyncio.get_running_loop()
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"
        last = loop.time()
        async for kind, piece in self.api.watch(
            path, f"labelSelector=kubernetes.io/service-name={self.service}"
        ):
            if kind == "DELETED":
                self._slices.pop(piece["metadata"]["uid"], None)
            else:
                self._slices[piece["metadata"]["uid"]] = piece
            # Never before an earlier change.
            last = max(last, loop.time() + delays.uniform(*DELAY_S) / self.scale)
            loop.call_at(last, self._learn, addresses(list(self._slices.values())))

    def _learn(self, found: tuple[str, ...]) -> None:
        self.known = found


def addresses(slices: list[Json]) -> tuple[str, ...]:
    """Return where connections may go."""
    ready, serving = [], []
    for piece in slices:
        port = next((each["port"] for each in piece.get("ports") or []), None)
        for endpoint in piece.get("endpoints") or []:
            conditions = endpoint.get("conditions", {})
            found = [f"{address}:{port}" for address in endpoint["addresses"]]
            if conditions.get("ready", True):
                ready += found
            elif conditions.get("serving") and conditions.get("terminating"):
                serving += found
    return tuple(sorted(ready or serving))

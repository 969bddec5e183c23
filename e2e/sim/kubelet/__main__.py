"""`python -m sim.kubelet`: look after all nodes with the agent's label, and the pods bound to them.

It decides which pods are its own. It ends its containers when it ends, as the loss of a node would; one that starts
anew kills nothing, since nothing of its pods is left, and runs them again.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from harness.network import PodNetworks
from sim.kubelet.api import Api
from sim.kubelet.container import PROGRAMS, Host
from sim.kubelet.nodes import Nodes
from sim.kubelet.pod import Pod, ended
from sim.kubelet.rules import Rules
from sim.kubelet.targets import Targets

Json = Any


class Agent:
    """The pods of the agent's nodes."""

    def __init__(self, host: Host, targets: Targets) -> None:
        self._host = host
        self._targets = targets
        self._nodes = Nodes(host.api)
        self._networks = PodNetworks()
        self._pods: dict[str, Pod] = {}
        self._foreign: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Work until the process ends."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.follow())
            group.create_task(self._nodes.beat())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        async for kind, manifest in self._host.api.watch("/api/v1/pods", "fieldSelector=spec.nodeName!="):
            uid, node = manifest["metadata"]["uid"], manifest["spec"].get("nodeName")
            pod = self._pods.get(uid)
            if kind == "DELETED":
                self._targets.drop(uid)
            elif pod is not None:
                self._targets.put(manifest)
            if pod is not None and kind == "DELETED":
                pod.vanish()
            elif pod is not None:
                pod.update(manifest)
            elif kind != "DELETED" and await self._ours(node) and not ended(manifest):
                self._begin(uid, manifest)

    async def _ours(self, node: str) -> bool:
        """Whether we look after a node; one that was just made may not have been told to us."""
        if node in self._nodes:
            return True
        if node not in self._foreign and not await self._nodes.look(node):
            self._foreign.add(node)
        return node not in self._foreign

    def _begin(self, uid: str, manifest: Json) -> None:
        pod = self._pods[uid] = Pod(self._host, self._networks, manifest)
        pod.update(manifest)
        task = asyncio.create_task(self._run(uid, pod))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, uid: str, pod: Pod) -> None:
        try:
            await pod.run()
        except Exception as error:  # noqa: BLE001 - one pod's mistake is told and ends no other
            print(f"pod {uid}: {error!r}", file=sys.stderr, flush=True)
        finally:
            self._pods.pop(uid, None)


async def _main(options: argparse.Namespace) -> None:
    programs = PROGRAMS | {name: tuple(argv) for name, argv in json.loads(options.programs).items()}
    async with Api(options.kubeconfig) as api:
        host = Host(api, Rules(options.rules), options.time_scale, options.logs, programs)
        await Agent(host, Targets(options.targets)).run()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sim.kubelet", description="A node agent for tests.")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--logs", type=Path, required=True, help="where containers' logs go")
    parser.add_argument(
        "--rules", type=Path, required=True, help="a JSON file, read at every start of a container"
    )
    parser.add_argument("--targets", type=Path, help="where the pods to scrape are listed for Prometheus")
    parser.add_argument("--time-scale", type=float, default=1.0, help="how much faster the pods' time runs")
    parser.add_argument(
        "--programs", default="{}", help="JSON: the first word of a command to what is run for it"
    )
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(_main(_options()))

"""The operator on a control plane of its own that is taken away from under it: CRD, API server, login."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import pytest

from controller_world import World, gone, install, world_of
from harness.cluster import Cluster
from harness.waiting import PATIENCE_S, wait_until
from operator_process import NAMESPACE, OperatorProcess

pytestmark = pytest.mark.cluster
T = TypeVar("T")

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/llmservices.shardwright.dev"
TEAM = "outage"


@pytest.fixture(scope="module")
def alone() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        yield cluster


@pytest.fixture(scope="module")
def operator(alone: Cluster) -> Iterator[OperatorProcess]:
    process = OperatorProcess(alone)
    install(process)
    yield process
    process.stop()


@pytest.fixture
def world(alone: Cluster, operator: OperatorProcess) -> Iterator[World]:
    with world_of(alone, operator, TEAM) as made:
        yield made


def is_served(world: World, name: str) -> None:
    """Apply a new service and wait for its Deployment. How soon that comes is benchmarked (`make bench-scale`)."""
    world.apply(world.service(name))
    wait_until(lambda: world.deployments(name), f"the Deployment of {name}")


def test_a_missing_crd_is_waited_for(alone: Cluster, operator: OperatorProcess) -> None:
    alone.api.delete(CRD)
    wait_until(lambda: gone(alone, CRD), "the end of the CRD")
    operator.launch()
    pid = operator.pid
    wait_until(lambda: "crds | kubectl apply" in operator.tail(), "the operator to say what is missing")
    assert not operator.says_ready()
    time.sleep(3)
    install(operator)
    operator.wait_ready()
    assert operator.pid == pid
    with world_of(alone, operator, TEAM) as world:
        world.add_node("a")
        is_served(world, "first")
        world.ready("first")


def test_an_api_server_away_for_ten_seconds(world: World) -> None:
    world.add_node("a")
    world.apply(world.service("before"))
    world.ready("before")
    pid = world.operator.pid
    versions = world.written()
    with world.cluster.without_apiserver():
        time.sleep(10)
    is_served(world, "after")
    world.ready("after")
    assert world.operator.pid == pid
    kept = {key: version for key, version in world.written().items() if key in versions}
    changed = {key for key, version in kept.items() if version != versions[key]}
    assert not [key for key in changed if key[0] not in {"Deployment", "PodDisruptionBudget", "LLMService"}]


class Cutter:
    """A proxy to the API server that can end all connections, as a load balancer does: what was sent may arrive."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._loop = asyncio.new_event_loop()
        self._clients: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])

    def _run(self, coroutine: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def cut(self) -> None:
        """Reset every client at once; the server's side stays up a little and works off what it has."""
        self._loop.call_soon_threadsafe(lambda: [client.transport.abort() for client in self._clients])

    def close(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(*self._to)
        self._clients.add(client)
        try:
            await asyncio.gather(
                self._pass_on(reader, to_server), self._pass_on(from_server, client), return_exceptions=True
            )
            self._clients.discard(client)
            await asyncio.sleep(2)
        finally:
            for writer in (client, to_server):
                writer.transport.abort()

    @staticmethod
    async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


def test_connections_that_are_cut_in_a_first_pass_cost_no_child(
    alone: Cluster, operator: OperatorProcess
) -> None:
    operator.stop()
    server = urlsplit(alone.server_url)
    cutter = Cutter(str(server.hostname), server.port or 443)
    direct = alone.service_account_kubeconfig(NAMESPACE, operator.account)
    proxied = direct.with_name("proxied")
    proxied.write_text(direct.read_text().replace(alone.server_url, f"https://127.0.0.1:{cutter.port}"))
    through = OperatorProcess(
        alone, account=operator.account, environment={"KUBECONFIG": str(proxied)}, log_name="cut"
    )
    names = [f"s{index:02d}" for index in range(20)]
    with through, world_of(alone, through, TEAM) as world:
        world.add_node("a", gpus=len(names))
        alone.apply(*(world.service(name, max_gpus=1) for name in names))
        for pause_s in (0.3, 0.9, 0.2, 0.2, 1.6, 0.2, 0.2, 0.2):
            time.sleep(pause_s)
            cutter.cut()
        for name in names:
            world.ready(name)
        uids = {world.get(name)["metadata"]["uid"] for name in names}
        # What tests before this one made here goes when the garbage collector comes to it.
        wait_until(lambda: len(world.children()) == 6 * len(names), "their children alone")
        found = world.children()
        for key, child in found.items():
            assert [o["uid"] for o in child["metadata"]["ownerReferences"] if o["uid"] in uids], key
        world.at_rest()
        assert "crashed" not in through.log.read_text()
    cutter.close()


def test_a_login_that_expires_is_read_anew(world: World) -> None:
    """Tokens of a ServiceAccount that was made anew are refused, as expired ones are."""
    world.add_node("a")
    world.apply(world.service("before"))
    world.ready("before")
    pid = world.operator.pid
    kubeconfig = world.cluster.service_account_kubeconfig(NAMESPACE, world.operator.account)
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{world.operator.account}"
    world.cluster.api.delete(account)
    world.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": world.operator.account, "namespace": NAMESPACE},
        }
    )
    wait_until(lambda: refused(world, kubeconfig), "the old token to be refused")
    time.sleep(11)  # the API server believes a token that it has checked for 10 s
    world.apply(world.service("during"))
    time.sleep(4)
    assert not world.get("during").get("status", {}).get("conditions")
    # All watches come back to a server that refuses them, the nodes' too.
    world.cluster.restart_apiserver()
    time.sleep(8)
    assert world.operator.pid == pid
    # To the same file, as the kubelet does.
    assert world.cluster.service_account_kubeconfig(NAMESPACE, world.operator.account) == kubeconfig
    wait_until(lambda: world.deployments("during"), "the Deployment of a service made meanwhile")
    is_served(world, "after")
    assert world.operator.healthy()
    world.add_node("b", gpus=8)
    world.apply(world.service("more", replicas=8))
    world.ready("more")
    assert world.operator.pid == pid


def refused(world: World, kubeconfig: Path) -> bool:
    said = world.cluster.kubectl("get", "llmservices", "-A", check=False, kubeconfig=kubeconfig)
    return "Unauthorized" in said or "logged in" in said

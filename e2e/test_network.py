"""The private network: pods that listen on the same port, nobody at an old address, and the machine's own untouched."""

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.network import GATEWAY, Network, PodNetworks, why_not
from harness.processes import Process
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def links() -> list[str]:
    return sorted(name for _, name in socket.if_nameindex())


@pytest.fixture
def network() -> Iterator[PodNetworks]:
    with Network():
        yield PodNetworks()


def serve(directory: Path, text: str) -> Process:
    directory.mkdir()
    (directory / "index.html").write_text(text)
    argv = [sys.executable, "-m", "http.server", "8000", "--bind", "0.0.0.0"]
    process = Process(text, argv, directory / "log", dict(os.environ))
    process.start()
    return process


def body(address: str) -> str:
    connection = http.client.HTTPConnection(address, 8000, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_pods_share_a_port_and_reach_each_other_and_the_gateway(network: PodNetworks, tmp_path: Path) -> None:
    pods = [network.add(), network.add()]
    running = []
    for pod, text in zip(pods, ("one", "two"), strict=True):
        with pod.entered():
            running.append(serve(tmp_path / text, text))
    running.append(serve(tmp_path / "gateway", "gateway"))
    try:
        for address, text in ((pods[0].address, "one"), (pods[1].address, "two"), (GATEWAY, "gateway")):
            wait_until(lambda: body(address) == text, text)  # noqa: B023
            with pods[0].entered():
                assert body(address) == text
    finally:
        for process in running:
            process.kill()
        for pod in pods:
            pod.close()


def test_a_namespace_ends_with_its_pod_and_its_address_is_not_given_again(network: PodNetworks) -> None:
    before = links()
    pod = network.add()
    assert len(links()) == len(before) + 1
    pod.close()
    wait_until(lambda: links() == before, "the end of the link")
    other = network.add()
    assert other.address != pod.address
    other.close()


def test_the_machine_is_left_as_it_was() -> None:
    before = links()
    with Network():
        assert links() == ["lo", "pods"]
        seen = subprocess.run(
            [sys.executable, "-c", "import socket; print(sorted(n for _, n in socket.if_nameindex()))"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert seen.stdout.strip() == "['lo', 'pods']", "children are inside as well"
    assert links() == before

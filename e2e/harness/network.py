"""A private network for a test: a bridge in a namespace of its own, and a namespace with an address for each pod.

It decides addresses and how namespaces are made and left. It never touches the network of the machine: everything it
makes is in a namespace that ends with the last process and the last handle in it, so nothing is left after a crash.

Every pod of vLLM listens on port 8000 of all its addresses, so pods cannot share a namespace. Namespaces are handles,
not names: nothing is mounted, and /run/netns stays as it is. Needs root and `ip`.
"""

import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.components import POD_RANGE

GATEWAY = "10.244.0.1"
"""The parent's own address on the bridge: where what the pods reach listens."""
_BRIDGE = "pods"
_RANGE = IPv4Network(POD_RANGE)
_CLONE_NEWNET = 0x40000000
_PROGRAM = "ip"
_libc = ctypes.CDLL(None, use_errno=True)


class NetworkError(RuntimeError):
    """A namespace could not be made."""


@functools.cache
def why_not() -> str | None:
    """Say why no network can be made here; None when one was made for trial. A container may keep root from it."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which(_PROGRAM) is None:
        return f"network namespaces need `{_PROGRAM}` of iproute2: make network-tools"
    try:
        with Network():
            PodNetworks().add().close()
    except NetworkError as error:
        return f"no network namespaces here: {str(error).splitlines()[0]}"
    return None


class Network:
    """The parent namespace. While it is entered, the main thread and all that it starts are in it."""

    def __init__(self) -> None:
        self._home: int | None = None
        self._inside: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise NetworkError("a network is entered by the main thread, which starts the children")
        self._home, self._inside = _current(), _fresh()
        _join(self._inside)
        try:
            _ip(
                "link set lo up",
                f"link add {_BRIDGE} type bridge",
                f"addr add {GATEWAY}/{_RANGE.prefixlen} dev {_BRIDGE}",
                f"link set {_BRIDGE} up",
            )
        except BaseException:
            self.leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Be where the thread was before. The namespace ends with the last process in it."""
        assert self._home is not None
        assert self._inside is not None
        _join(self._home)
        os.close(self._home)
        os.close(self._inside)
        self._home = self._inside = None


@dataclass(slots=True)
class PodNetwork:
    """One pod's namespace: `lo`, and `eth0` with its address. It ends with `close` and its last process."""

    address: str
    handle: int

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Have this thread, and the children that it starts meanwhile, in the pod's namespace."""
        with _entered(self.handle):
            yield

    def close(self) -> None:
        """Let go of the namespace."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


class PodNetworks:
    """Makes the namespaces of pods, on the bridge of the namespace that the calling thread is in.

    An address is given again only after all others: a client that still knows a dead pod's address finds nobody there.
    """

    def __init__(self) -> None:
        self._next = int(IPv4Address(GATEWAY)) + 1
        self._made = 0

    def add(self) -> PodNetwork:
        """Make a namespace with the next address."""
        address = self._address()
        self._made += 1
        handle = _fresh()
        made = PodNetwork(address, handle)
        link = f"pod{self._made}"
        try:
            # By its path: a batch of `ip` takes no handle, and a name would need a mount.
            _ip(
                f"link add {link} type veth peer name eth0 netns /proc/{os.getpid()}/fd/{handle}",
                f"link set {link} master {_BRIDGE}",
                f"link set {link} up",
            )
            with made.entered():
                _ip(
                    "link set lo up",
                    f"addr add {address}/{_RANGE.prefixlen} dev eth0",
                    "link set eth0 up",
                    f"route add default via {GATEWAY}",
                )
        except BaseException:
            made.close()
            raise
        return made

    def _address(self) -> str:
        if self._next > int(_RANGE.broadcast_address) - 1:
            self._next = int(IPv4Address(GATEWAY)) + 1
        self._next += 1
        return str(IPv4Address(self._next - 1))


def _fresh() -> int:
    """Make a namespace and give a handle of it; the calling thread is where it was."""
    with _entered(None):
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise NetworkError(f"no network namespace may be made: {os.strerror(ctypes.get_errno())}")
        return _current()


@contextlib.contextmanager
def _entered(handle: int | None) -> Iterator[None]:
    home = _current()
    try:
        if handle is not None:
            _join(handle)
        yield
    finally:
        _join(home)
        os.close(home)


def _current() -> int:
    # Of the thread, not of the process: each thread has a namespace.
    return os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _join(handle: int) -> None:
    if _libc.setns(handle, _CLONE_NEWNET) != 0:
        raise NetworkError(f"setns: {os.strerror(ctypes.get_errno())}")


def _ip(*lines: str) -> None:
    program = shutil.which(_PROGRAM) or str(Path("/usr/sbin") / _PROGRAM)
    done = subprocess.run(
        [program, "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NetworkError(f"{_PROGRAM}: {done.stderr.strip()}")

"""Ports to listen on that nobody else has between their choice and their use.

It decides where they lie and who has which. It never takes one that another process of ours was given, for as long as
that process lives.
"""

import contextlib
import fcntl
import os
import socket
from collections.abc import Sequence
from random import SystemRandom

from harness.cache import cache_dir

OURS: Sequence[int] = range(20_000, 32_000)
"""Below those that outgoing connections get (Linux: 32768 and up, net.ipv4.ip_local_port_range; macOS: 49152 and up): one of
these would be taken now and then by a client of whatever program while its server starts or starts again."""

_given: set[int] = set()
_book: list[int] = []


class NoPortError(RuntimeError):
    """All ports are in use."""


def free_ports(host: str, count: int) -> list[int]:
    """Give ports on which nobody listens, none of them twice; they are this process's until it ends."""
    found: list[int] = []
    for port in SystemRandom().sample(OURS, len(OURS)):
        if len(found) == count:
            break
        if port not in _given and _reserved(port) and _unused(host, port):
            _given.add(port)
            found.append(port)
    if len(found) < count:
        raise NoPortError(f"no {count} free ports from {OURS[0]} to {OURS[-1]}")
    return found


def _reserved(port: int) -> bool:
    """Lock one byte of a file for each port; the kernel frees it when the process ends."""
    if not _book:
        directory = cache_dir() / "locks"
        directory.mkdir(parents=True, exist_ok=True)
        # Never closed: a process loses its locks of this kind when it closes any handle of the file.
        _book.append(os.open(directory / "ports.lock", os.O_RDWR | os.O_CREAT, 0o600))
    with contextlib.suppress(OSError):
        fcntl.lockf(_book[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        return True
    return False


def _unused(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.bind((host, port))
        return True
    return False

"""HTTP/1.1 requests over kept connections, with as little per request as the protocol needs.

Decides framing and reuse of connections, nothing else. An API server answers with a length or in chunks; a
kept connection that the server has closed is replaced. `docs/adr/0005-transport.md` has the measurements.
"""

import asyncio
import ssl
from typing import Final

from multidict import CIMultiDict

_LIMIT: Final = 1 << 20
_MOST_IDLE: Final = 64


class Broken(OSError):  # noqa: N818 -- a state of the connection
    """The peer does not speak HTTP/1.1 as expected, or went away in the middle of an answer."""


class Connections:
    """Connections to one server."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, server_name: str | None) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._server_name = (server_name or host) if tls else None
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def request(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None, connect_timeout_s: float
    ) -> tuple[int, CIMultiDict[str], bytes]:
        """Send one request and read its answer whole. Raises OSError or TimeoutError when there is none."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._host}:{self._port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        message = "\r\n".join((*lines, "\r\n")).encode("latin-1") + (body or b"")
        while True:
            kept = self._take()
            reader, writer = kept or await self._open(connect_timeout_s)
            done = False
            try:
                writer.write(message)
                head = await reader.readuntil(b"\r\n\r\n")
                status, found = _head(head)
                data = await _body(reader, found)
                done = True
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                if kept and not getattr(error, "partial", b""):
                    continue  # it was closed while it lay idle
                raise Broken(f"connection lost: {error}") from error
            except (ValueError, asyncio.LimitOverrunError) as error:
                raise Broken(f"answer not understood: {error}") from error
            finally:
                if done and found.get("Connection", "").lower() != "close" and len(self._idle) < _MOST_IDLE:
                    self._idle.append((reader, writer))
                else:
                    writer.close()
            return status, found, data

    def _take(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    async def _open(self, timeout_s: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(timeout_s):
            return await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, server_hostname=self._server_name, limit=_LIMIT
            )

    def close(self) -> None:
        """Close what is idle; what is in use is closed by its request."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


def _head(head: bytes) -> tuple[int, CIMultiDict[str]]:
    first, *rest = head[:-4].decode("latin-1").split("\r\n")
    protocol, _, after = first.partition(" ")
    if not protocol.startswith("HTTP/1."):
        raise ValueError(first[:80])
    headers: CIMultiDict[str] = CIMultiDict()
    for line in rest:
        name, _, value = line.partition(":")
        headers.add(name, value.strip())
    return int(after[:3]), headers


async def _body(reader: asyncio.StreamReader, headers: CIMultiDict[str]) -> bytes:
    length = headers.get("Content-Length")
    if length is not None:
        return await reader.readexactly(int(length))
    if headers.get("Transfer-Encoding", "").lower() != "chunked":
        return b""
    parts: list[bytes] = []
    while True:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        chunk = await reader.readexactly(size + 2)
        if not size:
            return b"".join(parts)
        parts.append(chunk[:-2])

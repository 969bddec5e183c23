"""What a router's activator says: how many requests wait for an engine, and how many came.

Decides what an answer means. No answer, and one that cannot be read, is not zero.
"""

from typing import Final, NamedTuple

import aiohttp
import msgspec

from shardwright.api.names import ENDPOINTS_PORT, url_host

TIMEOUT_S: Final = 2.0
_MOST_BYTES: Final = 1024


class Held(NamedTuple):
    """What one activator has."""

    waiting: int
    arrived: int
    """Since its process began."""


class _Answer(msgspec.Struct):
    waiting: int
    arrived: int


class Activators:
    """Asks activators by the IP of their pod. How many at once is the caller's choice."""

    def __init__(self, port: int = ENDPOINTS_PORT) -> None:
        self._port = port
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, address: str) -> Held | None:
        """Ask one; None: not known. Raises nothing that a server can bring about."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
                trust_env=False,
            )
        url = f"http://{url_host(address)}:{self._port}/held"
        try:
            async with self._session.get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    return None
                body = b""
                async for piece in answer.content.iter_any():
                    body += piece
                    if len(body) > _MOST_BYTES:
                        return None
                return read(body)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()


def read(body: bytes) -> Held | None:
    """Read an answer; None for anything else."""
    try:
        found = msgspec.json.decode(body, type=_Answer)
    except msgspec.DecodeError:
        return None
    return Held(found.waiting, found.arrived) if found.waiting >= 0 and found.arrived >= 0 else None

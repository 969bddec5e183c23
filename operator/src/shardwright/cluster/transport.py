"""Requests and streams to the API server, behind a Protocol so that they can be replaced or scripted.

Decides connection reuse, time-outs and the client-side rate limit. Never maps a status code and never
logs a body. `docs/adr/0005-transport.md` has the measurements behind plain aiohttp.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, NamedTuple, Protocol

import aiohttp
from yarl import URL

from shardwright.cluster.credentials import Credentials
from shardwright.cluster.errors import Transient
from shardwright.cluster.http1 import Connections, encode_headers

CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 30.0
_CONNECTIONS: Final = 64
"""More than workers plus watches, so that a write never waits for a watch."""
_USER_AGENT: Final = "shardwright"
_MOST_ENCODED: Final = 64
"""A renewed token makes new ones."""
JSON_TYPE: Final = "application/json"


class Response(NamedTuple):
    """An answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """What the adapter needs of HTTP."""

    async def request(
        self,
        method: str,
        target: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON_TYPE,
        accept: str = JSON_TYPE,
    ) -> Response:
        """One request; `target` is path and query, encoded. Raises Transient when there is no answer."""
        ...  # fmt: skip

    def stream(
        self, target: str, *, accept: str, inactivity_s: float, gather_s: float = 0.0
    ) -> AsyncIterator[Response]:
        """Whole lines of a streamed answer, all that came together as one Response with the stream's status.

        What comes within `gather_s` after a line is read together: a line alone is not delayed, and many
        cost one turn of the loop.

        A status of 400 or above gives one Response with the whole body. Raises Transient when the stream
        breaks, or does not begin within `inactivity_s`. Ends quietly when the server ends it, and after so
        much silence: only another request can tell whether there is nothing to say or nobody to say it.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class TokenBucket:
    """At most `rate` requests a second on average, with bursts of `burst`.

    Time comes from `clock`, in seconds.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._level = burst
        self._at = clock()
        self._blocked_until = 0.0

    def delay_s(self) -> float:
        """Take one token and say how long to wait before using it."""
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._rate) - 1.0
        self._at = now
        wait = 0.0 if self._level >= 0 else -self._level / self._rate
        return max(wait, self._blocked_until - now)

    def block(self, seconds: float) -> None:
        """Hold all requests for a time, as the server's Retry-After asks."""
        self._blocked_until = max(self._blocked_until, self._clock() + seconds)


class AiohttpTransport:
    """The transport in use: streams and proxies by aiohttp, requests by `cluster.http1`."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._base = credentials.server
        url = URL(self._base)
        self._tls = credentials.tls()
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=self._tls or True, keepalive_timeout=60.0)
        self._session = aiohttp.ClientSession(
            connector=connector,
            # A bound on each read is cheaper than one on the whole, and no cookie is ever set.
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=REQUEST_TIMEOUT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": _USER_AGENT, "Accept-Encoding": "identity"},
            trust_env=False,
            read_bufsize=1 << 20,
        )
        self._direct: Connections | None = None
        if credentials.proxy is None and url.host and url.path in {"", "/"}:
            self._direct = Connections(
                url.host,
                url.port or 443,
                self._tls,
                credentials.tls_server_name,
                headers={"User-Agent": _USER_AGENT},
                timeout_s=REQUEST_TIMEOUT_S,
                connect_timeout_s=CONNECT_TIMEOUT_S,
            )
        self._encoded: dict[tuple[str | None, str, str | None], bytes] = {}

    async def request(
        self,
        method: str,
        target: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON_TYPE,
        accept: str = JSON_TYPE,
    ) -> Response:
        """See Transport.request.

        After a 401 the credentials are read again and the request is sent once more.
        """
        answer = await self._once(method, target, body, content_type, accept)
        if answer.status == 401:
            await self._credentials.reload()
            answer = await self._once(method, target, body, content_type, accept)
        return answer  # fmt: skip

    async def _once(
        self, method: str, target: str, body: bytes | None, content_type: str, accept: str
    ) -> Response:
        token = await self._credentials.authorization()
        sent_type = content_type if body is not None else None
        try:
            if self._direct is not None:
                fields = self._encoded_fields(token, accept, sent_type)
                return Response(*await self._direct.request(method, target, fields, body))
            async with self._session.request(
                method,
                URL(self._base + target, encoded=True),
                data=body,
                headers=_fields(token, accept, sent_type),
                proxy=self._credentials.proxy,
                server_hostname=self._credentials.tls_server_name,
            ) as response:
                return Response(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer(method, target, error) from error

    def _encoded_fields(self, token: str | None, accept: str, content_type: str | None) -> bytes:
        """Header fields of a request, encoded once for the few combinations there are."""
        key = (token, accept, content_type)
        fields = self._encoded.get(key)
        if fields is None:
            fields = encode_headers(_fields(*key))
            if len(self._encoded) >= _MOST_ENCODED:
                self._encoded.clear()
            self._encoded[key] = fields
        return fields

    async def stream(
        self, target: str, *, accept: str, inactivity_s: float, gather_s: float = 0.0
    ) -> AsyncIterator[Response]:
        """See Transport.stream."""
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        token = await self._credentials.authorization()
        try:
            async with asyncio.timeout(inactivity_s):
                begun = await self._session.get(
                    URL(self._base + target, encoded=True),
                    headers=_fields(token, accept),
                    timeout=timeout,
                    proxy=self._credentials.proxy,
                    server_hostname=self._credentials.tls_server_name,
                )
            async with begun as response:
                if response.status >= 400:
                    if response.status == 401:
                        await self._credentials.reload()
                    yield Response(response.status, response.headers, await response.read())
                    return
                async for lines in _lines(response, inactivity_s, gather_s):
                    yield Response(response.status, response.headers, lines)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer("WATCH", target, error) from error

    async def close(self) -> None:
        """See Transport.close."""
        if self._direct is not None:
            self._direct.close()
        await self._session.close()
        # aiohttp closes TLS connections in the next turns of the loop.
        await asyncio.sleep(0)


def _fields(token: str | None, accept: str, content_type: str | None = None) -> dict[str, str]:
    """Header fields of one request, beside those that all have."""
    found = {"Authorization": token, "Accept": accept, "Content-Type": content_type}
    return {name: value for name, value in found.items() if value}


async def _lines(
    response: aiohttp.ClientResponse, inactivity_s: float, gather_s: float
) -> AsyncIterator[bytes]:
    """Cut after a newline, without a limit on the length: one object can be larger than any line buffer.

    Silence is noticed by one timer that looks now and then: one for each chunk was measurable in a busy
    watch.
    """
    loop = asyncio.get_running_loop()
    heard = loop.time()
    silent = False

    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer, silent
        if loop.time() - heard > inactivity_s:
            silent = True
            response.close()
        else:
            timer = loop.call_later(inactivity_s / 4, look)

    timer = loop.call_later(inactivity_s / 4, look)
    rest = b""
    try:
        async for chunk in response.content.iter_any():
            heard = loop.time()
            lines, newline, tail = chunk.rpartition(b"\n")
            if newline:
                yield rest + lines
                rest = tail
            else:
                rest += tail
            await _gather(response, gather_s)
    except aiohttp.ClientError:
        if not silent:
            raise
    finally:
        timer.cancel()


async def _gather(response: aiohttp.ClientResponse, gather_s: float) -> None:
    """Let what follows pile up below us for a while, where it costs neither decryption nor parsing."""
    transport = response.connection.transport if response.connection is not None else None
    if gather_s <= 0 or transport is None:
        return
    transport.pause_reading()
    try:
        await asyncio.sleep(gather_s)
    finally:
        transport.resume_reading()


def _no_answer(method: str, target: str, error: BaseException) -> Transient:
    path = target.partition("?")[0]
    return Transient(f"{method} {path}: no answer: {type(error).__name__}: {error}")

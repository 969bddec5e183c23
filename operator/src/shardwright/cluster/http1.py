"""HTTP/1.1 requests over kept connections, with as little per request as the protocol needs.

Decides reuse of connections and time-outs, nothing else; where an answer ends is for `cluster.answer`. A
kept connection that the server has closed is replaced. One request costs one future, and time-outs cost one
timer a second for all. `docs/adr/0005-transport.md` has the measurements.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final, cast

from shardwright.cluster.answer import Answer, AnswerReader

_MOST_IDLE: Final = 64
_SWEEP_S: Final = 1.0
"""How much later than asked for a time-out may come."""


class Broken(OSError):  # noqa: N818 -- a state of the connection
    """The peer does not speak HTTP/1.1 as expected, or went away in the middle of an answer."""


class _Unheard(Broken):
    """The connection ended before the first byte of an answer."""


class _Connection(asyncio.Protocol):
    """One connection, which carries one request at a time.

    `usable` until either side ends it; `since_s` is the loop's time at which the request in flight began.
    """

    __slots__ = ("_ended", "_future", "_heard", "_reader", "_transport", "since_s", "usable")

    def __init__(self, ended: Callable[["_Connection"], None]) -> None:
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._future: asyncio.Future[Answer] | None = None
        self._reader = AnswerReader()
        self._heard = False
        self.since_s = 0.0
        self.usable = False

    def ask(self, message: bytes, since_s: float, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Answer]:
        """Send a request; the future gives its answer, or raises Broken or TimeoutError."""
        future: asyncio.Future[Answer] = loop.create_future()
        if self._transport is None or not self.usable:
            future.set_exception(_Unheard("connection lost: closed"))
            return future
        self._future = future
        self._reader = AnswerReader()
        self._heard = False
        self.since_s = since_s
        self._transport.write(message)
        return future

    def fail(self, error: OSError) -> None:
        """End the connection, and with `error` the request in flight."""
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_exception(error)
        self.end(abort=True)

    def end(self, *, abort: bool) -> None:
        """Close the connection; `abort` loses what was not sent yet."""
        self.usable = False
        self._ended(self)
        transport, self._transport = self._transport, None
        if transport is not None:
            if abort:
                transport.abort()
            else:
                transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = cast("asyncio.Transport", transport)  # of a stream, whatever loop made it
        self.usable = True

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        future = self._future
        if future is None:
            self.end(abort=True)  # nothing was asked
            return
        self._heard = True
        try:
            answer = self._reader.feed(data)
        except ValueError as error:
            self.fail(Broken(f"answer not understood: {error}"))
            return
        if answer is not None:
            self._future = None
            self.usable = self._reader.keeps
            if not future.done():
                future.set_result(answer)

    def eof_received(self) -> None:
        """See asyncio.Protocol. The transport closes by itself now."""
        self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        kind = Broken if self._heard else _Unheard
        error = kind(f"connection lost: {exc or 'closed by the server'}")
        error.__cause__ = exc
        self._transport = None
        self.fail(error)


class Connections:
    """Connections to one server.

    A request may take `timeout_s`, of it a new connection `connect_timeout_s`. `headers` go with each one.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        server_name: str | None,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        connect_timeout_s: float,
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._server_name = (server_name or host) if tls else None
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._fixed = b" HTTP/1.1\r\n" + encode_headers({"Host": authority, **headers})
        self._idle: dict[_Connection, None] = {}
        self._busy: set[_Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    async def request(self, method: str, target: str, headers: bytes, body: bytes | None) -> Answer:
        """Send one request and read its answer whole; `headers` as `encode_headers` gives them.

        Raises OSError (Broken among them) or TimeoutError when there is no answer.
        """
        length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
        first = f"{method} {target}".encode("latin-1")
        message = b"".join((first, self._fixed, headers, length, b"\r\n", body or b""))
        loop = asyncio.get_running_loop()
        since_s = loop.time()
        while True:
            kept = bool(self._idle)
            connection = self._idle.popitem()[0] if kept else await self._open(loop)
            self._busy.add(connection)
            if self._sweeper is None:
                self._sweep_later(loop)
            reusable = False
            try:
                answer = await connection.ask(message, since_s, loop)
                reusable = connection.usable and len(self._idle) < _MOST_IDLE and not self._closed
            except _Unheard:
                if kept:
                    continue  # it was closed while it lay idle
                raise
            finally:
                self._busy.discard(connection)
                if reusable:
                    self._idle[connection] = None
                else:
                    connection.end(abort=True)
            return answer

    async def _open(self, loop: asyncio.AbstractEventLoop) -> _Connection:
        async with asyncio.timeout(self._connect_timeout_s):
            _, connection = await loop.create_connection(
                lambda: _Connection(self._forget),
                self._host,
                self._port,
                ssl=self._tls,
                server_hostname=self._server_name,
            )
            return connection

    def _forget(self, connection: _Connection) -> None:
        self._idle.pop(connection, None)

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweeper = loop.call_later(min(_SWEEP_S, self._timeout_s), self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Fail what has been in flight for too long, and look again while anything is."""
        self._sweeper = None
        latest = loop.time() - self._timeout_s
        for connection in [busy for busy in self._busy if busy.since_s <= latest]:
            connection.fail(TimeoutError(f"no answer within {self._timeout_s:g} s"))
        if self._busy:
            self._sweep_later(loop)

    def close(self) -> None:
        """Close what is idle; what is in use is closed by its request."""
        self._closed = True
        for connection in list(self._idle):
            connection.end(abort=False)
        if self._sweeper is not None and not self._busy:
            self._sweeper.cancel()


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Header fields as they are sent, each with its line end."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")

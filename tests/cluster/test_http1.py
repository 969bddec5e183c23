"""Kept connections, time-outs and ends of connections against a server that says what a test tells it to."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from harness.certs import Authority
from patience import PATIENCE_S, eventually, sockets_closed
from shardwright.cluster import http1
from shardwright.cluster.http1 import Broken, Connections, encode_headers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TIMEOUT_S = 2 * PATIENCE_S
Say = Callable[["Line"], Awaitable[None]]


class Line:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.over = asyncio.Event()

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def cut(self) -> None:
        self.writer.transport.abort()

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.over.wait()


class Peer:
    """A scripted server: one entry of `script` for each request, on whatever connection; then `OK`.

    `heard` is how many bytes have arrived at the client.
    """

    def __init__(self) -> None:
        self.script: list[Say] = []
        self.lines: list[Line] = []
        self.asked: list[bytes] = []
        self.heard = 0

    async def requests(self, count: int) -> None:
        await eventually(lambda: len(self.asked) >= count)

    def saying(self, *parts: bytes, then: Say | None = None) -> Say:
        """Each part by itself: the next is said when the client has heard the last."""

        async def say(line: Line) -> None:
            for part in parts:
                heard = self.heard + len(part)
                await line.say(part)
                await eventually(lambda heard=heard: self.heard >= heard)
            if then is not None:
                await then(line)

        return say

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        self.lines.append(line)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                self.asked.append(head + await reader.readexactly(int(length or 0)))
                await (self.script.pop(0)(line) if self.script else line.say(OK))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            line.over.set()
            writer.close()


class Client(Connections):
    """Connections with a request that asks for nothing in particular."""

    async def get(self, path: str = "/") -> tuple[int, bytes]:
        status, _, body = await self.request("GET", path, b"", None)
        return status, body


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    pair = authority.serving("server", ["localhost"], ["127.0.0.1"])
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pair.certificate, pair.key)
    return server, ssl.create_default_context(cafile=authority.certificate)


@pytest_asyncio.fixture(params=["plain", "tls"])
async def peer(request, certificates, monkeypatch) -> AsyncIterator[tuple[Peer, Client]]:
    peer = Peer()
    take = http1._Connection.data_received

    def hear(connection, data: bytes) -> None:
        peer.heard += len(data)
        take(connection, data)

    monkeypatch.setattr(http1._Connection, "data_received", hear)
    server_tls, client_tls = certificates if request.param == "tls" else (None, None)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0, ssl=server_tls)
    port = server.sockets[0].getsockname()[1]
    client = Client(
        "127.0.0.1",
        port,
        client_tls,
        None,
        headers={"User-Agent": "test"},
        timeout_s=TIMEOUT_S,
        connect_timeout_s=TIMEOUT_S,
    )
    yield peer, client
    client.close()
    server.close()
    for line in peer.lines:
        if not line.over.is_set():
            line.cut()
    for line in peer.lines:
        await line.ended()
    await sockets_closed()


async def cut(line: Line) -> None:
    line.cut()


async def silence(line: Line) -> None:
    await line.reader.read(1)


async def test_a_request_is_sent_as_asked(peer):
    server, client = peer
    fields = encode_headers({"Accept": "a/b", "Authorization": "Bearer x"})
    assert (await client.request("PATCH", "/x?a=b", fields, b"body")).body == b"ok"
    await client.get()
    host = f"Host: 127.0.0.1:{client._port}\r\nUser-Agent: test\r\n".encode()
    fixed = host + b"Accept: a/b\r\nAuthorization: Bearer x\r\n"
    assert server.asked == [
        b"PATCH /x?a=b HTTP/1.1\r\n" + fixed + b"Content-Length: 4\r\n\r\nbody",
        b"GET / HTTP/1.1\r\n" + host + b"\r\n",
    ]


def test_an_address_of_ipv6_stands_in_brackets():
    client = Connections(
        "fd00::1", 6443, None, None, headers={}, timeout_s=TIMEOUT_S, connect_timeout_s=TIMEOUT_S
    )
    assert client._fixed == b" HTTP/1.1\r\nHost: [fd00::1]:6443\r\n"


async def test_a_connection_carries_many_requests_and_as_many_are_open_as_were_in_flight(peer):
    server, client = peer
    for _ in range(20):
        await client.get()
    assert len(server.lines) == 1
    for _ in range(3):
        await asyncio.gather(*(client.get() for _ in range(5)))
    assert len(server.lines) == 5
    assert len(server.asked) == 35


async def test_answers_that_come_in_pieces_leave_the_connection_usable(peer):
    server, client = peer
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"
    fixed = b"HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\nwritten"
    for sent, expected in ((chunked, (200, b"abcd")), (fixed, (201, b"written"))):
        server.script.append(server.saying(*(sent[at : at + 5] for at in range(0, len(sent), 5))))
        assert await client.get() == expected
    assert len(server.lines) == 1


async def test_a_long_answer_is_read_whole(peer):
    server, client = peer
    body = bytes(range(256)) * 8000
    server.script.append(server.saying(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body))
    chunks = b"".join(b"%x\r\n%b\r\n" % (4096, body[at : at + 4096]) for at in range(0, 4096 * 500, 4096))
    server.script.append(
        server.saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    )
    assert await client.get() == (200, body)
    assert await client.get() == (200, body)


async def test_a_kept_connection_that_ends_unheard_is_replaced(peer):
    server, client = peer
    await asyncio.gather(client.get(), client.get())
    server.script = [cut, cut]
    assert await client.get("/again") == (200, b"ok")
    assert [asked[:10] for asked in server.asked[2:]] == [b"GET /again"] * 3
    assert len(server.lines) == 3


async def test_a_connection_closed_while_idle_is_dropped_and_nothing_is_sent_on_it(peer):
    server, client = peer
    await client.get()
    server.lines[0].writer.close()
    await eventually(lambda: not client._idle)
    await client.get()
    assert (len(server.asked), len(server.lines)) == (2, 2)


async def test_a_new_connection_that_ends_unheard_is_an_error(peer):
    server, client = peer
    server.script = [cut]
    with pytest.raises(Broken, match="connection lost"):
        await client.get()
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "part", [b"H", OK[:-1], b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"]
)
async def test_an_answer_that_breaks_off_is_an_error_and_never_asked_for_again(peer, part):
    server, client = peer
    await client.get()
    server.script = [server.saying(part, then=cut)]
    with pytest.raises(Broken, match="connection lost"):
        await client.get()
    assert len(server.asked) == 2
    assert not client._busy


async def test_a_body_up_to_the_end_of_the_connection_is_an_error(peer):
    server, client = peer
    server.script = [server.saying(b"HTTP/1.1 200 OK\r\n\r\nbody", then=cut)]
    with pytest.raises(Broken, match="no length"):
        await client.get()
    await server.lines[0].ended()


@pytest.mark.parametrize("garbage", [b"garbage", OK])
async def test_more_than_was_asked_for_ends_the_connection_after_its_answer(peer, garbage):
    server, client = peer
    server.script = [server.saying(OK + garbage)]
    assert await client.get() == (200, b"ok")
    server.script = [server.saying(OK, garbage)]  # and once when the connection is idle already
    assert await client.get() == (200, b"ok")
    await eventually(lambda: not client._idle)
    assert await client.get() == (200, b"ok")
    assert len(server.lines) == 3


async def test_a_server_may_ask_to_close(peer):
    server, client = peer
    server.script = [server.saying(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))]
    assert await client.get() == (200, b"ok")
    await server.lines[0].ended()
    await client.get()
    assert len(server.lines) == 2


@pytest.mark.parametrize("part", [b"", OK[:-1]])
async def test_a_request_that_takes_too_long_ends_and_others_go_on(peer, clock, part):
    server, client = peer
    gate = asyncio.Event()

    async def slowly(line: Line) -> None:
        await gate.wait()
        await line.say(OK)

    server.script = [server.saying(part, then=silence), slowly, silence]
    late = asyncio.create_task(client.get())
    await server.requests(1)
    clock.advance(TIMEOUT_S / 2)
    other = asyncio.create_task(client.get())
    await server.requests(2)
    later = asyncio.create_task(client.get())
    await server.requests(3)
    assert not late.done()
    clock.advance(TIMEOUT_S / 2)
    with pytest.raises(TimeoutError, match=f"within {TIMEOUT_S:g} s"):
        await late
    assert not other.done()
    assert not later.done()
    gate.set()
    assert await other == (200, b"ok")
    clock.advance(TIMEOUT_S / 2)
    with pytest.raises(TimeoutError, match=f"within {TIMEOUT_S:g} s"):
        await later
    assert len(server.asked) == 3
    await server.lines[0].ended()
    clock.advance(TIMEOUT_S)
    await eventually(lambda: client._sweeper is None)  # the timer rests when nothing is in flight


async def test_a_cancelled_request_closes_its_connection(peer):
    server, client = peer
    await client.get()
    begun = asyncio.Event()

    async def begin(line: Line) -> None:
        begun.set()
        await silence(line)

    server.script = [server.saying(OK[:-1], then=begin)]
    task = asyncio.create_task(client.get())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.lines[0].ended()
    assert not client._busy
    assert await client.get() == (200, b"ok")
    assert len(server.lines) == 2


async def test_a_request_cancelled_as_its_answer_arrives_leaves_no_connection_behind(peer):
    server, client = peer
    asked = asyncio.Event()

    async def hear(line: Line) -> None:
        asked.set()
        await silence(line)

    server.script = [hear]
    task = asyncio.create_task(client.get())
    await asked.wait()
    connection = next(iter(client._busy))
    connection.data_received(OK)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.lines[0].ended()
    assert not client._busy
    assert not client._idle


async def test_closing_ends_what_is_idle_and_what_is_in_use_after_its_request(peer):
    server, client = peer
    await asyncio.gather(client.get(), client.get())
    gate = asyncio.Event()

    async def slowly(line: Line) -> None:
        await gate.wait()
        await line.say(OK)

    server.script = [slowly]
    task = asyncio.create_task(client.get())
    await server.requests(3)
    client.close()
    gate.set()
    assert await task == (200, b"ok")
    for line in server.lines:
        await line.ended()


async def test_no_more_than_64_are_kept(peer):
    server, client = peer
    gate = asyncio.Event()

    async def together(line: Line) -> None:
        if len(server.asked) == 70:
            gate.set()
        await gate.wait()
        await line.say(OK)

    server.script = [together] * 70
    await asyncio.gather(*(client.get() for _ in range(70)))
    assert len(client._idle) == 64
    await eventually(lambda: sum(line.over.is_set() for line in server.lines) == 6)
    await asyncio.gather(*(client.get() for _ in range(64)))
    assert len(server.lines) == 70, "the others were open"

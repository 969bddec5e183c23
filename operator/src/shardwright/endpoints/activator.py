"""The worker that a router has while no engine serves: it holds requests until one does.

Decides which requests are held, for how long, and what those are answered that are not. How many are held is
what wakes a service (`GET /held` on the port of the probes). It never picks an engine: a held request goes
back to the router, once that has one and this worker is out of its list (`endpoints.follow`).

vllm-router 0.1.17, as observed: it sends the same request again, up to its `--retry-max-retries`, when a
worker answers 503; it hands on the Retry-After of the last answer; it closes its connection to the worker
when its client gives up; after SIGTERM it takes no new connections, and its requests in flight run on.
"""

import asyncio
import hashlib
import hmac
import logging
import random
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

_LOG = logging.getLogger(__name__)

BODY_BYTES: Final = 16 << 20
BODIES_BYTES: Final = 64 << 20
"""Of one request, and of all that are held, their headers included: the container may have 256 MiB, and had
170 MiB when it read and sent the most. What is larger wakes a service all the same, and is to come again."""
HEADERS_BYTES: Final = 1 << 20
HEADERS_MOST: Final = 1024
"""More than the router takes (417,792 bytes, a hundred headers), which refuses the rest by itself: what is
refused here would come to be logged with a part of it, and that may be a key."""
RETRY_AFTER_S: Final = (10, 30)
"""Retry-After is drawn from these, so that who was refused together does not come back together."""
AGAIN_S: Final = 2.0
"""The router's tries for one request come within half a second. What was refused so lately and comes again as
it was is such a try: it would wait for a second time otherwise, and be counted as another request."""
MOST_REFUSED: Final = 4096
PASSED: Final = "x-shardwright-passed"
"""Marks what was held and given back to the router: should that send it here again, it does not go round."""
_PROBES: Final = ("/render", "/tokenize", "/detokenize")
"""What the router asks of a worker before each request, and does without. Clients seldom ask it."""
_GUARDED: Final = ("/v1", "/v2", "/inference", "/cohere")
"""Where vLLM asks for its key, as observed of 0.32. The router hands on any path."""
_FULL: Final = "No engine serves now, and as many requests as may are waiting for one"
_LARGE: Final = "No engine serves now, and the request is too large to be held until one does"
_OURS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""What the client would add where the request has none."""
_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
        *("transfer-encoding", "upgrade", "host", "content-length"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is held."""

    requests: int
    wait_s: float
    drain_s: float = 0.0
    """How long they are held after SIGTERM."""


@dataclass(slots=True)
class Activator:
    """See the module. `router` is its base URL, `url` what the router knows this worker by."""

    router: str
    url: str
    model: str
    limits: Limits
    key: str = field(default="", repr=False)
    """What an engine would ask for; with none, nothing."""
    arrived: int = 0
    """Requests that came for an engine and found this instead, since the start of the process."""
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    """Nothing is held nor being answered."""
    _open: int = 0
    """Requests that came and are not answered to their end."""
    _engines: tuple[str, ...] = ()
    """While there are any, requests are passed on."""
    _held: "set[asyncio.Future[bool]]" = field(default_factory=set)
    _bytes: int = 0
    _refused: dict[bytes, float] = field(default_factory=dict)
    """Until when a request that was refused is known."""
    _mark: str = field(default_factory=lambda: secrets.token_hex(16))
    began_s: int = field(default_factory=lambda: int(time.time()))
    draining: bool = False
    """The pod is to go: its router answers what it has, and takes nothing new."""
    _session: aiohttp.ClientSession | None = None

    @property
    def waiting(self) -> int:
        """Requests that are held."""
        return len(self._held)

    def __post_init__(self) -> None:
        self.quiet.set()

    def hold(self) -> None:
        """Hold what comes from now on: no engine serves."""
        self._engines = ()

    def release(self, engines: Iterable[str]) -> None:
        """Pass on what is held and what comes: the router has these engines, and this worker no longer."""
        self._engines = tuple(sorted(engines))
        self._settle(go=True)

    def drain(self) -> None:
        """Hold for a while more, and refuse the rest then: the pod is to go."""
        self.draining = True
        asyncio.get_running_loop().call_later(self.limits.drain_s, self._end)

    def _end(self) -> None:
        self.limits = Limits(requests=0, wait_s=0.0)
        self._settle(go=False)

    def _settle(self, *, go: bool) -> None:
        for future in self._held:
            _settle(future, go)

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()

    async def serve(self, address: str, port: int) -> web.AppRunner:
        """Open its port. Raises OSError."""
        app = web.Application(client_max_size=BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self.answer)
        # A client that gives up takes its request with it.
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=0.2,
            handler_cancellation=True,
            max_line_size=HEADERS_BYTES,
            max_field_size=HEADERS_BYTES,
            max_headers=HEADERS_MOST,
        )
        await runner.setup()
        await web.TCPSite(runner, address, port).start()
        return runner

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request of the router."""
        if request.path == "/health":
            return web.Response(text="ok")
        if self.key and request.path.startswith(_GUARDED) and not self._may(request):
            return _error(401, "invalid_request_error", "The API key is missing or wrong")
        if request.method == "GET" and request.path == "/v1/models":
            known = {"id": self.model, "object": "model", "created": self.began_s, "owned_by": "shardwright"}
            return web.json_response({"object": "list", "data": [known]})
        if request.method != "POST" or request.path.endswith(_PROBES):
            return _refusal("No engine serves now, and this request does not start one")
        self._open += 1
        self.quiet.clear()
        try:
            return await self._take(request)
        finally:
            self._open -= 1
            if not self._open:
                self.quiet.set()

    def _may(self, request: web.Request) -> bool:
        scheme, _, said = request.headers.get("Authorization", "").partition(" ")
        same = hmac.compare_digest(said.encode("utf-8", "surrogateescape"), self.key.encode())
        return same and scheme.lower() == "bearer"

    async def _take(self, request: web.Request) -> web.StreamResponse:
        body_size = BODY_BYTES if request.content_length is None else request.content_length
        # Headers are there twice, as they came and as they are read.
        size = body_size + 2 * sum(len(name) + len(value) for name, value in request.raw_headers)
        if body_size > BODY_BYTES or self._bytes + size > BODIES_BYTES:
            self.arrived += 1
            return _refusal(_LARGE if body_size > BODY_BYTES else _FULL)
        self._bytes += size
        try:
            body = await request.read()
            return await self._judge(request, body)
        except web.HTTPRequestEntityTooLarge:
            self.arrived += 1
            return _refusal(_LARGE)
        finally:
            self._bytes -= size

    async def _judge(self, request: web.Request, body: bytes) -> web.StreamResponse:
        same, now = _digest(request, body), asyncio.get_running_loop().time()
        if request.headers.get(PASSED) == self._mark:
            self._remember(same, now)
            return _refusal("The engine that was there has left again")
        if self._refused.get(same, 0.0) > now:
            return _refusal("No engine serves now")
        self.arrived += 1
        if not self._engines:
            if len(self._held) >= self.limits.requests:
                self._remember(same, now)
                return _refusal(_FULL)
            if not await self._wait():
                self._remember(same, asyncio.get_running_loop().time())
                return _refusal("No engine came to serve in time")
        return await self._pass(request, body)

    async def _wait(self) -> bool:
        """Hold a request; whether an engine came."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        late = loop.call_later(self.limits.wait_s, _settle, future, False)
        self._held.add(future)
        try:
            return await future
        finally:
            late.cancel()
            self._held.discard(future)

    def _remember(self, same: bytes, now: float) -> None:
        if len(self._refused) >= MOST_REFUSED:
            self._refused = {key: until for key, until in self._refused.items() if until > now}
        if len(self._refused) < MOST_REFUSED:
            self._refused[same] = now + AGAIN_S

    async def _pass(self, request: web.Request, body: bytes) -> web.StreamResponse:
        """Let the router answer it; a router that takes no more connections is on its way out."""
        try:
            return await self._relay(self.router, request, body)
        except aiohttp.ClientConnectorError:
            if not self._engines:
                return _refusal("This router is leaving")
        engine = random.choice(self._engines)  # noqa: S311 -- spreads load
        _LOG.info("router is closed, passing on directly url=%s", engine)
        try:
            return await self._relay(engine, request, body)
        except aiohttp.ClientConnectorError:
            return _refusal("The engine does not answer")

    async def _relay(self, base: str, request: web.Request, body: bytes) -> web.StreamResponse:
        """Send it on, and the answer back as it comes. Raises ClientConnectorError when nobody is there."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
                auto_decompress=False,
                trust_env=False,
            )
        headers = {**_end_to_end(request.headers), PASSED: self._mark}
        answer: web.StreamResponse | None = None
        try:
            async with self._session.post(
                URL(f"{base}{request.raw_path}", encoded=True),
                data=body,
                headers=headers,
                skip_auto_headers=_OURS,
                allow_redirects=False,
            ) as found:
                answer = web.StreamResponse(status=found.status, headers=_end_to_end(found.headers))
                await answer.prepare(request)
                async for piece in found.content.iter_any():
                    await answer.write(piece)
                await answer.write_eof()
                return answer
        except aiohttp.ClientConnectorError:
            raise
        except aiohttp.ClientError as error:
            _LOG.warning("no whole answer url=%s error=%s", base, type(error).__name__)
            if answer is None or not answer.prepared:
                return web.Response(status=502, text="the connection broke before an answer came")
            # A stream that is cut must not look like one that has ended.
            if request.transport is not None:
                request.transport.abort()
            return answer


def _settle(future: "asyncio.Future[bool]", go: bool) -> None:
    if not future.done():
        future.set_result(go)


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP}


def _digest(request: web.Request, body: bytes) -> bytes:
    """Tell one request from another. Tries of one are alike in all; those of two clients seldom are."""
    found = hashlib.blake2b(f"{request.method} {request.raw_path}\n".encode(), digest_size=16)
    for name, value in sorted(_end_to_end(request.headers).items()):
        if name.lower() != PASSED:
            found.update(f"{name.lower()}:{value}\n".encode("utf-8", "surrogateescape"))
    found.update(body)
    return found.digest()


def _refusal(why: str) -> web.Response:
    after = random.randint(*RETRY_AFTER_S)  # noqa: S311 -- spreads load
    answer = _error(503, "service_unavailable", f"{why}; try again in {after} s")
    answer.headers["Retry-After"] = str(after)
    return answer


def _error(status: int, kind: str, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": kind, "code": status}}, status=status)

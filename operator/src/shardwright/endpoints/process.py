"""The process `shardwright endpoints`: log in, follow, answer probes, end on SIGTERM.

Decides what the probes say, and that requests which are held at the end are waited for. Never ends because
the API server is away: a router whose list nobody mends still serves.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from shardwright.cluster.api import Api
from shardwright.cluster.credentials import Credentials, Source
from shardwright.cluster.transport import AiohttpTransport
from shardwright.endpoints.activator import Activator, Limits
from shardwright.endpoints.follow import STUCK_S, Follower
from shardwright.endpoints.router import HttpRouter

_LOG = logging.getLogger(__name__)
RETRY_S: Final = 2.0
LOCAL: Final = "127.0.0.1"
_FORM: Final = "time=%(asctime)sZ level=%(levelname)s logger=%(name)s msg=%(message)s"
_JSON: Final = '{"time":"%(asctime)sZ","level":"%(levelname)s","logger":"%(name)s","msg":"%(message)s"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of one process."""

    source: Source
    namespace: str
    service: str
    router: str
    address: str
    port: int
    log_format: str = "text"
    activator_port: int = 0
    """Of 127.0.0.1; 0: requests are not held while there is no engine."""
    model: str = ""
    limits: Limits | None = None
    key: str = field(default="", repr=False)
    """What requests that are held must bring, as engines would ask for it."""


def start(options: Options) -> int:
    """Run until SIGTERM or SIGINT; the exit code."""
    form = _JSON if options.log_format == "json" else _FORM
    logging.basicConfig(level=logging.INFO, format=form, stream=sys.stderr, force=True)
    return asyncio.run(_run(options))


async def _run(options: Options) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    router = HttpRouter(options.router)
    state: dict[str, Follower] = {}
    activator = _activator(options)
    runners: list[web.AppRunner] = []
    try:
        runners.append(await serve(lambda: state.get("follower"), options.address, options.port, activator))
        if activator is not None:
            runners.append(await activator.serve(LOCAL, options.activator_port))
    except OSError as error:
        _LOG.critical("cannot listen address=%s port=%d error=%s", options.address, options.port, error)
        for runner in runners:
            await runner.cleanup()
        await router.close()
        return 1
    main = asyncio.create_task(_follow(options, router, activator, state))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({main, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    code = 0
    if main.done():
        _LOG.critical("failed", exc_info=main.exception())
        code = 1
    elif activator is not None:
        await _drained(activator, main)
    main.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await main
    for runner in runners:
        await runner.cleanup()
    if activator is not None:
        await activator.close()
    await router.close()
    return code


def _activator(options: Options) -> Activator | None:
    if not options.activator_port or options.limits is None:
        return None
    url = f"http://{LOCAL}:{options.activator_port}"
    return Activator(options.router, url, options.model, options.limits, options.key)


async def _drained(activator: Activator, main: "asyncio.Task[None]") -> None:
    """Wait for what is held: the router of this pod waits for its answers too. An engine may still come."""
    activator.drain()
    quiet = asyncio.create_task(activator.quiet.wait())
    await asyncio.wait({main, quiet}, return_when=asyncio.FIRST_COMPLETED)
    quiet.cancel()


async def _follow(
    options: Options, router: HttpRouter, activator: Activator | None, state: dict[str, Follower]
) -> None:
    transport = AiohttpTransport(await _log_in(options.source))
    try:
        follower = Follower(Api(transport), router, options.namespace, options.service, activator)
        state["follower"] = follower
        await follower.run()
    finally:
        await transport.close()


async def _log_in(source: Source) -> Credentials:
    said = ""
    while True:
        try:
            return await Credentials.load(source)
        except Exception as error:  # noqa: BLE001 -- config loaders raise all sorts
            why = f"{type(error).__name__}: {error}"
            if why != said:
                _LOG.warning("cannot log in yet, trying again every %.0f s: %s", RETRY_S, why)
                said = why
        await asyncio.sleep(RETRY_S)


async def serve(
    follower: Callable[[], Follower | None], address: str, port: int, activator: Activator | None = None
) -> web.AppRunner:
    """Open the port of the probes, and of what is held."""

    async def healthz(_: web.Request) -> web.Response:
        found = follower()
        stuck = found is not None and asyncio.get_running_loop().time() - found.beat_at > STUCK_S
        return web.Response(status=503 if stuck else 200, text="stuck" if stuck else "ok")

    async def readyz(_: web.Request) -> web.Response:
        found = follower()
        ready = found is not None and found.filled
        return web.Response(status=200 if ready else 503, text="ok" if ready else "the router is not filled")

    async def held(_: web.Request) -> web.Response:
        if activator is None:
            return web.Response(status=404)
        return web.json_response({"waiting": activator.waiting, "arrived": activator.arrived})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/held", held)
    app.router.add_get("/readyz", readyz)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, address, port).start()
    _LOG.info("listening port=%d paths=/healthz,/readyz", runner.addresses[0][1])
    return runner

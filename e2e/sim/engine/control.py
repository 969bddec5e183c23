"""The test's door to a running engine, on a port of its own that is open from the first moment.

`GET /state` says what it does; `POST /faults` with {"fault": "Hang"} makes it fail. It decides nothing else.
"""

from collections.abc import Callable

from aiohttp import web

from sim.engine.behaviour import Fault


def application(state: Callable[[], dict[str, object]], fail: Callable[[Fault], None]) -> web.Application:
    """Make the application."""

    async def show(_: web.Request) -> web.Response:
        return web.json_response(state())

    async def break_it(request: web.Request) -> web.Response:
        fail(Fault((await request.json())["fault"]))
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/state", show)
    app.router.add_post("/faults", break_it)
    return app

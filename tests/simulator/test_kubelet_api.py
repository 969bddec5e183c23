"""The agent's watches: a server that refuses one, as one that has just started does, is asked again."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from harness import kubeconfig
from harness.certs import Authority
from sim.kubelet.api import Api


def thing(name):
    return {"metadata": {"uid": name, "name": name}}


class Server:
    """Lists nothing, and answers each watch with the next of these."""

    def __init__(self, *watches):
        self.watches = list(watches)

    async def answer(self, request: web.Request) -> web.Response:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        status, said = self.watches.pop(0)
        return web.Response(status=status, text=json.dumps(said) + "\n")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    too_early = {"kind": "Status", "status": "Failure", "code": 429, "message": "storage is (re)initializing"}
    expired = {"type": "ERROR", "object": {"code": 410}}
    server = Server((429, too_early), (200, expired), (200, {"type": "ADDED", "object": thing("a")}))
    app = web.Application()
    app.router.add_get("/things", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    authority = Authority(tmp_path / "pki")
    path = kubeconfig.write(
        tmp_path / "kubeconfig", server_url=f"http://{host}:{port}", ca=authority.certificate,
        credentials=authority.client("agent", "agent"), user="agent",
    )  # fmt: skip
    async with Api(path) as made:
        yield made
    await runner.cleanup()


async def test_a_watch_that_is_refused_is_begun_anew(api: Api):
    watch = api.watch("/things")
    assert await anext(watch) == ("ADDED", thing("a"))
    await watch.aclose()

"""The agent's client of the API server: JSON requests and watches that never give up.

It decides how a watch goes on after an outage: list anew, and tell what is gone.
"""

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

Json = Any
_RETRY_S = 0.2
_WATCH_S = 240
JSON = "application/json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class RefusedError(RuntimeError):
    """The server answered with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:300]}")
        self.status = status


AWAY = (aiohttp.ClientError, OSError, asyncio.TimeoutError, RefusedError)
"""What a server that is away, or on its way up, raises."""


class Api:
    """One session with a client certificate."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self.cluster = cluster
        self._server = cluster["server"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=ca)
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            self._tls.load_cert_chain(pair.name)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._session = aiohttp.ClientSession(self._server, connector=connector)
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(self, path: str) -> Json:
        return await self.send("GET", path)

    async def send(self, method: str, path: str, body: Json = None, kind: str = JSON) -> Json:
        """Send one request; an error status raises."""
        assert self._session is not None
        data = None if body is None else json.dumps(body)
        async with self._session.request(method, path, data=data, headers={"Content-Type": kind}) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise RefusedError(answer.status, text)
            return json.loads(text) if text else None

    async def watch(self, path: str, selector: str = "") -> AsyncIterator[tuple[str, Json]]:
        """Give (ADDED | MODIFIED | DELETED, object) for ever; DELETED also for what left during an outage."""
        known: dict[str, Json] = {}
        while True:
            try:
                listed = await self.get(f"{path}?{selector}")
                items = {item["metadata"]["uid"]: item for item in listed["items"]}
                for uid in set(known) - set(items):
                    yield "DELETED", known.pop(uid)
                for uid, item in items.items():
                    yield "MODIFIED" if uid in known else "ADDED", item
                    known[uid] = item
                async for kind, item in self._events(path, selector, listed["metadata"]["resourceVersion"]):
                    if kind == "DELETED":
                        known.pop(item["metadata"]["uid"], None)
                    else:
                        known[item["metadata"]["uid"]] = item
                    yield kind, item
            except AWAY:
                await asyncio.sleep(_RETRY_S)

    async def _events(self, path: str, selector: str, version: str) -> AsyncIterator[tuple[str, Json]]:
        assert self._session is not None
        query = f"{path}?watch=1&resourceVersion={version}&timeoutSeconds={_WATCH_S}&{selector}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=60)
        async with self._session.get(query, timeout=timeout) as answer:
            if answer.status >= 400:
                raise RefusedError(answer.status, await answer.text())
            buffer = b""
            try:
                async for chunk in answer.content.iter_any():
                    *lines, buffer = (buffer + chunk).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            return
                        yield event["type"], event["object"]
            finally:
                # A watch given up in good order would wait for the server's farewell, longer than its loop may last.
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()

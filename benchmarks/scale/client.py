"""A fast client of the API server for the load and the watches: one event loop, many requests in flight.

It decides how many requests run at once, and retries nothing: a request that fails fails the benchmark.
"""

import asyncio
import base64
import functools
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict

import aiohttp
import msgspec
import yaml

Json = Any
IN_FLIGHT = 32


class _Metadata(TypedDict, total=False):
    name: str
    namespace: str
    generation: int
    resourceVersion: str
    labels: dict[str, str]


class _Spec(TypedDict, total=False):
    replicas: int


class _Condition(TypedDict):
    type: str
    status: str
    reason: str


class _Status(TypedDict, total=False):
    observedGeneration: int
    readyReplicas: int
    conditions: list[_Condition]


class _Seen(TypedDict, total=False):
    """What the watches of the benchmark read of an LLMService or a Deployment; the rest is not decoded."""

    metadata: _Metadata
    spec: _Spec
    status: _Status


class _Event(TypedDict):
    type: str
    object: _Seen


class _List(TypedDict):
    metadata: _Metadata
    items: list[_Seen]


_EVENTS, _LISTS = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_List)
_CREATED = {"Node": "/api/v1/nodes", "Namespace": "/api/v1/namespaces"}


class Client:
    """Requests as the administrator of a harness cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._server: str = cluster["server"]
        self._tls = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            self._tls.load_cert_chain(pair.name)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=IN_FLIGHT + 16)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session."""
        if self._session is None:
            raise RuntimeError("the client is not open")
        return self._session

    async def request(
        self, method: str, path: str, body: Json = None, content_type: str = "application/json"
    ) -> Json:
        """Send one request; an error status raises with the server's answer."""
        return msgspec.json.decode(await self._send(method, path, body, content_type))

    async def _send(self, method: str, path: str, body: Json, content_type: str) -> bytes:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type}
        async with self.session.request(method, self._server + path, data=data, headers=headers) as response:
            text = await response.read()
            if response.status >= 400:
                raise RuntimeError(f"{method} {path}: {response.status}: {text[:400].decode()}")
            return text

    async def get(self, path: str) -> Json:
        """Read an object or a list."""
        return await self.request("GET", path)

    async def list(self, path: str) -> Json:
        """Read what the watches need of all objects of a collection."""
        return _LISTS.decode(await self._send("GET", path, None, "application/json"))

    async def merge(self, path: str, body: Json) -> Json:
        """JSON merge patch."""
        return await self.request("PATCH", path, body, "application/merge-patch+json")

    async def create(self, manifest: Json) -> Json:
        """Create one object of the few kinds that the load has."""
        return await self.request("POST", collection(manifest), manifest)

    async def create_all(self, manifests: Iterable[Json]) -> None:
        """Create many objects, `IN_FLIGHT` at a time."""
        await in_parallel(functools.partial(self.create, each) for each in manifests)

    async def watch(self, path: str, resource_version: str) -> AsyncIterator[Json]:
        """Yield the events of one watch, as far as they are read, until the server ends it."""
        query = f"watch=1&resourceVersion={resource_version}&allowWatchBookmarks=false&timeoutSeconds=3600"
        joined = f"{self._server}{path}{'&' if '?' in path else '?'}{query}"
        async with self.session.get(joined) as response:
            if response.status >= 400:
                raise RuntimeError(f"watch of {path}: {response.status}")
            rest = b""
            async for chunk in response.content.iter_any():
                # Objects are larger than aiohttp's limit of a line.
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield _EVENTS.decode(line)


async def in_parallel(jobs: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Run jobs with `IN_FLIGHT` workers; the first failure ends all of them."""
    queue = iter(jobs)

    async def work() -> None:
        for job in queue:
            await job()

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(work())


def collection(manifest: Json) -> str:
    """Give the path to which an object of this kind is posted."""
    kind = manifest["kind"]
    if kind in _CREATED:
        return _CREATED[kind]
    namespace = manifest["metadata"]["namespace"]
    prefix = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
    return f"{prefix}/namespaces/{namespace}/{kind.lower()}s"

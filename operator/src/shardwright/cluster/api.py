"""The adapter: server-side apply and a few reads on fixed paths, raw dicts in and out.

Decides field managers, paging and how an answer becomes a value or an error. Never decides what to
write. Retries nothing but a login; the work queue retries.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from shardwright.api.names import FIELD_MANAGER, STATUS_FIELD_MANAGER
from shardwright.cluster import shapes
from shardwright.cluster.errors import Gone, error_of
from shardwright.cluster.json import JsonObject, dumps, loads
from shardwright.cluster.kinds import EVENT, LLM_SERVICE, POD, Kind, kind_of
from shardwright.cluster.transport import JSON_TYPE, Response, TokenBucket, Transport

APPLY_TYPE: Final = "application/apply-patch+yaml"
MERGE_TYPE: Final = "application/merge-patch+json"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE: Final = 100
"""Objects of one list page: at some 10 kB each, a page of JSON and its dicts stay below 10 MiB."""


class RequestObserver(Protocol):
    """Counts requests."""

    def request(self, verb: str, kind: str, status: int, seconds: float) -> None:
        """One answer; `status` 0 when there was none."""
        ...


class Applied(NamedTuple):
    """What an apply left behind."""

    metadata: JsonObject
    """Of the live object; the server is not asked for the rest."""
    created: bool
    """The object did not exist before."""


class _Call(NamedTuple):
    """One request. `verb` is what metrics call it."""

    verb: str
    kind: Kind
    method: str
    target: str
    body: bytes | None = None
    content_type: str = JSON_TYPE
    accept: str = JSON_TYPE


class _NoObserver:
    def request(self, verb: str, kind: str, status: int, seconds: float) -> None:
        pass


class Api:
    """One API server."""

    def __init__(
        self,
        transport: Transport,
        *,
        bucket: TokenBucket | None = None,
        observer: RequestObserver | None = None,
    ) -> None:
        self._transport = transport
        self._bucket = bucket
        self._observer = observer or _NoObserver()

    async def apply(self, obj: JsonObject, *, force: bool = True) -> Applied:
        """Server-side apply of a child, as manager `shardwright`.

        Raises Conflict (only without force), Invalid, Gone when the namespace is not there, Forbidden,
        Transient.
        """
        metadata = obj["metadata"]
        path = kind_of(obj).path(metadata.get("namespace"), metadata["name"])
        query = f"?fieldManager={FIELD_MANAGER}&force={'true' if force else 'false'}"
        answer = await self._checked(
            _Call("apply", kind_of(obj), "PATCH", path + query, dumps(obj), APPLY_TYPE, METADATA_ONLY)
        )
        return Applied(shapes.metadata(answer.body), answer.status == 201)

    async def apply_status(self, namespace: str, name: str, status: JsonObject, uid: str) -> JsonObject:
        """Server-side apply of an LLMService's status; the metadata that came of it.

        The uid makes the write fail with Conflict when the object was deleted and made anew. Raises as
        `apply` does.
        """
        body = {
            "apiVersion": LLM_SERVICE.api_version,
            "kind": LLM_SERVICE.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": status,
        }
        path = LLM_SERVICE.path(namespace, name, "status")
        query = f"?fieldManager={STATUS_FIELD_MANAGER}&force=true"
        call = _Call(
            "apply_status", LLM_SERVICE, "PATCH", path + query, dumps(body), APPLY_TYPE, METADATA_ONLY
        )
        return shapes.metadata((await self._checked(call)).body)

    async def merge_as(
        self, kind: Kind, namespace: str, name: str, patch: JsonObject, *, manager: str
    ) -> JsonObject:
        """JSON merge patch as `manager`; the metadata that came of it. Raises as `apply` does.

        With `metadata.uid` in the patch it fails with Conflict when the object was deleted and made anew.
        """
        target = f"{kind.path(namespace, quote(name))}?fieldManager={manager}"
        call = _Call("merge", kind, "PATCH", target, dumps(patch), MERGE_TYPE, METADATA_ONLY)
        return shapes.metadata((await self._checked(call)).body)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> JsonObject:
        """One object. Raises Gone, Forbidden, Transient."""
        return await self._json(_Call("get", kind, "GET", kind.path(namespace, quote(name))))

    async def metadata(self, kind: Kind, namespace: str | None, name: str) -> JsonObject | None:
        """Get the metadata of one object, or None when it is not there.

        The server never sends its content.
        """
        try:
            path = kind.path(namespace, quote(name))
            found = await self._json(_Call("get_metadata", kind, "GET", path, accept=METADATA_ONLY))
        except Gone:
            return None
        metadata: JsonObject = found["metadata"]
        return metadata

    async def list_pages(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        page: int = PAGE,
    ) -> AsyncIterator[tuple[list[JsonObject], str]]:
        """Pages of objects with the list's resourceVersion.

        Raises Gone when the list expired half-way (410).
        """
        query: dict[str, str] = {"limit": str(page)} | _selectors(labels, fields)
        while True:
            target = f"{kind.collection(namespace)}?{urlencode(query)}"
            found = shapes.page(kind, (await self._checked(_Call("list", kind, "GET", target))).body)
            metadata = found["metadata"]
            yield found.pop("items") or [], str(metadata["resourceVersion"])
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    async def names(self, kind: Kind, namespace: str) -> set[str]:
        """Get the names of all objects of a namespace, whoever made them."""
        target = kind.collection(namespace)
        found = await self._json(_Call("list_metadata", kind, "GET", target, accept=METADATA_LIST))
        return {item["metadata"]["name"] for item in found["items"] or ()}

    async def versions(self, kind: Kind, namespace: str | None = None) -> dict[tuple[str, str], str]:
        """Get the resourceVersion of each object by (namespace, name), from the server's watch cache."""
        target = f"{kind.collection(namespace)}?resourceVersion=0"
        found = await self._json(_Call("list_metadata", kind, "GET", target, accept=METADATA_LIST))
        metadata = (item["metadata"] for item in found["items"] or ())
        return {(m.get("namespace", ""), m["name"]): m["resourceVersion"] for m in metadata}

    async def watch(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        timeout_s: int,
        inactivity_s: float,
        gather_s: float = 0.0,
        metadata_only: bool = False,
    ) -> AsyncIterator[list[JsonObject]]:
        """Watch events as `{"type", "object"}`, bookmarks and ERROR included; a list of what came together.

        Raises as the transport does.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        } | _selectors(labels, fields)
        target = f"{kind.collection(namespace)}?{urlencode(query)}"
        accept = METADATA_ONLY if metadata_only else JSON_TYPE
        started = time.monotonic()
        first = True
        answers = self._transport.stream(target, accept=accept, inactivity_s=inactivity_s, gather_s=gather_s)
        async for answer in answers:
            if first:
                self._observer.request("watch", kind.kind, answer.status, time.monotonic() - started)
                first = False
            if answer.status >= 400:
                raise error_of(answer.status, answer.body, answer.headers, f"WATCH {kind.plural}")
            yield [shapes.event(kind, line) for line in answer.body.split(b"\n") if line]

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """Delete one object of ours in the background. One that is gone already is no error.

        Raises Conflict when the object of that name is another one by now.
        """
        body = dumps({"propagationPolicy": "Background", "preconditions": {"uid": uid}})
        try:
            await self._json(_Call("delete", kind, "DELETE", kind.path(namespace, name), body))
        except Gone:
            return

    async def end_pod(self, namespace: str, name: str, *, grace_s: int) -> None:
        """Delete a pod, which has `grace_s` to end; one that is gone is no error. Raises as `get` does."""
        body = dumps({"gracePeriodSeconds": grace_s})
        try:
            await self._json(_Call("delete", POD, "DELETE", POD.path(namespace, name), body))
        except Gone:
            return

    async def create_event(self, namespace: str, event: JsonObject) -> None:
        """Post an events.k8s.io/v1 Event."""
        await self._json(_Call("create", EVENT, "POST", EVENT.collection(namespace), dumps(event)))

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server has this kind: one discovery document of its group."""
        try:
            found = await self._json(_Call("discover", kind, "GET", f"/apis/{kind.api_version}"))
        except Gone:
            return False
        return any(resource.get("name") == kind.plural for resource in found.get("resources", []))

    async def _json(self, call: _Call) -> JsonObject:
        value: JsonObject = loads((await self._checked(call)).body)
        return value

    async def _checked(self, call: _Call) -> Response:
        if self._bucket is not None and (delay := self._bucket.delay_s()) > 0:
            await asyncio.sleep(delay)
        answer = await self._send(call)
        if answer.status >= 400:
            what = f"{call.method} {call.target.partition('?')[0]}"
            error = error_of(answer.status, answer.body, answer.headers, what)
            if self._bucket is not None and error.retry_after_s:
                self._bucket.block(error.retry_after_s)
            raise error
        return answer

    async def _send(self, call: _Call) -> Response:
        started = time.monotonic()
        status = 0
        try:
            answer = await self._transport.request(
                call.method,
                call.target,
                body=call.body,
                content_type=call.content_type,
                accept=call.accept,
            )
            status = answer.status
            return answer
        finally:
            self._observer.request(call.verb, call.kind.kind, status, time.monotonic() - started)


def _selectors(labels: str, fields: str) -> dict[str, str]:
    chosen = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in chosen.items() if value}

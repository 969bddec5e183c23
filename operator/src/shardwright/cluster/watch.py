"""List and watch of one kind, with bookmarks, resumption and a heartbeat that liveness can judge.

Decides when to list again (the resume point is too old), when to resume, and how long to wait after a
failure (at most 1.5 s, so that a service made after an outage is seen quickly). Never keeps an object: the
sink takes small facts. `docs/adr/0006-watches.md` has the measurements behind this module standing
beside kopf's watcher.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, Protocol

from shardwright.cluster.api import Api
from shardwright.cluster.errors import ClusterError, Gone, error_of
from shardwright.cluster.json import JsonObject, dumps
from shardwright.cluster.kinds import Kind

_LOG = logging.getLogger(__name__)

SERVER_TIMEOUT_S: Final = 540
"""How long a watch lasts before the server ends it: an idle watch costs one request in 10 minutes."""
INACTIVITY_S: Final = 100.0
"""A connection that is silent for so long is asked for again where it was. The API server sends a bookmark
about once a minute (bookmarkFrequency in the cacher of k8s.io/apiserver, with a jitter of a quarter), but
none while its cache has seen no event of the kind: then silence is no fault, and a new request costs no
list."""
HEARTBEAT_LIMIT_S: Final = 240.0
"""A watch without a sign of life for this long is dead. During an outage each new attempt is one."""
TOO_MANY_REQUESTS: Final = 429
_FIRST_BACKOFF_S: Final = 0.1
_LAST_BACKOFF_S: Final = 1.5


class Sink(Protocol):
    """Takes what is observed. `key` is (namespace, name)."""

    def upsert(self, obj: JsonObject) -> None:
        """Take an object as it is now; the caller does not use the dict again."""
        ...

    def remove(self, key: tuple[str, str], version: str) -> None:
        """Forget an object that is gone, or no longer selected, at this resourceVersion."""
        ...

    def keys(self) -> set[tuple[str, str]]:
        """All objects that the sink believes to exist, of this watch."""
        ...


def key_of(obj: JsonObject) -> tuple[str, str]:
    """(namespace, name) of an object; the namespace is empty for cluster-scoped kinds."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class Watch:
    """One list+watch.

    `synced` is set after the first list; `beat_at` is the loop time of the last sign of life.
    """

    def __init__(
        self,
        api: Api,
        kind: Kind,
        sink: Sink,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        gather_s: float = 0.0,
        clock: Callable[[], float],
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self.beat_at = clock()
        self.lists = 0
        self.events = 0
        self._api = api
        self._sink = sink
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._metadata_only = metadata_only
        self._gather_s = gather_s
        self._clock = clock
        self._version = ""
        self._failures = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._stream()
            except Gone as gone:
                self._version = ""
                await self._pause(gone, quiet=gone.status == 410)
            except ClusterError as error:
                if error.status == TOO_MANY_REQUESTS:
                    # The server is back but still fills its cache of this kind, which for a custom resource
                    # takes seconds. A list is answered without that cache.
                    self._version = ""
                    self._failures = 0
                await self._pause(error)
            except Exception:  # noqa: BLE001 -- a watch must outlive any fault, and says so
                _LOG.exception("watch failed kind=%s", self.kind.plural)
                self._version = ""
                await self._pause(None)

    async def _pause(self, error: ClusterError | None, *, quiet: bool = False) -> None:
        """Back off: doubled each time, capped, with jitter so that the watches do not return as one herd."""
        self._failures += 1
        delay = min(_LAST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** min(self._failures, 10))
        delay *= random.uniform(0.5, 1.0)  # noqa: S311 -- spreads load, guards nothing
        if error is not None:
            delay = max(delay, min(error.retry_after_s, _LAST_BACKOFF_S))
            if not quiet and self._failures in {1, 5, 25}:
                _LOG.warning(
                    "watch interrupted kind=%s failures=%d error=%s", self.kind.plural, self._failures, error
                )
        self._beat()
        await asyncio.sleep(delay)

    def _beat(self) -> None:
        self.beat_at = self._clock()

    async def _list(self) -> None:
        seen: set[tuple[str, str]] = set()
        version = ""
        pages = self._api.list_pages(self.kind, self._namespace, labels=self._labels, fields=self._fields)
        async for items, page_version in pages:
            version = page_version
            for item in items:
                seen.add(key_of(item))
                self._upsert(item)
            items.clear()
            self._beat()
            await asyncio.sleep(0)
        for key in self._sink.keys() - seen:
            self._sink.remove(key, version)
        self.lists += 1
        self._version = version
        self._failures = 0
        self.synced.set()

    async def _stream(self) -> None:
        events = self._api.watch(
            self.kind,
            self._namespace,
            resource_version=self._version,
            labels=self._labels,
            fields=self._fields,
            timeout_s=SERVER_TIMEOUT_S + random.randrange(60),  # noqa: S311 -- spreads load
            inactivity_s=INACTIVITY_S,
            gather_s=self._gather_s,
            metadata_only=self._metadata_only,
        )
        self._beat()
        async for together in events:
            self._beat()
            self._failures = 0
            for event in together:
                self._take(event["type"], event["object"])
        self._beat()
        self._failures = 0
        # Whoever ends a watch at once, as a proxy may, is not asked again as fast as it answers.
        await asyncio.sleep(_FIRST_BACKOFF_S * random.uniform(0.5, 1.0))  # noqa: S311 -- spreads load

    def _take(self, event_type: str, obj: JsonObject) -> None:
        if event_type == "ERROR":
            code = int(obj.get("code") or 500)
            raise error_of(code, dumps(obj), {}, f"WATCH {self.kind.plural}")
        self._version = obj["metadata"]["resourceVersion"]
        if event_type == "BOOKMARK":
            return
        self.events += 1
        if event_type == "DELETED":
            self._sink.remove(key_of(obj), self._version)
        else:
            self._upsert(obj)

    def _upsert(self, obj: JsonObject) -> None:
        """Hand over one object; one that cannot be read is logged and must not stop the watch."""
        try:
            self._sink.upsert(obj)
        except (KeyError, ValueError, TypeError, AttributeError):
            namespace, name = key_of(obj)
            _LOG.exception("unreadable object kind=%s name=%s/%s", self.kind.plural, namespace, name)

"""kopf as the process host and as the watcher of nodes.

Decides kopf's settings. Only `on.event` is used: it leaves no annotation, no finalizer and no task for
an object. The handlers hand the object to the store, and everything else happens in our own queue. What
changes thousands of times in a first pass (LLMServices, children, pods) is watched by `cluster.watch`,
at a fifth of the CPU of an event here. `docs/adr/0006-watches.md` has the measurements behind the
stateless storages.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Collection, Iterator
from typing import Any, Final

import kopf

from shardwright.api.llmservice import GROUP
from shardwright.cluster.credentials import Credentials
from shardwright.cluster.store import Store

_LOG = logging.getLogger(__name__)

_LONGEST_BACKOFF_S: Final = 3.0
LOGIN_S: Final = 2.0
"""Between two logins: a token that is refused may be renewed at any moment."""


class NoDiffs(kopf.DiffBaseStorage):
    """Remembers nothing. kopf otherwise copies each object twice to find what changed, which we never ask."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:  # noqa: ANN401, ARG002
        """Take nothing of the object."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002
        """Find nothing."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing."""


class NoProgress(kopf.ProgressStorage):
    """Remembers nothing."""

    def fetch(self, **_: Any) -> None:  # noqa: ANN401
        """Find nothing."""

    def store(self, **_: Any) -> None:  # noqa: ANN401
        """Write nothing."""

    def purge(self, **_: Any) -> None:  # noqa: ANN401
        """Write nothing."""

    def touch(self, **_: Any) -> None:  # noqa: ANN401
        """Write nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Leave it as it is."""
        return essence

    def flush(self) -> None:
        """Write nothing."""


class Backoffs(Collection[float]):
    """Endless pauses between attempts, capped: a service made after an outage is seen within seconds."""

    def __iter__(self) -> Iterator[float]:
        for attempt in itertools.count():
            yield min(_LONGEST_BACKOFF_S, 0.25 * 2 ** min(attempt, 8)) * random.uniform(0.7, 1.0)  # noqa: S311

    def __len__(self) -> int:
        return 1_000_000

    def __contains__(self, _: object) -> bool:
        return False


def settings() -> kopf.OperatorSettings:
    """Kopf's settings, with the reason of each that is not the default."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False  # we have our own recorder, with a rate limit
    chosen.scanning.disabled = True  # needs list and watch on namespaces and CRDs otherwise
    chosen.peering.standalone = True  # any other kopf operator could pause us
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 310
    chosen.watching.connect_timeout = 30
    chosen.watching.inactivity_timeout = 100  # bookmarks come about once a minute, with jitter
    chosen.watching.chunk_size = 250
    chosen.watching.reconnect_backoff = 0.1
    chosen.networking.request_timeout = 30
    chosen.networking.error_backoffs = Backoffs()
    chosen.networking.enforce_retry_after = True
    chosen.process.ultimate_exiting_timeout = 5  # below the pod's grace period
    chosen.queueing.exit_timeout = 0.1  # our handlers end at once
    chosen.persistence.finalizer = f"{GROUP}/never-set"
    chosen.persistence.diffbase_storage = NoDiffs()
    chosen.persistence.progress_storage = NoProgress()
    return chosen


def registry(credentials: Credentials, store: Store, *, nodes: bool) -> kopf.OperatorRegistry:
    """Handlers on a registry of their own, so that importing this module registers nothing."""
    handlers = kopf.OperatorRegistry()

    logins = itertools.count()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.ConnectionInfo:  # noqa: ANN401
        """Log in, as often as it takes.

        Without another priority kopf would know a token that was refused before, and end the process.
        """
        number = next(logins)
        if number:
            await asyncio.sleep(LOGIN_S)
        try:
            await credentials.reload()
        except Exception as error:  # noqa: BLE001 -- config loaders raise all sorts; the last login is tried again
            _LOG.warning("cannot read the login again error=%s: %s", type(error).__name__, error)
        return await connection(credentials, priority=number)

    if nodes:

        @kopf.on.event("", "v1", "nodes", registry=handlers)
        async def node(event: kopf.RawEvent, **_: Any) -> None:  # noqa: ANN401
            if event["type"] == "DELETED":
                store.remove_node(event["object"]["metadata"]["name"])
            else:
                store.set_node(dict(event["object"]))

    return handlers


async def connection(credentials: Credentials, *, priority: int = 0) -> kopf.ConnectionInfo:
    """Our credentials in kopf's form; files by path, so that nothing is written to disk."""
    ca, certificate, key = credentials.files
    authorization = await credentials.authorization()
    token = authorization.partition(" ")[2] if authorization else None
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_path=ca,
        insecure=not credentials.verifies,
        scheme="Bearer" if token else None,
        token=token,
        certificate_path=certificate,
        private_key_path=key,
        proxy_url=credentials.proxy,
        priority=priority,
    )

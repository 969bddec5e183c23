"""The worker list of one router, over its HTTP API (vllm-router 0.1.17, as observed).

Decides paths and time-outs. `add_worker` answers once the worker's /health does, or with an error after the
router's --worker-startup-timeout-secs; `remove_worker` takes a worker from the choice at once, and its
streams run on. A URL that ends in a slash never becomes healthy.
"""

import logging
from typing import Final, Protocol

import aiohttp

_LOG = logging.getLogger(__name__)

LIST_TIMEOUT_S: Final = 3.0
CHANGE_TIMEOUT_S: Final = 10.0
"""More than the router waits for a worker's health."""


class RouterGoneError(Exception):
    """Nothing listens, or something that is no router: the next one begins with an empty list."""


class Router(Protocol):
    """What is asked of a router."""

    async def workers(self) -> frozenset[str] | None:
        """Return the URLs of its list; None when it has not answered in time, which a busy one may not.

        Raises RouterGoneError.
        """
        ...

    async def add(self, url: str) -> bool:
        """Add a worker; whether the router took it."""
        ...

    async def remove(self, url: str) -> bool:
        """Remove a worker; whether the router did."""
        ...


class HttpRouter:
    """The router at a base URL."""

    def __init__(self, base: str) -> None:
        self._session = aiohttp.ClientSession(base, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)

    async def workers(self) -> frozenset[str] | None:
        """See Router.workers."""
        try:
            async with self._session.get("/list_workers", timeout=_of(LIST_TIMEOUT_S)) as answer:
                if answer.status != 200:
                    raise RouterGoneError(f"status {answer.status}")
                found = await answer.json(content_type=None)
                return frozenset(str(url) for url in found["urls"])
        except TimeoutError:
            return None
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError) as error:
            raise RouterGoneError(type(error).__name__) from error

    async def add(self, url: str) -> bool:
        """See Router.add."""
        return await self._change("/add_worker", url)

    async def remove(self, url: str) -> bool:
        """See Router.remove."""
        return await self._change("/remove_worker", url)

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()

    async def _change(self, path: str, url: str) -> bool:
        try:
            async with self._session.post(path, params={"url": url}, timeout=_of(CHANGE_TIMEOUT_S)) as answer:
                said = (await answer.text())[:200]
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            _LOG.warning("%s failed url=%s error=%s", path, url, type(error).__name__)
            return False
        if answer.status != 200:
            _LOG.warning("%s refused url=%s status=%d said=%s", path, url, answer.status, said)
        return answer.status == 200


def _of(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds)

"""The engines' metrics from the engines themselves, for clusters without Prometheus.

Decides how many engines are asked at once, how long and how much each may answer, and how long one that does
not answer is left alone. Reads only the few lines that are used, strictly: a line that is not understood is
no figure.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import nan
from typing import Final, NamedTuple

import aiohttp

from shardwright.api.names import ENGINE_PORT, url_host
from shardwright.metrics.source import (
    ALIVE,
    BUCKETS,
    CACHE,
    HTTP,
    HTTP_FAILED,
    HTTP_HANDLERS,
    MEANS,
    NAMES,
    Target,
    kv_tokens,
)
from shardwright.planner.signals import (
    UNREACHABLE,
    PodKey,
    Reading,
    Readings,
    Signal,
    reading,
)

AT_ONCE: Final = 16
TIMEOUT_S: Final = 2.0
MOST_BYTES: Final = 4 << 20
"""A scrape of vLLM 0.32 has 0.1 MB; each further rank and LoRA adapter adds some."""
FIRST_REST_S, LONGEST_REST_S = 60.0, 960.0
"""How long an engine that did not answer is left alone: doubled each time."""
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\.)*)"')
_EDGE: Final = re.compile(r'(?:^|,)le="([^"]+)"')
_WANTED: Final = sorted(
    {re.escape(name) for names in NAMES.values() for name in names}
    | {ALIVE, CACHE, HTTP}
    | set(BUCKETS.values())
)
_LINE: Final = re.compile(
    rf"^({'|'.join(_WANTED)})"
    r"(?:\{((?:[^\"}\n]|\"(?:[^\"\\\n]|\\.)*\")*)\})?[ \t]+(\S+)(?:[ \t]+-?[0-9]+)?[ \t]*$",
    re.MULTILINE,
)


_NAMES: Final = {**NAMES, **{signal: (name,) for signal, name in BUCKETS.items()}}


class _Rest(NamedTuple):
    failures: int
    until_s: float


class EngineSource:
    """See MetricsSource.

    `clock` gives seconds, `now` seconds since the epoch. `calm` is awaited before each engine is asked.
    """

    name = "Pods"

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        port: int = ENGINE_PORT,
        now: Callable[[], float] = time.time,
        calm: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._clock = clock
        self._calm = calm
        self._now = now
        self._port = port
        self._session: aiohttp.ClientSession | None = None
        self._resting: dict[PodKey, _Rest] = {}

    async def read(self, targets: Sequence[Target]) -> Readings:
        """See MetricsSource. Never fails as a whole: each engine answers for itself."""
        found: dict[Signal, dict[PodKey, Reading]] = {signal: {} for signal in Signal}
        # A reading may be of some engines only: who rests is remembered a while.
        long_ago = self._clock() - LONGEST_REST_S
        self._resting = {pod: rest for pod, rest in self._resting.items() if rest.until_s > long_ago}
        waiting = iter([target for target in targets if target.address and not self._rests(target.pod)])

        async def work() -> None:
            for target in waiting:
                if self._calm is not None:
                    await self._calm()
                for signal, seen in (await self._ask(target)).items():
                    found[signal][target.pod] = seen

        await asyncio.gather(*(work() for _ in range(min(AT_ONCE, len(targets)))))
        return Readings(by_signal=found)

    async def close(self) -> None:
        """See MetricsSource."""
        if self._session is not None:
            await self._session.close()

    def _rests(self, pod: PodKey) -> bool:
        rest = self._resting.get(pod)
        return rest is not None and rest.until_s > self._clock()

    async def _ask(self, target: Target) -> dict[Signal, Reading]:
        try:
            text = await self._get(target.address)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            failures = self._resting.get(target.pod, _Rest(0, 0.0)).failures
            pause_s = min(LONGEST_REST_S, FIRST_REST_S * 2**failures)
            self._resting[target.pod] = _Rest(failures + 1, self._clock() + pause_s)
            return dict.fromkeys(Signal, UNREACHABLE)
        self._resting.pop(target.pod, None)
        return signals(text, self._now(), target.edges)

    async def _get(self, address: str) -> str:
        """Read one engine's page. Raises ValueError when it is not one."""
        if self._session is None:
            # An engine is asked seldom: a connection that is kept would only lie about.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=AT_ONCE, force_close=True),
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "text/plain"},
                trust_env=False,
            )
        url = f"http://{url_host(address)}:{self._port}/metrics"
        async with self._session.get(url, allow_redirects=False) as answer:
            if answer.status != 200:
                raise ValueError("the engine refuses")
            body = await answer.content.read(MOST_BYTES)
            while len(body) <= MOST_BYTES and (more := await answer.content.read(1 << 16)):
                body += more
            if len(body) > MOST_BYTES:
                raise ValueError("the page is too long")
        return body.decode()


def signals(text: str, now_s: float, edges: Mapping[Signal, float] | None = None) -> dict[Signal, Reading]:
    """Return what a page in Prometheus' text format says, taken at `now_s`.

    The lines of one name are added up, or averaged: those are an engine's ranks. Of several names of a signal
    the first that is there counts. `edges`: see Target.
    """
    sums: dict[str, float] = {}
    lines: dict[str, int] = {}
    caches: list[float] = []
    http: list[tuple[Mapping[str, str], float]] = []
    wanted = {BUCKETS[signal]: edge for signal, edge in (edges or {}).items()}
    for name, labels, value in _LINE.findall(text):
        if name == CACHE:
            tokens = kv_tokens(dict(_LABEL.findall(labels)))
            caches.extend([] if tokens is None else [tokens])
        elif name == HTTP:
            http.append((dict(_LABEL.findall(labels)), _float(value)))
        elif not name.endswith("_bucket") or _is_edge(labels, wanted.get(name)):
            sums[name] = sums.get(name, 0.0) + _float(value)
            lines[name] = lines.get(name, 0) + 1
    found: dict[Signal, Reading] = {}
    for signal, names in _NAMES.items():
        name = next((name for name in names if name in sums), None)
        if name is not None:
            found[signal] = reading(sums[name] / (lines[name] if signal in MEANS else 1))
    if caches:
        found[Signal.KV_TOKENS] = reading(min(caches))
    if http:
        asked = [(of, count) for of, count in http if of.get("handler", "").startswith(HTTP_HANDLERS)]
        failed = [count for of, count in asked if of.get("status", "").startswith(HTTP_FAILED)]
        found[Signal.ANSWERED] = reading(sum(count for _, count in asked))
        found[Signal.FAILED] = reading(sum(failed))
    if ALIVE in sums:
        found[Signal.SAMPLED] = reading(now_s)
    return found


def _is_edge(labels: str, edge: float | None) -> bool:
    """Whether a bucket's line counts up to the edge."""
    found = _EDGE.search(labels) if edge is not None else None
    return found is not None and _float(found[1]) == edge


def _float(text: str) -> float:
    """Read a sample's value; what is none becomes NaN, and so the sum that it belongs to."""
    try:
        return nan if "_" in text else float(text)
    except ValueError:
        return nan

"""The engines' metrics from Prometheus: one query for each signal of the whole fleet.

Decides the queries, and that all of a reading are about the same instant, so that the sum and the count of a
histogram are of one scrape. What is too old, not a number or of no pod that exists is no figure. Never logs
an answer's body or a credential.

The client is synchronous, so it runs in a thread of its own; a read that is still under way when the next one
is due is not joined by another.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, Final

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests import Response
from requests.exceptions import ConnectionError as NoConnection
from requests.exceptions import SSLError, Timeout
from requests.sessions import Session

from shardwright.metrics.login import Login, LoginError, Secrets
from shardwright.metrics.source import (
    ALIVE,
    BUCKETS,
    CACHE,
    CACHE_LABELS,
    HTTP,
    HTTP_FAILED,
    HTTP_HANDLERS,
    MEANS,
    NAMES,
    PARTS,
    Target,
    kv_tokens,
)
from shardwright.planner.growth import number
from shardwright.planner.signals import NOT_A_NUMBER, STALE, PodKey, Reading, Readings, Signal, reading

_LOG = logging.getLogger(__name__)

QUERY_TIMEOUT_S: Final = 10.0
READ_TIMEOUT_S: Final = 30.0
"""Of all queries of one reading."""
MOST_BYTES: Final = 64 << 20
"""Of one answer: some 150 bytes for each engine."""
SETTLED_S: Final = 2.0
"""The instant that is asked about lies so far back: what was scraped by then is stored."""

EDGES: Final = "EDGES"
_LATE: Final = "Prometheus does not answer in time"

Rows = Sequence[Mapping[str, Any]]
Edges = Mapping[PodKey, Mapping[Signal, float]]
"""Of each pod that is read: see Target.edges."""


class PrometheusSource:
    """See MetricsSource. `now` gives seconds since the epoch."""

    name = "Prometheus"

    def __init__(self, login: Login, *, stale_s: float, now: Callable[[], float] = time.time) -> None:
        self._login = login
        self._stale_s = stale_s
        self._now = now
        self._running: asyncio.Future[Readings] | None = None
        self._client: PrometheusConnect | None = None
        self._secrets: Secrets | None = None
        self._queries = queries(login.namespace_label, login.pod_label)
        self._buckets = bucket_queries(login.namespace_label, login.pod_label)

    async def read(self, targets: Sequence[Target]) -> Readings:
        """See MetricsSource."""
        if self._running is not None and not self._running.done():
            return Readings(failure=_LATE)
        self._running = self._start({target.pod: target.edges for target in targets})
        try:
            return await asyncio.wait_for(asyncio.shield(self._running), READ_TIMEOUT_S)
        except TimeoutError:
            return Readings(failure=_LATE)

    async def close(self) -> None:
        """See MetricsSource. A reading under way ends by its own time-outs."""

    def _start(self, pods: Edges) -> "asyncio.Future[Readings]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Readings] = loop.create_future()

        def work() -> None:
            found = self._read(pods)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(future.set_result, found)

        Thread(target=work, name="prometheus", daemon=True).start()
        return future

    def _read(self, pods: Edges) -> Readings:
        try:
            client = self._connect()
            at_s = self._now() - SETTLED_S
            asked = self._queries | _filled(self._buckets, pods)
            answers = {signal: self._ask(client, query, at_s) for signal, query in asked.items()}
            return self._join(answers, pods, at_s)
        except Exception as error:  # noqa: BLE001 -- the phrase says what is known, and the next reading tries again
            self._drop()
            _LOG.debug("prometheus reading failed kind=%s", type(error).__name__)
            return Readings(failure=_phrase(error))

    def _ask(self, client: PrometheusConnect, query: str, at_s: float) -> Rows:
        rows = client.custom_query(query, params={"time": f"{at_s:.3f}", "timeout": f"{QUERY_TIMEOUT_S:g}s"})
        if not isinstance(rows, list):
            raise ValueError("the answer is no vector")  # noqa: TRY004 -- what a server answers
        return rows

    def _connect(self) -> PrometheusConnect:
        """Return the client, made anew when a file of the login has changed."""
        secrets = self._login.secrets()
        if self._client is not None and secrets == self._secrets:
            return self._client
        self._drop()
        session = _Bounded()
        session.trust_env = False  # neither a proxy nor a .netrc of whoever built the image
        session.verify = self._login.ca_file or True
        session.cert = self._login.client_files
        self._client = PrometheusConnect(
            url=self._login.url.rstrip("/"),
            headers=secrets.headers,
            auth=secrets.basic,
            session=session,
            retry=0,
            timeout=QUERY_TIMEOUT_S,
        )
        self._secrets = secrets
        return self._client

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._secrets = None

    def _join(self, answers: Mapping[Signal, Rows], pods: Edges, at_s: float) -> Readings:
        """Keep what belongs to pods that exist; of a pod whose sample is too old everything is stale."""
        found: dict[Signal, dict[PodKey, Reading]] = {}
        sampled = self._by_pod(Signal.SAMPLED, answers[Signal.SAMPLED], pods)
        fresh = {pod for pod, seen in sampled.items() if at_s - (number(seen) or 0.0) <= self._stale_s}
        for signal, rows in answers.items():
            known = self._by_pod(signal, rows, pods)
            found[signal] = {pod: seen if pod in fresh else STALE for pod, seen in known.items()}
        return Readings(by_signal=found)

    def _by_pod(self, signal: Signal, rows: Rows, pods: Edges) -> dict[PodKey, Reading]:
        found: dict[PodKey, Reading] = {}
        for row in rows:
            labels = row.get("metric") or {}
            pod = (labels.get(self._login.namespace_label, ""), labels.get(self._login.pod_label, ""))
            if pod not in pods:
                continue
            if signal in BUCKETS and not _is_edge(labels, pods[pod].get(signal)):
                continue
            if signal is Signal.KV_TOKENS:
                _take_smallest(found, pod, kv_tokens(labels))
            else:
                found[pod] = _number(row)
        return found


class _Bounded(Session):
    """A session that reads no more of an answer than MOST_BYTES."""

    def request(self, *args: Any, **kwargs: Any) -> Response:  # noqa: ANN401
        """Read an answer up to the bound. Raises ValueError when it is longer."""
        answer = super().request(*args, **kwargs | {"stream": True, "allow_redirects": False})
        body = bytearray()
        with answer:
            for chunk in answer.iter_content(1 << 16):
                body += chunk
                if len(body) > MOST_BYTES:
                    raise ValueError("the answer is too long")
        answer._content = bytes(body)  # how requests itself keeps what was read
        return answer


def _take_smallest(found: dict[PodKey, Reading], pod: PodKey, tokens: float | None) -> None:
    """Of an engine's ranks the one with the smallest cache counts."""
    before = number(found[pod]) if pod in found else None
    if tokens is not None and (before is None or tokens < before):
        found[pod] = reading(tokens)


def _number(row: Mapping[str, Any]) -> Reading:
    try:
        return reading(float(row["value"][1]))
    except (KeyError, IndexError, TypeError, ValueError):
        return NOT_A_NUMBER


def queries(namespace: str, pod: str) -> dict[Signal, str]:
    """Return the query of each signal but those of histograms' edges.

    A pod that two jobs scrape, or two replicas of Prometheus, counts once: the newest of its counters is
    taken before ranks are added up.
    """
    by = f"{namespace}, {pod}"
    found: dict[Signal, str] = {}
    for signal, names in NAMES.items():
        if signal is Signal.STARTED:
            continue
        join = "avg" if signal in MEANS else "sum"
        part = f", {PARTS[signal]}" if signal in PARTS else ""
        each = (f"{join} by ({by}) (max by ({by}, engine, model_name{part}) ({name}))" for name in names)
        found[signal] = " or ".join(each)
    (started,) = NAMES[Signal.STARTED]
    found[Signal.STARTED] = f"max by ({by}) ({started} and on ({by}, instance, job) {ALIVE})"
    handlers = f'handler=~"{HTTP_HANDLERS}.*"'
    found[Signal.ANSWERED] = _http(by, handlers)
    found[Signal.FAILED] = _http(by, f'{handlers}, status=~"{HTTP_FAILED}.*"')
    found[Signal.KV_TOKENS] = f"max by ({by}, {', '.join(CACHE_LABELS)}) ({CACHE})"
    found[Signal.SAMPLED] = f"max by ({by}) (timestamp({ALIVE}))"
    return found


def _http(by: str, which: str) -> str:
    """Return the query of the server's requests: zero where it counts some, and none like these."""

    def counted(matching: str) -> str:
        each = (
            f"max by ({by}, handler, method, status) ({HTTP}{matching} and on ({by}, instance, job) {ALIVE})"
        )
        return f"sum by ({by}) ({each})"

    return f"{counted(f'{{{which}}}')} or 0 * {counted('')}"


def bucket_queries(namespace: str, pod: str) -> dict[Signal, str]:
    """Return the query of each signal of BUCKETS, with EDGES where the edges of the fleet belong."""
    by = f"{namespace}, {pod}"
    return {
        signal: f'sum by ({by}, le) (max by ({by}, engine, model_name, le) ({name}{{le=~"{EDGES}"}}))'
        for signal, name in BUCKETS.items()
    }


def _filled(buckets: Mapping[Signal, str], pods: Edges) -> dict[Signal, str]:
    """Return the queries for the edges that some pod asks for: a few, however large the fleet is."""
    found: dict[Signal, str] = {}
    for signal, query in buckets.items():
        edges = {edges[signal] for edges in pods.values() if signal in edges}
        if edges:
            spelt = {text for edge in edges for text in _spellings(edge)}
            found[signal] = query.replace(EDGES, "|".join(sorted(map(_escaped, spelt))))
    return found


def _spellings(edge: float) -> set[str]:
    """Return an edge as clients and releases of Prometheus spell it: 1.0, 1, 1e+06."""
    whole = {str(int(edge))} if edge == int(edge) else set()
    return {repr(edge), f"{edge:g}"} | whole


def _escaped(text: str) -> str:
    """Escape for a regular expression inside a string of PromQL."""
    return text.replace(".", "\\\\.").replace("+", "\\\\+")


def _is_edge(labels: Mapping[str, Any], edge: float | None) -> bool:
    try:
        return edge is not None and float(labels.get("le", "nan")) == edge
    except (TypeError, ValueError):
        return False


def _phrase(error: Exception) -> str:
    """Say what is wrong, without what was sent or what changes from one time to the next."""
    if isinstance(error, LoginError):
        return str(error)
    if isinstance(error, SSLError):
        return "the TLS certificate of Prometheus is not trusted, or it refuses ours"
    if isinstance(error, Timeout):
        return _LATE
    if isinstance(error, NoConnection):
        return "Prometheus cannot be reached"
    if isinstance(error, PrometheusApiClientException):
        words = str(error).split("(")[0].split()
        status = words[3] if len(words) > 3 else "none"
        login = ": check the login" if status in {"401", "403"} else ""
        return f"Prometheus answers with status {status}{login}"
    return "what answers is no Prometheus"

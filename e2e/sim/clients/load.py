"""An open-loop client: requests come when they come, whether or not earlier ones were answered.

It decides arrivals and lengths from a seed, and what became of each request. It retries nothing: what a client sees is
what is counted. Streams are read to their end; one that ends without its last line was cut.
"""

import asyncio
import json
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from sim.clients.endpoints import Endpoints
from sim.kubelet.api import Api


class Outcome(StrEnum):
    """What became of a request."""

    OK = "Ok"
    REJECTED = "Rejected"
    """A 503 or 429: somebody's queue was full."""
    FAILED = "Failed"
    """Any other status, or no connection."""
    CUT = "Cut"
    """A stream that began and did not end."""


@dataclass(frozen=True, slots=True)
class Result:
    """One request. Seconds of the wall."""

    outcome: Outcome
    status: int
    said: str
    target: str
    began_s: float
    ttft_s: float | None
    took_s: float
    prompt_tokens: int
    tokens: int
    """Frames of the answer."""


@dataclass(frozen=True, slots=True)
class Work:
    """Lengths of requests: each pair of (prompt, answer) tokens with its weight."""

    lengths: Sequence[tuple[int, int]]
    weights: Sequence[float] | None = None
    shared_prefix_tokens: int = 0

    def draw(self, source: random.Random) -> tuple[str, int]:
        """Return a prompt and the length of its answer."""
        prompt, answer = source.choices(self.lengths, self.weights)[0]
        shared = min(self.shared_prefix_tokens, prompt)
        own = [f"{source.getrandbits(24):x}" for _ in range(prompt - shared)]
        return " ".join(["system"] * shared + own), answer


class Client:
    """A client in a thread of its own, in the network of the thread that makes it.

    `target` is a base URL (a router's); without one, `follow` says which Service's endpoints to use.
    """

    def __init__(
        self, model: str, *, target: str = "", seed: int = 0, headers: dict[str, str] | None = None
    ) -> None:
        self.results: list[Result] = []
        self._model = model
        self._target = target
        self._source = random.Random(seed)
        self._headers = headers or {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="client", daemon=True)
        self._endpoints: Endpoints | None = None
        self._follow: tuple[Path, str, str, float] | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._rate_per_s = 0.0
        self._work = Work([(100, 20)])
        self._arriving: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._rate_changed = asyncio.Event()

    def follow(self, kubeconfig: Path, namespace: str, service: str, scale: float = 1.0) -> Self:
        """Send to a Service's endpoints as they become known."""
        self._follow = (kubeconfig, namespace, service, scale)
        return self

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def targets(self) -> tuple[str, ...]:
        """Where requests go now."""
        return (self._target,) if self._target else tuple(f"http://{each}" for each in self._known())

    @property
    def in_flight(self) -> int:
        """Requests without an end."""
        return len(self._open)

    def load(self, rate_per_s: float, work: Work | None = None) -> None:
        """Send at this mean rate from now on."""

        def change() -> None:
            self._rate_per_s = rate_per_s
            self._work = work or self._work
            self._rate_changed.set()

        self._loop.call_soon_threadsafe(change)

    def drain(self) -> list[Result]:
        """Send no more, wait for what is open, and give all results so far."""
        self.load(0.0)
        self._call(self._settle())
        return list(self.results)

    def ask(self, prompt: str, tokens: int = 16) -> Result:
        """Send one greedy request and wait for it."""
        before = len(self.results)
        self._call(self._one(prompt, tokens))
        return self.results[before]

    def at_once(self, count: int, tokens: int = 16) -> list[Result]:
        """Send so many requests at the same time and wait for all of them; nothing else may be on its way."""

        async def all_of_them() -> None:
            await asyncio.gather(*(self._one(f"question {n}", tokens) for n in range(count)))

        before = len(self.results)
        self._call(all_of_them())
        return self.results[before:]

    def _known(self) -> tuple[str, ...]:
        return self._endpoints.known if self._endpoints else ()

    def _call(self, work: Any) -> Any:  # noqa: ANN401 - any coroutine
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()

    async def _begin(self) -> None:
        # A connection for each request: a pooled one would stay with a pod that left.
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=60)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        if self._follow is not None:
            self._following = asyncio.ensure_future(self._learn(*self._follow))
        self._arriving = asyncio.ensure_future(self._arrive())

    async def _learn(self, kubeconfig: Path, namespace: str, service: str, scale: float) -> None:
        async with Api(kubeconfig) as api:
            self._endpoints = Endpoints(api, namespace, service, scale, seed=self._source.getrandbits(32))
            await self._endpoints.follow()

    async def _end(self) -> None:
        for task in (self._arriving, self._following, *self._open):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        assert self._session is not None
        await self._session.close()
        await asyncio.sleep(0.01)  # connections that were aborted are closed by the loop's next rounds

    async def _settle(self) -> None:
        await asyncio.sleep(0)
        while self._open:
            await asyncio.wait(list(self._open))

    async def _arrive(self) -> None:
        due = self._loop.time()
        while True:
            if self._rate_per_s <= 0:
                self._rate_changed.clear()
                await self._rate_changed.wait()
                due = self._loop.time()
                continue
            due += self._source.expovariate(self._rate_per_s)
            self._rate_changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._rate_changed.wait(), max(0.0, due - self._loop.time()))
                # Another rate: the next arrival is drawn anew.
                due = self._loop.time()
                continue
            task = asyncio.ensure_future(self._one(*self._work.draw(self._source)))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _one(self, prompt: str, tokens: int) -> None:
        targets = self.targets
        began = self._loop.time()
        reading = _Reading(self._loop.time)
        target = self._source.choice(targets) if targets else ""
        if not target:
            reading.said = "no endpoint is known"
        else:
            await self._read(target, prompt, tokens, reading)
        result = Result(
            reading.outcome,
            reading.status,
            reading.said,
            target,
            began,
            reading.first_s and reading.first_s - began,
            self._loop.time() - began,
            len(prompt.split()),
            reading.tokens,
        )
        self.results.append(result)

    async def _read(self, target: str, prompt: str, tokens: int, reading: "_Reading") -> None:
        assert self._session is not None
        question = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        try:
            async with self._session.post(
                f"{target}/v1/completions", json=question, headers=self._headers
            ) as answer:
                reading.status = answer.status
                if answer.status != 200:
                    reading.said = (await answer.text())[:300]
                    return
                async for line in answer.content:
                    reading.take(line)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            reading.said = repr(error)


@dataclass(slots=True)
class _Reading:
    """What was read of an answer."""

    clock: Callable[[], float]
    status: int = 0
    said: str = ""
    first_s: float | None = None
    tokens: int = 0
    whole: bool = False
    text: list[str] = field(default_factory=list)

    def take(self, line: bytes) -> None:
        """Read one line of the stream."""
        if not line.startswith(b"data: "):
            return
        if line.strip() == b"data: [DONE]":
            self.whole = True
            self.said = "".join(self.text)
            return
        if self.first_s is None:
            self.first_s = self.clock()
        for choice in json.loads(line[6:])["choices"]:
            self.tokens += 1
            self.text.append(choice["text"])

    @property
    def outcome(self) -> Outcome:
        if self.status == 200:
            return Outcome.OK if self.whole else Outcome.CUT
        return Outcome.REJECTED if self.status in {429, 503} else Outcome.FAILED


def failures(results: Sequence[Result]) -> list[Result]:
    """Return those that were not answered in full."""
    return [each for each in results if each.outcome is not Outcome.OK]


def lost(results: Sequence[Result]) -> dict[str, str]:
    """Return what became of those that were not answered in full: how many of a kind, and from when to when."""
    found: dict[str, list[float]] = {}
    for each in failures(results):
        kind = f"{each.outcome} {each.status} {each.said[:120]!r} {each.target}"
        found.setdefault(kind, []).append(each.began_s)
    return {
        kind: f"{len(began)} of {len(results)}, begun at {min(began):.2f} to {max(began):.2f} s"
        for kind, began in found.items()
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

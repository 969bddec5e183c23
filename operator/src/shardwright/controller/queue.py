"""The work queue: which key is worked on next, and when a failed one comes back.

Decides order, exclusivity and back-off. A key is never worked on twice at once; adding it again while it
waits changes nothing, and adding it while it is worked on runs it once more afterwards. Knows no clock
but the loop's.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)

BASE_BACKOFF_S: Final = 1.0
LONGEST_BACKOFF_S: Final = 300.0
_JITTER: Final = 0.2
_LOOK_S: Final = 0.1
"""How often one who waits for an idle queue looks."""


class QueueObserver(Protocol):
    """Counts what the queue does."""

    def added(self, depth: int) -> None:
        """Count a key that became ready; `depth` keys wait."""
        ...

    def retried(self) -> None:
        """Count a key that failed and was put back."""
        ...

    def taken(self, waited_s: float, depth: int) -> None:
        """Count a key that a worker took after it had waited."""
        ...


class WorkQueue(Generic[K]):
    """Keys to work on. Use it inside one running loop."""

    def __init__(self, observer: QueueObserver | None = None, rng: random.Random | None = None) -> None:
        self._observer = observer
        self._rng = rng or random.Random()  # noqa: S311 -- spreads load, guards nothing
        self._ready: deque[K] = deque()
        self._since: dict[K, float] = {}
        """When a dirty key became ready."""
        self._processing: set[K] = set()
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        """The earliest time at which a delayed key is due; heap entries that disagree are stale."""
        self._failures: dict[K, int] = {}
        self._sequence = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._moved_at = float("-inf")
        """When a key was last taken or finished."""

    def __len__(self) -> int:
        """Keys that are ready."""
        return len(self._since)

    @property
    def delayed(self) -> int:
        """Keys that become ready later."""
        return len(self._due)

    @property
    def processing(self) -> int:
        """Keys being worked on."""
        return len(self._processing)

    @property
    def alone(self) -> bool:
        """Whether nothing is ready and at most one key is being worked on."""
        return not self._since and len(self._processing) <= 1

    @property
    def idle(self) -> bool:
        """Whether nothing is ready or being worked on; delayed keys may wait."""
        return not self._since and not self._processing

    async def until_idle(self, at_most_s: float) -> None:
        """Wait while keys are ready or being worked on; for what can wait itself, and no longer than that."""
        until = self._now() + at_most_s
        while not self.idle and self._now() < until:  # noqa: ASYNC110 -- idle comes and goes; it has no event
            await asyncio.sleep(min(_LOOK_S, until - self._now()))

    def oldest_s(self) -> float:
        """How long the longest-waiting ready key has waited."""
        return max((self._now() - since for since in self._since.values()), default=0.0)

    def stuck_s(self) -> float:
        """For how long keys have been ready without any being taken or finished; 0 while none is ready."""
        if not self._since:
            return 0.0
        return min(self.oldest_s(), self._now() - self._moved_at)

    def add(self, key: K) -> None:
        """Make a key ready, now."""
        if self._closed or key in self._since:
            return
        self._due.pop(key, None)
        self._since[key] = self._now()
        if key not in self._processing:
            self._ready.append(key)
            self._notify()
        if self._observer is not None:
            self._observer.added(len(self._since))

    def add_after(self, key: K, delay_s: float) -> None:
        """Make a key ready after a delay. Of several delays of one key the earliest counts."""
        if delay_s <= 0:
            self.add(key)
            return
        due = self._now() + delay_s
        if self._closed or key in self._since or self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._delayed, (due, self._sequence, key))
        self._arm()

    def retry(self, key: K, at_least_s: float = 0.0) -> float:
        """Put a failed key back with exponential back-off; the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay: float = min(LONGEST_BACKOFF_S, BASE_BACKOFF_S * 2.0 ** min(failures, 16))
        delay = max(at_least_s, delay * (1 + self._rng.uniform(-_JITTER, _JITTER)))
        self.add_after(key, delay)
        if self._observer is not None:
            self._observer.retried()
        return delay

    def failures(self, key: K) -> int:
        """How often a key failed in a row."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Reset a key's back-off."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for a key and take it; call `done` afterwards. Raises QueueClosed after `close`."""
        while not self._ready:
            if self._closed:
                raise QueueClosed
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._waiters = deque(w for w in self._waiters if w is not waiter)
                if waiter.done() and not waiter.cancelled():
                    self._notify()  # the wake-up was for whoever waits next
                raise
        if self._closed:
            raise QueueClosed
        key = self._ready.popleft()
        self._moved_at = self._now()
        self._processing.add(key)
        waited = self._now() - self._since.pop(key)
        if self._observer is not None:
            self._observer.taken(waited, len(self._since))
        return key

    def done(self, key: K) -> None:
        """Say that a key is no longer worked on; if it was added meanwhile it is ready again."""
        self._processing.discard(key)
        self._moved_at = self._now()
        if key in self._since and not self._closed:
            self._ready.append(key)
            self._notify()

    def close(self) -> None:
        """Wake all workers with QueueClosed and take nothing more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _notify(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._delayed[0][0], self._ripen)

    def _ripen(self) -> None:
        self._timer = None
        now = self._now()
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key = heapq.heappop(self._delayed)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        if self._delayed and not self._closed:
            self._arm()


class QueueClosed(Exception):  # noqa: N818 -- an end, not an error
    """The queue takes and gives nothing more."""

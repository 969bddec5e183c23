"""The engine's loop: steps that last as long as the queueing model says, and what they bring to each request.

It decides when a token is there. A step begins when the one before it should have ended, so that a busy machine does
not make the engine slower as long as it keeps up.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from sim.engine.metrics import Metrics
from sim.engine.queueing import Scheduler, Sequence

_FORGIVEN_S = 0.25
"""What is not made up for, when the machine was away for longer."""


class EngineDeadError(RuntimeError):
    """The engine's process is gone, as vLLM calls it."""


@dataclass(slots=True, eq=False)
class Request:
    """A sequence, and who waits for its tokens: True for a token, None for the end that an abort makes."""

    sequence: Sequence
    max_tokens: int
    tokens: asyncio.Queue[bool | None] = field(default_factory=asyncio.Queue)
    failed: bool = False


class Core:
    """One engine."""

    def __init__(self, scheduler: Scheduler, metrics: Metrics, speed: float) -> None:
        self.scheduler = scheduler
        self.metrics = metrics
        self.dead = False
        self.hung = False
        self.steps = 0
        self.late_s = 0.0
        """By how much steps ended after their time, in sum: what the machine, not the model, added."""
        self._speed = speed
        self._requests: dict[Sequence, Request] = {}
        self._work = asyncio.Event()
        self._clock: Callable[[], float] = asyncio.get_running_loop().time

    @property
    def in_flight(self) -> int:
        """Requests that have no end yet."""
        return len(self._requests)

    @property
    def prompt_tokens_waiting(self) -> int:
        """Tokens of the prompts that no step has begun with."""
        return sum(each.prompt_tokens for each in self.scheduler.waiting)

    def add(self, prompt_tokens: int, output_tokens: int, max_tokens: int, cached_tokens: int) -> Request:
        """Take a request; the answer is `output_tokens` long."""
        if self.dead:
            raise EngineDeadError
        sequence = Sequence(prompt_tokens, output_tokens, self._clock(), cached_tokens)
        request = Request(sequence, max_tokens)
        self._requests[sequence] = request
        self.scheduler.add(sequence)
        self.metrics.admitted(prompt_tokens, cached_tokens)
        self.metrics.state(self.scheduler)
        self._work.set()
        return request

    def abort(self, request: Request) -> None:
        """Give a request up, because its client left or the drain is over."""
        if self._requests.pop(request.sequence, None) is None:
            return
        self.scheduler.abort(request.sequence)
        self.metrics.ended(request.sequence, "abort", request.max_tokens, self._clock())
        self.metrics.state(self.scheduler)
        request.failed = True
        request.tokens.put_nowait(None)

    def abort_all(self) -> None:
        """Give up all of them."""
        for request in list(self._requests.values()):
            self.abort(request)

    def recover(self) -> None:
        """Be without a fault again."""
        self.hung = self.metrics.nan = False
        self._work.set()

    def die(self) -> None:
        """End as a process would that is gone: no more steps, and all requests fail."""
        self.dead = True
        for request in self._requests.values():
            request.failed = True
            request.tokens.put_nowait(None)
        self._requests.clear()

    async def run(self) -> None:
        """Step for ever."""
        due = self._clock()
        while True:
            preempted = self.scheduler.preempted
            begun = max(due, self._clock() - _FORGIVEN_S)
            seconds = None if self.dead or self.hung else self.scheduler.begin(begun)
            if seconds is None:
                self._work.clear()
                await self._work.wait()
                due = self._clock()
                continue
            due = begun + seconds / self._speed
            await asyncio.sleep(due - self._clock())
            self.steps += 1
            self.late_s += self._clock() - due
            if self.dead or self.hung:
                continue
            self._book(self.scheduler.preempted - preempted)

    def _book(self, preempted: int) -> None:
        now = self._clock()
        step = self.scheduler.end(now)
        self.metrics.stepped(step, now, preempted)
        for sequence in step.tokens:
            sequence.last_token_s = now
            if request := self._requests.get(sequence):
                request.tokens.put_nowait(True)
        for sequence in step.finished:
            if request := self._requests.pop(sequence, None):
                reason = "length" if sequence.output_tokens == request.max_tokens else "stop"
                self.metrics.ended(sequence, reason, request.max_tokens, now)
        self.metrics.state(self.scheduler)

"""One replica under replay: what it computes step by step, advanced over many steps at once.

Decides when each request of a replica gets its first and its last token. Never routes, never scales.

The steps are vLLM V1's in outline: every running sequence gets one token, the rest of the token budget goes
to prompts in order of arrival, one of them cut in two when it does not fit; a prompt is admitted when its
tokens fit the KV cache with `WATERMARK` to spare; when the cache is full the youngest sequence is preempted
and computed anew. Steps without a prompt differ only in the KV tokens that they read, which grow by the same
number each, so a run of them until the next end of a request, or the next arrival, is a quadratic in closed
form.

The state is mutable: these are the inner loops of a day of half a million requests.
"""

from collections import deque
from heapq import heappop, heappush
from math import inf, sqrt

from shardwright.autoscaler.replay.trace import Trace
from shardwright.autoscaler.replica import ReplicaModel

WATERMARK = 0.01
"""Share of the KV cache that stays free at an admission (vLLM's old default watermark)."""
UNSEEN = -1.0


class Book:
    """What became of each request, and counters that only grow, as engines report them."""

    __slots__ = (
        "arrived",
        "arrived_input",
        "cut",
        "finish_s",
        "finished",
        "finished_output",
        "first",
        "first_s",
        "late",
        "limit_tokens",
        "long",
        "prefilled",
        "queued",
        "refused",
        "slow",
        "token_s",
        "tokens",
        "tpot_s",
        "trace",
        "ttft_s",
    )  # fmt: skip

    def __init__(self, trace: Trace, ttft_s: float, tpot_s: float, limit_tokens: int) -> None:
        size = len(trace.arrival_s)
        self.trace = trace
        self.ttft_s = ttft_s
        self.tpot_s = tpot_s
        self.limit_tokens = limit_tokens
        """The longest prompt that can meet the target, as the policy's plan says."""
        self.first_s = [UNSEEN] * size
        self.finish_s = [UNSEEN] * size
        self.arrived = self.first = self.late = self.long = self.finished = self.slow = 0
        self.cut = self.refused = self.prefilled = self.finished_output = self.arrived_input = 0
        self.tokens = 0
        self.token_s = 0.0
        """Seconds between tokens, over all tokens but the first of each request."""

    def got_first(self, request: int, at: float) -> None:
        """Take note of a first token."""
        self.first_s[request] = at
        self.first += 1
        into = self.trace.input_tokens[request]
        self.prefilled += into
        if at - self.trace.arrival_s[request] > self.ttft_s:
            self.late += 1
        if into > self.limit_tokens:
            self.long += 1

    def got_last(self, request: int, at: float) -> None:
        """Take note of a last token."""
        self.finish_s[request] = at
        self.finished += 1
        out = self.trace.output_tokens[request]
        self.finished_output += out
        if out > 1 and at - self.first_s[request] > self.tpot_s * (out - 1):
            self.slow += 1


class Engine:
    """One replica."""

    __slots__ = (
        "admitted",
        "book",
        "born_s",
        "capacity",
        "chunk",
        "deadline_s",
        "decoding",
        "done",
        "due_s",
        "in_flight",
        "kv",
        "model",
        "number",
        "partial",
        "partial_left",
        "run_from_s",
        "run_linear",
        "run_square",
        "run_steps",
        "state",
        "step",
        "waiting",
    )  # fmt: skip

    def __init__(self, number: int, model: ReplicaModel, book: Book, born_s: float) -> None:
        self.number = number
        self.model = model
        self.book = book
        self.born_s = born_s
        self.state = 0
        self.deadline_s = inf
        self.waiting: deque[tuple[int, int, int]] = deque()
        """(request, tokens to compute, tokens still to bring)."""
        self.decoding: list[tuple[int, int, int, int]] = []
        """(step of its last token, order of admission, request, tokens held less the step it began at)."""
        self.done: list[tuple[int, int, int]] = []
        """Prompts that the step under way completes."""
        self.partial: tuple[int, int, int] | None = None
        self.partial_left = 0
        self.capacity = int(model.kv_tokens * (1 - WATERMARK))
        self.in_flight = 0
        self.kv = 0
        self.step = 0
        self.admitted = 0
        self.due_s = inf
        self.chunk = 0
        self.run_from_s = 0.0
        self.run_steps = 0
        self.run_linear = 0.0
        self.run_square = 0.0

    def add(self, request: int, now: float) -> None:
        """Take a request; what it changes of the run under way ends that run at its next step."""
        trace = self.book.trace
        self.in_flight += 1
        self.waiting.append((request, trace.input_tokens[request], trace.output_tokens[request]))
        if self.due_s == inf:
            self._begin(now)
        elif not self.chunk and len(self.waiting) == 1:
            steps = self._steps_until(now)
            if steps < self.run_steps:
                self.run_steps = steps
                self.due_s = self.run_from_s + self._lasts(steps)

    def advance(self) -> None:
        """End the run that is due, and begin the next."""
        now, steps = self.due_s, self.run_steps
        self.step += steps
        decoding = self.decoding
        sequences = len(decoding)
        if sequences:
            book = self.book
            book.tokens += sequences * steps
            book.token_s += sequences * (now - self.run_from_s)
            self.kv += sequences * steps
            while decoding and decoding[0][0] <= self.step:
                last, _, request, held = heappop(decoding)
                self.kv -= held + last
                self.in_flight -= 1
                book.got_last(request, now)
        if self.done:
            self._first_tokens(now)
        self._begin(now)

    def running(self) -> int:
        """Return the sequences that hold a seat."""
        return len(self.decoding) + len(self.done) + (self.partial is not None)

    def kv_at(self, now: float) -> int:
        """Return the tokens held in the KV cache in the middle of a run."""
        if self.chunk or self.due_s == inf:
            return self.kv
        return self.kv + len(self.decoding) * min(self.run_steps, max(0, self._steps_until(now) - 1))

    def abandon(self) -> list[int]:
        """Cut every request in flight; return them."""
        left = [r for _, _, r, _ in self.decoding] + [r for r, _, _ in (*self.done, *self.waiting)]
        if self.partial is not None:
            left.append(self.partial[0])
        self.decoding, self.done, self.partial = [], [], None
        self.waiting.clear()
        self.in_flight = self.kv = 0
        self.due_s = inf
        return left

    def _first_tokens(self, now: float) -> None:
        for request, tokens, left in self.done:
            if self.book.first_s[request] == UNSEEN:
                self.book.got_first(request, now)
            if left == 1:
                self.kv -= tokens
                self.in_flight -= 1
                self.book.got_last(request, now)
            else:
                self.admitted += 1
                entry = (self.step + left - 1, self.admitted, request, tokens - self.step)
                heappush(self.decoding, entry)
        self.done = []

    def _begin(self, now: float) -> None:
        model = self.model
        decoding = self.decoding
        if self.kv + len(decoding) > model.kv_tokens:
            self._preempt()
        sequences = len(decoding)
        chunk = self._prompts(model.budget_tokens - sequences) if self.waiting or self.partial else 0
        self.run_from_s = now
        self.chunk = chunk
        linear = model.step_s + model.kv_token_s * self.kv
        if chunk:
            seats = self.running()
            self.run_steps = 1
            self.due_s = now + linear + model.sequence_s * seats + model.prefill_token_s * chunk
        elif sequences:
            self.run_linear = linear + model.sequence_s * sequences
            self.run_square = model.kv_token_s * sequences
            room = (model.kv_tokens - self.kv) // sequences
            self.run_steps = min(decoding[0][0] - self.step, room)
            self.due_s = now + self._lasts(self.run_steps)
        else:
            self.due_s = inf

    def _prompts(self, budget: int) -> int:
        """Give the budget to prompts; return the tokens that the step computes of them."""
        chunk = 0
        seats = self.model.seats - len(self.decoding)
        if self.partial is not None:
            chunk = min(self.partial_left, budget)
            self.partial_left -= chunk
            seats -= 1
            if self.partial_left:
                return chunk
            self.done.append(self.partial)
            self.partial = None
        waiting = self.waiting
        while waiting and chunk < budget and seats > 0:
            entry = waiting[0]
            tokens = entry[1]
            alone = not (self.decoding or self.done)
            if not alone and self.kv + tokens + len(self.decoding) >= self.capacity:
                break
            waiting.popleft()
            self.kv += tokens
            seats -= 1
            taken = min(tokens, budget - chunk)
            chunk += taken
            if taken == tokens:
                self.done.append(entry)
            else:
                self.partial, self.partial_left = entry, tokens - taken
        return chunk

    def _preempt(self) -> None:
        """Put the youngest back to the head of the queue until a step fits."""
        if self.partial is not None:
            self.kv -= self.partial[1]
            self.waiting.appendleft(self.partial)
            self.partial = None
        decoding = self.decoding
        while len(decoding) > 1 and self.kv + len(decoding) > self.model.kv_tokens:
            youngest = max(decoding, key=lambda entry: entry[1])
            decoding.remove(youngest)
            last, _, request, held = youngest
            self.kv -= held + self.step
            self.waiting.appendleft((request, held + self.step + 1, last - self.step))
        decoding.sort()

    def _lasts(self, steps: int) -> float:
        """Return the seconds of the first `steps` steps of a run without prompts."""
        return steps * self.run_linear + self.run_square * steps * (steps - 1) / 2

    def _steps_until(self, now: float) -> int:
        """Return the steps of the run under way that end at `now` or first after it."""
        over = now - self.run_from_s
        square = self.run_square
        if square:
            b = self.run_linear - square / 2
            steps = int((sqrt(b * b + 2 * square * over) - b) / square)
        else:
            steps = int(over / self.run_linear)
        while steps > 1 and self._lasts(steps - 1) >= over:
            steps -= 1
        while self._lasts(steps) < over:
            steps += 1
        return max(1, steps)

"""How long an engine's steps take, and what each computes: continuous batching with chunked prefill.

It decides the order of prompts and the seconds of each step. It has no clock: the caller says when a step ends, so a
test runs it in virtual time. It shares no code with the operator's replay, so that a mistake there cannot hide behind
the same mistake here.

The steps are vLLM V1's in outline: running sequences first, one token each; what is left of the token budget goes to
prompts in order of arrival, cut where it ends. KV tokens are taken as they are computed; a prompt is admitted when the
whole of it would fit. Without room, the youngest sequence is put back and computed anew.
"""

from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaModel:
    """Coefficients of a step and the room of an engine. The default: 8B in FP8 on a card of 24 GB."""

    step_ms: float = 36.0
    per_sequence_ms: float = 0.3
    per_kv_token_us: float = 0.55
    per_prefill_token_ms: float = 0.16
    kv_tokens: int = 90_000
    token_budget: int = 2048
    seats: int = 256

    def step_s(self, sequences: int, kv_tokens: int, prefill_tokens: int) -> float:
        """Return the seconds of a step."""
        ms = (
            self.step_ms
            + self.per_sequence_ms * sequences
            + self.per_kv_token_us * kv_tokens / 1000
            + self.per_prefill_token_ms * prefill_tokens
        )
        return ms / 1000


@dataclass(slots=True, eq=False)
class Sequence:
    """A request in the engine. Times are the caller's clock; None as long as it has not come to that."""

    prompt_tokens: int
    output_tokens: int
    arrived_s: float
    cached_tokens: int = 0
    """Of the prompt, found in the prefix cache: nothing to compute."""
    scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    held: int = 0
    """Tokens in the KV cache."""
    produced: int = 0
    preemptions: int = 0
    step_tokens: int = field(default=0, repr=False)
    """What the step under way computes of it."""

    @property
    def known(self) -> int:
        """All tokens that must be in the KV cache before the next can be produced."""
        return self.prompt_tokens + self.produced

    @property
    def done(self) -> bool:
        """Whether it has brought all its tokens."""
        return self.produced >= self.output_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """What a step did: who got a token, and who was put back before it."""

    tokens: tuple[Sequence, ...]
    finished: tuple[Sequence, ...]
    computed: int
    """Tokens of the batch, prompts and answers together."""


class Scheduler:
    """The queue and the batch of one engine."""

    def __init__(self, model: ReplicaModel, *, seats: int | None = None, budget: int | None = None) -> None:
        self.model = model
        self.seats = min(model.seats, seats) if seats else model.seats
        self.budget = min(model.token_budget, budget) if budget else model.token_budget
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        """In order of admission."""
        self.preempted = 0

    @property
    def held(self) -> int:
        """Tokens in the KV cache."""
        return sum(sequence.held for sequence in self.running)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute."""
        return not (self.waiting or self.running)

    def add(self, sequence: Sequence) -> None:
        """Take a request."""
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Forget a request whose client left, wherever it is."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        sequence.held = sequence.step_tokens = 0

    def begin(self, now: float) -> float | None:
        """Choose what the next step computes and return its seconds; None when there is nothing."""
        budget = self.budget
        for sequence in self.running:
            sequence.step_tokens = min(sequence.known - sequence.held, budget)
            budget -= sequence.step_tokens
        self._make_room()
        budget = self.budget - sum(sequence.step_tokens for sequence in self.running)
        self._admit(budget, now)
        batch = [sequence for sequence in self.running if sequence.step_tokens]
        if not batch:
            return None
        prefill = sum(each.step_tokens for each in batch if each.held + 1 < each.known)
        return self.model.step_s(len(batch), self.held, prefill)

    def end(self, now: float) -> Step:
        """Book the step that began last."""
        tokens, finished, computed = [], [], 0
        for sequence in self.running:
            computed += sequence.step_tokens
            sequence.held += sequence.step_tokens
            if not sequence.step_tokens or sequence.held < sequence.known:
                continue
            sequence.produced += 1
            if sequence.first_token_s is None:
                sequence.first_token_s = now
            tokens.append(sequence)
            if sequence.done:
                finished.append(sequence)
        self.running = [sequence for sequence in self.running if not sequence.done]
        return Step(tuple(tokens), tuple(finished), computed)

    def _make_room(self) -> None:
        """Put the youngest back until the step fits the cache; one alone is never put back."""
        while len(self.running) > 1 and self._needed() > self.model.kv_tokens:
            youngest = self.running.pop()
            youngest.held = youngest.step_tokens = youngest.cached_tokens = 0
            youngest.preemptions += 1
            self.preempted += 1
            self.waiting.appendleft(youngest)

    def _admit(self, budget: int, now: float) -> None:
        promised = sum(max(each.known, each.held + each.step_tokens) for each in self.running)
        while self.waiting and budget > 0 and len(self.running) < self.seats:
            first = self.waiting[0]
            if self.running and promised + first.known > self.model.kv_tokens:
                break
            self.waiting.popleft()
            first.held = min(first.cached_tokens, first.known - 1)
            first.step_tokens = min(first.known - first.held, budget)
            budget -= first.step_tokens
            promised += first.known
            if first.scheduled_s is None:
                first.scheduled_s = now
            self.running.append(first)

    def _needed(self) -> int:
        return sum(each.held + each.step_tokens for each in self.running)

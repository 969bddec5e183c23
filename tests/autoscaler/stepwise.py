"""The replica model a second time, one step at a time, from its statement: an oracle for the replay's closed
forms."""

from dataclasses import dataclass, field

from shardwright.autoscaler.replica import ReplicaModel


@dataclass
class Sequence:
    request: int
    to_compute: int
    to_bring: int
    held: int = 0
    computed: int = 0


@dataclass
class StepwiseReplica:
    """Everything is looked at anew at every step."""

    model: ReplicaModel
    now: float = 0.0
    queue: list[Sequence] = field(default_factory=list)
    decoding: list[Sequence] = field(default_factory=list)
    prefilling: list[Sequence] = field(default_factory=list)
    first: dict[int, float] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)

    def kv(self) -> int:
        return sum(s.held for s in self.decoding) + sum(s.to_compute for s in self.prefilling)

    def step(self) -> None:
        model = self.model
        self._preempt()
        budget = model.budget_tokens - len(self.decoding)
        taken: list[tuple[Sequence, int]] = []
        for sequence in self.prefilling:
            part = min(budget, sequence.to_compute - sequence.computed)
            taken.append((sequence, part))
            budget -= part
        while self.queue and budget > 0 and len(self.decoding) + len(self.prefilling) < model.seats:
            head = self.queue[0]
            room = int(model.kv_tokens * 0.99)
            busy = self.decoding or self.prefilling
            if busy and self.kv() + head.to_compute + len(self.decoding) >= room:
                break
            if (
                self.prefilling
                and self.prefilling[-1].to_compute > self.prefilling[-1].computed + taken[-1][1]
            ):
                break
            self.queue.pop(0)
            self.prefilling.append(head)
            part = min(budget, head.to_compute)
            taken.append((head, part))
            budget -= part
        chunk = sum(part for _, part in taken)
        self.now += (
            model.step_s
            + model.sequence_s * (len(self.decoding) + len(self.prefilling))
            + model.kv_token_s * self.kv()
            + model.prefill_token_s * chunk
        )
        self._tokens(taken)

    def _preempt(self) -> None:
        while self.kv() + len(self.decoding) > self.model.kv_tokens:
            if self.prefilling:
                self._back(self.prefilling.pop())
            elif len(self.decoding) > 1:
                self._back(self.decoding.pop())
            else:
                break

    def _tokens(self, taken: list[tuple[Sequence, int]]) -> None:
        for sequence in list(self.decoding):
            sequence.held += 1
            sequence.to_bring -= 1
            if sequence.to_bring == 0:
                self.decoding.remove(sequence)
                self.last[sequence.request] = self.now
        for sequence, part in taken:
            sequence.computed += part
            if sequence.computed == sequence.to_compute:
                self.prefilling.remove(sequence)
                self.first.setdefault(sequence.request, self.now)
                sequence.held = sequence.to_compute
                sequence.to_bring -= 1
                if sequence.to_bring == 0:
                    self.last[sequence.request] = self.now
                else:
                    self.decoding.append(sequence)

    def _back(self, sequence: Sequence) -> None:
        again = sequence.held + 1 if sequence.held else sequence.to_compute
        self.queue.insert(0, Sequence(sequence.request, again, sequence.to_bring))


def stepwise(
    model: ReplicaModel, requests: list[tuple[float, int, int]]
) -> tuple[dict[int, float], dict[int, float]]:
    """Serve (arrival, input, output) on one replica; return times of first and last tokens."""
    replica = StepwiseReplica(model)
    coming = [(at, Sequence(n, into, out)) for n, (at, into, out) in enumerate(requests)]
    while coming or replica.queue or replica.decoding or replica.prefilling:
        if not (replica.queue or replica.decoding or replica.prefilling):
            replica.now = max(replica.now, coming[0][0])
        while coming and coming[0][0] <= replica.now:
            replica.queue.append(coming.pop(0)[1])
        replica.step()
    return replica.first, replica.last

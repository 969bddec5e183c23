"""A fleet under replay: arrivals are routed, replicas start and drain, and a policy is asked at every tick.

Decides which replica takes a request (the ready one with the fewest in flight), when a replica is paid for
(from its creation until it is gone), and which one leaves (one that starts, else the emptiest). Never decides
a size: a policy does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from shardwright.autoscaler.replay.engine import WATERMARK, Book, Engine
from shardwright.autoscaler.replay.trace import Trace, uniform
from shardwright.autoscaler.replica import ReplicaModel

STARTING, READY, DRAINING, GONE = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a replay holds fixed."""

    model: ReplicaModel
    ttft_s: float
    tpot_s: float
    """Mean per request after its first token."""
    cold_start_s: float = 120.0
    cold_start_spread: float = 0.15
    """Each start takes up to this share more or less, evenly spread."""
    min_replicas: int = 1
    max_replicas: int = 48
    first_replicas: int = 4
    """Ready at the start."""
    unscored_s: float = 600.0
    drain_s: float = 300.0
    """Streams that last longer on a replica that leaves are cut."""
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a policy may see at a tick: the fleet now, and what happened since the last tick."""

    now_s: float
    interval_s: float
    ready: int
    starting: int
    draining: int
    running: int
    """Sequences on ready replicas."""
    waiting: int
    """Requests in the queues of ready replicas, or without a replica."""
    in_flight: int
    """Requests on all replicas."""
    kv_shares: tuple[float, ...]
    """Share of the KV cache in use on each ready replica."""
    queues: tuple[int, ...]
    """Waiting requests of each ready replica."""
    arrived: int
    first: int
    late: int
    long: int
    """First tokens whose prompt is longer than what the policy's plan says can meet the target."""
    finished: int
    slow: int
    input_tokens: int
    """Prompt tokens of those that got their first token."""
    output_tokens: int
    """Tokens of those that ended."""
    tokens: int
    token_s: float
    """Tokens after the first of a request, and the seconds between them."""


class Policy(Protocol):
    """A rule that sizes a fleet."""

    @property
    def name(self) -> str:
        """As tables show it."""
        ...

    @property
    def period_s(self) -> float:
        """Seconds between ticks."""
        ...

    @property
    def limit_tokens(self) -> int:
        """The longest prompt that meets the TTFT target on an idle replica, as the policy believes."""
        ...

    def decide(self, seen: Snapshot) -> int:
        """Return the size wanted, replicas that start included."""
        ...


@dataclass(slots=True)
class Outcome:
    """What came of a replay."""

    book: Book
    end_s: float
    unscored_s: float
    sizes: list[tuple[float, int]] = field(default_factory=list)
    """Time and size at each change, the first size at zero."""
    paid_s: float = 0.0
    """Replica-seconds between the end of the unscored part and the last arrival."""
    cut: int = 0


_COUNTS: tuple[tuple[str, str], ...] = (
    ("arrived", "arrived"), ("first", "first"), ("late", "late"), ("long", "long"), ("finished", "finished"),
    ("slow", "slow"), ("input_tokens", "prefilled"), ("output_tokens", "finished_output"),
    ("tokens", "tokens"),
)  # fmt: skip


class Fleet:
    """The replicas and their clock."""

    def __init__(self, trace: Trace, world: World, limit_tokens: int) -> None:
        self.world = world
        self.trace = trace
        self.book = Book(trace, world.ttft_s, world.tpot_s, limit_tokens)
        self.ready: list[Engine] = []
        self.others: list[Engine] = []
        """Replicas that start or drain."""
        self.engines: list[Engine] = []
        self.events: list[tuple[float, int]] = []
        self.unrouted: list[int] = []
        self.outcome = Outcome(self.book, trace.end_s, world.unscored_s)
        self.before: dict[str, float] = {key: 0 for key, _ in _COUNTS} | {"token_s": 0.0}
        for _ in range(world.first_replicas):
            self._create(0.0)
            self.engines[-1].state = READY
            self.ready.append(self.others.pop())
        self.size = world.first_replicas
        self.outcome.sizes.append((0.0, self.size))

    def route(self, request: int, now: float) -> None:
        """Give a request that arrives to the replica with the fewest in flight, the oldest among equals."""
        tokens = self.trace.input_tokens[request] + self.trace.output_tokens[request]
        if tokens > self.world.model.kv_tokens * (1 - WATERMARK):
            self.book.refused += 1
            return
        best, least = None, 1 << 30
        for engine in self.ready:
            if engine.in_flight < least:
                best, least = engine, engine.in_flight
        if best is None:
            self.unrouted.append(request)
            return
        before = best.due_s
        best.add(request, now)
        if best.due_s != before:
            heappush(self.events, (best.due_s, best.number))

    def run_until(self, until: float) -> None:
        """Let everything happen that is due by then."""
        events, engines = self.events, self.engines
        while events and events[0][0] <= until:
            at, number = heappop(events)
            engine = engines[number]
            if engine.due_s == at:
                engine.advance()
                if engine.due_s < inf:
                    heappush(events, (engine.due_s, number))
                if engine.state == DRAINING and not engine.in_flight:
                    self._leave(engine, at)
            elif engine.deadline_s == at:
                self._deadline(engine, at)

    def resize(self, wanted: int, now: float) -> None:
        """Create or remove replicas until the size is the one wanted, within the limits of the world."""
        wanted = max(self.world.min_replicas, min(self.world.max_replicas, wanted))
        if wanted == self.size:
            return
        for _ in range(wanted - self.size):
            self._create(now)
        starting = [e for e in self.others if e.state == STARTING]
        for _ in range(self.size - wanted):
            if starting:
                self._leave(starting.pop(), now)
            else:
                self._drain(min(self.ready, key=lambda e: (e.in_flight, -e.number)), now)
        self.size = wanted
        self.outcome.sizes.append((now, wanted))

    def snapshot(self, now: float, interval_s: float) -> Snapshot:
        """Return what metrics say at a tick."""
        book, before = self.book, self.before
        counts = {key: getattr(book, name) - before[key] for key, name in _COUNTS}
        token_s = book.token_s - before["token_s"]
        self.before = {key: getattr(book, name) for key, name in _COUNTS} | {"token_s": book.token_s}
        queues = tuple(len(e.waiting) for e in self.ready)
        return Snapshot(
            now_s=now,
            interval_s=interval_s,
            ready=len(self.ready),
            starting=sum(e.state == STARTING for e in self.others),
            draining=sum(e.state == DRAINING for e in self.others),
            running=sum(e.in_flight for e in self.ready) - sum(queues),
            waiting=sum(queues) + len(self.unrouted),
            in_flight=sum(e.in_flight for e in (*self.ready, *self.others)) + len(self.unrouted),
            kv_shares=tuple(e.kv_at(now) / self.world.model.kv_tokens for e in self.ready),
            queues=queues,
            token_s=token_s,
            **counts,
        )

    def _create(self, now: float) -> None:
        world = self.world
        number = len(self.engines)
        engine = Engine(number, world.model, self.book, now)
        self.engines.append(engine)
        self.others.append(engine)
        spread = world.cold_start_spread * (2 * uniform(world.seed, number) - 1)
        engine.deadline_s = now + world.cold_start_s * (1 + spread)
        if now > 0 or number >= world.first_replicas:
            heappush(self.events, (engine.deadline_s, number))

    def _deadline(self, engine: Engine, now: float) -> None:
        """End a start, or the time to drain."""
        engine.deadline_s = inf
        if engine.state == STARTING:
            engine.state = READY
            self.others.remove(engine)
            self.ready.append(engine)
            waiting, self.unrouted = self.unrouted, []
            for request in waiting:
                self.route(request, now)
        elif engine.state == DRAINING:
            self.outcome.cut += len(engine.abandon())
            self._leave(engine, now)

    def _drain(self, engine: Engine, now: float) -> None:
        self.ready.remove(engine)
        self.others.append(engine)
        engine.state = DRAINING
        if not engine.in_flight:
            self._leave(engine, now)
            return
        engine.deadline_s = now + self.world.drain_s
        heappush(self.events, (engine.deadline_s, engine.number))

    def _leave(self, engine: Engine, now: float) -> None:
        self.others.remove(engine)
        engine.state = GONE
        engine.deadline_s = inf
        self._pay(engine, now)

    def _pay(self, engine: Engine, until: float) -> None:
        start, stop = max(engine.born_s, self.outcome.unscored_s), min(until, self.outcome.end_s)
        self.outcome.paid_s += max(0.0, stop - start)

    def close(self) -> Outcome:
        """Let every request end, and pay for what still runs."""
        for engine in (*self.ready, *self.others):
            self._pay(engine, inf)
        self.outcome.unscored_s = self.world.unscored_s
        paid = self.outcome.paid_s
        self.run_until(inf)
        self.outcome.paid_s = paid
        return self.outcome


def replay(
    trace: Trace, world: World, policy: Policy, seen: Callable[[Snapshot, int], None] | None = None
) -> Outcome:
    """Replay a trace under a policy; `seen` is told each tick and what was decided."""
    fleet = Fleet(trace, world, policy.limit_tokens)
    arrivals, book = trace.arrival_s, fleet.book
    period, tick = policy.period_s, policy.period_s
    events, run_until, route = fleet.events, fleet.run_until, fleet.route
    for request, at in enumerate(arrivals):
        while tick <= at:
            run_until(tick)
            shot = fleet.snapshot(tick, period)
            wanted = policy.decide(shot)
            fleet.resize(wanted, tick)
            book.limit_tokens = policy.limit_tokens
            if seen is not None:
                seen(shot, wanted)
            tick += period
        if events and events[0][0] <= at:
            run_until(at)
        book.arrived += 1
        route(request, at)
    return fleet.close()

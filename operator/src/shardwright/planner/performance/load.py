"""How many requests run at a load, and what each of them then sees.

Decides the batch: given in a closed loop, the fixed point of arrivals and time in an open one, at most what
slots and KV cache hold. Never decides whether that is fast enough.

Monotone by construction: every term grows with the batch, and the batch grows more slowly than the time it
takes (each term's elasticity is at most one), so that one batch belongs to a rate and both grow together.
"""

from dataclasses import dataclass
from math import inf, sqrt
from typing import NamedTuple

from shardwright.planner.performance.decode import Step, decode_step
from shardwright.planner.performance.prefill import Prefill, prefill
from shardwright.planner.performance.speed import Speed
from shardwright.planner.performance.types import PerformanceRequest

MS = 1000.0
TOLERANCE = 1e-8
STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One arrangement with one kind of request, before a load is put on it."""

    speed: Speed
    prompt: Prefill
    output_tokens: float
    slots: float
    """Requests that run at once, at most."""
    closed: bool
    context_tokens: float
    """Behind a running request, on average over its life."""
    work_ms: float
    """What one prompt takes from the others: of one pipeline stage."""
    least_ms: float
    """What is left of it in a full chunk with others: no more prompts are computed than it allows."""
    alone_ms: float
    """To the first token when nothing else runs."""
    chunk_ms: float
    """Of one chunk of the prompt."""
    steps_waited: float
    """Decode steps of others that a prompt waits for: half of one, and one for each further chunk."""
    ttft_ratio: float
    """Measured over predicted; `Running` has it in its totals, not in their parts."""
    tpot_ratio: float


class Running(NamedTuple):
    """What a request sees while `running` are decoded, ms; without waiting for a slot."""

    running: float
    rate_per_ms: float
    step: Step
    interference_ms: float
    step_wait_ms: float
    queue_ms: float
    ttft_ms: float
    tpot_ms: float

    def lifetime_ms(self, output_tokens: float) -> float:
        """From arrival to the last token."""
        return self.ttft_ms + self.tpot_ms * (output_tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The state an engine settles in under a load."""

    at: Running
    slots_ms: float
    """Waiting for a slot; infinite when arrivals are more than is served."""
    saturated: bool
    utilisation: float


def engine_of(request: PerformanceRequest, speed: Speed) -> Engine:
    """Return the engine for the request's lengths."""
    prompt = prefill(
        speed, request.input_tokens, request.shared_prefix_tokens, request.max_num_batched_tokens
    )
    return Engine(
        speed=speed,
        prompt=prompt,
        output_tokens=request.output_tokens,
        slots=slots(request),
        closed=request.concurrency is not None,
        context_tokens=request.input_tokens + request.output_tokens / 2,
        work_ms=prompt.gpu_ms / speed.pipeline,
        least_ms=prompt.multiplied_ms / speed.pipeline * min(1.0, request.ttft_ratio),
        alone_ms=speed.request_ms + prompt.total_ms + speed.launch_ms + speed.sequence_ms,
        chunk_ms=prompt.total_ms / prompt.chunks,
        steps_waited=0.5 + prompt.chunks - 1,
        ttft_ratio=request.ttft_ratio,
        tpot_ratio=request.tpot_ratio,
    )


def slots(request: PerformanceRequest) -> float:
    """Return how many requests run at once: by max-num-seqs and by the KV cache, at least one.

    A running request holds its own input and, on average, half of its output; a shared prefix is held once.
    """
    ranks = request.parallelism.data
    most = float(request.max_num_seqs)
    if request.kv_capacity_tokens is not None:
        held = request.input_tokens - request.shared_prefix_tokens + request.output_tokens / 2
        most = min(most, (request.kv_capacity_tokens - request.shared_prefix_tokens) / held)
    return max(1.0, most * ranks)


def run(engine: Engine, running: float, rate_per_ms: float | None = None) -> Running:
    """Return what requests see while `running` are decoded.

    Closed loop: a request sees its peers' prefills once in its life, and of those that end together with its
    predecessor half before its own. Open loop: arrivals are random, a request sees as many others as run on
    average, and its prefill waits as in M/D/1: work x rho / 2 (1 - rho), bounded.
    """
    speed = engine.speed
    step = decode_step(speed, running, engine.context_tokens)
    others = running / speed.data
    if engine.closed:
        others = others - 1.0 if others > 1.0 else 0.0
    busy = min(1.0, others)
    work = engine.work_ms
    interference = speed.interference_share * others * work / engine.output_tokens
    step_ms = step.total_ms
    waiting = busy * step_ms * engine.steps_waited
    own = engine.alone_ms + waiting
    tpot = (step_ms + interference) * engine.tpot_ratio
    first = engine.ttft_ratio
    if engine.closed:
        queue = speed.burst_share * others * work / 2
        life = (own + queue) * first + tpot * (engine.output_tokens - 1)
        # Short answers: all that is in flight cannot pass faster than the prompts are computed.
        queue += max(0.0, running * engine.least_ms / speed.data - life) / first
        rate = running / ((own + queue) * first + tpot * (engine.output_tokens - 1))
    else:
        life = own * first + tpot * (engine.output_tokens - 1)
        rate = rate_per_ms if rate_per_ms is not None else min(_rate(engine, running, life), _most(engine))
        queue = _queue_ms(engine, rate)
    return Running(running, rate, step, interference, waiting, queue, (own + queue) * first, tpot)


def longest_step_ms(engine: Engine, at: Running) -> float:
    """Return ms of a step that holds one whole prefill chunk: the longest pause between two tokens."""
    return at.step.total_ms * engine.tpot_ratio + engine.chunk_ms * engine.ttft_ratio


def settle(
    engine: Engine, concurrency: float | None, rate_per_s: float | None, full: Running | None = None
) -> Settled:
    """Return the state under a load, of which exactly one is given, as the engine is closed or open.

    `full`: the state with all slots in use, where it is known.
    """
    full = full or run(engine, engine.slots)
    if concurrency is not None:
        if concurrency <= engine.slots:
            at = run(engine, concurrency)
            return Settled(at=at, slots_ms=0.0, saturated=False, utilisation=_share(at, full))
        waiting = (concurrency - engine.slots) / full.rate_per_ms
        return Settled(at=full, slots_ms=waiting, saturated=True, utilisation=1.0)
    assert rate_per_s is not None
    rate = rate_per_s / MS
    if rate >= full.rate_per_ms:
        return Settled(at=full, slots_ms=inf, saturated=True, utilisation=1.0)
    at = _open(engine, rate)
    return Settled(at=at, slots_ms=0.0, saturated=False, utilisation=_share(at, full))


def _share(at: Running, full: Running) -> float:
    return min(1.0, at.rate_per_ms / full.rate_per_ms)


def _open(engine: Engine, rate: float) -> Running:
    """Return the state in which as many requests run as arrive in the time each takes.

    Solves rate x life(B) = B by secants inside a bracket. There is one solution below the slots, as the rate
    is below what the full engine serves.
    """
    low, high = 0.0, engine.slots
    before_x, before_y = 0.0, rate * run(engine, 0.0, rate).lifetime_ms(engine.output_tokens)
    x = min(before_y, high)
    for _ in range(STEPS):
        at = run(engine, x, rate)
        y = rate * at.lifetime_ms(engine.output_tokens) - x
        if abs(y) <= TOLERANCE * (1.0 + x):
            break
        if y > 0:
            low = x
        else:
            high = x
        fall = (before_y - y) / (x - before_x)
        before_x, before_y = x, y
        x = x + y / fall if fall > 0 else high
        if not low < x < high:
            x = (low + high) / 2
    return at


def _most(engine: Engine) -> float:
    """Return the arrivals for each ms whose prompts alone keep all ranks busy."""
    return engine.speed.data / engine.least_ms if engine.least_ms else inf


def _queue_ms(engine: Engine, rate: float) -> float:
    """Return the wait of M/D/1 for a prefill, its factor bounded."""
    rho = rate * engine.work_ms / engine.speed.data
    factor = engine.speed.queue_limit
    if rho < 1.0:
        factor = min(factor, 1.0 / (1.0 - rho))
    return 0.5 * engine.work_ms * rho * factor


def _rate(engine: Engine, running: float, life: float) -> float:
    """Return the arrivals for each ms that keep `running` requests going, of which each takes `life` + queue.

    rate x (life + work x rho / 2 (1 - rho)) = running, rho = rate x work / ranks, is a quadratic equation; as
    is the one where the factor is at its bound. A measured ratio lengthens the wait and not the load.
    """
    work, ranks, limit = engine.work_ms, engine.speed.data, engine.speed.queue_limit
    share, waits = work / ranks, work * engine.ttft_ratio
    a = share * (life - waits / 2)
    b = life + running * share
    root = sqrt(max(0.0, b * b - 4 * a * running))
    rate = 2 * running / (b + root)
    if rate * share <= 1.0 - 1.0 / limit:
        return rate
    steep = 0.5 * waits * share * limit
    return 2 * running / (life + sqrt(life * life + 4 * steep * running))

"""How fast an arrangement that fits would serve, and how many replicas the load then takes.

Decides for one arrangement alone: the highest load of a replica within the targets, the replicas, and, when a
stated target or the stated load is out of reach, which and by how much. Never compares arrangements.

Targets that the spec states bind: an arrangement that misses one is no candidate. Those that come from the
profile are a guess about a service of that kind, which must neither refuse a service that asked for nothing
nor cost it anything: no replica is added for them. They choose between arrangements that cost the same; what
is missed is said in the plan's notes, and `advice` says how many replicas would keep it.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf

from shardwright.catalog.types import GPUProduct
from shardwright.planner.load import (
    FIELD_OF,
    ITL,
    TPOT,
    TTFT,
    load_of,
    stated_fields,
    taking,
    targets_of,
    wanted_fields,
)
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.rate import Border, Figures, Limit, Replica, Targets
from shardwright.planner.performance.types import PerformanceRequest, Prediction
from shardwright.planner.performance.work import MissingFactError, work
from shardwright.planner.question import Fit, Question
from shardwright.planner.replica import replica
from shardwright.planner.room import most_on_one, room_of, surviving, total
from shardwright.planner.types import LoadKind, ModelChoice, Parallelism, Speed

MOST_UTILISATION = 0.85
"""Of the rate at which all slots are in use, on average: beyond it, waiting for a slot grows without bound.
Our choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """An arrangement that cannot keep what is stated, however many replicas the budget gives it."""

    limit: Limit
    """The stated target that a lone request misses; SLOTS: it keeps them, but not at the stated load."""
    held_back: frozenset[Limit]
    """What stops a replica from more."""
    figures: Figures
    """At the least load that one replica can be given."""
    term: str
    """The largest part of the figure, as a phrase."""
    replicas: int
    """That the load would take; 0 when more of them would not help."""
    per_replica: float
    """Load that one replica takes within the stated targets."""
    overshoot: float
    relaxed: tuple[tuple[str, int], ...]
    """Targets that it would keep, in whole milliseconds; empty when none would do."""


@lru_cache(maxsize=1024)
def unpredicted(model: ModelChoice, gpu: GPUProduct) -> str:
    """Say why nothing can be predicted for a checkpoint on a product; empty when it can."""
    try:
        work(model.architecture, gpu, Parallelism(), fp8_kv=False, nvlink=False)
    except MissingFactError as error:
        return str(error)
    return ""


def most_replicas(question: Question, gpus: int) -> int:
    """Return how many replicas of so many GPUs budget and scaling allow, at least one."""
    most = max(1, question.max_gpus // max(1, gpus))
    bound = question.resolved.scale.max_replicas
    return most if bound is None else max(1, min(most, bound))


def least_replicas(question: Question, fit: Fit) -> int:
    """Return the replicas that stated load and targets take; those of the profile do not count."""
    load = load_of(question.resolved)
    if fit.speed is None or load.kind is LoadKind.NONE:
        return question.replicas
    return max(question.replicas, taking(load.total, fit.speed.most))


def judge_speed(question: Question, fit: Fit) -> Fit | Miss:
    """Return the arrangement with its speed and replicas, or which stated target or load it misses."""
    try:
        judge = _Judge(question, fit)
    except MissingFactError as error:
        return replace(_surviving(question, fit), speed_unknown=str(error))
    return judge.answer()


def _surviving(question: Question, fit: Fit, needed: int = 0) -> Fit:
    """Add what the loss of one node would take from the `needed` replicas, where that is asked for.

    Without a load, and under External, the count is the user's: it is looked at, and not changed.
    """
    rooms = room_of(fit)
    room, replicas, spare, survives = total(rooms), max(1, needed, question.replicas), 0, True
    if question.resolved.survive_node_loss:
        if not needed or question.resolved.scale.mode == "External":
            survives = room >= question.replicas > most_on_one(question.replicas, rooms)
        else:
            enough = surviving(needed, rooms, most_replicas(question, fit.gpus))
            survives, replicas, spare = enough > 0, max(replicas, enough), max(0, enough - needed)
    return replace(fit, room=room, replicas=replicas, spare=spare, survives=survives)


class _Judge:
    """One arrangement under the service's traffic."""

    __slots__ = (
        "_allowed", "_asked", "_fit", "_held_back", "_in_flight", "_load", "_question", "_replica",
        "_stated", "_targets", "_wanted",
    )  # fmt: skip

    def __init__(self, question: Question, fit: Fit) -> None:
        self._question, self._fit = question, fit
        self._load = load_of(question.resolved)
        self._stated, self._wanted = stated_fields(question.spec), wanted_fields(question.resolved)
        self._targets = targets_of(question.resolved, self._wanted)
        self._allowed = most_replicas(question, fit.gpus)
        self._asked = _request(question, fit)
        self._replica = Replica(self._asked)
        self._held_back: frozenset[Limit] = frozenset()
        self._in_flight: tuple[int, Limit] | None = None

    def _of(self, fields: frozenset[str]) -> Targets:
        return targets_of(self._question.resolved, fields)

    def answer(self) -> Fit | Miss:
        full = self._replica.highest(Targets())
        stated = self._highest(self._of(self._stated), full)
        self._held_back = frozenset({stated.limit})
        if stated.requests_per_s == 0:
            return self._miss(stated.limit, per_replica=0.0)
        kept, best = self._kept(stated, full)
        load, planned = self._load, self._question.replicas
        if load.kind is LoadKind.NONE:
            self._held_back |= {best.limit}
            self._in_flight = self._replica.most_in_flight(self._of(self._stated))
            if self._in_flight[0] < 1:
                return self._miss(self._in_flight[1], per_replica=0.0)
            return self._fit_with(planned, (0.0, 0.0), best)
        most, comfortable = self._borders(kept, stated, best)
        if most < 1 and load.kind is LoadKind.IN_FLIGHT:
            return self._miss(stated.limit, per_replica=0.0)
        if taking(load.total, most) > self._allowed:
            return self._miss(Limit.SLOTS, per_replica=most)
        return self._fit_with(taking(load.total, most), (most, comfortable), stated)

    def _highest(self, targets: Targets, full: Border) -> Border:
        """Return the highest rate within targets, never close to where all slots are used."""
        found = self._replica.highest(targets)
        bound = full.requests_per_s * MOST_UTILISATION
        return found if found.requests_per_s <= bound else Border(bound, Limit.SLOTS)

    def _kept(self, stated: Border, full: Border) -> tuple[Targets, Border]:
        """Return the targets that a lone request keeps, and the highest rate within them."""
        if self._wanted <= self._stated:
            return self._of(self._stated), stated
        alone = dict(self._replica.alone(self._targets).over(self._targets))
        fields = self._stated | {FIELD_OF[limit] for limit, over in alone.items() if over <= 1}
        if fields == self._stated:
            return self._of(self._stated), stated
        targets = self._of(fields)
        found = self._highest(targets, full)
        return (targets, found) if found.requests_per_s > 0 else (self._of(self._stated), stated)

    def _borders(self, kept: Targets, stated: Border, best: Border) -> tuple[float, float]:
        """Return the load that one replica takes within the stated targets, and within all that are kept."""
        if self._load.kind is LoadKind.RATE:
            self._held_back |= {best.limit}
            return stated.requests_per_s * 60, best.requests_per_s * 60
        most, limit = self._replica.most_in_flight(self._of(self._stated))
        good, tighter = self._replica.most_in_flight(kept)
        self._held_back = frozenset({limit, tighter})
        return float(most), float(good)

    def _at(self, replicas: int, targets: Targets) -> tuple[float, Figures]:
        """Return how many requests run in one of so many replicas, and what is held against the targets."""
        if self._load.kind is LoadKind.RATE:
            return self._replica.at(targets, rate_per_s=self._share(replicas) / 60)
        return self._replica.at(targets, concurrency=self._share(replicas))

    def _share(self, replicas: int) -> float:
        """Return the load of one of so many replicas; without a load the one that is assumed."""
        match self._load.kind:
            case LoadKind.RATE:
                return self._load.total / replicas
            case LoadKind.IN_FLIGHT:
                return float(ceil(self._load.total / replicas))
            case LoadKind.NONE:
                return float(self._fit.concurrency)

    def _fit_with(self, needed: int, borders: tuple[float, float], best: Border) -> Fit:
        loaded = self._load.kind is not LoadKind.NONE
        fit = _surviving(self._question, self._fit, needed if loaded else 0)
        targets = self._targets
        (running, seen), band = self._at(fit.replicas, targets), self._replica.band
        over = {FIELD_OF[limit]: value for limit, value in seen.over(targets)}
        speed = Speed(
            kind=self._load.kind,
            most=borders[0],
            comfortable=borders[1],
            requests_per_minute=best.requests_per_s * 60,
            limit=best.limit.value,
            running=running,
            ttft_ms=seen.ttft_ms,
            ttft_percentile=targets.ttft_percentile,
            tpot_ms=seen.tpot_ms,
            tpot_percentile=targets.tpot_percentile,
            band_low=band.low,
            band_high=band.high,
            covered=band.covered,
            band=band.phrase,
            gaps=band.gaps,
            missed=tuple(
                _phrase(field, seen, targets) for field in (TTFT, TPOT, ITL)
                if over.get(field, 0.0) > 1 and field not in self._stated
            ),
            load=self._share(fit.replicas),
            slots=self._asked.max_num_seqs,
            kv_room_tokens=self._asked.kv_capacity_tokens,
            in_flight_most=self._in_flight[0] if self._in_flight else None,
            in_flight_limit=self._in_flight[1].value if self._in_flight else "",
        )  # fmt: skip
        in_flight = {
            LoadKind.RATE: max(1, ceil(running)),
            LoadKind.IN_FLIGHT: ceil(self._load.total / fit.replicas),
            LoadKind.NONE: fit.concurrency,
        }[self._load.kind]
        return replace(
            fit,
            speed=speed,
            held_back=self._held_back,
            concurrency=in_flight,
            needed_tokens=_needed_tokens(fit, in_flight) if loaded else fit.needed_tokens,
        )

    def _miss(self, limit: Limit, *, per_replica: float) -> Miss:
        wanted = self._of(self._stated)
        lone = replace(self._asked, rate_per_s=None, concurrency=1.0)
        _, alone = self._replica.at(wanted, concurrency=1.0)
        loaded = self._load.kind is not LoadKind.NONE
        reached = self._at(self._allowed, wanted)[1] if loaded else alone
        seen = alone if limit is not Limit.SLOTS else reached
        term = _largest_term(lone, limit, self._question.resolved.traffic.input_p95_tokens)
        return Miss(
            limit=limit,
            held_back=self._held_back,
            figures=seen,
            term=term,
            replicas=taking(self._load.total, per_replica) if per_replica else 0,
            per_replica=per_replica,
            overshoot=max((over for _, over in seen.over(wanted)), default=0.0),
            relaxed=_relaxed(reached, wanted) if self._servable() else (),
        )

    def _servable(self) -> bool:
        """Whether the replicas that are allowed would take the load if no target were stated."""
        load = self._load
        if load.kind is LoadKind.NONE:
            return True
        if load.kind is LoadKind.IN_FLIGHT:
            return load.total <= self._allowed * self._replica.most_in_flight(Targets())[0]
        most = self._replica.highest(Targets()).requests_per_s * 60 * MOST_UTILISATION
        return load.total <= self._allowed * most


def _request(question: Question, fit: Fit) -> PerformanceRequest:
    """Return the question to the latency model, without a load of its own.

    No more requests run at once than the KV cache holds at the workload's long lengths (p95 input, half of
    p95 output): what is planned must not need the cache to be swapped.
    """
    held = max(1, fit.demand.most_held(fit.kv_room_tokens))
    return replica(
        fit, question.resolved.traffic, question.engine, fit.offer.product,
        slots=min(fit.limits.max_num_seqs, held), kv_room_tokens=max(1, fit.kv_room_tokens),
        measured=question.correction(fit.model, fit.offer),
    )  # fmt: skip


def _needed_tokens(fit: Fit, running: int) -> int:
    """Return the KV tokens of the requests in flight of one planned replica, in each of its ranks."""
    in_rank = -(-running // fit.parallelism.data)
    return replace(fit.demand, concurrency=in_rank).required_tokens(fit.context_tokens)


def _relaxed(seen: Figures, wanted: Targets) -> tuple[tuple[str, int], ...]:
    """Return the stated targets that are missed, as they would be kept; empty when no figure is finite."""
    found = []
    for limit, over in seen.over(wanted):
        if over == inf:
            return ()
        if over > 1:
            field = FIELD_OF[limit]
            target = {TTFT: wanted.ttft_ms, TPOT: wanted.tpot_ms, ITL: wanted.itl_ms}[field] or 0.0
            found.append((f"{field}.milliseconds", ceil(over * target * (1 + 1e-6))))
    return tuple(found)


def _phrase(field: str, seen: Figures, wanted: Targets) -> str:
    figure, target, percentile = {
        TTFT: (seen.ttft_ms, wanted.ttft_ms, f" P{wanted.ttft_percentile}"),
        TPOT: (seen.tpot_ms, wanted.tpot_ms, f" P{wanted.tpot_percentile}"),
        ITL: (seen.itl_ms, wanted.itl_ms, ""),
    }[field]
    return (
        f"{field}{percentile} of {target:.0f} ms ({figure * wanted.margin:.0f} ms predicted, margin included)"
    )


def _largest_term(at: PerformanceRequest, limit: Limit, p95_input_tokens: int) -> str:
    """Name the largest part of the figure that is in the way."""
    asked = at
    if limit is not Limit.TPOT:
        asked = replace(at, input_tokens=max(at.input_tokens, float(p95_input_tokens)))
    found: Prediction = predict(asked)
    if limit is Limit.TPOT:
        step = found.tpot
        parts = {
            "reading the weights": step.weights_ms, "multiplying": step.compute_ms,
            "reading the KV cache": step.kv_ms, "talking between ranks": step.communication_ms,
            "launching kernels": step.launch_ms, "prefills of others": step.interference_ms,
        }  # fmt: skip
    else:
        first = found.ttft
        parts = {
            "reading the weights": first.weights_ms, "multiplying the prompt": first.compute_ms,
            "attention over the prompt": first.attention_ms, "talking between ranks": first.communication_ms,
            "launching kernels": first.launch_ms, "the request itself": first.request_ms,
            "steps of others": first.step_ms, "prefills of others": first.queue_ms,
            "waiting for room in the batch": first.slots_ms,
        }  # fmt: skip
    name = max(parts, key=lambda part: (parts[part], part))
    return name if parts[name] == inf else f"{name}, {parts[name]:.0f} ms"

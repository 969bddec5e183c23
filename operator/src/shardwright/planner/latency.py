"""How fast an arrangement that fits would serve, and how many replicas the load then takes.

Decides for one arrangement alone: the highest load of a replica within the targets, the replicas, and, when a
stated target or the stated load is out of reach, which and by how much. Never compares arrangements.

Targets that the spec states bind: an arrangement that misses one is no candidate. Those that come from the
profile are a guess about a service of that kind, which must never refuse a service that asked for nothing:
they size the replicas, at most to twice of what is needed without them, and choose between arrangements that
cost the same; what is missed is said in the plan's notes.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf

from shardwright.api.defaults import Resolved
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.catalog.types import GPUProduct
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.rate import (
    Figures,
    HighestRate,
    Limit,
    Targets,
    figures,
    highest_concurrency,
    highest_rate,
)
from shardwright.planner.performance.types import PerformanceRequest, Prediction
from shardwright.planner.performance.work import MissingFactError, work
from shardwright.planner.question import Fit, Question
from shardwright.planner.replica import load_of_one, replica
from shardwright.planner.types import LoadKind, ModelChoice, Parallelism, Plan, Speed

MOST_UTILISATION = 0.85
"""Of the rate at which all slots are in use, on average: beyond it, waiting for a slot grows without bound.
Our choice."""
MOST_FOR_DEFAULTS = 2
"""Targets that nobody stated may at most double the replicas. Our choice."""
TTFT, TPOT, ITL = "slo.ttft", "slo.tpot", "slo.itl"
FIELD_OF = {Limit.TTFT: TTFT, Limit.TPOT: TPOT, Limit.STEP: ITL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """An arrangement that cannot keep what is stated, however many replicas the budget gives it."""

    limit: Limit
    """The stated target that a lone request misses; SLOTS: it keeps them, but not at the stated load."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The stated load of the whole service."""

    kind: LoadKind
    total: float

    @property
    def unit(self) -> str:
        """Its unit, for sentences."""
        return "requests a minute" if self.kind is LoadKind.RATE else "requests in flight"


@lru_cache(maxsize=1024)
def unpredicted(model: ModelChoice, gpu: GPUProduct) -> str:
    """Say why nothing can be predicted for a checkpoint on a product; empty when it can."""
    try:
        work(model.architecture, gpu, Parallelism(), fp8_kv=False, nvlink=False)
    except MissingFactError as error:
        return str(error)
    return ""


def load_of(resolved: Resolved) -> Load:
    """Return the load that is stated."""
    traffic = resolved.traffic
    if traffic.requests_per_minute is not None:
        return Load(kind=LoadKind.RATE, total=float(traffic.requests_per_minute))
    if traffic.concurrency is not None:
        return Load(kind=LoadKind.IN_FLIGHT, total=float(traffic.concurrency))
    return Load(kind=LoadKind.NONE, total=0.0)


def stated_fields(spec: LLMServiceSpec) -> frozenset[str]:
    """Return the targets that the spec states, by field."""
    slo = spec.slo
    if slo is None:
        return frozenset()
    found = {TTFT: slo.ttft, TPOT: slo.tpot, ITL: slo.itl}
    return frozenset(field for field, target in found.items() if target is not None)


def targets_of(resolved: Resolved, fields: frozenset[str]) -> Targets:
    """Return the targets of `fields` as the latency model takes them; percentiles are those of all."""
    wanted = resolved.targets
    return Targets(
        ttft_ms=float(wanted.ttft.milliseconds) if TTFT in fields else None,
        ttft_percentile=wanted.ttft.percentile,
        tpot_ms=float(wanted.tpot.milliseconds) if TPOT in fields else None,
        tpot_percentile=wanted.tpot.percentile,
        itl_ms=float(wanted.itl.milliseconds) if wanted.itl is not None and ITL in fields else None,
        p95_input_tokens=float(resolved.traffic.input_p95_tokens),
    )


def most_replicas(question: Question, gpus: int) -> int:
    """Return how many replicas of so many GPUs budget and scaling allow, at least one."""
    most = max(1, question.max_gpus // max(1, gpus))
    bound = question.resolved.scale.max_replicas
    return most if bound is None else max(1, min(most, bound))


def needed_replicas(total: float, most: float, comfortable: float, allowed: int) -> int:
    """Return the replicas for a load of which one takes `most`, or `comfortable` by the unstated targets."""
    needed = ceil(total / most - 1e-9)
    wished = ceil(total / comfortable - 1e-9) if comfortable > 0 else needed
    return max(needed, min(wished, allowed, MOST_FOR_DEFAULTS * needed))


def least_replicas(question: Question, fit: Fit) -> int:
    """Return the replicas that stated load and targets take; those of the profile do not count."""
    load = load_of(question.resolved)
    if fit.speed is None or load.kind is LoadKind.NONE:
        return question.replicas
    return max(question.replicas, ceil(load.total / fit.speed.most - 1e-9))


def replicas_of(plan: Plan, resolved: Resolved, max_gpus: int) -> int:
    """Return the replicas that a plan in force takes for the load that the spec states now.

    Only the figures that are frozen in the plan are used: a newer latency model changes no count. A plan
    without them, or for a load of another kind, runs as many as `scaling` says. Under External that is so
    always.
    """
    scale, load, speed = resolved.scale, load_of(resolved), plan.speed
    allowed = max_gpus // max(1, plan.gpus_per_replica)
    wanted = scale.planned_replicas
    if scale.mode == "External" or speed is None or load.kind is LoadKind.NONE:
        return min(wanted, allowed)
    if load.kind is not speed.kind or speed.most <= 0:
        return min(wanted, allowed)
    if scale.max_replicas is not None:
        allowed = min(allowed, max(scale.max_replicas, wanted))
    return min(max(wanted, needed_replicas(load.total, speed.most, speed.comfortable, allowed)), allowed)


def judge_speed(question: Question, fit: Fit) -> Fit | Miss:
    """Return the arrangement with its speed and replicas, or which stated target or load it misses."""
    replicas = question.replicas
    try:
        return _Judge(question, fit).answer()
    except MissingFactError as error:
        return replace(fit, replicas=replicas, speed_unknown=str(error))


class _Judge:
    """One arrangement under the service's traffic."""

    __slots__ = ("_allowed", "_asked", "_fit", "_load", "_question", "_stated", "_wanted")

    def __init__(self, question: Question, fit: Fit) -> None:
        self._question, self._fit = question, fit
        self._load = load_of(question.resolved)
        self._stated = stated_fields(question.spec)
        self._wanted = frozenset({TTFT, TPOT} | ({ITL} if question.resolved.targets.itl else set()))
        self._allowed = most_replicas(question, fit.gpus)
        self._asked = _request(question, fit)

    def _targets(self, fields: frozenset[str]) -> Targets:
        return targets_of(self._question.resolved, fields)

    def answer(self) -> Fit | Miss:
        full = highest_rate(self._asked, Targets())
        stated = self._highest(self._stated, full)
        if stated.requests_per_s == 0:
            return self._miss(stated.limit, per_replica=0.0)
        kept, best = self._kept(stated, full)
        most, comfortable = self._borders(kept, stated, best)
        load, planned = self._load, self._question.replicas
        if load.kind is LoadKind.NONE:
            return self._fit_with(planned, 0.0, 0.0, best)
        if most < 1 and load.kind is LoadKind.IN_FLIGHT:
            return self._miss(stated.limit, per_replica=0.0)
        if ceil(load.total / most - 1e-9) > self._allowed:
            return self._miss(Limit.SLOTS, per_replica=most)
        needed = needed_replicas(load.total, most, comfortable, self._allowed)
        return self._fit_with(max(planned, needed), most, comfortable, best)

    def _highest(self, fields: frozenset[str], full: HighestRate) -> HighestRate:
        """Return the highest rate within the targets of `fields`, never close to where all slots are used."""
        found = highest_rate(self._asked, self._targets(fields)) if fields else full
        bound = full.requests_per_s * MOST_UTILISATION
        if found.requests_per_s <= bound:
            return found
        return replace(found, requests_per_s=bound, limit=Limit.SLOTS)

    def _kept(self, stated: HighestRate, full: HighestRate) -> tuple[frozenset[str], HighestRate]:
        """Return the targets that a lone request keeps, and the highest rate within them."""
        fields = self._wanted
        while fields > self._stated:
            found = self._highest(fields, full)
            if found.requests_per_s > 0:
                return fields, found
            fields -= {FIELD_OF[found.limit]}
        return self._stated, stated

    def _borders(self, kept: frozenset[str], stated: HighestRate, best: HighestRate) -> tuple[float, float]:
        """Return the load that one replica takes within the stated targets, and within all that are kept."""
        match self._load.kind:
            case LoadKind.RATE:
                return stated.requests_per_s * 60, best.requests_per_s * 60
            case LoadKind.IN_FLIGHT:
                most, _ = highest_concurrency(self._asked, self._targets(self._stated))
                good, _ = highest_concurrency(self._asked, self._targets(kept))
                return float(most), float(good)
            case LoadKind.NONE:
                return 0.0, 0.0

    def _loaded(self, replicas: int) -> PerformanceRequest:
        """Return the question at the load of one of so many replicas."""
        load = self._load
        match load.kind:
            case LoadKind.RATE:
                return replace(self._asked, concurrency=None, rate_per_s=load.total / 60 / replicas)
            case LoadKind.IN_FLIGHT:
                share = float(ceil(load.total / replicas))
                return replace(self._asked, rate_per_s=None, concurrency=share)
            case LoadKind.NONE:
                return replace(self._asked, rate_per_s=None, concurrency=float(self._fit.concurrency))

    def _fit_with(self, replicas: int, most: float, comfortable: float, best: HighestRate) -> Fit:
        targets = self._question.resolved.targets
        loaded, wanted = self._loaded(replicas), self._targets(self._wanted)
        found, seen = predict(loaded), figures(loaded, wanted)
        over = _over(seen, wanted)
        speed = Speed(
            kind=self._load.kind,
            most=most,
            comfortable=comfortable,
            requests_per_minute=best.requests_per_s * 60,
            limit=best.limit.value,
            running=found.running,
            ttft_ms=seen.ttft_ms,
            ttft_percentile=targets.ttft.percentile,
            tpot_ms=seen.tpot_ms,
            tpot_percentile=targets.tpot.percentile,
            band_low=found.band.low,
            band_high=found.band.high,
            covered=found.band.covered,
            band=found.band.phrase,
            gaps=found.band.gaps,
            missed=tuple(
                _phrase(field, seen, wanted) for field in (TTFT, TPOT, ITL)
                if over.get(field, 0.0) > 1 and field not in self._stated
            ),
            load=load_of_one(loaded),
            slots=loaded.max_num_seqs,
            kv_room_tokens=loaded.kv_capacity_tokens,
        )  # fmt: skip
        fit = replace(self._fit, replicas=max(1, replicas), speed=speed)
        match self._load.kind:
            case LoadKind.RATE:
                return _with_running(fit, max(1, ceil(found.running)))
            case LoadKind.IN_FLIGHT:
                return _with_running(fit, ceil(self._load.total / fit.replicas))
            case LoadKind.NONE:
                return fit

    def _miss(self, limit: Limit, *, per_replica: float) -> Miss:
        wanted = self._targets(self._stated)
        lone = replace(self._asked, rate_per_s=None, concurrency=1.0)
        least = self._loaded(self._allowed) if self._load.kind is not LoadKind.NONE else lone
        at = lone if limit is not Limit.SLOTS else least
        seen, reached = figures(at, wanted), figures(least, wanted)
        return Miss(
            limit=limit,
            figures=seen,
            term=_largest_term(at, limit, self._question.resolved.traffic.input_p95_tokens),
            replicas=ceil(self._load.total / per_replica - 1e-9) if per_replica else 0,
            per_replica=per_replica,
            overshoot=max(_over(seen, wanted).values(), default=0.0),
            relaxed=_relaxed(reached, wanted) if self._servable() else (),
        )

    def _servable(self) -> bool:
        """Whether the replicas that are allowed would take the load if no target were stated."""
        load = self._load
        if load.kind is LoadKind.NONE:
            return True
        if load.kind is LoadKind.IN_FLIGHT:
            return load.total <= self._allowed * highest_concurrency(self._asked, Targets())[0]
        most = highest_rate(self._asked, Targets()).requests_per_s * 60 * MOST_UTILISATION
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


def _with_running(fit: Fit, running: int) -> Fit:
    """Count the requests in flight of one of the planned replicas, in place of what memory was judged by."""
    needed = replace(fit.demand, concurrency=running).required_tokens(fit.context_tokens)
    return replace(fit, concurrency=running, needed_tokens=needed)


def _over(seen: Figures, wanted: Targets) -> dict[str, float]:
    """Return each figure over its target, with the margin, by field."""
    pairs = {
        TTFT: (seen.ttft_ms, wanted.ttft_ms), TPOT: (seen.tpot_ms, wanted.tpot_ms),
        ITL: (seen.itl_ms, wanted.itl_ms),
    }  # fmt: skip
    return {f: figure * wanted.margin / target for f, (figure, target) in pairs.items() if target is not None}


def _relaxed(seen: Figures, wanted: Targets) -> tuple[tuple[str, int], ...]:
    """Return the stated targets that are missed, as they would be kept; empty when no figure is finite."""
    found = []
    for field, over in _over(seen, wanted).items():
        if over == inf:
            return ()
        if over > 1:
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

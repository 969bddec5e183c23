"""Published rules, each in few lines, as policies of a replay.

Decides sizes as the projects' own defaults and formulas would, simplified: each class says what it leaves
out. Re-implementations from the named files, not their code.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Final

from shardwright.autoscaler.replay.fleet import Snapshot
from shardwright.autoscaler.replica import Capacity, ReplicaModel, capacity

NO_LIMIT: Final = 1 << 30
TOLERANCE: Final = 0.1
DOWN_S: Final = 300.0


@dataclass(slots=True)
class Rule:
    """What rules share: a name, a period, and no opinion on prompts."""

    name: str
    period_s: float = 15.0
    limit_tokens: int = NO_LIMIT


@dataclass(slots=True)
class Fixed(Rule):
    """A fleet that never changes."""

    replicas: int = 1

    def decide(self, _seen: Snapshot) -> int:
        """Return the size."""
        return self.replicas


@dataclass(slots=True)
class Hpa(Rule):
    """Kubernetes HPA v2 on any ratio of metric to target.

    kubernetes/kubernetes pkg/controller/podautoscaler/{horizontal,replica_calculator}.go: tolerance 0.1; up
    at most the larger of double and four more in 15 s; down to the highest recommendation of 300 s. Missing
    metrics do not occur in a replay.
    """

    wanted: Callable[[Snapshot], float] = field(default=lambda seen: float(seen.ready))
    """Replicas before rounding and tolerance."""
    seen_s: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, seen: Snapshot) -> int:
        """Return the size after tolerance, rate and window."""
        size = seen.ready + seen.starting
        wanted = self.wanted(seen)
        desired = size if abs(wanted / size - 1) <= TOLERANCE else max(1, ceil(wanted - 1e-9))
        kept = self.seen_s or [(seen.now_s, size)]
        self.seen_s = [one for one in kept if one[0] > seen.now_s - DOWN_S] + [(seen.now_s, desired)]
        if desired > size:
            return min(desired, max(2 * size, size + 4))
        return min(size, max(one for _, one in self.seen_s))


def hpa_in_flight(target: float) -> Hpa:
    """HPA on requests in flight for each replica."""
    return Hpa(f"HPA in-flight {target:g}", wanted=lambda seen: seen.in_flight / target)


def hpa_kv(target: float) -> Hpa:
    """HPA on the mean share of the KV cache in use."""
    return Hpa(f"HPA mean KV {target:g}", wanted=lambda seen: sum(seen.kv_shares) / target)


def keda_waiting(target: float = 5) -> Hpa:
    """KEDA on waiting requests (vllm-project/production-stack tutorials/assets/values-20-keda.yaml)."""
    return Hpa(f"KEDA waiting {target:g}", wanted=lambda seen: seen.waiting / target)


def llmd_default() -> Hpa:
    """Queue 1 and running 16 for each replica, with the guard against overshoot.

    llm-d/llm-d guides/workload-autoscaling/keda-epp/. Queues are the engines', without the gateway's.
    """

    def wanted(seen: Snapshot) -> float:
        demand = max(seen.waiting / 1, seen.running / 16)
        size = seen.ready + seen.starting
        return demand if demand <= size else max(demand - seen.starting, float(size))

    return Hpa("KEDA queue 1, running 16 (llm-d)", wanted=wanted)


def wva_v2(model: ReplicaModel) -> Hpa:
    """llm-d's saturation law, version 2: tokens in use against 80 % of the KV cache.

    llm-d/llm-d-workload-variant-autoscaler docs/saturation-*.md: required = demand / .85 less what is ready
    or pending, spare = supply less demand / .70. Capacity is .8 KV; the queue-derived one is left out.
    """
    usable = 0.8 * model.kv_tokens

    def wanted(seen: Snapshot) -> float:
        mean_input = seen.input_tokens / seen.first if seen.first else 0.0
        demand = sum(seen.kv_shares) * model.kv_tokens + seen.waiting * mean_input
        size = seen.ready + seen.starting
        if demand / 0.85 > size * usable:
            return ceil(demand / 0.85 / usable)
        return size - floor(max(0.0, size * usable - demand / 0.7) / usable)

    return Hpa("WVA v2 (llm-d law)", period_s=60.0, wanted=wanted)


@dataclass(slots=True)
class Kpa(Rule):
    """Knative's: mean concurrency over 60 s, and 6 s in panic.

    knative/serving config/core/configmaps/autoscaler.yaml: panic at twice the ready replicas, at most 1000
    times up and by half down; no scale-down delay. Ticks of 5 s instead of 2.
    """

    target: float = 70.0
    seen_s: list[tuple[float, float]] = field(default_factory=list)
    panic_until_s: float = -1.0
    panic_size: int = 0

    def decide(self, seen: Snapshot) -> int:
        """Return the size."""
        size = max(1, seen.ready)
        self.seen_s = [
            *(one for one in self.seen_s if one[0] > seen.now_s - 60),
            (seen.now_s, seen.in_flight),
        ]
        stable = max(1, ceil(_mean(self.seen_s) / self.target), size // 2)
        panic = max(1, ceil(seen.in_flight / self.target))
        if panic >= 2 * size:
            if seen.now_s > self.panic_until_s:
                self.panic_size = size
            self.panic_until_s = seen.now_s + 60
        if seen.now_s > self.panic_until_s:
            return stable
        self.panic_size = max(self.panic_size, panic, stable)
        return self.panic_size


@dataclass(slots=True)
class Lengths:
    """Mean lengths and arrivals of the last five minutes."""

    seen: list[Snapshot] = field(default_factory=list)

    def add(self, seen: Snapshot) -> None:
        """Take a tick."""
        self.seen = [one for one in self.seen if one.now_s > seen.now_s - 300] + [seen]

    def capacity(self, model: ReplicaModel, tpot_s: float) -> Capacity:
        """Return what a replica serves at these lengths; a usual chat before any are seen."""
        first, finished = sum(one.first for one in self.seen), sum(one.finished for one in self.seen)
        into = sum(one.input_tokens for one in self.seen) / first if first else 1000.0
        out = sum(one.output_tokens for one in self.seen) / finished if finished else 200.0
        return capacity(model, into, out, tpot_s)


@dataclass(slots=True, kw_only=True)
class Dynamo(Rule):
    """The throughput loop: every 180 s, predicted arrivals over what an engine serves within the targets.

    ai-dynamo/dynamo components/src/dynamo/planner/. The predictor is a level and a trend; the regression is
    the true step model.
    """

    model: ReplicaModel
    tpot_s: float
    rho: float = 1.0
    period_s: float = 180.0
    lengths: Lengths = field(default_factory=Lengths)
    level: float | None = None
    trend: float = 0.0

    def decide(self, seen: Snapshot) -> int:
        """Return the size."""
        self.lengths.add(seen)
        rate = seen.arrived / seen.interval_s
        if self.level is None:
            self.level = rate
        before = self.level
        self.level += 0.6 * (rate - self.level - self.trend) + self.trend
        self.trend += 0.3 * (self.level - before - self.trend)
        served = self.lengths.capacity(self.model, self.tpot_s).rate_per_s
        return max(1, ceil(max(0.0, self.level + self.trend) / (self.rho * served)))


def feed_forward(model: ReplicaModel, tpot_s: float, rho: float) -> Hpa:
    """In-flight against `rho` times what the model says a replica holds at the lengths seen; no feedback."""
    lengths = Lengths()

    def wanted(seen: Snapshot) -> float:
        lengths.add(seen)
        return seen.in_flight / (rho * lengths.capacity(model, tpot_s).in_flight)

    return Hpa(f"model in-flight, rho {rho:g}", wanted=wanted)


@dataclass(slots=True)
class Ray(Rule):
    """Ray Serve: ongoing requests over a target.

    ray-project/ray doc/source/serve/advanced-guides/advanced-autoscaling.md: look-back 30 s, up after 30 s,
    down after 600 s of the same wish. Ticks of 15 s instead of 10.
    """

    target: float = 2.0
    seen_s: list[tuple[float, float]] = field(default_factory=list)
    since_s: float = 0.0
    direction: int = 0

    def decide(self, seen: Snapshot) -> int:
        """Return the size."""
        size = seen.ready + seen.starting
        self.seen_s = [
            *(one for one in self.seen_s if one[0] > seen.now_s - 30),
            (seen.now_s, seen.in_flight),
        ]
        wanted = max(1, ceil(_mean(self.seen_s) / self.target))
        direction = (wanted > size) - (wanted < size)
        if direction != self.direction:
            self.direction, self.since_s = direction, seen.now_s
        delay = 30.0 if direction > 0 else 600.0
        if direction and seen.now_s - self.since_s >= delay:
            self.direction = 0
            return wanted
        return size


def _mean(seen: list[tuple[float, float]]) -> float:
    return sum(load for _, load in seen) / len(seen)


def _kept(before: list[tuple[float, float]], seen: Snapshot, seconds: float) -> list[tuple[float, float]]:
    return [*(one for one in before if one[0] > seen.now_s - seconds), (seen.now_s, seen.in_flight)]

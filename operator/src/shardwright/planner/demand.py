"""How much KV cache the work needs.

Decides by one rule: the larger of one request of the maximum length and B requests of p95 input plus half of
p95 output with a shared prefix once. Never multiplies B by the maximum length.
"""

from dataclasses import dataclass, replace
from math import ceil

from shardwright.api.defaults import DEFAULT_CONCURRENCY_PER_REPLICA, Resolved
from shardwright.planner.types import Parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one engine must hold, for a given number of requests in flight.

    With attention data parallelism each rank has a KV cache of its own and its share of the requests: the
    figures are those of one rank.
    """

    concurrency: int
    """B: requests in flight that must be held, with all the replicas that the service may have."""
    wanted_concurrency: int
    """Requests in flight with the replicas that run now: held as far as there is room."""
    concurrency_source: str
    """Where B comes from, for the explanation."""
    request_tokens: int
    """Tokens of one request in flight: p95 input and half of p95 output."""
    shared_prefix_tokens: int
    service_concurrency: int | None
    """Requests in flight of the whole service; None when nothing is stated."""
    floor_tokens: int
    """The longest request of the workload, p95 input and p95 output: a context below this serves nobody."""

    @property
    def own_tokens(self) -> int:
        """Tokens of one request beside the shared prefix."""
        return max(1, self.request_tokens - self.shared_prefix_tokens)

    @property
    def working_tokens(self) -> int:
        """Tokens of B requests in flight, the shared prefix once."""
        return min(self.shared_prefix_tokens, self.request_tokens) + self.concurrency * self.own_tokens

    def most_held(self, tokens: int) -> int:
        """Count the requests in flight that a KV cache of `tokens` holds."""
        room = tokens - min(self.shared_prefix_tokens, self.request_tokens)
        return max(0, room // self.own_tokens)

    def held(self, tokens: int) -> int:
        """Count the requests in flight that a KV cache of `tokens` holds, as far as they are wanted."""
        return max(self.concurrency, min(self.wanted_concurrency, self.most_held(tokens)))

    def capped(self, longest_tokens: int) -> "Demand":
        """Return the same demand where no request is longer than `longest_tokens`."""
        if self.request_tokens <= longest_tokens:
            return self
        return replace(self, request_tokens=longest_tokens)

    def required_tokens(self, context_tokens: int) -> int:
        """Tokens that the KV cache must hold when one request may be `context_tokens` long."""
        return max(context_tokens, self.working_tokens)


def service_concurrency(resolved: Resolved) -> tuple[int | None, str]:
    """Return the requests in flight of the whole service (None: nothing is said), and where that comes from.

    A rate becomes a number in flight by Little's law: rate times the time that a request stays, which is the
    TTFT target and the TPOT target for each further token of a mean answer.
    """
    traffic = resolved.traffic
    if traffic.concurrency is not None:
        return traffic.concurrency, "workload.concurrency"
    if traffic.requests_per_minute is not None:
        targets = resolved.targets
        further = traffic.output_mean_tokens - 1
        stay_ms = targets.ttft.milliseconds + targets.tpot.milliseconds * further
        return max(1, ceil(traffic.requests_per_minute * stay_ms / 60_000 - 1e-9)), (
            f"{traffic.requests_per_minute} requests a minute staying {stay_ms / 1000:.1f} s (SLO targets)"
        )
    return None, ""


def demand(
    resolved: Resolved, split: Parallelism, max_gpus: int, most_seqs: int, *, predicted: bool = False
) -> Demand:
    """Compute what one engine must hold; with attention data parallelism, what each of its ranks must.

    `predicted`: the latency step says how many requests a rate keeps in flight and how many replicas that
    takes, with the KV cache as its bound; one request is then all that memory alone has to hold.

    More traffic means more replicas, not a larger engine: the service's requests in flight are spread over as
    many replicas as scaling.maxReplicas and pool.maxGPUs allow, and an engine never runs more than
    `most_seqs` at once.
    """
    traffic, scale = resolved.traffic, resolved.scale
    total, source = service_concurrency(resolved)
    if predicted and traffic.requests_per_minute is not None:
        total, each, now = None, 1, 1
        source = "as many as the predicted rate keeps in flight"
    elif total is None:
        each, source = DEFAULT_CONCURRENCY_PER_REPLICA, "default: no rate or concurrency is stated"
        now = each
    else:
        by_budget = max(1, max_gpus // split.gpus)
        replicas = by_budget if scale.max_replicas is None else min(by_budget, scale.max_replicas)
        replicas = (
            scale.planned_replicas if scale.mode == "External" else max(replicas, scale.planned_replicas)
        )
        replicas = max(1, replicas)
        each = -(-total // replicas)
        now = -(-total // max(1, scale.planned_replicas))
        source = f"{source}: {total} in flight over at most {replicas} replicas"
    return Demand(
        concurrency=max(1, min(-(-each // split.data), most_seqs)),
        wanted_concurrency=max(1, min(-(-now // split.data), most_seqs)),
        concurrency_source=source,
        request_tokens=traffic.input_p95_tokens + -(-traffic.output_p95_tokens // 2),
        shared_prefix_tokens=traffic.shared_prefix_tokens,
        service_concurrency=total,
        floor_tokens=traffic.input_p95_tokens + traffic.output_p95_tokens,
    )

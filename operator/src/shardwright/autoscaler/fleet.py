"""From what each engine reported at two moments to the signals of the fleet.

Decides which two moments of a pod are compared, what a fall of a counter means, and when the fleet's sum is
known. A counter falls only with a new process; one that falls without is not believed, for a store that comes
back with zeros must not look like an idle fleet. Unknown never becomes zero. Never reads a metric or a clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, inf
from typing import Final, NamedTuple

from shardwright.autoscaler.signals import FleetSignals
from shardwright.planner.growth import number
from shardwright.planner.signals import ABSENT, NO_EDGE, ZERO, PodKey, Reading, Readings, Signal, reading

COUNTERS: Final = (
    Signal.FINISHED, Signal.FINISHED_TOKENS, Signal.PROMPT_TOKENS, Signal.GAP_SUM, Signal.GAP_COUNT,
    Signal.TTFT_COUNT, Signal.TTFT_WITHIN, Signal.TPOT_COUNT, Signal.TPOT_WITHIN, Signal.PROMPTS,
    Signal.PROMPTS_WITHIN, Signal.REFUSED,
)  # fmt: skip
_BY_EDGE: Final = {Signal.TTFT_WITHIN: 0, Signal.TPOT_WITHIN: 1, Signal.PROMPTS_WITHIN: 2}
_INDEX: Final = {signal: index for index, signal in enumerate(COUNTERS)}


class Edges(NamedTuple):
    """Up to where histograms are counted; infinite: all that there is counts as within."""

    ttft_s: float
    tpot_s: float
    prompt_tokens: float


class Moment(NamedTuple):
    """One pod at one moment; None: unknown."""

    at_s: float
    """When the engine was asked, by the source's clock."""
    started_s: float | None
    restarts: int
    """Of its container, as the API server counts them."""
    edges: Edges
    running: float | None
    waiting: float | None
    kv_share: float | None
    counters: tuple[float | None, ...]
    """In the order of COUNTERS."""


class Span(NamedTuple):
    """The last two moments of a pod at which its engine was asked."""

    before: Moment | None
    now: Moment
    fresh: bool = True
    """It was read this time, and is believed."""
    renewed: bool = True
    """Its engine was asked since the look before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Pods, as the API server has them: always known."""

    ready: int
    starting: int = 0
    draining: int = 0
    unschedulable: int = 0


def asked(edges: Edges) -> dict[Signal, float]:
    """Return the edges to read, by signal."""
    return {signal: edges[index] for signal, index in _BY_EDGE.items() if edges[index] < inf}


def prompt_edge(limit_tokens: float, longest_tokens: float) -> float:
    """Return the first edge at or above a prompt's limit of vLLM's buckets (1, 2, 5, 10, ...).

    Prompts beyond it are surely too long, so that no miss is forgiven that more replicas would mend. Infinite
    when the engine takes no prompt that is longer: then it has no such edge either.
    """
    edge, steps = 1.0, (2.0, 2.5, 2.0)
    for step in steps * 10:
        if edge >= limit_tokens:
            break
        edge *= step
    return edge if edge <= longest_tokens else inf


def moment_of(readings: Readings, pod: PodKey, restarts: int, edges: Edges) -> Moment | None:
    """Return what a pod reports; None when it is not known from when that is."""
    at_s = number(readings.of(Signal.SAMPLED, pod))
    if at_s is None:
        return None
    return Moment(
        at_s=at_s,
        started_s=number(readings.of(Signal.STARTED, pod)),
        restarts=restarts,
        edges=edges,
        running=_not_negative(readings.of(Signal.RUNNING, pod)),
        waiting=_not_negative(readings.of(Signal.WAITING, pod)),
        kv_share=_not_negative(readings.of(Signal.KV_SHARE, pod)),
        counters=tuple(_not_negative(readings.of(signal, pod)) for signal in COUNTERS),
    )


def _not_negative(seen: Reading) -> float | None:
    found = number(seen)
    return found if found is not None and found >= 0 else None


def follow(span: Span | None, new: Moment | None) -> Span | None:
    """Return the span after another look; None while there was nothing to see."""
    if span is None:
        return Span(None, new) if new is not None else None
    if new is None:
        return span._replace(fresh=False)
    last = span.now
    if new.at_s <= last.at_s:  # it was not asked since: what it did then is the best that is known
        return span._replace(fresh=True, renewed=False)
    if _restarted(last, new):
        zero = last._replace(running=0.0, waiting=0.0, counters=(0.0,) * len(COUNTERS), edges=new.edges)
        return Span(zero, new)
    if _fell(last, new):
        return span._replace(fresh=False)
    return Span(last, _remembering(last, new))


def _remembering(before: Moment, after: Moment) -> Moment:
    """Return a moment with the refusals that were seen before, where it has none.

    A counter that is not there has counted none, and one that comes back would count all of them anew.
    """
    index = _INDEX[Signal.REFUSED]
    if after.counters[index] is not None or before.counters[index] is None:
        return after
    return after._replace(
        counters=(*after.counters[:index], before.counters[index], *after.counters[index + 1 :])
    )


def _restarted(before: Moment, after: Moment) -> bool:
    if after.restarts > before.restarts:
        return True
    return before.started_s is not None and after.started_s is not None and after.started_s > before.started_s


def _fell(before: Moment, after: Moment) -> bool:
    pairs = zip(COUNTERS, before.counters, after.counters, strict=True)
    same = [before.edges[i] == after.edges[i] for i in range(3)]
    return any(
        old is not None
        and new is not None
        and new < old
        and (signal not in _BY_EDGE or same[_BY_EDGE[signal]])
        for signal, old, new in pairs
    )


def fleet_signals(
    counts: Counts, spans: Iterable[Span], edges: Edges, interval_s: float, attempts: int = 1
) -> FleetSignals:
    """Return the signals of a fleet over `interval_s`. `spans`: of ready pods, in any order.

    What a pod did between its moments is taken as a rate: moments lie as far apart as scrapes do. Arrivals,
    queue and KV cache are of the pods that report all three; the rest is known only when each of those has
    it. `attempts`: how many engines a router asks for one request before the client is refused.
    """
    seen = [span for span in spans if reports(span)]
    refused = fsum(map(_refused, seen)) * interval_s / attempts
    first = _grown(seen, Signal.TTFT_COUNT, interval_s)
    finished = _grown(seen, Signal.FINISHED, interval_s)
    return FleetSignals(
        interval_s=interval_s,
        ready=counts.ready,
        starting=counts.starting,
        draining=counts.draining,
        unschedulable=counts.unschedulable,
        reporting=len(seen),
        renewed=all(span.renewed for span in seen),
        arrived=_arrived(seen, interval_s, refused),
        refused=refused,
        running=_sum([span.now.running for span in seen]),
        waiting=_sum([span.now.waiting for span in seen]),
        kv_share=_mean([span.now.kv_share for span in seen]),
        first_tokens=first,
        late_first_tokens=_beyond(
            seen, first, (Signal.TTFT_COUNT, Signal.TTFT_WITHIN), edges.ttft_s, interval_s
        ),
        long_first_tokens=_beyond(
            seen, first, (Signal.PROMPTS, Signal.PROMPTS_WITHIN), edges.prompt_tokens, interval_s
        ),
        finished=finished,
        slow_finished=_beyond(
            seen, finished, (Signal.TPOT_COUNT, Signal.TPOT_WITHIN), edges.tpot_s, interval_s
        ),
        input_tokens=_grown(seen, Signal.PROMPT_TOKENS, interval_s),
        output_tokens=_grown(seen, Signal.FINISHED_TOKENS, interval_s),
        tokens=_grown(seen, Signal.GAP_COUNT, interval_s),
        token_s=_grown(seen, Signal.GAP_SUM, interval_s),
    )


def reports(span: Span) -> bool:
    """Whether a pod's arrivals, queue and KV cache are known."""
    before, now = span.before, span.now
    if before is None or not span.fresh or now.at_s <= before.at_s:
        return False
    both = (before.running, before.waiting, now.running, now.waiting)
    finished = _INDEX[Signal.FINISHED]
    known = (*both, now.kv_share, before.counters[finished], now.counters[finished])
    return None not in known


def _growth(span: Span, signal: Signal) -> float | None:
    """Return by how much a pod's counter grew, for each second; None when that is not known."""
    before, now, index = span.before, span.now, _INDEX[signal]
    if before is None or (signal in _BY_EDGE and _edge(before, signal) != _edge(now, signal)):
        return None
    old, new = before.counters[index], now.counters[index]
    if old is None or new is None:
        return None
    return max(0.0, new - old) / (now.at_s - before.at_s)


def _edge(at: Moment, signal: Signal) -> float:
    return at.edges[_BY_EDGE[signal]]


def _grown(seen: Sequence[Span], signal: Signal, interval_s: float) -> Reading:
    return _sum([_growth(span, signal) for span in seen], interval_s)


def _refused(span: Span) -> float:
    """Return how many requests a pod refused, for each second.

    The counter begins with the first refusal, so one that is not there has counted none. It only adds to what
    arrived and to what missed: taking an old engine's silence for none lowers no size below what it would be.
    """
    before, now, index = span.before, span.now, _INDEX[Signal.REFUSED]
    if before is None:
        return 0.0
    old, new = before.counters[index] or 0.0, now.counters[index] or 0.0
    return max(0.0, new - old) / (now.at_s - before.at_s)


def _arrived(seen: Sequence[Span], interval_s: float, refused: float) -> Reading:
    """Return the requests that came: those that ended or were refused, and the change of those in flight."""
    rates: list[float | None] = []
    for span in seen:
        ended = _growth(span, Signal.FINISHED)
        before, now = span.before, span.now
        if ended is None or before is None:
            return ABSENT
        change = ((now.running or 0.0) + (now.waiting or 0.0)) - (
            (before.running or 0.0) + (before.waiting or 0.0)
        )
        rates.append(ended + change / (now.at_s - before.at_s))
    total = _sum([*rates, refused / interval_s] if rates else rates, interval_s)
    # A page is not written at one instant: a request may be counted as ended and as running.
    return ZERO if (number(total) or 0.0) < 0 else total


def _beyond(
    seen: Sequence[Span], all_of_them: Reading, pair: tuple[Signal, Signal], edge: float, interval_s: float
) -> Reading:
    """Return how many were beyond an edge; NO_EDGE when a histogram is there and has no such edge."""
    if edge == inf:
        return ZERO if number(all_of_them) is not None else all_of_them
    count, within = pair
    found: list[float | None] = []
    for span in seen:
        whole, part = _growth(span, count), _growth(span, within)
        if whole is not None and part is None and span.now.counters[_INDEX[within]] is None:
            return NO_EDGE
        found.append(None if whole is None or part is None else max(0.0, whole - part))
    return _sum(found, interval_s)


def _sum(numbers: Sequence[float | None], times: float = 1.0) -> Reading:
    """Add up; unknown when one is, or when there is none. The order changes nothing."""
    known = [one for one in numbers if one is not None]
    if not known or len(known) < len(numbers):
        return ABSENT
    return reading(fsum(known) * times)


def _mean(numbers: Sequence[float | None]) -> Reading:
    return _sum(numbers, 1.0 / len(numbers)) if numbers else ABSENT

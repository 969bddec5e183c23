"""What both revisions of a canary served, and what they answer to the same prompts.

Decides which pods are counted and since when: those that serve, from the first look at each within a step. A
counter that fell, or another start of the engine, begins anew, and what was not seen counts for nothing. The
prompts are asked once for each target, of one pod of each side; a restart of the operator asks again. Never
judges: `diagnose.canary` does.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from shardwright.api.llmservice import ServiceKey
from shardwright.cluster.store import Store
from shardwright.controller.queue import WorkQueue
from shardwright.controller.scaling import edges_of, serves
from shardwright.controller.situation import Situation
from shardwright.diagnose.canary import Answer, Seen, Served, Share
from shardwright.metrics.prompts import NotAskedError
from shardwright.metrics.source import MetricsSource, Target
from shardwright.planner.growth import number
from shardwright.planner.signals import PodKey, Readings, Signal
from shardwright.topology.types import PodFacts

_LOG = logging.getLogger(__name__)

TRIES: Final = 3
"""How often prompts are asked that are not answered."""
Ask = Callable[[str], Awaitable[tuple[str, ...]]]
"""Gives the answers of the engine at an address. Raises NotAskedError."""


class _Pair(NamedTuple):
    """A counter of requests, and one of those among them that were good, or bad."""

    whole: Signal
    part: Signal
    part_is_bad: bool


PAIRS: Final = (
    _Pair(Signal.TTFT_COUNT, Signal.TTFT_WITHIN, part_is_bad=False),
    _Pair(Signal.TPOT_COUNT, Signal.TPOT_WITHIN, part_is_bad=False),
    _Pair(Signal.ANSWERED, Signal.FAILED, part_is_bad=True),
)


class _Counted(NamedTuple):
    """One pod's counters at one look."""

    started_s: float | None
    pairs: tuple[tuple[float | None, float | None], ...]


@dataclass(slots=True)
class _Side:
    """What one side served in this step, by pair; None: nothing was seen of it."""

    shares: list[Share | None] = field(default_factory=lambda: [None] * len(PAIRS))

    def add(self, before: _Counted, now: _Counted) -> None:
        """Add what a pod did between two looks."""
        if before.started_s != now.started_s:
            return
        for index, (pair, old, new) in enumerate(zip(PAIRS, before.pairs, now.pairs, strict=True)):
            if None in old or None in new:
                continue
            whole, part = (new[0] or 0.0) - (old[0] or 0.0), (new[1] or 0.0) - (old[1] or 0.0)
            if whole < 0 or part < 0:
                continue
            bad = part if pair.part_is_bad else max(0.0, whole - part)
            so_far = self.shares[index] or Share(0, 0)
            # A page is not written at one instant: a part may be ahead of its whole.
            self.shares[index] = Share(so_far.count + round(min(bad, whole)), so_far.of + round(whole))

    def served(self) -> Served:
        """Return it as the judge takes it."""
        first, tokens, errors = self.shares
        return Served(slow_first_tokens=first, slow_tokens=tokens, errors=errors)


@dataclass(slots=True)
class _Run:
    """A canary that is under way."""

    key: ServiceKey
    target: str
    step: int
    old: _Side = field(default_factory=_Side)
    new: _Side = field(default_factory=_Side)
    edges: Mapping[Signal, float] = field(default_factory=dict)
    last: dict[PodKey, _Counted] = field(default_factory=dict)
    """At the last look, with these edges."""
    answers: tuple[Answer, ...] | None = None
    tries: int = 0


@dataclass(slots=True)
class CanaryServed:
    """See the module."""

    store: Store
    queue: WorkQueue[ServiceKey]
    source: MetricsSource
    ask: Ask
    interval_s: float = 15.0
    _runs: dict[str, _Run] = field(default_factory=dict)
    """By uid of the service."""

    def seen(self, now: Situation, step: int) -> Seen:
        """Return what is known since the step began; the first call of a step begins to count."""
        uid = now.entry.uid
        run = self._runs.get(uid)
        if run is None or run.target != now.target:
            run = self._runs[uid] = _Run(now.entry.key, now.target, step)
        elif run.step != step:
            run.step, run.old, run.new = step, _Side(), _Side()
        return Seen(old=run.old.served(), new=run.new.served(), answers=run.answers)

    def forget(self, uid: str) -> None:
        """Forget a canary that is over."""
        self._runs.pop(uid, None)

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(self.interval_s)
            try:
                await self.tick()
            except Exception:  # noqa: BLE001 -- a canary waits, and the next look may succeed
                _LOG.exception("reading of canaries failed")

    async def tick(self) -> None:
        """Look once."""
        looks = [(run, pods) for uid, run in self._runs.items() if (pods := self._pods(uid, run))]
        if not looks:
            return
        targets = [target for run, pods in looks for target in self._targets(run, pods)]
        readings = await self.source.read(targets)
        for run, pods in looks:
            self._count(run, pods, readings)
        for run, pods in looks:
            await self._ask(run, pods)

    def _pods(self, uid: str, run: _Run) -> list[PodFacts]:
        entry = self.store.services.get(run.key)
        if entry is None or entry.uid != uid:
            return []
        pods = self.store.pods_of(run.key).values()
        return [pod for pod in pods if serves(pod) and self.store.reachable(pod)]

    def _targets(self, run: _Run, pods: list[PodFacts]) -> list[Target]:
        edges = edges_of(self.store.services[run.key])
        if edges != run.edges:
            run.edges, run.last = edges, {}
        return [Target((pod.namespace, pod.name), pod.address, edges) for pod in pods]

    def _count(self, run: _Run, pods: list[PodFacts], readings: Readings) -> None:
        seen: dict[PodKey, _Counted] = {}
        for pod in pods:
            key = (pod.namespace, pod.name)
            counted = _counted(readings, key)
            if counted is None:
                continue
            seen[key] = counted
            if key in run.last:
                (run.new if pod.revision == run.target else run.old).add(run.last[key], counted)
        run.last = {**run.last, **seen}

    async def _ask(self, run: _Run, pods: list[PodFacts]) -> None:
        """Ask one pod of each side, until there are answers or it is of no use."""
        if run.answers is not None or run.tries >= TRIES:
            return
        new = next((pod for pod in pods if pod.address and pod.revision == run.target), None)
        old = next((pod for pod in pods if pod.address and pod.revision != run.target), None)
        if new is None or old is None:
            return
        run.tries += 1
        try:
            before, after = await asyncio.gather(self.ask(old.address), self.ask(new.address))
        except NotAskedError as error:
            _LOG.info("prompts not answered service=%s error=%s", "/".join(run.key), error)
            return
        run.answers = tuple(Answer(*each) for each in zip(before, after, strict=True))
        self.queue.add(run.key)


def _counted(readings: Readings, pod: PodKey) -> _Counted | None:
    if number(readings.of(Signal.SAMPLED, pod)) is None:
        return None
    pairs = tuple(
        (number(readings.of(pair.whole, pod)), number(readings.of(pair.part, pod))) for pair in PAIRS
    )
    return _Counted(number(readings.of(Signal.STARTED, pod)), pairs)

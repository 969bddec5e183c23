"""What the pods of a fleet count leads to the signals that a replay of it tells, and to the same decisions."""

import random

import pytest

from autoscaler.test_fleet import EDGES, READINGS, moment
from autoscaler.test_law import PLAN
from autoscaler.test_replay import Sizes, trace_of, world
from shardwright.autoscaler.fleet import COUNTERS, Counts, fleet_signals, follow
from shardwright.autoscaler.law import tick
from shardwright.autoscaler.replay.fleet import replay
from shardwright.autoscaler.replay.own import signals_of
from shardwright.autoscaler.state import State
from shardwright.planner.signals import Signal

PODS = 3
LONG_TOKENS = 12_000


class Pods:
    """Pods that count what a replay says of their fleet: each request is one pod's, by a seed."""

    def __init__(self, seed):
        self.source, self.spans = random.Random(seed), [None] * PODS
        self.counts = [dict.fromkeys(COUNTERS, 0.0) for _ in range(PODS)]
        self.look(0.0, 0, 0, (0.0,) * PODS)

    def signals(self, seen):
        """The live loop's way to the signals."""
        for n in range(seen.first):
            self.add(
                {
                    Signal.TTFT_COUNT: 1, Signal.TTFT_WITHIN: n >= seen.late,
                    Signal.PROMPTS: 1, Signal.PROMPTS_WITHIN: n >= seen.long,
                }
            )  # fmt: skip
        for n in range(seen.finished):
            self.add({Signal.FINISHED: 1, Signal.TPOT_COUNT: 1, Signal.TPOT_WITHIN: n >= seen.slow})
        self.add({Signal.PROMPT_TOKENS: seen.input_tokens})
        self.add({Signal.FINISHED_TOKENS: seen.output_tokens})
        self.add({Signal.GAP_COUNT: seen.tokens, Signal.GAP_SUM: seen.token_s})
        self.look(seen.now_s, seen.running, seen.waiting, seen.kv_shares)
        return fleet_signals(Counts(ready=PODS), self.spans, EDGES, seen.interval_s)

    def add(self, counted):
        pod = self.source.choice(self.counts)
        for signal, count in counted.items():
            pod[signal] += count

    def look(self, now, running, waiting, kv_shares):
        busy = [(running, waiting), *[(0.0, 0.0)] * (PODS - 1)]
        self.spans = [
            follow(span, moment(1e9 + now, running=runs, waiting=waits, kv=kv, **counts))
            for span, (runs, waits), kv, counts in zip(self.spans, busy, kv_shares, self.counts, strict=True)
        ]


@pytest.mark.parametrize("seed", range(4))
def test_pods_that_count_lead_to_the_decisions_of_a_replay(seed):
    source, pods = random.Random(seed), Pods(seed)
    at, rows = 0.0, []
    while at < 1200:
        at += source.expovariate(0.5 if at % 300 < 100 else 6.0)
        rows.append(
            (at, source.randint(1, 4000) if source.random() < 0.98 else 15_000, source.randint(1, 300))
        )
    state = replayed = State()
    counted, decided = set(), set()

    def tell(seen, _):
        nonlocal state, replayed
        live, told = pods.signals(seen), signals_of(seen)
        for name in READINGS:
            assert getattr(live, name).number == pytest.approx(getattr(told, name).number, abs=1e-6), name
            counted.update({name} if getattr(told, name).number else ())
        state, ours, _ = tick(state, live, PLAN, 77.0 + seen.now_s)
        replayed, theirs, _ = tick(replayed, told, PLAN, seen.now_s)
        assert ours == theirs
        decided.add(ours)

    replay(trace_of(rows), world(first_replicas=PODS), Sizes([PODS], limit_tokens=LONG_TOKENS), tell)
    assert len(decided) > 1
    assert counted == set(READINGS), "none of them sleeps"

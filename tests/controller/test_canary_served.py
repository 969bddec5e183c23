"""What both sides of a canary served: from counters that grow, restart, lag and are missing."""

import pytest

from controller.test_canary_loop import CANARY, FOUR
from controller.test_failed_start import env, failed_of, replicas, started
from shardwright.controller.canary_served import TRIES, CanaryServed
from shardwright.metrics.prompts import PROMPTS, NotAskedError
from shardwright.planner.signals import Readings, Signal, reading

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
BAD = 0.5
"""Share of requests that a bad side serves badly."""


class Engines:
    """Pods that serve so many requests between two readings, each side as well as a test says."""

    name = "Pods"

    def __init__(self, fake):
        self.fake, self.each, self.bad, self.failure = fake, 20, {}, ""
        self.counted, self.started, self.missing, self.looks = {}, {}, set(), 0

    def revision(self, pod):
        return self.fake.parts.store.pods[pod].revision

    async def read(self, targets):
        self.looks += 1
        if self.failure:
            return Readings(failure=self.failure)
        found = {signal: {} for signal in Signal}
        for target in targets:
            before = self.counted.get(target.pod, (0, 0))
            share = self.bad.get(self.revision(target.pod), 0.0)
            whole, bad = before[0] + self.each, before[1] + self.each * share
            self.counted[target.pod] = whole, bad
            self._say(found, target.pod, whole, bad)
        return Readings(by_signal=found)

    def _say(self, found, pod, whole, bad):
        figures = {
            Signal.SAMPLED: 1e9 + self.looks,
            Signal.STARTED: self.started.get(pod, 1.0),
            Signal.TTFT_COUNT: whole,
            Signal.TTFT_WITHIN: whole - bad,
            Signal.TPOT_COUNT: whole,
            Signal.TPOT_WITHIN: whole - bad,
            Signal.ANSWERED: whole,
            Signal.FAILED: bad,
        }
        for signal, number in figures.items():
            if signal not in self.missing:
                found[signal][pod] = reading(number)

    def restart(self, pod):
        self.started[pod] = self.started.get(pod, 1.0) + 100
        self.counted[pod] = (0, 0)


class Answers:
    """Engines that answer alike, but those of `other`; so often as `fails` says they do not answer at all."""

    def __init__(self, fake):
        self.fake, self.other, self.fails, self.asked = fake, set(), 0, []

    async def __call__(self, address):
        self.asked.append(address)
        if self.fails > 0:
            self.fails -= 1
            raise NotAskedError("the engine gave no answer")
        pod = next(p for p in self.fake.parts.store.pods.values() if p.address == address)
        words = "neither" if pod.revision in self.other else "both"
        return tuple(f"{words} {prompt}" for prompt in PROMPTS)


async def canary(fake):
    """A service of four with a canary of one, whose figures are read."""
    kubelet, good = await started(fake, 8, **FOUR)
    engines, answers, parts = Engines(fake), Answers(fake), fake.parts
    served = CanaryServed(parts.store, parts.queue, engines, answers)
    parts.reconciler.canaries.source, parts.reconciler.canaries.ended = served.seen, served.forget
    fake.put("chat", **FOUR, **env("b"), rollout=CANARY)
    await kubelet.run(20)
    return kubelet, good, kubelet.revision("b"), engines, answers, served


async def look(kubelet, served, times=1):
    """Look so often, and let the operator see it."""
    for _ in range(times):
        await served.tick()
        await kubelet.run(30)


def shares(served):
    [run] = served._runs.values()
    return run.old.shares, run.new.shares


async def test_one_as_good_goes_up_step_by_step_and_is_forgotten_at_its_end(fake):
    kubelet, good, new, _, answers, served = await canary(fake)
    assert replicas(fake) == {good: 3, new: 1}
    await look(kubelet, served)
    assert shares(served) == ([None] * 3, [None] * 3), "what was counted before is not its doing"
    await look(kubelet, served)
    old, other = shares(served)
    assert [share.of for share in old] == [60] * 3
    assert [share.of for share in other] == [20] * 3
    await look(kubelet, served, 15)
    assert replicas(fake) == {good: 2, new: 2}
    await look(kubelet, served, 25)
    assert replicas(fake) == {new: 4}
    assert not served._runs
    assert len(answers.asked) == 2, "one of each side, once"


@pytest.mark.parametrize("side", ["new", "old"])
async def test_one_that_serves_worse_goes_back_and_a_worse_old_one_is_no_fault_of_it(fake, side):
    kubelet, good, new, engines, _, served = await canary(fake)
    engines.bad = {new if side == "new" else good: BAD}
    await look(kubelet, served, 6)
    if side == "new":
        assert replicas(fake) == {good: 4}
        assert failed_of(fake, new)[1]["reason"] == "CanaryWorse"
    else:
        assert replicas(fake) == {good: 3, new: 1}


async def test_one_that_answers_otherwise_goes_back_though_it_is_as_fast(fake):
    kubelet, good, new, _, answers, served = await canary(fake)
    answers.other = {new}
    await look(kubelet, served, 2)
    assert replicas(fake) == {good: 4}
    assert "the answers to the same prompts" in fake.message("chat", "Ready")


async def test_prompts_that_are_not_answered_are_asked_again_and_then_left(fake):
    kubelet, good, new, _, answers, served = await canary(fake)
    answers.fails = 99
    await look(kubelet, served, TRIES + 3)
    assert len(answers.asked) == 2 * TRIES
    assert replicas(fake) == {good: 3, new: 1}


@pytest.mark.parametrize("missing", [Signal.TTFT_WITHIN, Signal.TPOT_COUNT, Signal.FAILED, Signal.SAMPLED])
async def test_what_is_not_reported_lets_no_canary_pass(fake, missing):
    kubelet, good, new, engines, _, served = await canary(fake)
    engines.missing = {missing}
    await look(kubelet, served, 30)
    assert replicas(fake) == {good: 3, new: 1}
    assert "not reported by both revisions yet" in fake.message("chat", "Ready")


async def test_an_outage_counts_for_nothing_and_is_survived(fake):
    kubelet, good, new, engines, _, served = await canary(fake)
    engines.failure = "Prometheus cannot be reached"
    await look(kubelet, served, 30)
    assert replicas(fake) == {good: 3, new: 1}
    engines.failure = ""
    await look(kubelet, served, 40)
    assert replicas(fake) == {new: 4}


async def test_an_engine_that_starts_anew_counts_from_there(fake):
    kubelet, _, new, engines, _, served = await canary(fake)
    await look(kubelet, served, 3)
    pod = next(key for key in engines.counted if engines.revision(key) == new)
    before = shares(served)[1][0].of
    engines.restart(pod)
    await look(kubelet, served)
    assert shares(served)[1][0].of == before
    await look(kubelet, served)
    assert shares(served)[1][0].of == before + 20


async def test_a_store_that_comes_back_with_zeros_takes_nothing_back(fake):
    kubelet, _, _, engines, _, served = await canary(fake)
    await look(kubelet, served, 3)
    before = shares(served)[0][0]
    engines.counted = {}
    await look(kubelet, served)
    assert shares(served)[0][0] == before

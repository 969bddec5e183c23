"""Pods as the law counts them, and one reading for all who look."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.controller.last_reading import YOUNG_S, LastReading
from shardwright.controller.scaling import counts, serves
from shardwright.metrics.source import Target
from shardwright.planner.signals import Readings, Signal, reading
from shardwright.topology.types import PodFacts, Resources


def pod(name="a", node="n1", *, revision="new", ready=True, **other):
    return PodFacts(
        namespace="team", name=name, node=node, requests=Resources(), owner="chat", revision=revision, ready=ready,
        serving=True, **other,
    )  # fmt: skip


def counted(pods, desired, granted=None):
    ready = sum(map(serves, pods))
    found = counts(
        pods, ready=ready, target="new", desired=desired, granted=desired if granted is None else granted
    )
    return found.ready, found.starting, found.draining, found.unschedulable


STUCK = {"node": "", "ready": False, "trouble": "Unschedulable"}


@pytest.mark.parametrize(
    ("pods", "desired", "granted", "expected"),
    [
        ([pod(), pod()], 2, 2, (2, 0, 0, 0)),
        ([pod()], 3, 3, (1, 2, 0, 0)),  # asked for, and not there yet
        ([pod()], 3, 1, (1, 0, 0, 2)),  # the ledger has no place
        ([pod(), pod(**STUCK)], 2, 2, (1, 0, 0, 1)),
        ([pod(), pod(ready=False)], 2, 2, (1, 1, 0, 0)),
        ([pod(), pod(), pod()], 2, 2, (2, 0, 1, 0)),
        ([pod(), pod(terminating=True)], 1, 1, (1, 0, 1, 0)),
        ([pod(revision="old"), pod(revision="old"), pod(ready=False)], 2, 1, (2, 0, 1, 0)),
        ([pod(revision="old"), pod(**STUCK)], 2, 0, (1, 1, 1 - 1, 0)),  # an older revision holds the GPUs
        ([], 2, 2, (0, 2, 0, 0)),
    ],
)
def test_pods_against_the_size_that_is_wanted(pods, desired, granted, expected):
    assert counted(pods, desired, granted) == expected


PODS = st.lists(
    st.builds(
        pod,
        node=st.sampled_from(["", "n1"]),
        revision=st.sampled_from(["old", "new"]),
        ready=st.booleans(),
        terminating=st.booleans(),
        trouble=st.sampled_from(["", "Unschedulable", "CrashLoopBackOff"]),
    ),
    max_size=8,
)


@given(PODS, st.integers(1, 8), st.integers(0, 8))
def test_those_that_stay_are_always_as_many_as_are_wanted(pods, desired, granted):
    ready, starting, draining, nowhere = counted(pods, desired, granted)
    assert ready + starting + nowhere == desired
    assert min(ready, starting, draining, nowhere) >= 0
    if len([p for p in pods if not p.terminating]) > desired:
        assert draining > 0


class Counting:
    name = "Pods"

    def __init__(self):
        self.asked, self.failure, self.now = [], "", 0.0

    async def read(self, targets):
        self.asked.append([target.pod[1] for target in targets])
        if self.failure:
            return Readings(failure=self.failure)
        return Readings(by_signal={Signal.SAMPLED: {target.pod: reading(1.0) for target in targets}})

    async def close(self):
        self.asked.append("closed")


def targets(*names):
    return [Target(("team", name), "") for name in names]


async def test_a_young_reading_serves_again_and_only_what_is_missing_is_read():
    source = Counting()
    last = LastReading(source, lambda: source.now)
    assert last.name == "Pods"
    await last.read(targets("a"))
    await last.fresh(targets("a", "b"))
    found = await last.read(targets("b"))
    assert found.of(Signal.SAMPLED, ("team", "b")) == reading(1.0)
    both = await last.read(targets("a", "c"))
    assert both.of(Signal.SAMPLED, ("team", "a")) == both.of(Signal.SAMPLED, ("team", "c")) == reading(1.0)
    assert source.asked == [["a"], ["a", "b"], ["c"]]
    source.now = YOUNG_S + 1
    await last.read(targets("b"))
    assert source.asked[-1] == ["b"]
    source.failure = "away"
    assert (await last.fresh(targets("a"))).failure == "away"
    assert (await last.read(targets("b"))).failure == "away"
    await last.close()
    assert source.asked[-1] == "closed"

"""Who goes of a workload that becomes smaller: the emptiest, and nobody is chosen from what is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.test_failed_start import started
from shardwright.cluster.errors import Forbidden, Transient
from shardwright.controller.emptiest import DELETION_COST, EPOCH_S, Emptiest, emptiest
from shardwright.topology.types import PodFacts, Resources

FOUR = {"scaling": {"minReplicas": 4, "maxReplicas": 4}}
TWO = {"scaling": {"minReplicas": 2, "maxReplicas": 2}}


def pod(name, *, ready=True, terminating=False):
    return PodFacts("team", name, "n1", Resources(), ready=ready, terminating=terminating)


def test_those_with_the_fewest_requests_go():
    pods = [pod("a"), pod("b"), pod("c"), pod("d")]
    known = {"a": 3.0, "b": 0.0, "c": 1.0, "d": 9.0}
    assert emptiest(pods, 1, known) == ("b",)
    assert emptiest(pods, 2, known) == ("b", "c")


def test_pods_that_do_not_answer_go_first_anyway_and_those_that_leave_are_gone():
    pods = [pod("a"), pod("b"), pod("c", ready=False), pod("d", terminating=True)]
    known = {"a": 3.0, "b": 5.0}
    assert emptiest(pods, 1, known) == ()
    assert emptiest(pods, 2, known) == ("a",)


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8),
    st.integers(0, 9),
    st.dictionaries(st.sampled_from("01234567"), st.floats(0, 100), max_size=8),
)
def test_who_goes_is_known_answers_and_is_no_fuller_than_who_stays(shape, leave, known):
    pods = [pod(str(n), ready=ready, terminating=gone) for n, (ready, gone) in enumerate(shape)]
    chosen = emptiest(pods, leave, known)
    ready = {p.name for p in pods if p.ready and not p.terminating}
    assert set(chosen) <= ready
    assert len(chosen) < max(1, min(leave + 1, len(ready)))
    if chosen:
        assert ready <= known.keys()
        assert max(known[n] for n in chosen) <= min(known[n] for n in ready - set(chosen))
    assert chosen == emptiest(pods[::-1], leave, known)


def marked(fake):
    """The pods that were marked, each with its last cost."""
    return {
        name: obj["metadata"].get("annotations", {}).get(DELETION_COST)
        for (kind, _, name), obj in fake.objects.items()
        if kind == "Pod"
    }


async def shrink(fake, in_flight):
    kubelet, _ = await started(fake, 8, **FOUR)
    names = sorted(name for _, name in fake.pods)
    for (namespace, name), obj in fake.pods.items():
        fake.objects["Pod", namespace, name] = {
            "kind": "Pod",
            **obj,
            "metadata": obj["metadata"] | {"uid": name},
        }
    known = dict(zip(names, in_flight, strict=False))
    fake.parts.reconciler.emptiest = Emptiest(fake, lambda _: known, lambda: EPOCH_S + 100.0)
    fake.log.clear()
    fake.put("chat", **TWO)
    await kubelet.run(20)
    return names


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_they_are_marked_before_the_workload_becomes_smaller(fake):
    names = await shrink(fake, [5.0, 0.0, 2.0, 7.0])
    merges = [entry for entry in fake.log if entry.startswith("merge Pod")]
    assert merges == [f"merge Pod/{names[1]}", f"merge Pod/{names[2]}"]
    smaller = next(i for i, entry in enumerate(fake.log) if entry.startswith("apply Deployment"))
    assert max(fake.log.index(entry) for entry in merges) < smaller
    assert marked(fake) == dict(zip(names, [None, "-100", "-100", None], strict=True))


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_without_all_figures_nothing_is_marked_and_the_workload_becomes_smaller(fake):
    await shrink(fake, [5.0, 0.0])
    assert not [entry for entry in fake.log if entry.startswith("merge Pod")]
    assert list(fake.deployments().values()) == [2]


@pytest.mark.asyncio
@pytest.mark.looptime
@pytest.mark.parametrize(
    ("error", "tried"), [(Transient("no answer", status=503), 2), (Forbidden("forbidden", status=403), 1)]
)
async def test_a_mark_that_is_refused_holds_nothing_up(fake, error, tried):
    fake.fail = {"merge Pod": error}
    await shrink(fake, [5.0, 0.0, 2.0, 7.0])
    assert list(fake.deployments().values()) == [2]
    assert len([entry for entry in fake.log if entry.startswith("merge Pod")]) == tried

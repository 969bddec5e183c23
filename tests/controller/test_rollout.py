"""A rollout always ends, never goes below what it may, and gives nothing up in vain."""

from hypothesis import given
from hypothesis import strategies as st

from shardwright.controller.rollout import Old, Progress, live_replicas, retire

counts = st.integers(0, 6)


def progress(**given: object) -> Progress:
    values = {"desired": 2, "granted": 2, "ready": 0, "leaving": 0, "helps": True} | given
    return Progress(**values)  # type: ignore[arg-type]


def old(*replicas: int) -> tuple[Old, ...]:
    return tuple(Old(revision=f"r{i}", replicas=n) for i, n in enumerate(replicas))


def test_with_room_the_old_ones_go_as_the_new_ones_serve():
    assert retire(old(2), progress(ready=0)) == {"r0": 2}
    assert retire(old(2), progress(ready=1)) == {"r0": 1}
    assert retire(old(2), progress(ready=2)) == {"r0": 0}


def test_without_room_one_goes_at_a_time():
    assert retire(old(2), progress(granted=0)) == {"r0": 1}
    assert retire(old(1), progress(granted=0, leaving=1)) == {"r0": 1}
    assert retire(old(1), progress(granted=1, ready=0)) == {"r0": 1}
    assert retire(old(1), progress(granted=1, ready=1)) == {"r0": 0}


def test_nothing_is_given_up_when_it_would_not_help():
    assert retire(old(2), progress(granted=0, helps=False)) == {"r0": 2}


def test_the_oldest_revision_gives_first():
    assert retire(old(2, 2), progress(desired=3, granted=3, ready=1)) == {"r0": 0, "r1": 2}


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 12))
def test_a_rollout_ends_and_keeps_serving(desired, room_each, spare):
    """Simulate: `spare` free places besides those of the old replicas; each old replica frees one place."""
    olds, ready, free = desired, 0, spare
    granted = 0
    lowest = desired
    for _ in range(100):
        take = min(desired - granted, free)
        granted, free = granted + take, free - take
        target = retire(old(olds), progress(desired=desired, granted=granted, ready=ready))["r0"]
        free += olds - target
        olds = target
        lowest = min(lowest, olds + ready)
        ready = granted
        if olds == 0 and ready == desired:
            break
    assert (olds, ready) == (0, desired)
    assert lowest >= desired - 1


@given(counts, counts, counts, counts)
def test_replicas_never_exceed_what_is_wanted_nor_shrink_without_a_cause(desired, granted, live, stuck):
    stated = live_replicas(desired=desired, granted=granted, live=live, stuck=stuck)
    assert 0 <= stated <= desired or stated <= granted
    if desired >= live and not stuck:
        assert stated >= min(live, desired)
    assert stated >= min(desired, granted)

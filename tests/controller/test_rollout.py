"""A rollout always ends, never goes below what it may, and gives nothing up in vain."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.rollout_model import Cluster, Pod
from shardwright.controller.rollout import New, Old, State, Step, Strategy, decide, live_replicas

AUTO, SURGE, IN_PLACE, BLUE_GREEN = Strategy
counts = st.integers(0, 6)


def new(desired=2, granted=2, **more):
    values = {
        "goal": desired,
        "placed": granted,
        "stated": more.get("ready", 0),
        "pods": more.get("ready", 0),
    }
    return New(**({"desired": desired, "granted": granted} | values | more))


def state(*old, strategy=AUTO, helps=True, **more):
    given_new = more.pop("new", None) or new()
    return State(target="new", old=old, new=given_new, helps=helps, strategy=strategy, **more)


def old(replicas=2, ready=None, revision="old", **more):
    values = {"whole": 2, "ready": replicas if ready is None else ready} | more
    return Old(revision=revision, replicas=replicas, **values)


def kept(*olds, **more):
    return decide(state(*olds, **more)).old


def test_with_room_the_old_ones_go_as_the_new_ones_serve():
    assert kept(old(2), new=new(ready=0)) == {"old": 2}
    assert kept(old(2), new=new(ready=1)) == {"old": 1}
    assert kept(old(2), new=new(ready=2)) == {"old": 0}


def test_without_room_one_goes_at_a_time():
    assert kept(old(2), new=new(granted=0)) == {"old": 1}
    assert kept(old(1), new=new(granted=0), leaving=1) == {"old": 1}
    assert kept(old(1), new=new(granted=1, ready=0)) == {"old": 1}
    assert kept(old(1), new=new(granted=1, ready=1)) == {"old": 0}


def test_a_pod_without_a_node_is_waited_for_before_another_replica_is_given_up():
    assert kept(old(1), new=new(granted=0, stated=1, pods=1)) == {"old": 1}


def test_nothing_is_given_up_when_it_would_not_help():
    decision = decide(state(old(2), new=new(granted=0, gpus=4), helps=False))
    assert decision.old == {"old": 2}
    assert (decision.step, decision.missing_gpus) == (Step.WAITS_FOR_ROOM, 4)


def test_the_oldest_revision_gives_first():
    olds = old(2, revision="r0", whole=3), old(2, revision="r1", whole=3)
    assert kept(*olds, new=new(desired=3, granted=3, ready=1)) == {"r0": 0, "r1": 2}


def test_what_serves_stays_rather_than_what_is_newer_and_does_not():
    good, bad = old(2, revision="r0"), old(2, ready=0, revision="r1")
    assert kept(good, bad, new=new(ready=0)) == {"r0": 2, "r1": 0}
    assert kept(good, old(2, ready=1, revision="r1"), new=new(ready=0)) == {"r0": 1, "r1": 1}


def test_what_did_not_start_goes_at_once_and_what_of_it_serves_when_it_is_replaced():
    assert kept(old(2, ready=0, failed=True), new=new(granted=1, ready=1)) == {"old": 0}
    assert kept(old(2, ready=1, failed=True), new=new(granted=0)) == {"old": 1}


def test_replicas_on_lost_nodes_are_kept_and_nobody_waits_for_them():
    assert kept(old(2, ready=1, lost=1), new=new(ready=0)) == {"old": 2}
    assert kept(old(1, ready=0, lost=1), new=new(granted=0, desired=1)) == {"old": 0}


def test_surge_waits_for_room_and_counts_what_is_missing():
    decision = decide(state(old(2), new=new(granted=0, gpus=4), strategy=SURGE))
    assert (decision.old, decision.new) == ({"old": 2}, 0)
    assert (decision.step, decision.missing_gpus) == (Step.WAITS_FOR_ROOM, 4)
    # One that does not answer is missed by nobody, and its room may be what is missing.
    assert kept(old(2, ready=1), new=new(granted=0), strategy=SURGE) == {"old": 1}


def test_in_place_takes_no_more_gpus_than_there_were():
    decision = decide(state(old(2), new=new(granted=2), strategy=IN_PLACE))
    assert (decision.new, decision.old) == (0, {"old": 1})
    decision = decide(state(old(1), new=new(granted=2), strategy=IN_PLACE, leaving=1, leaving_gpus=1))
    assert (decision.new, decision.old) == (0, {"old": 1})
    decision = decide(state(old(1), new=new(granted=2), strategy=IN_PLACE))
    assert (decision.new, decision.old) == (1, {"old": 1})


def test_max_gpus_counts_the_old_replicas_and_those_that_leave():
    full = decide(state(old(2), new=new(granted=2), max_gpus=2))
    assert (full.new, full.old) == (0, {"old": 1})
    leaves = decide(state(old(1), new=new(granted=2), max_gpus=2, leaving=1, leaving_gpus=1))
    assert (leaves.new, leaves.old) == (0, {"old": 1})
    one_more = decide(state(old(2), new=new(granted=2), max_gpus=3))
    assert (one_more.new, one_more.old) == (1, {"old": 2})
    # What was stated before the bound came down is not taken back.
    assert decide(state(old(2), new=new(granted=2, stated=2), max_gpus=2)).new == 2


def test_pods_that_leave_count_without_another_revision_and_after_a_switch_too():
    leaves = decide(state(new=new(desired=4, granted=4, stated=1), max_gpus=4, leaving_gpus=3))
    assert leaves.new == 1
    assert decide(state(new=new(desired=4, granted=4, stated=1), max_gpus=4)).new == 4
    switched = state(
        old(0, ready=0), new=new(desired=4, granted=4, ready=2), strategy=BLUE_GREEN, serves="new",
        max_gpus=4, leaving_gpus=2,
    )  # fmt: skip
    assert decide(switched).new == 2


def test_a_strategy_that_gives_nothing_up_says_which_max_gpus_it_takes():
    waits = decide(state(old(2), new=new(granted=2), strategy=SURGE, max_gpus=2))
    assert (waits.new, waits.old, waits.step) == (0, {"old": 2}, Step.WAITS_FOR_ROOM)
    assert (waits.missing_gpus, waits.max_gpus) == (0, 3)
    green = decide(state(old(2), new=new(granted=2), strategy=BLUE_GREEN, max_gpus=3))
    assert (green.new, green.old, green.step) == (0, {"old": 2}, Step.WAITS_FOR_ROOM)
    assert (green.missing_gpus, green.max_gpus) == (0, 4)
    assert decide(state(old(2), new=new(granted=2), strategy=BLUE_GREEN, max_gpus=4)).new == 2


def test_blue_green_moves_all_traffic_at_once_and_not_before_all_answer():
    waits = decide(state(old(2), new=new(granted=1, gpus=4), strategy=BLUE_GREEN))
    assert (waits.new, waits.serves, waits.step, waits.missing_gpus) == (0, "", Step.WAITS_FOR_ROOM, 4)
    starts = decide(state(old(2), new=new(), strategy=BLUE_GREEN))
    assert (starts.new, starts.serves, starts.old, starts.over) == (2, "old", {"old": 2}, False)
    half = decide(state(old(2), new=new(ready=1), strategy=BLUE_GREEN, serves="old"))
    assert (half.serves, half.old) == ("old", {"old": 2})
    moved = decide(state(old(2), new=new(ready=2), strategy=BLUE_GREEN, serves="old"))
    assert (moved.serves, moved.old, moved.over) == ("new", {"old": 0}, True)
    # Back again it does not go when one of them is lost.
    lost = decide(state(old(0), new=new(ready=1), strategy=BLUE_GREEN, serves="new"))
    assert (lost.serves, lost.over) == ("new", False)
    drained = decide(state(new=new(ready=2), strategy=BLUE_GREEN, serves="new", leaving=1))
    assert drained.serves == "new"
    assert decide(state(new=new(ready=2), strategy=BLUE_GREEN, serves="new")).serves == ""


def test_a_pause_moves_nothing():
    for strategy in Strategy:
        at = new(granted=2, stated=1, pods=1, ready=1)
        decision = decide(state(old(1), new=at, strategy=strategy, paused=True, serves="old"))
        assert (decision.new, decision.old, decision.serves) == (1, {"old": 1}, "old")
        assert (decision.step, decision.over) == (Step.PAUSED, False)
    # Scaling to zero is obeyed all the same.
    none = decide(state(old(1), new=new(desired=0, granted=0, stated=1), paused=True))
    assert (none.new, none.old) == (0, {"old": 0})
    # What has no old replicas beside it is no rollout.
    assert decide(state(new=new(), paused=True)).new == 2


def test_a_claim_for_one_node_holds_up_what_may_not_end_the_old_first():
    for strategy, left, step in [
        (AUTO, 0, Step.RETIRING),
        (IN_PLACE, 0, Step.RETIRING),
        (SURGE, 1, Step.WAITS_FOR_CLAIM),
        (BLUE_GREEN, 1, Step.WAITS_FOR_CLAIM),
    ]:
        one = old(1, whole=1), new(desired=1, granted=1)
        decision = decide(state(one[0], new=one[1], strategy=strategy, in_the_way=frozenset({"old"})))
        assert (decision.new, decision.old["old"], decision.step) == (0, left, step)


@st.composite
def states(draw):
    """Any state, such as observations that lag behind each other can show."""
    desired, n = draw(counts), draw(st.integers(0, 3))
    olds = tuple(
        Old(
            revision=f"r{i}",
            replicas=draw(counts),
            ready=draw(counts),
            lost=draw(st.integers(0, 1)),
            whole=draw(st.integers(1, 6)),
            gpus=draw(st.sampled_from([1, 2, 4])),
            failed=draw(st.booleans()),
        )
        for i in range(n)
    )
    granted, stated = draw(st.integers(0, desired)), draw(counts)
    made = New(
        desired=desired,
        goal=desired,
        granted=granted,
        stated=stated,
        placed=live_replicas(desired=desired, granted=granted, live=stated, stuck=0),
        pods=draw(counts),
        ready=draw(counts),
        gpus=draw(st.sampled_from([1, 2, 4])),
    )
    return State(
        target="new",
        new=made,
        old=olds,
        leaving=draw(st.integers(0, 2)),
        leaving_gpus=draw(st.integers(0, 4)),
        helps=draw(st.booleans()),
        strategy=draw(st.sampled_from(list(Strategy))),
        paused=draw(st.booleans()),
        serves=draw(st.sampled_from(["", "new", "r0", "r1", "gone"])),
        max_gpus=draw(st.sampled_from([1, 2, 4, 8, 16, 99])),
    )


@given(states())
def test_no_step_takes_more_than_the_rule_lets_it(s):
    decision = decide(s)
    assert decision.new <= max(s.new.granted, s.new.stated)
    if s.old and decision.new > s.new.stated:
        held = sum(o.replicas * o.gpus for o in s.old) + s.leaving_gpus
        assert held + decision.new * s.new.gpus <= s.max_gpus
    assert decision.old.keys() == {o.revision for o in s.old}
    assert all(0 <= decision.old[o.revision] <= o.replicas for o in s.old)
    assert decision.serves in {"", "new", *decision.old}
    if decision.over:
        assert not any(decision.old.values())
    if s.paused or not s.old or not s.new.desired or s.strategy is BLUE_GREEN:
        return
    answering = [(o, min(o.ready, o.replicas)) for o in s.old]
    lost = sum(max(0, ready - decision.old[o.revision]) for o, ready in answering)
    left = sum(Fraction(min(ready, decision.old[o.revision]), o.whole) for o, ready in answering)
    left += Fraction(s.new.ready, s.new.desired)
    if lost and left < 1:
        assert lost == 1, "one at a time"
        assert s.strategy in {AUTO, IN_PLACE}
        assert not s.leaving
        assert s.new.pods <= s.new.ready


@given(states())
def test_blue_green_takes_nothing_from_who_serves_alone(s):
    if s.strategy is not BLUE_GREEN or s.paused:
        return
    decision = decide(s)
    for o in s.old:
        alone = decision.serves == o.revision
        assert not alone or decision.old[o.revision] >= min(o.replicas, o.whole)
    if s.old and decision.serves == "new" != s.serves:
        assert s.new.ready >= s.new.desired


SHAPES = [
    # GPUs of a replica and replicas, before and after: the same size, TP4×2 → TP2×4, and back.
    ((1, 1), (1, 1)),
    ((1, 3), (1, 3)),
    ((4, 2), (2, 4)),
    ((2, 4), (4, 2)),
    ((1, 2), (1, 5)),
    ((1, 5), (1, 2)),
]


def cluster(before, after, strategy, spare=0, node=4, **more):
    """A cluster that runs one revision, with exactly the nodes that the larger set fills, and `spare` more GPUs."""
    gpus, whole = {"a": before[0], "b": after[0]}, {"a": before[1], "b": after[1]}
    need = max(before[0] * before[1], after[0] * after[1])
    capacity = [node] * -(-need // node)
    capacity[-1] -= -need % node
    made = Cluster(
        [*capacity, *([spare] if spare else [])], gpus, whole, target="a", strategy=strategy, **more
    )
    assert made.settle()
    made.target, made.lowest, made.most_gpus = "b", Fraction(1), 0
    return made


@pytest.mark.parametrize(("before", "after"), SHAPES)
@pytest.mark.parametrize("strategy", [AUTO, IN_PLACE])
def test_a_full_pool_is_no_deadlock(before, after, strategy):
    made = cluster(before, after, strategy)
    assert made.settle()
    assert made.most_gpus <= sum(made.capacity)
    if before[0] == after[0]:
        assert made.lowest >= 1 - Fraction(1, before[1])


@pytest.mark.parametrize(("before", "after"), SHAPES)
@pytest.mark.parametrize("strategy", [AUTO, SURGE])
def test_with_room_for_one_more_nobody_is_missed(before, after, strategy):
    made = cluster(before, after, strategy, spare=4)
    assert made.settle()
    if strategy is SURGE or before[0] >= after[0]:
        assert made.lowest == 1


@pytest.mark.parametrize(("before", "after"), SHAPES)
@pytest.mark.parametrize("strategy", list(Strategy))
def test_starts_in_turn_end_too_and_nobody_is_missed(before, after, strategy):
    room = 16 if strategy is BLUE_GREEN else 4
    made = cluster(before, after, strategy, spare=room, at_once=1)
    seen = []
    while not made.done:
        made.settle(1)
        new = made.staying("b")
        seen.append(sum(not pod.ready for pod in new))
        assert len(seen) < 200
    assert max(seen) <= max(1, after[1] // 2), "at most as many as answer"
    if strategy in {SURGE, BLUE_GREEN}:
        assert made.lowest == 1


@pytest.mark.parametrize(("before", "after"), SHAPES)
@pytest.mark.parametrize("at_once", [1, 1 << 30])
def test_blue_green_needs_a_second_set_and_loses_nothing(before, after, at_once):
    full = cluster(before, after, BLUE_GREEN, at_once=at_once)
    assert not full.settle(20)
    assert (full.running, full.serves, full.lowest) == ({"a": before[1]}, "", 1)
    full.capacity += [4] * 2
    assert full.settle()
    assert full.lowest == 1


def test_surge_without_room_waits_until_there_is_some():
    made = cluster((2, 2), (2, 2), SURGE)
    assert not made.settle(20)
    assert (made.running, made.lowest) == ({"a": 2}, 1)
    made.capacity.append(2)
    assert made.settle()


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_pause_in_the_middle_holds_both_sets_and_ends(strategy):
    made = cluster((1, 3), (1, 3), strategy, spare=4)
    made.operate()
    made.control("a"), made.control("b"), made.bind()
    made.paused = True
    there = dict(made.deployments)
    assert not made.settle(20)
    assert made.deployments == there
    made.paused = False
    assert made.settle()


ACTIONS = st.sampled_from(
    ["operate", "control a", "control b", "control c", "bind", "end", "answer", "fail", "next"]
)


@given(
    shape=st.sampled_from(SHAPES),
    strategy=st.sampled_from(list(Strategy)),
    spare=st.sampled_from([0, 1, 2, 4, 8]),
    beyond=st.sampled_from([0, 1, 4, 99]),
    schedule=st.lists(st.tuples(ACTIONS, st.integers(0, 5)), max_size=40),
)
def test_any_schedule_of_crashes_and_failing_pods_ends_well(shape, strategy, spare, beyond, schedule):
    """Crashes between any two writes, pods that fail, a third revision in the middle: it ends, within its GPUs."""
    made = cluster(*shape, strategy, spare)
    made.gpus["c"], made.whole["c"] = made.gpus["b"], made.whole["b"]
    made.max_gpus = max(gpus * made.whole[revision] for revision, gpus in made.gpus.items()) + beyond
    broken = False
    for action, number in schedule:
        what, _, revision = action.partition(" ")
        if what == "operate":
            made.operate(number)
        elif what == "control":
            made.control(revision)
        elif what == "answer":
            made.answer(number)
        elif what == "fail":
            broken = True
            for pod in [p for p in made.pods if p.ready][number : number + 1]:
                pod.ready = False
        elif what == "next":
            made.target = "c"
        else:
            getattr(made, what)()
        assert made.most_gpus <= min(sum(made.capacity), made.max_gpus)
    same = shape[0][0] == shape[1][0]
    if not broken and strategy in {SURGE, BLUE_GREEN}:
        assert made.lowest == 1
    elif not broken and same:
        assert made.lowest >= 1 - Fraction(1, min(made.whole.values()))
    if strategy in {SURGE, BLUE_GREEN}:
        made.capacity += [4] * 5  # room comes
        made.max_gpus += 4 * 5
    assert made.settle(), (made.deployments, made.pods, made.serves, made.state())


def test_what_failed_goes_back_in_place_with_all_its_replicas():
    """Two replicas on two GPUs: one was given up for a revision that never answers, and comes back."""
    made = cluster((1, 2), (1, 2), AUTO)
    made.failed = frozenset({"b"})
    for _ in range(5):
        made.operate()
        made.control("a"), made.control("b"), made.end(), made.bind(), made.answer()
    assert made.deployments == {"a": 1, "b": 1}
    made.target = "a"
    assert made.settle()
    assert made.lowest >= Fraction(1, 2)


def test_a_single_replica_on_a_full_pool_leaves_a_trace_to_go_back_to():
    made = cluster((1, 1), (1, 1), AUTO)
    made.failed = frozenset({"b"})
    for _ in range(5):
        made.operate()
        made.control("a"), made.control("b"), made.end(), made.bind(), made.answer()
    assert made.deployments == {"a": 0, "b": 1}
    made.target = "a"
    assert made.settle()
    assert [p.revision for p in made.pods] == ["a"]


def test_pods_that_do_not_answer_are_the_first_to_go():
    made = Cluster([2], {"a": 1, "b": 1}, {"a": 2, "b": 2}, target="b", strategy=AUTO)
    made.deployments = {"a": 2}
    made.pods = [Pod("a", 0, ready=False), Pod("a", 0, ready=True)]
    made.operate()  # the new revision is offered
    made.operate()
    made.control("a")
    assert [p.ready for p in made.staying("a")] == [True]


@given(counts, counts, counts, counts)
def test_replicas_never_exceed_what_is_wanted_nor_shrink_without_a_cause(desired, granted, live, stuck):
    stated = live_replicas(desired=desired, granted=granted, live=live, stuck=stuck)
    assert 0 <= stated <= desired or stated <= granted
    if desired >= live and not stuck:
        assert stated >= min(live, desired)
    assert stated >= min(desired, granted)


def test_a_rollout_is_over_too_where_a_part_of_the_new_replicas_finds_no_place():
    half = new(desired=2, granted=1, ready=1)
    assert decide(state(old(0), new=half)).over
    assert not decide(state(old(0), new=half, leaving=1)).over
    assert not decide(state(old(0), new=new(desired=2, granted=1, ready=0))).over

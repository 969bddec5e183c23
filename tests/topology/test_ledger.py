"""The ledger: two plans never count on the same GPU, room goes by priority and age, and it is quick."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shardwright.topology.facts import node_facts, pod_facts
from shardwright.topology.ledger import Ledger
from shardwright.topology.packing import allocate
from shardwright.topology.types import Claim, Resources
from topology.cluster_objects import node, pod

GIB = 1 << 30


def claim(
    name, gpus=1, replicas=1, *, nodes=("n1", "n2", "n3"), priority=0, created=0.0, revision="r1", **more
):
    return Claim(
        service=("team", name), revision=revision, pod=Resources(gpus, 1000, GIB, GIB), nodes=nodes, replicas=replicas,
        priority=priority, created_s=created, **more,
    )  # fmt: skip


def ledger(*nodes, hold_seconds=600.0):
    found = Ledger(hold_seconds)
    for raw in nodes:
        found.set_node(node_facts(raw))
    return found


def bound(name, node_name, gpus=1, *, owner, revision="r1", **metadata):
    return pod_facts(pod(name, node_name, gpus, namespace="team", owner=owner, revision=revision, **metadata))


def test_twenty_services_at_once_on_room_for_ten():
    book = ledger(node("n1"), node("n2", gpus=2))
    # Submitted in the worst order; priorities 1 for five of the youngest.
    for number in reversed(range(20)):
        book.submit(claim(f"s{number:02}", priority=1 if number >= 15 else 0, created=float(number)))
    book.settle(0.0)
    granted = [n for n in range(20) if book.allocation(("team", f"s{n:02}"), "r1").granted]
    assert granted == [0, 1, 2, 3, 4, 15, 16, 17, 18, 19]


def test_a_request_is_served_from_what_is_left_and_room_that_comes_free_goes_by_rank():
    book = ledger(node("n1", gpus=1))
    assert book.request(claim("first", created=5), 0.0).granted == 1
    assert book.request(claim("old", created=1), 0.0).granted == 0
    book.set_node(node_facts(node("n2", gpus=1)))
    # A younger one asks at the moment when room is there: the older one that waits comes first.
    assert book.request(claim("young", created=9), 0.0).granted == 0
    assert book.allocation(("team", "old"), "r1").granted == 1
    assert book.take_changed() == {("team", "old")}
    assert book.take_changed() == frozenset()


def test_best_fit_keeps_whole_islands():
    book = ledger(node("n1"), node("n2", allocatable=3), node("n3", allocatable=5))
    assert [s.node for s in book.request(claim("a", 2), 0.0).slots] == ["n2"]
    assert [s.node for s in book.request(claim("b", 4), 0.0).slots] == ["n3"]
    assert [s.node for s in book.request(claim("c", 8), 0.0).slots] == ["n1"]


def test_partial_grants_down_to_the_minimum():
    book = ledger(node("n1", gpus=4))
    some = book.request(claim("a", 2, 3), 0.0)
    assert (some.granted, some.short) == (2, 1)
    assert book.request(claim("b", 2, 3, minimum=2), 0.0).granted == 0
    book.release(("team", "a"))
    assert book.request(claim("b", 2, 3, minimum=2), 0.0).granted == 2


def test_cpu_memory_and_disk_count_too():
    book = ledger(node("n1", host={"cpu": "2500m"}))
    assert book.request(claim("a", 1, 4), 0.0).granted == 2
    assert "free GPUs, but it lacks 0.5 more CPUs" in book.obstacle(claim("a"))


def test_a_bound_pod_takes_the_place_of_its_reservation():
    book = ledger(node("n1", gpus=4), node("n2", gpus=4))
    book.request(claim("a", 2, 2), 0.0)
    before = {n: book.free(n).gpus for n in ("n1", "n2")}
    assert sorted(before.values()) == [0, 4]
    book.set_pod(bound("a-1", "n1", 2, owner="a"))
    assert book.free("n1").gpus == before["n1"]
    assert (book.allocation(("team", "a"), "r1").bound, book.allocation(("team", "a"), "r1").granted) == (
        1,
        2,
    )
    # The scheduler put the second one elsewhere: the reservation moves with it.
    book.set_pod(bound("a-2", "n2", 2, owner="a"))
    assert (book.free("n1").gpus, book.free("n2").gpus) == (2, 2)
    assert book.allocation(("team", "a"), "r1").slots == ()


def test_a_pod_that_leaves_holds_its_gpus_until_it_is_gone():
    book = ledger(node("n1", gpus=1))
    book.request(claim("a"), 0.0)
    book.set_pod(bound("a-1", "n1", owner="a"))
    book.set_pod(bound("a-1", "n1", owner="a", deletionTimestamp="2026-11-29T00:00:00Z"))
    assert book.request(claim("a"), 1.0).granted == 0
    book.remove_pod("team", "a-1")
    assert book.request(claim("a"), 1.0).granted == 1


def test_a_reservation_whose_room_is_taken_is_made_anew_elsewhere():
    book = ledger(node("n1", gpus=4), node("n2", gpus=4))
    book.request(claim("old", 2, created=1.0), 0.0)
    book.request(claim("young", 2, created=2.0), 0.0)
    assert {s.node for name in ("old", "young") for s in book.allocation(("team", name), "r1").slots} == {
        "n1"
    }
    book.set_pod(pod_facts(pod("foreign", "n1", 1)))
    assert book.allocation(("team", "old"), "r1").granted == 1
    assert book.allocation(("team", "young"), "r1").granted == 0
    assert book.take_changed() == {("team", "young")}
    book.settle(1.0)
    assert [s.node for s in book.allocation(("team", "young"), "r1").slots] == ["n2"]
    assert book.take_changed() == {("team", "young")}
    # A node that loses GPUs is no different.
    book.set_node(node_facts(node("n2", gpus=4, allocatable=1)))
    assert book.allocation(("team", "young"), "r1").granted == 0


def test_a_pod_that_has_ended_is_no_longer_bound():
    book = ledger(node("n1", gpus=1))
    book.request(claim("a"), 0.0)
    book.set_pod(bound("a-1", "n1", owner="a"))
    book.set_pod(bound("a-1", "n1", owner="a", phase="Failed"))
    assert (book.allocation(("team", "a"), "r1").bound, book.free("n1").gpus) == (0, 1)


def test_a_nomination_that_moves_frees_the_first_node():
    book = ledger(node("n1", gpus=1), node("n2", gpus=1))
    for where in ("n1", "n2"):
        raw = pod("p", "", 1)
        raw["status"]["nominatedNodeName"] = where
        book.set_pod(pod_facts(raw))
    assert (book.free("n1").gpus, book.free("n2").gpus) == (1, 0)


def test_reservations_expire_and_go_to_whoever_ranks_first():
    book = ledger(node("n1", gpus=1), hold_seconds=60)
    book.request(claim("a", created=2), 0.0)
    book.request(claim("b", created=1), 0.0)
    assert book.expire(59.0) == frozenset()
    assert book.expire(60.0) == {("team", "a")}
    assert book.settle(60.0) == {("team", "b")}


def test_a_lost_node_gives_its_reservations_back():
    book = ledger(node("n1", gpus=1), node("n2", gpus=2))
    assert book.request(claim("a"), 0.0).slots[0].node == "n1"
    book.remove_node("n1")
    assert book.take_changed() == {("team", "a")}
    assert book.request(claim("a"), 0.0).slots[0].node == "n2"


def test_a_smaller_claim_gives_the_surplus_back():
    book = ledger(node("n1", gpus=4))
    assert book.request(claim("a", replicas=4), 0.0).granted == 4
    assert book.request(claim("a", replicas=1), 0.0).granted == 1
    assert book.free("n1").gpus == 3


def test_spread_prefers_nodes_without_the_service():
    book = ledger(node("n1", gpus=4), node("n2", gpus=8))
    assert [s.node for s in book.request(claim("a", replicas=2, spread=True), 0.0).slots] == ["n1", "n2"]


def test_holders_are_named_services_by_name_and_foreign_pods_as_pods():
    book = ledger(node("n1"))
    book.set_pod(pod_facts(pod("notebook", "n1", 2)))
    book.request(claim("a", 4), 0.0)
    assert book.holders(["n1"]) == (("team/a", 4), ("pod work/notebook", 2))


def test_the_pure_allocation_agrees_with_the_ledger():
    claims = [
        claim(f"s{n}", gpus=1 + n % 3, replicas=1 + n % 2, created=float(n), nodes=("n1", "n2"))
        for n in range(12)
    ]
    book = ledger(node("n1"), node("n2"))
    free = {n: book.free(n) for n in ("n1", "n2")}
    for one in claims:
        book.submit(one)
    book.settle(0.0)
    pure = allocate(claims, free)
    assert {k: v.slots for k, v in pure.items()} == {
        c.service: book.allocation(c.service, "r1").slots for c in claims
    }


def test_a_thousand_claims_fill_three_hundred_nodes_to_the_last_gpu():
    nodes = tuple(f"n{i:03}" for i in range(300))
    book = ledger(*(node(name) for name in nodes))
    for i in range(3000):
        book.set_pod(pod_facts(pod(f"f{i}", nodes[i % 300], 0)))
    shapes = [claim("x", gpus, nodes=nodes).pod for gpus in (1, 2, 4, 8)]
    claims = [
        Claim(
            service=("team", f"s{i}"),
            revision="r",
            pod=shapes[i % 4],
            nodes=nodes,
            replicas=2,
            created_s=float(i),
        )
        for i in range(1000)
    ]
    for one in claims:
        book.request(one, 0.0)
    assert sum(book.free(n).gpus for n in nodes) == 0


NAMES = st.sampled_from(["n1", "n2", "n3"])
SERVICES = st.sampled_from(["a", "b", "c", "d"])


class LedgerMachine(RuleBasedStateMachine):
    """Any order of events, against the rule that pods and reservations of a node never exceed it by a grant."""

    def __init__(self):
        super().__init__()
        self.book = Ledger(50.0)
        self.capacity: dict[str, int] = {}
        self.pods: dict[str, tuple[str, int]] = {}
        self.now = 0.0

    @rule(name=NAMES, gpus=st.integers(1, 8))
    def add_node(self, name, gpus):
        self.book.set_node(node_facts(node(name, gpus=gpus)))
        self.capacity[name] = gpus

    @rule(name=NAMES, index=st.integers(0, 3), gpus=st.integers(0, 4), ended=st.booleans())
    def foreign(self, name, index, gpus, ended):
        """A pod that nobody asked about, which may move or end."""
        raw = pod(f"f{index}", name, gpus, phase="Succeeded" if ended else "Running")
        self.book.set_pod(pod_facts(raw))
        self.pods.pop(f"f{index}", None)
        if not ended:
            self.pods[f"f{index}"] = (name, gpus)

    @rule(service=SERVICES, index=st.integers(0, 2), name=NAMES)
    def bind_elsewhere(self, service, index, name):
        """The scheduler has the last word on where a pod goes."""
        allocation = self.book.allocation(("team", service), "r1")
        key = f"{service}-{index}"
        if allocation.slots and key not in self.pods:
            gpus = allocation.slots[0].resources.gpus
            self.book.set_pod(bound(key, name, gpus, owner=service))
            self.pods[key] = (name, gpus)
            assert self.book.allocation(("team", service), "r1").bound == allocation.bound + 1

    @rule(name=NAMES)
    def drop_node(self, name):
        self.book.remove_node(name)
        self.capacity.pop(name, None)

    @rule(service=SERVICES, gpus=st.integers(1, 4), replicas=st.integers(0, 3), priority=st.integers(0, 2))
    def request(self, service, gpus, replicas, priority):
        before = {n: self.book.free(n).gpus for n in self.capacity}
        found = self.book.request(
            claim(service, gpus, replicas, priority=priority, created=self.now), self.now
        )
        assert found.granted <= max(replicas, found.bound)
        assert all(slot.node in self.capacity for slot in found.slots)
        for name, gpus_free in before.items():
            assert self.book.free(name).gpus >= min(0, gpus_free)  # a grant never makes a node negative

    @rule(service=SERVICES, index=st.integers(0, 2))
    def bind(self, service, index):
        allocation = self.book.allocation(("team", service), "r1")
        name = f"{service}-{index}"
        if allocation.slots and name not in self.pods:
            slot = allocation.slots[0]
            free = {n: self.book.free(n) for n in self.capacity}
            self.book.set_pod(bound(name, slot.node, slot.resources.gpus, owner=service))
            self.pods[name] = (slot.node, slot.resources.gpus)
            assert {n: self.book.free(n).gpus for n in self.capacity} == {n: r.gpus for n, r in free.items()}

    @rule(service=SERVICES, index=st.integers(0, 2))
    def gone(self, service, index):
        name = f"{service}-{index}"
        self.pods.pop(name, None)
        self.book.remove_pod("team", name)

    @rule(step=st.floats(0, 40))
    def pass_time(self, step):
        self.now += step
        self.book.expire(self.now)

    @rule()
    def settle(self):
        self.book.settle(self.now)

    @rule(service=SERVICES)
    def release(self, service):
        self.book.release(("team", service))
        assert self.book.allocation(("team", service), "r1").slots == ()

    @invariant()
    def the_books_balance(self):
        for name, gpus in self.capacity.items():
            used = sum(count for where, count in self.pods.values() if where == name)
            held = sum(
                slot.resources.gpus
                for service in "abcd"
                for slot in self.book.allocation(("team", service), "r1").slots
                if slot.node == name
            )
            assert self.book.free(name).gpus == gpus - used - held
            assert not held or gpus >= used + held, "a reservation without room"


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedger = LedgerMachine.TestCase

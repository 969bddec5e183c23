"""The one ledger of GPU places across services.

Decides who may create pods where, so that two plans never count on the same GPU: places are reserved until a
pod is bound, in the order of priority, then age. Never creates or binds anything, and knows no clock: time is
passed in.

Amounts are kept per node and changed by what changes, so a pod event costs the same however large the cluster
is.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from shardwright.topology.nodes import gpus_of
from shardwright.topology.packing import fits, obstacle, take
from shardwright.topology.types import Allocation, Claim, NodeFacts, PodFacts, Resources, Slot

Service = tuple[str, str]
ClaimKey = tuple[str, str, str]
Key = TypeVar("Key")
_NOTHING = Resources()

RESERVATION_SECONDS = 600.0
"""How long a place is held for a pod that is not bound: our choice, enough for a slow scheduler."""


class Ledger:
    """Reservations, bound pods and what is left, by node."""

    def __init__(self, hold_seconds: float = RESERVATION_SECONDS) -> None:
        """Start empty; reservations last `hold_seconds` until their pod is bound."""
        self._hold_s = hold_seconds
        self._capacity: dict[str, Resources] = {}
        self._used: dict[str, Resources] = {}
        self._reserved: dict[str, Resources] = {}
        self._free: dict[str, Resources] = {}
        self._pods: dict[tuple[str, str], PodFacts] = {}
        self._pods_on: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._pods_of: defaultdict[ClaimKey, set[tuple[str, str]]] = defaultdict(set)
        self._claims: dict[ClaimKey, Claim] = {}
        self._slots: dict[ClaimKey, list[tuple[Slot, float]]] = {}
        self._hopeless: set[tuple[Resources, tuple[str, ...]]] = set()
        self._grew = False
        self._changed: set[Service] = set()

    # What is observed.

    def set_node(self, node: NodeFacts) -> None:
        """Take note of a node's capacity. Whether it is usable is for a claim's `nodes` to say."""
        capacity = node.allocatable._replace(gpus=gpus_of(node))
        if self._capacity.get(node.name) != capacity:
            self._capacity[node.name] = capacity
            self._refresh(node.name)
            self._revoke(node.name)

    def remove_node(self, name: str) -> None:
        """Forget a node; what was reserved on it is free to be reserved elsewhere."""
        self._capacity.pop(name, None)
        self._free.pop(name, None)
        for key, held in list(self._slots.items()):
            lost = [entry for entry in held if entry[0].node == name]
            for entry in lost:
                self._give_back(key, entry)
            if lost:
                self._changed.add(key[:2])

    def set_pod(self, pod: PodFacts) -> None:
        """Take note of a pod. A newly bound one of ours takes the place of a reservation of its revision.

        Reservations that a pod of somebody else has taken the room of are given up, to be made elsewhere.
        A pod that asks for nothing, as one that has ended does, holds nothing and is forgotten.
        """
        before = self._pods.get((pod.namespace, pod.name))
        if before == pod:
            return
        if before is not None:
            self._forget(before)
            if before.node != pod.node:
                self._refresh(before.node)
        if not pod.node or pod.requests == _NOTHING:
            if before is not None:
                self._refresh(before.node)
            return
        key = (pod.namespace, pod.name)
        self._pods[key] = pod
        self._pods_on[pod.node].add(key)
        _change(self._used, pod.node, pod.requests)
        if pod.owner:
            self._pods_of[pod.namespace, pod.owner, pod.revision].add(key)
            if before is None or before.node != pod.node:
                self._bind(pod)
        self._refresh(pod.node)
        self._revoke(pod.node)

    def remove_pod(self, namespace: str, name: str) -> None:
        """Forget a pod that is gone or has ended; a pod that is only being deleted still holds its place."""
        before = self._pods.get((namespace, name))
        if before is not None:
            self._forget(before)
            self._refresh(before.node)

    # What is claimed.

    def submit(self, claim: Claim) -> None:
        """Take note of a claim (new or changed) without granting anything; `settle` grants in rank order."""
        key = (*claim.service, claim.revision)
        self._claims[key] = claim
        held = self._slots.get(key, [])
        kept = [e for e in held if e[0].resources == claim.pod and e[0].node in claim.nodes]
        surplus = kept[max(0, claim.replicas - self._bound(key)) :]
        for entry in [e for e in held if e not in kept] + surplus:
            self._give_back(key, entry)

    def request(self, claim: Claim, now_s: float) -> Allocation:
        """Submit one claim and answer it.

        When room has come free since the last `settle`, all waiting claims are settled first, in rank order;
        those that got something are in `take_changed`.
        """
        self.submit(claim)
        if self._grew:
            self.settle(now_s)
            self._changed.discard(claim.service)  # it is told here
        else:
            self._grant(claim, now_s)
        return self.allocation(claim.service, claim.revision)

    def settle(self, now_s: float) -> frozenset[Service]:
        """Grant what is free to the waiting claims in rank order; return the services that got something."""
        self._grew = False
        waiting = [c for k, c in self._claims.items() if c.replicas > self._have(k)]
        gained = frozenset(c.service for c in sorted(waiting, key=lambda c: c.rank) if self._grant(c, now_s))
        self._changed |= gained
        return gained

    def expire(self, now_s: float) -> frozenset[Service]:
        """Give up reservations whose pod was not bound in time; return the services that lost some."""
        lost: set[Service] = set()
        for key, held in list(self._slots.items()):
            for entry in [e for e in held if e[1] <= now_s]:
                self._give_back(key, entry)
                lost.add(key[:2])
        return frozenset(lost)

    def release(self, service: Service, revision: str | None = None) -> None:
        """Drop claims and reservations of a service, or of one revision. Bound pods stay counted."""
        for key in [k for k in self._claims if k[:2] == service and revision in {None, k[2]}]:
            del self._claims[key]
            for entry in list(self._slots.get(key, ())):
                self._give_back(key, entry)

    # What is so.

    def take_changed(self) -> frozenset[Service]:
        """Return the services whose allocation changed without their own request, once."""
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def allocation(self, service: Service, revision: str) -> Allocation:
        """Return what a revision of a service has; one that never claimed wants and holds none."""
        key = (*service, revision)
        claim = self._claims.get(key)
        return Allocation(
            wanted=claim.replicas if claim else 0,
            bound=self._bound(key),
            slots=tuple(sorted((e[0] for e in self._slots.get(key, ())), key=lambda s: s.node)),
        )

    def free(self, node: str) -> Resources:
        """Return what neither a pod nor a reservation holds on a node; nothing when the node is unknown."""
        return self._free.get(node, _NOTHING)

    def obstacle(self, claim: Claim) -> str:
        """Say in one sentence why one more pod of `claim` has no place now."""
        return obstacle(claim, self._free)

    def holders(self, nodes: Iterable[str], limit: int = 5) -> tuple[tuple[str, int], ...]:
        """Name who holds GPUs on `nodes`: (name, GPUs), largest first.

        Our services by namespace/name, reservations included; foreign pods by "pod namespace/name".
        """
        wanted = set(nodes)
        total: defaultdict[str, int] = defaultdict(int)
        for node in wanted:
            most = self._capacity.get(node, _NOTHING).gpus
            for pod_key in self._pods_on.get(node, ()):
                pod = self._pods[pod_key]
                who = f"{pod.namespace}/{pod.owner}" if pod.owner else f"pod {pod.namespace}/{pod.name}"
                total[who] += min(pod.requests.gpus, most)  # nobody holds more than there is
        for key, held in self._slots.items():
            for slot, _ in held:
                if slot.node in wanted:
                    total[f"{key[0]}/{key[1]}"] += slot.resources.gpus
        ranked = sorted(((who, gpus) for who, gpus in total.items() if gpus), key=lambda h: (-h[1], h[0]))
        return tuple(ranked[:limit])

    # How it is kept.

    def _bound(self, key: ClaimKey) -> int:
        return sum(1 for pod in self._pods_of.get(key, ()) if not self._pods[pod].terminating)

    def _have(self, key: ClaimKey) -> int:
        return self._bound(key) + len(self._slots.get(key, ()))

    def _refresh(self, node: str) -> None:
        capacity = self._capacity.get(node)
        if capacity is None:
            return
        before = self._free.get(node, _NOTHING)
        after = capacity.minus(self._used.get(node, _NOTHING)).minus(self._reserved.get(node, _NOTHING))
        self._free[node] = after
        if not fits(after, before):
            self._grew = True
            self._hopeless.clear()

    def _forget(self, pod: PodFacts) -> None:
        key = (pod.namespace, pod.name)
        del self._pods[key]
        _drop(self._pods_on, pod.node, key)
        _drop(self._pods_of, (pod.namespace, pod.owner, pod.revision), key)
        _change(self._used, pod.node, _NOTHING.minus(pod.requests))

    def _bind(self, pod: PodFacts) -> None:
        """Drop one reservation of the pod's revision, that of its own node if there is one."""
        key = (pod.namespace, pod.owner, pod.revision)
        held = self._slots.get(key)
        if held and not pod.terminating:
            self._give_back(key, next((e for e in held if e[0].node == pod.node), held[-1]))

    def _give_back(self, key: ClaimKey, entry: tuple[Slot, float]) -> None:
        self._slots[key].remove(entry)
        if not self._slots[key]:
            del self._slots[key]
        slot = entry[0]
        _change(self._reserved, slot.node, _NOTHING.minus(slot.resources))
        self._refresh(slot.node)

    def _revoke(self, node: str) -> None:
        """Give up reservations on a node that holds more than it has, the last in rank first."""
        while node in self._free and min(self._free[node]) < 0 and node in self._reserved:
            held = [
                (key, entry) for key, slots in self._slots.items() for entry in slots if entry[0].node == node
            ]
            key, entry = max(held, key=lambda found: self._claims[found[0]].rank)
            self._give_back(key, entry)
            self._changed.add(key[:2])

    def _grant(self, claim: Claim, now_s: float) -> bool:
        """Reserve what the claim lacks as far as there is room; whether it gained anything."""
        key = (*claim.service, claim.revision)
        have = self._have(key)
        shape = (claim.pod, claim.nodes)
        if have >= claim.replicas or shape in self._hopeless:
            return False
        own: dict[str, int] = {}
        if claim.spread:
            for pod_key in self._pods_of.get(key, ()):
                node = self._pods[pod_key].node
                own[node] = own.get(node, 0) + 1
            for slot, _ in self._slots.get(key, ()):
                own[slot.node] = own.get(slot.node, 0) + 1
        slots = take(claim, claim.replicas - have, self._free, own)
        enough = have + len(slots) >= claim.minimum
        if not slots or (enough and have + len(slots) < claim.replicas):
            self._hopeless.add(shape)  # holds until something comes free
        if not enough:
            for slot in slots:
                self._free[slot.node] = self._free[slot.node].plus(slot.resources)
            return False
        for slot in slots:
            _change(self._reserved, slot.node, slot.resources)
        self._slots.setdefault(key, []).extend((slot, now_s + self._hold_s) for slot in slots)
        return bool(slots)


def _change(amounts: dict[str, Resources], node: str, by: Resources) -> None:
    """Add to what is kept of a node; nothing is not kept, so that nodes that went leave nothing."""
    after = amounts.get(node, _NOTHING).plus(by)
    if after == _NOTHING:
        amounts.pop(node, None)
    else:
        amounts[node] = after


def _drop(index: defaultdict[Key, set[tuple[str, str]]], key: Key, pod: tuple[str, str]) -> None:
    held = index.get(key)
    if held is not None:
        held.discard(pod)
        if not held:
            del index[key]

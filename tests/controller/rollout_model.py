"""A small cluster for rollouts: nodes with GPUs, Deployments, pods, and an operator that may crash between writes.

Every action happens in an order that the test draws. What is real is the decision; what it sees is derived from
the cluster as the operator does.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from shardwright.controller.rollout import New, Old, State, Strategy, decide, live_replicas
from shardwright.controller.staggered import in_turn


@dataclass
class Pod:
    revision: str
    node: int | None = None
    ready: bool = False
    terminating: bool = False


@dataclass
class Cluster:
    capacity: list[int]
    gpus: dict[str, int]
    """Of one replica, by revision."""
    whole: dict[str, int]
    """Replicas that carry all, by revision."""
    target: str
    strategy: Strategy
    deployments: dict[str, int] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    serves: str = ""
    paused: bool = False
    failed: frozenset[str] = frozenset()
    lowest: Fraction = Fraction(1)
    max_gpus: int = 1 << 30
    at_once: int = 1 << 30
    """Starts of the target beside what answers."""
    most_gpus: int = 0
    """Most GPUs that pods held together."""

    def of(self, revision: str) -> list[Pod]:
        return [p for p in self.pods if p.revision == revision]

    @property
    def running(self) -> dict[str, int]:
        """Workloads that have replicas."""
        return {revision: count for revision, count in self.deployments.items() if count}

    def staying(self, revision: str) -> list[Pod]:
        return [p for p in self.of(revision) if not p.terminating]

    def free(self) -> list[int]:
        left = list(self.capacity)
        for pod in self.pods:
            if pod.node is not None:
                left[pod.node] -= self.gpus[pod.revision]
        return left

    def places(self) -> int:
        """Replicas of the target that have a place: bound, or room for them."""
        each, left = self.gpus[self.target], self.free()
        bound = sum(1 for p in self.staying(self.target) if p.node is not None)
        room = sum(n // each for n in left)
        granted = min(self.whole[self.target], bound + room)
        begun = self.deployments.get(self.target, 0) > 0
        if self.strategy is Strategy.BLUE_GREEN and set(self.deployments) - {self.target} and not begun:
            return granted if granted == self.whole[self.target] else bound
        return granted

    def served(self) -> Fraction:
        """Share of what is wanted that is carried by what answers and is not on its way out."""
        total = Fraction(0)
        for revision, count in self.deployments.items():
            if self.serves and revision != self.serves:
                continue
            ready = min(count, sum(1 for p in self.staying(revision) if p.ready))
            total += Fraction(ready, self.whole[revision])
        return min(total, Fraction(1))

    def state(self) -> State:
        each, desired = self.gpus[self.target], self.whole[self.target]
        granted, stated = self.places(), self.deployments.get(self.target, 0)
        pods = self.staying(self.target)
        held = [0] * len(self.capacity)
        leaving = {r: len(self.of(r)) - self.deployments.get(r, 0) for r in self.gpus if r != self.target}
        leaving = {r: n for r, n in leaving.items() if n > 0}
        for pod in self.pods:
            if pod.revision != self.target and pod.node is not None:
                held[pod.node] += self.gpus[pod.revision]
        old = tuple(
            Old(
                revision=r,
                replicas=n,
                ready=sum(1 for p in self.staying(r) if p.ready),
                whole=self.whole[r],
                gpus=self.gpus[r],
                failed=r in self.failed,
            )
            for r, n in sorted(self.deployments.items())
            if r != self.target
        )
        return State(
            target=self.target,
            new=New(
                desired=desired,
                goal=desired,
                granted=granted,
                stated=stated,
                placed=live_replicas(desired=desired, granted=granted, live=stated, stuck=0),
                pods=len(pods),
                ready=sum(1 for p in pods if p.ready),
                gpus=each,
            ),
            old=old,
            leaving=sum(leaving.values()),
            leaving_gpus=sum(n * self.gpus[r] for r, n in leaving.items())
            + each * sum(1 for p in self.of(self.target) if p.terminating),
            taken=self.target in self.deployments,
            helps=self.target in self.deployments
            and any(f + h >= each for f, h in zip(self.free(), held, strict=True)),
            max_gpus=self.max_gpus,
            strategy=self.strategy,
            paused=self.paused,
            serves=self.serves,
        )

    # Who acts.

    def operate(self, writes: int = 99) -> None:
        """Decide, and make so many of the writes, in the operator's order."""
        state = self.state()
        decision = decide(state)
        assert decision == decide(replace(state)), "nothing is remembered"
        assert decision.new <= max(state.new.granted, state.new.stated)
        fewer = in_turn(decision.new, stated=state.new.stated, ready=state.new.ready, least=self.at_once)
        decision = replace(decision, new=fewer)
        todo = []
        if decision.new or self.target in self.deployments or (state.old and not self.paused):
            todo.append(lambda: setattr(self, "serves", decision.serves))
            todo.append(lambda: self.deployments.__setitem__(self.target, decision.new))
        for revision, count in decision.old.items():
            if count or not decision.over:
                todo.append(lambda r=revision, n=count: self.deployments.__setitem__(r, n))
        for revision, count in decision.old.items():
            if not count and decision.over:
                todo.append(lambda r=revision: self.deployments.pop(r))
        for write in todo[:writes]:
            write()
            self.lowest = min(self.lowest, self.served())

    def control(self, revision: str) -> None:
        """Make or end pods as the ReplicaSet controller does: those that do not answer go first."""
        count, there = self.deployments.get(revision, 0), self.staying(revision)
        self.pods += [Pod(revision) for _ in range(count - len(there))]
        there.sort(key=lambda p: (p.node is not None, p.ready))
        for pod in there[: max(0, len(there) - count)]:
            pod.terminating, pod.ready = True, False

    def bind(self) -> None:
        for pod in self.pods:
            if pod.node is None and not pod.terminating:
                left = self.free()
                fits = [n for n, f in enumerate(left) if f >= self.gpus[pod.revision]]
                if fits:
                    pod.node = min(fits, key=lambda n: left[n])
        self.most_gpus = max(self.most_gpus, sum(self.capacity) - sum(self.free()))

    def end(self) -> None:
        self.pods = [p for p in self.pods if not p.terminating]

    def answer(self, index: int = -1) -> None:
        waiting = [p for p in self.pods if p.node is not None and not p.ready and not p.terminating]
        waiting = [p for p in waiting if p.revision not in self.failed]
        for pod in waiting if index < 0 else waiting[index % len(waiting) :][:1] if waiting else ():
            pod.ready = True

    def settle(self, rounds: int = 200) -> bool:
        """Let everybody act until the rollout is over; whether it is."""
        for _ in range(rounds):
            self.operate()
            for revision in self.gpus:
                self.control(revision)
            self.end()
            self.bind()
            self.answer()
            if self.done:
                return True
        return False

    @property
    def done(self) -> bool:
        return (
            self.deployments == {self.target: self.whole[self.target]}
            and not self.serves
            and {p.revision for p in self.pods} == {self.target}
            and all(p.ready for p in self.pods)
            and len(self.pods) == self.whole[self.target]
        )

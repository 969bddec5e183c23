"""How many replicas each revision's workload should have while one replaces another, and who serves. Pure.

Decides the next step of a rollout from what is there now, and nothing from what was done before: a crash
between any two writes is followed by the same steps. Never decides which pod of a workload goes (Kubernetes
takes those that do not answer first), nor whether a revision is any good (`controller.starts`).

What is promised: together, old and new replicas that answer carry what is wanted, each replica its share of
what its own plan needs replicas for, so that plans of another size can replace each other. An old replica
that answers goes only when what is left carries all of it. Where there is no room beside the old replicas,
Auto and InPlace give up one of them, and another only when nothing is leaving and every new replica with a
place answers: of one size one replica at a time; of another, as many as one new replica takes the room of.
What `pool.maxGPUs` does not allow beside the old replicas has no room either.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction


class Strategy(StrEnum):
    """How a new revision replaces the old one (`spec.rollout.strategy`)."""

    AUTO = "Auto"
    SURGE = "Surge"
    IN_PLACE = "InPlace"
    BLUE_GREEN = "BlueGreen"


class Step(StrEnum):
    """What a rollout is at."""

    NONE = "None"
    """There is no rollout."""
    STARTING = "Starting"
    """New replicas load the model."""
    RETIRING = "Retiring"
    """Old replicas are leaving."""
    WAITS_FOR_ROOM = "WaitsForRoom"
    """There is no room for a further replica, and the strategy gives none up for it."""
    WAITS_FOR_CLAIM = "WaitsForClaim"
    """A claim that one node alone can mount is held by the old replicas, which the strategy keeps."""
    CANARY = "Canary"
    """A part of the new replicas serves and is judged."""
    FETCHING = "Fetching"
    """A Job fetches the weights, and nothing is given up before it has."""
    PAUSED = "Paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Old:
    """A workload of another revision than the target."""

    revision: str
    replicas: int
    """spec.replicas of its Deployment."""
    ready: int
    """Replicas that answer."""
    lost: int = 0
    """Replicas on nodes that cannot be reached: they do not answer, and may come back."""
    whole: int = 1
    """Replicas that it takes of this revision to carry all that is wanted."""
    gpus: int = 1
    """GPUs of one replica."""
    failed: bool = False
    """It did not start: what of it does not answer goes at once."""

    @property
    def idle(self) -> int:
        """Replicas that do not answer, on nodes that can be reached: nobody misses them."""
        return max(0, self.replicas - self.ready - self.lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """The target's workload."""

    desired: int
    goal: int
    """Replicas to reach for now: `desired`, or fewer during a canary."""
    granted: int
    """Replicas that have a place."""
    stated: int = 0
    """spec.replicas of its Deployment; 0 while there is none."""
    placed: int = 0
    """What `live_replicas` says of it."""
    pods: int = 0
    """Pods that are there and not leaving, ready or not."""
    ready: int = 0
    """Replicas that answer."""
    gpus: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where a service stands."""

    target: str
    new: New
    old: tuple[Old, ...] = ()
    """The oldest first."""
    leaving: int = 0
    """Pods of old revisions that are on their way out and still hold their GPUs, on nodes in reach."""
    leaving_gpus: int = 0
    helps: bool = False
    """Whether a new replica is taken, and has room once an old one is gone."""
    taken: bool = True
    """Whether the API server takes the new revision's workload: nothing is given up before that is known."""
    max_gpus: int = 1 << 30
    """GPUs that old and new replicas may hold together."""
    strategy: Strategy = Strategy.AUTO
    paused: bool = False
    serves: str = ""
    """The revision that alone gets traffic, as the Service says; empty: all that answer do."""
    in_the_way: frozenset[str] = frozenset()
    """Revisions with pods that hold a claim which one node alone can mount, and which the target needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to have."""

    new: int
    old: dict[str, int] = field(default_factory=dict)
    """Replicas of each other workload, by revision."""
    over: bool = True
    """Old workloads without replicas go: until then they say that a rollout is under way, and to what it can
    go back."""
    serves: str = ""
    """The revision that alone gets traffic; empty: all that answer do. A router's weights would be here."""
    step: Step = Step.NONE
    missing_gpus: int = 0
    """GPUs that are missing for the next step, when it waits for room."""
    max_gpus: int = 0
    """What pool.maxGPUs would have to be for the next step, when that is what it waits for; else 0."""


def decide(state: State) -> Decision:
    """Return the next step."""
    if not state.old:
        still = state.leaving > 0 and state.serves == state.target
        allowed = 0 if state.in_the_way else beside(state.max_gpus, state.leaving_gpus, state.new.gpus)
        count = bounded(state.new.placed, state.new.stated, allowed)
        return Decision(new=count, serves=state.target if still else "")
    if state.paused and state.new.desired:
        return hold(state)
    if state.strategy is Strategy.BLUE_GREEN and (blue := _serving_alone(state)):
        return _blue_green(state, blue)
    return _rolling(state)


def hold(state: State, step: Step = Step.PAUSED) -> Decision:
    """Let everything be as it is."""
    known = {state.target, *(o.revision for o in state.old)}
    return Decision(
        new=min(state.new.placed, state.new.stated),
        old={o.revision: o.replicas for o in state.old},
        over=False,
        serves=state.serves if state.serves in known else "",
        step=step,
    )


def _serving_alone(state: State) -> str:
    """Return the revision that has all the traffic, or can have it without a loss; empty: there is none."""
    serving = [o.revision for o in state.old if o.ready]
    if state.serves in {state.target, *serving}:
        return state.serves
    return serving[0] if len(serving) == 1 and not state.new.ready else ""


def _blue_green(state: State, blue: str) -> Decision:
    """Bring up the whole new set out of traffic, move the traffic at once, then let the old set drain."""
    new = state.new
    if blue != state.target and new.ready < new.desired:
        if state.in_the_way:
            return hold(state, Step.WAITS_FOR_CLAIM)
        allowed = min(new.desired, max(new.stated, _beside_old(state, state.max_gpus)))
        whole = min(new.placed, allowed) >= new.desired
        count = new.placed if whole else min(new.placed, new.stated)
        return Decision(
            new=count,
            old={o.revision: min(o.replicas, o.whole) if o.revision == blue else 0 for o in state.old},
            over=False,
            # Written before the first new pod is made, and not before there is to be one.
            serves=blue if count or state.serves else "",
            step=Step.STARTING if whole else Step.WAITS_FOR_ROOM,
            missing_gpus=max(0, new.desired - new.placed) * new.gpus,
            max_gpus=_held(state) + new.desired * new.gpus if allowed < new.desired else 0,
        )
    return Decision(
        new=bounded(new.placed, new.stated, _beside_old(state, state.max_gpus)),
        old={o.revision: 0 for o in state.old},
        over=new.ready >= new.desired,
        serves=state.target,
        step=Step.RETIRING,
    )


def _rolling(state: State) -> Decision:
    """Let the old replicas go as new ones take over, and one before where there is no room beside them."""
    new = state.new
    allowed = _beside_old(state, state.max_gpus)
    most = min(allowed, _within_old(state)) if state.strategy is Strategy.IN_PLACE else allowed
    most = min(max(most, new.stated), new.goal)
    have, count = min(new.granted, most), min(new.placed, most)
    old = _kept(state)
    starting = max(0, max(have, new.pods) - new.ready)
    going = sum(o.replicas for o in state.old) - sum(old.values())
    stuck = have < new.goal and not starting and not state.leaving
    # A place that is granted is one that only the bound forbids to use.
    helps = state.helps or (state.taken and new.granted > have)
    if stuck and not going and helps and (giver := _giver(state, old)):
        old[giver] -= 1
        going = 1
    missing = new.gpus if stuck and not going else 0
    bound = allowed <= have
    step = Step.RETIRING
    if missing:
        step = Step.WAITS_FOR_ROOM
    elif starting or count > new.ready:
        step = Step.STARTING
    elif new.goal < new.desired:
        step = Step.CANARY
    if state.in_the_way:
        if state.strategy in {Strategy.SURGE, Strategy.BLUE_GREEN}:
            return hold(state, Step.WAITS_FOR_CLAIM)
        count = min(count, new.stated)
        if new.granted or helps:
            # They hold what the new ones need to start at all.
            old |= dict.fromkeys(state.in_the_way & old.keys(), 0)
            step = Step.RETIRING
    return Decision(
        new=count,
        old=old,
        over=_is_over(state, old, starting),
        step=step,
        missing_gpus=0 if bound else missing,
        max_gpus=_held(state) + (have + 1) * new.gpus if bound and missing else 0,
    )


def _is_over(state: State, old: dict[str, int], starting: int) -> bool:
    """Whether nothing more is to come of a rollout: all answer, or all that have a place do."""
    new = state.new
    if any(old.values()) or starting or new.goal < new.desired:
        return False
    gone = not state.leaving and not any(o.replicas for o in state.old)
    return new.ready >= new.desired or (gone and new.ready > 0)


def _within_old(state: State) -> int:
    """Return how many new replicas the GPUs hold that the old ones have given up."""
    whole = max(state.new.desired * state.new.gpus, *(o.whole * o.gpus for o in state.old))
    return _beside_old(state, whole)


def beside(max_gpus: int, held: int, each: int) -> int:
    """Return how many replicas of `each` GPUs so many hold of which others `held`."""
    return max(0, max_gpus - held) // max(1, each)


def bounded(placed: int, stated: int, allowed: int) -> int:
    """Return the replicas to state of those that have a place; what was stated is not taken back."""
    return min(placed, max(stated, allowed))


def _beside_old(state: State, max_gpus: int) -> int:
    """Return how many new replicas so many GPUs hold beside the old ones."""
    return beside(max_gpus, _held(state), state.new.gpus)


def _held(state: State) -> int:
    """Return the GPUs that the old replicas hold, those that leave included."""
    return sum(o.replicas * o.gpus for o in state.old) + state.leaving_gpus


def _kept(state: State) -> dict[str, int]:
    """Return how many old replicas it takes beside the new ones that answer; the oldest revision gives first.

    Those that answer count first. What does not answer is kept only for what is lacking then: it may come.
    """
    new = state.new
    need = 1 - Fraction(new.ready, new.desired) if new.desired else Fraction(0)
    kept: dict[str, int] = {}
    for o in reversed(state.old):
        kept[o.revision] = min(o.ready, o.replicas, _replicas(need, o))
        need -= Fraction(kept[o.revision], max(1, o.whole))
    for o in reversed(state.old):
        most = min(o.replicas, o.ready + o.lost) if o.failed else o.replicas
        more = min(max(0, most - kept[o.revision]), _replicas(need, o))
        kept[o.revision] += more
        need -= Fraction(more, max(1, o.whole))
    return kept


def _replicas(need: Fraction, o: Old) -> int:
    """Return the replicas of a revision that carry a share of what is wanted."""
    return max(0, -(-(need * max(1, o.whole)) // 1))


def _giver(state: State, old: dict[str, int]) -> str:
    """Return the revision that gives up a replica for room; one that answers only where the strategy may."""
    left = [o for o in state.old if old[o.revision]]
    for o in left:
        if o.idle:
            return o.revision
    if state.strategy in {Strategy.SURGE, Strategy.BLUE_GREEN} or not left:
        return ""
    return left[0].revision


def live_replicas(*, desired: int, granted: int, live: int, stuck: int) -> int:
    """Return the replicas to state for a workload.

    As many as have a place. A workload is never made smaller merely because a pod is being replaced:
    only when fewer are wanted, or when the scheduler itself says that `stuck` pods find no node.
    """
    stated = min(desired, max(granted, live))
    return max(granted, stated - stuck) if granted < stated else stated

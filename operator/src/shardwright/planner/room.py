"""How many replicas of an arrangement the nodes of a pool hold, and how many survive the loss of one.

Decides by the shapes of the nodes alone, as if all were free. Never looks at what is free now.
"""

from shardwright.planner.question import Fit
from shardwright.topology.types import Resources

Rooms = tuple[tuple[int, int], ...]
"""(replicas that a node holds, such nodes)."""


def room_of(fit: Fit) -> Rooms:
    """Return how many replicas of an arrangement the nodes hold on which it may run."""
    island = fit.parallelism.ranks if fit.within_island else 1
    kinds = (kind for kind in fit.offer.kinds if kind.holds(fit.gpus, fit.memory_mib, island))
    return tuple((_held(fit.resources, kind.capacity), kind.nodes) for kind in kinds)


def total(rooms: Rooms) -> int:
    """Return the replicas that all nodes hold."""
    return sum(each * nodes for each, nodes in rooms)


def _held(need: Resources, capacity: Resources) -> int:
    return max(0, min(have // each for each, have in zip(need, capacity, strict=True) if each > 0))


def most_on_one(replicas: int, rooms: Rooms) -> int:
    """Return how many replicas the fullest node has when so many are spread as evenly as there is room.

    All of them where there is no room for so many.
    """
    for level in range(1, replicas):
        if sum(min(each, level) * nodes for each, nodes in rooms) >= replicas:
            return level
    return replicas


def surviving(needed: int, rooms: Rooms, allowed: int) -> int:
    """Return the fewest replicas of which `needed` are left when the fullest node is lost; 0 when none do."""
    for replicas in range(needed + 1, min(allowed, total(rooms)) + 1):
        if replicas - most_on_one(replicas, rooms) >= needed:
            return replicas
    return 0

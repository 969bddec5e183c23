"""Which node gets a pod.

Decides by best fit: the fullest node on which the pod still fits, so that whole islands stay free for large
tensor parallelism. Never places on a node that the claim does not name.
"""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Final

from shardwright.topology.types import Allocation, Claim, Pool, Resources, Slot

NO_NODE: Final = "no node of the plan's kind is usable now"
"""The obstacle that no other service's GPUs are behind."""
_LACKING = (
    "{:g} more GPUs (needs {:g})",
    "{:g} more CPUs (needs {:g})",
    "{:.1f} GiB more memory (needs {:.1f})",
    "{:.1f} GiB more disk (needs {:.1f})",
)
_UNITS = (1, 1000, 1 << 30, 1 << 30)


def fits(need: Resources, room: Resources) -> bool:
    """Whether `need` is available in `room`; spelled out because it is every allocation's innermost step."""
    return need[0] <= room[0] and need[1] <= room[1] and need[2] <= room[2] and need[3] <= room[3]


def best_node(claim: Claim, free: Mapping[str, Resources], own: Mapping[str, int]) -> str | None:
    """Find the node for one more pod of `claim`, or None.

    The fewest free GPUs win, then the name; with `claim.spread` the fewest pods of the service (`own`) come
    first.
    """
    need, spread = claim.pod, claim.spread
    best: str | None = None
    best_key = (1 << 30, 1 << 30)
    for name in claim.nodes:
        room = free.get(name)
        if room is None or room[0] < need[0]:
            continue
        key = (own.get(name, 0) if spread else 0, room[0])
        if key < best_key and fits(need, room):
            best, best_key = name, key
            if key == (0, need[0]):
                break
    return best


def take(
    claim: Claim, count: int, free: MutableMapping[str, Resources], own: MutableMapping[str, int]
) -> list[Slot]:
    """Take up to `count` places for pods of `claim` out of `free`, and note them in `own`."""
    slots: list[Slot] = []
    while len(slots) < count:
        node = best_node(claim, free, own)
        if node is None:
            break
        free[node] = free[node].minus(claim.pod)
        own[node] = own.get(node, 0) + 1
        slots.append(Slot(node=node, resources=claim.pod))
    return slots


def allocate(waiting: Iterable[Claim], free: Mapping[str, Resources]) -> dict[tuple[str, str], Allocation]:
    """Grant claims that hold nothing yet, in rank order, out of `free` (node to free amounts; not changed).

    A claim that does not fit does not hold back those behind it. One that gets fewer places than its minimum
    gets none.
    """
    left = dict(free)
    granted: dict[tuple[str, str], Allocation] = {}
    for claim in sorted(waiting, key=lambda c: c.rank):
        slots = take(claim, claim.replicas, left, {})
        if len(slots) < claim.minimum:
            for slot in slots:
                left[slot.node] = left[slot.node].plus(slot.resources)
            slots = []
        granted[claim.service] = Allocation(wanted=claim.replicas, slots=tuple(slots))
    return granted


def free_map(pool: Pool) -> dict[str, Resources]:
    """Node name to free amounts."""
    return {node.name: node.free for node in pool.nodes}


def obstacle(claim: Claim, free: Mapping[str, Resources]) -> str:
    """Say in one sentence why no node has room for one more pod of `claim`."""
    rooms = [(name, free[name]) for name in claim.nodes if name in free]
    if not rooms:
        return NO_NODE
    with_gpus = [(name, room) for name, room in rooms if room.gpus >= claim.pod.gpus]
    if not with_gpus:
        name, room = max(rooms, key=lambda r: (r[1].gpus, r[0]))
        return (
            f"one replica needs {claim.pod.gpus} free GPUs on one node; of {len(rooms)} nodes of this kind "
            f"the one with most is {name} with {max(0, room.gpus)}"
        )
    name, room = max(with_gpus, key=lambda r: (r[1].gpus, r[1].memory_bytes, r[0]))
    return f"{name} has {room.gpus} free GPUs, but {lacking(claim.pod, room)}"


def lacking(need: Resources, room: Resources) -> str:
    """Name what `room` lacks for `need`: GPUs, CPU, memory, ephemeral storage; empty for nothing."""
    parts = [
        template.format((wanted - max(0, free)) / unit, wanted / unit)
        + (" where pods ask for more than there is" if free < 0 else "")
        for template, unit, wanted, free in zip(_LACKING, _UNITS, need, room, strict=True)
        if wanted > free
    ]
    return "it lacks " + " and ".join(parts) if parts else ""

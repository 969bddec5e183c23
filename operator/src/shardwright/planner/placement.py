"""Where replicas of a plan have room now.

Decides with the amounts that a pool shows as free. The ledger decides between services; this answers for one
plan alone, for the command line and for messages.
"""

from shardwright.planner.types import Placement, Plan
from shardwright.topology.packing import free_map, obstacle, take
from shardwright.topology.types import Claim, Pool, PoolNode

MOST_HOLDERS = 5


def runs_on(plan: Plan, node: PoolNode) -> bool:
    """Whether a plan may run on a node, whatever is free on it."""
    island = plan.parallelism.ranks if plan.within_island else 1
    return (
        node.product == plan.product.label
        and node.gpus >= plan.pod_resources.gpus
        and node.island.size >= island
        and (not plan.most_node_gpus or node.labelled_gpus <= plan.most_node_gpus)
        and node.gpu_memory_mib >= plan.min_gpu_memory_mib
        and (node.driver_major is None or node.driver_major >= plan.min_driver_major)
    )


def nodes_of(plan: Plan, pool: Pool) -> tuple[str, ...]:
    """Return the names of the nodes that a plan may run on, sorted: what a Claim of the ledger needs."""
    return tuple(node.name for node in pool.nodes if runs_on(plan, node))


def claim(
    plan: Plan, service: tuple[str, str], revision: str, nodes: tuple[str, ...], *, replicas: int,
    priority: int = 0, created_s: float = 0.0, spread: bool = False,
) -> Claim:  # fmt: skip
    """Build the ledger's claim of a service for a plan (`nodes` from `nodes_of`)."""
    return Claim(
        service=service,
        revision=revision,
        pod=plan.pod_resources,
        nodes=nodes,
        replicas=replicas,
        priority=priority,
        created_s=created_s,
        spread=spread,
    )


def place(plan: Plan, pool: Pool, replicas: int) -> Placement:
    """Place up to `replicas` replicas on what is free in `pool`, by best fit."""
    nodes = [node for node in pool.nodes if runs_on(plan, node)]
    wanted = claim(plan, ("", ""), "", tuple(n.name for n in nodes), replicas=replicas)
    free = free_map(pool)
    slots = take(wanted, replicas, free, {})
    gpus = plan.pod_resources.gpus
    stranded = sum(free[n.name].gpus % gpus for n in nodes if free[n.name].gpus > 0) if gpus else 0
    short = len(slots) < replicas
    held: dict[str, int] = {}
    for node in nodes:
        for who, count in node.foreign:
            held[who] = held.get(who, 0) + count
    ranked = sorted(held.items(), key=lambda h: (-h[1], h[0]))[:MOST_HOLDERS]
    return Placement(
        wanted=replicas,
        slots=tuple(slots),
        stranded_gpus=stranded,
        obstacle=obstacle(wanted, free) if short else "",
        holders=tuple(ranked) if short else (),
    )

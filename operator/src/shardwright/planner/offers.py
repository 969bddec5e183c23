"""What a pool offers, by GPU product.

Decides which of a pool's nodes an engine version can use and which memory sizes to count with. Never looks at
free amounts: a plan holds whatever runs now.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardwright.catalog.gpus import visible_gib
from shardwright.catalog.types import EngineClass, GPUProduct
from shardwright.planner.legality import driver_floor
from shardwright.topology.nodes import MEMORY_TOLERANCE
from shardwright.topology.types import Pool, PoolNode, Resources


class NodeKind(NamedTuple):
    """Nodes that are alike in all that decides which arrangements they may hold, and how many replicas."""

    gpus: int
    memory_mib: int
    island: int
    capacity: Resources
    nodes: int

    def holds(self, gpus: int, memory_mib: int, island: int) -> bool:
        """Whether such a node has at least these GPUs, GPU memory and island."""
        return self.gpus >= gpus and self.memory_mib >= memory_mib and self.island >= island


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The nodes of one product in a pool."""

    product: GPUProduct
    nodes: tuple[PoolNode, ...]
    """Usable by this engine version."""
    old_driver: tuple[PoolNode, ...]
    """Nodes whose driver is too old for the engine version's own image."""
    min_driver: int
    """The floor that `old_driver` misses."""
    kinds: tuple[NodeKind, ...]
    """The different kinds of `nodes`: few, however many nodes there are."""
    node_gpus: int
    """GPUs of the largest node."""
    island_gpus: int
    """GPUs of the largest island."""
    memory_classes: tuple[int, ...]
    """GPU memory sizes in MiB that differ by more than the tolerance, smallest first."""

    def visible_gib(self, memory_mib: int) -> float:
        """Return the memory that the engine sees on a GPU whose label says `memory_mib`."""
        return visible_gib(self.product, memory_mib)

    def largest_memory(self, gpus: int, island: int = 1) -> int:
        """Return the largest GPU memory in MiB on nodes with at least these GPUs and island; 0 for none."""
        return max((k.memory_mib for k in self.kinds if k.holds(gpus, 0, island)), default=0)

    def holding(self, gpus: int, memory_mib: int = 0, island: int = 1) -> tuple[PoolNode, ...]:
        """Return the nodes with at least these GPUs, GPU memory and island."""
        return tuple(
            n
            for n in self.nodes
            if n.gpus >= gpus and n.gpu_memory_mib >= memory_mib and n.island.size >= island
        )


def offers(
    pool: Pool, products: Mapping[str, GPUProduct], engine: EngineClass, *, own_image: bool
) -> tuple[Offer, ...]:
    """Group a pool's nodes by product, sorted by label.

    With `own_image` (spec.engine.image) nothing is known of its CUDA version, so that no driver is refused.
    """
    floor = driver_floor(engine)
    usable: defaultdict[str, list[PoolNode]] = defaultdict(list)
    refused: defaultdict[str, list[PoolNode]] = defaultdict(list)
    for node in pool.nodes:
        too_old = not own_image and node.driver_major is not None and node.driver_major < floor
        (refused if too_old else usable)[node.product].append(node)
    return tuple(
        _offer(products[label], usable[label], refused[label], floor)
        for label in sorted({*usable, *refused})
        if label in products
    )


def _offer(
    product: GPUProduct, nodes: Sequence[PoolNode], old_driver: Sequence[PoolNode], floor: int
) -> Offer:
    counts = Counter((n.gpus, n.gpu_memory_mib, n.island.size, n.capacity) for n in nodes)
    kinds = tuple(NodeKind(*kind, nodes=count) for kind, count in sorted(counts.items()))
    classes: list[int] = []
    for size in sorted({k.memory_mib for k in kinds}):
        if not classes or size > classes[-1] * (1 + MEMORY_TOLERANCE):
            classes.append(size)
    return Offer(
        product=product,
        nodes=tuple(nodes),
        old_driver=tuple(old_driver),
        min_driver=floor if old_driver else 0,
        kinds=kinds,
        node_gpus=max((k.gpus for k in kinds), default=0),
        island_gpus=max((k.island for k in kinds), default=0),
        memory_classes=tuple(classes),
    )

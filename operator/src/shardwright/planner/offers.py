"""What a pool offers, by GPU product.

Decides which of a pool's nodes an engine version can use and which memory sizes to count with. Never looks at
free amounts: a plan holds whatever runs now.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardwright.catalog.gpus import visible_gib
from shardwright.catalog.types import EngineClass, GPUProduct
from shardwright.planner.legality import driver_floor
from shardwright.topology.nodes import MEMORY_TOLERANCE
from shardwright.topology.types import Pool, PoolNode


class Shape(NamedTuple):
    """What of a node decides which arrangements it may hold."""

    gpus: int
    memory_mib: int
    island: int


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
    shapes: frozenset[Shape]
    """The different shapes of `nodes`: few, however many nodes there are."""
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
        return max((s.memory_mib for s in self.shapes if s.gpus >= gpus and s.island >= island), default=0)

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
    shapes = frozenset(Shape(n.gpus, n.gpu_memory_mib, n.island.size) for n in nodes)
    classes: list[int] = []
    for size in sorted({s.memory_mib for s in shapes}):
        if not classes or size > classes[-1] * (1 + MEMORY_TOLERANCE):
            classes.append(size)
    return Offer(
        product=product,
        nodes=tuple(nodes),
        old_driver=tuple(old_driver),
        min_driver=floor if old_driver else 0,
        shapes=shapes,
        node_gpus=max((s.gpus for s in shapes), default=0),
        island_gpus=max((s.island for s in shapes), default=0),
        memory_classes=tuple(classes),
    )

"""What a pool offers, by GPU product.

Decides which of a pool's nodes an engine version can use and which memory sizes to count with. Never looks at
free amounts: a plan holds whatever runs now.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from shardwright.catalog.gpus import visible_gib
from shardwright.catalog.types import EngineClass, GPUProduct
from shardwright.planner.legality import driver_floor
from shardwright.topology.nodes import MEMORY_TOLERANCE
from shardwright.topology.types import Pool, PoolNode


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

    @property
    def node_gpus(self) -> int:
        """GPUs of the largest node."""
        return max((n.gpus for n in self.nodes), default=0)

    @property
    def island_gpus(self) -> int:
        """GPUs of the largest island."""
        return max((n.island.size for n in self.nodes), default=0)

    def memory_classes(self) -> tuple[int, ...]:
        """Return the GPU memory sizes in MiB that differ by more than the tolerance, smallest first."""
        classes: list[int] = []
        for size in sorted({n.gpu_memory_mib for n in self.nodes}):
            if not classes or size > classes[-1] * (1 + MEMORY_TOLERANCE):
                classes.append(size)
        return tuple(classes)

    def visible_gib(self, memory_mib: int) -> float:
        """Return the memory that the engine sees on a GPU whose label says `memory_mib`."""
        return visible_gib(self.product, memory_mib)

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
        Offer(
            product=products[label],
            nodes=tuple(usable[label]),
            old_driver=tuple(refused[label]),
            min_driver=floor if refused[label] else 0,
        )
        for label in sorted({*usable, *refused})
        if label in products
    )

"""Which other GPU products have room now for a service that waits for room on its plan's.

Decides from what the plan's candidates say of themselves, whose memory and targets were judged when they
lost, and from what is free now. Never changes a plan: that depends on shapes, and a person names the product.
"""

import re
from collections.abc import Callable
from math import prod
from typing import Final

from shardwright.api.candidate_reasons import CandidateReason
from shardwright.api.status import PlanStatus
from shardwright.topology.packing import fits
from shardwright.topology.types import Pool, PoolNode, Resources

_FITS: Final = frozenset(
    {
        CandidateReason.COSTS_MORE.value,
        CandidateReason.LARGER_THAN_NEEDED.value,
        CandidateReason.RANKED_LOWER.value,
        CandidateReason.SLOWER.value,
        CandidateReason.UNVALIDATED.value,
        CandidateReason.POOL_TOO_SMALL.value,
    }
)
"""Reasons of candidates that hold the model and keep what is stated, and lost to a better one."""
_ARRANGEMENT: Final = re.compile(r" on (\S+) (TP\S+)")
_DEGREE: Final = re.compile(r"(TP|PP|DP)(\d+)")


def room_elsewhere(
    plan: PlanStatus, pod: Resources, pool: Pool, free: Callable[[str], Resources]
) -> tuple[str, ...]:
    """Return the labels of other products with room for a replica now, in the order of the candidates.

    `pod` is what a replica of the plan asks for; of another arrangement only the GPUs are known to differ.
    """
    found: dict[str, None] = {}
    for candidate in plan.candidates:
        named = _ARRANGEMENT.search(candidate.arrangement) if candidate.reason in _FITS else None
        if named is None or named[1] in found or named[1] == plan.gpu_product:
            continue
        degrees = {name: int(degree) for name, degree in _DEGREE.findall(named[2])}
        need = pod._replace(gpus=prod(degrees.values()))
        ranks = degrees.get("TP", 1) * degrees.get("DP", 1)
        if any(fits(need, free(node.name)) for node in _nodes(pool, named[1], ranks)):
            found[named[1]] = None
    return tuple(found)


def _nodes(pool: Pool, product: str, ranks: int) -> list[PoolNode]:
    """Return the nodes of a product, where there are any those that link so many ranks."""
    nodes = [node for node in pool.nodes if node.product == product]
    return [node for node in nodes if node.island.size >= ranks] or nodes

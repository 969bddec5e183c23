"""Nodes and pods as the pool of one service.

Decides what is free: allocatable minus the requests of every pod that is bound or nominated and has not
ended, foreign and terminating ones too. Never depends on the order of what it is given.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256

from shardwright.api.pool import PoolSpec
from shardwright.catalog.types import GPUProduct
from shardwright.topology.facts import AMD_RESOURCE, NVIDIA_RESOURCE
from shardwright.topology.nodes import island_of, place_of
from shardwright.topology.types import ExcludedNode, NodeFacts, PodFacts, Pool, PoolNode, Resources

_NOTHING = Resources()
AMPLE = Resources(gpus=0, cpu_millis=512_000, memory_bytes=4 << 40, ephemeral_bytes=64 << 40)
"""CPU, memory and disk of a node that nobody described: so much that only GPUs decide."""


def bridges_of(spec: PoolSpec) -> str:
    """`pool.interconnect.bridges` with its default."""
    return (spec.interconnect.bridges if spec.interconnect else None) or "None"


def pool_key(spec: PoolSpec) -> tuple[object, ...]:
    """Extract what of a PoolSpec decides which nodes are in the pool; equal keys give equal pools."""
    return (
        tuple(sorted((spec.node_selector or {}).items())),
        None if spec.gpu_products is None else tuple(sorted(spec.gpu_products)),
        tuple(sorted(repr(t) for t in spec.tolerations or ())),
        bridges_of(spec),
    )


def fingerprint(nodes: Iterable[PoolNode], excluded: Iterable[ExcludedNode]) -> str:
    """Digest of everything a plan can depend on: shapes, how many there are of each, and exclusions."""
    shapes = sorted(
        repr(
            (
                n.product,
                n.gpu_memory_mib,
                n.gpus,
                n.labelled_gpus,
                n.island,
                n.capacity,
                n.gpu_resource,
                n.driver_major,
            )
        )
        for n in nodes
    )
    reasons = sorted(repr((e.node, e.reason.value, e.message)) for e in excluded)
    return sha256("\n".join((*shapes, "", *reasons)).encode()).hexdigest()[:16]


def shape_pool(nodes: Iterable[NodeFacts], products: Mapping[str, GPUProduct], spec: PoolSpec) -> Pool:
    """Build the pool with everything free, for plans. May be kept for one `pool_key` until a node changes."""
    usable: list[PoolNode] = []
    excluded: list[ExcludedNode] = []
    bridges = bridges_of(spec)
    for node in sorted(nodes, key=lambda n: n.name):
        place = place_of(node, products, spec, bridges)
        if isinstance(place, PoolNode):
            usable.append(place)
        elif place is not None:
            excluded.append(place)
    return Pool(nodes=tuple(usable), excluded=tuple(excluded), fingerprint=fingerprint(usable, excluded))


def build_pool(
    nodes: Iterable[NodeFacts],
    pods: Iterable[PodFacts],
    products: Mapping[str, GPUProduct],
    pool_spec: PoolSpec,
    *,
    ignore_owner: tuple[str, str] | None = None,
) -> Pool:
    """Build the pool with what is free on each node now, and who holds its GPUs.

    Pods of the service `ignore_owner` (namespace, name) count as free: it may keep the places it has.
    Reservations are the ledger's and not seen here.
    """
    used: defaultdict[str, Resources] = defaultdict(Resources)
    holders: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for pod in pods:
        if not pod.node or (ignore_owner is not None and (pod.namespace, pod.owner) == ignore_owner):
            continue
        used[pod.node] = used[pod.node].plus(pod.requests)
        if pod.requests.gpus:
            holders[pod.node][f"{pod.namespace}/{pod.name}"] = pod.requests.gpus
    pool = shape_pool(nodes, products, pool_spec)
    return replace(
        pool,
        nodes=tuple(
            replace(
                node,
                free=node.capacity.minus(used.get(node.name, _NOTHING)),
                foreign=_held(holders.get(node.name, {}), node.gpus),
            )
            for node in pool.nodes
        ),
    )


def _held(holders: Mapping[str, int], gpus: int) -> tuple[tuple[str, int], ...]:
    """Name who holds GPUs of a node, largest first; nobody holds more than there are."""
    return tuple(sorted(((who, min(n, gpus)) for who, n in holders.items()), key=lambda h: (-h[1], h[0])))


def pool_of_shapes(
    shapes: Iterable[tuple[str, int, int]], products: Mapping[str, GPUProduct], bridges: str = "None"
) -> Pool:
    """Build a pool of nodes that do not exist yet, from (product label or alias, GPUs a node, nodes).

    Their CPU, memory and disk are taken as ample, which a plan made for them says. Raises KeyError for a
    product that the catalogue does not have.
    """
    nodes: list[PoolNode] = []
    for label, gpus, count in shapes:
        product = products[label]
        capacity = AMPLE._replace(gpus=gpus)
        nodes.extend(
            PoolNode(
                name=f"{product.short_name.lower()}-{gpus}x-{len(nodes) + index}",
                product=product.label,
                gpu_memory_mib=product.memory_mib,
                gpus=gpus,
                island=island_of(product, gpus, gpus, bridges),
                capacity=capacity,
                free=capacity,
                gpu_resource=AMD_RESOURCE if product.vendor == "amd" else NVIDIA_RESOURCE,
                labelled_gpus=gpus,
            )
            for index in range(count)
        )
    nodes.sort(key=lambda n: n.name)
    return Pool(nodes=tuple(nodes), fingerprint=fingerprint(nodes, ()))

"""Which nodes a decision is made for, what they cost, and what was measured on such: shared options.

Decides how the options become a pool, products and corrections. Reads files, or the current cluster when
asked to; else nothing is contacted.
"""

import argparse
from collections.abc import Sequence

from shardwright.api.llmservice import LLMService
from shardwright.api.pool import PoolSpec
from shardwright.catalog.engines import DEFAULT_ENGINE_VERSION
from shardwright.catalog.gpus import find_product, unknown_product_message
from shardwright.cli import prices
from shardwright.cli.files import InputError, UsageError, name_of, of_file
from shardwright.cli.live import read_nodes_and_pods
from shardwright.cli.plan_input import Shape, documents, read_cluster, read_shapes
from shardwright.planner.corrections import of_models, read_entries
from shardwright.planner.types import Correction, CorrectionKey, ModelChoice
from shardwright.topology.pool import bridges_of, build_pool, pool_of_shapes
from shardwright.topology.types import NodeFacts, PodFacts, Pool

_ONE_NODE = 8
"""GPUs of the node that is assumed for a product of pool.gpuProducts when no nodes are given."""
_MOST_NODES = 64
"""Nodes of one of pool.shapes that are assumed: more of the same change no plan."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--nodes",
        metavar="FILE",
        help="saved output of kubectl get nodes,pods -A -o yaml (pods may be left out)",
    )
    where.add_argument("--cluster", action="store_true", help="read nodes and pods of the current cluster")
    where.add_argument(
        "--gpu", action="append", metavar="PRODUCT:GPUS[xNODES]",
        help="plan for such nodes, may be repeated; default: pool.shapes, or 8 of each of pool.gpuProducts",
    )  # fmt: skip
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        help="count with what was measured: the calibration store's ConfigMap, saved with kubectl get "
        "configmap -o yaml; without it nothing measured is counted with",
    )
    prices.add_option(parser)


class Nodes:
    """The nodes that the options name, read once for all services."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Read them. Raises InputError."""
        self._shapes = _known("--gpu", read_shapes(args.gpu or ()))
        self._real: tuple[list[NodeFacts], list[PodFacts]] | None = None
        if args.nodes:
            self._real = _saved(args.nodes)
        elif args.cluster:
            self._real = read_cluster(read_nodes_and_pods(args.context))
        self._measured = _measured(args.calibration) if args.calibration else {}
        self.products = prices.read(args.prices)
        """By every name, with the prices that are given."""

    def corrections(
        self, models: Sequence[ModelChoice], version: str | None
    ) -> dict[tuple[str, str], Correction]:
        """Return what was measured of some checkpoints with an engine version."""
        return of_models(self._measured, models, version or DEFAULT_ENGINE_VERSION)

    def pool(self, service: LLMService) -> tuple[Pool, bool]:
        """Return the pool of a service, and whether what is free on it is known. Raises InputError."""
        spec, products, metadata = service.spec.pool, self.products, service.metadata
        if self._real is not None:
            own = (metadata.namespace, metadata.name)
            return build_pool(*self._real, products, spec, ignore_owner=own), True
        shapes = self._shapes or _stated(spec)
        if not shapes:
            raise UsageError(
                "which GPUs? give --nodes FILE, --cluster or --gpu PRODUCT:GPUS, or write "
                "spec.pool.gpuProducts"
            )
        known = [(found.label, gpus, count) for name, gpus, count in shapes if (found := find_product(name))]
        wanted = {found.label for name in spec.gpu_products or () if (found := find_product(name))}
        known = [shape for shape in known if not spec.gpu_products or shape[0] in wanted]
        return pool_of_shapes(known, products, bridges_of(spec)), False


def _saved(path: str) -> tuple[list[NodeFacts], list[PodFacts]]:
    objects = documents(path)
    try:
        return read_cluster(objects)
    except InputError as error:
        raise of_file(path, error) from error


def _measured(path: str) -> dict[CorrectionKey, Correction]:
    """Read a calibration store's ConfigMap. Raises InputError, also for one entry that cannot be read."""
    objects = [found for found in documents(path) if found.get("kind") == "ConfigMap"]
    if len(objects) != 1:
        raise InputError(f"--calibration: {name_of(path)} holds {len(objects)} ConfigMaps: give one")
    data = objects[0].get("data")
    found, refused = read_entries(data if isinstance(data, dict) else {})
    if refused:
        name, why = refused[0]
        raise InputError(
            f"--calibration: {name_of(path)}, key {name}: {why}: remove it, or give the store as it is"
        )
    return found


def _known(where: str, shapes: list[Shape]) -> list[Shape]:
    """Return nodes of known products, written in the option or field `where`. Raises InputError."""
    for name, _, _ in shapes:
        if find_product(name) is None:
            raise InputError(f"{where}: {unknown_product_message(name)}")
    return shapes


def _stated(spec: PoolSpec) -> list[Shape]:
    """Return the nodes to assume without an option. Raises InputError."""
    if spec.shapes:
        found = [(s.product, s.gpus_per_node, min(s.max_nodes, _MOST_NODES)) for s in spec.shapes]
        return _known("spec.pool.shapes", found)
    nodes = min(_MOST_NODES, -(-spec.max_gpus // _ONE_NODE))
    return _known("spec.pool.gpuProducts", [(p, _ONE_NODE, nodes) for p in spec.gpu_products or ()])


def notes(pool: Pool, *, live: bool) -> Sequence[str]:
    """Return what the user should know of the nodes."""
    told = [e.message for e in pool.excluded if e.reason.value != "ProductNotWanted"]
    if not live:
        told.append("nodes are assumed: their CPU, memory and disk are taken as ample and all GPUs as free")
    return told

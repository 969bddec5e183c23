"""The operator's decision on a command line: the inputs, the pool, the answer.

Decides where nodes come from (a file, a cluster, or assumed GPUs) and that what the operator would refuse is
refused here. The decision is the planner's; without --cluster nothing is contacted.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.api.defaults import resolve
from shardwright.api.pool import PoolSpec
from shardwright.api.support import unimplemented
from shardwright.catalog.engines import engine_class
from shardwright.catalog.errors import CatalogError
from shardwright.catalog.gpus import find_product, load_products, unknown_product_message
from shardwright.cli.live import read_nodes_and_pods
from shardwright.cli.plan_input import (
    InputError,
    Inputs,
    documents,
    read_cluster,
    read_service,
    read_shapes,
)
from shardwright.planner.choice import plan
from shardwright.planner.explanation.build import Case, case_of
from shardwright.planner.explanation.document import Service
from shardwright.planner.placement import place
from shardwright.planner.types import Decision, Placement, Plan, PlanRequest
from shardwright.render import overlay
from shardwright.topology.pool import bridges_of, build_pool, pool_of_shapes
from shardwright.topology.types import Pool

_ONE_NODE = 8
"""GPUs of the node that is assumed for a product of pool.gpuProducts when no nodes are given."""
_MOST_NODES = 64
"""Nodes of one of pool.shapes that are assumed: more of the same change no plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision with what it was made of."""

    inputs: Inputs
    request: PlanRequest
    decision: Decision
    placement: Placement | None
    """Where there is room now; None when what is free is not known."""
    notes: tuple[str, ...]
    """What was ignored or assumed, one sentence each."""

    def case(self) -> Case:
        """Return what an explanation is made of."""
        metadata = self.inputs.service.metadata
        service = Service(namespace=metadata.namespace or "", name=metadata.name)
        return case_of(service, self.request, self.decision, self.placement)


def add_inputs(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add the options that say what is decided about, and on which nodes."""
    parser.add_argument(
        "-f", "--filename", required=required, metavar="FILE",
        help="the LLMService, with the ConfigMap of its config.json after a line ---; - for standard input",
    )  # fmt: skip
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


def decide(args: argparse.Namespace) -> Decided:
    """Read the inputs and decide. Raises InputError, whose lines are one problem each."""
    stdin = sys.stdin.read() if args.filename == "-" else None
    inputs = read_service(args.filename, stdin)
    try:
        pool, live = _pool(args, inputs)
        version = resolve(inputs.service.spec).engine_version
        engine = engine_class(version) if version else engine_class()
    except CatalogError as error:
        raise InputError(str(error)) from error
    problems = (*unimplemented(inputs.service.spec), *overlay.check(inputs.service.spec))
    if blocking := [f"{p.field}: {p.message}" for p in problems if p.blocking]:
        raise InputError("\n".join(blocking))
    request = PlanRequest(
        spec=inputs.service.spec, models=inputs.models, pool=pool, engine=engine, products=load_products()
    )
    decision = plan(request)
    placement = place(decision, pool, decision.replicas) if live and isinstance(decision, Plan) else None
    told = tuple(f"{p.field}: {p.message}" for p in problems)
    return Decided(
        inputs=inputs,
        request=request,
        decision=decision,
        placement=placement,
        notes=(*inputs.notes, *told, *_pool_notes(pool, live=live)),
    )


def complain(command: str, error: InputError) -> None:
    """Print what is wrong with the input."""
    for line in str(error).splitlines():
        print(f"shardwright {command}: {line}", file=sys.stderr)


def tell(notes: Sequence[str]) -> None:
    """Print what was ignored or assumed."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def _pool(args: argparse.Namespace, inputs: Inputs) -> tuple[Pool, bool]:
    """Return the pool, and whether what is free on it is known."""
    spec, products = inputs.service.spec.pool, load_products()
    metadata = inputs.service.metadata
    if args.nodes or args.cluster:
        objects = documents(args.nodes) if args.nodes else read_nodes_and_pods(args.context)
        nodes, pods = read_cluster(objects)
        own = (metadata.namespace, metadata.name)
        return build_pool(nodes, pods, products, spec, ignore_owner=own), True
    where, shapes = _assumed(args.gpu, spec)
    if not shapes:
        raise InputError(
            "which GPUs? give --nodes FILE, --cluster or --gpu PRODUCT:GPUS, or write spec.pool.gpuProducts"
        )
    for name, _, _ in shapes:
        if find_product(name) is None:
            raise InputError(f"{where}: {unknown_product_message(name)}")
    known = [(found.label, gpus, count) for name, gpus, count in shapes if (found := find_product(name))]
    return pool_of_shapes(known, products, bridges_of(spec)), False


def _assumed(options: Sequence[str] | None, spec: PoolSpec) -> tuple[str, list[tuple[str, int, int]]]:
    """Return the nodes to assume, and which option or field they come from."""
    if options:
        return "--gpu", read_shapes(options)
    if spec.shapes:
        found = [(s.product, s.gpus_per_node, min(s.max_nodes, _MOST_NODES)) for s in spec.shapes]
        return "spec.pool.shapes", found
    return "spec.pool.gpuProducts", [(p, _ONE_NODE, 1) for p in spec.gpu_products or ()]


def _pool_notes(pool: Pool, *, live: bool) -> Sequence[str]:
    notes = [e.message for e in pool.excluded if e.reason.value != "ProductNotWanted"]
    if not live:
        notes.append("nodes are assumed: their CPU, memory and disk are taken as ample and all GPUs as free")
    return notes

"""`shardwright plan` gives the operator's own decision, offline or against a cluster.

Decides how it is printed and which exit code says it: 0 planned, 1 no plan, 2 bad input, 4 planned but no
room now. The decision is the planner's; without --cluster nothing is contacted.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

import yaml

from shardwright.api.defaults import resolve
from shardwright.api.pool import PoolSpec
from shardwright.api.support import unimplemented
from shardwright.catalog.engines import engine_class
from shardwright.catalog.errors import CatalogError
from shardwright.catalog.gpus import find_product, load_products, unknown_product_message
from shardwright.cli.plan_input import (
    InputError,
    Inputs,
    documents,
    read_cluster,
    read_service,
    read_shapes,
)
from shardwright.planner.choice import plan
from shardwright.planner.explain import text
from shardwright.planner.placement import place
from shardwright.planner.report import plan_status
from shardwright.planner.types import Decision, NoPlan, Placement, Plan, PlanRequest
from shardwright.render import overlay
from shardwright.topology.pool import bridges_of, build_pool, pool_of_shapes
from shardwright.topology.types import NodeFacts, PodFacts, Pool

PLANNED, NO_PLAN, BAD_INPUT, NO_ROOM = 0, 1, 2, 4
_ONE_NODE = 8
"""GPUs of the node that is assumed for a product of pool.gpuProducts when no nodes are given."""
_MOST_NODES = 64
"""Nodes of one of pool.shapes that are assumed: more of the same change no plan."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "plan",
        help="the operator's own decision for an LLMService, offline or against a cluster",
        description="The operator's own decision for an LLMService. Exit code: 0 planned, 1 no plan, 2 bad "
        "input, "
        "4 planned but no room now.",
    )
    parser.add_argument(
        "-f", "--filename", required=True, metavar="FILE",
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
    parser.add_argument("--context", metavar="NAME", help="kubeconfig context for --cluster")
    parser.add_argument("-o", "--output", choices=("text", "json", "manifests"), default="text")


def run(args: argparse.Namespace) -> int:
    """Read, decide, print; return the exit code."""
    try:
        stdin = sys.stdin.read() if args.filename == "-" else None
        inputs = read_service(args.filename, stdin)
        pool, live = _pool(args, inputs)
        version = resolve(inputs.service.spec).engine_version
        engine = engine_class(version) if version else engine_class()
    except (InputError, CatalogError) as error:
        print(f"shardwright plan: {error}", file=sys.stderr)
        return BAD_INPUT
    problems = (*unimplemented(inputs.service.spec), *overlay.check(inputs.service.spec))
    if blocking := [p for p in problems if p.blocking]:
        for problem in blocking:
            print(f"shardwright plan: {problem.field}: {problem.message}", file=sys.stderr)
        return BAD_INPUT
    decision = plan(
        PlanRequest(
            spec=inputs.service.spec, models=inputs.models, pool=pool, engine=engine, products=load_products()
        )
    )
    placement = place(decision, pool, decision.replicas) if live and isinstance(decision, Plan) else None
    told = tuple(f"{p.field}: {p.message}" for p in problems)
    for note in (*inputs.notes, *told, *_pool_notes(pool, live=live)):
        print(f"note: {note}", file=sys.stderr)
    _print(args.output, inputs, decision, placement)
    return _code(decision, placement)


def _code(decision: Decision, placement: Placement | None) -> int:
    if isinstance(decision, NoPlan):
        return NO_PLAN
    return NO_ROOM if placement is not None and placement.placed < placement.wanted else PLANNED


def _pool(args: argparse.Namespace, inputs: Inputs) -> tuple[Pool, bool]:
    """Return the pool, and whether what is free on it is known."""
    spec, products = inputs.service.spec.pool, load_products()
    metadata = inputs.service.metadata
    if args.nodes or args.cluster:
        nodes, pods = read_cluster(documents(args.nodes)) if args.nodes else _read_live(args.context)
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


def _read_live(context: str | None) -> tuple[list[NodeFacts], list[PodFacts]]:
    """Read nodes and pods of the current cluster. The API client is loaded here and only here."""
    from shardwright.cluster.api import Api  # noqa: PLC0415 -- the offline path must not load it
    from shardwright.cluster.credentials import Credentials, Source  # noqa: PLC0415
    from shardwright.cluster.errors import ClusterError  # noqa: PLC0415
    from shardwright.cluster.kinds import NODE, POD  # noqa: PLC0415
    from shardwright.cluster.transport import AiohttpTransport  # noqa: PLC0415

    async def read() -> list[dict[str, Any]]:
        transport = AiohttpTransport(await Credentials.load(Source(context=context)))
        try:
            api = Api(transport)
            found: list[dict[str, Any]] = []
            async for items, _ in api.list_pages(NODE):
                found += [{"kind": "Node", **item} for item in items]
            async for items, _ in api.list_pages(POD, fields="status.phase!=Succeeded,status.phase!=Failed"):
                found += [{"kind": "Pod", **item} for item in items]
            return found
        finally:
            await transport.close()

    try:
        return read_cluster(asyncio.run(read()))
    except ClusterError as error:
        raise InputError(f"--cluster: {error}") from error
    except Exception as error:  # the loader's own errors have no common type
        if type(error).__name__ != "ConfigException":
            raise
        raise InputError(f"--cluster: {error}") from error


def _pool_notes(pool: Pool, *, live: bool) -> Sequence[str]:
    notes = [e.message for e in pool.excluded if e.reason.value != "ProductNotWanted"]
    if not live:
        notes.append("nodes are assumed: their CPU, memory and disk are taken as ample and all GPUs as free")
    return notes


def _print(output: str, inputs: Inputs, decision: Decision, placement: Placement | None) -> None:
    if output == "text":
        print(text(decision, placement), end="")
    elif output == "json":
        print(json.dumps(_json(inputs, decision, placement), indent=2))
    elif isinstance(decision, NoPlan):
        print(text(decision), end="", file=sys.stderr)
    else:
        _print_manifests(inputs, decision, placement)


def _json(inputs: Inputs, decision: Decision, placement: Placement | None) -> dict[str, Any]:
    name = {"namespace": inputs.service.metadata.namespace, "name": inputs.service.metadata.name}
    if isinstance(decision, NoPlan):
        lost = [
            {"arrangement": c.arrangement, "reason": c.reason.value, "message": c.message}
            for c in decision.candidates
        ]
        return {
            "service": name, "planned": False, "reason": decision.reason.value, "message": decision.message,
            "candidates": lost, "inputsDigest": decision.inputs_digest,
        }  # fmt: skip
    status = plan_status(decision, "").model_dump(by_alias=True, exclude_none=True)
    found: dict[str, Any] = {"service": name, "planned": True, "plan": status, "notes": list(decision.notes)}
    if placement is not None:
        counts: dict[str, int] = {}
        for slot in placement.slots:
            counts[slot.node] = counts.get(slot.node, 0) + 1
        found["placement"] = {
            "wanted": placement.wanted, "placed": placement.placed, "nodes": counts,
            "strandedGPUs": placement.stranded_gpus, "obstacle": placement.obstacle,
            "holders": [{"name": who, "gpus": gpus} for who, gpus in placement.holders],
        }  # fmt: skip
    found["podResources"] = _pod_resources(decision)
    return found


def _pod_resources(decision: Plan) -> dict[str, int]:
    """Return a plan's pod resources with their units in the names."""
    gpus, cpu_millis, memory_bytes, ephemeral_bytes = decision.pod_resources
    return {
        "gpus": gpus, "cpuMillis": cpu_millis, "memoryBytes": memory_bytes, "ephemeralBytes": ephemeral_bytes,
        "shmBytes": decision.shm_bytes,
    }  # fmt: skip


def _print_manifests(inputs: Inputs, decision: Plan, placement: Placement | None) -> None:
    from shardwright.render.digest import revision_hash  # noqa: PLC0415 -- only this output needs it
    from shardwright.render.manifests import render  # noqa: PLC0415
    from shardwright.render.request import RenderRequest  # noqa: PLC0415

    preferred = tuple(dict.fromkeys(slot.node for slot in placement.slots)) if placement else ()
    objects = render(
        RenderRequest(
            service=inputs.service,
            revision_hash=revision_hash(inputs.service.spec, decision),
            replicas=decision.replicas,
            plan=decision,
            preferred_nodes=preferred,
        )
    )
    print(yaml.safe_dump_all(objects, sort_keys=False, width=110), end="")


__all__ = ["add_parser", "run"]

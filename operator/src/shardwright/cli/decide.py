"""The operator's decision on a command line: the inputs, the pool, the answer.

Decides that what the operator would refuse is refused here. The decision is the planner's; where the nodes
come from is `cli.pool_options`'.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.api.defaults import resolve
from shardwright.api.support import unimplemented
from shardwright.catalog.engines import engine_class
from shardwright.catalog.errors import CatalogError
from shardwright.catalog.gpus import load_products
from shardwright.cli import pool_options
from shardwright.cli.plan_input import InputError, Inputs, read_service
from shardwright.planner.choice import plan
from shardwright.planner.explanation.build import Case, case_of
from shardwright.planner.explanation.document import Service
from shardwright.planner.placement import place
from shardwright.planner.types import Decision, Placement, Plan, PlanRequest
from shardwright.render import overlay


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
    pool_options.add(parser)


def decide(args: argparse.Namespace) -> Decided:
    """Read the inputs and decide. Raises InputError, whose lines are one problem each."""
    stdin = sys.stdin.read() if args.filename == "-" else None
    inputs = read_service(args.filename, stdin)
    return decide_service(inputs, pool_options.Nodes(args))


def decide_service(inputs: Inputs, nodes: pool_options.Nodes) -> Decided:
    """Decide about one service on the nodes that were given. Raises InputError as `decide` does."""
    spec = inputs.service.spec
    try:
        pool, live = nodes.pool(inputs.service)
        version = resolve(spec).engine_version
        engine = engine_class(version) if version else engine_class()
    except CatalogError as error:
        raise InputError(str(error)) from error
    problems = (*unimplemented(spec), *overlay.check(spec))
    if blocking := [f"{p.field}: {p.message}" for p in problems if p.blocking]:
        raise InputError("\n".join(blocking))
    request = PlanRequest(spec=spec, models=inputs.models, pool=pool, engine=engine, products=load_products())
    decision = plan(request)
    placement = place(decision, pool, decision.replicas) if live and isinstance(decision, Plan) else None
    told = tuple(f"{p.field}: {p.message}" for p in problems)
    return Decided(
        inputs=inputs,
        request=request,
        decision=decision,
        placement=placement,
        notes=(*inputs.notes, *told, *pool_options.notes(pool, live=live)),
    )


def complain(command: str, error: InputError) -> None:
    """Print what is wrong with the input."""
    for line in str(error).splitlines():
        print(f"shardwright {command}: {line}", file=sys.stderr)


def tell(notes: Sequence[str]) -> None:
    """Print what was ignored or assumed."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)

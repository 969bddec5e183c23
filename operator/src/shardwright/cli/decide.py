"""The operator's decision on a command line: the inputs, the pool, the answer.

Decides that what the operator would refuse is refused here. The decision is the planner's; where the nodes
come from is `cli.pool_options`'.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from shardwright.api.defaults import resolve
from shardwright.api.support import unimplemented
from shardwright.autoscaler import schedule
from shardwright.catalog.engines import engine_class
from shardwright.catalog.errors import CatalogError
from shardwright.catalog.types import EngineClass
from shardwright.cli import pool_options
from shardwright.cli.files import InputError, of_file
from shardwright.cli.plan_input import Inputs, read_service
from shardwright.planner.choice import plan
from shardwright.planner.explanation.build import Case, case_of
from shardwright.planner.explanation.document import Service
from shardwright.planner.placement import place
from shardwright.planner.types import Decision, Placement, Plan, PlanRequest
from shardwright.render import overlay, pod_fields, routing


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
    return decide_service(read_service(args.filename), pool_options.Nodes(args))


def decide_service(inputs: Inputs, nodes: pool_options.Nodes) -> Decided:
    """Decide about one service on the nodes that were given. Raises InputError as `decide` does."""
    spec = inputs.service.spec
    engine, told = _checked(inputs)
    pool, live = nodes.pool(inputs.service)
    request = PlanRequest(
        spec=spec,
        models=inputs.models,
        pool=pool,
        engine=engine,
        products=nodes.products,
        corrections=nodes.corrections(inputs.models, resolve(spec).engine_version),
    )
    decision = plan(request)
    placement = place(decision, pool, decision.replicas) if live and isinstance(decision, Plan) else None
    return Decided(
        inputs=inputs,
        request=request,
        decision=decision,
        placement=placement,
        notes=(*inputs.notes, *told, *pool_options.notes(pool, live=live)),
    )


def _checked(inputs: Inputs) -> tuple[EngineClass, tuple[str, ...]]:
    """Return the engine, and what is told of the spec but hinders nothing. Raises InputError."""
    spec = inputs.service.spec
    version = resolve(spec).engine_version
    try:
        engine = engine_class(version) if version else engine_class()
    except CatalogError as error:
        raise of_file(inputs.path, InputError(f"spec.{error}")) from error
    found = overlay.check(spec), pod_fields.check(spec), schedule.check(spec), routing.check(spec)
    problems = (*unimplemented(spec), *chain(*found))
    if blocking := [p for p in problems if p.blocking]:
        refused = "\n".join(f"{p.field}: {p.message}" for p in blocking)
        raise of_file(inputs.path, InputError(refused, blocking[0].reason))
    return engine, tuple(f"{p.field}: {p.message}" for p in problems)


def complain(command: str, error: InputError) -> None:
    """Print what is wrong with the input."""
    for line in str(error).splitlines():
        print(f"shardwright {command}: {line}", file=sys.stderr)


def tell(notes: Sequence[str]) -> None:
    """Print what was ignored or assumed."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)

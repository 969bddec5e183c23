"""`shardwright explain` tells why: the questions in order, the bill, predicted times, prices, candidates.

Decides between a file, which is decided anew, and a live object, of which what was frozen is told; and how it
is printed: text, JSON, or a page. Exit code: 0 planned, 1 no plan, 2 bad input.
"""

import argparse
import json
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.parse import InvalidSpec, parse_service
from shardwright.api.reasons import Reason
from shardwright.api.status import Condition, LLMServiceStatus
from shardwright.catalog.engines import engine_class
from shardwright.catalog.errors import CatalogError
from shardwright.catalog.types import EngineClass
from shardwright.cli.counts import of_plan
from shardwright.cli.decide import add_inputs, complain, decide, tell
from shardwright.cli.explain_second import with_second_opinion
from shardwright.cli.files import InputError, write_text
from shardwright.cli.live import Raw, namespace_of, read_service_and_revision
from shardwright.cli.second_opinion import add_option
from shardwright.diagnose.waiting import approve_command
from shardwright.planner.explanation.build import Case, explain, full_explanation
from shardwright.planner.explanation.document import Explanation, Proposal, Service, Source
from shardwright.planner.explanation.recorded import recorded
from shardwright.planner.explanation.text import whole_text
from shardwright.planner.question import count
from shardwright.planner.types import NoPlan, Plan
from shardwright.render.revision import RevisionError, StoredRevision, read_revision

PLANNED, NO_PLAN, BAD_INPUT = 0, 1, 2
_BAD_WHEN_TRUE = frozenset({"Degraded", "Stalled"})


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "explain",
        help="why the decision is what it is: text, JSON or a page with pictures",
        description="Why the decision is what it is. With -f it is made anew, as by `shardwright plan`; with "
        "the name of a live LLMService, what was recorded with its plan is told. Exit code: 0 planned, 1 no "
        "plan, 2 bad input.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a live LLMService")
    parser.add_argument("-n", "--namespace", metavar="NS", help="of NAME; default: the context's namespace")
    add_inputs(parser, required=False)
    parser.add_argument("--context", metavar="NAME", help="kubeconfig context for NAME and --cluster")
    parser.add_argument("-o", "--output", choices=("text", "json"), help="text, unless --html is given alone")
    add_option(parser)
    parser.add_argument("--html", metavar="FILE", help="write one self-contained page")


def run(args: argparse.Namespace) -> int:
    """Read, explain, print; return the exit code."""
    try:
        found = _explanation(args)
        document = found.model_dump(mode="json", by_alias=True)
        if args.html is not None:
            _write(args.html, document)
    except InputError as error:
        complain("explain", error)
        return BAD_INPUT
    if args.output == "json":
        print(json.dumps(document, indent=2))
    elif args.output == "text" or args.html is None:
        print(whole_text(found), end="")
    return PLANNED if found.planned else NO_PLAN


def _explanation(args: argparse.Namespace) -> Explanation:
    if (args.name is None) == (args.filename is None):
        raise InputError("which service? give the NAME of a live one, or -f FILE")
    if args.name is not None:
        anew = (args.nodes, args.cluster, args.gpu, args.calibration, args.prices, args.second_opinion)
        if any(anew):
            raise InputError(
                "--nodes, --cluster, --gpu, --calibration, --prices and --second-opinion go with -f: a live "
                "object tells what was recorded"
            )
        namespace = args.namespace or namespace_of(args.context)
        return live_explanation(*read_service_and_revision(args.context, namespace, args.name))
    decided = decide(args)
    tell(decided.notes)
    found = full_explanation(decided.case(), decided.request)
    return with_second_opinion(found, decided.case(), args.second_opinion) if args.second_opinion else found


def _write(path: str, document: dict[str, Any]) -> None:
    from shardwright.cli.page.page import render  # noqa: PLC0415 -- only the page needs its template engine

    write_text("--html", path, render(document))


def live_explanation(raw: Raw, revision: Raw | None) -> Explanation:
    """Return the explanation of a live object and the ControllerRevision of its plan. Raises InputError."""
    try:
        service = parse_service(raw)
        status = LLMServiceStatus.model_validate(raw.get("status") or {})
        version = resolve(service.spec).engine_version
        engine = engine_class(version) if version else engine_class()
    except (InvalidSpec, ValidationError, CatalogError) as error:
        raise InputError(str(error)) from error
    name = Service(namespace=service.metadata.namespace or "", name=service.metadata.name)
    if revision is None:
        return explain(_refused(name, service.spec, status, engine))
    try:
        stored = read_revision(revision.get("data") or {})
    except RevisionError as error:
        raise InputError(f"ControllerRevision {revision['metadata']['name']}: {error}") from error
    plan, notes = _as_it_runs(stored, raw.get("status") or {})
    return recorded(
        name,
        service.spec,
        plan,
        stored.report,
        engine=engine,
        notes=(*notes, *_state(status)),
        calibration=status.calibration,
        proposal=_proposal(name, status),
    )


def _proposal(name: Service, status: LLMServiceStatus) -> Proposal | None:
    """Return what is proposed and not in force; None when nothing is."""
    found = status.proposal
    if found is None:
        return None
    planned = _planned(status)
    return Proposal(
        revision=found.revision,
        reason=planned.reason if planned is not None else Reason.WAITS_FOR_APPROVAL.value,
        summary=found.summary,
        replicas=found.replicas,
        gpus=found.gpus,
        price_per_hour=None if found.price_per_hour is None else float(found.price_per_hour),
        changes=tuple(found.changes),
        approve=approve_command(name.namespace, name.name, found.revision),
    )


def _planned(status: LLMServiceStatus) -> Condition | None:
    return next((c for c in status.conditions or () if c.type == "Planned"), None)


def _as_it_runs(stored: StoredRevision, status: Raw) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan with the replicas that are wanted now, and a note where it was made with others."""
    plan, now = stored.plan, of_plan(status, stored.report.revision)
    if now is None or now == plan.replicas:
        return plan, ()
    price = f", {stored.report.price_per_hour} USD an hour" if stored.report.price_per_hour else ""
    note = f"the plan was made with {count(plan.replicas, 'replica')}{price}: scaling wants {now} now"
    return replace(plan, replicas=now), (note,)


def _refused(name: Service, spec: LLMServiceSpec, status: LLMServiceStatus, engine: EngineClass) -> Case:
    """Return the case of a service without a plan: what its condition says. Raises InputError without one."""
    planned = _planned(status)
    if planned is None or planned.reason not in {r.value for r in Reason}:
        raise InputError(f"{name.namespace}/{name.name} has no plan yet: see whether the operator runs")
    refusal = NoPlan(
        reason=Reason(planned.reason), message=planned.message.rstrip("."), candidates=(), inputs_digest=""
    )
    missing = ("Which arrangements were considered: a refusal keeps its reason only.",)
    return Case(
        service=name, spec=spec, decision=refusal, candidates=(), engine=engine, products={},
        source=Source(type="Recorded", revision=None, not_recorded=missing), notes=_state(status),
    )  # fmt: skip


def _state(status: LLMServiceStatus) -> tuple[str, ...]:
    """Say how the live service is: its replicas, and each condition that is not as it should be."""
    notes = []
    if status.replicas is not None:
        notes.append(f"now {status.ready_replicas or 0} of {status.replicas} replicas serve")
    for condition in status.conditions or ():
        bad = "True" if condition.type in _BAD_WHEN_TRUE else "False"
        if condition.status == bad and condition.type != "Reconciling":
            notes.append(
                f"now {condition.type} is {condition.status}, {condition.reason}: {condition.message}"
            )
    return tuple(notes)

"""`shardwright plan` gives the operator's own decision, offline or against a cluster.

Decides how it is printed and which exit code says it: 0 planned, 1 no plan, 2 bad input, 4 planned but no
room now. The reasons at length are `shardwright explain`.
"""

import argparse
import json
import sys
from typing import Any

import yaml

from shardwright.cli.decide import Decided, add_inputs, complain, decide, tell
from shardwright.cli.files import InputError
from shardwright.cli.plan_input import Inputs
from shardwright.planner.explanation.build import explain
from shardwright.planner.explanation.text import short_text
from shardwright.planner.report import plan_status
from shardwright.planner.types import Decision, NoPlan, Placement, Plan

PLANNED, NO_PLAN, BAD_INPUT, NO_ROOM = 0, 1, 2, 4


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser(
        "plan",
        help="the operator's own decision for an LLMService, offline or against a cluster",
        description="The operator's own decision for an LLMService. Exit code: 0 planned, 1 no plan, 2 bad "
        "input, 4 planned but no room now.",
    )
    add_inputs(parser, required=True)
    parser.add_argument("--context", metavar="NAME", help="kubeconfig context for --cluster")
    parser.add_argument("-o", "--output", choices=("text", "json", "manifests"), default="text")


def run(args: argparse.Namespace) -> int:
    """Read, decide, print; return the exit code."""
    try:
        found = decide(args)
    except InputError as error:
        complain("plan", error)
        return BAD_INPUT
    tell(found.notes)
    _print(args.output, found)
    return _code(found.decision, found.placement)


def _code(decision: Decision, placement: Placement | None) -> int:
    if isinstance(decision, NoPlan):
        return NO_PLAN
    return NO_ROOM if placement is not None and placement.placed < placement.wanted else PLANNED


def _print(output: str, found: Decided) -> None:
    if output == "json":
        print(json.dumps(_json(found.inputs, found.decision, found.placement), indent=2))
    elif output == "text":
        print(short_text(explain(found.case())), end="")
    elif isinstance(found.decision, NoPlan):
        print(short_text(explain(found.case())), end="", file=sys.stderr)
    else:
        _print_manifests(found.inputs, found.decision, found.placement)


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
    from shardwright.render.request import FetchPlace, RenderRequest  # noqa: PLC0415

    preferred = tuple(dict.fromkeys(slot.node for slot in placement.slots)) if placement else ()
    objects = render(
        RenderRequest(
            service=inputs.service,
            revision_hash=revision_hash(inputs.service.spec, decision),
            replicas=decision.replicas,
            plan=decision,
            preferred_nodes=preferred,
            fetch=FetchPlace(),
        )
    )
    print(yaml.safe_dump_all(objects, sort_keys=False, width=110), end="")


__all__ = ["add_parser", "run"]

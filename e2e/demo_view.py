"""Text of the demo: headings, tables, and a plan with its reasons as a person reads them.

It decides what is shown of a status and how wide. Pure: it takes objects as the API server gives them and returns
lines.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]
INDENT = "    "
_MAX_CANDIDATES = 4
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def heading(number: int, text: str, *, color: bool) -> str:
    """Give a numbered heading."""
    return f"\n{_BOLD}{number}  {text}{_PLAIN}" if color else f"\n{number}  {text}"


def command(text: str, *, color: bool) -> str:
    """Give a command as it would be typed."""
    return f"{INDENT}{_DIM}$ {text}{_PLAIN}" if color else f"{INDENT}$ {text}"


def use_color() -> bool:
    """Whether the output is a terminal that wants colour."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def width() -> int:
    """Give the columns to fill: the terminal's, within what is pleasant to read."""
    return max(80, min(120, shutil.get_terminal_size((110, 40)).columns))


def table(rows: Sequence[Sequence[str]], indent: str = INDENT) -> list[str]:
    """Align columns; the first row is the header."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    cells = (zip(row, widths, strict=True) for row in rows)
    return [indent + "   ".join(cell.ljust(size) for cell, size in line).rstrip() for line in cells]


def wrapped(label: str, text: str, indent: str = INDENT, label_width: int = 14) -> list[str]:
    """Give a labelled paragraph with its following lines under the first."""
    first = f"{indent}{label:<{label_width}}"
    return textwrap.wrap(
        text, width(), initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )


def explanation(service: Json) -> list[str]:
    """Give one service's plan: the choice, what bound it, the memory of one GPU, what else was considered."""
    plan = service["status"]["plan"]
    lines = ["", f"  {service['metadata']['name']}: {plan['summary']}   ({plan['model']})"]
    lines += wrapped("because", plan["bindingConstraint"])
    lines += wrapped("one GPU", bill(plan["memoryBill"]))
    lines += wrapped(
        "which serves",
        f"{plan['kvTokens']:,} tokens of KV cache: {plan['maxConcurrency']} requests of the full "
        f"{plan['maxContextTokens']:,} tokens at once in each replica",
    )
    lines += wrapped("known from", plan["coverage"])
    for position, candidate in enumerate(notable(plan["candidates"])):
        text = f"{short(candidate['arrangement'], plan)} ({candidate['reason']}): {candidate['message']}"
        lines += wrapped("but not" if position == 0 else "", text)
    return lines


def bill(items: Iterable[Json]) -> str:
    """Give the memory bill as one sum, in GiB: what is there, what goes off, what is left for the KV cache."""
    text, is_left = "", False
    for item in items:
        name, amount = str(item["item"]), str(item["gibibytes"])
        if not text:
            text = f"{name} {amount}"
        elif not amount.startswith("-"):
            text, is_left = f"{text} = {name} {amount}", True
        else:
            text += f"{', kept back: ' if is_left else ' - '}{name} {amount.removeprefix('-')}"
    return text + " GiB"


def notable(candidates: Sequence[Json]) -> list[Json]:
    """Choose the losers to show: each reason once, then each product once, in the order given."""
    losers = [each for each in candidates if each["reason"] != "Chosen"]
    shown: list[Json] = []
    for trait in (_reason, _product, _arrangement):
        for each in losers:
            if len(shown) < _MAX_CANDIDATES and trait(each) not in map(trait, shown):
                shown.append(each)
    return [each for each in losers if each in shown]


def _reason(candidate: Json) -> str:
    return str(candidate["reason"])


def _arrangement(candidate: Json) -> str:
    return str(candidate["arrangement"])


def _product(candidate: Json) -> str:
    return _arrangement(candidate).rpartition(" on ")[2].partition(" ")[0]


def short(arrangement: str, plan: Json) -> str:
    """Leave the model out where it is the plan's own."""
    return arrangement.removeprefix(f"{plan['model']} on ")


def pods_on_nodes(pods: Iterable[Json], products: dict[str, str]) -> list[str]:
    """Give where each pod runs, on what."""
    rows = [("POD", "NODE", "PRODUCT", "GPUS", "READY")]
    for pod in sorted(pods, key=lambda each: str(each["metadata"]["name"])):
        node = pod["spec"].get("nodeName", "-")
        rows.append((pod["metadata"]["name"], node, products.get(node, "-"), str(gpus(pod)), ready(pod)))
    return table(rows)


def gpus(pod: Json) -> int:
    """Count the GPUs that a pod holds."""
    limits = (each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"])
    return sum(int(each.get("nvidia.com/gpu", 0)) for each in limits)


def ready(pod: Json) -> str:
    """Give the pod's Ready condition."""
    conditions = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", [])}
    return str(conditions.get("Ready", "-"))


def condition(service: Json, kind: str) -> Json:
    """Give one condition, or an empty one while there is none."""
    found = (each for each in service.get("status", {}).get("conditions", []) if each["type"] == kind)
    return next(found, {"status": "Unknown", "reason": "", "message": ""})


def fleet(nodes: Iterable[Json], foreign: Iterable[Json]) -> list[str]:
    """Give the GPU nodes, with what is unusual about each."""
    taken: dict[str, int] = {}
    for pod in foreign:
        taken[pod["spec"]["nodeName"]] = taken.get(pod["spec"]["nodeName"], 0) + gpus(pod)
    rows = [("NODE", "PRODUCT", "GPUS", "NOTE")]
    for node in sorted(nodes, key=lambda each: str(each["metadata"]["name"])):
        labels, name = node["metadata"]["labels"], node["metadata"]["name"]
        if "nvidia.com/gpu.product" in labels:
            count = node["status"]["allocatable"].get("nvidia.com/gpu", "0")
            rows.append(
                (name, labels["nvidia.com/gpu.product"], count, _note(node, count, taken.get(name, 0)))
            )
    return table(rows)


def _note(node: Json, allocatable: str, taken: int) -> str:
    labels, spec = node["metadata"]["labels"], node["spec"]
    notes = []
    if spec.get("unschedulable"):
        notes.append("cordoned")
    if any(taint["key"] == "team" for taint in spec.get("taints", [])):
        notes.append("tainted for another team")
    if "-MIG-" in labels["nvidia.com/gpu.product"]:
        notes.append("cut by MIG")
    if int(labels["nvidia.com/gpu.replicas"]) > 1:
        notes.append("GPUs shared by time-slicing")
    elif labels["nvidia.com/gpu.count"] != allocatable:
        notes.append(f"label says {labels['nvidia.com/gpu.count']}")
    if taken:
        notes.append(f"{taken} GPUs held by others")
    return ", ".join(notes)

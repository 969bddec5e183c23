"""The answer of `shardwright diff` as lines of text.

Decides how it reads, and shows nothing that is not in it.
"""

from decimal import Decimal
from typing import Final

from shardwright.cli.diff_report import DiffReport, FieldChange, Running, ServiceDiff

_EFFECTS: Final = {"Template": "feeds the pods", "Arrangement": "plans anew", "Neither": "restarts no pod"}


def text(report: DiffReport) -> list[str]:
    """Return a report as lines, one service after the other, and all together at the end."""
    told: set[str] = set()
    return [line for service in report.services for line in _service(service, told)] + [_sum(report)]


def _service(service: ServiceDiff, told: set[str]) -> list[str]:
    """Return a service's lines; a note that another service had too is not repeated."""
    lines = [f"{service.namespace}/{service.name}: {service.summary}"]
    if service.change == "Unchanged":
        refused = service.refused
        return lines if refused is None else [*lines, f"    cannot run ({refused.reason}: {refused.message})"]
    before, after = service.before, service.after
    if before is not None and after is not None and _what_runs(before) != _what_runs(after):
        lines.append(f"    {_running(before)} → {_running(after)}")
    lines += [f"    {_field(field)}" for field in service.fields]
    lines += [f"    pods: {change}" for change in service.pod_changes]
    lines += [f"    note: {note}" for note in service.notes if note not in told]
    told.update(service.notes)
    return lines


def _what_runs(running: Running) -> tuple[str, int | None]:
    return running.revision, running.replicas


def _running(running: Running) -> str:
    if running.gpus is None:
        return f"revision {running.revision}"
    price = f", ${running.price_per_hour}/h" if running.price_per_hour is not None else ""
    return f"{running.summary} ({running.revision}, {_count(running.gpus, 'GPU')}{price})"


def _field(field: FieldChange) -> str:
    plain = field.before is not None or field.after is not None
    values = f" {_value(field.before)}→{_value(field.after)}" if plain else ""
    return f"{field.field}{values}: {_EFFECTS[field.effect]}"


def _value(value: str | int | bool | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "–" if value is None else str(value)


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if abs(count) == 1 else 's'}"


def _sum(report: DiffReport) -> str:
    if report.verdict == "NoChange":
        return f"No change in {_count(len(report.services), 'service')}."
    parts: list[str] = []
    before, after = report.before, report.after
    if before.gpus is not None and after.gpus is not None:
        change = after.gpus - before.gpus
        if change:
            parts.append(f"{'+' if change > 0 else ''}{_count(change, 'GPU')}")
    if before.price_per_hour is not None and after.price_per_hour is not None:
        more = Decimal(after.price_per_hour) - Decimal(before.price_per_hour)
        if more:
            parts.append(f"{'-' if more < 0 else '+'}${abs(more):.2f}/h")
    restarts = f"pods of {_count(report.restarts, 'service')} restart"
    parts.append(restarts if report.restarts else "no pod restarts")
    refused = sum(1 for service in report.services if service.refused)
    if refused:
        parts.append(f"{_count(refused, 'new spec')} cannot run")
    return f"In all: {', '.join(parts)}."

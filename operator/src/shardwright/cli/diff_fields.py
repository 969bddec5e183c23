"""The figures and fields that `shardwright diff` shows.

Decides which fields of a spec are different and what each feeds, by the digest's own table, and how a
revision is shown. Values that are lists or maps are not shown: they are long, and may hold what is private.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.cli.diff_report import FieldChange, MixShare, Running
from shardwright.planner.report import decimal, plan_status
from shardwright.render.digest import FIELDS, Side
from shardwright.render.forecast import Revision

_LONGEST: Final = 80
"""Characters of a value that is shown."""


def running_of(revision: Revision | None, replicas: int) -> Running | None:
    """Return a revision with its replicas as the report shows it."""
    if revision is None:
        return None
    outline = revision.outline(replicas)
    if outline is None:
        return Running(revision=revision.revision)
    shown = plan_status(replace(outline.plan, replicas=outline.replicas, candidates=()), outline.revision)
    price = outline.price_per_hour
    return Running(
        revision=outline.revision,
        summary=shown.summary,
        replicas=outline.replicas,
        gpus=outline.gpus,
        price_per_hour=None if price is None else decimal(price),
        model=shown.model,
        gpu_product=shown.gpu_product,
        tensor=shown.tensor,
        pipeline=shown.pipeline,
        data=shown.data,
        expert=shown.expert,
        max_context_tokens=shown.max_context_tokens,
        ttft_milliseconds=shown.ttft_milliseconds,
        tpot_milliseconds=shown.tpot_milliseconds,
        cheaper_mix=[
            MixShare(
                gpu_product=part.gpu_product,
                parallelism=part.parallelism,
                replicas=part.replicas,
                gpus=part.gpus,
                traffic_percent=part.traffic_percent,
                price_per_hour=part.price_per_hour,
            )
            for part in shown.cheaper_mix or ()
        ]
        or None,
    )


def changed_fields(before: LLMServiceSpec, after: LLMServiceSpec) -> list[FieldChange]:
    """Return the fields that are different, in the order of the specs."""
    old, new = dict(_leaves("", _stated(before))), dict(_leaves("", _stated(after)))
    return [
        FieldChange(
            field=f"spec.{path}",
            before=_plain(old.get(path)),
            after=_plain(new.get(path)),
            effect=_side(path).value,
        )
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    ]


def _stated(spec: LLMServiceSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json", by_alias=True, exclude_none=True)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 -- JSON
    """Give the values that are no maps, by path; a list counts as one."""
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from _leaves(f"{path}.{name}" if path else str(name), below)
    else:
        yield path, value


def _plain(value: Any) -> str | int | bool | None:  # noqa: ANN401 -- JSON
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[: _LONGEST - 1]}…"
    return value if isinstance(value, str | int | bool) else None


def _side(path: str) -> Side:
    """Return what a field feeds: the longest entry of the table that leads to it."""
    found = [known for known in FIELDS if path == known or path.startswith(f"{known}.")]
    return FIELDS[max(found, key=len)] if found else Side.NEITHER

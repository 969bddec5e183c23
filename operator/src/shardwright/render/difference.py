"""What is different between two revisions of a service, in words.

Decides which differences are worth a phrase, and in which order they are said. Never decides which revision
runs (see `render.approval`): it is told what becomes of the pods. The status of a proposal and
`shardwright diff` say the same words.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from shardwright.api.names import LABEL_REVISION
from shardwright.planner.types import Plan, Speed
from shardwright.render.request import JsonObject

MAX_CHANGES: Final = 32
_LONGEST: Final = 160
"""Characters of one value that is shown, such as an engine flag."""
_PLANNED_FLAGS: Final = (
    "--revision", "--tensor-parallel-size", "--pipeline-parallel-size", "--enable-expert-parallel",
    "--max-model-len",
    "--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization", "--kv-cache-dtype",
)  # fmt: skip
"""Flags whose change the plan's own phrases say already; the model itself is no flag."""
_PLANNED_PATHS: Final = (
    "spec.affinity", ".resources", "spec.volumes[shm]", ".startupProbe", "[VLLM_ENGINE_READY_TIMEOUT_S]",
)  # fmt: skip
"""Parts of a pod that follow from the arrangement; told only when the arrangement is the same."""
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class Pods(StrEnum):
    """What becomes of a service's pods."""

    STAY = "Stay"
    """No pod moves."""
    SCALE = "Scale"
    """Pods of the same revision come or go; those that stay are not touched."""
    RESTART = "Restart"
    """Another revision replaces all of them."""
    START = "Start"
    """There were none, and there will be."""
    STOP = "Stop"
    """There will be none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A plan with the replicas that it runs."""

    revision: str
    plan: Plan
    replicas: int

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.plan.gpus_per_replica

    @property
    def price_per_hour(self) -> float | None:
        """Price of all replicas in the price list's currency; None when none is known."""
        each = self.plan.product.price_per_gpu_hour
        return None if each is None else each * self.gpus

    @property
    def summary(self) -> str:
        """Column text such as `H100 TP2 ×4`."""
        return replace(self.plan, replicas=self.replicas).summary


def pods_between(before: Outline | None, after: Outline | None) -> Pods:
    """Return what becomes of the pods: only another revision restarts one."""
    if before is None or not before.replicas:
        return Pods.START if after is not None and after.replicas else Pods.STAY
    if after is None or not after.replicas:
        return Pods.STOP
    if before.revision != after.revision:
        return Pods.RESTART
    return Pods.STAY if before.replicas == after.replicas else Pods.SCALE


def phrases(before: Outline | None, after: Outline | None) -> tuple[str, ...]:
    """Return what changes from one to the other, the arrangement first, the pods last; never empty."""
    pods = pods_between(before, after)
    return (
        *(arrangement(before.plan, after.plan) if before is not None and after is not None else ()),
        *_counts(before, after),
        *(_predictions(before.plan.speed, after.plan.speed) if before and after else ()),
        pods_phrase(pods, before, after),
    )


def arrangement(before: Plan, after: Plan) -> tuple[str, ...]:
    """Return what is different in the choice itself."""
    old, new = before.limits, after.limits
    pairs: tuple[tuple[str, object, object], ...] = (
        ("model ", _model(before), _model(after)),
        ("GPU ", before.product.short_name, after.product.short_name),
        ("", before.parallelism, after.parallelism),
        ("context ", old.max_model_len, new.max_model_len),
        ("max-num-seqs ", old.max_num_seqs, new.max_num_seqs),
        ("max-num-batched-tokens ", old.max_num_batched_tokens, new.max_num_batched_tokens),
        (
            "gpu-memory-utilization ",
            f"{old.gpu_memory_utilization_percent}%",
            f"{new.gpu_memory_utilization_percent}%",
        ),
        ("kv-cache-dtype ", old.kv_cache_dtype, new.kv_cache_dtype),
    )
    return tuple(f"{what}{was}→{now}" for what, was, now in pairs if was != now)


def _model(plan: Plan) -> str:
    revision = plan.model.revision
    return f"{plan.model.model_id}@{revision}" if revision else plan.model.model_id


def _counts(before: Outline | None, after: Outline | None) -> Iterator[str]:
    old, new = (before.replicas if before else 0), (after.replicas if after else 0)
    if before is not None and after is not None and old != new:
        yield f"{old}→{new} replicas"
    gpus = (after.gpus if after else 0) - (before.gpus if before else 0)
    if gpus:
        yield f"{gpus:+d} GPU{'' if abs(gpus) == 1 else 's'}"
    price = _price(after, before)
    if price:
        yield price


def _price(after: Outline | None, before: Outline | None) -> str:
    """Return the change of the hourly price; nothing unless both prices are known.

    On one product by the price that the new plan counts with: that prices changed since is no part of it.
    """
    if before and after and before.plan.product.label == after.plan.product.label:
        before = replace(before, plan=replace(before.plan, product=after.plan.product))
    old, new = (before.price_per_hour if before else 0.0), (after.price_per_hour if after else 0.0)
    if old is None or new is None or round(new - old, 2) == 0:
        return ""
    return f"{'+' if new > old else '-'}${abs(new - old):.2f}/h"


def _predictions(before: Speed | None, after: Speed | None) -> Iterator[str]:
    if before is None or after is None:
        return
    figures = (
        ("TTFT", before.ttft_percentile, before.ttft_ms, after.ttft_percentile, after.ttft_ms, 0),
        ("TPOT", before.tpot_percentile, before.tpot_ms, after.tpot_percentile, after.tpot_ms, 1),
    )
    for name, old_at, old_ms, new_at, new_ms, digits in figures:
        if old_at == new_at and f"{old_ms:.{digits}f}" != f"{new_ms:.{digits}f}":
            yield f"predicted {name} P{new_at} {old_ms:.{digits}f}→{new_ms:.{digits}f} ms"


def pods_phrase(pods: Pods, before: Outline | None, after: Outline | None) -> str:
    """Say what becomes of the pods."""
    count = (after.replicas if after else 0) - (before.replicas if before else 0)
    match pods:
        case Pods.STAY:
            return "no pod moves"
        case Pods.SCALE:
            verb = ("is" if count == 1 else "are") + " added" if count > 0 else "end" + "s" * (count == -1)
            return f"{abs(count)} pod{'' if abs(count) == 1 else 's'} {verb}, the others stay"
        case Pods.RESTART:
            return "pods restart"
        case Pods.START:
            return f"{count} pod{'' if count == 1 else 's'} start{'s' if count == 1 else ''}"
        case Pods.STOP:
            return "its pods end"


def template_changes(before: JsonObject, after: JsonObject, *, same_arrangement: bool) -> tuple[str, ...]:
    """Return what is different between two pod templates: paths, and for engine flags the flag itself.

    Other values are not shown. What is different between any two revisions is left out (their label, the
    nodes that are preferred), and so is what the arrangement's own phrases say.
    """
    found = _differences("", _named(before), _named(after))
    if not same_arrangement:
        found = (line for line in found if not any(part in line for part in _PLANNED_PATHS))
    return tuple(found)


def _named(value: Any) -> Any:  # noqa: ANN401 -- JSON
    """Return JSON with its keyed lists as maps, and without what every revision has of its own."""
    if isinstance(value, dict):
        return {k: _named(v) for k, v in value.items() if k not in {LABEL_REVISION, _PREFERRED}}
    if isinstance(value, list):
        if value and all(isinstance(item, dict) and "name" in item for item in value):
            return {f"[{item['name']}]": _named(item) for item in value}
        return [_named(item) for item in value]
    return value


def _differences(path: str, before: Any, after: Any) -> Iterator[str]:  # noqa: ANN401 -- JSON
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            below = f"{path}{key}" if key.startswith("[") else f"{path}.{key}".lstrip(".")
            yield from _differences(below, before.get(key), after.get(key))
    elif path.endswith(".args") and isinstance(before, list) and isinstance(after, list):
        yield from _flags(before, after)
    else:
        verb = "added" if before is None else "removed" if after is None else "changed"
        yield f"{path} {verb}"


def _flags(before: list[str], after: list[str]) -> Iterator[str]:
    """Say which flags come and go; a reordering changes nothing that is worth a word."""
    for mark, these, others in (("-", before, after), ("+", after, before)):
        for flag in these:
            if flag.startswith("--") and flag not in others and not flag.startswith(_PLANNED_FLAGS):
                shown = flag if len(flag) <= _LONGEST else f"{flag[: _LONGEST - 1]}…"
                yield f"engine {mark}{shown}"

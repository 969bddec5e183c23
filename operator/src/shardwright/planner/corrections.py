"""What was measured, as it is kept: entries of a ConfigMap, by model, GPU product and engine version.

Decides how an entry is written and read, and which cannot be used: a ratio to what another version of the
latency model predicted says nothing of this one. Never reads a cluster: the operator's store and the
commands' files hold the same text.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Final

from shardwright.catalog.performance import load_performance_constants
from shardwright.planner.types import Correction, CorrectionKey, ModelChoice

LOWEST, HIGHEST = 0.5, 2.0
"""Bounds of a ratio that a plan counts with: what is further off is no matter of calibration. Our choice."""
_FIRST: Final = 1
"""Version of the latency model's constants of entries that name none."""
_RATIOS: Final = ("ttft", "tpot", "memory")


def entry_name(key: CorrectionKey) -> str:
    """Return a key of a ConfigMap that a reader recognises and that no other entry has."""
    readable = re.sub(r"[^-._a-zA-Z0-9]", "-", ".".join(key))[:200]
    return f"{readable}.{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:8]}"


def entry_text(key: CorrectionKey, entry: Correction) -> str:
    """Return an entry as it is kept."""
    model, product, version = key
    values = {name: value for name, value in asdict(entry).items() if value is not None}
    constants = load_performance_constants().version
    return json.dumps({"model": model, "gpu": product, "engine": version, "constants": constants, **values})


def read_entries(
    data: Mapping[str, object],
) -> tuple[dict[CorrectionKey, Correction], list[tuple[str, str]]]:
    """Read a ConfigMap's data: the entries, and of each that cannot be used its key and why."""
    found: dict[CorrectionKey, Correction] = {}
    refused = []
    for name, text in sorted(data.items()):
        try:
            key, correction = _entry(text)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            refused.append((name, f"{type(error).__name__}: {error}"))
        else:
            found[key] = correction
    return found, refused


def _entry(text: object) -> tuple[CorrectionKey, Correction]:
    if not isinstance(text, str):
        raise TypeError("it is no text")
    raw = json.loads(text)
    key = (str(raw["model"]), str(raw["gpu"]), str(raw["engine"]))
    ours, theirs = load_performance_constants().version, raw.get("constants", _FIRST)
    if theirs != ours:
        raise ValueError(f"it is of version {theirs} of the latency model's constants, and these are {ours}")
    ratios = {part: float(raw[part]) for part in _RATIOS if part in raw}
    if not all(LOWEST <= ratio <= HIGHEST for ratio in ratios.values()):
        raise ValueError(f"a ratio is outside {LOWEST} to {HIGHEST}")
    return key, Correction(**ratios, requests=int(raw.get("requests", 0)))


def of_models(
    corrections: Mapping[CorrectionKey, Correction], models: Iterable[ModelChoice], version: str
) -> dict[tuple[str, str], Correction]:
    """Return what was measured of some checkpoints with an engine version, as a plan counts with it.

    In a fixed order; how many requests stand behind it moves all the time, and no plan.
    """
    wanted = {model.model_id for model in models}
    return {
        (model, product): Correction(ttft=known.ttft, tpot=known.tpot, memory=known.memory)
        for (model, product, measured), known in sorted(corrections.items(), key=lambda item: item[0])
        if model in wanted and measured == version
    }

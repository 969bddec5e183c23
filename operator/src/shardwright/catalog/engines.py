"""Which vLLM version belongs to which class of memory accounting.

Decides the constants of a version, from one table with sources (`data/engines.json`). Never knows a model or
a GPU.
"""

import dataclasses
import re
from functools import lru_cache

from shardwright.catalog.errors import CatalogError
from shardwright.catalog.fields import Fields, mapping, read_data, rows
from shardwright.catalog.types import EngineClass, GPUProduct, StartConstants

DEFAULT_ENGINE_VERSION = "0.33.0"
"""What the operator renders when `spec.engine.version` is absent."""

HISTOGRAM_BUCKETS_SINCE = (0, 32, 0)
"""`--custom-histogram-buckets` is in the flag list of 0.32 and 0.33; earlier versions were not read."""
SHUTDOWN_TIMEOUT_SINCE = (0, 18, 0)
"""`--shutdown-timeout`: vllm-project/vllm#36666 and #34730."""

CHUNKED_ABOVE, CHUNKED_SINCE = 32768, (0, 5, 4)
LARGE_BATCH_SINCE = (0, 28, 0)
"""Cards of 160 GiB and more take 16384 batched tokens from here on (vllm-project/vllm#51726)."""

_VERSION = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?")


def parse_version(version: str) -> tuple[int, int, int]:
    """Return major, minor, patch of a version such as "v0.20" or "0.26.1rc1", or raise CatalogError."""
    match = _VERSION.match(version.strip().lstrip("vV"))
    if match is None:
        raise CatalogError(
            "engine.version", f"{version[:40]!r} is not a version such as {DEFAULT_ENGINE_VERSION}"
        )
    return int(match[1]), int(match[2]), int(match[3] or 0)


@lru_cache(maxsize=64)
def engine_class(version: str = DEFAULT_ENGINE_VERSION) -> EngineClass:
    """Return the accounting class of a vLLM version. Raises CatalogError when it is not a version."""
    number = parse_version(version)
    row = next(row for start, row in reversed(_classes()) if number >= start)
    return EngineClass(
        version=number,
        name=row.text("name"),
        sampler_bytes_per_seq_vocab=row.number("sampler_bytes_per_seq_vocab", low=1, high=100),
        subtracts_cuda_graphs=row.flag("subtracts_cuda_graphs", default=False),
        cuda_graph_gib=row.number("cuda_graph_gib", high=20),
        cuda_graph_amd_gib=row.number("cuda_graph_amd_gib", high=20),
        non_torch_tp1_gib=row.number("non_torch_tp1_gib", high=10),
        non_torch_tp_gib=row.number("non_torch_tp_gib", high=10),
        non_torch_pp_gib=row.number("non_torch_pp_gib", high=10),
        has_custom_histogram_buckets=number >= HISTOGRAM_BUCKETS_SINCE,
        has_shutdown_timeout=number >= SHUTDOWN_TIMEOUT_SINCE,
        measured=row.flag("measured", default=False),
        default_gpu_memory_utilization_percent=row.integer(
            "default_gpu_memory_utilization_percent", low=10, high=98
        ),
        aligns_block_experts=row.flag("aligns_block_experts", default=False),
        v1=row.flag("v1", default=True),
        source=row.text("source"),
    )


@lru_cache(maxsize=1)
def start_constants() -> StartConstants:
    """Return the constants that hold for every version. Raises CatalogError when one has no source."""
    table = Fields(read_data("engines.json"), "engines.json")
    given = mapping(table.data.get("all_versions"), "engines.json.all_versions")
    found = {}
    for field in dataclasses.fields(StartConstants):
        row = Fields(given.get(field.name), f"engines.json.all_versions.{field.name}")
        row.text("source")
        found[field.name] = row.number("value", high=10)
    return StartConstants(**found)


def default_batch(engine: EngineClass, gpu: GPUProduct, max_model_len: int) -> tuple[int, int]:
    """Return max-num-seqs and max-num-batched-tokens that the engine's API server takes on a device.

    From 70 GiB and no A100: 1024 and 8192, from 160 GiB and 0.28 on 16384; else 256 and 2048 (vLLM,
    get_batch_defaults). The engine before V1 took 256 and a prompt of the maximum length, or 512 tokens where
    chunked prefill switched itself on (lengths above 32768, from 0.5.4).
    """
    if not engine.v1:
        chunked = max_model_len > CHUNKED_ABOVE and engine.version >= CHUNKED_SINCE
        return 256, 512 if chunked else max_model_len
    gib = gpu.memory_mib / 1024
    if gib >= 160 and engine.version >= LARGE_BATCH_SINCE:
        return 1024, 16384
    return (1024, 8192) if gib >= 70 and "A100" not in gpu.label else (256, 2048)


@lru_cache(maxsize=1)
def _classes() -> tuple[tuple[tuple[int, int, int], Fields], ...]:
    table = Fields(read_data("engines.json"), "engines.json")
    found = []
    for index, row in enumerate(rows(table.data.get("classes"), "engines.json.classes")):
        fields = Fields(row, f"engines.json.classes[{index}]")
        found.append((parse_version(fields.text("from")), fields))
    if not found or found[0][0] != (0, 0, 0) or sorted(found, key=lambda item: item[0]) != found:
        raise CatalogError("engines.json.classes", "must start at 0.0.0 and be sorted by version")
    return tuple(found)

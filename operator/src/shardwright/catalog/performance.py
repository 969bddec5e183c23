"""The constants of the latency model: one versioned table, each with unit, source and how it was fitted.

Beside them: which classes of arrangements measured rows stand behind, and how far off the model was there.
Decides which names there are and which values are possible. Never computes a time.
"""

from dataclasses import dataclass, fields
from functools import lru_cache

from shardwright.catalog.errors import CatalogError
from shardwright.catalog.fields import Fields, read_data, rows
from shardwright.catalog.types import NumberFormat

FILE = "performance_constants.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceConstants:
    """What turns bytes and FLOP into milliseconds; shares are of the card's data sheet."""

    common_bandwidth_share: float
    """Of the memory bandwidth, reading attention, dense and shared weights."""
    expert_bandwidth_share: float
    """The same for routed experts."""
    kv_bandwidth_share: float
    compute_share_16bit: float
    compute_share_8bit: float
    """Of the FP8 or FP4 peak."""
    compute_share_experts: float
    blackwell_compute_factor: float
    """On all three for data-centre Blackwell (compute capability 10), whose kernels are younger."""
    attention_compute_share: float
    nvlink_allreduce_ms: float
    pcie_allreduce_ms: float
    nvlink_share: float
    pcie_share: float
    step_ms: float
    layer_ms: float
    """Launching the kernels of one layer in a decode step."""
    routing_ms: float
    """Routing, permuting and summing, for each layer with experts and each expert of a token."""
    sequence_ms: float
    """Sampling and bookkeeping for each running sequence in a step."""
    interference_share: float
    """Of a peer's prefill that delays a running request."""
    request_ms: float
    """HTTP, tokenisation and scheduling of one request."""
    prefill_layer_ms: float
    """Launching the kernels of one layer in prefill, outside the captured graphs."""
    prefill_layer_ranks_ms: float
    """The same on top with more than one tensor rank."""
    prefill_routing_ms: float
    """The same on top, for each layer with experts and each expert of a token."""
    burst_share: float
    """In a closed loop: peers that arrive in the same moment, as a share of all."""
    old_engine_factor: float
    """On launch costs of vLLM before 0.8."""
    overlap_exponent: float
    """p of the p-norm that joins reading and computing; infinity would be a perfect overlap."""
    queue_limit: float
    """Largest 1 / (1 - utilisation) of the open-loop prefill queue."""
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredClass:
    """Scored rows of one GPU, number format and kind of model."""

    gpu: str
    """Short name of the product."""
    family: str
    format: NumberFormat
    experts: bool
    tensor: frozenset[int]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBand:
    """Between which factors on a prediction four of five measured values lie."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceCoverage:
    """What stands behind a prediction."""

    measured: tuple[MeasuredClass, ...]
    engines: str
    """Versions of the engine that were measured, as a phrase."""
    same: ErrorBand
    """The GPU, format and kind of model were measured: errors with the model left out of the fit."""
    related: ErrorBand
    """The GPU or the format was measured, not both together: errors with the GPU left out of the fit."""
    unrelated: ErrorBand
    """Neither, or an arrangement that no row covers."""


def load_performance_constants() -> PerformanceConstants:
    """Return the shipped constants, read once. Raises CatalogError naming row and field."""
    return _shipped()


@lru_cache(maxsize=1)
def _shipped() -> PerformanceConstants:
    return parse_constants(read_data(FILE))


def load_performance_coverage() -> PerformanceCoverage:
    """Return the shipped coverage, read once. Raises CatalogError naming row and field."""
    return _coverage()


@lru_cache(maxsize=1)
def _coverage() -> PerformanceCoverage:
    return parse_coverage(read_data(FILE))


def parse_coverage(data: object) -> PerformanceCoverage:
    """Return measured classes and error bands from the table, each band around 1 and none inside another."""
    table = Fields(data, FILE)
    where = f"{FILE}.measured"
    items = rows(table.data.get("measured"), where)
    measured = tuple(_measured(Fields(item, f"{where}[{index}]")) for index, item in enumerate(items))
    bands = table.inside("bands")
    if bands is None:
        raise CatalogError(f"{FILE}.bands", "is missing")
    bands.text("source")
    same, related, unrelated = (_band(bands, key) for key in ("same", "related", "unrelated"))
    return PerformanceCoverage(
        measured=measured, engines=table.text("engines"), same=same, related=related, unrelated=unrelated
    )


def _measured(row: Fields) -> MeasuredClass:
    found = row.text("format")
    if found not in set(NumberFormat):
        raise CatalogError(row.name("format"), f"must be one of {', '.join(NumberFormat)}, not {found!r}")
    sizes = rows(row.data.get("tensor"), row.name("tensor"))
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise CatalogError(row.name("tensor"), "must list the measured tensor parallel sizes")
    return MeasuredClass(
        gpu=row.text("gpu"),
        family=row.text("family"),
        format=NumberFormat(found),
        experts=row.flag("experts", default=False),
        tensor=frozenset(int(str(size)) for size in sizes),
        rows=row.integer("rows"),
    )


def _band(bands: Fields, key: str) -> ErrorBand:
    row = bands.inside(key)
    if row is None:
        raise CatalogError(bands.name(key), "is missing")
    return ErrorBand(low=row.number("low", low=0.05, high=1.0), high=row.number("high", low=1.0, high=20.0))


def parse_constants(data: object) -> PerformanceConstants:
    """Return constants from the table: every name once, within its bounds, with unit, source and fit."""
    table = Fields(data, FILE)
    version = table.integer("version", high=1 << 16)
    names = {field.name for field in fields(PerformanceConstants)} - {"version"}
    found: dict[str, float] = {}
    for index, item in enumerate(rows(table.data.get("constants"), f"{FILE}.constants")):
        row = Fields(item, f"{FILE}.constants[{index}]")
        name = row.text("name")
        if name not in names:
            raise CatalogError(row.name("name"), f"{name!r} is not a constant of the model")
        if name in found:
            raise CatalogError(row.name("name"), f"{name} is there twice")
        for key in ("unit", "source", "fit"):
            row.text(key)
        found[name] = row.number("value", low=row.number("low", low=1e-9), high=row.number("high"))
    missing = sorted(names - set(found))
    if missing:
        raise CatalogError(f"{FILE}.constants", f"lacks {', '.join(missing)}")
    return PerformanceConstants(version=version, **found)

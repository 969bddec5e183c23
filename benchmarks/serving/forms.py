"""Two forms of the latency model over the same rows: the shipped one, and the reference form it started from.

Decides which constants of each are fitted, where a fit starts and how far it may go. A start is neutral: a
constant that the rows of a fold say nothing about keeps it, so that nothing leaks from the rows left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from serving.rows import Row
from shardwright.catalog.performance import PerformanceConstants, load_performance_constants
from shardwright.planner.performance.load import MS, engine_of, settle
from shardwright.planner.performance.speed import speed_of

Values = Mapping[str, float]
Figures = tuple[float, float, float]
"""TTFT ms, TPOT ms, output tokens/s."""


@dataclass(frozen=True, slots=True)
class Form:
    """One form: how it predicts a row from constants, and what is fitted."""

    name: str
    start: dict[str, float]
    bounds: dict[str, tuple[float, float]]
    """Of the fitted constants; the others stay at their start."""
    predict: Callable[[Row, Any], Figures]
    """Takes what `ready` returns."""
    ready: Callable[[Values], Any] = dict
    """What does not depend on the row, done once for all rows."""


FITTED = {
    "common_bandwidth_share": (0.85, 0.5, 0.95),
    "expert_bandwidth_share": (0.65, 0.3, 0.98),
    "compute_share_16bit": (0.65, 0.2, 0.9),
    "compute_share_8bit": (0.6, 0.2, 0.9),
    "compute_share_experts": (0.25, 0.05, 0.9),
    "blackwell_compute_factor": (1.0, 0.2, 1.5),
    "pcie_allreduce_ms": (0.03, 0.001, 0.5),
    "nvlink_share": (0.6, 0.1, 0.95),
    "pcie_share": (0.5, 0.03, 0.95),
    "layer_ms": (0.065, 0.005, 0.5),
    "routing_ms": (0.003, 0.00001, 0.1),
    "sequence_ms": (0.01, 0.0001, 0.2),
    "interference_share": (0.8, 0.2, 1.0),
    "prefill_layer_ms": (0.3, 0.01, 2.0),
    "prefill_layer_ranks_ms": (0.2, 0.001, 2.0),
    "prefill_routing_ms": (0.025, 0.0001, 0.5),
    "burst_share": (0.15, 0.001, 1.0),
}
"""Fitted constants of the shipped form: neutral start, lowest, highest."""


def shipped_form() -> Form:
    """Return the form of `shardwright.planner.performance`."""
    known = {name: float(value) for name, value in asdict(load_performance_constants()).items()}
    start = {**known, **{name: value for name, (value, _, _) in FITTED.items()}}
    bounds = {name: (low, high) for name, (_, low, high) in FITTED.items()}
    return Form("shipped", start, bounds, _predict, constants_of)


def constants_of(values: Values) -> PerformanceConstants:
    """Return fitted values as the run-time module takes them."""
    known = load_performance_constants()
    return replace(known, **{name: value for name, value in values.items() if name != "version"})


def _predict(row: Row, constants: PerformanceConstants) -> Figures:
    engine = engine_of(row.request, speed_of(row.work, row.request, constants))
    state = settle(engine, row.request.concurrency, row.request.rate_per_s)
    at = state.at
    return at.ttft_ms + state.slots_ms, at.tpot_ms, at.rate_per_ms * MS * row.request.output_tokens


REFERENCE_START = {
    "e": 0.92,
    "e_moe": 0.72,
    "mfu_16bit": 0.65,
    "mfu_8bit": 0.60,
    "mfu_moe": 0.20,
    "alpha_nvlink": 0.006,
    "alpha_pcie": 0.030,
    "e_link": 0.8,
    "c0": 0.3,
    "c_layer": 0.070,
    "c_seq": 0.012,
    "phi": 1.0,
    "ttft0": 6.0,
    "c_pf": 0.22,
    "c_pf_ranks": 0.40,
    "c_pf_moe": 0.10,
    "s": 0.18,
}
"""The reference's published constants; ms, shares of the data sheet."""
_HELD = {"alpha_nvlink", "c0", "ttft0"}


def reference_form() -> Form:
    """Return the reference form, with its published constants as the start."""
    bounds = {name: (value / 20, value * 20) for name, value in REFERENCE_START.items() if name not in _HELD}
    for name in ("e", "mfu_16bit", "mfu_8bit", "e_link"):
        bounds[name] = (bounds[name][0], 0.95)
    return Form("reference", dict(REFERENCE_START), bounds, _reference)


def _reference(row: Row, c: Values) -> Figures:
    """Predict as the reference's section 3.1 says."""
    request = row.request
    osl = request.output_tokens
    parts = _reference_prefill(row, c)
    old = 2.0 if request.engine.version < (0, 8, 0) else 1.0
    launch = (c["c0"] + c["c_layer"] * row.work.layers) * old

    def state(running: float) -> tuple[float, float]:
        step = _reference_step(row, c, max(1.0, running)) + launch + c["c_seq"] * max(1.0, running) * old
        tpot = step + c["phi"] * max(0.0, running - 1) * parts[0] / osl
        if request.concurrency is not None:
            wait = c["s"] * max(0.0, running - 1) / 2 * parts[0]
        else:
            rho = running * parts[0] / (osl * tpot + parts[0])
            wait = 0.5 * parts[0] * rho * min(1 / max(1e-3, 1 - rho), 8.0)
        half = 0.5 * step if running > 1 else 0.0
        ttft = c["ttft0"] + parts[1] + parts[0] + launch + c["c_seq"] * old + half + wait
        return ttft, tpot

    running = request.concurrency or request.rate_per_s or 0.0
    rate = (request.rate_per_s or 0.0) / MS
    ttft, tpot = state(running)
    for _ in range(0 if request.concurrency is not None else 25):
        running = 0.5 * running + 0.5 * rate * (ttft + tpot * (osl - 1))
        ttft, tpot = state(running)
    return ttft, tpot, running / (ttft + tpot * (osl - 1)) * osl * MS


def _reference_shares(row: Row, c: Values) -> float:
    if row.request.architecture.moe is not None:
        return c["mfu_moe"]
    return c["mfu_8bit"] if row.work.compute > row.work.compute_16bit else c["mfu_16bit"]


def _reference_gemm(row: Row, c: Values, tokens: float) -> float:
    found = row.work
    touched = 1 - found.untouched**tokens if found.expert_bytes else 0.0
    read = (found.common_bytes + found.head_bytes + touched * found.expert_bytes / c["e_moe"]) / (
        found.bandwidth * c["e"]
    )
    flop = (found.common_flop + found.expert_flop + found.head_flop) * tokens
    compute = flop / (found.compute * _reference_shares(row, c))
    return float((read**4 + compute**4) ** 0.25)


def _reference_messages(row: Row, c: Values, tokens: float) -> float:
    found = row.work
    if found.tensor == 1:
        return 0.0
    alpha = c["alpha_nvlink"] if row.request.nvlink else c["alpha_pcie"]
    size = 2 * (found.tensor - 1) / found.tensor * tokens * found.hidden * 2
    return 2 * found.layers * (alpha + size / (found.link * c["e_link"]))


def _reference_step(row: Row, c: Values, running: float) -> float:
    found, request = row.work, row.request
    context = request.input_tokens + request.output_tokens / 2
    held = context * found.kv_bytes + min(context, found.window_tokens) * found.window_bytes
    kv = running * held / (found.bandwidth * c["e"])
    attention = running * context * found.decode_pair_flop / (found.compute_16bit * 0.45)
    return _reference_gemm(row, c, running) + max(kv, attention) + _reference_messages(row, c, running)


def _reference_prefill(row: Row, c: Values) -> tuple[float, float]:
    """Return the prompt's time on the GPUs and its launch cost."""
    found, isl = row.work, row.request.input_tokens
    pairs = found.pair_flop * isl * isl / 2
    near = found.window_pair_flop * isl * min(isl, found.window_tokens)
    attention = (pairs + near) / (found.compute_16bit * 0.45)
    gpu = _reference_gemm(row, c, isl) + attention + _reference_messages(row, c, isl)
    layer = c["c_pf"]
    layer += c["c_pf_ranks"] if found.tensor > 1 else 0.0
    layer += c["c_pf_moe"] if found.expert_bytes else 0.0
    return gpu, layer * found.layers

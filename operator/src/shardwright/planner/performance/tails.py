"""Percentiles of TTFT and TPOT from their medians.

Decides the factors between median and tail by how busy the engine is. Never claims more than its source: one
open-loop data set (ShareGPT on H100 PCIe and RTX 4090, vLLM 0.8.5, 120 points), so all tails are unvalidated.

Source: IOG-Foundation/llm-inference-benchmarks. P95 over median TTFT 1.3 at 1 request/s and about 2 at 4 to
8; P99 1.4 and 2.3 to 2.6; P99 over median TPOT 1.05 and 1.24. P95 of TPOT is not stated: P99's is taken.
"""

from dataclasses import dataclass

from shardwright.planner.performance.types import Tails

LIGHT_RUNNING, LOADED_RUNNING = 2.0, 10.0
"""Requests in flight at about 1 and at 4 requests/s in that data: between them the factors grow evenly."""


@dataclass(frozen=True, slots=True)
class _Factor:
    light: float
    loaded: float

    def at(self, running: float) -> float:
        busy = (running - LIGHT_RUNNING) / (LOADED_RUNNING - LIGHT_RUNNING)
        return self.light + (self.loaded - self.light) * min(1.0, max(0.0, busy))


_TTFT = {50: _Factor(1.0, 1.0), 95: _Factor(1.3, 2.0), 99: _Factor(1.4, 2.5)}
_TPOT = {50: _Factor(1.0, 1.0), 95: _Factor(1.05, 1.25), 99: _Factor(1.05, 1.25)}


def ttft_factor(percentile: int, running: float) -> float:
    """Return the factor on the median TTFT for a percentile."""
    return _TTFT[_known(percentile)].at(running)


def tpot_factor(percentile: int, running: float) -> float:
    """Return the factor on the median TPOT for a percentile."""
    return _TPOT[_known(percentile)].at(running)


def tails(ttft_ms: float, tpot_ms: float, running: float) -> Tails:
    """Return P95 and P99."""
    return Tails(
        ttft_p95_ms=ttft_ms * ttft_factor(95, running),
        ttft_p99_ms=ttft_ms * ttft_factor(99, running),
        tpot_p95_ms=tpot_ms * tpot_factor(95, running),
        tpot_p99_ms=tpot_ms * tpot_factor(99, running),
    )


def _known(percentile: int) -> int:
    """Return the tabled percentile that is not below the asked one."""
    return 50 if percentile <= 50 else 95 if percentile <= 95 else 99

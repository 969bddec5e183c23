"""What a second prediction of the same TPOT says of the first one's error.

Decides when two predictions agree, and the error band that follows. Never changes a prediction, and never
makes measured what no row covers.

Source of the figures: `make second-opinion`, aiconfigurator-core 0.12.0 beside this model with the model held
out (`benchmarks/results/second_opinion.json`).
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import log

from shardwright.planner.performance.types import Band

AGREE_LOG = 0.15
"""Two predictions whose ratio's logarithm is at most this agree: 45 % of the measured rows."""
NARROWED = 0.75
"""Exponent of the band where they agree: four of five errors lie within 0.163, of all within 0.216 (log)."""
WIDENED = 1.15
"""Exponent where they do not: within 0.243, rounded up."""


class Verdict(StrEnum):
    """How two predictions compare."""

    AGREES = "Agrees"
    DISAGREES = "Disagrees"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Two predictions compared."""

    verdict: Verdict
    ratio: float
    """Theirs over ours."""
    band: Band
    """Of our TPOT, with both known."""
    sentence: str


def compare(ours_ms: float, theirs_ms: float, band: Band) -> Agreement:
    """Compare two predictions of TPOT, both above 0 ms; `band` is that of ours alone."""
    ratio = theirs_ms / ours_ms
    said = f"{theirs_ms:.3g} ms, x{ratio:.2f} of this prediction"
    if abs(log(ratio)) > AGREE_LOG:
        wider = replace(band, low=min(band.low**WIDENED, ratio), high=max(band.high**WIDENED, ratio))
        told = f"{said}: they disagree, and the band is wider for it"
        return Agreement(verdict=Verdict.DISAGREES, ratio=ratio, band=wider, sentence=told)
    if not band.covered:
        told = f"{said}: they agree, but the band stays, since no measured row covers this"
        return Agreement(verdict=Verdict.AGREES, ratio=ratio, band=band, sentence=told)
    closer = replace(band, low=band.low**NARROWED, high=band.high**NARROWED)
    told = f"{said}: they agree, and the band is narrower for it"
    return Agreement(verdict=Verdict.AGREES, ratio=ratio, band=closer, sentence=told)

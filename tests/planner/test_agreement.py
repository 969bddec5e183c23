"""What a second prediction does to the error band."""

from math import exp

from hypothesis import given
from hypothesis import strategies as st

from shardwright.planner.performance.agreement import AGREE_LOG, Verdict, compare
from shardwright.planner.performance.types import Band

BANDS = st.builds(
    Band,
    low=st.floats(0.2, 0.95),
    high=st.floats(1.05, 4),
    covered=st.booleans(),
    phrase=st.just("dense BF16 on H100"),
)
TIMES_MS = st.floats(0.5, 500)


@given(band=BANDS, ours_ms=TIMES_MS, apart=st.floats(-3, 3))
def test_only_agreement_of_covered_predictions_narrows_and_only_disagreement_widens(band, ours_ms, apart):
    found = compare(ours_ms, ours_ms * exp(apart), band)
    inside = band.low <= found.band.low < 1 < found.band.high <= band.high
    outside = found.band.low <= band.low < 1 < band.high <= found.band.high
    if found.verdict is Verdict.DISAGREES:
        assert outside
        assert found.band.low <= found.ratio <= found.band.high
        assert found.band != band
    elif band.covered:
        assert inside
        assert found.band != band
    else:
        assert found.band == band


@given(band=BANDS, ours_ms=TIMES_MS, apart=st.floats(0, 3))
def test_the_border_is_the_same_in_both_directions(band, ours_ms, apart):
    above, below = compare(ours_ms, ours_ms * exp(apart), band), compare(ours_ms, ours_ms / exp(apart), band)
    if abs(apart - AGREE_LOG) > 1e-9:
        assert above.verdict is below.verdict
        assert (above.verdict is Verdict.AGREES) == (apart < AGREE_LOG)


@given(band=BANDS, ours_ms=TIMES_MS, apart=st.floats(-3, 3))
def test_nothing_but_the_figures_of_the_band_changes(band, ours_ms, apart):
    found = compare(ours_ms, ours_ms * exp(apart), band)
    assert (found.band.covered, found.band.phrase, found.band.gaps) == (band.covered, band.phrase, band.gaps)

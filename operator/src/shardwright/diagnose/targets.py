"""Whether the measured latencies keep the targets at their percentiles. Pure.

Decides from how many of the requests of the last minutes were within a target that the spec states: it is
kept while no more are beyond it than the percentile allows, and missed once surely more are. In between, and
with too few requests, what was said before stands: a verdict that flickers says nothing, and a quiet night is
no verdict. Only engines whose histogram has the target among its edges can tell.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from shardwright.api.defaults import Resolved
from shardwright.diagnose.canary import Share
from shardwright.planner.growth import Growth
from shardwright.planner.load import TPOT, TTFT

MIN_REQUESTS: Final = 100
"""Five may be beyond a P95 then; of fewer requests one alone would decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Targets by what is known of them, each as `TTFT P95 1000 ms`."""

    kept: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


NO_VERDICTS: Final = Verdicts()


def judge(resolved: Resolved, stated: Container[str], grown: Sequence[Growth], before: Verdicts) -> Verdicts:
    """Return the verdict on each stated target after `before`; `grown`: what each engine did in a while."""
    kept: list[str] = []
    missed: list[str] = []
    targets = resolved.targets
    ttft = _share([(each.ttft_count, each.ttft_within) for each in grown])
    tpot = _share([(each.tpot_count, each.tpot_within) for each in grown])
    for field, wanted, beyond in ((TTFT, targets.ttft, ttft), (TPOT, targets.tpot, tpot)):
        if field not in stated:
            continue
        name = "TTFT" if field is TTFT else "TPOT"
        told = f"{name} P{wanted.percentile} {wanted.milliseconds} ms"
        is_missed = _is_missed(beyond, 1 - wanted.percentile / 100)
        if is_missed is None:
            is_missed = told in before.missed if told in (*before.missed, *before.kept) else None
        if is_missed is not None:
            (missed if is_missed else kept).append(told)
    return Verdicts(kept=tuple(kept), missed=tuple(missed))


def _is_missed(beyond: Share | None, allowed: float) -> bool | None:
    """Whether surely more requests are beyond a target than may be; None: neither is sure."""
    if beyond is None or beyond.of < MIN_REQUESTS:
        return None
    if beyond.bounds()[0] > allowed:
        return True
    return False if beyond.count <= allowed * beyond.of else None


def _share(counts: Sequence[tuple[float | None, float | None]]) -> Share | None:
    """Return the requests beyond a target among all; None when no engine tells."""
    known = [(whole, within) for whole, within in counts if whole is not None and within is not None]
    if not known:
        return None
    # A page is not written at one instant: a part may be ahead of its whole.
    return Share(round(sum(max(0.0, w - i) for w, i in known)), round(sum(w for w, _ in known)))

"""What of a comparison is told in `status.calibration`, and when it is worth telling.

Decides the verdict of each figure, what stays when a figure is not known any more, and which change is news.
Never reads a metric or a clock.

What stays: a ratio that was measured stands while there is too little traffic for another one, so that a
quiet night changes nothing. While the metrics cannot be read at all no ratio is shown. Which figures were
outside when they were last known stays in either case: not knowing is no verdict.
"""

from typing import Final, Literal

from shardwright.api.reasons import CalibrationReason
from shardwright.api.status import CalibrationFigure, CalibrationStatus
from shardwright.diagnose.targets import NO_VERDICTS, Verdicts
from shardwright.planner.calibration import Comparison, Figure, Load, Measured, Unmeasured, outside
from shardwright.planner.report import decimal

CHANGE: Final = 0.2
"""Share by which a ratio or the load must have moved to be written again."""
REST_S: Final = 300.0
"""Seconds between two writes of moved figures."""
_RECOVERS: Final = frozenset(
    {CalibrationReason.TOO_FEW_REQUESTS, CalibrationReason.NOT_REPORTED, CalibrationReason.NOT_READ}
)
"""Reasons that pass: what was measured before them stands."""
_NAMES: Final[dict[Figure, Literal["KVTokens", "Memory", "TTFT", "TPOT"]]] = {
    Figure.KV_TOKENS: "KVTokens",
    Figure.MEMORY: "Memory",
    Figure.TTFT: "TTFT",
    Figure.TPOT: "TPOT",
}


def told(
    comparison: Comparison,
    *,
    revision: str,
    source: str,
    now: str,
    before: CalibrationStatus | None,
    verdicts: Verdicts = NO_VERDICTS,
) -> CalibrationStatus | None:
    """Return what there is to tell of a comparison after `before`; None while nothing was ever measured."""
    if before is not None and before.revision != revision:
        before = None
    known = {figure.name: figure for figure in before.figures} if before else {}
    was_outside = set(before.outside or ()) if before else set()
    figures, still_outside = [], []
    for answer in comparison.figures:
        name = _NAMES[answer.figure]
        figures.append(_figure(answer, known.get(name), was_outside=name in was_outside))
        if _outside(answer, was_outside=name in was_outside):
            still_outside.append(str(name))
    if not any(figure.ratio for figure in figures) and before is None:
        return None
    load = comparison.load
    rate = decimal(load.requests_per_s * 60) if load else None
    return CalibrationStatus(
        revision=revision,
        source=source,
        figures=figures,
        requests_per_minute_per_replica=rate or (before and before.requests_per_minute_per_replica),
        input_tokens=_tokens(load, before, "input_tokens"),
        output_tokens=_tokens(load, before, "output_tokens"),
        outside=still_outside or None,
        kept=list(verdicts.kept) or None,
        missed=list(verdicts.missed) or None,
        measured_at=now,
    )


def not_read(before: CalibrationStatus, now: str) -> CalibrationStatus:
    """Return what is told while the metrics cannot be read: no ratio, and no other verdict."""
    figures = [
        CalibrationFigure(name=figure.name, reason=CalibrationReason.NOT_READ.value)
        for figure in before.figures
    ]
    return CalibrationStatus(
        revision=before.revision,
        source=before.source,
        figures=figures,
        outside=before.outside,
        kept=before.kept,
        missed=before.missed,
        measured_at=now,
    )


def verdicts_of(told: CalibrationStatus | None, revision: str) -> Verdicts:
    """Return what a calibration says of the targets; nothing, when it is of another revision."""
    if told is None or told.revision != revision:
        return NO_VERDICTS
    return Verdicts(kept=tuple(told.kept or ()), missed=tuple(told.missed or ()))


def is_news(before: CalibrationStatus | None, after: CalibrationStatus | None, since_s: float) -> bool:
    """Whether `after` is worth a write, `since_s` after `before` was written.

    A verdict or a reason that changes is told at once, a ratio or load that moved by more than CHANGE after
    REST_S.
    """
    if before is None or after is None:
        return before is not after
    if (before.revision, before.source, before.outside) != (after.revision, after.source, after.outside):
        return True
    if (before.kept, before.missed) != (after.kept, after.missed):
        return True
    old = {figure.name: figure for figure in before.figures}
    if any(figure.name not in old or figure.reason != old[figure.name].reason for figure in after.figures):
        return True
    if since_s < REST_S:
        return False
    pairs = [(old[figure.name].ratio, figure.ratio) for figure in after.figures]
    pairs.append((before.requests_per_minute_per_replica, after.requests_per_minute_per_replica))
    pairs.extend(
        (str(a) if a else None, str(b) if b else None)
        for a, b in (
            (before.input_tokens, after.input_tokens),
            (before.output_tokens, after.output_tokens),
        )
    )
    return any(_moved(a, b) for a, b in pairs)


def _figure(
    answer: Measured | Unmeasured, before: CalibrationFigure | None, *, was_outside: bool
) -> CalibrationFigure:
    name = _NAMES[answer.figure]
    if isinstance(answer, Unmeasured):
        if before is not None and before.ratio and answer.why in _RECOVERS:
            return before
        return CalibrationFigure(name=name, reason=answer.why.value, samples=answer.samples)
    digits = 0 if answer.figure is Figure.KV_TOKENS else 2
    return CalibrationFigure(
        name=name,
        reason=_verdict(answer.ratio, was_outside=was_outside).value,
        ratio=decimal(answer.ratio),
        measured=decimal(answer.measured, digits),
        predicted=decimal(answer.predicted, digits),
        samples=answer.samples,
    )


def _verdict(ratio: float, *, was_outside: bool) -> CalibrationReason:
    if not outside(ratio, was_outside=was_outside):
        return CalibrationReason.AS_PREDICTED
    return CalibrationReason.ABOVE_PREDICTION if ratio > 1 else CalibrationReason.BELOW_PREDICTION


def _outside(answer: Measured | Unmeasured, *, was_outside: bool) -> bool:
    if isinstance(answer, Unmeasured):
        return was_outside
    return outside(answer.ratio, was_outside=was_outside)


def _tokens(
    load: Load | None, before: CalibrationStatus | None, field: Literal["input_tokens", "output_tokens"]
) -> int | None:
    if load is not None:
        return round(load.input_tokens if field == "input_tokens" else load.output_tokens)
    if before is None:
        return None
    return before.input_tokens if field == "input_tokens" else before.output_tokens


def _moved(before: str | None, after: str | None) -> bool:
    if before is None or after is None:
        return before is not after
    old, new = float(before), float(after)
    return abs(new - old) > CHANGE * max(abs(old), 1e-9)

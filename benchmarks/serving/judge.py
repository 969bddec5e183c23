"""Errors and picks of a form of the model on rows it was not fitted to.

Decides the folds (a model or a GPU left out), the error figures, and the questions of which arrangement a planner
would pick. Never fits on a row that it judges.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from statistics import mean, median

from serving.fitting import fit, predictions
from serving.forms import Figures, Form
from serving.rows import Row, distinct, measured

FIGURES = ("ttft", "tpot", "throughput")
SLO_TPOT_MS = (8.0, 12.0, 20.0, 30.0, 50.0)
SLO_TTFT_MS = (200.0, 400.0, 800.0, 1500.0, 3000.0)
SWEEP_GROUPS = ("infx", "nvgap")
SWEEP_ROWS = 6
BROKEN = 1.1
"""A picked row breaks its SLO by more than 10 %."""


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, between neighbours in proportion."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def held_out(form: Form, rows: Sequence[Row], key: Callable[[Row], str]) -> list[Figures]:
    """Return predictions of each row by constants fitted without all rows that share its key."""
    found: dict[int, Figures] = {}
    for left_out in distinct(key(row) for row in rows):
        values = fit(form, [row for row in rows if key(row) != left_out])
        judged = [row for row in rows if key(row) == left_out]
        for row, figures in zip(judged, predictions(form, judged, values), strict=True):
            found[row.id] = figures
    return [found[row.id] for row in rows]


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute errors in percent and the bias (median predicted / measured) of each figure."""

    rows: int
    median: tuple[float, float, float]
    p90: tuple[float, float, float]
    bias: tuple[float, float, float]


def errors(rows: Sequence[Row], predicted: Sequence[Figures]) -> Errors:
    """Return the errors of predictions."""
    ratios = [
        [p[k] / m[k] for p, m in zip(predicted, measured(rows), strict=True)] for k in range(len(FIGURES))
    ]
    off = [[abs(ratio - 1) * 100 for ratio in each] for each in ratios]
    return Errors(
        rows=len(rows),
        median=_three(median(each) for each in off),
        p90=_three(percentile(each, 90) for each in off),
        bias=_three(median(each) for each in ratios),
    )


def grouped(
    rows: Sequence[Row], predicted: Sequence[Figures], key: Callable[[Row], str]
) -> dict[str, Errors]:
    """Return the errors of each group of rows."""
    groups: dict[str, list[tuple[Row, Figures]]] = defaultdict(list)
    for row, figures in zip(rows, predicted, strict=True):
        groups[key(row)].append((row, figures))
    return {
        name: errors([row for row, _ in group], [figures for _, figures in group])
        for name, group in sorted(groups.items())
    }


def macro(groups: dict[str, Errors]) -> tuple[float, float, float]:
    """Return the mean of the groups' medians: each group counts the same, however many rows it has."""
    return _three(mean(each.median[k] for each in groups.values()) for k in range(len(FIGURES)))


def factors(rows: Sequence[Row], predicted: Sequence[Figures]) -> tuple[float, float]:
    """Return the factors on a prediction between which four of five measured TTFTs, and TPOTs, lie."""
    low, high = [], []
    for k in (0, 1):
        pairs = zip(predicted, measured(rows), strict=True)
        logs = [log(m[k] / p[k]) if p[k] < inf else -inf for p, m in pairs]
        low.append(percentile(logs, 10))
        high.append(percentile(logs, 90))
    return exp(min(low)), exp(max(high))


@dataclass(frozen=True, slots=True)
class Picks:
    """Shares in percent of the questions that have a measured answer."""

    margin: float
    questions: int
    finds_none: float
    breaks: float
    breaks_by_10: float
    efficiency: float
    """Mean tokens/s/GPU of picks that keep the SLO, against the best measured row that does."""


def picks(rows: Sequence[Row], predicted: Sequence[Figures], margin: float) -> Picks:
    """Return how good the picks are: of each sweep, for 25 SLO pairs, the row with the highest predicted
    tokens/s/GPU among those predicted to keep the SLO.
    """  # noqa: D205
    asked = none = broken = broken_far = 0
    kept: list[float] = []
    for sweep in _sweeps(rows, predicted):
        for tpot in SLO_TPOT_MS:
            for ttft in SLO_TTFT_MS:
                best = [row.tokens_per_s / row.gpus for row, _ in sweep if _worst(row, ttft, tpot) <= 1]
                if not best:
                    continue
                asked += 1
                able = [(f[2] / row.gpus, -row.id, row) for row, f in sweep
                        if f[0] * margin <= ttft and f[1] * margin <= tpot]  # fmt: skip
                if not able:
                    none += 1
                    continue
                row = max(able)[2]
                worst = _worst(row, ttft, tpot)
                broken += worst > 1
                broken_far += worst > BROKEN
                if worst <= 1:
                    kept.append(row.tokens_per_s / row.gpus / max(best))
    share = 100.0 / asked
    return Picks(margin, asked, none * share, broken * share, broken_far * share, 100 * mean(kept))


def _worst(row: Row, ttft: float, tpot: float) -> float:
    return max(row.ttft_ms / ttft, row.tpot_ms / tpot)


def _sweeps(rows: Sequence[Row], predicted: Sequence[Figures]) -> list[list[tuple[Row, Figures]]]:
    found: dict[tuple[object, ...], list[tuple[Row, Figures]]] = defaultdict(list)
    for row, figures in zip(rows, predicted, strict=True):
        if row.group in SWEEP_GROUPS:
            found[row.model, row.gpu, row.quant, row.isl, row.osl].append((row, figures))
    return [sweep for sweep in found.values() if len(sweep) >= SWEEP_ROWS]


def _three(values) -> tuple[float, float, float]:
    first, second, third = values
    return first, second, third

"""Fits constants to measured rows, in plain Python.

Decides the constants with the least mean |log(predicted / measured)| over TTFT, TPOT and, at half the weight,
throughput: Gauss-Newton on the logarithms of the constants, reweighted for absolute errors (IRLS), damped, held
inside bounds. Deterministic. Rows that ask the same question are predicted once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

from serving.forms import Figures, Form, Values
from serving.rows import Row

WEIGHTS = (1.0, 1.0, 0.5)
ROUND = 0.03
"""Below this log error the absolute value is rounded off."""
STEP = 1e-3
ITERATIONS = 12
ENOUGH = 3e-4
"""Relative gain under which the fit ends."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One question and the rows that measured it."""

    row: Row
    measured: tuple[tuple[float, float, float], ...]


def _questions(rows: Sequence[Row]) -> list[_Asked]:
    found: dict[object, list[Row]] = {}
    for row in rows:
        r = row.request
        key = (row.model, row.gpu, row.quant, r.parallelism, r.engine.version < (0, 8, 0), r.input_tokens,
               r.output_tokens, r.concurrency, r.rate_per_s, r.max_num_batched_tokens)  # fmt: skip
        found.setdefault(key, []).append(row)
    return [
        _Asked(same[0], tuple((log(r.ttft_ms), log(r.tpot_ms), log(r.tokens_per_s)) for r in same))
        for same in found.values()
    ]


def predictions(form: Form, rows: Sequence[Row], values: Values) -> list[Figures]:
    """Return predicted TTFT, TPOT and tokens/s of each row."""
    known = form.ready(values)
    return [form.predict(row, known) for row in rows]


def fit(form: Form, rows: Sequence[Row], start: Values | None = None) -> dict[str, float]:
    """Return the constants that fit the rows best, from a neutral start unless one is given."""
    asked = _questions(rows)
    names = list(form.bounds)
    fixed = dict(form.start)
    limits = [(log(low), log(high)) for low, high in form.bounds.values()]
    place = [log((start or form.start)[name]) for name in names]

    def values(at: Sequence[float]) -> dict[str, float]:
        return {**fixed, **{name: exp(value) for name, value in zip(names, at, strict=True)}}

    def predicted(at: Sequence[float]) -> list[tuple[float, float, float]]:
        known = form.ready(values(at))
        return [_logs(form.predict(question.row, known)) for question in asked]

    now = predicted(place)
    loss, damping = _loss(asked, now), 1e-2
    for _ in range(ITERATIONS):
        matrix, gradient = _normal(asked, now, [_slope(predicted, place, now, j) for j in range(len(place))])
        better = None
        for _ in range(7):
            step = _solve(matrix, gradient, damping, len(asked))
            moved = [
                min(max(x - max(-0.5, min(0.5, s)), low), high)
                for x, s, (low, high) in zip(place, step, limits, strict=True)
            ]
            new = predicted(moved)
            new_loss = _loss(asked, new)
            if new_loss < loss:
                better = (moved, new, new_loss)
                break
            damping *= 4
        if better is None:
            break
        gain = loss - better[2]
        place, now, loss = better
        damping = max(damping / 5, 1e-5)
        if gain < ENOUGH * loss:
            break
    return values(place)


def _logs(figures: Figures) -> tuple[float, float, float]:
    return log(figures[0]), log(figures[1]), log(figures[2])


def _slope(predicted, place, now, index):
    moved = list(place)
    moved[index] += STEP
    return [
        tuple((b - a) / STEP for a, b in zip(old, new, strict=True))
        for old, new in zip(now, predicted(moved), strict=True)
    ]


def _loss(asked: Sequence[_Asked], now: Sequence[tuple[float, float, float]]) -> float:
    total = 0.0
    for question, logs in zip(asked, now, strict=True):
        for seen in question.measured:
            for k in range(3):
                error = logs[k] - seen[k]
                total += WEIGHTS[k] * sqrt(error * error + ROUND * ROUND)
    return total


def _normal(asked, now, slopes):
    """Return J'WJ and J'Wr, the weights those of absolute errors."""
    n = len(slopes)
    matrix = [[0.0] * n for _ in range(n)]
    gradient = [0.0] * n
    for i, question in enumerate(asked):
        for k in range(3):
            weight = pull = 0.0
            for seen in question.measured:
                error = now[i][k] - seen[k]
                w = WEIGHTS[k] / sqrt(error * error + ROUND * ROUND)
                weight += w
                pull += w * error
            line = [slopes[j][i][k] for j in range(n)]
            used = [j for j in range(n) if line[j]]
            for a in used:
                gradient[a] += line[a] * pull
                scaled = line[a] * weight
                row = matrix[a]
                for b in used:
                    row[b] += scaled * line[b]
    return matrix, gradient


def _solve(matrix: list[list[float]], gradient: list[float], damping: float, rows: int) -> list[float]:
    """Solve (M + damping diag M) x = g by elimination; a constant without influence stays where it is."""
    n = len(gradient)
    m = [[*line, g] for line, g in zip(matrix, gradient, strict=True)]
    for i in range(n):
        m[i][i] += damping * (m[i][i] + 1e-6 * rows) + 1e-9
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(m[r][i]))
        m[i], m[pivot] = m[pivot], m[i]
        for r in range(i + 1, n):
            factor = m[r][i] / m[i][i]
            if factor:
                for c in range(i, n + 1):
                    m[r][c] -= factor * m[i][c]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (m[i][n] - sum(m[i][c] * x[c] for c in range(i + 1, n))) / m[i][i]
    return x

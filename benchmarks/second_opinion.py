"""TPOT of aiconfigurator-core beside this model's, on measured serving rows with the model held out.

Decides the figures of `planner/performance/agreement.py`: how far off this model is where the two agree, and
where they do not.

    make second-opinion
"""

import argparse
import json
from collections.abc import Sequence
from math import log
from pathlib import Path
from statistics import mean, median

from serving.forms import shipped_form
from serving.judge import held_out
from serving.rows import Row, load_rows

from shardwright.cli.second_opinion import NoOpinionError, SecondOpinion
from shardwright.planner.performance.agreement import AGREE_LOG

RESULT = Path(__file__).parent / "results" / "second_opinion.json"
Pair = tuple[Row, float, float]
"""A row, this model's TPOT and theirs, ms."""


def main() -> int:
    """Ask, compare, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", required=True, help="interpreter of an environment that has the library")
    parser.add_argument("--write", action="store_true", help=f"to {RESULT.name}")
    options = parser.parse_args()
    found = report(options.python)
    text = json.dumps(found, indent=1) + "\n"
    if options.write:
        RESULT.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


def report(python: str) -> dict:
    """Return all figures as plain values."""
    rows = load_rows()
    ours = held_out(shipped_form(), rows, lambda row: row.model)
    pairs: list[Pair] = []
    silent: dict[str, int] = {}
    with SecondOpinion(python) as other:
        for row, figures in zip(rows, ours, strict=True):
            if row.request.concurrency is None:
                continue
            try:
                pairs.append((row, figures[1], other.tpot_ms(row.request, row.request.concurrency)))
            except NoOpinionError as error:
                reason = str(error).partition(" at /")[0].partition("(")[0][:80].strip()
                silent[reason] = silent.get(reason, 0) + 1
    return {
        "library": "aiconfigurator-core 0.12.0",
        "rows": len(rows),
        "asked_with_an_answer": len(pairs),
        "without": silent,
        "all": _figures(pairs),
        "agree": _figures([p for p in pairs if _apart(p) <= AGREE_LOG]),
        "disagree": _figures([p for p in pairs if _apart(p) > AGREE_LOG]),
    }


def _apart(pair: Pair) -> float:
    return abs(log(pair[2] / pair[1]))


def _figures(pairs: Sequence[Pair]) -> dict:
    cells: dict[str, list[float]] = {}
    for row, ours, _ in pairs:
        cells.setdefault(row.cell, []).append(abs(log(ours / row.tpot_ms)))
    off = sorted(abs(log(row.tpot_ms / ours)) for row, ours, _ in pairs)
    between = [min(ours, theirs) <= row.tpot_ms <= max(ours, theirs) for row, ours, theirs in pairs]
    return {
        "rows": len(pairs),
        "cells": len(cells),
        "our_median_percent": _percent([ours / row.tpot_ms for row, ours, _ in pairs]),
        "their_median_percent": _percent([theirs / row.tpot_ms for row, _, theirs in pairs]),
        "our_median_log_of_cells": round(mean(median(each) for each in cells.values()), 3),
        "four_of_five_within_log": round(off[round(0.8 * (len(off) - 1))], 3),
        "measured_between_both_percent": round(100 * mean(between), 0),
    }


def _percent(ratios: Sequence[float]) -> float:
    return round(100 * median(abs(ratio - 1) for ratio in ratios), 1)


if __name__ == "__main__":
    raise SystemExit(main())

"""Draws `results/router.json`: P95 of the time to first token against load, one line a policy, as SVG on standard output."""

import json
import sys
from html import escape
from itertools import chain
from math import log10
from pathlib import Path
from typing import Any, Final

from svg import document

RESULTS: Final = Path(__file__).parent / "results/router.json"
PANELS: Final = (
    ("shortP95Ms", "Short prompts (500 tokens)"),
    ("longP95Ms", "Long prompts (20,000 tokens)"),
)
COLOURS: Final = {
    "kv_aware": "#c00",
    "round_robin": "#06c",
    "cache_aware": "#080",
    "power_of_two": "#a60",
    "random": "#777",
    "sticky_least_loaded": "#90a",
}
WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 300, 60, 40, 190
LEAST_S, MOST_S = 0.2, 100.0
LABEL_GAP: Final = 13


def panel(key: str, title: str, rows: list[dict[str, Any]], left: int) -> list[str]:
    """Return one panel; load grows to the right, seconds upwards, by powers of ten."""
    loads = sorted({row["load"] for row in rows})

    def x(load: float) -> float:
        return left + WIDTH * (load - loads[0]) / (loads[-1] - loads[0])

    def y(seconds: float) -> float:
        return TOP + HEIGHT * log10(MOST_S / seconds) / log10(MOST_S / LEAST_S)

    out = [
        f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{left}" y="{TOP - 10}" font-weight="bold">{escape(title)}</text>',
    ]
    out += [
        f'<text x="{x(load):.0f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{load:.0%}</text>'
        for load in loads
    ]
    for seconds in (0.5, 1, 2, 5, 10, 20, 50):
        at = y(seconds)
        out.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{at:.0f}" y2="{at:.0f}" stroke="#eee"/>')
        out.append(f'<text x="{left - 4}" y="{at + 4:.0f}" text-anchor="end">{seconds:g} s</text>')
    ends = []
    for policy, colour in COLOURS.items():
        line = sorted((row["load"], row[key] / 1000) for row in rows if row["policy"] == policy)
        points = " ".join(f"{x(load):.0f},{y(seconds):.0f}" for load, seconds in line)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        ends.append((y(line[-1][1]), policy, colour))
    lowest = 0.0
    for height, policy, colour in sorted(ends):
        lowest = max(height + 4, lowest + LABEL_GAP)
        out.append(f'<text x="{left + WIDTH + 6}" y="{lowest:.0f}" fill="{colour}">{policy}</text>')
    return out


def picture(rows: list[dict[str, Any]]) -> str:
    """Return the whole picture, of the rows of the real router."""
    real = [row for row in rows if row["kind"] == "router"]
    width, height = LEFT + len(PANELS) * (WIDTH + GAP), TOP + HEIGHT + 40
    panels = (panel(*each, real, LEFT + number * (WIDTH + GAP)) for number, each in enumerate(PANELS))
    return document(width, height, chain.from_iterable(panels))


if __name__ == "__main__":
    sys.stdout.write(picture(json.loads(RESULTS.read_text())["rows"]))

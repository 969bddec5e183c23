"""Draws the rules of `results/autoscaler.json` by hours and attainment, as SVG on standard output."""

import json
import sys
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, Final

from svg import document

RESULTS: Final = Path(__file__).parent / "results/autoscaler.json"
TRACES: Final = ("conv", "code", "mixed")
WIDTH, HEIGHT, GAP = 330, 300, 60
FLOOR: Final = 0.7
"""Rules below this share are left out of the picture; the table has them."""


def panel(trace: str, rows: list[dict[str, Any]], left: int) -> list[str]:
    """Return one trace's panel; hours grow to the right, attainment upwards."""
    shown = [r for r in rows if r["trace"] == trace and r["attainment"] >= FLOOR and "off" not in r["rule"]]
    most = max(r["gpuHours"] for r in shown) * 1.08
    out = [
        f'<rect x="{left}" y="30" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{left}" y="20" font-weight="bold">{trace}</text>',
        f'<text x="{left + WIDTH}" y="{HEIGHT + 48}" text-anchor="end">GPU-hours, to {most:.0f}</text>',
    ]
    for share in (0.7, 0.8, 0.9, 1.0):
        y = 30 + HEIGHT * (1.02 - share) / (1.02 - FLOOR)
        out.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 4}" y="{y + 4:.0f}" text-anchor="end">{share:.1f}</text>')
    for number, one in enumerate(sorted(shown, key=lambda r: r["gpuHours"])):
        x, y = (
            left + WIDTH * one["gpuHours"] / most,
            30 + HEIGHT * (1.02 - one["attainment"]) / (1.02 - FLOOR),
        )
        own = {"shardwright": "#c00", "clairvoyant": "#06c"}.get(one["rule"], "#555")
        lift = 14 if number % 2 else -7
        anchor = "end" if x > left + WIDTH * 0.55 else "start"
        out.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{5 if own != "#555" else 3}" fill="{own}"/>')
        out.append(
            f'<text x="{x:.0f}" y="{y + lift:.0f}" text-anchor="{anchor}" fill="{own}" font-size="9">{escape(one["rule"])}</text>'
        )
    return out


def picture(rows: list[dict[str, Any]]) -> str:
    """Return the whole picture."""
    width = len(TRACES) * (WIDTH + GAP) + GAP
    panels = (panel(trace, rows, GAP + number * (WIDTH + GAP)) for number, trace in enumerate(TRACES))
    return document(width, HEIGHT + 60, chain.from_iterable(panels))


if __name__ == "__main__":
    sys.stdout.write(picture(json.loads(RESULTS.read_text())["rows"]))

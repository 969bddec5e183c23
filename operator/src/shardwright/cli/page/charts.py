"""Where the marks of the page's charts lie, in the user units of their SVG.

Decides scales, ticks and places of labels from the explanation's JSON document. Never a figure: what a chart
writes out is looked up in the document by the template.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from shardwright.planner.memory import KV_CACHE

Json = dict[str, Any]
WIDTH, HEIGHT = 460.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 420.0, 34.0, 240.0
LABEL_GAP = 17.0
"""Least distance of two labels above one another."""
LABEL_WIDTH, LABEL_SHARE = 170.0, 0.2
"""Of the target's label; a planned value closer than this share of the axis may lie under it."""
LETTER = 10.0
"""Most that a letter of a label takes: half-bold, at the size that narrow pages have."""
LEVEL_RIGHT = 5.0
NO_PLAN_RIGHT, NO_PLAN_UP = 9.0, 4.0
"""Where the label of targets without a plan stands: right of the last of them, above the axis."""
COLOURS = {
    "Outside the budget": 0, "Weights": 1, "Activation peak": 2, "Non-torch": 3, "CUDA graphs": 4,
    KV_CACHE: 5, "Margin": 6,
}  # fmt: skip
OTHER = 7
BEYOND_TARGET = 2.0
"""Times the target, or the planned value, up to which a curve is shown."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A value's place on an axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the coordinate of a value; values beyond the axis lie on its edge."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, value = log10(low), log10(high), log10(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Line:
    """One curve; `index` is its percentile's place in the document."""

    index: int
    points: str
    label_y: float


@dataclass(frozen=True, slots=True)
class Level:
    """Where a label of a cost step goes; `index` is its point's place in the document."""

    index: int
    x: float
    y: float
    anchor: str
    """The end of the label that lies at `x`: start or end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChart:
    """One predicted time against the load of a replica."""

    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]
    band: str
    """Corners of the error band around the judged percentile."""
    target_y: float
    below_y: float
    planned_x: float
    planned_y: float | None
    most_x: float | None
    label_left: bool
    """Whether the target's label has room at the left end of its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostChart:
    """Price per hour against one target."""

    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    steps: str
    dots: tuple[tuple[float, float], ...]
    missing: tuple[float, ...]
    """Targets that have no plan."""
    current_x: float
    levels: tuple[Level, ...]
    priced: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the memory bar, in percent of its width; `index` is its place in the document."""

    index: int
    x: float
    width: float
    colour: int
    """By what takes it, so that pages of different plans look alike."""
    used: float
    """Of the KV cache: the width that the work needs; of everything else all of it."""


def load_chart(document: Json, name: str) -> LoadChart:
    """Return the chart of `ttft` or `tpot`. The document has curves and a prediction."""
    curves, time, band = document["curves"], document["prediction"][name], document["prediction"]["band"]
    key, points = f"{name}Ms", curves["points"]
    series = [
        [(p["load"], p["times"][i][key]) for p in points if p["times"][i][key] is not None]
        for i in range(len(curves["percentiles"]))
    ]
    judged = curves["percentiles"].index(time["percentile"])
    planned, target = time["judgedMs"], time["targetMs"]
    highest = max((y for line in series for _, y in line), default=target)
    top = max(1.15 * target, 1.15 * (planned or 0), min(1.05 * highest, BEYOND_TARGET * target))
    near = planned is not None and abs(planned - target) < LABEL_SHARE * top
    x_ticks, _ = linear_ticks(points[-1]["load"], 6)
    x = Scale(0, points[-1]["load"], LEFT, RIGHT)
    y_ticks, _ = linear_ticks(top, 6)
    y = Scale(0, top, BOTTOM, TOP)
    return LoadChart(
        x_ticks=_placed(x_ticks, x),
        y_ticks=_placed(y_ticks, y),
        lines=_lines(series, x, y, top),
        band=_band(series[judged], band["low"], band["high"], x, y),
        target_y=y.at(target),
        below_y=y.at(time["planBelowMs"]),
        planned_x=x.at(curves["planned"]),
        planned_y=None if planned is None else y.at(planned),
        most_x=None if curves["most"] is None or curves["most"] > x.high else x.at(curves["most"]),
        label_left=not (near and x.at(curves["planned"]) < LEFT + LABEL_WIDTH),
    )


def cost_chart(curve: Json) -> CostChart:
    """Return the chart of one curve of the document's `cost`; at least one of its points is a plan."""
    points = curve["points"]
    priced = all(p["pricePerHour"] is not None for p in points if p["summary"] is not None)
    worth = [(p["pricePerHour"] if priced else p["gpus"]) if p["summary"] else None for p in points]
    x = Scale(points[0]["targetMs"], points[-1]["targetMs"], LEFT, RIGHT, log=True)
    top = 1.2 * max(w for w in worth if w is not None)
    y_ticks, _ = linear_ticks(top, 5)
    y = Scale(0, top, BOTTOM, TOP)
    found = [(p["targetMs"], w) for p, w in zip(points, worth, strict=True) if w is not None]
    dots = tuple((x.at(at), y.at(w)) for at, w in found)
    missing = [p["targetMs"] for p, w in zip(points, worth, strict=True) if w is None]
    return CostChart(
        x_ticks=_apart(_placed(log_ticks(x.low, x.high), x)),
        y_ticks=_placed(y_ticks, y),
        steps=_steps(dots),
        dots=dots,
        missing=tuple(x.at(at) for at in missing),
        current_x=x.at(curve["currentMs"]),
        levels=_levels(curve, worth, x, y, [x.at(at) for at in missing]),
        priced=priced,
    )


def memory_bar(document: Json) -> tuple[Part, ...]:
    """Return the parts of one GPU's memory side by side."""
    memory, found, at = document["memory"], [], 0.0
    shares, total = memory["shares"], sum(s["gib"] for s in memory["shares"])
    needed = min(1.0, memory["neededKvTokens"] / max(1, memory["promisedKvTokens"]))
    for index, share in enumerate(shares):
        width = 100 * share["gib"] / total
        used = needed * width if share["item"] == KV_CACHE else width
        found.append(
            Part(index, round(at, 3), round(width, 3), COLOURS.get(share["item"], OTHER), round(used, 3))
        )
        at += width
    return tuple(found)


def linear_ticks(top: float, most: int) -> tuple[list[tuple[float, str]], float]:
    """Return round values from 0 up to `top`, at most so many steps, and the last of them."""
    raw = max(top, 1e-9) / most
    power = 10.0 ** floor(log10(raw))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= raw * (1 - 1e-9))
    count = floor(top / step + 1e-9)
    return [(n * step, f"{n * step:.10g}") for n in range(count + 1)], count * step


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return 1, 2 and 5 of each power of ten between two values."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    values = [m * 10.0**p for p in powers for m in (1, 2, 5)]
    return [(v, f"{v:.10g}") for v in values if low <= v <= high]


def _placed(ticks: Sequence[tuple[float, str]], scale: Scale) -> tuple[Tick, ...]:
    return tuple(Tick(scale.at(value), label) for value, label in ticks)


def _apart(ticks: Sequence[Tick]) -> tuple[Tick, ...]:
    """Return those of the ticks of the lower axis whose labels do not touch the one before."""
    found, taken = [], 0.0
    for tick in ticks:
        half = len(tick.label) * LETTER / 2
        if tick.at - half >= taken:
            found.append(tick)
            taken = tick.at + half
    return tuple(found)


def _lines(
    series: Sequence[Sequence[tuple[float, float]]], x: Scale, y: Scale, top: float
) -> tuple[Line, ...]:
    """Return the curves up to where they leave the chart, their labels apart from one another."""
    found, taken = [], BOTTOM + LABEL_GAP
    for index, line in enumerate(series):
        inside = _inside(line, top)
        end = y.at(inside[-1][1]) if inside else BOTTOM
        taken = min(end, taken - LABEL_GAP)
        found.append(Line(index, " ".join(f"{x.at(a)},{y.at(b)}" for a, b in inside), round(taken + 4, 1)))
    return tuple(found)


def _inside(line: Sequence[tuple[float, float]], top: float) -> list[tuple[float, float]]:
    """Return the points below `top`, and the place where the curve passes it."""
    found: list[tuple[float, float]] = []
    for at, value in line:
        if value > top:
            if found and value > found[-1][1]:
                before, low = found[-1]
                found.append((before + (at - before) * (top - low) / (value - low), top))
            break
        found.append((at, value))
    return found


def _band(line: Sequence[tuple[float, float]], low: float, high: float, x: Scale, y: Scale) -> str:
    upper = [f"{x.at(a)},{y.at(b * high)}" for a, b in line]
    lower = [f"{x.at(a)},{y.at(b * low)}" for a, b in reversed(line)]
    return " ".join([*upper, *lower])


def _steps(dots: Sequence[tuple[float, float]]) -> str:
    """Return the stairs: what keeps a target keeps every looser one, until a cheaper plan does too."""
    path = f"M{dots[0][0]},{dots[0][1]}"
    for at, height in dots[1:]:
        path += f"H{at}V{height}"
    return path


def _levels(
    curve: Json, worth: Sequence[float | None], x: Scale, y: Scale, missing: Sequence[float]
) -> tuple[Level, ...]:
    """Return a label for each plan, as far as there is room; that of the target as it is comes first.

    `missing`: where targets have no plan, with a label of their own beside the last of them.
    """
    points, found, told = curve["points"], list[Level](), set[str]()
    taken = list[tuple[float, float, float]]()
    if missing:
        left = missing[-1] + NO_PLAN_RIGHT
        taken.append((left, left + len("no plan") * LETTER, BOTTOM - NO_PLAN_UP))
    order = sorted(range(len(points)), key=lambda n: (points[n]["targetMs"] != curve["currentMs"], n))
    for index in order:
        point, value = points[index], worth[index]
        if value is None or point["summary"] in told:
            continue
        at, height = x.at(point["targetMs"]) + LEVEL_RIGHT, round(y.at(value) - 9, 1)
        wide = len(point["summary"]) * LETTER
        anchor = "start" if at + wide <= WIDTH else "end"
        left = at if anchor == "start" else at - wide
        free = all(
            left + wide <= its_left or its_right <= left or abs(height - its_height) >= LABEL_GAP
            for its_left, its_right, its_height in taken
        )
        if left >= 0 and free:
            found.append(Level(index, at, height, anchor))
            taken.append((left, left + wide, height))
            told.add(point["summary"])
    return tuple(found)

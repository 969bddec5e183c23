"""`shardwright simulate --html`: replays of one trace as a page that needs nothing else.

Decides scales and colours only; every figure is looked up in the document, which is in the page.
"""

from typing import Any, Final

from shardwright.cli.page.charts import Scale, Tick, linear_ticks
from shardwright.cli.page.page import Figures, rendered

LEFT, RIGHT = 52.0, 884.0
TOP, BOTTOM = 14.0, 190.0
HOUR_S, MINUTE_S = 3600.0, 60.0
TTFT_TOP: Final = 2.5
"""Times the target, up to which waits are drawn: beyond it they are late by any measure."""

Json = dict[str, Any]


def render(document: Json) -> str:
    """Return the page."""
    figures = Figures(document)
    return rendered(
        "simulation.html.j2", document,
        n=figures.number, s=figures.text, m=figures.mark, chart=Chart(document),
    )  # fmt: skip


class Chart:
    """Where marks lie in the three pictures above one another, which share their time axis."""

    def __init__(self, document: Json) -> None:
        self._doc = document
        self._x = Scale(0, max(1.0, document["seconds"]), LEFT, RIGHT)
        sizes = max(size for run in document["runs"] for _, size in run["sizes"])
        self._rate = Scale(0, 1.1 * max(document["requestsPerSecond"]), BOTTOM, TOP)
        self._size = Scale(0, 1.1 * sizes, BOTTOM, TOP)
        self._ttft = Scale(0, TTFT_TOP * document["ttftMs"], BOTTOM, TOP)

    @property
    def hours(self) -> tuple[Tick, ...]:
        """Ticks of the time axis: hours, or minutes of less than three hours."""
        seconds = self._doc["seconds"]
        unit, name = (HOUR_S, "h") if seconds >= 3 * HOUR_S else (MINUTE_S, "min")
        ticks, _ = linear_ticks(seconds / unit, 8)
        return tuple(Tick(self._x.at(value * unit), f"{label} {name}") for value, label in ticks)

    @property
    def unscored_x(self) -> float:
        """Where judging begins."""
        return self._x.at(self._doc["unscoredSeconds"])

    @property
    def target_y(self) -> float:
        """The TTFT target."""
        return self._ttft.at(self._doc["ttftMs"])

    def ticks(self, name: str) -> tuple[Tick, ...]:
        """Ticks of `rate`, `size` or `ttft`."""
        scale = {"rate": self._rate, "size": self._size, "ttft": self._ttft}[name]
        ticks, _ = linear_ticks(scale.high, 5)
        return tuple(Tick(scale.at(value), label) for value, label in ticks)

    def load(self) -> str:
        """Draw the area of requests a second."""
        slot, path = self._doc["slotSeconds"], f"M{LEFT},{BOTTOM}"
        for number, rate in enumerate(self._doc["requestsPerSecond"]):
            path += f"V{self._rate.at(rate)}H{self._x.at((number + 1) * slot)}"
        return path + f"V{BOTTOM}Z"

    def sizes(self, run: Json) -> str:
        """Draw the stairs of a rule's sizes."""
        (_, first), *others = run["sizes"]
        path = f"M{LEFT},{self._size.at(first)}"
        for at, size in others:
            path += f"H{self._x.at(at)}V{self._size.at(size)}"
        return path + f"H{RIGHT}"

    def waits(self, run: Json) -> str:
        """Draw the 95th percentile of TTFT of each slot; gaps where nothing arrived."""
        slot, path, on = self._doc["slotSeconds"], "", False
        for number, value in enumerate(run["p95TtftMsOfSlots"]):
            if value is not None:
                path += f"{'L' if on else 'M'}{self._x.at((number + 0.5) * slot)},{self._ttft.at(value)}"
            on = value is not None
        return path

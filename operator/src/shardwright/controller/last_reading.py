"""One reading of the engines for all who look at them.

Decides that a reading that is young enough and has all the engines asked for serves again, and that of others
only those that are missing are read. Never reads by itself more often than it is asked to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from shardwright.metrics.source import MetricsSource, Target
from shardwright.planner.signals import PodKey, Reading, Readings, Signal

YOUNG_S: Final = 20.0
"""A reading of the last tick of the autoscaler is young."""


@dataclass(slots=True)
class LastReading:
    """See MetricsSource; `fresh` reads anew, `read` takes what is there."""

    source: MetricsSource
    clock: Callable[[], float]
    _readings: Readings = field(default_factory=Readings)
    _pods: frozenset[PodKey] = frozenset()
    _at_s: float = float("-inf")

    @property
    def name(self) -> str:
        """See MetricsSource."""
        return self.source.name

    async def fresh(self, targets: Sequence[Target]) -> Readings:
        """Read now, and remember it."""
        found = await self.source.read(targets)
        self._readings, self._at_s = found, self.clock()
        self._pods = frozenset(target.pod for target in targets)
        return found

    async def read(self, targets: Sequence[Target]) -> Readings:
        """See MetricsSource."""
        if self.clock() - self._at_s > YOUNG_S:
            return await self.source.read(targets)
        missing = [target for target in targets if target.pod not in self._pods]
        if not missing or self._readings.failure:
            return self._readings
        return _joined(self._readings, await self.source.read(missing))

    async def close(self) -> None:
        """See MetricsSource."""
        await self.source.close()


def _joined(one: Readings, other: Readings) -> Readings:
    """Return what two readings of different pods say."""
    if other.failure:
        return other
    found: dict[Signal, dict[PodKey, Reading]] = {signal: dict(by) for signal, by in one.by_signal.items()}
    for signal, by in other.by_signal.items():
        found.setdefault(signal, {}).update(by)
    return Readings(by_signal=found)

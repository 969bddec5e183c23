"""What was measured, kept in one ConfigMap for the next plan: by model, GPU product and engine version.

Decides what is worth a write, and how services that share a key are put together. Never changes a plan in
force: `controller.planning` takes corrections when it plans anew, and the plan carries those that it was made
with.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.llmservice import ServiceKey
from shardwright.cluster.api import Api
from shardwright.cluster.errors import ClusterError, Gone
from shardwright.cluster.json import JsonObject
from shardwright.cluster.kinds import CONFIG_MAP
from shardwright.planner.calibration import Comparison, Figure, Measured, outside
from shardwright.planner.corrections import HIGHEST, LOWEST, entry_name, entry_text, read_entries
from shardwright.planner.types import Correction, CorrectionKey, Plan

_LOG = logging.getLogger(__name__)

REST_S: Final = 300.0
"""Seconds between two writes."""
_LONGEST_PAUSE_S: Final = 2 * REST_S
"""Between two looks that follow each other; a look waits for a busy operator."""
CHANGE: Final = 0.05
"""Share by which a ratio must have moved to be written again."""
MOST_ENTRIES: Final = 500
"""Some 200 bytes each: far below the 1 MiB of a ConfigMap."""
_FIGURES: Final = {Figure.TTFT: "ttft", Figure.TPOT: "tpot", Figure.MEMORY: "memory"}


@dataclass(frozen=True, slots=True)
class _Off:
    """A plan that each look has found off."""

    inputs_digest: str
    since_s: float
    last_s: float

    def holds(self, plan: Plan, now_s: float) -> bool:
        """Whether it is this plan, and no look was left out."""
        return self.inputs_digest == plan.inputs_digest and now_s - self.last_s <= _LONGEST_PAUSE_S


@dataclass(slots=True)
class CalibrationStore:
    """The ConfigMap `where`, (namespace, name). `clock` gives seconds."""

    api: Api
    where: tuple[str, str]
    clock: Callable[[], float]
    corrections: dict[CorrectionKey, Correction] = field(default_factory=dict)
    """As read, and as measured since."""
    measured: Callable[[ServiceKey], None] = lambda _service: None
    """Called for each service that was measured, after what was measured is put together."""
    _seen: dict[ServiceKey, tuple[CorrectionKey, Correction, Comparison]] = field(default_factory=dict)
    """What was measured, beside what the plan that it was held against had corrected already."""
    _written: dict[CorrectionKey, Correction] = field(default_factory=dict)
    _off: dict[ServiceKey, _Off] = field(default_factory=dict)
    _next_s: float = 0.0
    _said: str = ""

    async def load(self) -> None:
        """Read what is kept, which is nothing without a ConfigMap. Raises ClusterError."""
        try:
            found = await self.api.get(CONFIG_MAP, *self.where)
        except Gone:
            return
        self._written, refused = read_entries(found.get("data") or {})
        for name, why in refused:
            _LOG.warning("calibration entry left out key=%s error=%s", name, why)
        self.corrections.update(self._written)

    def note(self, service: ServiceKey, plan: Plan, version: str, found: Comparison) -> None:
        """Take note of what was measured of a service."""
        ratios = [figure.ratio for figure in found.figures if isinstance(figure, Measured)]
        known = self._off.pop(service, None)
        was_off = known is not None and known.holds(plan, self.clock())
        if any(outside(ratio, was_outside=was_off) for ratio in ratios):
            since = known.since_s if known is not None and was_off else self.clock()
            self._off[service] = _Off(plan.inputs_digest, since, self.clock())
        if ratios:
            key = (plan.model.model_id, plan.product.label, version)
            self._seen[service] = (key, plan.correction or Correction(), found)

    def off_since(self, service: ServiceKey, plan: Plan) -> float | None:
        """Since when each look has found a plan off; None: it is not, or nothing was measured of it."""
        known = self._off.get(service)
        return known.since_s if known is not None and known.holds(plan, self.clock()) else None

    async def write(self) -> None:
        """Write what has moved, at most every few minutes.

        What fails is logged once and tried again: what was measured is forgotten when it is on record only.
        """
        if self.clock() < self._next_s or not self._seen:
            return
        self._next_s = self.clock() + REST_S
        seen = dict(self._seen)
        measured = _pooled(seen.values())
        moved = {key: new for key, new in measured.items() if _moved(self._written.get(key), new)}
        if not moved or await self._keep(moved):
            for service, what in seen.items():
                if self._seen.get(service) is what:  # else it was measured again meanwhile
                    del self._seen[service]
        now = self.clock()
        self._off = {s: off for s, off in self._off.items() if now - off.last_s <= _LONGEST_PAUSE_S}
        for service in seen:
            self.measured(service)

    async def _keep(self, moved: Mapping[CorrectionKey, Correction]) -> bool:
        """Put what has moved with the rest, and write all of it; say whether it is on record."""
        for key, new in moved.items():
            self.corrections[key] = _merged(self.corrections.pop(key, Correction()), new)
        while len(self.corrections) > MOST_ENTRIES:
            del self.corrections[next(iter(self.corrections))]
        kept = dict(self.corrections)
        try:
            await self.api.apply(_config_map(self.where, kept))
        except ClusterError as error:
            if self._said != str(error):
                self._said = str(error)
                _LOG.warning("calibration not kept config_map=%s error=%s", "/".join(self.where), error)
            return False
        self._said, self._written = "", kept
        _LOG.info("calibration kept config_map=%s entries=%d", "/".join(self.where), len(kept))
        return True


def _pooled(
    seen: Iterable[tuple[CorrectionKey, Correction, Comparison]],
) -> dict[CorrectionKey, Correction]:
    """Put services that share a key together: each figure weighs as many samples as it has.

    A ratio is of the model's own prediction, without what a plan has corrected already.
    """
    sums: dict[CorrectionKey, dict[str, list[float]]] = {}
    for key, corrected, comparison in seen:
        before = {"ttft": corrected.ttft, "tpot": corrected.tpot, "memory": corrected.memory_ratio}
        of_key = sums.setdefault(key, {})
        for figure in comparison.figures:
            name = _FIGURES.get(figure.figure)
            if name is None or not isinstance(figure, Measured):
                continue
            total = of_key.setdefault(name, [0.0, 0.0, 0.0])
            total[0] += figure.measured * figure.samples
            total[1] += figure.predicted / (before[name] or 1.0) * figure.samples
            total[2] += figure.samples
    found = {}
    for key, of_key in sums.items():
        ratios = {
            name: round(min(HIGHEST, max(LOWEST, a / b)), 2) for name, (a, b, _) in of_key.items() if b > 0
        }
        requests = max((int(n) for name, (_, _, n) in of_key.items() if name != "memory"), default=0)
        found[key] = Correction(**ratios, requests=requests)
    return found


def _moved(before: Correction | None, after: Correction) -> bool:
    if before is None:
        return True
    pairs = zip(_ratios(before), _ratios(after), strict=True)
    return any(b is not None and (a is None or abs(a - b) > CHANGE * a) for a, b in pairs)


def _merged(before: Correction, after: Correction) -> Correction:
    """Return the newer ratios; where there is none the older one stands."""
    return Correction(
        ttft=before.ttft if after.ttft is None else after.ttft,
        tpot=before.tpot if after.tpot is None else after.tpot,
        memory=before.memory if after.memory is None else after.memory,
        requests=after.requests or before.requests,
    )


def _ratios(correction: Correction) -> tuple[float | None, ...]:
    return correction.ttft, correction.tpot, correction.memory


def _config_map(where: tuple[str, str], corrections: Mapping[CorrectionKey, Correction]) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": where[0], "name": where[1]},
        "data": {entry_name(key): entry_text(key, entry) for key, entry in corrections.items()},
    }

"""The watchdog: engines that hang while their health is green are replaced.

Decides which engines are watched, when one is asked for a token, and that at most one replica of a service is
replaced at once. Whether an engine hangs is `diagnose.stall`'s to say, from the reading that the autoscaler
takes of the fleet. Everything here is in memory: what a crash loses makes a hung engine be found later.

A pod that is deleted leaves its Services at once, which is all it takes to end its traffic: no label is
patched.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMService, ServiceKey
from shardwright.api.names import workload_name
from shardwright.api.reasons import Reason
from shardwright.catalog.engines import engine_class
from shardwright.cluster.facts import ServiceEntry
from shardwright.cluster.store import Store
from shardwright.controller.planning import Planning, Proposal
from shardwright.controller.replacing import Replacer
from shardwright.controller.scaling import serves
from shardwright.controller.tasks import end
from shardwright.diagnose.facts import EngineFault, Step
from shardwright.diagnose.stall import LEAST_S, Silence, bound_s, first_of, follow, sample_of
from shardwright.metrics.ask import Answer
from shardwright.metrics.source import Target
from shardwright.planner.signals import PodKey, Readings
from shardwright.planner.silence import longest_silence_s
from shardwright.planner.types import Plan
from shardwright.render.startup import startup_budget
from shardwright.render.storage import source_type
from shardwright.render.template import PRESTOP_S, TEARDOWN_S
from shardwright.topology.types import PodFacts

_LOG = logging.getLogger(__name__)

ASK_S: Final = 10.0
"""How long an engine that is asked for a token has at least."""
SLICE_S: Final = 0.02
"""How long a look may hold the loop."""
_KNOWN: Final = 1024
Ask = Callable[[str, str, float], Awaitable[Answer]]
"""Asks the engine at an address, by its model's served name, within so many seconds."""


@dataclass(slots=True, kw_only=True)
class Watchdog:
    """See the module. `clock` gives seconds."""

    store: Store
    planning: Planning
    replacer: Replacer
    ask: Ask
    clock: Callable[[], float]
    least_s: float = LEAST_S
    ask_s: float = ASK_S
    _silences: dict[PodKey, Silence] = field(default_factory=dict)
    _absent: dict[PodKey, float] = field(default_factory=dict)
    """Pods that do not serve, and since when."""
    _asking: dict[ServiceKey, asyncio.Task[None]] = field(default_factory=dict)
    _longest: dict[tuple[object, ...], float | None] = field(default_factory=dict)

    def targets(self) -> list[Target]:
        """Return the engines to read, and forget those that are not."""
        found: dict[PodKey, Target] = {}
        absent: dict[PodKey, float] = {}
        now = self.clock()
        with self.replacer.metrics.cpu("watch"):
            for key in self._watched():
                for pod in self.store.pods_of(key).values():
                    name = (pod.namespace, pod.name)
                    if self._serves(pod):
                        found[name] = Target(name, pod.address)
                    else:
                        absent[name] = self._absent.get(name, now)
            self._absent = absent
            self._silences = {pod: silence for pod, silence in self._silences.items() if pod in found}
        return list(found.values())

    async def look(self, readings: Readings) -> None:
        """Take note of what the engines report, and ask those that seem to hang."""
        self.replacer.tidy(self.store)
        if readings.failure:
            return
        until = self.clock() + SLICE_S
        for key in self._watched():
            entry = self.store.services.get(key)
            if entry is not None and entry.service is not None:
                with self.replacer.metrics.cpu("watch"):
                    self._look(entry, entry.service, readings)
            if self.clock() > until:
                await asyncio.sleep(0)
                until = self.clock() + SLICE_S

    async def close(self) -> None:
        """Ask nobody any more."""
        await end(self._asking.values())

    def _watched(self) -> list[ServiceKey]:
        services = self.store.services
        return [
            key
            for key, proposal in self.planning.proposals.items()
            if proposal.core is not None and key in services and not services[key].deleting
        ]

    def _serves(self, pod: PodFacts) -> bool:
        return serves(pod) and self.store.reachable(pod)

    def _look(self, entry: ServiceEntry, service: LLMService, readings: Readings) -> None:
        key, now = entry.key, self.clock()
        proposal = self.planning.proposals[key]
        silences: dict[str, Silence | None] = {}
        bounds: dict[str, float] = {}
        for pod in self.store.pods_of(key).values():
            if not self._serves(pod):
                continue
            name = (pod.namespace, pod.name)
            silence = follow(self._silences.get(name), sample_of(readings, name, pod.restarts, now))
            if silence is None:
                self._silences.pop(name, None)
                self.replacer.recall(entry, pod.name)
                continue
            if silence.samples == 1:  # a token came
                self.replacer.recall(entry, pod.name)
            self._silences[name] = silence
            longest_s = self._longest_silence_s(entry, service, proposal, pod)
            if longest_s is not None:
                silences[pod.name], bounds[pod.name] = silence, bound_s(longest_s, self.least_s)
        found = first_of(silences, bounds)
        if found is None or key in self._asking:
            return
        pod, bound = self.store.pods_of(key)[found], bounds[found]
        if self._waits(entry, service, proposal):
            self.replacer.note(entry, _fault(pod, bound, Step.WAITS))
            return
        task = asyncio.get_running_loop().create_task(self._settle(entry, service, pod, bound))
        self._asking[key] = task
        task.add_done_callback(lambda _: self._asking.pop(key, None))

    async def _settle(self, entry: ServiceEntry, service: LLMService, pod: PodFacts, bound: float) -> None:
        """Ask an engine that seems to hang for a token, and replace it when none comes."""
        key, name = entry.key, (pod.namespace, pod.name)
        model = service.spec.model.served_name or service.metadata.name
        # A prompt that has only just come to an engine which was idle is through by then, too.
        answer = await self.ask(pod.address, model, self.ask_s if bound <= self.least_s else bound / 2)
        live, proposal = self.store.pods_of(key).get(pod.name), self.planning.proposals.get(key)
        known = self.store.services.get(key)
        if known is None or known.uid != entry.uid or known.deleting or proposal is None or live is None:
            return
        if not self._serves(live) or live.restarts != pod.restarts:
            return
        silence = self._silences.get(name)
        if silence is None or silence.samples == 1:
            return  # a token came meanwhile
        if answer is not Answer.SILENCE:
            # Not before another time as long: an idle engine may report what was in its last batch.
            self._silences[name] = Silence(silence.last, silence.last)
            if answer is Answer.UNKNOWN:
                self.replacer.note(entry, _fault(pod, bound, Step.UNASKED))
            return
        if self._waits(entry, service, proposal):
            self.replacer.note(entry, _fault(pod, bound, Step.WAITS))
            return
        _LOG.warning("engine hangs service=%s pod=%s node=%s bound_s=%.0f", key, pod.name, pod.node, bound)
        await self.replacer.replace(known, live, _fault(pod, bound, Step.REPLACED))

    def _waits(self, entry: ServiceEntry, service: LLMService, proposal: Proposal) -> bool:
        """Whether another replica of the service is on its way in or out.

        Each is waited for as long as a drain and a start may take: one that never comes is no reason to keep
        a hung engine.
        """
        key, core = entry.key, proposal.core
        resolved = entry.resolved or resolve(service.spec)
        start_s = startup_budget(core, source_type(service.spec)).engine_s if core is not None else 0
        patience_s = PRESTOP_S + resolved.drain_seconds + TEARDOWN_S + start_s
        now = self.clock()
        for pod in self.store.pods_of(key).values():
            name = (pod.namespace, pod.name)
            if not self._serves(pod) and now - self._absent.setdefault(name, now) < patience_s:
                return True
        return False

    def _longest_silence_s(
        self, entry: ServiceEntry, service: LLMService, proposal: Proposal, pod: PodFacts
    ) -> float | None:
        """Return the longest silence that is predicted of a pod's engine; None when its speed is not."""
        core = proposal.core if pod.revision == proposal.target else self._recorded(entry, pod.revision)
        if core is None:
            return None
        resolved = entry.resolved or resolve(service.spec)
        key = (core.inputs_digest, core.parallelism, core.limits, core.correction, entry.engine_version)
        if key not in self._longest:
            if len(self._longest) >= _KNOWN:
                self._longest.clear()
            self._longest[key] = longest_silence_s(core, resolved, engine_class(entry.engine_version))
        return self._longest[key]

    def _recorded(self, entry: ServiceEntry, revision: str) -> Plan | None:
        name = workload_name(entry.key.name, revision)
        record = self.store.children_of(entry.key).get(("ControllerRevision", name))
        if record is None or not record.belongs_to(entry.uid):
            return None
        return self.planning.core_of(entry.uid, record)


def _fault(pod: PodFacts, bound: float, step: Step) -> EngineFault:
    return EngineFault(
        reason=Reason.ENGINE_STALLED, node=pod.node, step=step, pod=pod.name, said=f"{bound:.0f} s"
    )

"""What the autoscaler needs that only the controller knows: a service's pods as counts, its plan as terms.

Decides how pods count against the size that is wanted. No I/O.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.defaults import Resolved
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.autoscaler.fleet import Counts
from shardwright.autoscaler.planned import replica_model, scaling_plan
from shardwright.autoscaler.replica import ReplicaModel
from shardwright.autoscaler.signals import ScalingPlan
from shardwright.catalog.engines import engine_class
from shardwright.cluster.facts import ServiceEntry
from shardwright.planner.signals import Signal
from shardwright.planner.types import Plan
from shardwright.render.startup import startup_budget
from shardwright.render.storage import source_type
from shardwright.topology.types import PodFacts

UNSCHEDULABLE: Final = "Unschedulable"
_MODELS: Final = 1024


def serves(pod: PodFacts) -> bool:
    """Whether a pod takes requests."""
    return pod.ready and pod.serving and not pod.terminating


def edges_of(entry: ServiceEntry) -> Mapping[Signal, float]:
    """Return the targets of a service as edges of its engines' histograms."""
    if entry.resolved is None:
        return {}
    targets = entry.resolved.targets
    return {
        Signal.TTFT_WITHIN: targets.ttft.milliseconds / 1000,
        Signal.TPOT_WITHIN: targets.tpot.milliseconds / 1000,
    }


def counts(pods: Sequence[PodFacts], *, ready: int, target: str, desired: int, granted: int) -> Counts:
    """Return the pods as the law counts them: those that do not leave are always as many as are wanted.

    A replica that is asked for and not there yet starts; one that the ledger has no place for, or the
    scheduler no node, finds none. Pods beyond the size, of an earlier revision or of a larger size, leave.
    While an earlier revision has pods, its GPUs are what the others wait for: that is no lack of nodes.
    `ready`: of the pods, those that serve.
    """
    staying = [pod for pod in pods if not pod.terminating]
    serving = min(ready, desired)
    nowhere = 0
    if all(pod.revision == target for pod in staying):
        stuck = sum(1 for pod in staying if not pod.node and pod.trouble == UNSCHEDULABLE)
        nowhere = min(max(stuck, desired - granted), desired - serving)
    return Counts(
        ready=serving,
        starting=desired - serving - nowhere,
        draining=len(pods) - len(staying) + max(0, len(staying) - desired),
        unschedulable=nowhere,
    )


@dataclass(slots=True)
class Plans:
    """The law's plan of each service, made once for what it depends on."""

    _models: dict[tuple[object, ...], ReplicaModel | None] = field(default_factory=dict)

    def of(
        self,
        core: Plan,
        spec: LLMServiceSpec,
        resolved: Resolved,
        engine_version: str,
        *,
        bounds: tuple[int, int | None],
        max_gpus: int,
    ) -> ScalingPlan | None:
        """Return what the law decides within; None when no speed is predicted of the plan."""
        model = self._model(core, resolved, engine_version)
        if model is None:
            return None
        return scaling_plan(
            core,
            spec,
            resolved,
            model,
            cold_start_s=float(startup_budget(core, source_type(spec)).engine_s),
            min_replicas=bounds[0],
            max_replicas=bounds[1],
            max_gpus=max_gpus,
            idle_s=resolved.scale.idle_seconds if bounds[0] == 0 else None,
        )

    def _model(self, core: Plan, resolved: Resolved, engine_version: str) -> ReplicaModel | None:
        tpot = resolved.targets.tpot.milliseconds
        key = core.inputs_digest, core.correction, engine_version, resolved.traffic, tpot
        if key not in self._models:
            if len(self._models) >= _MODELS:
                self._models.clear()
            self._models[key] = replica_model(core, resolved, engine_class(engine_version))
        return self._models[key]

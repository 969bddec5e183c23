"""More replicas are asked for than `pool.maxGPUs` holds.

Decides when the budget is why fewer run, and the sentence that says so. Never decides how many run.
"""

from dataclasses import dataclass

from shardwright.api.defaults import Resolved
from shardwright.api.llmservice import LLMServiceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCut:
    """What the budget takes from the replicas that are asked for."""

    asked: int
    run: int
    gpus_per_replica: int
    max_gpus: int
    asker: str
    """The field that asks."""
    fewer: str
    """How fewer are asked for."""

    @property
    def sentence(self) -> str:
        """What is cut, by what, and what to write instead; no full stop at its end."""
        each = self.gpus_per_replica
        return (
            f"{self.asker} asks for {self.asked} replicas of {each} GPU{'s' if each > 1 else ''} each, and "
            f"pool.maxGPUs is {self.max_gpus}, so that only {self.run} of them can run: write "
            f"spec.pool.maxGPUs: {self.asked * each} or more, or {self.fewer}"
        )


def cut_by_budget(
    spec: LLMServiceSpec, resolved: Resolved, *, gpus_per_replica: int, run: int
) -> BudgetCut | None:
    """Return what `pool.maxGPUs` takes from what `scaling` or /scale ask for, when `run` replicas are wanted.

    None when nothing is cut, or when one more would be within the budget, so that something else is why.
    """
    asked, each = resolved.scale.planned_replicas, max(1, gpus_per_replica)
    if asked <= run or (run + 1) * each <= spec.pool.max_gpus:
        return None
    asker = "spec.replicas" if resolved.scale.mode == "External" else "spec.scaling.minReplicas"
    fewer = f"{asker}: {run}"
    if resolved.scale.mode != "External" and (spec.scaling is None or spec.scaling.min_replicas is None):
        asker = "spec.availability.surviveNodeLoss"
        fewer = "leave that out"
    return BudgetCut(
        asked=asked,
        run=run,
        gpus_per_replica=each,
        max_gpus=spec.pool.max_gpus,
        asker=asker,
        fewer=fewer,
    )

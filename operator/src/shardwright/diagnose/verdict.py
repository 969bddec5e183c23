"""What a condition says before it is written, and what several of them ask of the facts. Decides nothing."""

from dataclasses import dataclass
from typing import Literal

from shardwright.api.reasons import Reason
from shardwright.diagnose.facts import ServiceFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Status, reason and message of a condition."""

    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: str

    @property
    def holds(self) -> bool:
        """Whether the condition is true."""
        return self.status == "True"


def running(facts: ServiceFacts) -> bool:
    """Whether there is any pod."""
    return any(load.pods for load in facts.workloads)

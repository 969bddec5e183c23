"""Why the autoscaler wants a size, what held it back, and what no size can mend, each with one sentence.

Decides the vocabulary of scaling decisions. Never decides which one applies.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class ScalingRule(StrEnum):
    """The rule that set the size."""

    DEMAND = "Demand"
    RECURRING_BURSTS = "RecurringBursts"
    RECENT_PEAK = "RecentPeak"
    STEADY = "Steady"
    HELD = "Held"
    MINIMUM = "Minimum"
    MAXIMUM = "Maximum"
    GPU_BUDGET = "GPUBudget"
    NO_PLACE = "NoPlace"
    IDLE = "Idle"
    WOKEN = "Woken"


class ScalingVeto(StrEnum):
    """Why a size that the signals ask for was not taken."""

    SIGNALS_UNKNOWN = "SignalsUnknown"
    FLEET_CHANGING = "FleetChanging"
    QUEUE_STANDS = "QueueStands"
    SURVIVORS_TOO_FULL = "SurvivorsTooFull"
    ONE_STEP_AT_A_TIME = "OneStepAtATime"
    ROUTERS_SILENT = "RoutersSilent"


class InfeasibleTerm(StrEnum):
    """What keeps a target from being met at any size."""

    PROMPT_TOO_LONG = "PromptTooLong"
    STEP_TOO_SLOW = "StepTooSlow"


class UnknownSignal(StrEnum):
    """What is not known of the engines of a service."""

    SIGNALS_UNKNOWN = "SignalsUnknown"
    TTFT_NOT_AN_EDGE = "TTFTNotAnEdge"
    TPOT_NOT_AN_EDGE = "TPOTNotAnEdge"
    ROUTERS_SILENT = "RoutersSilent"


RULE_SENTENCES: Final[Mapping[ScalingRule, str]] = MappingProxyType(
    {
        ScalingRule.DEMAND: "The requests that arrive now need this many replicas.",
        ScalingRule.RECURRING_BURSTS: (
            "Bursts of the last half hour keep coming back, and this many replicas take them; it falls when "
            "they stay away."
        ),
        ScalingRule.RECENT_PEAK: (
            "The last minutes needed this many; a size falls only when all of them need less."
        ),
        ScalingRule.STEADY: "The size fits the load; nothing to do.",
        ScalingRule.HELD: "A smaller size would do, but a veto holds this one; the vetoes say why.",
        ScalingRule.MINIMUM: "The load needs fewer; scaling.minReplicas asks for this many.",
        ScalingRule.MAXIMUM: (
            "The load needs more than scaling.maxReplicas allows; raise it if targets are missed."
        ),
        ScalingRule.GPU_BUDGET: (
            "The load needs more than pool.maxGPUs pays for; raise it if targets are missed."
        ),
        ScalingRule.NO_PLACE: (
            "Replicas that were asked for find no node, so the size goes back to those that have one; it is "
            "tried again later: add nodes or free GPUs."
        ),
        ScalingRule.IDLE: (
            "No request for scaling.scaleToZero.idleSeconds, so that no replica runs; the next request "
            "starts one, and waits for it."
        ),
        ScalingRule.WOKEN: (
            "A request came while no replica ran; one runs until it has been ready and idle for "
            "scaling.scaleToZero.idleSeconds."
        ),
    }
)
VETO_SENTENCES: Final[Mapping[ScalingVeto, str]] = MappingProxyType(
    {
        ScalingVeto.SIGNALS_UNKNOWN: (
            "Some of the engines' metrics are missing or stale, and a size never falls on what is not known; "
            "see SLOMet for what the source answers."
        ),
        ScalingVeto.FLEET_CHANGING: (
            "Replicas still start or drain; the size falls when the last change is done."
        ),
        ScalingVeto.QUEUE_STANDS: "More requests wait than replicas are ready; the size does not fall.",
        ScalingVeto.SURVIVORS_TOO_FULL: (
            "The replicas that stay could not hold what runs now within 80 % of their KV cache."
        ),
        ScalingVeto.ONE_STEP_AT_A_TIME: "At most a third of the replicas leaves at once; the rest follows.",
        ScalingVeto.ROUTERS_SILENT: (
            "The service is idle, but not all of its routers answer that they would hold requests, so that "
            "the last replica stays."
        ),
    }
)
INFEASIBLE_SENTENCES: Final[Mapping[InfeasibleTerm, str]] = MappingProxyType(
    {
        InfeasibleTerm.PROMPT_TOO_LONG: (
            "More prompts than may miss are too long to be computed within slo.ttft even on an idle replica; "
            "more replicas do not help: raise the target or plan for longer prompts, which takes more GPUs "
            "per replica."
        ),
        InfeasibleTerm.STEP_TOO_SLOW: (
            "One step takes longer than slo.tpot even for a single request; more replicas do not help: raise "
            "the target or plan more GPUs per replica."
        ),
    }
)
UNKNOWN_SENTENCES: Final[Mapping[UnknownSignal, str]] = MappingProxyType(
    {
        UnknownSignal.SIGNALS_UNKNOWN: (
            "Arrivals, queue or KV cache of a ready engine are not known, so the size does not fall; see "
            "that port http of every pod is scraped, or can be reached by the operator."
        ),
        UnknownSignal.TTFT_NOT_AN_EDGE: (
            "slo.ttft is no edge of the engines' histogram, so late first tokens are not counted and the "
            "size follows the load alone; use a newer engine.version, which takes edges, or write a target "
            "that is an edge."
        ),
        UnknownSignal.TPOT_NOT_AN_EDGE: (
            "slo.tpot is no edge of the engines' histogram, so slow requests are not counted and the "
            "size follows the load alone; use a newer engine.version, which takes edges, or write a target "
            "that is an edge."
        ),
        UnknownSignal.ROUTERS_SILENT: (
            "The service is idle, and whether its routers would hold requests is not known, so that it is "
            "not scaled to zero; see that the Service selects routers which are ready, and that the operator "
            "reaches port 8001 of their pods."
        ),
    }
)

"""Everything that conditions and status are derived from, observed by whoever calls.

Decides what counts as a fact. Never reads a cluster or a clock: `now` is handed in, and it only ends up in a
condition whose status has changed.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.api.status import (
    CalibrationStatus,
    Condition,
    FailedStartStatus,
    PlanStatus,
    ProposalStatus,
    RolloutStatus,
    ScalingStatus,
)
from shardwright.diagnose.budget import BudgetCut
from shardwright.planner.types import NoPlan, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds GPUs that this service would need."""

    name: str
    """`namespace/name` of a pod, or of an LLMService when the GPUs are reserved."""
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementFacts:
    """What the ledger answered for the plan in force."""

    wanted: int
    """Replicas that scaling asks for now, as far as pool.maxGPUs goes."""
    granted: int
    """Replicas that have a reserved or bound place."""
    gpus_per_replica: int
    given_up: bool = False
    """No GPUs are held for the others, since their pods cannot be made."""
    holders: tuple[Holder, ...] = ()
    """Who holds the GPUs that are missing, largest first."""
    detail: str = ""
    """One sentence of the placement, such as which GPUs are stranded. No live figures that flicker."""
    elsewhere: tuple[str, ...] = ()
    """Other GPU products of the pool that have room now, and on which the service could be planned."""
    cut: BudgetCut | None = None
    """What pool.maxGPUs takes from the replicas that are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTrouble:
    """The same trouble on one or more pods of a workload."""

    reason: str
    """As Kubernetes reports it: CrashLoopBackOff, OOMKilled, ErrImagePull, Unschedulable, ..."""
    message: str = ""
    """The last message of the container or of the PodScheduled condition."""
    pods: int = 1
    last_exit: str = ""
    """Reason of lastState.terminated: OOMKilled, Error, Completed."""
    exit_code: int | None = None
    container: str = ""
    """Its name when it is another one than the engine, else empty."""
    gpu_fault: str = ""
    """The words that name a broken GPU (`diagnose.gpu_fault`); empty when there are none."""
    from_s: float = 0.0
    until_s: float = inf
    """Between which times it is worth telling, in seconds since the epoch."""


class Step(StrEnum):
    """How far a replacement is."""

    REPLACED = "Replaced"
    WAITS = "Waits"
    """For other replicas of the service, since one at a time is replaced."""
    UNASKED = "Unasked"
    """It cannot be asked for a token, and is not replaced for what its metrics say alone."""
    REFUSED = "Refused"
    """The operator may not delete the pod."""
    LEFT = "Left"
    """Too many were replaced lately, so the kubelet restarts this one, ever more slowly."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class EngineFault:
    """An engine that is or should be replaced."""

    reason: Reason
    node: str
    step: Step
    pod: str
    said: str = ""
    """EngineStalled: the bound, such as `60 s`. GPUFault: the words by which it was known."""
    kept_off: str = ""
    """GPUFault: until when new pods are kept off the node; empty when they are not."""
    marked: bool = False
    """GPUFault: the node says so itself, so that the scheduler knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignEdit:
    """What somebody else added to a child of ours."""

    child: str
    """`Kind/name`."""
    field: str
    """Such as `spec.paused`."""
    manager: str
    """The field manager that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """One Deployment of ours and its pods. `ready` counts pods that are ready, serving, not terminating."""

    name: str
    revision: str
    summary: str
    """Plan summary of its revision, such as `H100 TP2 ×4`."""
    desired: int
    """`spec.replicas` of the live Deployment; 0 when it does not exist yet."""
    pods: int = 0
    """Pods that are not terminating."""
    ready: int = 0
    deadline_exceeded: bool = False
    """The Deployment's Progressing condition says ProgressDeadlineExceeded."""
    create_failure: str = ""
    """Why its pods cannot be created, in the words of the API server; empty when they can."""
    troubles: tuple[PodTrouble, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterFacts:
    """The routers of a service."""

    desired: int
    ready: int
    in_front: bool
    """The Service selects them."""
    stuck: bool = False
    """Their Deployment's Progressing condition says ProgressDeadlineExceeded."""
    create_failure: str = ""
    """Why their pods cannot be created, in the words of the API server; empty when they can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFacts:
    """A Job that fetches the weights of the target, for which its engines wait."""

    job: str
    claim: str
    minutes: int
    """How long it may take."""
    since: str = ""
    """RFC 3339; empty before it is there."""
    ended: str = ""
    """Why it failed; empty while it has not."""
    trouble: PodTrouble | None = None
    """What is wrong with its pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsFacts:
    """What the engines' metrics say, and why they say nothing."""

    calibration: CalibrationStatus | None = None
    """Of the target revision; None before anything was measured."""
    failure: str = ""
    """Why no metrics can be read at all, without figures that change; empty when they can."""
    not_scraped: bool = False
    """Prometheus answers, but has had no series of any pod of the service for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFacts:
    """A plan that the spec leads to while another one is in force, or none."""

    proposal: ProposalStatus
    """As it is on record: what would run when it is approved."""
    in_force: str
    """Hash of the revision in force; empty when there is none."""
    manual: bool
    """planPolicy is Manual, so it waits for a person; else spec.approvedRevision keeps another in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalculatedFacts:
    """What planning the same spec again leads to, counting with what was measured."""

    proposal: ProposalStatus | None = None
    """Another plan, as it is on record; None: the same arrangement, or none."""
    refused: str = ""
    """Why there is no plan, when there is none."""
    replicas: int = 0
    """Replicas that the load takes of the same arrangement, where that is more than run; else 0."""
    automatic: bool = False
    """planPolicy Auto may put the proposal in force."""
    left_before: bool = False
    """The proposal was in force before, so that Auto does not go back to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFacts:
    """A rollout that is under way."""

    strategy: str
    step: str
    """A step of `api.status.RolloutStatus`."""
    from_revision: str
    to_revision: str
    ready: int
    """Replicas of the new revision that answer."""
    desired: int
    missing_gpus: int = 0
    """GPUs that are missing for the next step; 0 when it does not wait for room."""
    max_gpus: int = 0
    """pool.maxGPUs that the next step takes, when that is what it waits for; else 0."""
    gpus_per_replica: int = 1
    claim: str = ""
    """The claim that it waits for."""
    canary_step: int = 0
    """Step of the canary, from 1; 0 without one."""
    canary: str = ""
    """What is known at its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFacts:
    """A revision that did not start and was given up."""

    name: str
    """Of its ControllerRevision."""
    revision: str
    summary: str
    failed: FailedStartStatus
    back_to: str
    """Hash of the revision that runs in its place."""
    approved: bool
    """spec.approvedRevision names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """All facts about one LLMService at one moment.

    Missing facts are None or empty and give Unknown or a reason that says what is waited for, never a False
    that was not observed.
    """

    namespace: str
    name: str
    generation: int
    now: str
    """RFC 3339 in UTC, such as 2026-11-29T12:00:00Z."""
    previous: tuple[Condition, ...] = ()
    """Conditions of the last status, whose transition times are kept while the status stays the same."""

    problems: tuple[Problem, ...] = ()
    """Of the spec and of what it refers to (Secrets, claims, ConfigMaps), blocking or not."""
    child_conflicts: tuple[str, ...] = ()
    """Objects with a child's name that are not ours, as `Kind/name`."""
    child_refusals: tuple[str, ...] = ()
    """What the API server refuses to store of what nothing that serves rests on, in sentences."""
    foreign_autoscalers: tuple[str, ...] = ()
    """HorizontalPodAutoscalers (or the like) aimed at a child of ours, as `Kind/name`."""
    idle_autoscalers: tuple[str, ...] = ()
    """The same aimed at the LLMService, while scaling is not External and their word counts for nothing."""
    foreign_edits: tuple[ForeignEdit, ...] = ()
    """What others added to children of ours."""

    decision: Plan | NoPlan | None = None
    """What the planner says of this generation; None while it was not asked (problems, no pool known yet)."""
    plan: PlanStatus | None = None
    """The plan in force, from `planner.report.plan_status` or the stored revision; kept while a newer spec
    has none."""
    target_revision: str = ""
    """Hash of the revision that this generation should run; empty while there is none."""
    waiting: WaitingFacts | None = None
    """What the spec leads to, where that is not in force; None when nothing waits."""
    recalculated: RecalculatedFacts | None = None
    """What planning anew leads to; None when the plan in force is as predicted, or nothing is known."""
    needed_replicas: int = 1
    """Replicas the user was promised at least: scaling.minReplicas, or spec.replicas. 0: scaled to zero."""
    desired_replicas: int = 0
    """Replicas the operator wants now (External: spec.replicas; Auto: the autoscaler's or minReplicas)."""
    asleep: bool = False
    """No replica is wanted since the service was idle: the next request that the routers hold starts one."""
    placement: PlacementFacts | None = None
    rollout: RolloutFacts | None = None
    """The rollout that is under way; None when none is."""
    previous_rollout: RolloutStatus | None = None
    """That of the last status, whose beginning is kept while it goes on."""
    failed: FailedFacts | None = None
    """The revision that would be in force, had it started."""
    ends_first: str = ""
    """A claim for one node, for which old replicas end before new ones are made; empty when none do."""
    fetch: FetchFacts | None = None
    """The Job that the target's engines wait for; None when they wait for none."""
    staggered: bool = False
    """Engines that fetch their weights by themselves wait for others that do."""
    faults: tuple[EngineFault, ...] = ()
    """Engines that the operator replaces by itself."""
    workloads: tuple[WorkloadFacts, ...] = ()
    """All workloads of the service, old revisions included."""
    router: RouterFacts | None = None
    """None where no router is asked for."""
    metrics: MetricsFacts = field(default_factory=MetricsFacts)
    scaling: ScalingStatus | None = None
    """How the size came about, as it was last worth telling; None where the planned count holds."""

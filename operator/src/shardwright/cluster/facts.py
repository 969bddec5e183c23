"""The small facts kept of observed objects, and how they are read from raw objects. Pure.

Decides what is remembered of a child, a service and an autoscaler. Bodies are not kept, but for the data
of our ControllerRevisions, as JSON: re-reading them would cost one request for each service at every start.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from math import inf
from sys import intern
from typing import Final, NamedTuple, TypeVar

from msgspec import Raw
from pydantic import BaseModel, ValidationError

from shardwright.api.defaults import Resolved
from shardwright.api.llmservice import KIND, LLMService, ServiceKey
from shardwright.api.names import ENGINE_CONTAINER, LABEL_REVISION, LABEL_ROLE, LABEL_SERVICE, ROLE_ROUTER
from shardwright.api.problems import Problem
from shardwright.api.status import CalibrationStatus, Condition, RolloutStatus, ScalingStatus
from shardwright.catalog.engines import DEFAULT_ENGINE_VERSION
from shardwright.cluster.drift import additions, digest, live_digest, mark
from shardwright.cluster.json import JsonObject, dumps, loads
from shardwright.diagnose.facts import PodTrouble
from shardwright.diagnose.gpu_fault import gpu_fault
from shardwright.diagnose.trouble import NO_SCHEDULER
from shardwright.render.approval import led_to
from shardwright.render.failed_start import FailedStart, read_annotation
from shardwright.render.fetch import ANNOTATION_FETCHED, Fetch, read_fetch

M = TypeVar("M", bound=BaseModel)

_QUIET: Final = frozenset({"", "ContainerCreating", "PodInitializing", "Completed"})
_LONGEST_TROUBLE: Final = 1024
OOM_TOLD_S: Final = 3600.0
"""How long it is told that a container which runs again was killed for its memory: our choice. What happens
again within that time is worth a look, and an old kill says nothing of an engine that has served since."""
NO_SCHEDULER_S: Final = 60.0
"""How long a pod may be without a word of any scheduler, which takes a second where there is one."""
_DEFAULT_SCHEDULER: Final = "default-scheduler"
COMPLETE: Final = "Complete"
"""How a Job ends that has done what it was made for."""

ChildKey = tuple[str, str, str]
"""(kind, namespace, name)."""


class ChildFacts(NamedTuple):
    """An object with our label. Whether it is ours is for `belongs_to` to say, not for the label."""

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    digest: bytes
    """Of what we say in it; see `cluster.drift`. Empty: not known, so apply again."""
    mark: bytes
    """Of what we own in it; see `cluster.drift`. Empty: our field manager has applied nothing to it."""
    service: str
    """Name of the LLMService that its label names."""
    revision: str
    owner_uid: str
    """uid of the LLMService that is its controller; empty when none is."""
    owner_name: str
    controlled: bool
    """Something is its controller, an LLMService or another."""
    edition: str
    """Changes when somebody changes what it says: the generation where there is one, else the version."""
    deleting: bool = False
    replicas: int = 0
    """Deployment: spec.replicas."""
    deadline_exceeded: bool = False
    """Deployment: its Progressing condition says ProgressDeadlineExceeded."""
    create_failure: str = ""
    """Deployment: why its pods cannot be created, in the words of its ReplicaFailure condition."""
    additions: tuple[tuple[str, str], ...] = ()
    """What others say in its spec beyond what we say: (field, manager)."""
    number: int = 0
    """ControllerRevision: its number."""
    data: bytes = b""
    """ControllerRevision: its data, as JSON."""
    template_digest: str = ""
    """ControllerRevision: digest of the spec that it was made for."""
    failed: FailedStart | None = None
    """ControllerRevision: that it did not start."""
    role: str = ""
    """What its label says it is part of: the engine, the router, or all."""
    ready: int = 0
    """Deployment of routers: how many are ready. Of engines, their pods tell."""
    fetch: Fetch | None = None
    """ControllerRevision: the Job that fetches its weights; None when engines fetch by themselves."""
    fetched: bool = False
    """ControllerRevision: its weights are in the cache claim."""
    since: str = ""
    """Job: when it began."""
    ended: str = ""
    """Job: Complete, or why it failed; empty while it runs."""

    @property
    def key(self) -> ServiceKey:
        """The service that its label names."""
        return ServiceKey((self.namespace, self.service))

    @property
    def child_key(self) -> ChildKey:
        """Identity among children."""
        return self.kind, self.namespace, self.name

    @property
    def is_workload(self) -> bool:
        """Whether it is the Deployment of a revision's engines."""
        return self.kind == "Deployment" and self.role != ROLE_ROUTER

    def belongs_to(self, uid: str) -> bool:
        """Whether it is a child of the LLMService that its label names, when that has this uid.

        Its controller says so. An object without one is that service's when our field manager wrote it: its
        owner reference was taken off, by hand or by a deletion that leaves orphans.
        """
        return self.owner_uid == uid or (not self.controlled and bool(self.mark))

    def stored(self) -> JsonObject:
        """Unpack the data of a ControllerRevision."""
        found: JsonObject = loads(self.data)
        return found


class AutoscalerFacts(NamedTuple):
    """A HorizontalPodAutoscaler's target."""

    namespace: str
    name: str
    target_kind: str
    target_name: str


@dataclass(slots=True, kw_only=True)
class ServiceEntry:
    """An LLMService as it is now."""

    key: ServiceKey
    uid: str
    generation: int
    resource_version: str
    created_s: float
    deleting: bool
    spec_digest: bytes
    service: LLMService | None
    """None when the spec cannot be read; then `problems` says why."""
    problems: tuple[Problem, ...]
    status: "StatusFacts"
    resolved: Resolved | None = None
    """The spec with its defaults; None when the spec cannot be read."""

    @property
    def engine_version(self) -> str:
        """Version of vLLM that it asks for, the default one where it names none."""
        return (self.resolved and self.resolved.engine_version) or DEFAULT_ENGINE_VERSION


class StatusFacts(NamedTuple):
    """What of a live status is remembered: enough to know what changes, and since when conditions hold."""

    digest: bytes = b""
    observed_generation: int = -1
    plan_revision: str = ""
    plan_replicas: int = 0
    """Replicas that were wanted when it was written."""
    proposal_revision: str = ""
    """The revision that the spec leads to, when that is not the one in force."""
    conditions: tuple[Condition, ...] = ()
    calibration: CalibrationStatus | None = None
    rollout: RolloutStatus | None = None
    scaling: ScalingStatus | None = None

    def holds(self, kind: str) -> bool:
        """Whether a condition is True."""
        return any(c.type == kind and c.status == "True" for c in self.conditions)


def child_facts(obj: JsonObject, before: ChildFacts | None = None) -> ChildFacts:
    """Read a child, whole or what a watch gives of it; its digest is then that of `before`, if that holds.

    It holds while our entry in managedFields is the same: then nobody has changed a value of ours. Raises
    KeyError for a part of a ControllerRevision: what is not known of a record is never taken for empty.
    """
    facts = seen_facts(obj["kind"], obj["metadata"])
    if isinstance(obj.get("data"), Raw):
        obj = obj | {"data": loads(obj["data"])}
    whole = _whole(obj)
    if whole or "spec" in obj or facts.kind in {"ControllerRevision", "Job"}:
        facts = _with_content(facts, obj)
    if whole:
        return facts._replace(digest=live_digest(obj))
    if before is not None and same_by_us(before, facts):
        return facts._replace(digest=before.digest)
    return facts


def same_by_us(before: ChildFacts, after: ChildFacts) -> bool:
    """Whether two looks at an object show the same of what we say."""
    return (before.uid, before.mark, before.replicas) == (after.uid, after.mark, after.replicas)


def _whole(obj: JsonObject) -> bool:
    """Whether all that we may have said is there: a watch gives metadata, and a Deployment's progress."""
    if obj["kind"] == "Deployment":
        return "template" in obj.get("spec", ())
    return not obj.keys().isdisjoint(("spec", "data", "automountServiceAccountToken", "roleRef"))


def written_facts(obj: JsonObject, metadata: JsonObject, digest_applied: bytes) -> ChildFacts:
    """Read a child that we have just applied as `obj` from the metadata that came back."""
    return _with_content(seen_facts(obj["kind"], metadata), obj)._replace(digest=digest_applied)


def seen_facts(kind: str, metadata: JsonObject) -> ChildFacts:
    """Read what the metadata of a child tells."""
    labels = metadata.get("labels") or {}
    owner = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), None)
    by_service = owner is not None and owner.get("kind") == KIND
    return ChildFacts(
        kind=intern(kind),
        namespace=intern(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        digest=b"",
        mark=mark(metadata),
        service=labels.get(LABEL_SERVICE, ""),
        revision=labels.get(LABEL_REVISION, ""),
        owner_uid=owner["uid"] if owner and by_service else "",
        owner_name=owner["name"] if owner and by_service else "",
        controlled=owner is not None,
        edition=str(metadata.get("generation") or metadata["resourceVersion"]),
        deleting="deletionTimestamp" in metadata,
        additions=additions(metadata),
        role=intern(labels.get(LABEL_ROLE, "")),
    )


def _with_content(facts: ChildFacts, obj: JsonObject) -> ChildFacts:
    if facts.kind == "Deployment":
        replicas = obj["spec"].get("replicas")
        return facts._replace(
            replicas=1 if replicas is None else replicas,
            deadline_exceeded=_deadline_exceeded(obj),
            create_failure=_create_failure(obj),
            ready=(obj.get("status") or {}).get("readyReplicas", 0) if facts.role == ROLE_ROUTER else 0,
        )
    if facts.kind == "ControllerRevision":
        data = obj.get("data") or {}
        return facts._replace(
            number=int(obj["revision"]),
            data=dumps(data),
            template_digest=str(data.get("digest", "")),
            failed=read_annotation(obj["metadata"].get("annotations")),
            fetch=read_fetch(data),
            fetched=bool((obj["metadata"].get("annotations") or {}).get(ANNOTATION_FETCHED)),
        )
    if facts.kind == "Job":
        status = obj.get("status") or {}
        since = status.get("startTime") or obj["metadata"].get("creationTimestamp") or ""
        return facts._replace(since=since, ended=_ended(status))
    return facts


def autoscaler_facts(obj: JsonObject) -> AutoscalerFacts:
    """Read a HorizontalPodAutoscaler."""
    metadata, target = obj["metadata"], obj["spec"]["scaleTargetRef"]
    return AutoscalerFacts(
        intern(metadata["namespace"]), metadata["name"], target.get("kind", ""), target.get("name", "")
    )


def status_facts(status: JsonObject) -> StatusFacts:
    """Read a status; conditions that cannot be read are left out."""
    return StatusFacts(
        digest=digest(status),
        observed_generation=status.get("observedGeneration", -1),
        plan_revision=(status.get("plan") or {}).get("revision", ""),
        plan_replicas=(status.get("plan") or {}).get("replicas", 0),
        proposal_revision=led_to(status.get("proposal") or {}),
        conditions=read_conditions(status),
        calibration=_read_part(status, "calibration", CalibrationStatus),
        rollout=_read_part(status, "rollout", RolloutStatus),
        scaling=_read_part(status, "scaling", ScalingStatus),
    )


def read_conditions(status: JsonObject) -> tuple[Condition, ...]:
    """Read the conditions of a status."""
    found = []
    for raw in status.get("conditions") or ():
        try:
            found.append(Condition.model_validate(raw))
        except ValidationError:
            continue
    return tuple(found)


def _read_part(status: JsonObject, name: str, model: type[M]) -> M | None:
    """Read a block of a status; None when there is none, or none that can be read."""
    raw = status.get(name)
    if not raw:
        return None
    try:
        return model.model_validate(raw)
    except ValidationError:
        return None


def seconds(timestamp: str | None) -> float:
    """Seconds since the epoch of an RFC 3339 time; 0 when there is none."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def _deadline_exceeded(deployment: JsonObject) -> bool:
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    return any(
        c.get("type") == "Progressing" and c.get("reason") == "ProgressDeadlineExceeded" for c in conditions
    )


def _ended(status: JsonObject) -> str:
    """Return how a Job ended."""
    for condition in status.get("conditions") or ():
        if condition.get("type") in {COMPLETE, "Failed"} and condition.get("status") == "True":
            return COMPLETE if condition["type"] == COMPLETE else str(condition.get("reason") or "Failed")
    return ""


def _create_failure(deployment: JsonObject) -> str:
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return str(condition.get("message") or condition.get("reason") or "")[:_LONGEST_TROUBLE]
    return ""


def _said(waiting: JsonObject, ended: JsonObject, last: JsonObject) -> str:
    """Choose what is said of a container: why it is not made, else the last words of the run that ended."""
    # Of a container in CrashLoopBackOff only the back-off is said, and its last run says why.
    now = waiting if waiting.get("reason") != "CrashLoopBackOff" else {}
    found = (each.get("message") for each in (now, last, ended, waiting))
    return next((message for message in found if message), "")


def _container_trouble(container: JsonObject) -> PodTrouble | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = (container.get("state") or {}).get("terminated") or {}
    last = (container.get("lastState") or {}).get("terminated") or {}
    reason = waiting.get("reason") or ended.get("reason") or ""
    name = container.get("name", ENGINE_CONTAINER)
    fault = gpu_fault((ended or last).get("message") or "") if name == ENGINE_CONTAINER else ""
    if fault and not ended and not waiting and container.get("ready"):
        fault = ""  # it serves again on the same GPU
    past = reason in _QUIET
    if past and not fault and last.get("reason") != "OOMKilled":
        return None
    finished = last.get("finishedAt")
    return PodTrouble(
        reason=reason or last.get("reason", ""),
        message=_said(waiting, ended, last)[-_LONGEST_TROUBLE:],
        last_exit=last.get("reason") or ended.get("reason") or "",
        exit_code=last.get("exitCode", ended.get("exitCode")),
        container="" if name == ENGINE_CONTAINER else name,
        gpu_fault=fault,
        until_s=seconds(finished) + OOM_TOLD_S if past and finished and not fault else inf,
    )


def fetch_trouble(pod: JsonObject) -> PodTrouble | None:
    """Read what is wrong with the pod of a Job that fetches weights.

    What the container said when it last ended counts until it has done its work, also while it tries again.
    """
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        last = (container.get("lastState") or {}).get("terminated")
        if last and "running" in (container.get("state") or {}):
            return PodTrouble(
                reason=last.get("reason") or "Error",
                message=(last.get("message") or "")[-_LONGEST_TROUBLE:],
                last_exit=last.get("reason") or "",
                exit_code=last.get("exitCode"),
            )
    found = pod_trouble(pod)
    return replace(found, container="") if found is not None else None


def pod_trouble(pod: JsonObject) -> PodTrouble | None:
    """Read what is wrong with one of our pods: the worst container state, or why it is not scheduled.

    What lasts comes before what is over, and the engine before other containers.
    """
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    found = [trouble for trouble in map(_container_trouble, containers) if trouble is not None]
    if found:
        return min(found, key=lambda trouble: (trouble.until_s != inf, trouble.container != ""))
    scheduled = [c for c in status.get("conditions") or () if c.get("type") == "PodScheduled"]
    for condition in scheduled:
        if condition.get("status") == "False":
            message = (condition.get("message") or "")[:_LONGEST_TROUBLE]
            return PodTrouble(reason=condition.get("reason") or "", message=message)
    if scheduled or spec.get("nodeName"):
        return None
    created = pod.get("metadata", {}).get("creationTimestamp")
    if not created:
        return None
    name = spec.get("schedulerName") or _DEFAULT_SCHEDULER
    return PodTrouble(reason=NO_SCHEDULER, message=name, from_s=seconds(created) + NO_SCHEDULER_S)

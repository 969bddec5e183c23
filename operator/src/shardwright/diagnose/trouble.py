"""What is wrong with the pods of a service, and what to do about it.

Decides which trouble matters most and the sentence that names a remedy. Never repeats a log line or a count:
those change at every look, and a message that changes is a write to the API server and a condition nobody can
read.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from shardwright.api.reasons import Reason
from shardwright.diagnose.facts import ForeignEdit, PodTrouble, ServiceFacts
from shardwright.diagnose.last_words import meaning
from shardwright.diagnose.replaced import sentences

BENIGN: Final = frozenset({"ContainerCreating", "PodInitializing", "SchedulingGated", ""})
"""Reasons of pods that are on their way."""

NODE_LOST: Final = "NodeLost"
"""Our own reason of a pod whose node is not ready; its message is the node's name."""
NODE_GONE: Final = "NodeGone"
"""The same of a pod whose node was deleted."""
NO_SCHEDULER: Final = "NoScheduler"
"""Our own reason of a pod that no scheduler has looked at; its message is the scheduler's name."""
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
EXITS: Final = frozenset(
    {"CrashLoopBackOff", "Error", "Completed", "StartError", "ContainerCannotRun", "DeadlineExceeded"}
)

_NO_KEY = re.compile(r"couldn't find key (\S+) in (Secret|ConfigMap) [^/\s]+/(\S+)")
_NO_OBJECT = re.compile(r"\b(secret|configmap) \"([^\"]+)\" not found")
"""Words of the kubelet (kubernetes/kubernetes, pkg/kubelet/kubelet_pods.go) and of the API server."""
_KINDS: Final = {"secret": "Secret", "configmap": "ConfigMap"}
_NO_PRIORITY = re.compile(r"no PriorityClass with name (\S+) was found")
"""Words of the API server's admission of pods (kubernetes/kubernetes, plugin/pkg/admission/priority)."""
_SHM = re.compile(r"No space left on device|Bus error|shm", re.IGNORECASE)
_QUOTA = re.compile(r"exceeded quota: ([^,\s]+), requested: (.*?)(?:, used: |$)")
_QUOTED = re.compile(r'^\w+ "[^"]*"')
_COUNTS = re.compile(r"\b\d+(/\d+)?\s*")

SEVERITY: Final = (
    Reason.OUT_OF_MEMORY,
    Reason.HUB_UNAUTHORIZED,
    Reason.MODEL_NOT_FOUND,
    Reason.CACHE_FULL,
    Reason.HUB_RATE_LIMITED,
    Reason.HUB_UNAVAILABLE,
    Reason.WEIGHTS_MISSING,
    Reason.IMAGE_PULL,
    Reason.POD_CONFIG,
    Reason.FETCH_FAILED,
    Reason.CRASH_LOOP,
    Reason.QUOTA_EXCEEDED,
    Reason.PODS_REFUSED,
    Reason.NODE_LOST,
    Reason.GPU_FAULT,
    Reason.ENGINE_STALLED,
    Reason.UNSCHEDULABLE,
    Reason.START_TOO_SLOW,
    Reason.CHILD_REFUSED,
    Reason.FOREIGN_AUTOSCALER,
    Reason.FOREIGN_EDIT,
)
"""Which trouble is told when there are several: the one that explains the others first."""

WAITS_FOR_PERSON: Final = frozenset(
    {
        Reason.OUT_OF_MEMORY,
        Reason.HUB_UNAUTHORIZED,
        Reason.MODEL_NOT_FOUND,
        Reason.CACHE_FULL,
        Reason.IMAGE_PULL,
        Reason.POD_CONFIG,
        Reason.CRASH_LOOP,
        Reason.QUOTA_EXCEEDED,
        Reason.PODS_REFUSED,
    }
)
"""Trouble that time alone seldom mends."""

HARMLESS: Final = frozenset({Reason.CHILD_REFUSED, Reason.FOREIGN_AUTOSCALER, Reason.FOREIGN_EDIT})
"""Trouble that is no reason why an engine does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One trouble, with its remedy."""

    reason: Reason
    message: str


def worst(facts: ServiceFacts) -> Trouble | None:
    """Return the trouble that explains most, or None. The same facts in any order give the same answer."""
    return severest(_all(facts))


def severest(found: Iterable[Trouble]) -> Trouble | None:
    """Return the one that explains most of several; None of none."""
    return min(found, key=lambda trouble: (SEVERITY.index(trouble.reason), trouble.message), default=None)


def gone(facts: ServiceFacts) -> Trouble | None:
    """Return which node was deleted under a pod, or None."""
    found = [pod.message for load in facts.workloads for pod in load.troubles if pod.reason == NODE_GONE]
    return Trouble(reason=Reason.NODE_LOST, message=_gone(min(found))) if found else None


def unschedulable(facts: ServiceFacts) -> Trouble | None:
    """Return why the scheduler finds no node for a pod, or None."""
    found = [trouble for trouble in _all(facts) if trouble.reason is Reason.UNSCHEDULABLE]
    return min(found, key=lambda trouble: trouble.message) if found else None


def pods_refused(facts: ServiceFacts) -> Trouble | None:
    """Return why the API server takes no pod of a Deployment, or None."""
    found = [refused_pods(load.create_failure) for load in facts.workloads if load.create_failure]
    return min(found, key=lambda trouble: trouble.message) if found else None


def _all(facts: ServiceFacts) -> list[Trouble]:
    found = [
        trouble_of(pod)
        for load in facts.workloads
        for pod in load.troubles
        if pod.reason not in BENIGN and pod.pods > 0
    ]
    told = sentences(facts.faults, facts.namespace)
    if any(reason is Reason.GPU_FAULT for reason, _ in told):  # they say more of it than the pods do
        found = [trouble for trouble in found if trouble.reason is not Reason.GPU_FAULT]
    found += [Trouble(reason=reason, message=message) for reason, message in told]
    found += [refused_pods(load.create_failure) for load in facts.workloads if load.create_failure]
    if any(load.deadline_exceeded for load in facts.workloads):
        found.append(slow_start())
    if facts.foreign_autoscalers:
        names = ", ".join(sorted(facts.foreign_autoscalers))
        sentence = (
            f"{names} scales a Deployment whose replicas the operator writes, and the two undo each "
            "other: delete it, or set scaling.mode External and aim it at the LLMService"
        )
        found.append(Trouble(reason=Reason.FOREIGN_AUTOSCALER, message=sentence))
    if facts.idle_autoscalers:
        names = ", ".join(sorted(facts.idle_autoscalers))
        sentence = (
            f"{names} scales the LLMService, and nothing comes of it, since scaling.mode is not External: "
            "write spec.scaling.mode: External, or delete it"
        )
        found.append(Trouble(reason=Reason.FOREIGN_AUTOSCALER, message=sentence))
    if facts.child_refusals:
        sentence = f"It serves without it, but {'; '.join(sorted(facts.child_refusals))}"
        found.append(Trouble(reason=Reason.CHILD_REFUSED, message=sentence))
    if facts.foreign_edits:
        found.append(Trouble(reason=Reason.FOREIGN_EDIT, message=_added(facts.foreign_edits)))
    return found


def slow_start() -> Trouble:
    """Say that the start-up budget has passed."""
    sentence = (
        "The start-up budget has passed and not all engines answer: look at the logs of the pods; a slow "
        "download is helped by spec.model.cache or by source.type PVC"
    )
    return Trouble(reason=Reason.START_TOO_SLOW, message=sentence)


def _added(edits: tuple[ForeignEdit, ...]) -> str:
    """Say what others added to our objects, what it does where that is not plain, and how it goes."""
    fields = {edit.field for edit in edits}
    names = "; ".join(sorted(f"{edit.child} {edit.field} by {edit.manager}" for edit in edits))
    sentences = [
        f"Somebody added to what the operator writes ({_clip(names, 1000)}), and what is added stays"
    ]
    if "spec.paused" in fields:
        sentences.append("A paused Deployment hands no change on to its pods: kubectl rollout resume it")
    if any(field.startswith("spec.template") for field in fields):
        sentences.append("Its pods differ from the plan: write under spec.podTemplate what is wanted")
    return ". ".join([*sentences, "Take out with kubectl edit what is not wanted"])


def over_quota(said: str) -> tuple[str, str] | None:
    """Read which ResourceQuota leaves no room and what was asked of it, from the API server's words.

    None when they say something else. What is used already is left out: others change it.
    """
    found = _QUOTA.search(said)
    return (found[1], _clip(found[2])) if found is not None else None


def refused_pods(said: str) -> Trouble:
    """Say why pods cannot be created, without what changes from one attempt to the next."""
    grounds = said.rpartition("is forbidden: ")[2]
    quota = over_quota(grounds)
    if quota is not None:
        return Trouble(
            reason=Reason.QUOTA_EXCEEDED,
            message=f"The ResourceQuota {quota[0]} has no room for a pod ({quota[1]}): raise it, "
            "delete what uses it up, or lower the replicas",
        )
    if found := _NO_PRIORITY.search(grounds):
        return Trouble(
            reason=Reason.PODS_REFUSED,
            message=f"The API server refuses the pods, since there is no PriorityClass {found[1]}: create "
            "it, or change spec.pool.priorityClassName",
        )
    words = _clip(_QUOTED.sub("", grounds).strip())
    return Trouble(
        reason=Reason.PODS_REFUSED,
        message=f"The API server refuses the pods ({words}): change the namespace's policy, or the fields "
        "that it names with spec.podTemplate",
    )


def trouble_of(pod: PodTrouble) -> Trouble:
    """Say what is wrong with a pod, and what to do."""
    if pod.container:
        return _beside(pod)
    if pod.reason in _IMAGE:
        return Trouble(
            reason=Reason.IMAGE_PULL,
            message="The engine's image cannot be pulled: check spec.engine.image and "
            "spec.engine.version, and for a private registry spec.engine.imagePullSecrets, whose Secrets "
            "must be of type kubernetes.io/dockerconfigjson and hold a login for this registry",
        )
    if pod.reason == NODE_LOST:
        return Trouble(
            reason=Reason.NODE_LOST,
            message=f"The node {pod.message} of a replica is not ready: bring it back, or delete the Node if "
            "the machine is lost, so that Kubernetes replaces its pods within a minute",
        )
    if pod.reason == NODE_GONE:
        return Trouble(reason=Reason.NODE_LOST, message=_gone(pod.message))
    if pod.reason == NO_SCHEDULER:
        return Trouble(reason=Reason.UNSCHEDULABLE, message=_no_scheduler(pod.message))
    if pod.reason == "Unschedulable":
        return Trouble(reason=Reason.UNSCHEDULABLE, message=_scheduler(pod.message))
    if pod.reason in _CONFIG:
        return Trouble(reason=Reason.POD_CONFIG, message=_not_made("the container", pod.message))
    if "OOMKilled" in {pod.reason, pod.last_exit}:
        return Trouble(
            reason=Reason.OUT_OF_MEMORY,
            message="The engine was killed for exceeding the pod's memory limit (host memory, not GPU): "
            "lower spec.engine.maxNumSeqs, or raise resources.limits.memory of the container `engine` in "
            "spec.podTemplate",
        )
    return _of_exit(pod)


def _beside(pod: PodTrouble) -> Trouble:
    """Say what is wrong with a container that is not ours."""
    name = f"the container {pod.container} beside the engine"
    where = f"spec.podTemplate, or where else {pod.container} is added to pods"
    if pod.reason in _IMAGE:
        sentence = f"The image of {name} cannot be pulled: correct it, or give its login, in {where}"
        return Trouble(reason=Reason.IMAGE_PULL, message=sentence)
    if pod.reason in _CONFIG:
        return Trouble(reason=Reason.POD_CONFIG, message=_not_made(name, pod.message))
    if "OOMKilled" in {pod.reason, pod.last_exit}:
        sentence = (
            f"T{name[1:]} was killed for exceeding its memory limit: raise resources.limits.memory in {where}"
        )
        return Trouble(reason=Reason.OUT_OF_MEMORY, message=sentence)
    if pod.reason not in EXITS:
        sentence = f"T{name[1:]} reports {_clip(pod.reason)}: look at its pod with kubectl describe pod"
        return Trouble(reason=Reason.POD_CONFIG, message=sentence)
    return Trouble(
        reason=Reason.CRASH_LOOP,
        message=f"T{name[1:]} exits again and again{_how(pod)}: look at its last output with kubectl logs -c "
        f"{pod.container} --previous, and correct {where}",
    )


def _no_scheduler(name: str) -> str:
    """Say that no scheduler has looked at a pod."""
    remedy = "install and start it, or change spec.pool.schedulerName"
    if name == "default-scheduler":
        remedy = "check that kube-scheduler runs"
    return f"No scheduler takes a pod, which asks for {name}: {remedy}"


def _how(pod: PodTrouble) -> str:
    code = f", exit code {pod.exit_code}" if pod.exit_code is not None else ""
    return f" ({pod.last_exit or pod.reason}{code})"


def _not_made(what: str, said: str) -> str:
    """Say why a container cannot be made, by the name of what it lacks where the kubelet names it."""
    lacks, make = "", ""
    if found := _NO_KEY.search(said):
        key, kind, name = found.groups()
        lacks, make = f"the {kind} {name} has no key {key}", "add the key"
    elif found := _NO_OBJECT.search(said):
        lacks, make = f"there is no {_KINDS[found[1]]} {found[2]}", "create it"
    if lacks:
        return (
            f"Kubernetes cannot start {what}, since {lacks}: {make}, and the pod starts by itself, or "
            "write another one in the field that names this one"
        )
    words = f" ({_clip(said)})" if said else ""
    return (
        f"Kubernetes cannot start {what}{words}: create the Secret, ConfigMap or key that is named, "
        "or correct the reference"
    )


def _gone(node: str) -> str:
    return (
        f"The node {node} of a replica is gone: Kubernetes replaces its pods within a minute, where other "
        "nodes have room"
    )


def _of_exit(pod: PodTrouble) -> Trouble:
    if pod.gpu_fault:
        return Trouble(
            reason=Reason.GPU_FAULT,
            message=f"A GPU failed under an engine ({pod.gpu_fault}): look at nvidia-smi -q and for Xid "
            "errors in the kernel's log of its node",
        )
    if (found := meaning(pod.message)) is not None:
        return Trouble(reason=found.reason, message=found.message)
    if pod.reason not in EXITS:
        return Trouble(
            reason=Reason.POD_CONFIG,
            message=f"A pod reports {_clip(pod.reason)}: look at it with kubectl describe pod",
        )
    hint = "; /dev/shm may be too small" if _SHM.search(pod.message) else ""
    return Trouble(
        reason=Reason.CRASH_LOOP,
        message=f"The engine exits again and again{_how(pod)}{hint}: look at its last output with kubectl "
        "logs --previous",
    )


def _scheduler(message: str) -> str:
    """Return the scheduler's grounds without its counts of nodes, sorted: those change with every node."""
    _, _, grounds = message.partition("available:")
    grounds = grounds.split("preemption:")[0].split("no new claims")[0]
    parts = {_COUNTS.sub("", part).strip(" .") for part in grounds.split(",")} - {""}
    said = f" ({_clip('; '.join(sorted(parts)))})" if parts else ""
    return f"The scheduler finds no node for a pod{said}: free or add a node, or check spec.pool.tolerations"


def _clip(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"

"""What is told of engines that the operator replaces by itself: those that hang, and those whose GPU failed.

Decides the sentence for each step that it may have come to. Never replaces anything, and names no live
figure: a message that changes is a write.
"""

from collections.abc import Iterable
from typing import Final

from shardwright.api.names import LABEL_GPU_FAULT
from shardwright.api.reasons import Reason
from shardwright.diagnose.facts import EngineFault, Step

GRACE_S: Final = 45
"""Of a pod that is replaced: 15 s of preStop, in which every proxy drops its endpoint, and 30 s to end. A
drain is not waited for: a hung engine ends no stream, and holds its GPUs meanwhile."""
MOST_TOLD: Final = 3
"""Nodes of which is told at once."""


def sentences(faults: Iterable[EngineFault], namespace: str) -> list[tuple[Reason, str]]:
    """Return what is to be told for each reason: pods of a node together, first what somebody has to do."""
    together: dict[tuple[Reason, bool, str, Step], list[EngineFault]] = {}
    for fault in sorted(faults):
        done = fault.step is Step.REPLACED
        together.setdefault((fault.reason, done, fault.node, fault.step), []).append(fault)
    told: dict[Reason, list[str]] = {}
    for key in sorted(together):
        say = _hung if key[0] is Reason.ENGINE_STALLED else _sick
        told.setdefault(key[0], []).append(say(together[key], namespace))
    return [(reason, ". ".join(found[:MOST_TOLD])) for reason, found in told.items()]


def _pods(found: list[EngineFault]) -> str:
    names = sorted({fault.pod for fault in found})
    word = "pod" if len(names) == 1 else "pods"
    return f"the {word} {', '.join(names)} on the node {found[0].node}"


def _delete(found: list[EngineFault], namespace: str) -> str:
    names = " ".join(sorted({fault.pod for fault in found}))
    return f"kubectl delete pod -n {namespace} {names} --grace-period={GRACE_S}"


def _hung(found: list[EngineFault], namespace: str) -> str:
    one = found[0]
    one_pod = len({fault.pod for fault in found}) == 1
    which = f"The engine{'' if one_pod else 's'} of {_pods(found)}"
    seem = "seems" if one_pod else "seem"
    what = f"{which} {seem} to hang: with requests to answer no token comes within {one.said}"
    match one.step:
        case Step.REPLACED:
            return (
                f"{which} hung: with requests to answer no token came within {one.said}, nor when one was "
                "asked for. What was being answered is lost, and a new pod takes the place. If it happens "
                "again, look for the last steps in the log, and for Xid errors in the node's kernel log"
            )
        case Step.WAITS:
            return f"{what}. It is replaced when the service's other replicas serve, one at a time"
        case Step.REFUSED:
            return (
                f"{what}, and the operator may not delete its pod: grant that (the chart's "
                f"rbac.replaceEngines), or run {_delete(found, namespace)}"
            )
        case _:
            return (
                f"{what}, but none can be asked for, and metrics alone do not suffice to replace a pod: "
                "let the operator reach port 8000 of the pods (the chart's networkPolicy), and /invocations "
                f"there without a login, or run {_delete(found, namespace)}"
            )


def _sick(found: list[EngineFault], namespace: str) -> str:
    one = found[0]
    words = "; ".join(sorted({fault.said for fault in found if fault.said}))
    what = f"A GPU failed under {_pods(found)} ({words})"
    match one.step:
        case Step.REPLACED:
            done = f"{what}, and a new pod takes the place instead of a restart on the same GPU"
        case Step.REFUSED:
            done = (
                f"{what}, and the operator may not delete the pod, so it restarts on the same GPU: grant "
                f"that (the chart's rbac.replaceEngines), or run {_delete(found, namespace)}"
            )
        case _:
            done = (
                f"{what}, as under several pods of this service before, so it is restarted ever more slowly "
                "and not replaced"
            )
    look = "Look at nvidia-smi -q and for Xid errors in the kernel's log of the node"
    kept = next((fault for fault in found if fault.kept_off), None)
    if kept is None:
        return f"{done}. {look}"
    lift = f"kubectl label node {kept.node} {LABEL_GPU_FAULT}-"
    if kept.marked:
        return (
            f"{done}. It was not the first there, so the node gets no new pods of ours until "
            f"{kept.kept_off}. {look}, reset or replace the GPU, then run {lift}"
        )
    return (
        f"{done}. It was not the first there, so no new pods are planned on the node until {kept.kept_off}, "
        "but the scheduler does not know, since the operator may not label nodes (the chart's "
        f"rbac.markNodes). {look}, and reset or replace the GPU"
    )

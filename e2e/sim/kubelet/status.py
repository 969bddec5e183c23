"""The status of a pod, from the states of its containers. Pure.

It decides phase and conditions as the kubelet does.
"""

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

Json = Any
_LOG_LINES, _LOG_BYTES = 80, 2048
"""What the kubelet keeps of a log for `terminationMessagePolicy: FallbackToLogsOnError`."""


@dataclass(slots=True)
class ContainerState:
    """What a container does now, and did before."""

    name: str
    image: str
    state: Json = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last: Json = field(default_factory=dict)
    restarts: int = 0
    started: bool = False
    ready: bool = False
    runs: int = 0
    """How often it was started."""

    @property
    def exit_code(self) -> int | None:
        """Its exit code while it is ended."""
        code: int | None = self.state.get("terminated", {}).get("exitCode")
        return code


def timestamp() -> str:
    """Return the time of now as the API writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def terminated(code: int, began: str, log: bytes, policy: str) -> Json:
    """Give the state of a container that ended."""
    state: Json = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": began,
        "finishedAt": timestamp(),
    }
    if policy == "FallbackToLogsOnError" and code != 0:
        lines = b"\n".join(log.splitlines()[-_LOG_LINES:])
        state["message"] = lines[-_LOG_BYTES:].decode(errors="replace")
    return {"terminated": state}


def exit_code(returncode: int) -> int:
    """Return a container's exit code: 128 and the signal's number for one that a signal ended."""
    return 128 - returncode if returncode < 0 else returncode


def phase(containers: list[ContainerState], restart_policy: str, *, ending: bool) -> str:
    """Return the phase; a pod that is to be restarted, or runs, is Running."""
    codes = [each.exit_code for each in containers]
    if all(code is not None for code in codes):
        failed = any(codes)
        if ending or restart_policy == "Never" or (restart_policy == "OnFailure" and not failed):
            return "Failed" if failed else "Succeeded"
    return "Running" if all(each.runs for each in containers) else "Pending"


def pod_status(
    pod: Json, containers: list[ContainerState], address: str, host: str, *, ending: bool = False
) -> Json:
    """Give the status to write."""
    ready = all(each.ready for each in containers)
    unready = [each.name for each in containers if not each.ready]
    why = {} if ready else {
        "reason": "ContainersNotReady",
        "message": f"containers with unready status: [{' '.join(unready)}]",
    }  # fmt: skip
    conditions = [
        _condition(pod, "PodReadyToStartContainers", bool(address)),
        _condition(pod, "Initialized", True),
        _condition(pod, "ContainersReady", ready, **why),
        _condition(pod, "Ready", ready, **why),
    ]
    status: Json = {
        "phase": phase(containers, pod["spec"].get("restartPolicy", "Always"), ending=ending),
        "conditions": conditions,
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "startTime": pod.get("status", {}).get("startTime") or timestamp(),
        "containerStatuses": [_container(each) for each in containers],
    }
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    return status


def _condition(pod: Json, kind: str, holds: bool, **why: str) -> Json:
    said = "True" if holds else "False"
    before = next((c for c in pod.get("status", {}).get("conditions", []) if c["type"] == kind), None)
    since = before["lastTransitionTime"] if before and before["status"] == said else timestamp()
    # A patch merges conditions by type: what no longer holds has to be taken out by name.
    return {"type": kind, "status": said, "lastTransitionTime": since, "reason": None, "message": None} | why


def _container(each: ContainerState) -> Json:
    return {
        "name": each.name,
        "image": each.image,
        "imageID": "",
        "state": each.state,
        "lastState": each.last,
        "restartCount": each.restarts,
        "started": each.started,
        "ready": each.ready,
    }

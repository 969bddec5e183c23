"""When a container is tried again, and what probes in a row say. Pure: the caller has the clock.

It decides as the kubelet does (pkg/kubelet/prober, client-go flowcontrol.Backoff): the first restart is at once, then
10 s, 20 s, … 300 s after the last end, from the start again after ten minutes without one.
"""

from dataclasses import dataclass
from typing import Any

FIRST_BACKOFF_S = 10.0
MOST_BACKOFF_S = 300.0


class Backoff:
    """One container's, or one image's."""

    def __init__(self) -> None:
        self._delay_s = 0.0
        self._updated_s = 0.0

    def failed(self, at_s: float) -> float:
        """Book an end and return how long to wait from it."""
        if self._delay_s and at_s - self._updated_s > 2 * MOST_BACKOFF_S:
            self._delay_s = 0.0
        wait_s = self._delay_s
        self._delay_s = min(2 * self._delay_s, MOST_BACKOFF_S) if self._delay_s else FIRST_BACKOFF_S
        self._updated_s = at_s
        return wait_s


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe, in the pod's seconds."""

    path: str | None
    """None: whether the port is open."""
    port: int
    delay_s: float
    period_s: float
    timeout_s: float
    successes: int
    failures: int


def probe_of(manifest: dict[str, Any] | None, container: dict[str, Any]) -> Probe | None:
    """Read a probe; exec and gRPC are not run and raise."""
    if manifest is None:
        return None
    how = manifest.get("httpGet") or manifest.get("tcpSocket")
    if how is None:
        raise ValueError(f"the node agent runs no such probe: {sorted(manifest)}")
    port = how["port"]
    if isinstance(port, str):
        port = next(each["containerPort"] for each in container.get("ports", []) if each["name"] == port)
    return Probe(
        path=how.get("path", "/") if "httpGet" in manifest else None,
        port=int(port),
        delay_s=manifest.get("initialDelaySeconds", 0),
        period_s=manifest.get("periodSeconds", 10),
        timeout_s=manifest.get("timeoutSeconds", 1),
        successes=manifest.get("successThreshold", 1),
        failures=manifest.get("failureThreshold", 3),
    )


class Verdict:
    """What the answers so far amount to: None until as many in a row as the threshold say the same."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._same = 0
        self._last: bool | None = None

    def observe(self, ok: bool) -> bool | None:
        """Book an answer."""
        self._same = self._same + 1 if ok is self._last else 1
        self._last = ok
        return ok if self._same >= (self._probe.successes if ok else self._probe.failures) else None

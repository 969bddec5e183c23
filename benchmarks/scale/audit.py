"""Counts the operator's requests where they arrive: in the API server's audit log, not by its own account.

It decides what is logged (the operator's user only, metadata only) and how requests are grouped. It never
asks the operator.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
import yaml

WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})
SERVICES = "llmservices"


def policy(user: str) -> str:
    """Give a policy that logs one user: a watch when it starts, any other request when it was answered."""
    rule = {"level": "Metadata", "users": [user]}
    return yaml.safe_dump(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [rule, {"level": "None"}],
        }
    )


def apiserver_args(directory: Path, user: str) -> tuple[str, ...]:
    """Write the policy and give the API server's flags for it. Blocking mode: nothing is lost in a crash."""
    policy_file = directory / "audit-policy.yaml"
    policy_file.write_text(policy(user))
    return (
        f"--audit-policy-file={policy_file}",
        f"--audit-log-path={directory / 'audit.log'}",
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=1000",
    )


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the operator."""

    at_s: float
    """Unix time at which the server received it."""
    verb: str
    resource: str
    """With its subresource, as in `llmservices/status`."""
    namespace: str
    name: str
    code: int

    @property
    def is_write(self) -> bool:
        """Whether it may change an object that somebody else sees; dry runs do not occur."""
        return self.verb in WRITE_VERBS

    @property
    def is_event(self) -> bool:
        """Whether it writes a Kubernetes Event."""
        return self.resource == "events"


class AuditLog:
    """Reads what was appended since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self.requests: list[Request] = []

    def refresh(self) -> int:
        """Read new lines and give how many requests are known now; a mark for `since`."""
        if self._path.exists():
            with self._path.open("rb") as log:
                log.seek(self._offset)
                data = log.read()
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.requests += [request for line in lines if line and (request := _parse(line)) is not None]
        return len(self.requests)

    def since(self, mark: int) -> list[Request]:
        """Give the requests after a mark that `refresh` gave."""
        self.refresh()
        return self.requests[mark:]


def _parse(line: bytes) -> Request | None:
    entry = msgspec.json.decode(line)
    verb, stage = entry["verb"], entry["stage"]
    if (verb == "watch") != (stage == "ResponseStarted"):
        return None
    target = entry.get("objectRef", {})
    resource = target.get("resource") or entry["requestURI"].partition("?")[0]
    if "subresource" in target:
        resource += f"/{target['subresource']}"
    return Request(
        at_s=datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp(),
        verb=verb,
        resource=resource,
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=entry.get("responseStatus", {}).get("code", 0),
    )


def by_verb(requests: list[Request]) -> dict[str, int]:
    """Count requests as "verb resource"."""
    return dict(sorted(Counter(f"{request.verb} {request.resource}" for request in requests).items()))


def writes(requests: list[Request]) -> list[Request]:
    """Keep what writes, Events included."""
    return [request for request in requests if request.is_write]


def writes_per_child(requests: list[Request]) -> Counter[tuple[str, str, str]]:
    """Count writes of each child: everything written except Events and the services themselves."""
    return Counter(
        (request.resource, request.namespace, request.name)
        for request in requests
        if request.is_write and not request.is_event and not request.resource.startswith(SERVICES)
    )


def status_writes(requests: list[Request]) -> Counter[tuple[str, str]]:
    """Count status writes of each service."""
    return Counter(
        (request.namespace, request.name)
        for request in requests
        if request.is_write and request.resource == f"{SERVICES}/status"
    )


def service_writes(requests: list[Request]) -> list[Request]:
    """Give writes to a service other than its status: there must be none."""
    return [request for request in requests if request.is_write and request.resource == SERVICES]

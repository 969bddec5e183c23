"""Which fields of an observed object are decoded. The decoder skips all others without making objects.

Decides the cost of a list and of a watch event: a Deployment or a pod is 7 to 10 kB of JSON, and a few dozen
values of it are read. What is absent here cannot be seen by whoever reads facts from an object, so a reader
of a new field adds it here. Never interprets anything. `docs/adr/0006-watches.md` has the measurements.
"""

from typing import Any, Final, TypedDict

from msgspec import Raw, ValidationError
from msgspec.json import Decoder

from shardwright.cluster.json import JsonObject, loads
from shardwright.cluster.kinds import BY_KIND, DEPLOYMENT, JOB, POD, REVISION, Kind


class _Owner(TypedDict, total=False):
    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool


class _Fields(TypedDict, total=False):
    manager: str
    operation: str
    subresource: str
    time: str
    fieldsV1: Raw
    """Kept as bytes: it is compared much more often than it is read."""


class _Metadata(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
    creationTimestamp: str
    deletionTimestamp: str
    labels: dict[str, str]
    annotations: dict[str, str]
    ownerReferences: list[_Owner]
    managedFields: list[_Fields]


class _PodMetadata(TypedDict, total=False):
    name: str
    namespace: str
    resourceVersion: str
    creationTimestamp: str
    deletionTimestamp: str
    deletionGracePeriodSeconds: int
    labels: dict[str, str]
    ownerReferences: list[_Owner]


class _Condition(TypedDict, total=False):
    type: str
    status: str
    reason: str
    message: str


class _Resources(TypedDict, total=False):
    requests: dict[str, Any]
    limits: dict[str, Any]


class _Container(TypedDict, total=False):
    resources: _Resources
    restartPolicy: str


class _PodSpec(TypedDict, total=False):
    nodeName: str
    schedulerName: str
    terminationGracePeriodSeconds: int
    containers: list[_Container]
    initContainers: list[_Container]
    resources: _Resources
    overhead: dict[str, Any]


class _ContainerStatus(TypedDict, total=False):
    name: str
    ready: bool
    restartCount: int
    state: dict[str, Any]
    lastState: dict[str, Any]


class _PodStatus(TypedDict, total=False):
    phase: str
    podIP: str
    nominatedNodeName: str
    conditions: list[_Condition]
    containerStatuses: list[_ContainerStatus]
    initContainerStatuses: list[_ContainerStatus]


class _Pod(TypedDict, total=False):
    metadata: _PodMetadata
    spec: _PodSpec
    status: _PodStatus


class _Child(TypedDict, total=False):
    """A child, whole as far as anything of ours can be in it."""

    kind: str
    metadata: _Metadata
    spec: Any
    data: Raw
    """Kept as bytes: most events of a record are the echo of our own write, and are not read."""
    revision: int
    automountServiceAccountToken: bool
    roleRef: Any
    subjects: Any
    status: Any


class _DeploymentSpec(TypedDict, total=False):
    replicas: int


class _DeploymentStatus(TypedDict, total=False):
    conditions: list[_Condition]
    readyReplicas: int


class _Deployment(TypedDict, total=False):
    """A Deployment without its template: what changes in it after it was written."""

    metadata: _Metadata
    spec: _DeploymentSpec
    status: _DeploymentStatus


class _JobStatus(TypedDict, total=False):
    startTime: str
    conditions: list[_Condition]


class _Job(TypedDict, total=False):
    """A Job without its template, which cannot change."""

    metadata: _Metadata
    status: _JobStatus


class _Partial(TypedDict, total=False):
    metadata: _Metadata


class _Page(TypedDict, total=False):
    metadata: dict[str, Any]


class _PodPage(_Page, total=False):
    items: list[_Pod] | None


class _ChildPage(_Page, total=False):
    items: list[_Child] | None


class _Event(TypedDict):
    type: str


class _PodEvent(_Event):
    object: _Pod


class _WholeEvent(_Event):
    object: _Child


class _DeploymentEvent(_Event):
    object: _Deployment


class _JobEvent(_Event):
    object: _Job


class _PartialEvent(_Event):
    object: _Partial


_CHILDREN: Final = frozenset(BY_KIND)
_POD_PAGE, _CHILD_PAGE = Decoder(_PodPage), Decoder(_ChildPage)
_POD_EVENT, _DEPLOYMENT_EVENT = Decoder(_PodEvent), Decoder(_DeploymentEvent)
_WHOLE_EVENT, _JOB_EVENT = Decoder(_WholeEvent), Decoder(_JobEvent)
_PARTIAL_EVENT, _PARTIAL = Decoder(_PartialEvent), Decoder(_Partial)


def page(kind: Kind, body: bytes) -> JsonObject:
    """Decode one page of a list."""
    if kind is POD:
        return _typed(_POD_PAGE, body)
    return _typed(_CHILD_PAGE if kind.kind in _CHILDREN else None, body)


def event(kind: Kind, line: bytes) -> JsonObject:
    """Decode one watch event."""
    decoder: Decoder[Any] | None = None
    if kind is POD:
        decoder = _POD_EVENT
    elif kind is DEPLOYMENT:
        decoder = _DEPLOYMENT_EVENT
    elif kind is REVISION:
        decoder = _WHOLE_EVENT
    elif kind is JOB:
        decoder = _JOB_EVENT
    elif kind.kind in _CHILDREN:
        decoder = _PARTIAL_EVENT
    found = _typed(decoder, line)
    # The object of an ERROR is a Status.
    return found if found["type"] != "ERROR" else _typed(None, line)


def metadata(body: bytes) -> JsonObject:
    """Decode the metadata of one object."""
    found: JsonObject = _typed(_PARTIAL, body)["metadata"]
    return found


def _typed(decoder: Decoder[Any] | None, data: bytes) -> JsonObject:
    """Decode what the types name; all of it when a value is of another type. Raises ValueError."""
    if decoder is not None:
        try:
            found: JsonObject = decoder.decode(data)
        except ValidationError:
            pass
        else:
            return found
    whole: JsonObject = loads(data)
    return whole

"""The revisions of a live LLMService, and who writes its spec: what approve and rollback decide with.

Decides which revision a command means and whether the live object is the place to write it. Pure but for
`read` and `write`, which ask the API server with the user's rights.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shardwright.api.names import CLI_FIELD_MANAGER, LABEL_REVISION, LABEL_SERVICE
from shardwright.cli.files import InputError
from shardwright.render.approval import PROPOSED, in_force, newest_first
from shardwright.render.failed_start import FailedStart, read_annotation

if TYPE_CHECKING:
    from shardwright.cluster.api import Api

Raw = Mapping[str, Any]

_GITOPS_MARKS: Final = (
    ("Argo CD", ("argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id")),
    ("Flux", ("kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name")),
    ("Helm", ("meta.helm.sh/release-name",)),
)
"""Labels and annotations that these tools put on what they manage, from their documentation: Argo CD
"Resource Tracking", Flux "Kustomization" and "HelmRelease", Helm "Labels and Annotations"."""
_GITOPS_MANAGERS: Final = {
    "argocd-controller": "Argo CD",
    "argocd-application-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
    "helm": "Helm",
}
"""Their field managers (Argo CD "Server-Side Apply", Flux "Controlling the apply behavior")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A ControllerRevision of the service."""

    revision: str
    number: int
    summary: str
    """Its plan as it was recorded; see `cli.counts` for the replicas that run."""
    template_digest: str
    data: Raw
    failed: FailedStart | None = None
    """That it did not start."""

    @property
    def proposed(self) -> bool:
        """Whether it was never in force."""
        return self.number == PROPOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """An LLMService as it is, with its revisions."""

    service: Raw
    revisions: tuple[Revision, ...]
    """The one in force first."""

    @property
    def name(self) -> str:
        """Name of the service."""
        return str(self.service["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.service["metadata"]["namespace"])

    @property
    def approved(self) -> str:
        """`spec.approvedRevision`; empty without it."""
        return str(self.service["spec"].get("approvedRevision") or "")

    @property
    def proposal(self) -> Raw:
        """`status.proposal`; empty when nothing waits."""
        found: Raw = (self.service.get("status") or {}).get("proposal") or {}
        return found

    @property
    def seen(self) -> bool:
        """Whether the operator has looked at this generation."""
        status = self.service.get("status") or {}
        return bool(status.get("observedGeneration") == self.service["metadata"].get("generation"))

    @property
    def in_force(self) -> Revision | None:
        """The revision in force."""
        return in_force(self.revisions)

    def find(self, name: str) -> Revision:
        """Find a revision by its hash, or by the name of its workload. Raises InputError that names all."""
        wanted = name.removeprefix(f"{self.name}-")
        for revision in self.revisions:
            if revision.revision == wanted:
                return revision
        known = ", ".join(r.revision for r in self.revisions) or "none yet"
        raise InputError(f"{self.name} has no revision {name}; there are: {known}")


async def read(api: "Api", namespace: str, name: str) -> Live:
    """Read a service and its revisions. Raises ClusterError."""
    from shardwright.cluster.kinds import LLM_SERVICE, REVISION  # noqa: PLC0415 -- see cli.live

    service = await api.get(LLM_SERVICE, namespace, name)
    found: list[Revision] = []
    async for items, _ in api.list_pages(REVISION, namespace, labels=f"{LABEL_SERVICE}={name}"):
        found += [_revision(item) for item in items if _owned(item, service["metadata"]["uid"])]
    return Live(service=service, revisions=tuple(newest_first(found)))


async def write(api: "Api", live: Live, revision: str | None) -> None:
    """Write `spec.approvedRevision` of the very object that was read; None removes it.

    Raises ClusterError.
    """
    from shardwright.cluster.kinds import LLM_SERVICE  # noqa: PLC0415 -- see cli.live

    patch = {
        "metadata": {"uid": live.service["metadata"]["uid"]},
        "spec": {"approvedRevision": revision},
    }
    await api.merge_as(LLM_SERVICE, live.namespace, live.name, patch, manager=CLI_FIELD_MANAGER)


def _owned(item: Raw, uid: str) -> bool:
    owners = item["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def _revision(item: Raw) -> Revision:
    from shardwright.cluster.json import loads  # noqa: PLC0415 -- see cli.live

    metadata, held = item["metadata"], item.get("data") or {}
    # A list leaves a record's data as the bytes that came.
    data: Raw = held if isinstance(held, Mapping) else loads(held)
    return Revision(
        revision=(metadata.get("labels") or {}).get(LABEL_REVISION, ""),
        number=int(item.get("revision") or 0),
        summary=str((data.get("report") or {}).get("summary", "")),
        template_digest=str(data.get("digest", "")),
        data=data,
        failed=read_annotation(metadata.get("annotations")),
    )


def to_approve(live: Live, wanted: str | None) -> Revision:
    """Return the revision to approve: the one that was asked for, else the one that waits.

    Raises InputError when there is none, or when the operator has not looked at the newest spec yet.
    """
    if wanted:
        return live.find(wanted)
    if not live.seen:
        raise InputError(
            f"the operator has not looked at the newest spec of {live.name} yet: try again, or name what you "
            "were shown with --revision"
        )
    if not live.proposal:
        running = live.in_force
        stays = f"; revision {running.revision} is in force" if running else ""
        raise InputError(f"nothing waits for approval in {live.name}{stays}")
    return live.find(str(live.proposal["revision"]))


def to_roll_back(live: Live, wanted: str | None) -> Revision:
    """Return the revision to go back to: the one that was asked for, else the one in force before.

    Raises InputError when there is none.
    """
    if wanted:
        return live.find(wanted)
    ran = [revision for revision in live.revisions if not revision.proposed]
    started = [revision for revision in ran[1:] if revision.failed is None]
    if not started:
        raise InputError(f"{live.name} has no earlier revision that was in force")
    return started[0]


def manager_of(live: Live) -> str:
    """Name the tool that applies this object from git or a release; empty when none is seen."""
    metadata = live.service["metadata"]
    marks = {*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})}
    for tool, names in _GITOPS_MARKS:
        if marks.intersection(names):
            return tool
    found = (_GITOPS_MANAGERS.get(str(m.get("manager"))) for m in metadata.get("managedFields") or ())
    return next((tool for tool in found if tool), "")


def writers_of_the_field(live: Live) -> list[str]:
    """Name the field managers, other than this command, that state `spec.approvedRevision`."""
    return sorted(set(_writers(live.service["metadata"].get("managedFields") or ())))


def _writers(managed: Sequence[Raw]) -> Iterator[str]:
    for entry in managed:
        fields = entry.get("fieldsV1") or {}
        if "f:approvedRevision" in (fields.get("f:spec") or {}) and entry.get("manager") != CLI_FIELD_MANAGER:
            yield str(entry.get("manager"))


def line(revision: str) -> str:
    """Return the line to write under `spec`; without quotes, digits (and one `e`) are a number in YAML."""
    return f'approvedRevision: "{revision}"'

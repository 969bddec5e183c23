"""What `shardwright diff` compares: LLMServices of files or folders, and live ones with their revisions.

Decides which document is which service, and what is known to be in force before. Reads files, and the current
cluster when asked to.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardwright.api.defaults import resolve
from shardwright.api.llmservice import KIND, LLMService
from shardwright.api.names import CLI_FIELD_MANAGER
from shardwright.cli import live, revisions
from shardwright.cli.decide import decide_service
from shardwright.cli.files import InputError, UsageError, name_of, one_line
from shardwright.cli.plan_input import Raw, documents, parsed, with_models
from shardwright.cli.pool_options import Nodes
from shardwright.planner.load import Sized, replicas_of
from shardwright.planner.types import NoPlan
from shardwright.render.approval import in_force
from shardwright.render.fetch import fetches, is_offline
from shardwright.render.forecast import Revision, led_to, read_record
from shardwright.render.request import JsonObject
from shardwright.render.revision import RevisionError
from shardwright.render.template import pod_template

if TYPE_CHECKING:
    from shardwright.cluster.api import Api

Key = tuple[str, str]
"""(namespace, name)."""

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_SHARED_FIELDS: Final = ("approvedRevision", "replicas")
"""Fields of the spec that others write beside whoever applies the manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """An LLMService of a file, with the ConfigMaps beside it."""

    raw: Raw
    config_maps: Sequence[Raw]

    def service(self) -> LLMService:
        """Read it as the API server would. Raises InputError."""
        return parsed(self.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """A service before the change."""

    service: LLMService | None = None
    """None when there is none, or when its spec cannot be read."""
    records: tuple[Revision, ...] = ()
    replicas: int = 0
    """Of the revision in force."""
    sized: Sized | None = None
    """The size that its status tells; None while the planned count holds."""
    notes: tuple[str, ...] = ()


def read_side(path: str, *, namespace: str = "default") -> dict[Key, Document]:
    """Read all LLMServices of a file, or of all files of a folder. Raises InputError."""
    objects = [obj for name in _files(path) for obj in documents(name)]
    config_maps = [o for o in objects if o.get("kind") == "ConfigMap"]
    found: dict[Key, Document] = {}
    for raw in objects:
        if raw.get("kind") != KIND:
            continue
        metadata = _map(raw.get("metadata"))
        key = (_namespace(raw, namespace), str(metadata.get("name") or ""))
        if not key[1]:
            raise InputError(f"{name_of(path)}: an {KIND} has no metadata.name: write one")
        if key in found:
            raise InputError(f"{name_of(path)}: {key[0]}/{key[1]} is there twice: leave one out")
        named = raw | {"metadata": metadata | {"namespace": key[0]}}
        beside = [c for c in config_maps if _namespace(c, namespace) == key[0]]
        found[key] = Document(raw=named, config_maps=beside)
    return found


def _namespace(raw: Raw, default: str) -> str:
    return str(_map(raw.get("metadata")).get("namespace") or default)


def _map(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _files(path: str) -> Iterator[str]:
    if not Path(path).is_dir():
        yield path
        return
    for file in sorted(Path(path).rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.suffix in _SUFFIXES and file.is_file() and not hidden:
            yield str(file)


def before_of_file(document: Document, nodes: Nodes) -> Before:
    """Return what a manifest leads to when nothing else is known: it is taken to be in force.

    Raises UsageError.
    """
    try:
        service = document.service()
    except InputError as error:
        return Before(notes=(f"the old spec is not valid, so nothing is known to run: {one_line(error)}",))
    spec, approved = service.spec, service.spec.approved_revision
    named = (Revision(revision=approved, number=1),) if approved else ()
    elsewhere = f"revision {approved} was in force before; only the cluster knows it (-f FILE looks)"
    try:
        decision = decide_service(with_models(service, document.config_maps), nodes).decision
    except UsageError:
        raise
    except InputError as error:
        told = elsewhere if approved else f"the old spec could not run: {error}"
        return Before(service=service, records=named, notes=(told,))
    if isinstance(decision, NoPlan):
        told = elsewhere if approved else f"the old spec has no plan: {decision.message}"
        return Before(service=service, records=named, notes=(told,))
    made = led_to((), spec, decision)
    made = replace(made, template=render_template(service, made, pod_monitor=False))
    if approved and approved != made.revision:
        return Before(service=service, records=(*named, made), notes=(elsewhere,))
    assumed = spec.plan_policy == "Manual" and not approved
    notes = ("what the old spec leads to is taken to be approved and in force",) if assumed else ()
    count = replicas_of(decision, resolve(spec), spec.pool.max_gpus)
    return Before(service=service, records=(replace(made, number=1),), replicas=count, notes=notes)


def render_template(service: LLMService, revision: Revision, *, pod_monitor: bool) -> JsonObject | None:
    """Return the pod template of a revision: as recorded, else as it is rendered now."""
    if revision.template is not None or revision.plan is None:
        return revision.template
    return pod_template(
        service,
        revision.plan,
        revision_hash=revision.revision,
        pod_monitor=pod_monitor,
        fetched=fetches(service.spec) and is_offline(service.spec),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveService:
    """What the cluster says of a service."""

    found: revisions.Live
    config_maps: tuple[Raw, ...] = ()


def read_live(context: str | None, asked: Mapping[Key, Document]) -> dict[Key, LiveService]:
    """Read the live services of these names, and the ConfigMaps that a file does not hold.

    Raises InputError.
    """

    async def read(api: "Api") -> dict[Key, LiveService]:
        from shardwright.cluster.errors import Gone  # noqa: PLC0415 -- see cli.live

        answers: dict[Key, LiveService] = {}
        for key, document in asked.items():
            try:
                found = await revisions.read(api, *key)
            except Gone:
                continue
            beside = await _config_maps(api, document, key[0])
            answers[key] = LiveService(found=found, config_maps=beside)
        return answers

    return live.ask(context, "the live objects", read)


async def _config_maps(api: "Api", document: Document, namespace: str) -> tuple[Raw, ...]:
    """Read the ConfigMap of the model's config, unless the file holds it."""
    from shardwright.cluster.errors import Gone  # noqa: PLC0415 -- see cli.live
    from shardwright.cluster.kinds import CONFIG_MAP  # noqa: PLC0415

    config = _map(_map(_map(document.raw.get("spec")).get("model")).get("config"))
    name = _map(config.get("configMapRef")).get("name")
    held = [_map(c.get("metadata")).get("name") for c in document.config_maps]
    if not isinstance(name, str) or name in held:
        return ()
    try:
        return (await api.get(CONFIG_MAP, namespace, name),)
    except Gone:
        return ()


def before_of_live(found: revisions.Live) -> Before:
    """Return what is in force in the cluster."""
    records: list[Revision] = []
    notes: list[str] = []
    for revision in found.revisions:
        try:
            found_record = read_record(
                dict(revision.data), revision=revision.revision, number=revision.number
            )
            records.append(replace(found_record, failed=revision.failed))
        except RevisionError as error:
            notes.append(f"revision {revision.revision} cannot be read: {error}")
    try:
        service = parsed(dict(found.service))
    except InputError as error:
        notes.append(f"the live spec cannot be read: {error}")
        service = None
    return Before(
        service=service,
        records=tuple(records),
        replicas=_wanted(found, in_force(records)),
        sized=_sized(found),
        notes=tuple(notes),
    )


def _wanted(found: revisions.Live, running: Revision | None) -> int:
    """Return the replicas that are wanted of what is in force, as the status says."""
    plan = (found.service.get("status") or {}).get("plan") or {}
    if running is None or plan.get("revision") != running.revision:
        return running.plan.replicas if running is not None and running.plan is not None else 0
    return int(plan.get("replicas") or 0)


def _sized(found: revisions.Live) -> Sized | None:
    """Return the size that the autoscaler goes on from, as the status tells it."""
    told = (found.service.get("status") or {}).get("scaling") or {}
    if "desiredReplicas" not in told:
        return None
    planned = int(told.get("plannedReplicas") or 0) if told.get("mode") == "Auto" else None
    return Sized(replicas=int(told["desiredReplicas"]), planned=planned)


def applied_over(document: Document, found: LiveService) -> Document:
    """Return a manifest as it is once applied: fields that others state, and it does not, stay."""
    if not isinstance(document.raw.get("spec"), dict):
        return document
    spec: dict[str, Any] = dict(document.raw["spec"])
    live_spec = found.found.service["spec"]
    managed = found.found.service["metadata"].get("managedFields") or ()
    for name in _SHARED_FIELDS:
        if name not in spec and name in live_spec and _stated_by_others(managed, name):
            spec[name] = live_spec[name]
    return Document(
        raw=document.raw | {"spec": spec}, config_maps=(*document.config_maps, *found.config_maps)
    )


def _stated_by_others(managed: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether all who state a field do so apart from a manifest: this command line, or /scale."""
    stating = [m for m in managed if f"f:{name}" in ((m.get("fieldsV1") or {}).get("f:spec") or {})]
    return bool(stating) and all(
        m.get("manager") == CLI_FIELD_MANAGER or m.get("subresource") == "scale" for m in stating
    )

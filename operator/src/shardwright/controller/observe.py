"""From raw LLMServices to entries of the store. Decides what a spec that cannot be read is reported as."""

from dataclasses import replace
from typing import Final

from pydantic import ValidationError

from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMService, LLMServiceSpec, ServiceKey
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.api.serving import RoutingSpec
from shardwright.cluster.drift import digest
from shardwright.cluster.facts import ServiceEntry, seconds, status_facts
from shardwright.cluster.json import JsonObject

_SHOWN: Final = 4
_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
)


def read_service(
    obj: JsonObject, before: ServiceEntry | None = None, *, routers: bool = False
) -> ServiceEntry:
    """Read an LLMService as the API server sends it; `before` is what was known of it.

    Most changes are of the status. The generation says that the spec is the same, which is then not read
    again. `routers`: a spec without routing.type asks for Router here.
    """
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    if before is not None and _same_spec(metadata, before):
        return replace(
            before,
            resource_version=metadata["resourceVersion"],
            deleting="deletionTimestamp" in metadata,
            status=status_facts(obj.get("status") or {}),
        )
    service, problems = _parse(metadata, spec)
    if service is not None and routers:
        service = service.model_copy(update={"spec": _behind_routers(service.spec)})
    return ServiceEntry(
        key=ServiceKey((metadata["namespace"], metadata["name"])),
        uid=metadata["uid"],
        generation=metadata.get("generation", 1),
        resource_version=metadata["resourceVersion"],
        created_s=seconds(metadata.get("creationTimestamp")),
        deleting="deletionTimestamp" in metadata,
        spec_digest=digest(spec),
        service=service,
        problems=problems,
        status=status_facts(obj.get("status") or {}),
        resolved=resolve(service.spec) if service is not None else None,
    )


def _same_spec(metadata: JsonObject, before: ServiceEntry) -> bool:
    return (
        before.service is not None
        and before.uid == metadata["uid"]
        and before.generation == metadata.get("generation", 1)
        and before.service.metadata.labels == (metadata.get("labels") or {})
    )


def _parse(metadata: JsonObject, spec: JsonObject) -> tuple[LLMService | None, tuple[Problem, ...]]:
    kept = {name: metadata[name] for name in _METADATA if name in metadata}
    try:
        return LLMService.model_validate({"metadata": kept, "spec": spec}), ()
    except ValidationError as error:
        return None, _problems(error)


def _behind_routers(spec: LLMServiceSpec) -> LLMServiceSpec:
    """Fill in what the spec leaves open; what it says stands."""
    routing = spec.routing or RoutingSpec()
    if routing.type is not None:
        return spec
    return spec.model_copy(update={"routing": routing.model_copy(update={"type": "Router"})})


def _problems(error: ValidationError) -> tuple[Problem, ...]:
    """Name the fields. It takes an object that was stored under another schema to get here."""
    return tuple(
        Problem(
            reason=Reason.INVALID_SPEC,
            field=".".join(str(part) for part in found["loc"]),
            message=f"{found['msg']}; apply the object again so that the current schema checks it",
        )
        for found in error.errors(include_input=False, include_url=False)[:_SHOWN]
    )

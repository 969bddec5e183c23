"""What an LLMService names but does not contain: Secrets, claims, ConfigMaps, model facts, priority class.

Decides which of them are missing. A Secret is asked for as metadata only, so its values never reach the
operator; that it lacks a key is therefore only seen when a pod fails on it. Where the operator may not
read Secrets or claims at all, nothing is reported: not knowing is not missing. ConfigMaps are read when
a plan is made and not watched.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMServiceSpec, ServiceKey
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.catalog.config import architecture_from_config
from shardwright.catalog.errors import CatalogError
from shardwright.catalog.models import load_models, unknown_model_message, unknown_variant_message
from shardwright.catalog.types import ModelArchitecture
from shardwright.cluster.api import Api
from shardwright.cluster.errors import Forbidden, Gone
from shardwright.cluster.json import JsonObject, loads
from shardwright.cluster.kinds import CLAIM, CONFIG_MAP, PRIORITY_CLASS, SECRET, Kind
from shardwright.planner.types import ModelChoice

_LOG = logging.getLogger(__name__)

FRESH_S: Final = 5.0
"""How long an answer about one object serves for all services that name it."""
PRIORITY_FRESH_S: Final = 600.0
_SHAREABLE: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class Reference(NamedTuple):
    """An object that a spec names."""

    kind: Kind
    name: str
    field: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the references say."""

    problems: tuple[Problem, ...] = ()
    models: tuple[ModelChoice, ...] = ()
    priority: int = 0


@dataclass(slots=True)
class References:
    """Answers about named objects, remembered for a few seconds. `clock` gives seconds."""

    api: Api
    clock: Callable[[], float]
    _found: dict[tuple[str, str, str], tuple[float, bool]] = field(default_factory=dict)
    _priorities: dict[str, tuple[float, int]] = field(default_factory=dict)

    async def resolve(self, key: ServiceKey, spec: LLMServiceSpec) -> Resolved:
        """Check everything that a new plan needs. Raises Transient when the API server does not answer."""
        replicas = resolve(spec).scale.planned_replicas
        found = [await self._missing(key.namespace, reference, replicas) for reference in references(spec)]
        problems = [problem for problem in found if problem is not None]
        models = await self._models(key.namespace, spec, problems)
        return Resolved(tuple(problems), models, await self.priority(spec.pool.priority_class_name))

    async def unshareable(self, key: ServiceKey, spec: LLMServiceSpec) -> tuple[Problem, ...]:
        """Check what scaling alone can break: claims that more replicas than one cannot mount."""
        replicas = resolve(spec).scale.planned_replicas
        if replicas <= 1:
            return ()
        claims = [reference for reference in references(spec) if reference.kind is CLAIM]
        found = [await self._claim(key.namespace, reference, replicas) for reference in claims]
        return tuple(p for p in found if p is not None and p.reason is Reason.CACHE_NOT_SHAREABLE)

    async def priority(self, name: str | None) -> int:
        """Value of a priority class; 0 without one, and where the operator may not read it."""
        if not name:
            return 0
        now = self.clock()
        known = self._priorities.get(name)
        if known is not None and known[0] > now:
            return known[1]
        try:
            value = int((await self.api.get(PRIORITY_CLASS, None, name)).get("value") or 0)
            until = now + PRIORITY_FRESH_S
        except (Gone, Forbidden):
            value, until = 0, now + FRESH_S
        self._priorities[name] = (until, value)
        return value

    async def _missing(self, namespace: str, reference: Reference, replicas: int) -> Problem | None:
        if reference.kind is CLAIM:
            return await self._claim(namespace, reference, replicas)
        if await self._exists(reference.kind, namespace, reference.name):
            return None
        return _absent(reference, namespace)

    async def _claim(self, namespace: str, reference: Reference, replicas: int) -> Problem | None:
        """Check that a claim is there and that as many pods as planned can mount it, on different nodes."""
        try:
            claim = await self.api.get(CLAIM, namespace, reference.name)
        except Gone:
            return _absent(reference, namespace)
        except Forbidden as error:
            _LOG.info("cannot check claim name=%s/%s error=%s", namespace, reference.name, error)
            return None
        modes = set((claim.get("spec") or {}).get("accessModes") or ())
        if replicas <= 1 or not modes or modes & _SHAREABLE:
            return None
        held = f"claim {reference.name} is {', '.join(sorted(modes))}"
        return Problem(
            reason=Reason.CACHE_NOT_SHAREABLE,
            field=reference.field,
            message=f"{held}, and {replicas} replicas on several nodes cannot mount it: "
            "use a ReadWriteMany claim, an Ephemeral cache, or one replica",
        )

    async def _exists(self, kind: Kind, namespace: str, name: str) -> bool:
        now = self.clock()
        key = (kind.plural, namespace, name)
        known = self._found.get(key)
        if known is not None and known[0] > now:
            return known[1]
        try:
            found = await self.api.metadata(kind, namespace, name) is not None
        except Forbidden as error:
            _LOG.info("cannot check reference kind=%s name=%s/%s error=%s", kind.kind, namespace, name, error)
            found = True
        if len(self._found) > 10_000:
            self._found.clear()
        self._found[key] = (now + FRESH_S, found)
        return found

    async def _models(
        self, namespace: str, spec: LLMServiceSpec, problems: list[Problem]
    ) -> tuple[ModelChoice, ...]:
        choices: list[ModelChoice] = []
        main = await self._architecture(namespace, spec, problems)
        if main is not None:
            choices.append(
                ModelChoice(model_id=spec.model.id, revision=spec.model.revision, architecture=main)
            )
        known = load_models()
        choices += [
            ModelChoice(model_id=variant.id, revision=variant.revision, architecture=known[variant.id])
            for variant in spec.model.variants or ()
            if variant.id in known
        ]
        return tuple(choices)

    async def _architecture(
        self, namespace: str, spec: LLMServiceSpec, problems: list[Problem]
    ) -> ModelArchitecture | None:
        given = spec.model.config
        if given is None:
            found = load_models().get(spec.model.id)
            if found is None:
                message = unknown_model_message(spec.model.id)
                problems.append(Problem(reason=Reason.UNKNOWN_MODEL, field="spec.model.id", message=message))
            return found
        reference = given.config_map_ref
        at = "spec.model.config.configMapRef"
        try:
            config_map = await self.api.get(CONFIG_MAP, namespace, reference.name)
        except Gone:
            missing = Reference(CONFIG_MAP, reference.name, at, Reason.MISSING_CONFIG_MAP)
            problems.append(_absent(missing, namespace))
            return None
        try:
            config = _config(config_map, reference.key)
            return architecture_from_config(spec.model.id, config, given.weight_bytes)
        except CatalogError as error:
            message = (
                f"ConfigMap {reference.name}, key {reference.key}: {error if error.field else error.message}"
            )
            problems.append(Problem(reason=Reason.INVALID_MODEL_CONFIG, field=at, message=message))
            return None


def unknown_variants(spec: LLMServiceSpec) -> tuple[Problem, ...]:
    """List the variants that are not known. They keep nothing from running."""
    return tuple(
        Problem(
            reason=Reason.UNKNOWN_MODEL,
            field=f"spec.model.variants[{index}].id",
            message=unknown_variant_message(variant.id),
            blocking=False,
        )
        for index, variant in enumerate(spec.model.variants or ())
        if variant.id not in load_models()
    )


def _absent(reference: Reference, namespace: str) -> Problem:
    return Problem(
        reason=reference.reason,
        field=reference.field,
        message=f"there is no {reference.kind.kind} {reference.name} in namespace {namespace}: "
        "create it, or name another one",
    )


def _config(config_map: JsonObject, key: str) -> Mapping[str, object]:
    text = (config_map.get("data") or {}).get(key)
    if text is None:
        raise CatalogError("", "there is no such key: add the model's config.json under it")
    try:
        value = loads(text.encode())
    except ValueError as error:
        raise CatalogError("", f"is not JSON ({error}): store the model's config.json unchanged") from error
    if not isinstance(value, dict):
        raise CatalogError("", "is not a JSON object: store the model's config.json unchanged")
    return value


def references(spec: LLMServiceSpec) -> Iterator[Reference]:
    """List the objects that a spec names and a pod cannot start without; `model.config` is read apart."""
    model, engine = spec.model, spec.engine
    source, cache = model.source, model.cache
    if source and source.hub and source.hub.token_secret_ref:
        yield _secret(source.hub.token_secret_ref.name, "spec.model.source.hub.tokenSecretRef")
    if source and source.uri and source.uri.credentials_secret_ref:
        yield _secret(source.uri.credentials_secret_ref, "spec.model.source.uri.credentialsSecretRef")
    if source and source.pvc:
        yield Reference(CLAIM, source.pvc.claim_name, "spec.model.source.pvc.claimName", Reason.MISSING_CLAIM)
    if cache and cache.claim_name:
        yield Reference(CLAIM, cache.claim_name, "spec.model.cache.claimName", Reason.MISSING_CLAIM)
    if model.chat_template:
        name = model.chat_template.config_map_ref.name
        yield Reference(CONFIG_MAP, name, "spec.model.chatTemplate.configMapRef", Reason.MISSING_CONFIG_MAP)
    for index, secret in enumerate((engine and engine.image_pull_secrets) or ()):
        yield _secret(secret.name, f"spec.engine.imagePullSecrets[{index}]")
    for index, variable in enumerate((engine and engine.env) or ()):
        if variable.secret_ref:
            yield _secret(variable.secret_ref.name, f"spec.engine.env[{index}].secretRef")


def _secret(name: str, at: str) -> Reference:
    return Reference(SECRET, name, at, Reason.MISSING_SECRET)

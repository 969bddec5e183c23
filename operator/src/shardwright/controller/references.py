"""What an LLMService names but does not contain: Secrets, claims, ConfigMaps, model facts, priority class.

Decides which of them are missing. A Secret is asked for as metadata only, so its values never reach the
operator; that it lacks a key is therefore only seen when a pod fails on it. What the operator may not read is
never reported as missing. Nothing of this is watched: it is looked at when a plan is made.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from shardwright.render.storage import claims_of

_LOG = logging.getLogger(__name__)

FRESH_S: Final = 5.0
"""How long an answer about one object serves for all services that name it."""
PRIORITY_FRESH_S: Final = 600.0
_SHAREABLE: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_OF_KEPT: Final = frozenset({Reason.CACHE_NOT_SHAREABLE, Reason.READ_FORBIDDEN})


class Reference(NamedTuple):
    """An object that a spec names."""

    kind: Kind
    name: str
    field: str
    reason: Reason
    key: str = ""
    """Of a ConfigMap: what it must hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What is seen of an object."""

    there: bool = True
    readable: bool = True
    holds: frozenset[str] = frozenset()
    """Keys of a ConfigMap, access modes of a claim."""
    bound: bool = True
    """Of a claim: it has its volume, so that who mounts it first decides nothing."""

    @property
    def for_one_node(self) -> bool:
        """Whether it is a claim that pods on several nodes cannot mount; not when nothing is known."""
        return bool(self.holds) and not self.holds & _SHAREABLE

    @property
    def for_one_pod(self) -> bool:
        """Whether it is a claim that no two pods can mount; not when nothing is known."""
        return self.holds == {"ReadWriteOncePod"}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the references say."""

    problems: tuple[Problem, ...] = ()
    models: tuple[ModelChoice, ...] = ()
    priority: int = 0
    for_one_node: frozenset[str] = frozenset()
    """Claims of this spec and of earlier plans that only one node can mount at a time."""
    for_one_pod: frozenset[str] = frozenset()
    """Claims of this spec that only one pod can mount at a time."""
    unbound: frozenset[str] = frozenset()
    """Claims of this spec that have no volume yet."""


@dataclass(slots=True)
class References:
    """Answers about named objects, remembered for a few seconds. `clock` gives seconds."""

    api: Api
    clock: Callable[[], float]
    _known: dict[tuple[str, str, str], tuple[float, _Answer]] = field(default_factory=dict)
    _priorities: dict[str, tuple[float, int]] = field(default_factory=dict)

    async def resolve(self, key: ServiceKey, spec: LLMServiceSpec, recorded: Iterable[str] = ()) -> Resolved:
        """Check everything that a new plan needs, and the claims that earlier plans are `recorded` with.

        Raises Transient when the API server does not answer.
        """
        replicas = resolve(spec).scale.planned_replicas
        found = [await self._problem(key.namespace, reference, replicas) for reference in references(spec)]
        problems = [problem for problem in found if problem is not None]
        models = await self._models(key.namespace, spec, problems)
        return Resolved(
            tuple(problems),
            models,
            await self.priority(spec.pool.priority_class_name),
            await self._for_one_node(key.namespace, spec, recorded),
            *await self._of_cache(key.namespace, spec),
        )

    async def recheck(self, key: ServiceKey, spec: LLMServiceSpec, recorded: Iterable[str] = ()) -> Resolved:
        """Check what a plan that is kept goes on with: claims for fewer nodes, and what may not be read."""
        replicas = resolve(spec).scale.planned_replicas
        read = [reference for reference in references(spec) if reference.kind is not SECRET]
        found = [await self._problem(key.namespace, reference, replicas) for reference in read]
        return Resolved(
            problems=tuple(p for p in found if p is not None and p.reason in _OF_KEPT),
            priority=await self.priority(spec.pool.priority_class_name),
            for_one_node=await self._for_one_node(key.namespace, spec, recorded),
            unbound=(await self._of_cache(key.namespace, spec))[1],
        )

    async def _of_cache(self, namespace: str, spec: LLMServiceSpec) -> tuple[frozenset[str], frozenset[str]]:
        """Return the claim of the cache, when one pod alone can mount it, and when it has no volume."""
        name = spec.model.cache.claim_name if spec.model.cache else None
        if not name:
            return frozenset(), frozenset()
        answer, found = await self._ask(CLAIM, namespace, name), frozenset({name})
        return found if answer.for_one_pod else frozenset(), frozenset() if answer.bound else found

    async def _for_one_node(
        self, namespace: str, spec: LLMServiceSpec, recorded: Iterable[str]
    ) -> frozenset[str]:
        """Return the claims, of this spec or of earlier plans, that are known to be for one node only."""
        names = claims(spec) | {*recorded}
        return frozenset(
            [name for name in sorted(names) if (await self._ask(CLAIM, namespace, name)).for_one_node]
        )

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

    async def _problem(self, namespace: str, reference: Reference, replicas: int) -> Problem | None:
        """Say what is wrong with a reference: nothing is there, without the key, or it cannot be shared."""
        answer = await self._ask(reference.kind, namespace, reference.name)
        if not answer.readable:
            # Where Secrets may not be read, that was somebody's choice (rbac.checkSecrets).
            return None if reference.kind is SECRET else _unreadable(reference, namespace, blocking=False)
        if not answer.there:
            return _absent(reference, namespace)
        if reference.key and reference.key not in answer.holds:
            return _without_key(reference, namespace)
        if reference.kind is CLAIM and replicas > 1 and answer.for_one_node:
            return _unshareable(reference, answer.holds, replicas)
        return None

    async def _ask(self, kind: Kind, namespace: str, name: str) -> _Answer:
        """Look at an object, or remember what was seen a moment ago. Raises Transient."""
        now = self.clock()
        key = (kind.plural, namespace, name)
        known = self._known.get(key)
        if known is not None and known[0] > now:
            return known[1]
        try:
            answer = await self._look(kind, namespace, name)
        except Gone:
            answer = _Answer(there=False)
        except Forbidden as error:
            _LOG.info("cannot check reference kind=%s name=%s/%s error=%s", kind.kind, namespace, name, error)
            answer = _Answer(readable=False)
        if len(self._known) > 10_000:
            self._known.clear()
        self._known[key] = (now + FRESH_S, answer)
        return answer

    async def _look(self, kind: Kind, namespace: str, name: str) -> _Answer:
        if kind is SECRET:
            return _Answer(there=await self.api.metadata(kind, namespace, name) is not None)
        found = await self.api.get(kind, namespace, name)
        if kind is CLAIM:
            claim = found.get("spec") or {}
            modes = frozenset(claim.get("accessModes") or ())
            return _Answer(holds=modes, bound=bool(claim.get("volumeName")))
        return _Answer(holds=frozenset({**(found.get("data") or {}), **(found.get("binaryData") or {})}))

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
        except Forbidden as error:
            _LOG.info("cannot read config name=%s/%s error=%s", namespace, reference.name, error)
            config_map_ref = Reference(CONFIG_MAP, reference.name, at, Reason.MISSING_CONFIG_MAP)
            problems.append(_unreadable(config_map_ref, namespace, blocking=True))
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


def _without_key(reference: Reference, namespace: str) -> Problem:
    return Problem(
        reason=reference.reason,
        field=reference.field,
        message=f"{reference.kind.kind} {reference.name} in namespace {namespace} has no key "
        f"{reference.key}: add the key, or name another one",
    )


def _unreadable(reference: Reference, namespace: str, *, blocking: bool) -> Problem:
    unseen = ", nor whether one node alone can mount it" if reference.kind is CLAIM else ""
    what = f"{reference.kind.kind} {reference.name}"
    return Problem(
        reason=Reason.READ_FORBIDDEN,
        field=reference.field,
        message=f"the operator has no right to get {reference.kind.plural} in namespace {namespace}, so it "
        f"is not known whether {what} is there{unseen}: grant its service account the verb get, as the "
        "chart's roles do",
        blocking=blocking,
    )


def _unshareable(reference: Reference, modes: frozenset[str], replicas: int) -> Problem:
    return Problem(
        reason=Reason.CACHE_NOT_SHAREABLE,
        field=reference.field,
        message=f"claim {reference.name} is {', '.join(sorted(modes))}, and {replicas} replicas on several "
        "nodes cannot mount it: use a ReadWriteMany claim, an Ephemeral cache, or one replica",
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
    if spec.routing and spec.routing.api_key_secret_ref:
        yield _secret(spec.routing.api_key_secret_ref.name, "spec.routing.apiKeySecretRef")
    if cache and cache.claim_name:
        yield Reference(CLAIM, cache.claim_name, "spec.model.cache.claimName", Reason.MISSING_CLAIM)
    if model.chat_template:
        ref, at = model.chat_template.config_map_ref, "spec.model.chatTemplate.configMapRef"
        yield Reference(CONFIG_MAP, ref.name, at, Reason.MISSING_CONFIG_MAP, ref.key)
    for index, secret in enumerate((engine and engine.image_pull_secrets) or ()):
        yield _secret(secret.name, f"spec.engine.imagePullSecrets[{index}]")
    for index, variable in enumerate((engine and engine.env) or ()):
        if variable.secret_ref:
            yield _secret(variable.secret_ref.name, f"spec.engine.env[{index}].secretRef")
    for index, name in claims_of((spec.pod_template or {}).get("spec")):
        at = f"spec.podTemplate.spec.volumes[{index}]"
        yield Reference(CLAIM, name, at, Reason.MISSING_CLAIM)


def claims(spec: LLMServiceSpec) -> frozenset[str]:
    """Return the claims that a spec names."""
    return frozenset(reference.name for reference in references(spec) if reference.kind is CLAIM)


def _secret(name: str, at: str) -> Reference:
    return Reference(SECRET, name, at, Reason.MISSING_SECRET)

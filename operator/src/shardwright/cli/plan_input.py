"""What `shardwright plan` reads: an LLMService with its ConfigMaps, nodes and pods.

Decides how a file becomes the values that a decision takes, and says which field is wrong. Reads files;
decides nothing of a plan.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from shardwright.api.llmservice import API_VERSION, KIND, LLMService, LLMServiceSpec
from shardwright.api.parse import InvalidSpec, parse_service
from shardwright.catalog.config import architecture_from_config
from shardwright.catalog.errors import CatalogError
from shardwright.catalog.models import load_models, unknown_model_message, unknown_variant_message
from shardwright.catalog.types import ModelArchitecture
from shardwright.planner.types import ModelChoice
from shardwright.topology.facts import node_facts, pod_facts
from shardwright.topology.quantities import QuantityError
from shardwright.topology.types import NodeFacts, PodFacts

Raw = dict[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class InputError(ValueError):
    """A file or an option that cannot be used; the message names the field and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A service and the checkpoints that it may serve."""

    service: LLMService
    models: tuple[ModelChoice, ...]
    notes: tuple[str, ...] = ()


def documents(path: str, stdin: str | None = None) -> list[Raw]:
    """Read all objects of a YAML or JSON file, Lists taken apart. Raises InputError."""
    try:
        content = stdin if stdin is not None else Path(path).read_text(encoding="utf-8")
        loaded = [doc for doc in yaml.load_all(content, Loader=_LOADER) if doc is not None]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {error}") from error
    objects: list[Raw] = []
    for doc in loaded:
        if not isinstance(doc, dict):
            raise InputError(f"{path} holds {type(doc).__name__} where a Kubernetes object should be")
        objects.extend(doc["items"] if isinstance(doc.get("items"), list) else [doc])
    return objects


def read_service(path: str, stdin: str | None = None) -> Inputs:
    """Read the one LLMService of a file, and what its ConfigMaps say of the model. Raises InputError."""
    objects = documents(path, stdin)
    services = [o for o in objects if o.get("kind") == KIND]
    if len(services) != 1:
        raise InputError(f"{path} holds {len(services)} objects of kind {KIND}: give one")
    raw = services[0]
    if raw.get("apiVersion") != API_VERSION:
        raise InputError(f"apiVersion is {raw.get('apiVersion')!r}: write {API_VERSION}")
    try:
        service = parse_service(raw)
    except InvalidSpec as error:
        raise InputError(str(error)) from error
    config_maps = [o for o in objects if o.get("kind") == "ConfigMap"]
    return _with_models(service, config_maps)


def _with_models(service: LLMService, config_maps: Sequence[Raw]) -> Inputs:
    spec, known = service.spec, load_models()
    notes: list[str] = []
    main = _main_architecture(spec, config_maps, known)
    choices = [ModelChoice(model_id=spec.model.id, revision=spec.model.revision, architecture=main)]
    for index, variant in enumerate(spec.model.variants or ()):
        if variant.id in known:
            choices.append(
                ModelChoice(model_id=variant.id, revision=variant.revision, architecture=known[variant.id])
            )
        else:
            notes.append(f"spec.model.variants[{index}].id: {unknown_variant_message(variant.id)}")
    return Inputs(service=service, models=tuple(choices), notes=tuple(notes))


def _main_architecture(
    spec: LLMServiceSpec, config_maps: Sequence[Raw], known: Mapping[str, ModelArchitecture]
) -> ModelArchitecture:
    given = spec.model.config
    if given is None:
        if spec.model.id not in known:
            raise InputError(f"spec.model.id: {unknown_model_message(spec.model.id)}")
        return known[spec.model.id]
    name, key = given.config_map_ref.name, given.config_map_ref.key
    found = next((c for c in config_maps if (c.get("metadata") or {}).get("name") == name), None)
    if found is None:
        raise InputError(
            f"spec.model.config.configMapRef: put the ConfigMap {name} into the same file, after a line ---"
        )
    content = (found.get("data") or {}).get(key)
    if content is None:
        raise InputError(f"ConfigMap {name} has no key {key}: add the model's config.json under it")
    if not isinstance(content, str):
        raise InputError(
            f"ConfigMap {name}, key {key}: must be text: put the model's config.json there as it is"
        )
    try:
        return architecture_from_config(spec.model.id, json.loads(content), given.weight_bytes)
    except ValueError as error:  # CatalogError is one too
        raise InputError(f"ConfigMap {name}, key {key}: {error}") from error


def read_cluster(objects: Iterable[Raw]) -> tuple[list[NodeFacts], list[PodFacts]]:
    """Read nodes and pods out of `kubectl get nodes,pods -A -o yaml`. Raises InputError."""
    nodes: list[NodeFacts] = []
    pods: list[PodFacts] = []
    for raw in objects:
        name = (raw.get("metadata") or {}).get("name", "?")
        try:
            if raw.get("kind") == "Node":
                nodes.append(node_facts(raw))
            elif raw.get("kind") == "Pod":
                pods.append(pod_facts(raw))
        except QuantityError as error:
            raise InputError(f"{raw.get('kind')} {name}: {error}") from error
    if not nodes:
        raise InputError("there is no Node in it: save the output of kubectl get nodes,pods -A -o yaml")
    return nodes, pods


def read_shapes(values: Sequence[str]) -> list[tuple[str, int, int]]:
    """Read `--gpu PRODUCT:GPUS[xNODES]` options, such as NVIDIA-H100-80GB-HBM3:8x2. Raises InputError."""
    shapes = []
    for value in values:
        product, _, counts = value.partition(":")
        gpus, _, nodes = (counts or "8").partition("x")
        if not gpus.isdigit() or not (nodes or "1").isdigit() or int(gpus) < 1 or int(nodes or 1) < 1:
            raise InputError(f"--gpu {value}: write PRODUCT:GPUS or PRODUCT:GPUSxNODES, such as H100:8x2")
        shapes.append((product, int(gpus), int(nodes or "1")))
    return shapes


__all__ = ["CatalogError", "InputError", "Inputs", "documents", "read_cluster", "read_service", "read_shapes"]

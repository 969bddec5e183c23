"""What `shardwright plan` reads: an LLMService with its ConfigMaps, nodes and pods.

Decides how a file becomes the values that a decision takes, and says which field is wrong. Reads files;
decides nothing of a plan.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwright.api.llmservice import KIND, LLMService, LLMServiceSpec
from shardwright.api.parse import InvalidSpec, parse_service
from shardwright.api.reasons import Reason
from shardwright.catalog.config import architecture_from_config
from shardwright.catalog.fields import mapping
from shardwright.catalog.models import load_models, unknown_model_message, unknown_variant_message
from shardwright.catalog.types import ModelArchitecture
from shardwright.cli.files import InputError, name_of, of_file, read_text
from shardwright.cluster.declared import declared_node, declared_pod, flat
from shardwright.cluster.documents import DocumentError, parse_json, parse_objects
from shardwright.planner.types import ModelChoice
from shardwright.topology.facts import MOST_NODE_GPUS
from shardwright.topology.types import NodeFacts, PodFacts

Raw = dict[str, Any]
Shape = tuple[str, int, int]
"""Product as written, GPUs of a node, nodes."""
_SHAPE = re.compile(r"([^:]{1,128})(?::([0-9]{1,6})(?:x([0-9]{1,6}))?)?")
_MOST_NODES = 10_000
"""As many as pool.shapes takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A service and the checkpoints that it may serve."""

    service: LLMService
    models: tuple[ModelChoice, ...]
    notes: tuple[str, ...] = ()
    path: str = ""
    """The file that the service was read from, for what is wrong with it."""


def documents(path: str) -> list[Raw]:
    """Read all objects of a YAML or JSON file, Lists taken apart. Raises InputError."""
    text = read_text(path)
    try:
        return list(flat(parse_objects(text)))
    except DocumentError as error:
        raise of_file(path, error) from error


def read_service(path: str) -> Inputs:
    """Read the one LLMService of a file, and what its ConfigMaps say of the model. Raises InputError."""
    objects = documents(path)
    services = [o for o in objects if o.get("kind") == KIND]
    if len(services) != 1:
        raise InputError(f"{name_of(path)} holds {len(services)} objects of kind {KIND}: give one")
    config_maps = [o for o in objects if o.get("kind") == "ConfigMap"]
    try:
        return replace(with_models(parsed(services[0]), config_maps), path=path)
    except InputError as error:
        raise of_file(path, error) from error


def parsed(raw: Mapping[str, Any]) -> LLMService:
    """Read an LLMService as the API server would. Raises InputError."""
    try:
        return parse_service(raw)
    except InvalidSpec as error:
        raise InputError(str(error)) from error


def with_models(service: LLMService, config_maps: Sequence[Raw]) -> Inputs:
    """Look up what is known of a service's checkpoints, the main one's config in a ConfigMap.

    Raises InputError.
    """
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
            message = f"spec.model.id: {unknown_model_message(spec.model.id)}"
            raise InputError(message, Reason.UNKNOWN_MODEL)
        return known[spec.model.id]
    name, key = given.config_map_ref.name, given.config_map_ref.key
    found = next((c for c in config_maps if _map(c.get("metadata")).get("name") == name), None)
    if found is None:
        raise InputError(
            f"spec.model.config.configMapRef: put the ConfigMap {name} into the same file, after a line ---",
            Reason.MISSING_CONFIG_MAP,
        )
    where = f"ConfigMap {name}, key {key}"
    content = _map(found.get("data")).get(key)
    if content is None:
        raise InputError(f"{where}: there is none: add the model's config.json under it")
    if not isinstance(content, str):
        raise InputError(f"{where}: must be text: put the model's config.json there as it is")
    try:
        config = mapping(parse_json(content), "config.json")
        return architecture_from_config(spec.model.id, config, given.weight_bytes)
    except ValueError as error:  # DocumentError and CatalogError
        raise InputError(f"{where}: {error}", Reason.INVALID_MODEL_CONFIG) from error


def _map(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def read_cluster(objects: Iterable[Raw]) -> tuple[list[NodeFacts], list[PodFacts]]:
    """Read nodes and pods out of `kubectl get nodes,pods -A -o yaml`. Raises InputError."""
    nodes: list[NodeFacts] = []
    pods: list[PodFacts] = []
    try:
        for raw in objects:
            if raw.get("kind") == "Node":
                nodes.append(declared_node(raw))
            elif raw.get("kind") == "Pod":
                pods.append(declared_pod(raw))
    except DocumentError as error:
        raise InputError(str(error)) from error
    if not nodes:
        raise InputError("there is no Node in it: save the output of kubectl get nodes,pods -A -o yaml")
    return nodes, pods


def read_shapes(values: Sequence[str]) -> list[Shape]:
    """Read `--gpu PRODUCT:GPUS[xNODES]` options, such as NVIDIA-H100-80GB-HBM3:8x2. Raises InputError."""
    shapes = []
    for value in values:
        found = _SHAPE.fullmatch(value)
        gpus, nodes = (int(found[2] or 8), int(found[3] or 1)) if found else (0, 0)
        if found is None or not 1 <= gpus <= MOST_NODE_GPUS or not 1 <= nodes <= _MOST_NODES:
            raise InputError(
                f"--gpu {value[:80]}: write PRODUCT:GPUS or PRODUCT:GPUSxNODES, such as H100:8x2, with at "
                f"most {MOST_NODE_GPUS} GPUs a node and {_MOST_NODES} nodes"
            )
        shapes.append((found[1], gpus, nodes))
    return shapes


__all__ = ["InputError", "Inputs", "Shape", "documents", "read_cluster", "read_service", "read_shapes"]

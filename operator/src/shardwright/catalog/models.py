"""The models the operator knows without a config.json from the user.

Decides which ids are known and what their architecture is: each row of `data/models.json` is a config.json
(as its source states it) and goes through `config.architecture_from_config`, as a user's own does. Never
predicts memory.
"""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from shardwright.catalog.config import architecture_from_config
from shardwright.catalog.errors import CatalogError
from shardwright.catalog.fields import Fields, read_data, rows
from shardwright.catalog.types import ModelArchitecture


def load_models() -> Mapping[str, ModelArchitecture]:
    """Return architectures by id, read once. Wrong data: CatalogError naming row and field."""
    return _catalogue()[0]


def incomplete_models() -> Mapping[str, str]:
    """Return models that are known by name only: id to the field that no source stated."""
    return _catalogue()[1]


IN_A_SPEC: Final = "put its config.json into a ConfigMap and name that in spec.model.config.configMapRef"
"""What to do about a model that is not known, in an LLMService."""


def unknown_model_message(model_id: str, remedy: str = IN_A_SPEC) -> str:
    """Say what of an id without an architecture: which field is missing, or which known ids look like it."""
    missing = incomplete_models().get(model_id)
    if missing is not None:
        return f"{model_id} is known by name only ({missing}): {remedy}"
    near = get_close_matches(model_id, load_models(), n=3, cutoff=0.5)
    hint = f"; the nearest known ids are {', '.join(near)}" if near else ""
    return f"{model_id} is not in the catalogue: {remedy}{hint}"


def unknown_variant_message(variant_id: str) -> str:
    """Say of a variant without an architecture that it is left out, and which ids exist: it has no config."""
    missing = incomplete_models().get(variant_id)
    why = f"known by name only ({missing})" if missing is not None else "not in the catalogue"
    near = get_close_matches(variant_id, load_models(), n=3, cutoff=0.0)
    return f"{variant_id} is {why}, so it is not considered: name one that is, such as {', '.join(near)}"


@lru_cache(maxsize=1)
def _catalogue() -> tuple[Mapping[str, ModelArchitecture], Mapping[str, str]]:
    return parse_models(read_data("models.json"))


def parse_models(data: object) -> tuple[Mapping[str, ModelArchitecture], Mapping[str, str]]:
    """Return known and incomplete models, or raise CatalogError naming row and field."""
    known: dict[str, ModelArchitecture] = {}
    incomplete: dict[str, str] = {}
    for index, item in enumerate(rows(data, "models.json")):
        row = Fields(item, f"models.json[{index}]")
        model_id = row.text("id")
        if model_id in known or model_id in incomplete:
            raise CatalogError(row.name("id"), f"{model_id} is there twice")
        source = row.text("source")
        reason = row.text("incomplete", "")
        if reason:
            incomplete[model_id] = reason
        else:
            known[model_id] = _architecture(row, model_id, source)
    return MappingProxyType(known), MappingProxyType(incomplete)


def _architecture(row: Fields, model_id: str, source: str) -> ModelArchitecture:
    config = row.inside("config")
    if config is None:
        raise CatalogError(row.name("config"), "is missing")
    checkpoint = row.optional_integer("checkpoint_bytes")
    from_checkpoint = row.flag("weights_from_checkpoint", default=False)
    if from_checkpoint and checkpoint is None:
        raise CatalogError(row.name("weights_from_checkpoint"), "needs checkpoint_bytes")
    try:
        found = architecture_from_config(model_id, config.data, checkpoint if from_checkpoint else None)
    except CatalogError as error:
        raise CatalogError(f"{row.where} ({model_id}).{error.field}", error.message) from error
    trusted = from_checkpoint or (checkpoint is not None and bool(found.unpredicted))
    return replace(found, checkpoint_bytes=checkpoint, weights_from_checkpoint=trusted, source=source)

"""What children of a service share: name, labels and owner of each, and where the engine is in a pod.

Decides nothing else of them.
"""

from collections.abc import Mapping
from typing import Any

from shardwright.api.llmservice import API_VERSION, KIND, LLMService
from shardwright.api.names import ENGINE_CONTAINER
from shardwright.render.request import JsonObject


def metadata(service: LLMService, name: str, labels: dict[str, str]) -> JsonObject:
    """Return the metadata of a child."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": service.metadata.name,
        "uid": service.metadata.uid,
        "controller": True,
    }
    return {
        "name": name,
        "namespace": service.metadata.namespace,
        "labels": labels,
        # Offline rendering knows no uid, and a reference without one is refused.
        **({"ownerReferences": [owner]} if service.metadata.uid else {}),
    }


def engine_of(pod: Mapping[str, Any]) -> JsonObject:
    """Return the engine's container of a pod's spec; empty where there is none."""
    return next((c for c in pod.get("containers") or () if c["name"] == ENGINE_CONTAINER), {})

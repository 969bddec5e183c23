"""What all children of a service have: name, labels and owner. Decides nothing else of them."""

from shardwright.api.llmservice import API_VERSION, KIND, LLMService
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

"""Where a pod reads the model and keeps what it downloads or compiles: volumes, mounts and paths.

Decides paths and volumes. Never decides a size: shared memory comes from the plan, and the ephemeral volumes
are covered by the plan's ephemeral-storage request.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.planner.types import Plan
from shardwright.render.quantity import binary
from shardwright.render.request import JsonObject

CACHE_PATH: Final = "/cache"
CACHE_VOLUME: Final = "cache"
DOWNLOADS: Final = "--download-dir="
"""Of an engine that fetches from a hub by itself, and of no other."""
HUB_PATH: Final = f"{CACHE_PATH}/huggingface"
FETCHED_PATH: Final = f"{HUB_PATH}/shardwright"
"""Where the Job that fetches weights leaves a link for each repository and revision. An engine gets this path
and not the repository's name: from 1.22 on, the hub's client calls a repository incomplete whose files are
there but for those that no engine needs, when it may not ask the hub (huggingface/optimum-intel#1855)."""
MODEL_PATH: Final = "/models"
CHAT_TEMPLATE_PATH: Final = "/etc/shardwright/chat-template"
STREAMER_SCHEMES: Final = ("s3", "gs", "az")
"""URIs that vLLM loads by itself (0.32.0 wheel, transformers_utils/runai_utils.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The storage of one pod."""

    model: str
    """First argument of `vllm serve`: an id, a path or a URI."""
    offline: bool
    """Nothing is fetched from a hub."""
    tokenizer: str | None
    """Id or path of the tokenizer, when it is not the model's own."""
    fetched: bool
    """A Job has fetched model and tokenizer."""
    volumes: tuple[JsonObject, ...]
    mounts: tuple[JsonObject, ...]
    chat_template: str | None
    """Path of the chat template in the container."""


def source_type(spec: LLMServiceSpec) -> str:
    """Return Hub, PVC or URI."""
    return spec.model.source.type if spec.model.source else "Hub"


def storage(spec: LLMServiceSpec, plan: Plan, *, fetched: bool = False) -> Storage:
    """Return the storage of a pod of `plan`; `fetched`: all that it needs of a hub is in its cache."""
    volumes: list[JsonObject] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": binary(plan.shm_bytes)}},
        {"name": "tmp", "emptyDir": {}},
        {"name": CACHE_VOLUME, **_cache(spec)},
    ]
    mounts: list[JsonObject] = [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 -- NCCL and vLLM's workers talk through it
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 -- the container's own, on a volume
        {"name": CACHE_VOLUME, "mountPath": CACHE_PATH},
    ]
    model = plan.model.model_id
    source = spec.model.source
    if source is not None and source.pvc is not None:
        claim = {"claimName": source.pvc.claim_name, "readOnly": True}
        volumes.append({"name": "model", "persistentVolumeClaim": claim})
        mounts.append({"name": "model", "mountPath": MODEL_PATH, "readOnly": True})
        inside = (source.pvc.path or "").strip("/")
        model = f"{MODEL_PATH}/{inside}" if inside else MODEL_PATH
    elif source is not None and source.uri is not None:
        model = source.uri.uri
    tokenizer = spec.model.tokenizer
    if fetched:
        model = fetched_path(model, plan.model.revision)
        tokenizer = fetched_path(tokenizer) if tokenizer else None
    template = None
    if spec.model.chat_template is not None:
        ref = spec.model.chat_template.config_map_ref
        items = [{"key": ref.key, "path": ref.key}]
        volumes.append({"name": "chat-template", "configMap": {"name": ref.name, "items": items}})
        mounts.append({"name": "chat-template", "mountPath": CHAT_TEMPLATE_PATH, "readOnly": True})
        template = f"{CHAT_TEMPLATE_PATH}/{ref.key}"
    return Storage(
        model=model,
        offline=fetched or (source_type(spec) == "PVC" and spec.model.tokenizer is None),
        tokenizer=tokenizer,
        fetched=fetched,
        volumes=tuple(volumes),
        mounts=tuple(mounts),
        chat_template=template,
    )


def fetched_path(repository: str, revision: str | None = None) -> str:
    """Return the path at which a fetched repository is found."""
    return f"{FETCHED_PATH}/{'--'.join([*repository.split('/'), *(revision or 'main').split('/')])}"


def claims_of(pod_spec: object) -> Iterator[tuple[int, str]]:
    """Give index and claim of each volume of a pod's spec, or of an overlay of one, that is a claim."""
    volumes = pod_spec.get("volumes") if isinstance(pod_spec, Mapping) else None
    for index, volume in enumerate(volumes if isinstance(volumes, list) else ()):
        claim = volume.get("persistentVolumeClaim") if isinstance(volume, Mapping) else None
        name = claim.get("claimName") if isinstance(claim, Mapping) else None
        if isinstance(name, str):
            yield index, name


def _cache(spec: LLMServiceSpec) -> JsonObject:
    cache = spec.model.cache
    if cache is not None and cache.type == "PVC":
        return {"persistentVolumeClaim": {"claimName": cache.claim_name}}
    if cache is not None and cache.type == "HostPath":
        # Not DirectoryOrCreate: kubelet would make a directory that only root can write.
        return {"hostPath": {"path": cache.path, "type": "Directory"}}
    return {"emptyDir": {}}

"""The engine container's environment variables.

Decides names and values, secrets by reference only. A variable of `spec.engine.env` replaces one of the same
name.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shardwright.api.base import SecretKeyRef
from shardwright.api.engine import EnvVar
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.names import API_KEY
from shardwright.render.request import JsonObject
from shardwright.render.startup import StartupBudget
from shardwright.render.storage import CACHE_PATH, HUB_PATH, Storage, source_type

RUN_AS_USER: Final = 2000
RUN_AS_NAME: Final = "vllm"
"""The user that vLLM's CUDA image ships for running without root (vllm-project/vllm#40275). Older images have
no such entry in /etc/passwd: there, USER keeps PyTorch from looking the number up and failing
(vllm-project/vllm#44548)."""

KEEP_ALIVE_S: Final = 3630
"""How long an engine keeps a connection that nobody uses, s. vLLM closes it after 5 s, before most that pool
them do: Go's client after 90 s, nginx and AWS load balancers 60 s, Envoy an hour (vllm-router 0.1.17 was seen
to after 2 s). A request that is sent while the engine closes its connection is lost (kserve/kserve#5446,
llm-d/llm-d#1564), so the client has to close first."""

OWNED_ENV: Final = MappingProxyType(
    {
        "CUDA_VISIBLE_DEVICES": "nothing: the device plugin assigns the GPUs",
        "NVIDIA_VISIBLE_DEVICES": "nothing: the device plugin assigns the GPUs",
        "HIP_VISIBLE_DEVICES": "nothing: the device plugin assigns the GPUs",
        "ROCR_VISIBLE_DEVICES": "nothing: the device plugin assigns the GPUs",
        "VLLM_HOST_IP": "nothing: vLLM finds the pod's own address",
        "VLLM_PORT": "nothing: it is the port of vLLM's internal traffic, and Services rely on --port",
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "nothing: a dead engine must end, or its pod stays Ready",
        "VLLM_SERVER_DEV_MODE": "nothing: it opens unauthenticated administrative endpoints",
        "HF_HUB_OFFLINE": "spec.model.source",
        "HF_HOME": "spec.model.cache",
        "VLLM_CACHE_ROOT": "spec.model.cache",
        "HF_ENDPOINT": "spec.model.source.hub.endpoint",
        "HF_TOKEN": "spec.model.source.hub.tokenSecretRef",
        "HUGGING_FACE_HUB_TOKEN": "spec.model.source.hub.tokenSecretRef",
    }
)
"""Variables that the plan or the rendered pod owns, and the field to use instead."""


def environment(spec: LLMServiceSpec, files: Storage, budget: StartupBudget, vendor: str) -> list[JsonObject]:
    """Return the variables in a fixed order: ours by name, then the user's own additions as written."""
    ours = _ours(spec, files, budget, vendor)
    theirs = {variable.name: _user(variable) for variable in (spec.engine.env if spec.engine else None) or []}
    merged = [theirs.pop(name, entry) for name, entry in sorted(ours.items())]
    return merged + list(theirs.values())


def environment_from(spec: LLMServiceSpec) -> list[JsonObject]:
    """Return the sources of whole Secrets: an object store's credentials."""
    uri = spec.model.source.uri if spec.model.source else None
    if uri is None or uri.credentials_secret_ref is None:
        return []
    return [{"secretRef": {"name": uri.credentials_secret_ref}}]


def _ours(
    spec: LLMServiceSpec, files: Storage, budget: StartupBudget, vendor: str
) -> Mapping[str, JsonObject]:
    values = {
        # Downloads and compiled graphs survive a restart, and a pod's end when the cache is a claim.
        "HF_HOME": HUB_PATH,
        "VLLM_CACHE_ROOT": f"{CACHE_PATH}/vllm",
        # The engine gives up on its own workers after 600 s unless told the start-up probe's budget.
        "VLLM_ENGINE_READY_TIMEOUT_S": str(budget.engine_s),
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(KEEP_ALIVE_S),
        "VLLM_NO_USAGE_STATS": "1",
    }
    if vendor == "nvidia":
        # On a volume, as the root filesystem is read-only: Triton, FlashInfer and CUDA cache there.
        values |= {"HOME": "/tmp", "USER": RUN_AS_NAME}  # noqa: S108 -- the container's own, on a volume
    if source_type(spec) == "URI":
        # Each rank's buffer in host memory, which is part of the pod's: as small as the largest tensor
        # allows. Unset it is 40 GB or more (run-ai/runai-model-streamer, docs/src/env-vars.md).
        values["RUNAI_STREAMER_MEMORY_LIMIT"] = "0"
    if files.offline:
        values["HF_HUB_OFFLINE"] = "1"
    hub = spec.model.source.hub if spec.model.source else None
    if hub is not None and hub.endpoint:
        values["HF_ENDPOINT"] = hub.endpoint
    found: dict[str, JsonObject] = {name: {"name": name, "value": value} for name, value in values.items()}
    if source_type(spec) == "Hub" and hub is not None and hub.token_secret_ref is not None:
        found["HF_TOKEN"] = {"name": "HF_TOKEN", "valueFrom": _secret(hub.token_secret_ref)}
    if spec.routing is not None and spec.routing.api_key_secret_ref is not None:
        found[API_KEY] = {"name": API_KEY, "valueFrom": _secret(spec.routing.api_key_secret_ref)}
    return found


def _user(variable: EnvVar) -> JsonObject:
    if variable.secret_ref is not None:
        return {"name": variable.name, "valueFrom": _secret(variable.secret_ref)}
    # An empty value is what Kubernetes assumes anyway, and it drops one that is written.
    return {"name": variable.name} | ({"value": variable.value} if variable.value else {})


def _secret(ref: SecretKeyRef) -> JsonObject:
    return {"secretKeyRef": {"name": ref.name, "key": ref.key}}

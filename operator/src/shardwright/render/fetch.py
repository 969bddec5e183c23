"""The Job that fetches a model into a cache claim, once for all engines of a revision.

Decides which services have one, what decides the bytes (and so the Job's name), how long it may take, and
every field of it. Its pod is the engine's without GPU: same image, user, volumes, variables and tolerations,
so that a proxy, a certificate or a pull secret need not be said twice. Never decides when it is made.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from shardwright.api.llmservice import GROUP, LLMService, LLMServiceSpec
from shardwright.api.names import (
    FETCH_CONTAINER,
    LABEL_REVISION,
    LABEL_ROLE,
    LABEL_SERVING,
    ROLE_FETCH,
    fetch_name,
    service_labels,
)
from shardwright.planner.engine_args import parse
from shardwright.planner.types import Plan
from shardwright.render.children import engine_of, metadata
from shardwright.render.request import FetchPlace, JsonObject
from shardwright.render.startup import startup_budget
from shardwright.render.storage import (
    CACHE_VOLUME,
    CHAT_TEMPLATE_PATH,
    DOWNLOADS,
    claims_of,
    fetched_path,
    source_type,
)

ANNOTATION_FETCHED: Final = f"{GROUP}/weights-fetched"
"""On a ControllerRevision: its weights are in the claim. Whoever takes it off has them fetched again."""
RETRIES: Final = 6
"""Restarts of the container, at the kubelet's growing distances (10 s to 5 min): some 10 minutes in all. A
download goes on where it stopped."""
AGAIN_S: Final = 600
"""How long an ended Job stays. One that failed is made anew when it is gone, and so at this distance."""
REQUESTS: Final = {"cpu": "1", "ephemeral-storage": "1Gi", "memory": "2Gi"}
MEMORY_LIMIT: Final = "8Gi"
"""What hf-xet may fill with downloaded blocks before they are written (its own bound), and what the kernel
keeps of written files, which it gives back."""
SCRIPT_VERSION: Final = 1
"""Raised when the script fetches other files of the same repository."""
NAMES_OTHERS: Final = frozenset(
    {"--lora-modules", "--speculative-config", "--hf-config-path", "--generation-config"}
)
"""Arguments that `spec.engine.args` may have and by which an engine fetches from other repositories, where a
value has a slash."""
ARCH_LABEL: Final = "kubernetes.io/arch"
OS_LABEL: Final = "kubernetes.io/os"
_ENGINE_PATHS: Final = frozenset({"/dev/shm", CHAT_TEMPLATE_PATH})  # noqa: S108 -- the container's own
_ENGINE_ONLY: Final = ("VLLM_", "RUNAI_", "NCCL_", "HF_HUB_OFFLINE")
_NOT_THE_JOBS: Final = frozenset(
    {
        "affinity",
        "containers",
        "initContainers",
        "resourceClaims",
        "schedulingGroup",
        "terminationGracePeriodSeconds",
        "topologySpreadConstraints",
    }
)
_ELSEWHERE: Final = frozenset({"VLLM_USE_MODELSCOPE", "TRANSFORMERS_OFFLINE"})
"""Variables by which engines do without the hub."""
_FIXED: Final = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # The image's own is `all`, which NVIDIA's container runtime obeys in a pod that asks for no GPU.
    "NVIDIA_VISIBLE_DEVICES": "void",
}
_ENGINE_ANNOTATIONS: Final = ("prometheus.io/", "kubectl.kubernetes.io/", f"{GROUP}/")


class Fetch(NamedTuple):
    """What a revision's record says of its Job."""

    job: str
    claim: str
    seconds: int
    """How long it may take."""


def fetches(spec: LLMServiceSpec, for_one_pod: frozenset[str] = frozenset()) -> bool:
    """Whether weights are fetched by a Job: from the hub, into a claim that it can share with engines."""
    cache_spec = spec.model.cache
    if not _asks_hub(spec) or cache_spec is None or not cache_spec.claim_name:
        return False
    return cache_spec.claim_name not in for_one_pod


def fetches_alone(spec: LLMServiceSpec) -> bool:
    """Whether each engine fetches from the hub what the others do: their cache is not one claim."""
    return _asks_hub(spec) and not (spec.model.cache and spec.model.cache.claim_name)


def fetches_alone_on_record(data: Mapping[str, Any]) -> bool:
    """Return `fetches_alone` of a revision on record: what its engines do, whatever the spec says by now."""
    pod = (data.get("template") or {}).get("spec") or {}
    engine = engine_of(pod)
    names = {entry["name"] for entry in engine.get("env") or ()}
    online = any(word.startswith(DOWNLOADS) for word in engine.get("args") or ())
    claims = {pod["volumes"][index]["name"] for index, _ in claims_of(pod)}
    return online and not names & _ELSEWHERE and CACHE_VOLUME not in claims


def _asks_hub(spec: LLMServiceSpec) -> bool:
    variables = {variable.name for variable in (spec.engine and spec.engine.env) or ()}
    return source_type(spec) == "Hub" and not variables & _ELSEWHERE


def is_offline(spec: LLMServiceSpec) -> bool:
    """Whether engines need nothing that the Job has not fetched."""
    found = parse((spec.engine and spec.engine.args) or ()).arguments
    naming = (a.values for a in found if a.flag is not None and a.flag.name in NAMES_OTHERS)
    return not any("/" in value for values in naming for value in values)


def fetch_data(service: LLMService, plan: Plan) -> JsonObject:
    """Return what the record of a new revision keeps of its Job."""
    spec = service.spec
    assert spec.model.cache is not None
    claim, hub = spec.model.cache.claim_name, spec.model.source.hub if spec.model.source else None
    model, revision = plan.model.model_id, plan.model.revision
    repositories = [f"{model}@{revision or ''}={fetched_path(model, revision)}"]
    if spec.model.tokenizer:
        repositories.append(f"{spec.model.tokenizer}@={fetched_path(spec.model.tokenizer)}")
    decides = [SCRIPT_VERSION, repositories, claim, (hub and hub.endpoint) or ""]
    digest = hashlib.sha256(json.dumps(decides, separators=(",", ":")).encode()).hexdigest()[:8]
    return {
        "name": fetch_name(service.metadata.name, digest),
        "claim": claim,
        "repositories": repositories,
        "seconds": startup_budget(plan, "Hub").fetch_s,
    }


def read_fetch(data: Mapping[str, Any]) -> Fetch | None:
    """Read it from the data of a record; None when there is no Job."""
    found = data.get("fetch")
    try:
        return Fetch(str(found["name"]), str(found["claim"]), int(found["seconds"])) if found else None
    except (KeyError, TypeError, ValueError):
        return None


def fetch_job(service: LLMService, data: Mapping[str, Any], place: FetchPlace) -> JsonObject:
    """Return the Job of a revision, from the data of its record."""
    found, template = data["fetch"], data["template"]
    labels = service_labels(service.metadata.name) | {LABEL_ROLE: ROLE_FETCH}
    # Of the Job alone: engines are selected by it.
    revision = {LABEL_REVISION: template["metadata"]["labels"][LABEL_REVISION]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(service, found["name"], labels | revision),
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": found["seconds"],
            "ttlSecondsAfterFinished": AGAIN_S,
            "template": {
                "metadata": _head(template["metadata"], labels),
                "spec": _pod(template["spec"], found["repositories"], place),
            },
        },
    }


def _head(engine: Mapping[str, Any], labels: dict[str, str]) -> JsonObject:
    """Return the user's own labels and annotations with ours: policies of network and mesh go by them."""
    theirs = {k: v for k, v in engine["labels"].items() if k not in {LABEL_REVISION, LABEL_SERVING}}
    notes = {
        k: v for k, v in (engine.get("annotations") or {}).items() if not k.startswith(_ENGINE_ANNOTATIONS)
    }
    return {"labels": theirs | labels} | ({"annotations": notes} if notes else {})


def _pod(engine: Mapping[str, Any], repositories: list[str], place: FetchPlace) -> JsonObject:
    container = engine_of(engine)
    mounts = [mount for mount in container["volumeMounts"] if mount["mountPath"] not in _ENGINE_PATHS]
    used = {mount["name"] for mount in mounts}
    kept = {key: value for key, value in engine.items() if key not in _NOT_THE_JOBS}
    if "runtimeClassName" in engine:  # only the engines' nodes are known to have it
        place = replace(place, as_engines=True)
    if place.arch and not place.as_engines:
        kept["nodeSelector"] = {**kept.get("nodeSelector", {}), ARCH_LABEL: place.arch, OS_LABEL: "linux"}
    return kept | {
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 30,
        "affinity": {"nodeAffinity": _affinity(engine["affinity"]["nodeAffinity"], place)},
        "containers": [_container(container, mounts, repositories)],
        "volumes": [volume for volume in engine["volumes"] if volume["name"] in used],
    }


def _container(engine: Mapping[str, Any], mounts: list[JsonObject], repositories: list[str]) -> JsonObject:
    env = [entry for entry in engine["env"] if not entry["name"].startswith(_ENGINE_ONLY)]
    context = (engine.get("securityContext") or {}) | {"readOnlyRootFilesystem": True}
    same = {key: engine[key] for key in ("envFrom", "imagePullPolicy") if key in engine}
    names = {entry["name"] for entry in env}
    fixed = [{"name": name, "value": value} for name, value in _FIXED.items() if name not in names]
    return same | {
        "name": FETCH_CONTAINER,
        "image": engine["image"],
        "command": ["python3", "-c", _script()],
        "args": list(repositories),
        "env": env + fixed,
        "resources": {"requests": dict(REQUESTS), "limits": {"memory": MEMORY_LIMIT}},
        "securityContext": context,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _affinity(engine: Mapping[str, Any], place: FetchPlace) -> JsonObject:
    """Return the node affinity: the engines' own, or only a wish for nodes that have the image."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = engine[required]["nodeSelectorTerms"]
    if not place.as_engines:
        wishes = [{"weight": 100, "preference": term} for term in terms]
        return {"preferredDuringSchedulingIgnoredDuringExecution": wishes}
    if not place.node:
        return dict(engine)
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [place.node]}]}
    return {required: {"nodeSelectorTerms": [here]}}


@cache
def _script() -> str:
    return Path(__file__).with_name("fetch_script.py").read_text(encoding="utf-8")

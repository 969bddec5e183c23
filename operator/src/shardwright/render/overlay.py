"""`spec.podTemplate`, merged over the rendered pod, and the checks of what a user adds by hand.

Decides what an overlay may set and how it is merged: maps by key, lists of named things by name, other lists
replaced. Never lets it change what the plan depends on; each refusal names the field to use instead.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from shardwright.api.llmservice import GROUP, LLMServiceSpec
from shardwright.api.names import API_KEY, ENGINE_CONTAINER
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.catalog.engines import DEFAULT_ENGINE_VERSION, engine_class
from shardwright.planner import engine_args
from shardwright.render.environment import OWNED_ENV
from shardwright.render.request import JsonObject
from shardwright.render.routing import FLAGS_SINCE
from shardwright.render.storage import (
    CACHE_PATH,
    CHAT_TEMPLATE_PATH,
    MODEL_PATH,
    STREAMER_SCHEMES,
    source_type,
)

MERGE_KEYS: Final = MappingProxyType(
    {
        "containers": "name",
        "initContainers": "name",
        "env": "name",
        "volumes": "name",
        "volumeMounts": "mountPath",
        "volumeDevices": "devicePath",
        "imagePullSecrets": "name",
        "hostAliases": "ip",
        "ports": "containerPort",
        "resourceClaims": "name",
    }
)
"""Lists that merge by a key, with Kubernetes' own strategic-merge keys (core/v1 API conventions)."""

_SCALING = "spec.scaling"
_POOL = "spec.pool"
REFUSED_POD: Final = MappingProxyType(
    {
        "restartPolicy": "nothing: a Deployment's pods always restart, which is how a dead engine recovers",
        "serviceAccountName": "nothing: the operator makes the account; bind roles to NAME-engine",
        "serviceAccount": "nothing: the operator makes the account; bind roles to NAME-engine",
        "nodeName": "spec.pool.nodeSelector",
        "nodeSelector": "spec.pool.nodeSelector; the planner has to know which nodes may be used",
        "affinity": "spec.pool and spec.availability; the planner has to know which nodes may be used",
        "topologySpreadConstraints": "spec.availability.surviveNodeLoss",
        "tolerations": "spec.pool.tolerations; the planner has to know which nodes may be used",
        "schedulerName": "spec.pool.schedulerName",
        "priorityClassName": "spec.pool.priorityClassName",
        "priority": "spec.pool.priorityClassName",
        "imagePullSecrets": "spec.engine.imagePullSecrets",
        "terminationGracePeriodSeconds": "spec.drain.maxSeconds; the grace period follows from it",
        "enableServiceLinks": "nothing: injected variables can stop vLLM from starting",
        "activeDeadlineSeconds": "nothing: an engine has no end",
        "ephemeralContainers": "nothing: kubectl debug adds them",
        "resources": "the resources of the containers",
    }
)
"""Pod fields that an overlay may not set, and what to use instead."""

REFUSED_ENGINE: Final = MappingProxyType(
    {
        "command": "spec.engine",
        "args": "spec.engine.args",
        "image": "spec.engine.image or spec.engine.version",
        "env": "spec.engine.env",
        "startupProbe": "nothing: its budget is computed from the bytes to load",
        "livenessProbe": "nothing: it is vLLM's /health",
        "readinessProbe": "nothing: it is vLLM's /health",
        "lifecycle": "spec.drain.maxSeconds",
        "ports": "nothing: probes, Services and metrics rely on the engine's port",
        "terminationMessagePolicy": "nothing: the diagnosis reads the message",
    }
)
"""Fields of the engine container that an overlay may not set, and what to use instead."""

OWN_MOUNTS: Final = MappingProxyType(
    {
        "/dev/shm": "nothing: its size follows from the parallelism",  # noqa: S108 -- the container's own
        "/tmp": "another path: the engine needs it writable",  # noqa: S108 -- the container's own
        CACHE_PATH: "spec.model.cache",
        MODEL_PATH: "spec.model.source",
        CHAT_TEMPLATE_PATH: "spec.model.chatTemplate",
    }
)
"""Paths that the operator mounts, and what to use instead of an overlay."""

_GPU_PARTS = ("nvidia.com/gpu", "nvidia.com/mig-", "amd.com/gpu")
_METADATA = frozenset({"labels", "annotations"})
_OWN_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by")
_SECRET_ENDINGS = ("_TOKEN", "_KEY", "_SECRET", "_PASSWORD")


def apply(rendered: JsonObject, overlay: Mapping[str, Any]) -> JsonObject:
    """Return `rendered` with `overlay` merged over it; neither is changed. Run `check` before."""
    merged: JsonObject = _merge(rendered, overlay, key="")
    return merged


def check(spec: LLMServiceSpec) -> list[Problem]:
    """Return what is wrong with the parts of `spec` that only rendering reads, in the order of the fields."""
    return [*_model(spec), *_engine(spec), *_queue(spec), *_pod_template(spec.pod_template or {})]


def _merge(below: Any, above: Any, key: str) -> Any:  # noqa: ANN401 -- JSON
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        merged = {
            name: _merge(value, above[name], name) if name in above else value
            for name, value in below.items()
        }
        return merged | {name: value for name, value in above.items() if name not in below}
    merge_key = MERGE_KEYS.get(key)
    if merge_key and isinstance(below, list) and isinstance(above, list):
        return _merge_list(below, above, merge_key)
    return above


def _merge_list(below: list[Any], above: list[Any], merge_key: str) -> list[Any]:
    over = {entry.get(merge_key): entry for entry in above if isinstance(entry, Mapping)}
    merged = [
        _merge(entry, over.pop(entry.get(merge_key)), "") if entry.get(merge_key) in over else entry
        for entry in below
    ]
    return merged + list(over.values())


def _model(spec: LLMServiceSpec) -> list[Problem]:
    found = []
    source, model = source_type(spec), spec.model
    if model.quantize_at_load and model.quantization != "FP8":
        found.append(
            _problem(
                Reason.INVALID_SPEC,
                "spec.model.quantization",
                f"vLLM quantizes to FP8 at load, not to {model.quantization}: write FP8, or use a checkpoint "
                "in that format and leave quantizeAtLoad out",
            )
        )
    uri = model.source.uri.uri if model.source and model.source.uri else ""
    if uri and uri.split("://")[0] not in STREAMER_SCHEMES:
        allowed = ", ".join(f"{scheme}://" for scheme in STREAMER_SCHEMES)
        found.append(
            _problem(
                Reason.INVALID_SPEC,
                "spec.model.source.uri.uri",
                f"vLLM loads from {allowed} by itself; for anything else put the weights on a claim and use "
                "source.type PVC",
            )
        )
    if source != "Hub" and model.variants:
        found.append(
            _problem(
                Reason.INVALID_SPEC,
                "spec.model.variants",
                f"variants are fetched from the hub, and source.type is {source}: remove them, or use Hub",
            )
        )
    if model.source and model.source.pvc and ".." in (model.source.pvc.path or "").split("/"):
        found.append(
            _problem(
                Reason.INVALID_SPEC,
                "spec.model.source.pvc.path",
                "the path must stay inside the claim: remove '..'",
            )
        )
    return found


def _engine(spec: LLMServiceSpec) -> list[Problem]:
    engine = spec.engine
    if engine is None:
        return []
    version = engine_class(_version(spec)).version
    found = list(engine_args.check(engine.args or [], engine_version=version, path="spec.engine.args"))
    for index, variable in enumerate(engine.env or []):
        path = f"spec.engine.env[{index}]"
        if variable.value is not None and variable.secret_ref is not None:
            found.append(_problem(Reason.INVALID_SPEC, path, "write either value or secretRef, not both"))
        elif variable.name in OWNED_ENV:
            use = OWNED_ENV[variable.name]
            found.append(
                _problem(Reason.ENGINE_ARGS_REFUSED, path, f"{variable.name} is set by the plan: use {use}")
            )
        elif variable.name == API_KEY and spec.routing is not None and spec.routing.api_key_secret_ref:
            sentence = f"spec.routing.apiKeySecretRef sets {API_KEY}: remove one of the two"
            found.append(_problem(Reason.INVALID_SPEC, path, sentence))
        elif variable.value is not None and variable.name.upper().endswith(_SECRET_ENDINGS):
            sentence = f"{variable.name} looks like a secret and would be readable in the pod: use secretRef"
            found.append(_problem(Reason.ENGINE_ARGS_REFUSED, path, sentence))
    return found


def _version(spec: LLMServiceSpec) -> str:
    return (spec.engine and spec.engine.version) or DEFAULT_ENGINE_VERSION


def _queue(spec: LLMServiceSpec) -> list[Problem]:
    bounded, written = spec.routing and spec.routing.max_queued_requests, _version(spec)
    if bounded is None or engine_class(written).version >= FLAGS_SINCE:
        return []
    least = ".".join(map(str, FLAGS_SINCE))
    sentence = (
        f"vLLM {written} is not known to bound its queue: write engine.version {least} or a later one, or "
        "leave this field out"
    )
    return [_problem(Reason.INVALID_SPEC, "spec.routing.maxQueuedRequests", sentence)]


def _pod_template(overlay: Mapping[str, Any]) -> list[Problem]:
    found = [
        _refuse(name, "only metadata.labels, metadata.annotations and spec can be overlaid")
        for name in overlay
        if name not in {"metadata", "spec"}
    ]
    metadata, pod = overlay.get("metadata", {}), overlay.get("spec", {})
    if not isinstance(metadata, Mapping) or not isinstance(pod, Mapping):
        return [*found, _refuse("spec", "metadata and spec must be objects, as in a pod template")]
    return [*found, *_metadata(metadata), *_pod(pod), *_nulls(pod, "spec")]


def _metadata(metadata: Mapping[str, Any]) -> list[Problem]:
    found = []
    for name, entries in metadata.items():
        if name not in _METADATA:
            found.append(_refuse(f"metadata.{name}", "only labels and annotations can be overlaid"))
            continue
        if not isinstance(entries, Mapping):
            found.append(_refuse(f"metadata.{name}", "write a map of strings"))
            continue
        for key, value in entries.items():
            path = f"metadata.{name}[{key}]"
            if key in _OWN_LABELS or key.split("/")[0] == GROUP:
                found.append(_refuse(path, "selectors and the operator rely on this one: choose another key"))
            elif not isinstance(value, str):
                found.append(_refuse(path, 'the value must be a string: quote it, as in "1"'))
    return found


def _pod(pod: Mapping[str, Any]) -> list[Problem]:
    found = [
        _refuse(f"spec.{name}", f"it cannot be overlaid: use {REFUSED_POD[name]}")
        for name in pod
        if name in REFUSED_POD
    ]
    if pod.get("hostNetwork"):
        found.append(
            Problem(
                reason=Reason.PLAN_NOT_COVERED,
                field="spec.podTemplate.spec.hostNetwork",
                message="with the host's ports only one engine runs on a node, which the plan does not count",
                blocking=False,
            )
        )
    found += _unkeyed(pod, "spec")
    for kind in ("initContainers", "containers", "volumes"):
        entries = pod.get(kind, [])
        if not isinstance(entries, list):
            found.append(_refuse(f"spec.{kind}", "write a list of objects, each with a name"))
        elif _keyed(entries, "name"):
            for entry in entries:
                found += _container(kind, entry)
    return found


def _keyed(entries: object, merge_key: str) -> bool:
    """Whether a list can be merged: each entry is a map with a text or a number under the key."""
    return isinstance(entries, list) and all(
        isinstance(e, Mapping) and isinstance(e.get(merge_key), str | int) and e[merge_key] for e in entries
    )


def _unkeyed(value: Any, path: str) -> list[Problem]:  # noqa: ANN401 -- JSON
    """Refuse lists inside a pod that cannot be merged."""
    if isinstance(value, list):
        return [
            problem for index, inner in enumerate(value) for problem in _unkeyed(inner, f"{path}[{index}]")
        ]
    found = []
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        key = MERGE_KEYS.get(name)
        if key and isinstance(inner, list) and not _keyed(inner, key):
            found.append(_refuse(f"{path}.{name}", f"write a list of objects, each with a {key}"))
        else:
            found += _unkeyed(inner, f"{path}.{name}")
    return found


def _container(kind: str, entry: Mapping[str, Any]) -> list[Problem]:
    path = f"spec.{kind}[{entry['name']}]"
    if kind == "containers" and entry["name"] == ENGINE_CONTAINER:
        found = [
            _refuse(f"{path}.{name}", f"it cannot be overlaid: use {REFUSED_ENGINE[name]}")
            for name in entry
            if name in REFUSED_ENGINE
        ]
        found += [
            _refuse(
                f"{path}.volumeMounts[{mount}]",
                f"the operator mounts {mount} itself: use {OWN_MOUNTS[mount]}",
            )
            for mount in _mounts(entry)
            if mount in OWN_MOUNTS
        ]
        if _asks_gpus(entry):
            found.append(_refuse(f"{path}.resources", "GPUs are the plan's to count: use spec.parallelism"))
        elif "resources" in entry:
            found.append(_uncounted(path))
        return found
    if kind == "volumes":
        if entry["name"] in {"shm", "tmp", "cache", "model", "chat-template"}:
            return [
                _refuse(
                    path, "a volume of this name is the operator's: choose another, or set spec.model.cache"
                )
            ]
        return []
    if "image" not in entry:
        return [
            _refuse(path, f"a container of its own needs an image; the engine's is called {ENGINE_CONTAINER}")
        ]
    if _asks_gpus(entry):
        return [_refuse(f"{path}.resources", "GPUs beside the engine's are not in the plan: remove them")]
    return [_uncounted(path)] if "resources" in entry else []


def _asks_gpus(entry: Mapping[str, Any]) -> bool:
    resources = entry.get("resources")
    parts = resources.values() if isinstance(resources, Mapping) else ()
    names = (str(name) for part in parts if isinstance(part, Mapping) for name in part)
    return any(name.endswith("/gpu") or name.startswith(_GPU_PARTS) for name in names)


def _mounts(entry: Mapping[str, Any]) -> list[str]:
    mounts = entry.get("volumeMounts")
    found = mounts if isinstance(mounts, list) else []
    return [str(m.get("mountPath", "")).rstrip("/") for m in found if isinstance(m, Mapping)]


def _uncounted(path: str) -> Problem:
    return Problem(
        reason=Reason.PLAN_NOT_COVERED,
        field=f"spec.podTemplate.{path}.resources",
        message="the plan counts its own CPU and memory; a node that it counts on may be too small",
        blocking=False,
    )


def _nulls(value: Any, path: str) -> list[Problem]:  # noqa: ANN401 -- JSON
    if value is None:
        return [_refuse(path, "an overlay adds and replaces, it cannot remove: leave the field out")]
    if isinstance(value, Mapping):
        return [problem for key, inner in value.items() for problem in _nulls(inner, f"{path}.{key}")]
    if isinstance(value, list):
        return [problem for index, inner in enumerate(value) for problem in _nulls(inner, f"{path}[{index}]")]
    return []


def _refuse(path: str, sentence: str) -> Problem:
    return _problem(Reason.POD_TEMPLATE_REFUSED, f"spec.podTemplate.{path}", sentence)


def _problem(reason: Reason, field: str, message: str) -> Problem:
    return Problem(reason=reason, field=field, message=message)

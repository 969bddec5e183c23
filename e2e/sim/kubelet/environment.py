"""The environment and the command line of a container, from its manifest.

It decides what a container sees: nothing of the agent's own but what Python needs. Secrets and ConfigMaps are read
for their keys; a missing one is told in the kubelet's words. Volumes are not mounted, `envFrom` is not read.
"""

import base64
import re
from typing import Any

from sim.kubelet.api import Api, RefusedError

Json = Any
_VARIABLE = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")
_LABEL = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class ConfigError(RuntimeError):
    """What a container needs is not there; it waits with CreateContainerConfigError."""


async def variables(api: Api, pod: Json, container: Json, address: str) -> dict[str, str]:
    """Give the variables of a container in their order."""
    found: dict[str, str] = {}
    for entry in container.get("env", []):
        if "value" in entry or "valueFrom" not in entry:
            found[entry["name"]] = expand(entry.get("value", ""), found)
            continue
        value = await _from(api, pod, entry["valueFrom"], address)
        if value is not None:
            found[entry["name"]] = value
    return found


def command(container: Json, known: dict[str, str]) -> list[str]:
    """Give the command line; an image's own entry point is not known here."""
    words = [*container.get("command", []), *container.get("args", [])]
    return [expand(word, known) for word in words]


def expand(text: str, known: dict[str, str]) -> str:
    """Put variables in place of $(NAME) as Kubernetes does: unknown ones stay, $$ is a $."""

    def one(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else known.get(match[2], match[0])

    return _VARIABLE.sub(one, text)


async def _from(api: Api, pod: Json, source: Json, address: str) -> str | None:
    if field := source.get("fieldRef"):
        return _field(pod, field["fieldPath"], address)
    for key, kind, path in (
        ("secretKeyRef", "Secret", "secrets"),
        ("configMapKeyRef", "ConfigMap", "configmaps"),
    ):
        if reference := source.get(key):
            return await _key(api, pod["metadata"]["namespace"], kind, path, reference)
    raise ConfigError(f"the node agent does not read {sorted(source)}")


async def _key(api: Api, namespace: str, kind: str, path: str, reference: Json) -> str | None:
    optional, name = reference.get("optional", False), reference["name"]
    try:
        held = await api.get(f"/api/v1/namespaces/{namespace}/{path}/{name}")
    except RefusedError as error:
        if error.status != 404:
            raise
        if optional:
            return None
        raise ConfigError(f'{kind.lower()} "{name}" not found') from None
    value = held.get("data", {}).get(reference["key"])
    if value is None:
        if optional:
            return None
        raise ConfigError(f"couldn't find key {reference['key']} in {kind} {namespace}/{name}")
    return base64.b64decode(value).decode() if kind == "Secret" else str(value)


def _field(pod: Json, path: str, address: str) -> str:
    if match := _LABEL.fullmatch(path):
        return str(pod["metadata"].get(match[1], {}).get(match[2], ""))
    known = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        "status.podIP": address,
        "status.hostIP": "10.244.0.1",
    }
    return str(known[path])

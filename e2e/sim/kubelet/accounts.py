"""The login of a container that mounts a ServiceAccount's token: a kubeconfig instead of the mounted files.

It decides who gets one: a container that mounts a projected token, and no other. The token is the account's own, so
that it may do what its roles say and nothing else. It is asked for once, as the volume is mounted once: a container
that starts again needs no API server.
"""

import asyncio
from pathlib import Path
from typing import Any

import yaml

from sim.kubelet.api import Api

Json = Any
_TOKEN_S = 7200


def mounts_token(pod: Json, container: Json) -> bool:
    """Whether a container mounts a projected ServiceAccount token."""
    mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
    return any(
        "serviceAccountToken" in source
        for volume in pod["spec"].get("volumes", [])
        if volume["name"] in mounted
        for source in volume.get("projected", {}).get("sources", [])
    )


async def variables(api: Api, pod: Json, container: Json, directory: Path) -> dict[str, str]:
    """Give the variable that names the kubeconfig, written to `directory`; nothing without a token."""
    file = directory / "kubeconfig"
    if not mounts_token(pod, container):
        return {}
    if await asyncio.to_thread(file.exists):
        return {"KUBECONFIG": str(file)}
    account, namespace = pod["spec"]["serviceAccountName"], pod["metadata"]["namespace"]
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_S},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token = (await api.send("POST", path, request))["status"]["token"]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": api.cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "current-context": "c",
    }
    await asyncio.to_thread(_write, file, yaml.safe_dump(config))
    return {"KUBECONFIG": str(file)}


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)

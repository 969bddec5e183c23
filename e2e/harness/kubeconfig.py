"""Writes kubeconfig files that stand alone: certificates and keys inside, TLS verified.

It decides the format only; which identity may do what is the cluster's business.
"""

import base64
from pathlib import Path

import yaml

from harness.certs import KeyPair


def write(
    path: Path,
    *,
    server_url: str,
    ca: Path,
    credentials: KeyPair | str,
    user: str,
    namespace: str = "default",
) -> Path:
    """Write a kubeconfig for a client certificate or a bearer token."""
    if isinstance(credentials, KeyPair):
        login = {
            "client-certificate-data": _base64(credentials.certificate),
            "client-key-data": _base64(credentials.key),
        }
    else:
        login = {"token": credentials}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "harness", "cluster": {"server": server_url, "certificate-authority-data": _base64(ca)}}
        ],
        "users": [{"name": user, "user": login}],
        "contexts": [
            {"name": user, "context": {"cluster": "harness", "user": user, "namespace": namespace}},
        ],
        "current-context": user,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()

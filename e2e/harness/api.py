"""A minimal client of the API server for tests: verified TLS connections that are kept, JSON in and out.

It decides nothing and retries nothing: a test must see the answer the server gave. What the server closed while nobody
used it (after 90 s, or at its end) is no answer: such a connection is replaced before anything is sent on it. It exists
because `kubectl` costs 100 ms of CPU per call, which a poll or a benchmark cannot afford.
"""

import base64
import json
import ssl
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import Any

import urllib3
import yaml

Json = Any
_TIMEOUT_S = 120.0  # deleting a large collection on a busy machine takes this long
_KEPT = 8
"""How many connections wait for their next request; more threads than this at once pay for a new one each time."""


class ApiError(RuntimeError):
    """The server answered with an error status."""

    def __init__(self, status: int, method: str, path: str, body: str) -> None:
        super().__init__(f"{method} {path}: {status}: {body[:500]}")
        self.status = status
        self.body = body


class Api:
    """Requests with the identity of a kubeconfig file."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        tls = ssl.create_default_context(cadata=ca)
        self._headers = {"Accept": "application/json"}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        else:
            # The ssl module loads a client certificate from a file only.
            with tempfile.NamedTemporaryFile() as pair:
                pair.write(base64.b64decode(user["client-certificate-data"]))
                pair.write(base64.b64decode(user["client-key-data"]))
                pair.flush()
                tls.load_cert_chain(pair.name)
        self._server = cluster["server"]
        self._pool = urllib3.PoolManager(ssl_context=tls, maxsize=_KEPT, timeout=_TIMEOUT_S, retries=False)

    def get(self, path: str) -> Json:
        return self.request("GET", path)

    def post(self, path: str, body: Json) -> Json:
        return self.request("POST", path, body)

    def delete(self, path: str) -> Json:
        return self.request("DELETE", path)

    def merge(self, path: str, body: Json) -> Json:
        """JSON merge patch."""
        return self.request("PATCH", path, body, content_type="application/merge-patch+json")

    def apply(self, path: str, body: Json, manager: str = "harness") -> Json:
        """Server-side apply, taking over contested fields."""
        query = f"?fieldManager={manager}&force=true"
        return self.request("PATCH", path + query, body, content_type="application/apply-patch+yaml")

    def request(
        self, method: str, path: str, body: Json = None, content_type: str = "application/json"
    ) -> Json:
        """Send one request and give the decoded body. Raises ApiError for an error status, ConnectionError for none."""
        payload = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({} if payload is None else {"Content-Type": content_type})
        try:
            answer = self._pool.request(method, self._server + path, body=payload, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(f"{method} {path}: {error}") from error
        text = answer.data.decode()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise ApiError(answer.status, method, path, text)
        return json.loads(text) if text.startswith(("{", "[")) else text

    def close(self) -> None:
        """Close the connections. A later request opens a new one."""
        self._pool.clear()

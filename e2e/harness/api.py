"""A minimal client of the API server for tests: one verified TLS connection per thread, JSON in and out.

It decides nothing and retries nothing: a test must see the answer the server gave. It exists because `kubectl`
costs 100 ms of CPU per call, which a poll or a benchmark cannot afford.
"""

import base64
import http.client
import json
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

Json = Any
_TIMEOUT_S = 120.0  # deleting a large collection on a busy machine takes this long


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
        self._host = urlsplit(cluster["server"]).netloc
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=ca)
        self._headers = {"Accept": "application/json"}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        else:
            # The ssl module loads a client certificate from a file only.
            with tempfile.NamedTemporaryFile() as pair:
                pair.write(base64.b64decode(user["client-certificate-data"]))
                pair.write(base64.b64decode(user["client-key-data"]))
                pair.flush()
                self._tls.load_cert_chain(pair.name)
        self._local = threading.local()

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
        """Send one request; an error status raises, anything else gives the decoded body."""
        payload = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({} if payload is None else {"Content-Type": content_type})
        status, text = self._send(method, path, payload, headers)
        if status >= http.client.BAD_REQUEST:
            raise ApiError(status, method, path, text)
        return json.loads(text) if text.startswith(("{", "[")) else text

    def _send(
        self, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, str]:
        reused = getattr(self._local, "connection", None) is not None
        try:
            return self._exchange(method, path, payload, headers)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
            # An idle connection that the server closed says nothing about the server now.
            if not (reused and method == "GET"):
                raise
        return self._exchange(method, path, payload, headers)

    def _exchange(
        self, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, str]:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self._host, timeout=_TIMEOUT_S, context=self._tls)
            self._local.connection = connection
        try:
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except BaseException:
            # Half-read or cut: the next request starts on a fresh connection.
            self.close()
            raise

    def close(self) -> None:
        """Close this thread's connection."""
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

"""The real router, as a process in the network of the thread that starts it.

It decides flags that a test on one machine needs: no metrics port of a fixed number, frequent health checks, no
retries that would hide a failure. `make router` installs it; without it, tests that need it are skipped.
"""

import json
import os
import urllib.request
from pathlib import Path
from typing import Any, Self

from harness.api import Json
from harness.ports import free_ports
from harness.processes import Process
from harness.waiting import wait_until

PROGRAM = Path(__file__).parents[2] / ".venv-router" / "bin" / "vllm-router"
_HOST = "127.0.0.1"


def program() -> Path:
    """Return where the router is, or would be."""
    return Path(os.environ.get("SHARDWRIGHT_ROUTER", PROGRAM))


def why_not() -> str | None:
    """Say why no router can be started; None when one can."""
    return None if program().exists() else "no vllm-router: make router"


class Router:
    """One router. `workers` are URLs; without any, `discover` says which pods it looks for."""

    def __init__(self, directory: Path, policy: str, workers: tuple[str, ...] = (), *flags: str) -> None:
        self._directory = directory
        self._policy = policy
        self._workers = workers
        self._flags = flags
        self._kubeconfig = ""
        self._process: Process | None = None
        self.port = 0

    def discover(self, kubeconfig: Path, namespace: str, port: int, labels: dict[str, str]) -> Self:
        """Look for pods by their labels instead."""
        self._kubeconfig = str(kubeconfig)
        selector = [f"{name}={value}" for name, value in labels.items()]
        self._flags += (
            *("--service-discovery", "--selector", *selector),
            *("--service-discovery-port", str(port), "--service-discovery-namespace", namespace),
        )
        return self

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{_HOST}:{self.port}"

    def workers(self) -> list[Json]:
        """Ask it for its pool."""
        found: Any = _get(f"{self.url}/workers")
        return list(found["workers"])

    def tail(self) -> str:
        """Give the end of its log."""
        return self._process.tail() if self._process else ""

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self.port, metrics = free_ports(_HOST, 2)
        argv = [
            *(str(program()), "--host", _HOST, "--port", str(self.port), "--policy", self._policy),
            *("--prometheus-port", str(metrics), "--disable-retries", "--health-check-interval-secs", "2"),
            *("--worker-startup-check-interval", "1", "--request-timeout-secs", "3600"),
            *(("--worker-urls", *self._workers) if self._workers else ()),
            *self._flags,
        ]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._directory)}
        if self._kubeconfig:
            environment["KUBECONFIG"] = self._kubeconfig
        self._process = Process("router", argv, self._directory / f"router-{self._policy}.log", environment)
        self._process.start()
        wait_until(self._up, "the router")
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            self._process.stop()

    def _up(self) -> bool:
        assert self._process is not None
        self._process.check()
        return len(self.workers()) >= max(1, len(self._workers))


def _get(url: str) -> Json:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as response:
        return json.load(response)

"""Runs the real operator against a harness cluster: its CRD, the chart's own rights, one child process.

It decides how the operator is started, watched and ended for the demo, the tests and the benchmarks. It grants
nothing by itself: the ServiceAccount, its roles and their bindings are what the chart renders, so that a missing
right fails here as it would for a user.
"""

import contextlib
import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from harness.cluster import Cluster
from harness.processes import Process, ProcessError
from harness.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "shardwright"
CRDS = ROOT / "crds"
NAMESPACE = "shardwright-system"
_RBAC_KINDS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
LISTENING = re.compile(rb"listening port=([0-9]+) ")
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """What the kernel has counted for the process so far."""

    cpu_s: float
    rss_mib: float
    peak_rss_mib: float


@dataclass(slots=True)
class OperatorProcess:
    """The operator as a child process with the chart's ServiceAccount token.

    `values` are Helm values for the rights (`scope=Namespaced` and the like); `arguments` are appended to
    `shardwright run`; `environment` comes last and wins.
    """

    cluster: Cluster
    namespace: str = NAMESPACE
    values: Sequence[str] = ()
    arguments: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    log_name: str = "operator"
    account: str = ""
    _port: int = 0
    _log_start: int = 0
    _process: Process | None = None
    _kubeconfig: Path | None = None

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.cluster.state_dir / f"{self.log_name}.log"

    @property
    def user(self) -> str:
        """Its user name in audit logs."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    @property
    def pid(self) -> int:
        """Its process id; raises when it is not running."""
        if self._process is None:
            raise ProcessError("the operator was not started")
        self._process.check()
        pid = self._process.pid
        if pid is None:
            raise ProcessError(f"the operator ended:\n{self._process.tail()}")
        return pid

    @property
    def is_running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.pid is not None

    @property
    def port(self) -> int:
        """The port that it chose and told its log; 0 as long as it has none."""
        if not self._port and self._process is not None:
            with self.log.open("rb") as log:
                log.seek(self._log_start)
                if found := LISTENING.search(log.read()):
                    self._port = int(found[1])
        return self._port

    def install(self) -> Self:
        """Apply the CRD and the chart's rights, without the chart's own Deployment."""
        install_crds(self.cluster)
        rendered = render_chart(self.cluster, self.namespace, self.values)
        rights = [manifest for manifest in rendered if manifest["kind"] in _RBAC_KINDS]
        accounts = [
            manifest["metadata"]["name"] for manifest in rights if manifest["kind"] == "ServiceAccount"
        ]
        if len(accounts) != 1:
            raise ProcessError(f"the chart renders {len(accounts)} ServiceAccounts, not one: {accounts}")
        self.account = accounts[0]
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}},
            *(_in_namespace(manifest, self.namespace) for manifest in rights),
        )
        # Here and not at launch: after minutes without a request the server has closed the connection.
        self._kubeconfig = self.cluster.service_account_kubeconfig(self.namespace, self.account)
        return self

    def start(self) -> Self:
        """Start it and wait until it says that it is ready."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Start it and do not wait."""
        if self._kubeconfig is None:
            self.install()
        self._port = 0
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._process = Process(self.log_name, self._command(), self.log, self._environment())
        self._process.start()

    def wait_ready(self) -> float:
        """Wait for /readyz and give the seconds that took."""
        started = time.monotonic()
        try:
            wait_until(lambda: self.pid and self.says_ready(), "the operator to be ready", every_s=0.05)
        except TimeoutError as late:
            raise ProcessError(f"{late}; end of its log:\n{self.tail()}") from late
        return time.monotonic() - started

    def says_ready(self) -> bool:
        """Whether /readyz answers that it works."""
        return self._answers("/readyz")

    def healthy(self) -> bool:
        """Whether /healthz answers that no part of it is dead."""
        return self._answers("/healthz")

    def stop(self) -> float:
        """Send SIGTERM, wait for the end and give the seconds that took."""
        if self._process is None or self._process.pid is None:
            return 0.0
        process, began = self._process, time.monotonic()
        process.signal(signal.SIGTERM)
        try:
            wait_until(lambda: process.pid is None, "the end of the operator", every_s=0.005)
            return time.monotonic() - began
        finally:
            process.stop()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()

    def tail(self) -> str:
        """Give the end of its log."""
        return self._process.tail() if self._process is not None else ""

    def usage(self) -> Usage:
        """Read CPU time and resident memory from /proc."""
        pid = self.pid
        # The command may hold spaces and parentheses; the fields start after the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        return Usage(
            cpu_s=(int(fields[11]) + int(fields[12])) / _CLOCK_TICKS,
            rss_mib=int(status["VmRSS"].split()[0]) / 1024,
            peak_rss_mib=int(status["VmHWM"].split()[0]) / 1024,
        )

    def metrics(self) -> dict[str, float]:
        """Read /metrics: sample name with its labels, as exposed, to value."""
        text = self._get("/metrics")[1]
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "shardwright.cli.main",
            "run",
            "--metrics-port",
            "0",
            *self.arguments,
        ]

    def _environment(self) -> dict[str, str]:
        kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        return kept | {
            "PYTHONPATH": str(ROOT / "operator" / "src"),
            "PYTHONUNBUFFERED": "1",
            "HOME": str(self.cluster.state_dir),
            "KUBECONFIG": str(self._kubeconfig),
            **self.environment,
        }

    def _answers(self, path: str) -> bool:
        with contextlib.suppress(OSError):
            return self.port != 0 and self._get(path)[0] == 200
        return False

    def _get(self, path: str) -> tuple[int, str]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_S) as response:
            return int(response.status), response.read().decode()


def in_a_hurry(directory: Path, changes: str) -> dict[str, str]:
    """Give the environment of an operator whose own time runs faster: `changes` is Python that it runs first.

    Its waits are constants that nobody may set, and minutes long.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sitecustomize.py").write_text(changes)
    return {"PYTHONPATH": os.pathsep.join([str(directory), str(ROOT / "operator" / "src")])}


def install_crds(cluster: Cluster) -> None:
    """Apply the CRDs of the checkout and wait until the server serves them."""
    files = sorted(CRDS.glob("*.yaml"))
    if not files:
        raise ProcessError(f"no CRD in {CRDS}; run `make generate` first")
    cluster.define(*(yaml.safe_load(file.read_text()) for file in files))


def render_chart(cluster: Cluster, namespace: str, values: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Render the chart with `--set` values, as `helm install` would apply it; the CRD comes from `install_crds`."""
    settings = [argument for value in ("crds.install=false", *values) for argument in ("--set", value)]
    # Without it helm assumes the version of the client library that it was built with.
    version = str(cluster.api.get("/version")["gitVersion"])
    chart = ["shardwright", str(CHART), "--namespace", namespace, "--kube-version", version]
    text = cluster.helm("template", *chart, *settings)
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def _in_namespace(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    if manifest["kind"].startswith("Cluster"):
        return manifest
    metadata = {"namespace": namespace} | manifest["metadata"]
    return manifest | {"metadata": metadata}

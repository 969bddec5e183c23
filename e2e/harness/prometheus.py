"""Prometheus: Debian's program, once per release of Debian, and one server for a test.

It decides where the program comes from: one on PATH, else Debian's package, unpacked into the cache without being
installed (building it from Go modules takes ten minutes). apt checks the package's signature.
"""

import json
import os
import platform
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

from harness.binaries import BuildError
from harness.cache import cache_dir, file_lock
from harness.ports import free_ports
from harness.processes import Process
from harness.waiting import PATIENCE_S, wait_until

PROGRAM = "prometheus"
_ADVICE = "install Prometheus so that `prometheus` is on PATH"


def ensure() -> Path:
    """Give the path of the program, fetching the package when the cache does not hold it yet."""
    found = shutil.which(PROGRAM)
    if found:
        return Path(found)
    target = _target()
    if not target.is_file():
        with file_lock(target.parent.name):
            if not target.is_file():
                _fetch(target)
    return target


def _target() -> Path:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    name = f"{release.get('ID', 'unknown')}-{release.get('VERSION_ID', '0')}-{platform.machine()}"
    return cache_dir() / "bin" / f"{PROGRAM}-{name}" / PROGRAM


def _fetch(target: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise BuildError(f"{PROGRAM}: neither on PATH nor is this a Debian with apt-get: {_ADVICE}")
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{PROGRAM}-", dir=target.parent.parent))
    try:
        said = _apt(partial, "download", PROGRAM)
        if not list(partial.glob("*.deb")):
            # Without package lists nothing is known; only root may fetch them.
            said = _apt(partial, "update", "-qq") + _apt(partial, "download", PROGRAM)
        if not list(partial.glob("*.deb")):
            raise BuildError(f"{PROGRAM}: apt-get finds no such package ({said[-300:].strip()}): {_ADVICE}")
        (package,) = partial.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", str(package), "files"], cwd=partial, check=True)
        ready = partial / "ready"
        ready.mkdir()
        shutil.move(partial / "files" / "usr" / "bin" / PROGRAM, ready / PROGRAM)
        ready.chmod(0o755)
        ready.rename(target.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _apt(directory: Path, *arguments: str) -> str:
    """Run apt-get and give what it says."""
    environment = os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", *arguments]
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, env=environment
    )
    return done.stdout + done.stderr


def listed_in(targets: Path) -> list[dict[str, Any]]:
    """Give the configuration that scrapes what a file lists, whatever it comes to list."""
    discovery = {"files": [str(targets)], "refresh_interval": "1s"}
    return [{"job_name": "pods", "file_sd_configs": [discovery]}]


class Prometheus:
    """One server. `scrape_configs` are Prometheus' own; `web_config` is its file of the same name."""

    def __init__(
        self,
        directory: Path,
        scrape_configs: list[dict[str, Any]],
        *,
        web_config: dict[str, Any] | None = None,
        scrape_interval_s: int = 1,
    ) -> None:
        self.directory = directory
        self.port = 0
        self._web_config = web_config
        self._config = {
            "global": {
                "scrape_interval": f"{scrape_interval_s}s",
                "scrape_timeout": f"{scrape_interval_s}s",
            },
            "scrape_configs": scrape_configs,
        }
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"{'https' if self._web_config and 'tls_server_config' in self._web_config else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it, on its old port if it had one; it keeps what it stored."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_ports("127.0.0.1", 1)[0]
        # JSON is YAML.
        (self.directory / "prometheus.yml").write_text(json.dumps(self._config))
        argv = [
            str(ensure()),
            f"--config.file={self.directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]
        if self._web_config:
            (self.directory / "web.yml").write_text(json.dumps(self._web_config))
            argv.append(f"--web.config.file={self.directory / 'web.yml'}")
        self._process = Process("prometheus", argv, self.directory / "prometheus.log", dict(os.environ))
        self._process.start()
        if self._web_config is None:
            wait_until(self._ready, "Prometheus to be ready")
        else:
            wait_until(self._listens, "Prometheus to listen")
        return self

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Ask for a vector, without a login."""
        text = self._get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        found: list[dict[str, Any]] = json.loads(text)["data"]["result"]
        return found

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            self._process.stop()

    def _ready(self) -> bool:
        if self._process is not None:
            self._process.check()
        return "Ready" in self._get("/-/ready")

    def _listens(self) -> bool:
        if self._process is not None:
            self._process.check()
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S):
            return True

    def _get(self, path: str) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}{path}", timeout=PATIENCE_S) as response:
                text: str = response.read().decode()
                return text
        except urllib.error.HTTPError as error:
            error.close()  # it holds the connection
            raise

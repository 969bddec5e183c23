"""What the container file installs, run as the container would run it.

The image itself cannot be built where no container registry is reachable. This does what its build does (locked
dependencies by hash into an environment without pip, then our wheel) and runs the command as user 65532 without
capabilities, with a read-only root in a mount namespace of its own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.cluster import Cluster
from harness.waiting import PATIENCE_S, wait_until
from operator_process import LISTENING, NAMESPACE, OperatorProcess, render_chart

ROOT = Path(__file__).resolve().parent.parent
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc", "/proc")
# $1: the new root, $2...: directories that appear in it read-only, then "--" and the command.
ENTER = r"""
set -eu
root=$1; shift
mount --bind "$root" "$root"
# First, because what is shown may lie below it.
mkdir -p "$root/tmp"
mount -t tmpfs -o size=16m,mode=1777 none "$root/tmp"
while [ "$1" != -- ]; do
    mkdir -p "$root$1"
    mount --bind "$1" "$root$1"
    mount -o remount,bind,ro "$root$1"
    shift
done
shift
mount -o remount,bind,ro "$root"
exec chroot "$root" setpriv --reuid=65532 --regid=65532 --clear-groups --no-new-privs --bounding-set=-all "$@"
"""


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    # Not tmp_path: user 65532 must be able to walk there, and its parents are private.
    directory = Path(tempfile.mkdtemp(prefix="shardwright-image-")).resolve()
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def installed(work: Path) -> Path:
    """Make an environment with the commands of the Containerfile; only the paths differ."""
    target = work / "env"
    steps = [
        [sys.executable, "-m", "venv", "--without-pip", str(target)],
        pip(target, "--only-binary", ":all:", "--require-hashes", "-r", "requirements/runtime.lock"),
        # The image's build fetches the pinned build backend; here it is among the development tools.
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(work / "dist"),
            ".",
        ],
    ]
    for step in steps:
        must(step)
    (wheel,) = (work / "dist").glob("shardwright-*.whl")
    must(pip(target, "--no-deps", "--no-index", str(wheel)))
    return target


def must(command: list[str]) -> None:
    result = run(command, cwd=ROOT)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}\n{result.stderr}"


def pip(target: Path, *arguments: str) -> list[str]:
    python = str(target / "bin" / "python")
    options = ["--quiet", "--no-compile", "--disable-pip-version-check", "--root-user-action=ignore"]
    return [sys.executable, "-m", "pip", "--python", python, "install", *options, *arguments]


def image_environment() -> list[str]:
    """Read what the Containerfile sets, except PATH, which is this machine's."""
    lines = (ROOT / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    (words,) = (line.split()[1:] for line in lines if line.startswith("ENV "))
    return [word for word in words if not word.startswith("PATH=")]


@pytest.fixture(scope="module")
def contained(work: Path, installed: Path) -> list[str]:
    """Give the beginning of a command that runs in the container's stead."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "chroot"))):
        pytest.skip("needs root, unshare, setpriv and chroot")
    if run(["unshare", "--mount", "--propagation", "private", "true"]).returncode != 0:
        pytest.skip("mount namespaces are not allowed here")
    root = work / "root"
    root.mkdir()
    seen = [path for path in SYSTEM if Path(path).exists()]
    # The environment and the Python it stands on, under their own names.
    shown = [*seen, str(installed)]
    if not sys.base_prefix.startswith("/usr"):
        shown.append(sys.base_prefix)
    start = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        ENTER,
        "sh",
        str(root),
        *shown,
        "--",
    ]
    return [*start, "env", "-i", "PATH=/usr/bin:/bin", *image_environment()]


def test_the_environment_holds_the_lock_file_and_us(installed: Path) -> None:
    program = "import importlib.metadata as m; print(sorted(d.name.lower() for d in m.distributions()))"
    names = run([str(installed / "bin/python"), "-c", program], cwd="/").stdout
    locked = {
        line.partition("==")[0]
        for line in (ROOT / "requirements/runtime.lock").read_text().splitlines()
        if "==" in line and ";" not in line
    }
    assert all(f"'{name}'" in names.replace("_", "-") for name in locked | {"shardwright"})
    assert "'pip'" not in names


def test_nothing_can_be_written_but_tmp(contained: list[str], installed: Path) -> None:
    program = (
        "import os, pathlib\n"
        "print(os.getuid(), os.getgid(), os.getgroups())\n"
        f"for path in ['/x', '/etc/x', {str(installed / 'x')!r}, '/tmp/x']:\n"
        "    try:\n"
        "        pathlib.Path(path).write_text('')\n"
        "        print('wrote', path)\n"
        "    except OSError as error:\n"
        "        print(error.errno, path)\n"
    )
    result = run([*contained, str(installed / "bin/python"), "-c", program])
    assert result.returncode == 0, result.stderr
    identity, *attempts = result.stdout.splitlines()
    assert identity == "65532 65532 []"
    assert [line for line in attempts if line.startswith("wrote")] == ["wrote /tmp/x"]
    capabilities = run([*contained, "grep", "-E", "^Cap(Prm|Eff|Bnd):", "/proc/self/status"]).stdout.split()
    assert capabilities[1::2] == ["0" * 16] * 3


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("crds",)], ids=" ".join)
def test_the_command_runs(contained: list[str], installed: Path, arguments: tuple[str, ...]) -> None:
    result = run([*contained, str(installed / "bin/shardwright"), *arguments])
    assert result.returncode == 0, result.stderr
    assert "shardwright" in result.stdout
    assert not result.stderr


def test_the_catalogue_travels_with_the_wheel(contained: list[str], installed: Path) -> None:
    command = [
        "estimate",
        "--model",
        "meta-llama/Llama-3.1-8B-Instruct",
        "--gpu",
        "NVIDIA-H100-80GB-HBM3",
        "--tp",
        "1",
    ]
    result = run([*contained, str(installed / "bin/shardwright"), *command, "-o", "json"])
    assert result.returncode == 0, result.stderr
    assert '"Fits"' in result.stdout


@pytest.mark.cluster
def test_it_runs_as_the_chart_runs_it(
    cluster: Cluster, contained: list[str], installed: Path, work: Path
) -> None:
    """Use the chart's own arguments and the login of a pod: token and CA in their files, address in variables."""
    operator = OperatorProcess(cluster).install()
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{operator.account}/token"
    token = cluster.api.post(path, request)["status"]["token"]
    mounted = work / "root/var/run/secrets/kubernetes.io/serviceaccount"
    mounted.mkdir(parents=True)
    for name, text in (("token", token), ("ca.crt", cluster.ca_file.read_text()), ("namespace", NAMESPACE)):
        (mounted / name).write_text(text)

    rendered = render_chart(cluster, NAMESPACE)
    deployment = next(manifest for manifest in rendered if manifest["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    server = urlsplit(cluster.server_url)
    variables = [f"KUBERNETES_SERVICE_HOST={server.hostname}", f"KUBERNETES_SERVICE_PORT={server.port}"]
    command = [*contained, *variables, str(installed / "bin/shardwright")]
    log = work / "operator.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, *("0" if argument == "8080" else argument for argument in arguments)], stderr=output
        )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        listening = LISTENING.search(log.read_bytes())
        if listening is None:
            return False
        try:
            with opener.open(f"http://127.0.0.1:{int(listening[1])}/readyz", timeout=PATIENCE_S) as response:
                return bool(response.status == 200)
        except urllib.error.HTTPError as error:
            error.close()  # 503: it starts
            return False

    try:
        wait_until(ready, "the contained operator")
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "\nUid:\t65532\t" in status
        process.terminate()
        assert process.wait(timeout=PATIENCE_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()

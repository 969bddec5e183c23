"""One control plane: etcd, API server, controller manager, scheduler and simulated nodes, as child processes.

It decides order, readiness and what is retried. It never reuses the state of another cluster, and `stop` leaves
neither a process nor, unless asked, a file.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from harness import binaries, components, kubeconfig
from harness.api import Api, ApiError, Json
from harness.certs import Authority, KeyPair
from harness.ports import free_ports
from harness.processes import Process, ProcessError, stop_all
from harness.waiting import wait_until

FAULT_PREFIX = "kwok.shardwright.test/"
STAGES = Path(__file__).with_name("stages")
_START_ATTEMPTS = 3
_STOP_GRACE_S = 1.0  # each; nothing here is worth a longer good-bye
_TOKEN_LIFETIME_S = 7 * 24 * 3600
_PORT_TAKEN = "address already in use"
_NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_FAULT_PATHS = {
    "MutatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
}
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SERVERS = ("etcd", "kube-apiserver")
_CLIENTS = ("kube-controller-manager", "kube-scheduler", "kwok")
_PROGRAMS = (*_SERVERS, *_CLIENTS, "kubectl", "helm")


class CommandError(RuntimeError):
    """`kubectl` or `helm` failed; `output` is what it printed."""

    def __init__(self, command: str, output: str) -> None:
        super().__init__(f"{command}:\n{output}")
        self.output = output


class Cluster:
    """A Kubernetes control plane with simulated nodes. Use it as a context manager, or `start` and `stop`.

    `state_dir`: where certificates, logs and data go; a temporary directory, removed by `stop`, when not given.
    `host`: the address to listen on; pods that run in network namespaces need one they can reach.
    """

    def __init__(
        self,
        state_dir: Path | None = None,
        *,
        host: str = "127.0.0.1",
        apiserver_args: tuple[str, ...] = (),
    ) -> None:
        self._owns_state = state_dir is None
        self.state_dir = (state_dir or Path(tempfile.mkdtemp(prefix="shardwright-cluster-"))).resolve()
        self.kubeconfig = self.state_dir / "admin.kubeconfig"
        self.ca_file = self.state_dir / "pki" / "ca.crt"
        self.server_url = ""
        self._host = host
        self._apiserver_args = apiserver_args
        self._paths: dict[str, Path] = {}
        self._processes: dict[str, Process] = {}
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """The API as the cluster's administrator."""
        if self._api is None:
            raise ProcessError("the cluster was not started")
        return self._api

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the components that run."""
        return {name: process.pid for name, process in self._processes.items() if process.pid is not None}

    def start(self) -> Self:
        """Start every component and wait until pods can be created and scheduled."""
        self._paths = binaries.ensure(_PROGRAMS)
        self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            for attempt in range(1, _START_ATTEMPTS + 1):
                try:
                    self._start_once()
                except ProcessError as error:
                    # A program that is no business of ours may listen there by now.
                    if _PORT_TAKEN not in str(error) or attempt == _START_ATTEMPTS:
                        raise
                    self._end_processes()
                else:
                    break
        except BaseException as error:
            error.add_note(f"logs of the components: {self.state_dir}")
            self._end_processes()
            raise
        return self

    def stop(self) -> None:
        """End every process; remove the state directory if this object made it."""
        self._end_processes()
        if self._owns_state and not os.environ.get("SHARDWRIGHT_KEEP_CLUSTER"):
            shutil.rmtree(self.state_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def kubectl(
        self, *args: str, stdin: str | None = None, check: bool = True, kubeconfig: Path | None = None
    ) -> str:
        """Run kubectl, as the administrator unless told otherwise. Without `check`, stderr is part of the result."""
        return self._command("kubectl", args, stdin, check, kubeconfig)

    def helm(
        self, *args: str, stdin: str | None = None, check: bool = True, kubeconfig: Path | None = None
    ) -> str:
        """Run helm the same way, with caches inside the state directory."""
        return self._command("helm", args, stdin, check, kubeconfig)

    def apply(self, *manifests: Json) -> None:
        """Apply manifests with kubectl, in the order given."""
        self.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(manifests))

    def define(self, *definitions: Json) -> None:
        """Apply CRDs and wait until the server serves what they define.

        Not `kubectl wait`: it fails on a definition that has no conditions yet.
        """
        self.apply(*definitions)
        wait_until(lambda: self._serves(definitions), "the API server to serve what is defined")

    @contextlib.contextmanager
    def without_apiserver(self) -> Iterator[None]:
        """End the API server without warning, as a crash would, and start it again afterwards, whatever happened."""
        self._processes["kube-apiserver"].kill()
        try:
            yield
        finally:
            self._start_apiserver()

    def restart_apiserver(self) -> None:
        """Stop the API server in good order and start it again."""
        self._processes["kube-apiserver"].stop()
        self._start_apiserver()

    def _start_apiserver(self) -> None:
        # On its old port. The controllers, the scheduler and kwok start anew, as they do in production when they
        # lose their lease. Without that their watches wait out a back-off of up to 30 s.
        clients = [self._processes[name] for name in _CLIENTS]
        stop_all(clients, grace_s=0.0)
        self._processes["kube-apiserver"].start()
        self._wait_for_apiserver()
        # Ready as it is, it answers the first request for what a CRD defines with 429, and only then reads it.
        self._until(
            lambda: self._serves(self.api.get(_DEFINITIONS)["items"]), "what CRDs define", needed=_SERVERS
        )
        # A new kwok would wait until the leases of the old one expire before it looks after their nodes.
        self._until(lambda: self.api.delete(_NODE_LEASES), "the end of the node leases", needed=_SERVERS)
        for client in clients:
            client.start()

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Log in as a service account that exists, with a token from the TokenRequest API."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_LIFETIME_S},
        }
        answer = self.api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
        return kubeconfig.write(
            self.state_dir / "serviceaccounts" / f"{namespace}.{name}.kubeconfig",
            server_url=self.server_url,
            ca=self.ca_file,
            credentials=str(answer["status"]["token"]),
            user=name,
            namespace=namespace,
        )

    def break_namespace(self, namespace: str, **faults: str) -> None:
        """Give every pod created in a namespace from now on the faults of `stages/faults.yaml`, as in `fail="OOMKilled"`."""
        labels = {f"{FAULT_PREFIX}{name.replace('_', '-')}": value for name, value in faults.items()}
        self._label(namespace, labels | {f"{FAULT_PREFIX}faults": "on"})
        wait_until(lambda: labels.items() <= self._faults(namespace).items(), "the faults in force")

    def mend_namespace(self, namespace: str, fault: str) -> None:
        """Give pods created from now on no faults any more, and take one off those that are there."""
        self._label(namespace, {f"{FAULT_PREFIX}{name}": None for name in ("faults", fault)})
        wait_until(lambda: not self._faults(namespace), "the end of the faults")
        self.mend_pods(namespace, fault)

    def mend_pods(self, namespace: str, fault: str) -> int:
        """Take a fault off the pods that are there and have it, and give how many these were."""
        path, key = f"/api/v1/namespaces/{namespace}/pods", f"{FAULT_PREFIX}{fault}"
        mended = 0
        for metadata in (pod["metadata"] for pod in self.api.get(path)["items"]):
            if key not in metadata.get("annotations", {}):
                continue
            try:
                self.api.merge(f"{path}/{metadata['name']}", {"metadata": {"annotations": {key: None}}})
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:  # one that was leaving has left
                    raise
            else:
                mended += 1
        return mended

    def wait_for_nodes(self, count: int) -> None:
        """Wait until at least this many nodes are ready and free of the taint they are born with."""

        def ready() -> bool:
            nodes = self.api.get("/api/v1/nodes?limit=10000")["items"]
            return sum(_is_ready(node) for node in nodes) >= count

        wait_until(ready, f"{count} ready nodes")

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Hold one component still: what it would do after a time of its own cannot overtake a test."""
        self._processes[name].signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._processes[name].signal(signal.SIGCONT)

    def check(self) -> None:
        """Raise, with the end of its log, when a component died."""
        self._check(self._processes)

    def _start_once(self) -> None:
        authority = Authority(self.state_dir / "pki")
        serving = authority.serving(
            "apiserver",
            ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"],
            sorted({self._host, "127.0.0.1", components.SERVICE_ADDRESS}),
        )
        token_key = authority.signing_key("service-account")
        addresses = components.Addresses(self._host, *free_ports(self._host, 3))
        self.server_url = addresses.server_url
        self._api = Api(
            self._login("admin", self.kubeconfig, authority.client("admin", "admin", "system:masters"))
        )
        data_dir = self.state_dir / "etcd"
        shutil.rmtree(data_dir, ignore_errors=True)
        self._launch("etcd", components.etcd(self._paths["etcd"], addresses, data_dir))
        command = components.apiserver(
            self._paths["kube-apiserver"],
            addresses,
            ca=authority.certificate,
            serving=serving,
            token_key=token_key,
            # Should our etcd lose its port to another cluster's, that one's data stays untouched.
            etcd_prefix=f"/registry-{secrets.token_hex(4)}",
            extra=self._apiserver_args,
        )
        self._launch("kube-apiserver", command)
        self._wait_for_apiserver()
        self._start_clients(authority, token_key)
        # The fault switches and the namespace's own account are what the first pod of a test needs.
        for manifest in yaml.safe_load_all((STAGES / "faults.yaml").read_text()):
            self.api.apply(f"{_FAULT_PATHS[manifest['kind']]}/{manifest['metadata']['name']}", manifest)
        self._until(
            lambda: self.api.get("/api/v1/namespaces/default/serviceaccounts/default"),
            "the default service account",
            needed=(*_SERVERS, *_CLIENTS),
        )
        self.check()

    def _start_clients(self, authority: Authority, token_key: KeyPair) -> None:
        logins = {
            name: self._login(
                name, self.state_dir / f"{name}.kubeconfig", authority.client(name, user, group)
            )
            for name, user, group in (
                ("controller-manager", "system:kube-controller-manager", None),
                ("scheduler", "system:kube-scheduler", None),
                ("kwok", "kwok", "system:masters"),
            )
        }
        stages = self.state_dir / "kwok.yaml"
        stages.write_text("---\n".join((STAGES / name).read_text() for name in ("node.yaml", "pod.yaml")))
        paths = self._paths
        commands = {
            "kube-controller-manager": components.controller_manager(
                paths["kube-controller-manager"],
                logins["controller-manager"],
                ca=authority.certificate,
                token_key=token_key,
            ),
            "kube-scheduler": components.scheduler(paths["kube-scheduler"], logins["scheduler"]),
            "kwok": components.kwok(paths["kwok"], logins["kwok"], stages),
        }
        for name, command in commands.items():
            self._launch(name, command)

    def _login(self, user: str, path: Path, credentials: KeyPair) -> Path:
        return kubeconfig.write(
            path, server_url=self.server_url, ca=self.ca_file, credentials=credentials, user=user
        )

    def _launch(self, name: str, command: list[str]) -> None:
        process = Process(name, command, self.state_dir / f"{name}.log", self._environment())
        self._processes[name] = process
        process.start()

    def _wait_for_apiserver(self) -> None:
        with contextlib.closing(Api(self.kubeconfig)) as probe:
            self._until(lambda: probe.get("/readyz") == "ok", "the API server", needed=_SERVERS)

    def _label(self, namespace: str, labels: Json) -> None:
        self.api.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})

    def _faults(self, namespace: str) -> Json:
        """Give the faults that a pod gets now: the server believes a label a moment after it has stored it."""
        spec = {"containers": [{"name": "main", "image": "none"}]}
        probe = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": spec}
        made = self.api.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", probe)
        found = made["metadata"].get("annotations", {})
        return {key: value for key, value in found.items() if key.startswith(FAULT_PREFIX)}

    def _serves(self, definitions: Iterable[Json]) -> bool:
        for spec in (definition["spec"] for definition in definitions):
            for version in (each["name"] for each in spec["versions"] if each["served"]):
                self.api.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1")
        return True

    def _until(self, probe: Callable[[], object], what: str, needed: Iterable[str]) -> None:
        def checked() -> object:
            self._check(needed)
            return probe()

        wait_until(checked, what, every_s=0.05)

    def _check(self, names: Iterable[str]) -> None:
        for name in names:
            self._processes[name].check()

    def _end_processes(self) -> None:
        # Clients first: they would log a storm of errors about the server that left.
        for names in (_CLIENTS, _SERVERS):
            stop_all(
                [self._processes[name] for name in names if name in self._processes], grace_s=_STOP_GRACE_S
            )
        self._processes.clear()
        if self._api is not None:
            self._api.close()

    def _environment(self) -> dict[str, str]:
        # A home of its own: no program may read, or leave something in, the user's configuration.
        home = self.state_dir / "home"
        home.mkdir(exist_ok=True)
        inherited = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        return inherited | {
            "HOME": str(home),
            "KWOK_WORKDIR": str(home / "kwok"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_DATA_HOME": str(home / "data"),
            # Collecting garbage half as often saves a fifth of the API server's CPU for 100 MiB.
            "GOGC": "200",
        }

    def _command(
        self, program: str, args: tuple[str, ...], stdin: str | None, check: bool, identity: Path | None
    ) -> str:
        result = subprocess.run(
            [self._paths[program], *args],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            env=self._environment() | {"KUBECONFIG": str(identity or self.kubeconfig)},
        )
        if check and result.returncode != 0:
            raise CommandError(f"{program} {' '.join(args)}", result.stderr + result.stdout)
        return result.stdout if check else result.stdout + result.stderr


def _is_ready(node: Json) -> bool:
    born_with = "node.kubernetes.io/not-ready"
    conditions = node["status"].get("conditions", [])
    return all(taint["key"] != born_with for taint in node["spec"].get("taints", [])) and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )

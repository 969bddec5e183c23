"""The command line of every component of the control plane.

It decides flags, and why they are what they are: few controllers and no leader election because two cores must
do, and no client-side throttling because a benchmark measures the operator, not its neighbours. Pure: it starts
nothing.
"""

from dataclasses import dataclass
from pathlib import Path

from harness.certs import KeyPair

SERVICE_RANGE = "10.96.0.0/16"  # a /24 answers 500 after 253 Services
SERVICE_ADDRESS = "10.96.0.1"
POD_RANGE = "10.244.0.0/16"
NODE_ADDRESS = "10.0.0.1"
FAKE_NODE_ANNOTATION = "kwok.x-k8s.io/node"
_ISSUER = "https://kubernetes.default.svc"
# Renewed every quarter of it. At the usual 40 s, the heartbeats of 500 nodes keep a quarter of a core busy.
_NODE_LEASE_S = 240
_CLIENT_QPS = ["--kube-api-qps=500", "--kube-api-burst=1000"]

# What Deployments, groups of pods, quotas, eviction and disruption need. No attach-detach, no routes, no
# cloud, no certificate signing: they would watch and resync for nothing.
CONTROLLERS: tuple[str, ...] = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the servers of one cluster listen."""

    host: str
    etcd_client_port: int
    etcd_peer_port: int
    apiserver_port: int

    @property
    def etcd_url(self) -> str:
        return f"http://{self.host}:{self.etcd_client_port}"

    @property
    def server_url(self) -> str:
        return f"https://{self.host}:{self.apiserver_port}"


def etcd(binary: Path, addresses: Addresses, data_dir: Path) -> list[str]:
    """Give the command of a single member that never waits for the disk: its data dies with the cluster."""
    peer_url = f"http://{addresses.host}:{addresses.etcd_peer_port}"
    return [
        str(binary),
        "--name=harness",
        f"--data-dir={data_dir}",
        f"--listen-client-urls={addresses.etcd_url}",
        f"--advertise-client-urls={addresses.etcd_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=harness={peer_url}",
        "--unsafe-no-fsync",
        "--snapshot-count=50000",
        "--quota-backend-bytes=2147483648",
        "--log-level=warn",
    ]


def apiserver(
    binary: Path,
    addresses: Addresses,
    *,
    ca: Path,
    serving: KeyPair,
    token_key: KeyPair,
    etcd_prefix: str,
    extra: tuple[str, ...] = (),
) -> list[str]:
    """Give the API server's command: RBAC on, tokens signed by our key, no fairness queues."""
    return [
        str(binary),
        f"--etcd-servers={addresses.etcd_url}",
        f"--etcd-prefix={etcd_prefix}",
        f"--bind-address={addresses.host}",
        # A machine without a default route cannot guess it. Nothing reads the endpoints of `kubernetes`.
        f"--advertise-address={addresses.host}",
        "--endpoint-reconciler-type=none",
        f"--secure-port={addresses.apiserver_port}",
        f"--client-ca-file={ca}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=false",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={token_key.certificate}",
        f"--service-account-signing-key-file={token_key.key}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged=true",
        # Fairness would queue a burst behind shares meant for a busy cluster, and costs CPU of its own.
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=4000",
        "--max-mutating-requests-inflight=2000",
        "--delete-collection-workers=8",
        "--shutdown-delay-duration=0s",
        "--profiling=false",
        "--event-ttl=1h",
        *extra,
    ]


def controller_manager(binary: Path, kubeconfig: Path, *, ca: Path, token_key: KeyPair) -> list[str]:
    """Give the controller manager's command, each controller with its own service account."""
    return [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(CONTROLLERS)}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={token_key.key}",
        f"--root-ca-file={ca}",
        "--leader-elect=false",
        "--secure-port=0",
        # A node that says it is lost is tainted in seconds. Silence is never how a simulated node is lost.
        "--node-monitor-period=2s",
        f"--node-monitor-grace-period={_NODE_LEASE_S + 60}s",
        "--terminated-pod-gc-threshold=1000",
        *_CLIENT_QPS,
    ]


def scheduler(binary: Path, kubeconfig: Path) -> list[str]:
    """Give the default scheduler's command, with the default profile."""
    return [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        *_CLIENT_QPS,
    ]


def kwok(binary: Path, kubeconfig: Path, stages: Path) -> list[str]:
    """Give the command of the node simulator. It does not throttle itself."""
    return [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        f"--config={stages}",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE_ANNOTATION}=fake",
        f"--cidr={POD_RANGE}",
        f"--node-ip={NODE_ADDRESS}",
        f"--node-lease-duration-seconds={_NODE_LEASE_S}",
    ]

"""The chart as helm renders it, without a cluster: both scopes, strict schemas, refusals that name the value.

tests/install holds the files against each other; this holds what comes out of them.
"""

import argparse
import os
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from harness import binaries
from shardwright.cli import prices, run, run_metrics
from shardwright.metrics.login import EngineMetrics, Login

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "shardwright"
KUBE_VERSION = "1.36.3"
SCHEMA_VERSION = "1.36"
RIGHTS = yaml.safe_load((CHART / "files/rights.yaml").read_text())
NAMESPACED = ("scope=Namespaced", "namespaces={team-a,team-b}")
DECLARED = (*NAMESPACED, "nodeAccess=false", "poolConfigMap.name=gpu-pool")
PROFILES = {
    "cluster": (),
    "namespaced": NAMESPACED,
    "declared pool": DECLARED,
    "everything set": (
        *DECLARED,
        "poolConfigMap.namespace=infra",
        "image.digest=sha256:" + "a" * 64,
        "imagePullSecrets[0].name=pull",
        "priorityClassName=system-cluster-critical",
        "nodeSelector.disk=ssd",
        "tolerations[0].operator=Exists",
        "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=zone",
        "podLabels.team=infra",
        "podAnnotations.note=x",
        "extraEnv[0].name=HTTPS_PROXY",
        "extraEnv[0].value=http://proxy:3128",
        "serviceAccount.annotations.a=b",
        "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.a=b",
        "networkPolicy.apiServer.to[0].ipBlock.cidr=10.0.0.1/32",
        "networkPolicy.apiServer.ports={6443}",
        "networkPolicy.extraEgress[0].ports[0].port=9090",
        "engineMetrics.intervalSeconds=15",
        "prometheus.url=https://prometheus.monitoring.svc:9443/team",
        "prometheus.tenant=team-a",
        "prometheus.namespaceLabel=kubernetes_namespace",
        "prometheus.podLabel=kubernetes_pod_name",
        "prometheus.staleSeconds=60",
        "prometheus.username=me",
        "prometheus.secret.name=prometheus-login",
        "prometheus.secret.passwordKey=password",
        "prometheus.secret.clientCertKey=tls.crt",
        "prometheus.secret.clientKeyKey=tls.key",
        "prometheus.secret.caKey=ca.crt",
        "calibrationStore.enabled=true",
        "prices.H100=2.5",
        "prices.NVIDIA-L4=1",
    ),
    "with a token": ("prometheus.url=http://prometheus.monitoring", "prometheus.serviceAccountToken=true"),
    "nothing measured": ("engineMetrics.enabled=false",),
}

LOGIN = "/etc/shardwright/prometheus"
URL, SECRET = "prometheus.url=http://a.b", "prometheus.secret.name=login"

Manifest = dict[str, Any]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm without a cluster."""
    environment = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    program = binaries.ensure(["helm"])["helm"]
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, env=environment)


def _option(value: str) -> str:
    """Return the option for a value: --set takes a fraction, such as a price, for a text."""
    return "--set-json" if value.startswith("prices") else "--set"


def template(*values: str, kube_version: str = KUBE_VERSION) -> subprocess.CompletedProcess[str]:
    settings = [argument for value in values for argument in (_option(value), value)]
    return helm(
        "template", "shardwright", str(CHART), "-n", "system", "--kube-version", kube_version, *settings
    )


def render(*values: str) -> list[Manifest]:
    result = template(*values)
    assert result.returncode == 0, result.stderr
    return [manifest for manifest in yaml.safe_load_all(result.stdout) if manifest]


def only(manifests: list[Manifest], kind: str, suffix: str = "shardwright") -> Manifest:
    found = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"].endswith(suffix)]
    assert len(found) == 1, [m["metadata"]["name"] for m in found]
    return found[0]


def granted(manifest: Manifest) -> set[tuple[str, str, str]]:
    return {
        triple
        for rule in manifest["rules"]
        for triple in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


OFF_BY_DEFAULT = {"markNodes", "gateways"}


def table(*groups: str, without: str = "", given: str = "") -> set[tuple[str, str, str]]:
    """Give the rights of groups as they are by default, but for one withheld or given."""
    withheld = OFF_BY_DEFAULT - {given} | {without}
    return {
        triple
        for group in groups
        for rule in RIGHTS[group]
        if rule.get("when", "always") not in withheld
        for triple in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


READS_SLICES = [
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
]


def binds(resource: str) -> list[Manifest]:
    """Give the one rule by which the operator may bind one role."""
    return [
        {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": [resource],
            "resourceNames": ["shardwright-endpoints"],
            "verbs": ["bind"],
        }
    ]


def of_operator(manifest: Manifest) -> bool:
    """Whether a role is not about routers."""
    return "-endpoints" not in manifest["metadata"]["name"]


def routing_rights(manifests: list[Manifest], kind: str, namespace: str) -> tuple[object, object]:
    """Give what routers may do, and what the operator may bind."""
    rules = {
        m["metadata"]["name"]: m["rules"]
        for m in manifests
        if m["kind"] == kind and m["metadata"].get("namespace", "") == namespace
    }
    return rules["shardwright-endpoints"], rules["shardwright-endpoints-binder"]


def test_lint() -> None:
    result = helm("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("profile", PROFILES)
def test_every_object_is_valid(profile: str) -> None:
    for manifest in render(*PROFILES[profile]):
        if manifest["kind"] != "CustomResourceDefinition":
            kubernetes_validate.validate(manifest, SCHEMA_VERSION, strict=True)
        assert manifest["metadata"].get("namespace") != ""


def test_the_crd_is_the_generated_one_and_is_kept() -> None:
    crd = only(render(), "CustomResourceDefinition", "shardwright.dev")
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd == yaml.safe_load((ROOT / "crds/llmservices.shardwright.dev.yaml").read_text())
    assert not [m for m in render("crds.install=false") if m["kind"] == "CustomResourceDefinition"]


def test_rights_in_the_cluster_scope() -> None:
    manifests = render()
    assert granted(only(manifests, "ClusterRole")) == table("namespaced", "pool", "cluster")
    assert not [m for m in manifests if m["kind"] in {"Role", "RoleBinding"}]
    assert routing_rights(manifests, "ClusterRole", "") == (READS_SLICES, binds("clusterroles"))


def test_rights_in_the_namespaced_scope() -> None:
    manifests = render(*NAMESPACED)
    assert granted(only(manifests, "ClusterRole", "shardwright-system")) == table("pool", "cluster")
    roles = {
        m["metadata"]["namespace"]: granted(m) for m in manifests if m["kind"] == "Role" and of_operator(m)
    }
    assert roles == {"team-a": table("namespaced"), "team-b": table("namespaced")}
    for namespace in ("team-a", "team-b"):
        assert routing_rights(manifests, "Role", namespace) == (READS_SLICES, binds("roles"))


def test_rights_with_a_declared_pool() -> None:
    manifests = render(*DECLARED, "rbac.aggregateUserRoles=false")
    assert not [m for m in manifests if m["kind"].startswith("Cluster")]
    roles = {
        (m["metadata"]["namespace"], m["metadata"]["name"]): m
        for m in manifests
        if m["kind"] == "Role" and of_operator(m)
    }
    assert granted(roles.pop(("team-a", "shardwright"))) == table("namespaced", "pool")
    assert granted(roles.pop(("team-b", "shardwright"))) == table("namespaced", "pool")
    (role,) = roles.values()
    assert role["metadata"]["namespace"] == "system"
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["gpu-pool"], "verbs": ["get"]}
    ]


@pytest.mark.parametrize("value", ["checkSecrets", "podMonitors", "replaceEngines", "markPods"])
def test_rights_that_can_be_withheld(value: str) -> None:
    role = only(render(f"rbac.{value}=false"), "ClusterRole")
    assert granted(role) == table("namespaced", "pool", "cluster", without=value)


@pytest.mark.parametrize(
    ("value", "option", "right"),
    [
        ("markNodes", "--mark-nodes", ("", "nodes", "patch")),
        ("gateways", "--gateways", ("gateway.networking.k8s.io", "httproutes", "create")),
    ],
)
def test_some_rights_are_given_only_where_that_is_asked_for(
    value: str, option: str, right: tuple[str, str, str]
) -> None:
    for values, given in (((), ""), ((f"rbac.{value}=true",), value)):
        manifests = render(*values)
        assert granted(only(manifests, "ClusterRole")) == table("namespaced", "pool", "cluster", given=given)
        assert (right in granted(only(manifests, "ClusterRole"))) is bool(given)
        (container,) = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
        assert (option in container["args"]) is bool(given)


def test_pods_are_deleted_only_in_the_namespaces_that_are_served() -> None:
    manifests = render(*NAMESPACED)
    right = ("", "pods", "delete")
    assert right not in granted(only(manifests, "ClusterRole", "shardwright-system"))
    assert all(right in granted(m) for m in manifests if m["kind"] == "Role" and of_operator(m))


def test_every_binding_leads_from_the_account_to_a_role() -> None:
    for values in PROFILES.values():
        manifests = render(*values)
        account = only(manifests, "ServiceAccount")["metadata"]
        roles = {
            (m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"])
            for m in manifests
            if m["kind"] in {"Role", "ClusterRole"}
            # What others are given, by built-in roles and by the operator.
            and not m["metadata"]["name"].endswith(("-view", "-edit", "-endpoints"))
        }
        bindings = [m for m in manifests if m["kind"] in {"RoleBinding", "ClusterRoleBinding"}]
        for binding in bindings:
            assert binding["subjects"] == [
                {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
            ]
        assert roles == {
            (b["roleRef"]["kind"], b["metadata"].get("namespace"), b["roleRef"]["name"]) for b in bindings
        }


def test_the_pod_is_restricted_and_alone() -> None:
    deployment = only(render(), "Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    security = pod["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 65532)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    assert [(p["name"], p["containerPort"]) for p in container["ports"]] == [("http", 8080)]


def test_arguments_say_where_to_work() -> None:
    def arguments(*values: str) -> list[str]:
        pod = only(render(*values), "Deployment")["spec"]["template"]["spec"]
        result: list[str] = pod["containers"][0]["args"]
        return result

    def base(kind: str) -> list[str]:
        own = "localhost/shardwright:0.1.0"
        images = ["--router-image", "localhost/vllm-router:0.1.17", "--endpoints-image", own]
        return [
            *("run", "--metrics-port", "8080", "--log-level", "info", "--log-format", "text", *images),
            *("--endpoints-role", f"{kind}/shardwright-endpoints", "--engine-metrics-interval", "60"),
            *("--stall-seconds", "60"),
        ]

    assert arguments() == base("ClusterRole")
    assert arguments("scope=Namespaced") == [*base("Role"), "--namespace", "system"]
    assert arguments(*NAMESPACED) == [*base("Role"), "--namespace", "team-a", "--namespace", "team-b"]
    assert arguments(*DECLARED)[-2:] == ["--pool-config-map", "system/gpu-pool"]
    assert arguments("log.level=debug", "log.format=json")[4:7:2] == ["debug", "json"]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_operator_understands_its_arguments(profile: str) -> None:
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers())
    pod = only(render(*PROFILES[profile]), "Deployment")["spec"]["template"]["spec"]
    options = parser.parse_args(pod["containers"][0]["args"])
    assert options.metrics_port == pod["containers"][0]["ports"][0]["containerPort"]
    assert options.pool_config_map in {None, ("system", "gpu-pool"), ("infra", "gpu-pool")}
    settings = run_metrics.read(options)
    if profile == "everything set":
        assert settings == EngineMetrics(
            prometheus=Login(
                url="https://prometheus.monitoring.svc:9443/team",
                username="me",
                password_file=f"{LOGIN}/password",
                client_certificate_file=f"{LOGIN}/tls.crt",
                client_key_file=f"{LOGIN}/tls.key",
                ca_file=f"{LOGIN}/ca.crt",
                tenant="team-a",
                namespace_label="kubernetes_namespace",
                pod_label="kubernetes_pod_name",
            ),
            interval_s=15.0,
            stale_s=60.0,
            store=("system", "shardwright-calibration"),
        )
        (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["mountPath"] == LOGIN)
        (volume,) = (v for v in pod["volumes"] if v["name"] == mount["name"])
        assert volume["secret"]["secretName"] == "prometheus-login"
        assert options.prices == "/etc/shardwright/prices/prices.yaml"
    elif profile == "with a token":
        assert settings is not None
        assert settings.prometheus is not None
        assert settings.prometheus.bearer_token_file.endswith("/serviceaccount/token")
    else:
        assert settings == (None if profile == "nothing measured" else EngineMetrics())


def test_the_calibration_store_takes_two_verbs_on_one_object() -> None:
    manifests = render("calibrationStore.enabled=true")
    config_map = only(manifests, "ConfigMap", "-calibration")
    assert "data" not in config_map, "an upgrade would take what was measured away"
    assert only(manifests, "Role", "-calibration")["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [config_map["metadata"]["name"]],
            "verbs": ["get", "patch"],
        }
    ]


def test_prices_are_mounted_where_the_operator_reads_them(tmp_path: Path) -> None:
    manifests = render("prices.H100=2.5", "prices.NVIDIA-L4=1")
    pod = only(manifests, "Deployment")["spec"]["template"]["spec"]
    [volume] = [v for v in pod["volumes"] if v["name"] == "prices"]
    [mount] = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "prices"]
    config_map = only(manifests, "ConfigMap", "-prices")
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    [(key, text)] = config_map["data"].items()
    assert f"{mount['mountPath']}/{key}" in pod["containers"][0]["args"]
    written = tmp_path / key
    written.write_text(text)
    known = prices.read(str(written))
    assert {name: known[name].price_per_gpu_hour for name in ("H100", "L4")} == {"H100": 2.5, "L4": 1.0}
    written.write_text(yaml.safe_dump(config_map))
    assert prices.read(str(written)) == known, "the ConfigMap as kubectl saves it is a file for commands"


def test_other_prices_are_another_pod_of_the_operator() -> None:
    def template_of(*values: str) -> Manifest:
        found: Manifest = only(render(*values), "Deployment")["spec"]["template"]
        return found

    assert template_of("prices.H100=2.5") == template_of("prices.H100=2.5")
    assert template_of("prices.H100=2.5") != template_of("prices.H100=2.6")
    assert "prices" not in yaml.safe_dump(template_of())


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        (("prometheus.url=http://a.b:9090",), [9090, 8000, 8001]),
        (("prometheus.url=http://a.b",), [80, 8000, 8001]),
        (("prometheus.url=https://a.b/x",), [443, 8000, 8001]),
        (("engineMetrics.enabled=true",), [8000, 8001]),
        (("engineMetrics.enabled=false",), []),
    ],
)
def test_the_network_policy_opens_the_way_to_the_metrics(values: tuple[str, ...], ports: list[int]) -> None:
    rules = only(render(*values), "NetworkPolicy")["spec"]["egress"][2:]
    assert [[p["port"] for p in rule["ports"]] for rule in rules] == [[port] for port in ports]


def test_the_network_policy_selects_the_pod_and_names_its_port() -> None:
    manifests = render(*PROFILES["everything set"])
    policy, pod = only(manifests, "NetworkPolicy")["spec"], only(manifests, "Deployment")["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert policy["ingress"][0]["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"]] == [
        [53, 53],
        [6443],
        [9443],
        [8000],
        [8001],
        [9090],
    ]
    assert policy["egress"][1]["to"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (("replicas=2",), "'replicas' not allowed"),
        (("rbac.checkSecret=false",), "'checkSecret' not allowed"),
        (("networkPolicy.apiServer.port=443",), "'port' not allowed"),
        (("scope=namespaced",), "must be one of 'Cluster', 'Namespaced'"),
        (("image.digest=latest",), "does not match pattern"),
        (("namespaces={team-a}",), "set scope to Namespaced"),
        (("nodeAccess=false",), "set scope to Namespaced"),
        (("scope=Namespaced", "nodeAccess=false"), "set poolConfigMap.name"),
        ((*NAMESPACED, "poolConfigMap.name=gpu-pool"), "set nodeAccess to false"),
        (("prometheus.url=http://me:pw@host",), "does not match pattern"),
        (("prometheus.tenant=a",), "set prometheus.url"),
        ((URL, "prometheus.secret.caKey=ca.crt"), "set prometheus.secret.name"),
        ((URL, SECRET, "prometheus.secret.passwordKey=p"), "prometheus.username and"),
        ((URL, SECRET, "prometheus.secret.clientCertKey=c"), "go together"),
        (
            (URL, SECRET, "prometheus.secret.bearerTokenKey=t", "prometheus.serviceAccountToken=true"),
            "choose one",
        ),
        ((URL, "engineMetrics.enabled=false"), "engineMetrics.enabled is false"),
        (("prices.H100=0",), "at '/prices/H100': minimum"),
        (("prices.H100=-1",), "at '/prices/H100': minimum"),
        (("prices.H100=2900",), "at '/prices/H100': maximum"),
        (('prices.H100="2.50"',), "at '/prices/H100': got string, want number"),
        (("prices=2.5",), "at '/prices': got number, want object"),
    ],
)
def test_a_wrong_value_is_refused_by_name(values: tuple[str, ...], sentence: str) -> None:
    result = template(*values)
    assert result.returncode != 0
    assert sentence in result.stderr


def test_an_older_kubernetes_is_refused() -> None:
    assert template(kube_version="1.31.0").returncode == 0
    assert template(kube_version="v1.33.4-gke.1").returncode == 0
    result = template(kube_version="1.30.9")
    assert result.returncode != 0
    assert "kubeVersion" in result.stderr

"""The chart on a real API server: install, upgrade, uninstall, and exactly the rights it promises.

A control plane of its own, because the CRD is upgraded, orphaned and adopted here while other tests rely on theirs.
"""

import contextlib
import re
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.api import Api, ApiError, Json
from harness.cluster import Cluster, CommandError
from harness.waiting import wait_until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "shardwright"
RIGHTS = yaml.safe_load((CHART / "files/rights.yaml").read_text())
CRD_NAME = "llmservices.shardwright.dev"
CRD_PATH = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD_NAME}"
REVIEWS = "/apis/authorization.k8s.io/v1"
FLUX = yaml.safe_load((ROOT / "docs/gitops/flux-kustomization.yaml").read_text())["spec"]["healthCheckExprs"][
    0
]

Right = tuple[str, str, str]
_OBJECT = r"object.\1."


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Start a control plane for this module; the fixture `namespace` uses it too."""
    with Cluster() as running:
        yield running


def settings(values: tuple[str, ...]) -> list[str]:
    return [argument for value in values for argument in ("--set", value)]


def install(cluster: Cluster, namespace: str, *values: str, chart: Path = CHART, name: str = "sw") -> None:
    cluster.helm("install", name, str(chart), "-n", namespace, *settings(values))


def service(namespace: str, name: str = "chat") -> Json:
    return {
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"id": "Qwen/Qwen3-8B"}, "pool": {"maxGPUs": 1}},
    }


def service_path(namespace: str, name: str = "chat") -> str:
    return f"/apis/shardwright.dev/v1alpha1/namespaces/{namespace}/llmservices/{name}"


def served(cluster: Cluster) -> None:
    # Not `kubectl wait`: it fails on a CRD whose conditions are not there yet.
    wait_until(lambda: cluster.api.get("/apis/shardwright.dev/v1alpha1/llmservices"), "the resource")


@pytest.fixture
def clean(cluster: Cluster, namespace: str) -> Iterator[None]:  # noqa: ARG001
    """Leave no release and no CRD behind, while the namespaces are there: what helm knows of a release goes with its."""
    yield
    for release in yaml.safe_load(cluster.helm("list", "-A", "-o", "json")):
        cluster.helm("uninstall", release["name"], "-n", release["namespace"], "--wait")
    cluster.kubectl("delete", "crd", CRD_NAME, "--ignore-not-found", "--wait")


@pytest.mark.usefixtures("clean")
def test_install_upgrade_uninstall(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    install(cluster, namespace)
    served(cluster)
    cluster.apply(service(namespace))
    before = cluster.api.get(service_path(namespace))

    newer = tmp_path / "shardwright"
    shutil.copytree(CHART, newer)
    crd = yaml.safe_load((newer / "files/crd.yaml").read_text())
    column = {"name": "Newer", "type": "string", "jsonPath": ".metadata.name", "priority": 1}
    crd["spec"]["versions"][0].setdefault("additionalPrinterColumns", []).append(column)
    (newer / "files/crd.yaml").write_text("\n" + yaml.safe_dump(crd))
    cluster.helm("upgrade", "sw", str(newer), "-n", namespace)
    live = cluster.api.get(CRD_PATH)
    assert live["spec"]["versions"][0]["additionalPrinterColumns"][-1] == column
    assert live["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"

    cluster.helm("rollback", "sw", "1", "-n", namespace)
    columns = cluster.api.get(CRD_PATH)["spec"]["versions"][0].get("additionalPrinterColumns", [])
    assert column not in columns

    cluster.helm("uninstall", "sw", "-n", namespace, "--wait")
    with pytest.raises(ApiError):
        cluster.api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/sw-shardwright")
    assert not cluster.api.get(CRD_PATH)["metadata"].get("deletionTimestamp")
    after = cluster.api.get(service_path(namespace))
    # Not even touched: neither the uninstall nor the upgrades wrote the object.
    assert (after["metadata"], after["spec"]) == (before["metadata"], before["spec"])

    install(cluster, namespace)
    assert cluster.api.get(service_path(namespace))["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.usefixtures("clean")
def test_a_crd_of_other_origin_is_adopted_on_request_only(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("apply", "--server-side", "-f", str(CHART / "files/crd.yaml"))
    served(cluster)
    with pytest.raises(CommandError, match="invalid ownership metadata"):
        install(cluster, namespace)
    cluster.helm("install", "sw", str(CHART), "-n", namespace, "--take-ownership")
    cluster.helm("uninstall", "sw", "-n", namespace, "--wait")
    install(cluster, namespace, "crds.install=false")


@pytest.mark.usefixtures("clean")
def test_two_namespaced_releases_live_side_by_side(cluster: Cluster, namespace: str) -> None:
    other = f"{namespace[:50]}-b"
    cluster.kubectl("create", "namespace", other)
    install(cluster, namespace, "scope=Namespaced")
    install(cluster, other, "scope=Namespaced", "crds.install=false")
    for place, elsewhere in ((namespace, other), (other, namespace)):
        wait_until(
            lambda place=place: allowed(cluster, place, "list", "llmservices.shardwright.dev", place),
            "rights",
        )  # type: ignore[misc]
        assert not allowed(cluster, place, "list", "llmservices.shardwright.dev", elsewhere)


def allowed(cluster: Cluster, home: str, verb: str, resource: str, namespace: str) -> bool:
    """Ask `kubectl auth can-i` for the operator of the release in `home`."""
    user = f"--as=system:serviceaccount:{home}:sw-shardwright"
    answer = cluster.kubectl("auth", "can-i", verb, resource, "-n", namespace, user, check=False)
    return answer.strip().splitlines()[-1] == "yes"


def rights(cluster: Cluster, home: str, account: str, namespace: str) -> set[Right]:
    """Give what the server itself lists as the rights of an account in a namespace."""
    api = Api(cluster.service_account_kubeconfig(home, account))
    review: Json = {"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1"}
    status = api.post(f"{REVIEWS}/selfsubjectrulesreviews", review | {"spec": {"namespace": namespace}})[
        "status"
    ]
    api.close()
    assert not status["incomplete"]
    return {
        triple
        for rule in status["resourceRules"]
        for triple in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


def assert_granted(cluster: Cluster, home: str, namespace: str, wanted: set[Right]) -> None:
    """Wait for the rights: the server believes its own roles a moment after it has stored them."""
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: granted(cluster, home, namespace) == wanted, "the rights")
    assert granted(cluster, home, namespace) == wanted


def granted(cluster: Cluster, home: str, namespace: str) -> set[Right]:
    """Give the operator's rights beyond those of any account."""
    return rights(cluster, home, "sw-shardwright", namespace) - rights(cluster, home, "default", namespace)


BIND_ANYWHERE: set[Right] = {("rbac.authorization.k8s.io", "clusterroles", "bind")}
BIND_HERE: set[Right] = {("rbac.authorization.k8s.io", "roles", "bind")}
"""The one role that routers get, by its name."""
OFF_BY_DEFAULT = {"markNodes", "gateways"}


def table(*groups: str) -> set[Right]:
    return {
        triple
        for group in groups
        for rule in RIGHTS[group]
        if rule.get("when") not in OFF_BY_DEFAULT
        for triple in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


@pytest.mark.usefixtures("clean")
def test_rights_cluster_wide(cluster: Cluster, namespace: str) -> None:
    install(cluster, namespace)
    for place in (namespace, "default"):
        assert_granted(cluster, namespace, place, table("namespaced", "pool", "cluster") | BIND_ANYWHERE)
    assert not allowed(cluster, namespace, "list", "secrets", namespace)
    assert not allowed(cluster, namespace, "update", "llmservices.shardwright.dev", namespace)
    assert not allowed(cluster, namespace, "create", "pods", namespace)


@pytest.mark.usefixtures("clean")
def test_rights_namespaced(cluster: Cluster, namespace: str) -> None:
    install(cluster, namespace, "scope=Namespaced")
    assert_granted(cluster, namespace, namespace, table("namespaced", "pool", "cluster") | BIND_HERE)
    assert_granted(cluster, namespace, "default", table("pool", "cluster"))
    assert allowed(cluster, namespace, "create", "deployments.apps", namespace)
    assert not allowed(cluster, namespace, "create", "deployments.apps", "default")
    assert not allowed(cluster, namespace, "get", "secrets", "default")


@pytest.mark.usefixtures("clean")
def test_rights_with_a_declared_pool(cluster: Cluster, namespace: str) -> None:
    values = (
        "scope=Namespaced",
        "nodeAccess=false",
        "poolConfigMap.name=gpus",
        "poolConfigMap.namespace=default",
    )
    install(cluster, namespace, *values)
    assert_granted(cluster, namespace, namespace, table("namespaced", "pool") | BIND_HERE)
    assert not allowed(cluster, namespace, "list", "nodes", namespace)
    assert_granted(cluster, namespace, "default", {("", "configmaps", "get")})
    assert allowed(cluster, namespace, "get", "configmap/gpus", "default")
    assert not allowed(cluster, namespace, "get", "configmap/other", "default")


@pytest.mark.usefixtures("clean")
def test_users_of_a_namespace_may_use_it(cluster: Cluster, namespace: str) -> None:
    install(cluster, namespace)
    served(cluster)

    def may(role: str, verb: str, resource: str, subresource: str = "") -> bool:
        attributes = {
            "group": "shardwright.dev",
            "resource": resource,
            "subresource": subresource,
            "verb": verb,
            "namespace": namespace,
        }
        review: Json = {"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        spec = {"user": f"{role}-user", "resourceAttributes": attributes}
        return bool(
            cluster.api.post(f"{REVIEWS}/subjectaccessreviews", review | {"spec": spec})["status"]["allowed"]
        )

    for role in ("view", "edit", "admin"):
        cluster.kubectl(
            "create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}-user", "-n", namespace
        )
        wait_until(lambda role=role: may(role, "get", "llmservices"), f"the aggregated role {role}")  # type: ignore[misc]
    for role in ("edit", "admin"):
        wait_until(lambda role=role: may(role, "create", "llmservices"), f"the aggregated role {role}")  # type: ignore[misc]
        assert may(role, "patch", "llmservices", "scale")
        assert not may(role, "patch", "llmservices", "status")
    assert may("view", "get", "llmservices", "scale")
    assert not may("view", "create", "llmservices")
    assert not may("view", "update", "llmservices", "scale")


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("values", [(), ("scope=Namespaced",)], ids=["cluster", "namespaced"])
def test_the_server_knows_every_field(cluster: Cluster, namespace: str, values: tuple[str, ...]) -> None:
    text = cluster.helm(
        "template",
        "sw",
        str(CHART),
        "-n",
        namespace,
        "--validate",
        *settings((*values, "crds.install=false")),
    )
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)


def condition(kind: str, status: str, reason: str = "Because") -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "A sentence.",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def flux_policy() -> list[Json]:
    """Make the API server evaluate Flux's expressions: it refuses a dry run and says what they gave.

    Flux passes the object's top-level fields as variables; an admission policy has them below `object`.
    """
    variable = re.compile(r"(?<![.a-zA-Z])(status|metadata|spec)[.]")
    shown = [f"'{name}=' + string({variable.sub(_OBJECT, FLUX[name])})" for name in ("failed", "current")]
    kind = {"apiVersion": "admissionregistration.k8s.io/v1"}
    matched = {
        "apiGroups": ["shardwright.dev"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["llmservices/status"],
    }
    return [
        kind
        | {
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "flux"},
            "spec": {
                "matchConstraints": {"resourceRules": [matched]},
                "validations": [{"expression": "false", "messageExpression": " + ' ' + ".join(shown)}],
            },
        },
        kind
        | {
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "flux"},
            "spec": {"policyName": "flux", "validationActions": ["Deny"]},
        },
    ]


@pytest.mark.usefixtures("clean")
def test_flux_expressions_on_the_servers_own_cel(cluster: Cluster, namespace: str) -> None:
    install(cluster, namespace)
    served(cluster)
    cluster.apply(service(namespace))
    cluster.apply(*flux_policy())

    def verdict(*conditions: Json) -> dict[str, bool]:
        status: dict[str, Any] = {"observedGeneration": 1}
        if conditions:
            status["conditions"] = list(conditions)
        try:
            cluster.api.merge(f"{service_path(namespace)}/status?dryRun=All", {"status": status})
        except ApiError as error:
            found = dict(re.findall(r"(failed|current)=(true|false)", error.body))
            return {name: value == "true" for name, value in found.items()}
        return {}

    wait_until(verdict, "the policy")
    assert verdict() == {"failed": False, "current": False}
    assert verdict(condition("Ready", "True")) == {"failed": False, "current": True}
    assert verdict(condition("Ready", "False", "Starting")) == {"failed": False, "current": False}
    assert verdict(condition("Ready", "False", "ScaledToZero")) == {"failed": False, "current": True}
    stalled = verdict(condition("Ready", "False"), condition("Stalled", "True"))
    assert stalled == {"failed": True, "current": False}
    assert verdict(condition("Placed", "False", "NoRoom")) == {"failed": False, "current": False}
    cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "flux")


def test_the_crd_defaults_what_health_rules_rely_on(cluster: Cluster, namespace: str) -> None:
    """An object that the operator has never seen must not look current to kstatus, Argo CD or Flux."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHART / "files/crd.yaml"))
    served(cluster)
    cluster.apply(service(namespace))
    found = cluster.api.get(service_path(namespace))
    assert found["status"]["observedGeneration"] == -1
    assert found["metadata"]["generation"] == 1

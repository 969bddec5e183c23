"""Plans that wait, on a real control plane: nothing moves before approval, and what is approved is what was shown.

The commands run as a user with the built-in role `edit`, with the rights that the chart adds to it and no others.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cli_user import log_in, shardwright
from controller_world import World, install, running_operator, world_of
from harness.api import ApiError, Json
from harness.cluster import Cluster
from harness.waiting import wait_until
from operator_process import ROOT, OperatorProcess

pytestmark = pytest.mark.cluster
MANUAL = {"planPolicy": "Manual"}


@pytest.fixture(scope="module")
def operator(cluster: Cluster) -> Iterator[OperatorProcess]:
    with running_operator(cluster) as process:
        yield process


@pytest.fixture
def world(cluster: Cluster, operator: OperatorProcess, namespace: str) -> Iterator[World]:
    with world_of(cluster, operator, namespace) as made:
        made.add_node("a")
        yield made


@pytest.fixture
def user(world: World) -> Path:
    return log_in(world)


def env(value: str) -> Json:
    return {"engine": {"env": [{"name": "X", "value": value}]}}


def proposal(world: World) -> Json:
    return world.get("chat").get("status", {}).get("proposal") or {}


def waiting(world: World) -> str:
    """Wait for a proposal of this generation, and give its revision."""
    world.until("chat", "Ready", "False", "WaitsForApproval")
    return proposal(world)["revision"]


def only_deployment(world: World) -> Json:
    [deployment] = world.deployments("chat")
    return deployment


def uids(world: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.pods()}


def quiet_at_a_restart(world: World) -> None:
    """Whatever is decided or waits, an operator that starts anew writes nothing."""
    before = world.at_rest()
    world.operator.stop()
    world.operator.start()
    assert world.at_rest() == before


def test_nothing_runs_before_the_first_approval(world: World, user: Path) -> None:
    world.apply(world.service("chat", **MANUAL))
    revision = waiting(world)
    assert {kind for kind, _ in world.children("chat")} == {"ControllerRevision"}
    assert world.pods() == []
    row = world.cluster.kubectl("-n", world.namespace, "get", "lsvc", "chat", "-o", "wide", kubeconfig=user)
    assert "WaitsForApproval" in row
    assert proposal(world)["summary"] in row
    quiet_at_a_restart(world)
    assert world.pods() == []
    message = world.conditions("chat")["Ready"]["message"]
    command = message.partition("To approve it: shardwright ")[2].partition(",")[0].split()
    assert command == ["approve", "chat", "-n", world.namespace, "--revision", revision]
    shardwright(user, *command)
    world.ready("chat")
    assert only_deployment(world)["metadata"]["name"] == f"chat-{revision}"
    assert not proposal(world)
    quiet_at_a_restart(world)


def test_a_change_waits_and_a_rollback_brings_back_the_very_template(world: World, user: Path) -> None:
    service = world.service("chat", replicas=2, **MANUAL)
    world.apply(service | {"spec": service["spec"] | {"planPolicy": "OnSpecChange"}})
    world.ready("chat")
    first, pods = only_deployment(world), uids(world)
    world.apply(service)
    world.ready("chat")
    changed = world.service("chat", replicas=2, **MANUAL, **env("1"))
    world.apply(changed)
    revision = waiting(world)
    assert proposal(world)["changes"] == ["spec.containers[engine].env[X] added", "pods restart"]
    assert uids(world) == pods
    assert world.is_("chat", "Available", "True")
    quiet_at_a_restart(world)
    assert uids(world) == pods

    shardwright(user, "approve", "chat", code=2)  # nobody to ask
    shardwright(user, "approve", "chat", "--yes")  # the namespace is the context's
    world.ready("chat")
    second = only_deployment(world)
    assert second["metadata"]["name"] == f"chat-{revision}"
    wait_until(lambda: not uids(world) & pods, "the end of the pods that left")
    listed = shardwright(user, "rollback", "chat", "--list").splitlines()
    assert [line.split()[0] for line in listed[1:]] == [
        revision,
        first["metadata"]["name"].removeprefix("chat-"),
    ]

    printed = shardwright(user, "rollback", "chat", "--print").splitlines()[0]
    shardwright(user, "rollback", "chat", "--yes")
    wait_until(
        lambda: [d["metadata"]["name"] for d in world.deployments("chat")] == [first["metadata"]["name"]],
        "the first workload",
    )
    world.until("chat", "Available", "True")
    world.until("chat", "Ready", "False", "WaitsForApproval")
    assert only_deployment(world)["spec"]["template"] == first["spec"]["template"]
    assert yaml.safe_load(printed) == {"approvedRevision": first["metadata"]["name"].removeprefix("chat-")}
    # What git says, with the line that was printed, is what is there.
    in_git = changed | {"spec": changed["spec"] | yaml.safe_load(printed)}
    text = yaml.safe_dump(in_git)
    assert world.cluster.kubectl("diff", "--server-side", "-f", "-", stdin=text) == ""
    quiet_at_a_restart(world)
    # The spec is put right in git, and the field cleared: the first revision is what it leads to.
    world.apply(service)
    shardwright(user, "approve", "chat", "--clear")
    world.ready("chat")
    assert only_deployment(world)["metadata"]["name"] == first["metadata"]["name"]
    assert "approvedRevision" not in world.get("chat")["spec"]
    quiet_at_a_restart(world)


def test_a_pinned_revision_of_the_usual_policy_is_ready_and_says_what_waits(world: World, user: Path) -> None:
    world.apply(world.service("chat"))
    world.ready("chat")
    first = only_deployment(world)["metadata"]["name"]
    world.apply(world.service("chat", **env("1")))
    wait_until(lambda: first not in {d["metadata"]["name"] for d in world.deployments("chat")}, "the second")
    world.ready("chat")
    shardwright(user, "rollback", "chat", "--to", first)
    world.until("chat", "Ready", "True", "RevisionPinned")
    assert only_deployment(world)["metadata"]["name"] == first
    assert "which waits" in world.conditions("chat")["Planned"]["message"]
    quiet_at_a_restart(world)
    world.cluster.api.merge(
        f"/apis/shardwright.dev/v1alpha1/namespaces/{world.namespace}/llmservices/chat",
        {"spec": {"approvedRevision": "00000000"}},
    )
    message = world.until("chat", "Accepted", "False", "UnknownRevision")["message"]
    assert first.removeprefix("chat-") in message
    assert only_deployment(world)["metadata"]["name"] == first
    quiet_at_a_restart(world)


def test_a_newer_operator_changes_nothing_of_what_waits_and_applies_what_was_shown(
    world: World, user: Path, tmp_path: Path
) -> None:
    world.apply(world.service("chat", **MANUAL))
    revision = waiting(world)
    [record] = [item for (kind, _), item in world.children("chat").items() if kind == "ControllerRevision"]
    before = world.at_rest()
    world.operator.stop()
    (tmp_path / "sitecustomize.py").write_text(
        "import shardwright.render.digest as d\nd.TEMPLATE_VERSION = 99\n"
        "import shardwright.render.template as t\nt.PRESTOP_S = 99\nt.TEMPLATE_VERSION = 99\n"
    )
    path = f"{tmp_path}:{ROOT / 'operator' / 'src'}"
    upgraded = OperatorProcess(world.cluster, environment={"PYTHONPATH": path}, log_name="upgraded-approval")
    install(upgraded)
    with upgraded:
        assert world.at_rest() == before
        shardwright(user, "approve", "chat", "--revision", revision)
        world.ready("chat")
        deployment = only_deployment(world)
    recorded = record["data"]["template"]
    assert recorded["metadata"]["annotations"]["shardwright.dev/template-version"] != "99"
    assert deployment["spec"]["template"]["metadata"]["annotations"] == recorded["metadata"]["annotations"]


@pytest.mark.parametrize("value", ["12345678", "1234567", "ABCDEF01", ""])
def test_a_name_that_is_none_is_refused_at_apply(world: World, value: str) -> None:
    """A number, which YAML makes of digits without quotes, is refused too."""
    approved = int(value) if value == "12345678" else value
    with pytest.raises(ApiError) as refused:
        world.apply(world.service("chat", approvedRevision=approved))
    assert refused.value.status in {400, 422, 500}
    assert "approvedRevision" in refused.value.body

"""Raw objects as facts: quantities and effective requests as the scheduler counts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.topology.facts import effective_requests, is_terminal, node_facts, pod_facts
from shardwright.topology.quantities import MOST, QuantityError, milli, whole
from shardwright.topology.types import Resources
from topology.cluster_objects import node, pod

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "units", "thousandths"),
    [
        ("8", 8, 8000), ("1500m", 2, 1500), ("64Gi", 64 * GIB, 64 * GIB * 1000), ("1e3", 1000, 1_000_000),
        ("0.5", 1, 500), ("100k", 100_000, 100_000_000), ("2E", 2 * 10**18, 2 * 10**21), ("1Ei", 1 << 60, (1 << 60) * 1000),
        ("12E2", 1200, 1_200_000), ("1n", 1, 1),
    ],
)  # fmt: skip
def test_quantities_read_as_kubernetes_reads_them(text, units, thousandths):
    assert whole(text) == units
    assert milli(text) == thousandths


@pytest.mark.parametrize("text", ["", "8GB", "x", "1.2.3", "Gi", "--1"])
def test_a_bad_quantity_is_named(text):
    with pytest.raises(QuantityError, match="is not a Kubernetes quantity"):
        whole(text)


@given(st.integers(0, 10**15), st.sampled_from(["", "k", "Mi", "Gi", "m"]))
def test_a_request_is_never_rounded_down(number, suffix):
    scale = {"": 1000, "k": 10**6, "Mi": 1000 << 20, "Gi": 1000 << 30, "m": 1}[suffix]
    wanted = min(number * scale, MOST * 1000)
    assert milli(f"{number}{suffix}") == wanted
    assert whole(f"{number}{suffix}") * 1000 >= wanted


def container(cpu="0", gpus=None, **extra):
    return {
        "resources": {"requests": {"cpu": cpu}, "limits": {"nvidia.com/gpu": gpus} if gpus else {}},
        **extra,
    }


@pytest.mark.parametrize(
    ("spec", "cpu_millis", "gpus"),
    [
        ({"containers": [container("1"), container("2", "1")]}, 3000, 1),
        ({"initContainers": [container("5", "4")], "containers": [container("1", "1")]}, 5000, 4),
        # A sidecar runs beside the containers and beside every init container after it.
        ({"initContainers": [container("1", restartPolicy="Always"), container("5")], "containers": [container("3")]}, 6000, 0),
        ({"initContainers": [container("5"), container("1", restartPolicy="Always")], "containers": [container("3")]}, 5000, 0),
        ({"initContainers": [container("1", restartPolicy="Always")], "containers": [container("5")]}, 6000, 0),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250, 0),
        ({"containers": [container("1", "2")], "resources": {"requests": {"cpu": "7"}}}, 7000, 2),
    ],
)  # fmt: skip
def test_effective_requests_follow_the_schedulers_rules(spec, cpu_millis, gpus):
    found = effective_requests(spec)
    assert (found.cpu_millis, found.gpus) == (cpu_millis, gpus)


def test_a_pod_that_ended_holds_nothing_and_one_being_deleted_holds_all():
    done, leaving = (
        pod("a", "n1", 8, phase="Succeeded"),
        pod("b", "n1", 8, deletionTimestamp="2026-11-29T00:00:00Z"),
    )
    assert is_terminal(done)
    assert pod_facts(done).requests == Resources()
    assert pod_facts(leaving).requests.gpus == 8
    assert pod_facts(leaving).terminating


def test_a_nominated_pod_counts_on_its_nominated_node():
    raw = pod("a", "", 2)
    raw["status"]["nominatedNodeName"] = "n3"
    assert pod_facts(raw).node == "n3"


def test_the_worst_container_is_reported():
    raw = pod("a", "n1", 1, owner="chat", revision="abcd1234")
    raw["status"]["containerStatuses"] = [
        {"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"reason": "OOMKilled"}}},
        {"restartCount": 1, "state": {"waiting": {"reason": "ContainerCreating"}}},
    ]  # fmt: skip
    facts = pod_facts(raw)
    assert (facts.trouble, facts.restarts, facts.owner, facts.revision) == (
        "OOMKilled",
        4,
        "chat",
        "abcd1234",
    )


def test_a_node_says_what_it_can_hold():
    facts = node_facts(node("n1", gpus=8, allocatable=7))
    assert facts.allocatable == Resources(7, 128_000, 1024 * GIB, 4 << 40)
    assert facts.ready
    assert not node_facts({"metadata": {"name": "x"}}).ready


def test_an_amd_node_uses_its_own_resource():
    raw = node(
        "m", labels={"nvidia.com/gpu.product": None, "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}
    )
    raw["status"]["allocatable"] = {"cpu": "1", "amd.com/gpu": "8"}
    facts = node_facts(raw)
    assert (facts.gpu_resource, facts.allocatable.gpus) == ("amd.com/gpu", 8)

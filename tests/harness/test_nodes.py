"""Simulated nodes claim what real ones would."""

import re

from harness import nodes


def labels(node):
    return node["metadata"]["labels"]


def by_name():
    return {node["metadata"]["name"]: node for node in nodes.demo_pool()}


def test_labels_of_a_plain_gpu_node():
    found = labels(nodes.gpu_node("n", "NVIDIA-H100-80GB-HBM3"))
    expected = {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "true",
        "kubernetes.io/hostname": "n",
    }
    assert expected.items() <= found.items()
    assert "nvidia.com/mig.strategy" not in found


def test_every_label_value_is_legal():
    for node in [*nodes.demo_pool(), *(nodes.gpu_node("n", product) for product in nodes.PRODUCTS)]:
        for value in labels(node).values():
            assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", value), value


def test_time_slicing_multiplies_what_is_allocatable_and_not_the_count():
    node = by_name()["l40s-shared"]
    assert labels(node)["nvidia.com/gpu.product"] == "NVIDIA-L40S-SHARED"
    assert labels(node)["nvidia.com/gpu.count"] == "4"
    assert labels(node)["nvidia.com/gpu.replicas"] == "4"
    assert labels(node)["nvidia.com/gpu.sharing-strategy"] == "time-slicing"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "16"


def test_mig_single_renames_the_product_and_counts_instances():
    node = by_name()["h100-mig"]
    assert labels(node)["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"
    assert labels(node)["nvidia.com/gpu.count"] == "56"
    assert labels(node)["nvidia.com/mig.strategy"] == "single"
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "56"


def test_mig_strategy_is_announced_without_mig_as_the_gpu_operator_does():
    found = labels(by_name()["h100-1"])
    assert found["nvidia.com/mig.strategy"] == "single"
    assert found["nvidia.com/mig.config"] == "all-disabled"
    assert found["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"


def test_degraded_node_says_eight_and_has_seven():
    node = by_name()["h100-degraded"]
    assert labels(node)["nvidia.com/gpu.count"] == "8"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "7"


def test_cordon_and_taints():
    found = by_name()
    assert found["h100-cordoned"]["spec"] == {"unschedulable": True}
    assert found["h100-reserved"]["spec"]["taints"] == [
        {"key": "team", "value": "other", "effect": "NoSchedule"}
    ]
    assert found["h100-0"]["spec"]["taints"] == [nodes.GPU_TAINT]


def test_foreign_pods_hold_three_gpus_of_one_node():
    pods = [each for each in nodes.demo_foreign_pods() if each["kind"] == "Pod"]
    held = [int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) for pod in pods]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"h100-1"}
    assert sum(held) == 3


def test_pool_is_even_over_zones_and_its_names_are_unique():
    pool = nodes.pool(6, "NVIDIA-H200", 4)
    assert len({node["metadata"]["name"] for node in pool}) == 6
    zones = [labels(node)["topology.kubernetes.io/zone"] for node in pool]
    assert sorted(zones) == ["zone-a", "zone-a", "zone-b", "zone-b", "zone-c", "zone-c"]
    assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in pool} == {"4"}

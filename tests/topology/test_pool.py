"""Which nodes count, how much of them, and what is said of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.api.names import LABEL_GPU_FAULT
from shardwright.api.pool import PoolSpec
from shardwright.catalog.gpus import load_products
from shardwright.topology.facts import node_facts, pod_facts
from shardwright.topology.pool import build_pool, pool_key, pool_of_shapes, shape_pool
from shardwright.topology.types import Exclusion
from topology.cluster_objects import A100_40, A6000, H100, L40S, V100, node, pod

PRODUCTS = load_products()


def pool(nodes, pods=(), ignore_owner=None, **spec):
    return build_pool(
        [node_facts(n) for n in nodes],
        [pod_facts(p) for p in pods],
        PRODUCTS,
        PoolSpec.model_validate({"maxGPUs": 16, **spec}),
        ignore_owner=ignore_owner,
    )


@pytest.mark.parametrize(
    ("raw", "spec", "reason", "named"),
    [
        (node("n", labels={"nvidia.com/gpu.product": None}), {}, Exclusion.NO_GPU_LABEL, "nvidia.com/gpu.product"),
        (node("n", "NVIDIA-X9000"), {}, Exclusion.UNKNOWN_PRODUCT, "nvidia.com/gpu.product=NVIDIA-X9000"),
        (node("n", "NVIDIA-X9000"), {"gpuProducts": ["NVIDIA-X9000"]}, Exclusion.UNKNOWN_PRODUCT, "pool.gpuProducts cannot add it"),
        (node("n", labels={"nvidia.com/gpu.sharing-strategy": "time-slicing"}), {}, Exclusion.SHARED, "time-slicing"),
        (node("n", labels={"nvidia.com/gpu.replicas": "4"}), {}, Exclusion.SHARED, "nvidia.com/gpu.replicas=4"),
        (node("n", H100 + "-SHARED"), {}, Exclusion.SHARED, "shared"),
        (node("n", H100 + "-MIG-1g.10gb"), {}, Exclusion.MIG, "nvidia.com/mig.config=all-disabled"),
        (node("n", labels={"nvidia.com/mig-1g.10gb.count": "7"}), {}, Exclusion.MIG, "MIG"),
        (node("n", cordoned=True), {}, Exclusion.CORDONED, "kubectl uncordon"),
        (node("n", ready=False), {}, Exclusion.NOT_READY, "Ready"),
        (node("n", labels={LABEL_GPU_FAULT: "20261130T180000Z"}), {}, Exclusion.GPU_FAULT, "20261130T180000Z"),
        (node("n", labels={LABEL_GPU_FAULT: ""}), {}, Exclusion.GPU_FAULT, f"kubectl label node n {LABEL_GPU_FAULT}-"),
        (node("n", taints=[{"key": "team", "value": "b", "effect": "NoSchedule"}]), {}, Exclusion.TAINTED, "team=b:NoSchedule"),
        (node("n"), {"nodeSelector": {"zone": "b"}}, Exclusion.SELECTOR, "zone=b"),
        (node("n"), {"gpuProducts": [L40S]}, Exclusion.PRODUCT_NOT_WANTED, "pool.gpuProducts"),
        (node("n", allocatable=0), {}, Exclusion.NO_GPUS, "device plugin"),
    ],
)  # fmt: skip
def test_an_excluded_node_says_which_label_or_field(raw, spec, reason, named):
    found = pool([raw], **spec)
    assert found.nodes == ()
    assert [e.reason for e in found.excluded] == [reason]
    assert named in found.excluded[0].message


@pytest.mark.parametrize(
    ("taints", "tolerations"),
    [
        ([{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}], []),
        (
            [{"key": "team", "value": "b", "effect": "NoSchedule"}],
            [{"key": "team", "operator": "Equal", "value": "b"}],
        ),
        ([{"key": "team", "value": "b", "effect": "NoExecute"}], [{"operator": "Exists"}]),
        ([{"key": "soft", "effect": "PreferNoSchedule"}], []),
    ],
)
def test_tolerated_taints_do_not_exclude(taints, tolerations):
    assert len(pool([node("n", taints=taints)], tolerations=tolerations).nodes) == 1


def test_a_toleration_of_another_effect_does_not_help():
    taint = [{"key": "team", "value": "b", "effect": "NoExecute"}]
    found = pool(
        [node("n", taints=taint)], tolerations=[{"key": "team", "operator": "Exists", "effect": "NoSchedule"}]
    )
    assert found.excluded[0].reason is Exclusion.TAINTED


def test_a_mig_strategy_alone_excludes_nothing():
    # The GPU operator sets it on nodes whose GPUs are whole, too.
    assert len(pool([node("n", labels={"nvidia.com/mig.strategy": "single"})]).nodes) == 1


def test_nodes_without_gpus_are_not_mentioned():
    cpu = node("c", allocatable=0, labels={"nvidia.com/gpu.product": None, "nvidia.com/gpu.count": None})
    assert pool([cpu]) == pool([])


def test_gpus_are_the_smaller_of_label_and_allocatable():
    found = pool([node("n", gpus=8, allocatable=7)]).nodes[0]
    assert (found.gpus, found.labelled_gpus, found.island.size, found.capacity.gpus) == (7, 8, 7, 7)


@pytest.mark.parametrize(
    ("product", "gpus", "bridges", "size", "linked"),
    [
        (H100, 8, "None", 8, True),
        (H100, 1, "None", 1, False),
        (A6000, 4, "None", 1, False),
        (A6000, 4, "Pairs", 1, False),  # a pair could be split by the device plugin
        (A6000, 2, "Pairs", 2, True),
        (A6000, 2, "None", 1, False),
        (L40S, 2, "Pairs", 1, False),
        (V100, 8, "None", 1, False),  # two quads, and which four GPUs come is not ours to say
        (V100, 4, "None", 4, True),
    ],
)
def test_an_island_counts_only_when_it_cannot_be_split(product, gpus, bridges, size, linked):
    found = pool([node("n", product, gpus)], interconnect={"bridges": bridges}).nodes[0]
    assert (found.island.size, found.island.linked) == (size, linked)


def test_two_gpus_left_of_four_are_not_a_bridged_pair():
    found = pool([node("n", A6000, 4, allocatable=2)], interconnect={"bridges": "Pairs"}).nodes[0]
    assert found.island.size == 1


@pytest.mark.parametrize(
    ("stated", "counted", "noted"),
    [
        ("81559", 81559, False),
        ("81000", 81000, False),
        ("40000", 40000, True),
        ("90000", 81559, True),
        (None, 81559, False),
    ],
)
def test_memory_comes_from_the_label_and_never_exceeds_the_product(stated, counted, noted):
    found = pool([node("n", labels={"nvidia.com/gpu.memory": stated})]).nodes[0]
    assert found.gpu_memory_mib == counted
    assert bool(found.memory_note) is noted


def test_free_counts_every_pod_that_holds_something():
    pods = [
        pod("foreign", "n1", 2),
        pod("leaving", "n1", 1, deletionTimestamp="2026-11-29T00:00:00Z"),
        pod("done", "n1", 4, phase="Failed"),
        pod("waiting", "", 4),
        pod("ours", "n1", 1, namespace="team-a", owner="chat"),
        pod("theirs", "n1", 1, namespace="team-b", owner="chat"),
    ]
    found = pool([node("n1")], pods).nodes[0]
    assert found.free.gpus == 8 - 2 - 1 - 1 - 1
    assert found.foreign[0] == ("work/foreign", 2)
    assert pool([node("n1")], pods, ignore_owner=("team-a", "chat")).nodes[0].free.gpus == 8 - 2 - 1 - 1


def test_a_product_may_be_asked_for_by_its_short_name():
    assert [n.product for n in pool([node("a"), node("b", L40S, 4)], gpuProducts=["L40S"]).nodes] == [L40S]


def test_an_alias_of_a_product_is_the_product():
    alias = next(a for a in PRODUCTS[H100].aliases)
    assert pool([node("n", alias)], gpuProducts=[H100]).nodes[0].product == H100


NODES = st.lists(
    st.builds(
        node,
        st.uuids().map(str),
        st.sampled_from([H100, A100_40, L40S, A6000]),
        st.sampled_from([1, 2, 4, 8]),
        ready=st.booleans(),
        cordoned=st.booleans(),
    ),
    max_size=6,
)


@given(NODES, st.randoms())
def test_permuting_nodes_and_pods_changes_nothing(nodes, random):
    pods = [pod(f"p{i}", n["metadata"]["name"], 1) for i, n in enumerate(nodes)]
    first = pool(nodes, pods)
    random.shuffle(nodes)
    random.shuffle(pods)
    assert pool(nodes, pods) == first


def test_the_fingerprint_follows_shapes_and_not_what_is_free():
    nodes = [node_facts(node("a")), node_facts(node("b", L40S, 4))]
    spec = PoolSpec(max_gpus=8)
    empty = shape_pool(nodes, PRODUCTS, spec)
    assert pool([node("a"), node("b", L40S, 4)], [pod("p", "a", 8)]).fingerprint == empty.fingerprint
    assert shape_pool(nodes[:1], PRODUCTS, spec).fingerprint != empty.fingerprint
    renamed = [node_facts(node("z")), node_facts(node("b", L40S, 4))]
    assert shape_pool(renamed, PRODUCTS, spec).fingerprint == empty.fingerprint


def test_the_pool_key_holds_what_selects_nodes():
    base = PoolSpec(max_gpus=8)
    assert pool_key(base) == pool_key(PoolSpec(max_gpus=16, priority_class_name="high"))
    for other in (
        {"nodeSelector": {"a": "b"}},
        {"gpuProducts": [H100]},
        {"interconnect": {"bridges": "Pairs"}},
    ):
        assert pool_key(PoolSpec.model_validate({"maxGPUs": 8, **other})) != pool_key(base)


def test_assumed_shapes_are_a_pool():
    found = pool_of_shapes([(H100, 8, 2), (A6000, 2, 1)], PRODUCTS, "Pairs")
    assert sorted((n.product, n.gpus, n.island.size) for n in found.nodes) == [
        (H100, 8, 8),
        (H100, 8, 8),
        (A6000, 2, 2),
    ]

"""Tensor ranks and links: what RequireNVLink refuses, for every model and product, on mixed nodes."""

import re
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.oracles import linked_gpus
from planner.plan_support import (
    A100_40,
    A6000,
    H100,
    L40S,
    LLAMA_8B,
    LLAMA_70B_FP8,
    QWEN_32B,
    products,
    request,
)
from shardwright.api.pool import PoolSpec
from shardwright.catalog.models import load_models
from shardwright.planner.choice import plan
from shardwright.planner.placement import nodes_of, place
from shardwright.planner.types import Plan
from shardwright.topology.facts import node_facts, pod_facts
from shardwright.topology.pool import build_pool
from topology.cluster_objects import node, pod

LABELS = sorted({product.label for product in products().values()})
V100, GB200 = "Tesla-V100-SXM2-32GB", "NVIDIA-GB200"
counts = st.tuples(
    st.sampled_from([1, 2, 2, 4, 4, 8, 16]),
    st.sampled_from([0, 0, 0, 1, 4, 8]),
    st.sampled_from([None, None, 70]),
)
"""GPUs by label, how many of them are not allocatable, and the memory that the label states."""


def raw_node(name, label, labelled, allocatable, memory_percent=None):
    """A node of any vendor; its GPUs have the product's memory, or that percentage of it."""
    product = products()[label]
    memory = str(product.memory_mib * memory_percent // 100) if memory_percent else None
    raw = node(name, label, labelled, allocatable=allocatable, labels={"nvidia.com/gpu.memory": memory})
    if product.vendor == "amd":
        labels, have = raw["metadata"]["labels"], raw["status"]["allocatable"]
        labels["amd.com/gpu.product-name"] = labels.pop("nvidia.com/gpu.product")
        have["amd.com/gpu"] = have.pop("nvidia.com/gpu")
    return raw


def pool_of(wanted, policy, bridges, pods=()):
    """(pool, linked GPUs by node) of (label, labelled, allocatable)."""
    named = [(f"n{index}", *facts) for index, facts in enumerate(wanted)]
    spec = PoolSpec.model_validate({"maxGPUs": 16, "interconnect": {"policy": policy, "bridges": bridges}})
    pool = build_pool(
        [node_facts(raw_node(*facts)) for facts in named], map(pod_facts, pods), products(), spec
    )
    links = {
        name: linked_gpus(products()[label], labelled, allocatable, bridges)
        for name, label, labelled, allocatable, *_ in named
    }
    return pool, links


def decide(model_id, wanted, policy, bridges, **spec):
    pool, links = pool_of(wanted, policy, bridges)
    asked = {"maxGPUs": 16, "interconnect": {"policy": policy, "bridges": bridges}}
    return plan(request(model_id, pool, pool=asked, **spec)), pool, links


def reason_of_two_ranks(decision):
    return next(c.reason.value for c in decision.candidates if str(c.parallelism) == "TP2")


def check(decision, pool, links, policy):
    """No tensor ranks of a linked plan beyond links, on any node that it may ever run on."""
    if not isinstance(decision, Plan):
        return False
    tensor, nodes = decision.parallelism.tensor, nodes_of(decision, pool)
    assert nodes
    if policy == "RequireNVLink" and tensor > 1:
        assert decision.within_island
        assert decision.product.interconnect.value not in {"none", "single_gpu"}
    if decision.within_island:
        assert all(links[name] >= tensor for name in nodes), (tensor, links)
        assert all(links[slot.node] >= tensor for slot in place(decision, pool, 9).slots)
    else:
        # Linked nodes come first, so that an unlinked plan has a reason: no node of its kind links so many.
        assert tensor > 1
    return tensor > 1


def selected_by_label(decision, wanted, bridges):
    """The pod's node affinity sees labels only: what they select must be linked, too, on whole nodes."""
    for label, labelled, allocatable, *_ in wanted:
        of_it = [w for w in wanted if w[0] == label]
        selected = label == decision.product.label and labelled >= decision.nodes_gpus
        selected = selected and (not decision.most_node_gpus or labelled <= decision.most_node_gpus)
        if selected and all(w[1] == w[2] for w in of_it):
            assert (
                linked_gpus(products()[label], labelled, allocatable, bridges) >= decision.parallelism.tensor
            )


@cache
def legal_somewhere():
    return sorted(name for name, model in load_models().items() if not model.unpredicted)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(legal_somewhere()),
    st.sampled_from(LABELS).flatmap(
        lambda label: st.lists(
            st.tuples(st.sampled_from([label, label, label, *LABELS]), counts), min_size=1, max_size=4
        )
    ),
    st.sampled_from(["RequireNVLink", "RequireNVLink", "PreferNVLink", "Any"]),
    st.sampled_from(["None", "Pairs"]),
    st.sampled_from([None, 2, 2, 4, 8]),
)
def test_ranks_stay_on_links_for_every_model_and_product(model, wanted, policy, bridges, tensor):
    wanted = [(label, all_, max(1, all_ - missing), memory) for label, (all_, missing, memory) in wanted]
    pin = {"parallelism": {"tensor": tensor, "pipeline": 1}} if tensor else {}
    decision, pool, links = decide(model, wanted, policy, bridges, **pin)
    if check(decision, pool, links, policy) and decision.within_island:
        selected_by_label(decision, wanted, bridges)


@pytest.mark.parametrize("bridges", ["None", "Pairs"])
@pytest.mark.parametrize("label", LABELS)
def test_two_ranks_of_every_product_on_nodes_of_two_and_four(label, bridges):
    """Every product with a model that two of its GPUs hold, pinned to two ranks."""
    small = "Qwen/Qwen2.5-0.5B-Instruct"  # runs in 16 bit from compute capability 8.0 on
    model = (
        small if (products()[label].compute_capability or (9, 0)) >= (8, 0) else "meta-llama/Llama-2-7b-hf"
    )
    asked = {"parallelism": {"tensor": 2, "pipeline": 1}, "model": {"maxContextTokens": 2048}}
    asked["workload"] = {"inputTokens": {"p50": 100, "p95": 200}, "outputTokens": {"p50": 50, "p95": 100}}
    wanted = [(label, 2, 2), (label, 4, 4)]
    version = {} if products()[label].compute_capability != (7, 0) else {"version": "0.19.0"}
    decision, pool, links = decide(model, wanted, "RequireNVLink", bridges, **asked, **version)
    linked = [name for name, size in links.items() if size >= 2]
    assert isinstance(decision, Plan) is bool(linked)
    if linked:
        assert check(decision, pool, links, "RequireNVLink")
        assert list(nodes_of(decision, pool)) == linked
    else:
        assert reason_of_two_ranks(decision) == "BeyondIsland"
        free, pool, links = decide(model, wanted, "Any", bridges, **asked, **version)
        assert isinstance(free, Plan)
        assert not free.within_island


def test_pairs_count_on_nodes_of_two_only_and_a_plan_stays_there():
    wanted = [(A6000, 2, 2), (A6000, 4, 4), (A6000, 4, 2), (A6000, 2, 1)]
    decision, pool, _ = decide(QWEN_32B, wanted, "RequireNVLink", "Pairs")
    assert (decision.parallelism.tensor, decision.within_island) == (2, True)
    assert nodes_of(decision, pool) == ("n0",)
    assert (decision.nodes_gpus, decision.most_node_gpus) == (2, 2)
    # Full for now: the free GPUs of the larger nodes are no substitute.
    pool, _ = pool_of(wanted, "RequireNVLink", "Pairs", [pod("other", "n0", 1)])
    assert place(decision, pool, 1).placed == 0
    # The bridge is gone: a plan in force does not count on it any more.
    pool, _ = pool_of(wanted, "RequireNVLink", "None")
    assert nodes_of(decision, pool) == ()


@pytest.mark.parametrize(
    ("label", "model", "wanted", "on"),
    [
        (GB200, LLAMA_70B_FP8, [(8, 4), (8, 8)], ("n0",)),  # a rack's node of four; eight are two trays
        (V100, "meta-llama/Llama-2-13b-hf", [(4, 4), (8, 8), (8, 4)], ("n0",)),  # eight are two quads
        (H100, QWEN_32B, [(4, 4), (8, 6), (16, 16)], ("n0", "n1")),
        (A100_40, "Qwen/Qwen3-14B", [(16, 16), (2, 2), (1, 1)], ("n0", "n1")),
        (L40S, QWEN_32B, [(2, 2), (4, 4), (8, 8)], ()),
    ],
)
def test_islands_smaller_than_the_node_are_not_counted_on(label, model, wanted, on):
    nodes = [(label, *facts) for facts in wanted]
    version = {"version": "0.19.0"} if label == V100 else {}
    decision, pool, links = decide(
        model, nodes, "RequireNVLink", "None", parallelism={"tensor": 2}, **version
    )
    assert isinstance(decision, Plan) is bool(on)
    if on:
        assert check(decision, pool, links, "RequireNVLink")
        assert nodes_of(decision, pool) == on
    else:
        assert reason_of_two_ranks(decision) == "BeyondIsland"


def test_a_larger_node_that_loses_gpus_is_not_taken_by_a_plan_whose_pods_cannot_go_there():
    decision, _, _ = decide(
        LLAMA_70B_FP8, [(GB200, 4, 4), (GB200, 8, 8)], "RequireNVLink", "None", parallelism={"tensor": 2}
    )
    assert decision.most_node_gpus == 4
    pool, links = pool_of([(GB200, 4, 4), (GB200, 8, 4)], "RequireNVLink", "None")
    assert links == {"n0": 4, "n1": 4}
    assert nodes_of(decision, pool) == ("n0",)  # the node affinity reads the label, which still says 8


def test_linked_gpus_with_less_memory_are_counted_with_their_own():
    wanted = [(A6000, 2, 2, 70), (A6000, 4, 4)]
    decision, pool, links = decide(
        LLAMA_8B, wanted, "RequireNVLink", "Pairs", parallelism={"tensor": 2, "pipeline": 1}
    )
    assert check(decision, pool, links, "RequireNVLink")
    assert decision.estimate.visible_gib < products()[A6000].memory_mib * 0.75 / 1024
    decision, _, _ = decide(
        QWEN_32B, wanted, "RequireNVLink", "Pairs", parallelism={"tensor": 2, "pipeline": 1}
    )
    assert not isinstance(decision, Plan)  # only GPUs without a link are large enough


LARGE = (
    "deepseek-ai/DeepSeek-V3",
    "meta-llama/Meta-Llama-3.1-405B-Instruct",
    "meta-llama/Llama-3.3-70B-Instruct",
)
GROUP = re.compile(r"it takes a group of (\d+) nodes with (\d+) \S+ each")


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(LARGE),
    st.sampled_from([H100, A100_40, A6000, GB200, L40S]).flatmap(
        lambda label: st.lists(st.tuples(st.just(label), counts), min_size=1, max_size=4)
    ),
    st.sampled_from(["RequireNVLink", "RequireNVLink", "PreferNVLink", "Any"]),
    st.sampled_from(["None", "Pairs"]),
    st.sampled_from([None, 2, 4, 8]),
)
def test_a_group_is_named_only_of_nodes_that_link_its_ranks(model, wanted, policy, bridges, tensor):
    wanted = [(label, all_, max(1, all_ - missing), memory) for label, (all_, missing, memory) in wanted]
    pin = {"parallelism": {"tensor": tensor}} if tensor else {}
    decision, pool, links = decide(model, wanted, policy, bridges, **pin)
    for candidate in decision.candidates:
        if candidate.reason.value != "NeedsMultiNode":
            continue
        nodes, gpus = map(int, GROUP.match(candidate.message).groups())
        split = candidate.parallelism
        assert split.gpus <= nodes * gpus
        assert split.gpus > max(n.gpus for n in pool.nodes), "one node has as many"
        linked = tensor is None or policy == "RequireNVLink"
        such = [n for n in pool.nodes if n.gpus >= gpus and (not linked or links[n.name] >= split.tensor)]
        assert such, "no node of the pool is such a node"
        told = re.search(r"the pool has (\d+) such node", candidate.message)
        assert int(told[1] if told else nodes) <= len(such)
        # What it is said to hold is what a node of the same GPUs would hold that is large enough.
        memory = max(n.gpu_memory_mib for n in such)
        large = raw_node("n", wanted[0][0], split.gpus, split.gpus)
        large["metadata"]["labels"]["nvidia.com/gpu.memory"] = str(memory)
        free = {"maxGPUs": 4096, "interconnect": {"policy": "Any"}}
        pool_of_one = build_pool([node_facts(large)], [], products(), PoolSpec.model_validate(free))
        pins = {"tensor": split.tensor, "pipeline": split.pipeline}
        roomy = request(model, pool_of_one, pool=free, parallelism=pins)
        assert isinstance(plan(roomy), Plan), plan(roomy).message

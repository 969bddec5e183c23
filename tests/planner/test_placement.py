"""Where replicas have room now, who holds the rest, and that equal questions are answered once."""

from planner.plan_support import A6000, H100, LLAMA_8B, LLAMA_70B, decide, products, shapes, written
from shardwright.api.pool import PoolSpec
from shardwright.planner.placement import nodes_of, place
from shardwright.topology.facts import node_facts, pod_facts
from shardwright.topology.pool import build_pool
from topology.cluster_objects import node, pod

SPEC = PoolSpec(max_gpus=64)


def pool(nodes, pods=()):
    return build_pool([node_facts(n) for n in nodes], [pod_facts(p) for p in pods], products(), SPEC)


def test_replicas_go_to_the_fullest_node_and_stranded_gpus_are_counted():
    found = pool([node("n1"), node("n2"), node("n3")], [pod("a", "n1", 3), pod("b", "n2", 1)])
    plan = decide(LLAMA_70B, found, pool={"maxGPUs": 64})
    assert plan.parallelism.tensor == 4
    placement = place(plan, found, 4)
    assert sorted(s.node for s in placement.slots) == ["n1", "n2", "n3", "n3"]
    assert placement.stranded_gpus == 1 + 3
    assert (placement.obstacle, placement.holders) == ("", ())


def test_who_holds_the_room_is_named():
    found = pool([node("n1")], [pod("train", "n1", 5), pod("book", "n1", 1)])
    plan = decide(LLAMA_70B, found)
    placement = place(plan, found, 1)
    assert placement.placed == 0
    assert (
        "needs 4 free GPUs on one node; of 1 nodes of this kind the one with most is n1 with 2"
        in placement.obstacle
    )
    assert placement.holders == (("work/train", 5), ("work/book", 1))
    told = written(plan, placement)
    assert "Room now: 0 of 1 replicas" in told
    assert "work/train (5), work/book (1)" in told


def test_missing_cpu_is_named_when_gpus_are_free():
    found = pool([node("n1", host={"cpu": "8"})], [pod("a", "n1", 1), pod("b", "n1", 0)])
    placement = place(decide(LLAMA_8B, found), found, 1)
    assert "more CPUs" in placement.obstacle


def test_a_plan_runs_only_on_nodes_of_its_kind():
    found = pool([node("n1"), node("n2", A6000, 4), node("n3", gpus=2), node("n4", gpus=8, allocatable=3)])
    plan = decide(LLAMA_70B, found, pool={"gpuProducts": [H100]}, parallelism={"tensor": 4, "pipeline": 1})
    assert nodes_of(plan, found) == ("n1",)


def test_bridged_pairs_stay_off_larger_nodes():
    pairs = {"interconnect": {"bridges": "Pairs"}}
    spec = PoolSpec.model_validate({"maxGPUs": 16, **pairs})
    raw = [node("two", A6000, 2), node("four", A6000, 4)]
    found = build_pool([node_facts(n) for n in raw], [], products(), spec)
    plan = decide("Qwen/Qwen3-32B", found, pool=pairs, parallelism={"tensor": 2, "pipeline": 1})
    assert (plan.within_island, plan.most_node_gpus) == (True, 2)
    assert nodes_of(plan, found) == ("two",)


def test_the_digest_follows_what_a_decision_depends_on():
    nodes = shapes((H100, 8))
    base = decide(LLAMA_8B, nodes)
    assert decide(LLAMA_8B, nodes, drain={"maxSeconds": 10}).inputs_digest == base.inputs_digest
    others = [
        decide(LLAMA_8B, nodes, model={"maxContextTokens": 8192}),
        decide(LLAMA_8B, nodes, workload={"concurrency": 2}),
        decide(LLAMA_8B, nodes, version="0.20.0"),
        decide(LLAMA_8B, shapes((H100, 8, 2))),
        decide(LLAMA_70B, nodes),
    ]
    assert len({d.inputs_digest for d in [base, *others]}) == 6

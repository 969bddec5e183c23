"""What holds for every plan, whatever the model, the pool and the spec."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.oracles import legal, linked_gpus, needed_tokens
from planner.plan_support import (
    A100_40,
    A100_80,
    A6000,
    H100,
    H200,
    L4,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_32B,
    QWEN_MOE_FP8,
    products,
    request,
)
from shardwright.api.pool import PoolSpec
from shardwright.planner.choice import plan
from shardwright.planner.placement import place
from shardwright.planner.types import GIB, Plan
from shardwright.topology.facts import node_facts
from shardwright.topology.pool import build_pool
from topology.cluster_objects import node

MODELS = (
    LLAMA_8B, LLAMA_70B, LLAMA_70B_FP8, QWEN_32B, QWEN_MOE_FP8, "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "Qwen/Qwen3-8B-AWQ", "google/gemma-3-27b-it",
)  # fmt: skip
PRODUCTS = (H100, H200, A100_40, A100_80, L40S, A6000, L4)
OFTEN = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

GI = 1 << 30
HOSTS = ((128, 1024, 4096), (128, 1024, 4096), (64, 256, 600), (6, 512, 4096), (64, 20, 2000), (64, 256, 60))
"""CPUs, GiB of memory, GiB of disk: some are too small for the pods that their GPUs would hold."""

raw_nodes = st.lists(
    st.tuples(
        st.sampled_from(PRODUCTS), st.sampled_from([1, 2, 4, 8]), st.integers(0, 1),
        st.sampled_from(HOSTS), st.sampled_from(["580", "580", "580", "535", None]),
    ),
    min_size=1, max_size=4,
)  # fmt: skip
specs = st.fixed_dictionaries(
    {
        "model": st.fixed_dictionaries({}, optional={
            "maxContextTokens": st.sampled_from([4096, 16384, 32768, 40960]),
            "allowedKVCacheDtypes": st.just(["Auto", "FP8"]),
        }),
        "pool": st.fixed_dictionaries(
            {"maxGPUs": st.sampled_from([1, 2, 4, 8, 16])},
            optional={"interconnect": st.fixed_dictionaries({
                "policy": st.sampled_from(["RequireNVLink", "PreferNVLink", "Any"]),
                "bridges": st.sampled_from(["None", "Pairs"]),
            })},
        ),
    },
    optional={
        "workload": st.fixed_dictionaries({"concurrency": st.sampled_from([1, 8, 64, 300])}),
        "scaling": st.fixed_dictionaries({"minReplicas": st.integers(1, 3)}),
        "parallelism": st.fixed_dictionaries({}, optional={
            "tensor": st.sampled_from([1, 2, 3, 4, 8]), "pipeline": st.sampled_from([1, 2]),
            "expert": st.sampled_from(["Auto", "Enabled", "Disabled"]),
        }),
    },
)  # fmt: skip


def nodes_of(shapes):
    return [
        node_facts(
            node(
                f"n{index}", product, gpus, allocatable=gpus - missing,
                host={"cpu": str(host[0]), "memory": f"{host[1]}Gi", "ephemeral-storage": f"{host[2]}Gi"},
                labels={"nvidia.com/cuda.driver-version.major": driver},
            )
        )
        for index, (product, gpus, missing, host, driver) in enumerate(shapes)
    ]  # fmt: skip


def ask(model, nodes, spec, **more):
    spec = {**spec, "pool": dict(spec["pool"])}
    pool = build_pool(nodes, [], products(), PoolSpec.model_validate(spec["pool"]))
    return request(model, pool, **more, **spec)


@OFTEN
@given(st.sampled_from(MODELS), raw_nodes, specs)
def test_a_plan_stays_within_memory_island_node_and_budget(model, shapes, spec):
    asked = ask(model, nodes_of(shapes), spec)
    decision = plan(asked)
    if not isinstance(decision, Plan):
        assert decision.message
        return
    bill, limits = decision.estimate, decision.limits
    budget = bill.visible_gib * limits.gpu_memory_utilization_percent / 100
    spent = bill.weights_gib_per_gpu + bill.activation_gib + bill.non_torch_gib + bill.cuda_graph_gib
    assert spent + bill.kv_cache_gib_per_gpu <= budget + 1e-6
    promised = bill.promised_kv_tokens * bill.kv_bytes_per_token_per_gpu / GIB
    hybrid = decision.model.architecture.attention.value == "SlidingHybrid"
    assert hybrid or promised <= bill.kv_cache_gib_per_gpu - bill.margin_gib + 0.01
    assert bill.largest_model_len >= limits.max_model_len
    assert hybrid or bill.promised_kv_tokens >= decision.required_kv_tokens
    assert limits.max_num_seqs * decision.parallelism.data >= decision.planned_concurrency
    split = decision.parallelism
    assert legal(decision.model.architecture, split.tensor, split.expert, split.data)
    least = needed_tokens(asked, decision.model.architecture, split)
    assert decision.context_clamped_from is not None or decision.required_kv_tokens >= least
    assert decision.gpus_per_replica * decision.replicas <= asked.spec.pool.max_gpus
    placement = place(decision, asked.pool, 1)
    assert placement.slots, "a plan fits an empty pool"
    product, labelled, missing, (cpus, memory, disk), _ = shapes[int(placement.slots[0].node[1:])]
    pod, interconnect = decision.pod_resources, asked.spec.pool.interconnect
    assert pod.gpus == decision.gpus_per_replica <= labelled - missing
    assert pod.cpu_millis <= cpus * 1000
    assert pod.memory_bytes <= memory * GI
    assert pod.ephemeral_bytes <= disk * GI
    bridges = (interconnect and interconnect.bridges) or "None"
    if decision.within_island:
        linked = linked_gpus(products()[product], labelled, labelled - missing, bridges)
        assert decision.parallelism.ranks <= linked
    else:
        assert interconnect is None or interconnect.policy != "RequireNVLink"


@OFTEN
@given(st.sampled_from(MODELS), raw_nodes, specs, st.randoms())
def test_permuting_nodes_changes_nothing(model, shapes, spec, rng):
    nodes = nodes_of(shapes)
    first = plan(ask(model, nodes, spec))
    rng.shuffle(nodes)
    assert plan(ask(model, nodes, spec)) == first


@OFTEN
@given(st.sampled_from(MODELS), raw_nodes, raw_nodes, specs)
def test_adding_nodes_never_makes_a_fitting_service_unfit(model, shapes, more, spec):
    before = plan(ask(model, nodes_of(shapes), spec))
    if isinstance(before, Plan):
        after = plan(ask(model, nodes_of([*shapes, *more]), spec))
        assert isinstance(after, Plan)
        asked = "maxContextTokens" in spec["model"]
        assert not asked or before.context_clamped_from is not None or after.context_clamped_from is None

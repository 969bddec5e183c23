"""What holds for every plan, whatever the model, the pool and the spec."""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from shardwright.planner import placement
from shardwright.planner.choice import plan
from shardwright.planner.explain import text
from shardwright.planner.legality import format_problem, illegality, image_problem
from shardwright.planner.placement import claim, place
from shardwright.planner.ranking import COST_TIE, UNVALIDATED_GAIN
from shardwright.planner.types import GIB, Plan
from shardwright.topology.facts import node_facts
from shardwright.topology.ledger import Ledger
from shardwright.topology.pool import build_pool
from topology.cluster_objects import node

MODELS = (
    LLAMA_8B, LLAMA_70B, LLAMA_70B_FP8, QWEN_32B, QWEN_MOE_FP8, "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "Qwen/Qwen3-8B-AWQ", "google/gemma-3-27b-it",
)  # fmt: skip
PRODUCTS = (H100, H200, A100_40, A100_80, L40S, A6000, L4)
OFTEN = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

raw_nodes = st.lists(
    st.tuples(
        st.sampled_from(PRODUCTS), st.sampled_from([1, 2, 4, 8]), st.integers(0, 1),
        st.sampled_from(["64Gi", "256Gi", "1Ti"]), st.sampled_from(["580", "535", None]),
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
        "workload": st.one_of(
            st.fixed_dictionaries({"concurrency": st.sampled_from([1, 8, 64, 300])}),
            st.fixed_dictionaries({"requestsPerMinute": st.sampled_from([5, 120, 1000, 9000])}),
        ),
        "slo": st.fixed_dictionaries({}, optional={
            "ttft": st.fixed_dictionaries({
                "percentile": st.sampled_from([50, 95, 99]), "milliseconds": st.sampled_from([150, 600, 3000]),
            }),
            "tpot": st.fixed_dictionaries({
                "percentile": st.sampled_from([50, 95]), "milliseconds": st.sampled_from([8, 20, 60]),
            }),
            "optimizeFor": st.sampled_from(["Cost", "Latency"]),
        }),
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
                f"n{index}", product, gpus, allocatable=gpus - missing, host={"memory": memory},
                labels={"nvidia.com/cuda.driver-version.major": driver},
            )
        )
        for index, (product, gpus, missing, memory, driver) in enumerate(shapes)
    ]  # fmt: skip


def ask(model, nodes, spec):
    spec = {**spec, "pool": dict(spec["pool"])}
    pool = build_pool(nodes, [], products(), PoolSpec.model_validate(spec["pool"]))
    return request(model, pool, **spec)


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
    assert limits.max_num_seqs >= decision.planned_concurrency
    assert not illegality(decision.model.architecture, decision.parallelism)
    assert decision.gpus_per_replica * decision.replicas <= asked.spec.pool.max_gpus
    placement = place(decision, asked.pool, 1)
    assert placement.slots, "a plan fits an empty pool"
    where = next(n for n in asked.pool.nodes if n.name == placement.slots[0].node)
    assert decision.pod_resources.fits_in(where.capacity)
    if decision.within_island:
        assert decision.parallelism.tensor <= where.island.size
    else:
        interconnect = asked.spec.pool.interconnect
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


FITS = {"Chosen", "LargerThanNeeded", "CostsMore", "RankedLower", "Unvalidated", "Slower"}


def alone(asked, candidate):
    """What becomes of one arrangement when it is the only one asked for."""
    split = candidate.parallelism
    spec = asked.spec.model_copy(
        update={
            "parallelism": asked.spec.model_validate(
                {
                    "model": {"id": "x"}, "pool": {"maxGPUs": 1},
                    "parallelism": {
                        "tensor": split.tensor, "pipeline": split.pipeline, "expert": "Enabled" if split.expert else "Disabled",
                    },
                }
            ).parallelism,
        }
    )  # fmt: skip
    nodes = tuple(n for n in asked.pool.nodes if n.product == candidate.product)
    pool = type(asked.pool)(nodes=nodes, excluded=(), fingerprint="alone")
    models = tuple(m for m in asked.models if m.model_id == candidate.model_id)
    decision = plan(
        type(asked)(spec=spec, models=models, pool=pool, engine=asked.engine, products=asked.products)
    )
    same = [c for c in decision.candidates if c.parallelism == split]
    return decision, same[0] if same else None


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(MODELS), raw_nodes, specs)
def test_each_candidate_is_named_once_and_its_reason_is_true_alone(model, shapes, spec):
    asked = ask(model, nodes_of(shapes), spec)
    decision = plan(asked)
    names = [c.arrangement for c in decision.candidates]
    assert len(names) == len(set(names))
    written = text(decision)
    for candidate in decision.candidates:
        assert written.count(f"  {candidate.arrangement}: {candidate.reason.value}: ") == 1
        check(asked, decision, candidate)
    assert sum(c.reason.value == "Chosen" for c in decision.candidates) == isinstance(decision, Plan)


def check(asked, decision, candidate):
    """Recompute one reason alone."""
    reason, split = candidate.reason.value, candidate.parallelism
    architecture = next(m.architecture for m in asked.models if m.model_id == candidate.model_id)
    gpu = asked.products[candidate.product]
    if reason == "IllegalTensorParallelism":
        assert illegality(architecture, split)
    elif reason == "NumberFormatUnsupported":
        assert format_problem(architecture, gpu) or image_problem(asked.engine, gpu)
    elif reason == "NotPinned":
        pins = asked.spec.parallelism
        assert pins.tensor not in {None, split.tensor} or pins.expert == "Enabled"
    elif reason == "NeedsMultiNode":
        usable = [n for n in asked.pool.nodes if (n.driver_major or 580) >= 580]
        largest = max(n.gpus for n in usable if n.product == candidate.product)
        assert split.gpus > largest
    else:
        again, same = alone(asked, candidate)
        if reason in FITS:
            assert isinstance(again, Plan)
            assert again.parallelism == split
            better(asked, decision, candidate, again)
        elif reason == "BeyondIsland" and isinstance(again, Plan):
            assert not again.within_island  # it fits, over PCIe
        elif reason == "KVTooSmall" and isinstance(again, Plan):
            assert again.context_clamped_from is not None
            assert again.limits.max_model_len < asked.spec.model.max_context_tokens
        elif same is not None:
            assert same.reason is candidate.reason or {reason, same.reason.value} == {
                "BeyondNode",
                "NeedsMultiNode",
            }
        else:
            assert not isinstance(again, Plan)


def better(asked, decision, candidate, again):
    """Whatever fits and lost, lost to something at least as good by the rule that it names."""
    price = asked.products[candidate.product].price_per_gpu_hour
    winner = decision.product.price_per_gpu_hour
    ours, theirs = candidate.parallelism.gpus, decision.parallelism.gpus
    own, other = ours * again.replicas, theirs * decision.replicas
    costs = (own * price, other * winner) if price and winner else (own, other)
    dearer = costs[0] > costs[1]
    match candidate.reason.value:
        case "CostsMore":
            assert dearer
        case "Unvalidated":
            enough = costs[0] * UNVALIDATED_GAIN * COST_TIE < costs[1]
            assert candidate.parallelism.pipeline > 1 or not enough
        case "LargerThanNeeded" if theirs > 1:
            fewer = [
                c
                for c in decision.candidates
                if (c.product, c.model_id) == (candidate.product, candidate.model_id)
                and c.parallelism.gpus < ours
            ]
            assert any(isinstance(alone(asked, c)[0], Plan) for c in fewer)


def test_a_thousand_services_planned_at_once_never_share_a_gpu():
    rng = random.Random(7)
    raw = [node(f"n{i:03}", rng.choice(PRODUCTS), rng.choice([1, 2, 4, 8, 8, 8])) for i in range(200)]
    nodes = [node_facts(n) for n in raw]
    book, decisions = Ledger(), {}
    for one in nodes:
        book.set_node(one)
    pools, plans = {}, {}
    variants = [
        (m, {"model": {"maxContextTokens": c}, "pool": {"maxGPUs": g}, "scaling": {"minReplicas": r}})
        for m in MODELS for c in (4096, 16384) for g in (8, 16) for r in (1, 2)
    ]  # fmt: skip
    for index in range(1000):
        variant = rng.randrange(len(variants))
        model, spec = variants[variant]
        key = spec["pool"]["maxGPUs"]
        if key not in pools:
            pools[key] = build_pool(nodes, [], products(), PoolSpec.model_validate(spec["pool"]))
        if variant not in decisions:
            decisions[variant] = plan(request(model, pools[key], **spec))
        decision = decisions[variant]
        if isinstance(decision, Plan):
            plans[index] = decision
            wanted = claim(
                decision, ("team", f"s{index}"), "r1", placement.nodes_of(decision, pools[key]),
                replicas=decision.replicas, priority=rng.randrange(3), created_s=float(index),
            )  # fmt: skip
            book.submit(wanted)
    book.settle(0.0)
    assert len(plans) > 500
    shapes = {n.name: n for n in pools[16].nodes}
    used: dict[str, list[int]] = {}
    placed = 0
    for index, decision in plans.items():
        allocation = book.allocation(("team", f"s{index}"), "r1")
        assert allocation.granted * decision.gpus_per_replica <= 16
        for slot in allocation.slots:
            placed += 1
            where = shapes[slot.node]
            assert where.product == decision.product.label
            assert not decision.within_island or where.island.size >= decision.parallelism.tensor
            totals = used.setdefault(slot.node, [0, 0, 0, 0])
            for dimension, amount in enumerate(slot.resources):
                totals[dimension] += amount
    assert placed > 50
    for name, totals in used.items():
        assert all(total <= have for total, have in zip(totals, shapes[name].capacity, strict=True)), name

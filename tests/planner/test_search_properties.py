"""The search leaves nothing better behind: no rejected arrangement dominates, and pruning changes no choice."""

from hypothesis import HealthCheck, given, settings

from planner.oracles import linked_gpus
from planner.plan_support import A6000, H100, H200, LLAMA_70B, products
from planner.worlds import GPT_OSS, ROOMY, ask, cases, judged, nodes_of
from shardwright.planner.choice import plan
from shardwright.planner.placement import place
from shardwright.planner.question import UNVALIDATED_GAIN
from shardwright.planner.types import Plan

LOADS = {"requestsPerMinute", "concurrency"}
STEPS_BACK = "it fits, but powers of two rank first"
NOT_MEANT = "it fits, but stages are for what no NVLink island holds"
QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


def counted(candidate):
    """The price of all replicas, 1.3 times for what no row covers."""
    split, gaps = candidate.parallelism, candidate.speed.gaps
    bold = split.pipeline > 1 or split.data > 1 or split.expert or candidate.kv_cache_dtype == "fp8"
    unmeasured = bold or gaps or not candidate.estimate.covered
    price = products()[candidate.product].price_per_gpu_hour
    return price * split.gpus * candidate.replicas * (UNVALIDATED_GAIN if unmeasured else 1.0)


def merits(candidate):
    """What an arrangement is better by, smaller first.

    The price, the targets of the profile, the failure domain, what in it nothing measured, and the slack.
    """
    speed, split = candidate.speed, candidate.parallelism
    return (
        round(counted(candidate), 6), len(speed.missed), split.gpus, candidate.kv_cache_dtype == "fp8",
        split.expert, split.pipeline, -round(speed.most * candidate.replicas, 5),
    )  # fmt: skip


def an_island_holds(asked, decision, stages):
    """Whether one GPU or GPUs that are linked for certain have memory left for the work that stages would do."""
    bridges = asked.spec.pool.interconnect.bridges
    linked = max(
        linked_gpus(products()[n.product], n.labelled_gpus, n.gpus, bridges)
        for n in asked.pool.nodes
        if n.product == stages.product
    )
    return any(
        c.parallelism.pipeline == 1
        and c.parallelism.ranks <= linked
        and c.estimate is not None
        and c.estimate.promised_kv_tokens > 0
        for c in decision.candidates
        if (c.model_id, c.product) == (stages.model_id, stages.product)
    )


def nothing_dominates(asked, decision):
    """No rejected arrangement that the pool holds, with the links that are wanted, is better in all.

    Links count against an arrangement under PreferNVLink alone. Stages are not meant for what an island holds.
    """
    prefers = (asked.spec.pool.interconnect.policy or "PreferNVLink") == "PreferNVLink"
    fits = [c for c in decision.candidates if c.replicas and c.speed is not None]
    [chosen] = [c for c in fits if c.reason.value == "Chosen"]
    ours = merits(chosen)
    for other in fits:
        if other.message.startswith(NOT_MEANT):
            assert an_island_holds(asked, decision, other), other.arrangement
            continue
        passed_over = other.reason.value == "PoolTooSmall" or other.message.startswith(STEPS_BACK)
        passed_over = passed_over or (other.reason.value == "BeyondIsland" and prefers)
        if other is not chosen and not passed_over:
            theirs = merits(other)
            assert theirs == ours or any(t > o for t, o in zip(theirs, ours, strict=True)), other.message


def told(decision):
    """What is decided."""
    if not isinstance(decision, Plan):
        return decision.reason
    return decision.model.model_id, decision.summary, decision.limits, decision.spare_replicas


@settings(max_examples=200, suppress_health_check=QUIET)
@given(case=cases)
def test_the_pruned_search_decides_as_the_whole_one_and_nothing_dominates(mix, case):
    asked = case.asked()
    found, whole = plan(asked), plan(asked, exhaustive=True)
    assert told(found) == told(whole)
    if not isinstance(whole, Plan):
        mix.idles()
        return
    mix.judges(whole)
    by_price = case.spec["slo"].get("optimizeFor") != "Latency" and case.spec["workload"].keys() & LOADS
    if by_price and "availability" not in case.spec:
        nothing_dominates(asked, whole)


def with_policy(case, policy):
    """The case with another interconnect policy."""
    interconnect = {**case.spec["pool"]["interconnect"], "policy": policy}
    return case.stating(pool={**case.spec["pool"], "interconnect": interconnect})


@settings(max_examples=120, suppress_health_check=QUIET)
@given(case=cases)
def test_a_policy_that_permits_more_never_refuses_more_and_any_never_costs_more(mix, case):
    """RequireNVLink, PreferNVLink, Any: each permits what the one before it does.

    PreferNVLink takes ranks over PCIe only when nothing else will do, so that it may pay more than Any, never less.
    Without a load or a target nothing is known that would pay for more, and no price decides.
    """
    required, preferred, free = (
        plan(with_policy(case, policy).asked()) for policy in ("RequireNVLink", "PreferNVLink", "Any")
    )
    assert isinstance(preferred, Plan) or not isinstance(required, Plan), preferred.message
    assert isinstance(free, Plan) or not isinstance(preferred, Plan), free.message
    stated = case.spec["slo"].keys() - {"optimizeFor"} or case.spec["workload"].keys() & LOADS
    by_price = case.spec["slo"].get("optimizeFor") != "Latency" and stated and "availability" not in case.spec
    if not isinstance(preferred, Plan) or not by_price:
        mix.idles()
        return
    mix.judges(free)
    if preferred.speed is not None and all_held(case, preferred):
        assert judged(free) <= judged(preferred) + 1e-6, (preferred.summary, free.summary)
    if isinstance(required, Plan) and required.speed is not None and all_held(case, required):
        assert judged(free) <= judged(required) + 1e-6, (required.summary, free.summary)


def all_held(case, decision):
    """Whether the pool holds all replicas, if all its nodes are free."""
    return place(decision, case.asked().pool, decision.replicas).placed == decision.replicas


def test_stages_are_tried_beside_ranks_over_pcie_under_any():
    """70B with long prompts on A6000: TP4 over PCIe holds 8 requests and more, and takes 20 GPUs where PP7 takes 14."""
    spec = {
        "workload": {
            "requestsPerMinute": 53, "inputTokens": {"p50": 4000, "p95": 8000}, "outputTokens": {"p50": 200, "p95": 400},
        },
        "slo": {"tpot": {"percentile": 95, "milliseconds": 600}, "ttft": {"percentile": 95, "milliseconds": 30_000}},
        "pool": {"maxGPUs": 16, "interconnect": {"policy": "Any"}},
    }  # fmt: skip
    asked = ask(LLAMA_70B, nodes_of([(A6000, 8, 0, ROOMY, "580")] * 2), spec)
    found = plan(asked)
    assert isinstance(found, Plan), found.message
    assert found.summary == "A6000 TP1·PP7 ×2"


def test_what_the_pool_holds_too_few_of_is_told_by_that_whatever_beats_it_on_its_own_product():
    """H200 TP2 costs no more than the plan and is the smaller failure domain, but there is room for one of its two."""
    shapes = [(A6000, 8, 0, ROOMY, "580"), (H100, 4, 0, ROOMY, "580"), (H200, 2, 0, ROOMY, "580")]
    spec = {
        "pool": {"maxGPUs": 14, "interconnect": {"policy": "Any"}},
        "workload": {"requestsPerMinute": 822},
        "slo": {"tpot": {"percentile": 50, "milliseconds": 5}},
    }
    asked = ask(GPT_OSS, nodes_of(shapes), spec)
    decision = plan(asked)
    nothing_dominates(asked, decision)
    short = [c for c in decision.candidates if c.product == H200 and c.replicas * c.parallelism.gpus > 2]
    assert {c.reason.value for c in short} == {"PoolTooSmall"}

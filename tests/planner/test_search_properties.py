"""The search leaves nothing better behind: no rejected arrangement dominates, and pruning changes no choice."""

from hypothesis import HealthCheck, given, settings

from planner.plan_support import A6000, H100, H200, products
from planner.worlds import GPT_OSS, ROOMY, ask, cases, nodes_of
from shardwright.planner.choice import plan
from shardwright.planner.question import UNVALIDATED_GAIN
from shardwright.planner.types import Plan

LOADS = {"requestsPerMinute", "concurrency"}
STEPS_BACK = "it fits, but powers of two rank first"
QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


def judged(candidate):
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
        round(judged(candidate), 6), len(speed.missed), split.gpus, candidate.kv_cache_dtype == "fp8",
        split.expert, split.pipeline, -round(speed.most * candidate.replicas, 5),
    )  # fmt: skip


def nothing_dominates(decision):
    """No rejected arrangement that the pool holds, with the links that are wanted, is better in all."""
    fits = [c for c in decision.candidates if c.replicas and c.speed is not None]
    [chosen] = [c for c in fits if c.reason.value == "Chosen"]
    ours = merits(chosen)
    for other in fits:
        passed_over = other.reason.value in {"PoolTooSmall", "BeyondIsland"} or other.message.startswith(
            STEPS_BACK
        )
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
        nothing_dominates(whole)


def test_what_the_pool_holds_too_few_of_is_told_by_that_whatever_beats_it_on_its_own_product():
    """H200 TP2 costs no more than the plan and is the smaller failure domain, but there is room for one of its two."""
    shapes = [(A6000, 8, 0, ROOMY, "580"), (H100, 4, 0, ROOMY, "580"), (H200, 2, 0, ROOMY, "580")]
    spec = {
        "pool": {"maxGPUs": 14, "interconnect": {"policy": "Any"}},
        "workload": {"requestsPerMinute": 822},
        "slo": {"tpot": {"percentile": 50, "milliseconds": 5}},
    }
    decision = plan(ask(GPT_OSS, nodes_of(shapes), spec))
    nothing_dominates(decision)
    short = [c for c in decision.candidates if c.product == H200 and c.replicas * c.parallelism.gpus > 2]
    assert {c.reason.value for c in short} == {"PoolTooSmall"}

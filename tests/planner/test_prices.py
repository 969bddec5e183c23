"""Products without a price beside those that have one: what is compared, what is told, and what never changes."""

from dataclasses import replace
from itertools import product as pairs

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.plan_support import (
    A6000,
    H100,
    H200,
    L4,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    products,
    request,
    shapes,
    without_prices,
)
from planner.test_true_reasons import Case, check, random_asking
from planner.worlds import CARDS, ROOMY, drawn, random_edge, random_world
from shardwright.api.candidate_reasons import CandidateReason
from shardwright.catalog.prices import with_prices
from shardwright.planner.choice import inputs_digest, plan
from shardwright.planner.placement import place
from shardwright.planner.types import Plan

A10, H20 = "NVIDIA-A10", "NVIDIA-H20"
NO_PRICE = (A10, H20, "NVIDIA-H800", "NVIDIA-L40", "NVIDIA-A40", "NVIDIA-H200-NVL", "Tesla-T4")
RATE = {"workload": {"requestsPerMinute": 30}}
QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


def decided(model, *nodes, prices=None, unpriced=(), **spec):
    asked = request(model, shapes(*nodes), **spec)
    known = without_prices(with_prices(asked.products, prices or {}), unpriced)
    return plan(replace(asked, products=known))


def reason_on(decision, label):
    """The reasons of what fits on a product."""
    return {c.reason.value for c in decision.candidates if c.product == label and c.replicas}


class TestOneWithoutAPrice:
    def test_the_others_are_compared_by_price_all_the_same(self):
        before, after = (decided(LLAMA_8B, (L4, 4), (H100, 8), *more, **RATE) for more in ((), ((A10, 4),)))
        assert (after.summary, after.product.label) == (before.summary, L4)
        assert "PriceUnknown" in reason_on(after, A10)
        assert "CostsMore" in reason_on(after, H100)

    def test_its_sentence_names_it_and_what_to_do(self):
        found = decided(LLAMA_8B, (L4, 4), (A10, 4), **RATE)
        [told] = [c.message for c in found.candidates if c.reason is CandidateReason.PRICE_UNKNOWN]
        assert told == (
            f"it fits, but no price of A10 is known, and that of {found.parallelism} on L4 is: state one of A10 to "
            "compare"
        )

    def test_stated_it_competes(self):
        cheap = decided(LLAMA_8B, (L4, 4), (A10, 4), prices={A10: 0.1}, **RATE)
        dear = decided(LLAMA_8B, (L4, 4), (A10, 4), prices={A10: 9}, **RATE)
        assert cheap.product.label == A10
        assert (dear.product.label, reason_on(dear, A10) & {"CostsMore"}) == (L4, {"CostsMore"})

    @pytest.mark.parametrize("spec", [{}, RATE])
    def test_it_serves_what_nothing_else_does(self, spec):
        found = decided(LLAMA_70B, (L4, 1), (H20, 8), **spec)
        assert found.product.label == H20
        assert "PriceUnknown" not in {c.reason.value for c in found.candidates}

    def test_it_serves_what_the_pool_holds_too_little_of(self):
        """Rules about what is served come before the price, and so before its lack."""
        found = decided(LLAMA_8B, (L4, 1), (H20, 8), workload={"requestsPerMinute": 100})
        assert found.product.label == H20
        assert reason_on(found, L4) == {"PoolTooSmall"}
        assert "PriceUnknown" not in {c.reason.value for c in found.candidates}

    def test_where_none_has_a_price_gpus_are_counted(self):
        found = decided(LLAMA_8B, (L4, 4), (H100, 8), unpriced={L4, H100}, **RATE)
        assert found.summary == "H100 TP1 ×1"
        [told] = [c.message for c in found.candidates if c.reason is CandidateReason.CHOSEN]
        assert told.startswith("1 GPU;")
        assert "PriceUnknown" not in {c.reason.value for c in found.candidates}

    def test_it_has_no_part_in_a_cheaper_mix(self):
        targets = {
            "ttft": {"percentile": 95, "milliseconds": 1500},
            "tpot": {"percentile": 95, "milliseconds": 60},
        }
        spec = {"workload": {"requestsPerMinute": 720}, "slo": targets}
        nodes = ((H100, 8), (L40S, 4))
        mixed = decided(LLAMA_8B, *nodes, **spec)
        assert mixed.cheaper_mix
        for part in mixed.cheaper_mix:
            found = decided(LLAMA_8B, *nodes, unpriced={part.product}, **spec)
            assert part.product not in {other.product for other in found.cheaper_mix}


class TestTheFastest:
    FAST = RATE | {"slo": {"optimizeFor": "Latency"}}

    def test_speed_decides_whoever_has_a_price(self):
        found = decided(LLAMA_8B, (L4, 4), (H100, 8), unpriced={H100}, **self.FAST)
        assert found.product.label == H100
        assert "Slower" in reason_on(found, L4)

    def test_between_those_that_are_close_what_has_a_price_comes_first(self):
        """H100 and H200 alone differ by more; an H100 without a price and one that has one do not."""
        either = decided(LLAMA_8B, (H100, 8), (H200, 8), **self.FAST)
        twin = replace(
            products()[either.product.label],
            label="twin",
            short_name="twin",
            price_source="",
            price_per_gpu_hour=None,
        )
        known = {**products(), "twin": twin}
        asked = request(LLAMA_8B, shapes((either.product.label, 8)), **self.FAST)
        [node] = asked.pool.nodes
        pool = replace(asked.pool, nodes=(node, replace(node, name="other", product="twin")))
        found = plan(replace(asked, pool=pool, products=known))
        assert found.product.label == either.product.label
        assert reason_on(found, "twin") >= {"PriceUnknown"}


def serves_all(asked, found):
    """Whether a plan holds its context, its replicas, and what is to survive; and its times are predicted."""
    whole = found.context_clamped_from is None or asked.spec.model.max_context_tokens is None
    held = place(found, asked.pool, found.replicas).placed == found.replicas
    return whole and held and found.speed is not None


def random_more(rng):
    """A world with a load or targets, and nodes of products without a price to add."""
    world = random_edge(rng).of(random_world(rng, roomy=True))
    added = [
        (rng.choice(NO_PRICE), rng.choice([1, 2, 4, 8]), 0, ROOMY, "580") for _ in range(rng.randint(1, 3))
    ]
    return world, world.with_nodes(added)


@settings(max_examples=150, suppress_health_check=QUIET)
@given(worlds=drawn(random_more))
def test_nodes_without_a_price_never_change_a_plan_that_has_one(mix, worlds):
    small, large = worlds
    asked = small.asked()
    before = plan(asked)
    if not isinstance(before, Plan) or not serves_all(asked, before):
        mix.idles()
        return
    mix.judges(before)
    after = plan(large.asked())
    assert isinstance(after, Plan), after.message
    assert (after.summary, after.limits) == (before.summary, before.limits)
    assert (after.model, after.product, after.cheaper_mix) == (
        before.model,
        before.product,
        before.cheaper_mix,
    )


@settings(max_examples=150, suppress_health_check=QUIET)
@given(world=drawn(random_asking), unpriced=st.sets(st.sampled_from(CARDS), min_size=1, max_size=4))
def test_each_reason_is_true_whoever_has_a_price(mix, world, unpriced):
    asked = world.asked()
    case = Case(replace(asked, products=without_prices(asked.products, unpriced)), world.shapes)
    check(case)
    mix.judges(case.decision) if isinstance(case.decision, Plan) else mix.idles()


def test_a_decision_is_told_apart_by_the_prices_of_its_pool():
    """Decisions are remembered by this digest: those of other prices are others."""
    asked = request(LLAMA_8B, shapes((L4, 4), (H100, 8)), **RATE)
    digests = {
        inputs_digest(replace(asked, products=with_prices(asked.products, prices)))
        for prices in ({}, {L4: 0.5}, {L4: 0.6}, {H100: 0.5})
    }
    assert len(digests) == 4
    elsewhere = with_prices(asked.products, {A6000: 0.5})
    assert inputs_digest(replace(asked, products=elsewhere)) == inputs_digest(asked)


def test_prices_decide_between_products():
    for cheap, dear in pairs((L4, H100), repeat=2):
        if cheap != dear:
            found = decided(LLAMA_8B, (L4, 4), (H100, 8), prices={cheap: 0.01, dear: 9.0}, **RATE)
            assert found.product.label == cheap
            assert found.product.price_origin == "Configured"

"""Measured against predicted: nothing from nothing, one from an engine that does as predicted, k from k times that."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.plan_support import A6000, H100, LLAMA_8B, LLAMA_70B_FP8, decide, shapes
from shardwright.api.reasons import CalibrationReason
from shardwright.catalog.engines import engine_class
from shardwright.planner.calibration import (
    MIN_REQUESTS,
    Comparison,
    Figure,
    Measured,
    Observed,
    Unmeasured,
    compare,
    outside,
)
from shardwright.planner.growth import Growth
from shardwright.planner.types import Plan

ENGINE = engine_class("0.33.0")
PLANS = {
    "rate": decide(LLAMA_8B, shapes((H100, 8)), workload={"requestsPerMinute": 360}),
    "in-flight": decide(LLAMA_70B_FP8, shapes((H100, 8)), workload={"concurrency": 16}),
    "none": decide(LLAMA_8B, shapes((A6000, 4))),
}


def figure(comparison: Comparison, which: Figure):
    return next(f for f in comparison.figures if f.figure is which)


def grown(requests=600.0, seconds=600.0, inputs=900.0, outputs=200.0, ttft_s=0.2, tpot_s=0.01, hits=0.0):
    return Growth(
        seconds=seconds,
        ttft_sum_s=requests * ttft_s,
        ttft_count=requests,
        tpot_sum_s=requests * tpot_s,
        tpot_count=requests,
        prompt_tokens=requests * inputs,
        generation_tokens=requests * outputs,
        prefix_hit_tokens=requests * hits,
    )


def as_predicted(plan: Plan, times: float = 1.0, **load: float) -> Observed:
    """An engine that takes `times` what is predicted at its own load."""
    first = grown(**load)
    for _ in range(30):  # in flight depends on the times themselves
        found = compare(plan, ENGINE, [Observed(growth=first)], 1.0)
        ttft, tpot = figure(found, Figure.TTFT), figure(found, Figure.TPOT)
        assert isinstance(ttft, Measured), ttft
        assert isinstance(tpot, Measured), tpot
        again = grown(**load, ttft_s=ttft.predicted * times / 1000, tpot_s=tpot.predicted * times / 1000)
        if again == first:
            break
        first = again
    return Observed(growth=first)


def test_nothing_observed_is_nothing_known():
    for plan in PLANS.values():
        for observed in ([], [Observed()], [Observed(growth=Growth(seconds=600.0))]):
            found = compare(plan, ENGINE, observed, 60.0)
            assert [f.figure for f in found.figures] == list(Figure)
            assert all(isinstance(f, Unmeasured) for f in found.figures)
            assert found.load is None


@pytest.mark.parametrize("missing", ["ttft_sum_s", "ttft_count", "prompt_tokens", "generation_tokens"])
def test_a_missing_counter_is_not_taken_for_zero(missing):
    found = compare(PLANS["rate"], ENGINE, [Observed(growth=replace_(grown(), missing, None))], 60.0)
    assert isinstance(figure(found, Figure.TTFT), Unmeasured)
    assert isinstance(figure(found, Figure.TPOT), Unmeasured)


def replace_(value: Growth, field: str, new):
    return value._replace(**{field: new})


def test_each_latency_can_be_missing_alone():
    found = compare(PLANS["rate"], ENGINE, [Observed(growth=replace_(grown(), "tpot_count", None))], 60.0)
    assert isinstance(figure(found, Figure.TTFT), Measured)
    assert figure(found, Figure.TPOT) == Unmeasured(figure=Figure.TPOT, why=CalibrationReason.NOT_REPORTED)


def test_too_few_requests_say_nothing_and_those_of_all_engines_count():
    few = Observed(growth=grown(requests=MIN_REQUESTS / 2 - 1))
    found = compare(PLANS["rate"], ENGINE, [few, few], 60.0)
    assert figure(found, Figure.TTFT) == Unmeasured(
        figure=Figure.TTFT, why=CalibrationReason.TOO_FEW_REQUESTS, samples=MIN_REQUESTS - 2
    )
    assert isinstance(figure(compare(PLANS["rate"], ENGINE, [few] * 3, 60.0), Figure.TTFT), Measured)


def test_a_span_that_is_too_short_says_nothing():
    found = compare(PLANS["rate"], ENGINE, [Observed(growth=grown(seconds=59.0))], 60.0)
    assert isinstance(figure(found, Figure.TTFT), Unmeasured)


def test_answers_of_one_token_have_no_time_between_tokens():
    found = compare(PLANS["rate"], ENGINE, [Observed(growth=grown(outputs=1.0))], 60.0)
    assert isinstance(figure(found, Figure.TTFT), Measured)
    assert isinstance(figure(found, Figure.TPOT), Unmeasured)


@pytest.mark.parametrize("name", PLANS)
@given(
    times=st.floats(0.3, 4.0),
    requests=st.floats(60, 900),
    inputs=st.floats(50, 3000),
    outputs=st.floats(4, 400),
)
@settings(max_examples=25, deadline=None)
def test_the_ratio_is_how_many_times_the_prediction_it_takes(name, times, requests, inputs, outputs):
    plan = PLANS[name]
    if name == "in-flight":
        times = 1.0  # times what is predicted is in flight so much longer: there, only 1 is a fixed point
    seen = as_predicted(plan, times, requests=requests, inputs=inputs, outputs=outputs)
    found = compare(plan, ENGINE, [seen], 60.0)
    for which in (Figure.TTFT, Figure.TPOT):
        ratio = figure(found, which)
        assert isinstance(ratio, Measured)
        assert ratio.ratio == pytest.approx(times, rel=0.02)
        assert ratio.samples == int(requests)


@given(st.floats(0.3, 2.5))
def test_the_kv_cache_and_the_rest_of_the_budget_share_what_there_is(times):
    plan = PLANS["rate"]
    tokens = plan.estimate.kv_tokens * times
    found = compare(plan, ENGINE, [Observed(kv_tokens=tokens)] * 3, 60.0)
    kv, memory = figure(found, Figure.KV_TOKENS), figure(found, Figure.MEMORY)
    assert isinstance(kv, Measured)
    assert kv.ratio == pytest.approx(times)
    assert kv.samples == 3
    budget = plan.estimate.visible_gib * plan.limits.gpu_memory_utilization_percent / 100
    if isinstance(memory, Measured):
        assert memory.measured + plan.estimate.kv_cache_gib_per_gpu * times == pytest.approx(budget)
        assert (memory.ratio > 1) is (kv.ratio < 1) or times == 1
    else:
        assert plan.estimate.kv_cache_gib_per_gpu * times >= budget


def test_more_than_is_predicted_to_be_possible_is_compared_by_what_is_in_flight():
    seen = Observed(growth=grown(requests=600 * 100, seconds=600.0, ttft_s=0.4, tpot_s=0.02))
    found = compare(PLANS["none"], ENGINE, [seen], 60.0)
    assert isinstance(figure(found, Figure.TTFT), Measured)


def test_order_of_engines_changes_nothing():
    several = [Observed(kv_tokens=1000.0 * n, growth=grown(requests=100.0 * n)) for n in (1, 2, 3)]
    first, second = (compare(PLANS["rate"], ENGINE, order, 60.0) for order in (several, several[::-1]))
    for one, other in zip(first.figures, second.figures, strict=True):
        assert isinstance(one, Measured)
        assert isinstance(other, Measured)
        assert one.ratio == pytest.approx(other.ratio)


def test_borders_do_not_flicker():
    assert not outside(1.24, was_outside=False)
    assert outside(1.26, was_outside=False)
    assert outside(1.2, was_outside=True)
    assert not outside(1.1, was_outside=True)
    assert outside(0.79, was_outside=False)
    assert outside(0.82, was_outside=True)


def test_a_plan_for_a_gpu_without_rates_predicts_no_time():
    plan = PLANS["rate"]
    unknown = replace(plan, product=replace(plan.product, memory_gbytes_s=None))
    found = compare(unknown, ENGINE, [Observed(growth=grown())], 60.0)
    assert figure(found, Figure.TTFT) == Unmeasured(figure=Figure.TTFT, why=CalibrationReason.NOT_PREDICTED)

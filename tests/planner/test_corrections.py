"""What was measured before, counted with in the next plan: exactly so many times the prediction, and never a cheaper miss."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.plan_support import A6000, H100, L40S, LLAMA_8B, LLAMA_70B_FP8, on_record, request, shapes
from planner.test_calibration import ENGINE, as_predicted, figure
from shardwright.planner.calibration import Figure, compare
from shardwright.planner.choice import plan
from shardwright.planner.memory import estimate
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.rate import Targets, highest_rate
from shardwright.planner.performance.types import PerformanceRequest
from shardwright.planner.types import Correction, EngineLimits, MemoryRequest, Parallelism, Plan
from shardwright.render.revision import read_revision

SLO = {"ttft": {"percentile": 95, "milliseconds": 1500}, "tpot": {"percentile": 95, "milliseconds": 40}}
BASE = request(LLAMA_8B, shapes((A6000, 8), (L40S, 8)), slo=SLO, workload={"requestsPerMinute": 300})
RATIOS = st.floats(0.5, 2.0)


def corrected(base, model=LLAMA_8B, products=(A6000, L40S), **ratios):
    known = Correction(**ratios, requests=100)
    return replace(base, corrections={(model, product): known for product in products})


def asked(**load):
    choice = BASE.models[0]
    return PerformanceRequest(
        architecture=choice.architecture, gpu=BASE.products[A6000], engine=ENGINE, parallelism=Parallelism(),
        input_tokens=900, output_tokens=200, max_num_seqs=64, nvlink=False, **load,
    )  # fmt: skip


@given(ttft=RATIOS, tpot=RATIOS, concurrency=st.floats(1, 120))
@settings(deadline=None)
def test_a_ratio_is_so_many_times_the_prediction_and_the_terms_still_add_up(ttft, tpot, concurrency):
    long = replace(asked(concurrency=concurrency), output_tokens=2000)  # prompts alone bound no such load
    plain = predict(long)
    other = predict(replace(long, ttft_ratio=ttft, tpot_ratio=tpot))
    assert other.tpot_ms == pytest.approx(plain.tpot_ms * tpot)
    assert other.tpot.total_ms == pytest.approx(other.tpot_ms)
    assert other.ttft_ms - other.ttft.slots_ms == pytest.approx((plain.ttft_ms - plain.ttft.slots_ms) * ttft)


@given(ttft=RATIOS, tpot=RATIOS, rate=st.floats(0.05, 3))
@settings(deadline=None)
def test_as_many_run_as_arrive_in_the_time_they_take(ttft, tpot, rate):
    found = predict(replace(asked(rate_per_s=rate), ttft_ratio=ttft, tpot_ratio=tpot))
    if not found.saturated:
        life_s = (found.ttft_ms + found.tpot_ms * 199) / 1000
        assert found.running == pytest.approx(rate * life_s, rel=1e-3)


@given(low=RATIOS, high=RATIOS)
@settings(deadline=None, max_examples=30)
def test_slower_engines_serve_less(low, high):
    low, high = sorted((low, high))
    targets = Targets(ttft_ms=1500.0, ttft_percentile=95, tpot_ms=60.0, tpot_percentile=95)
    for field in ("ttft_ratio", "tpot_ratio"):
        fast, slow = (
            highest_rate(replace(asked(rate_per_s=1.0), **{field: r}), targets).requests_per_s
            for r in (low, high)
        )
        assert slow <= fast * (1 + 1e-6)


@given(low=RATIOS, high=RATIOS)
@settings(deadline=None, max_examples=25)
def test_slower_engines_never_take_fewer_replicas(low, high):
    low, high = sorted((low, high))
    base = request(
        LLAMA_8B, shapes((A6000, 8, 4)), slo=SLO, workload={"requestsPerMinute": 300},
        parallelism={"tensor": 1}, pool={"maxGPUs": 32},
    )  # fmt: skip
    few, many = (plan(corrected(base, ttft=r, tpot=r)) for r in (low, high))
    if isinstance(many, Plan):
        assert isinstance(few, Plan)
        assert few.replicas <= many.replicas


def test_a_product_that_was_measured_slow_loses():
    first = plan(BASE)
    slow = replace(BASE, corrections={(LLAMA_8B, first.product.label): Correction(ttft=2.0, tpot=2.0)})
    other = plan(slow)
    assert (other.product.label, other.replicas) != (first.product.label, first.replicas)
    assert other.correction is None or other.product.label == first.product.label


def test_what_was_measured_of_something_else_changes_nothing():
    first = plan(BASE)
    for key in (("other/model", first.product.label), (LLAMA_8B, H100)):
        again = plan(replace(BASE, corrections={key: Correction(ttft=2.0, tpot=2.0, memory=2.0)}))
        assert replace(again, inputs_digest=first.inputs_digest) == first
        assert again.inputs_digest != first.inputs_digest


def test_a_plan_says_and_keeps_what_it_counts_with():
    found = plan(corrected(BASE, ttft=1.2, memory=1.1))
    assert found.correction == Correction(ttft=1.2, memory=1.1, requests=100)
    assert [n for n in found.notes if "TTFT x1.20, memory beside the KV cache x1.10" in n]
    assert read_revision(on_record(found)).plan.correction == found.correction


@pytest.mark.parametrize("times", [0.7, 1.4])
def test_what_is_measured_as_corrected_is_as_predicted(times):
    base = request(LLAMA_70B_FP8, shapes((H100, 8)), workload={"requestsPerMinute": 60})
    seen = as_predicted(plan(base), times, requests=300)
    for known, ratio in ((None, times), (Correction(ttft=times, tpot=times), 1.0)):
        made = replace(plan(base), correction=known)
        found = compare(made, ENGINE, [seen], 60.0)
        for which in (Figure.TTFT, Figure.TPOT):
            assert figure(found, which).ratio == pytest.approx(ratio, rel=0.02)


def memory(ratio):
    limits = EngineLimits(
        max_model_len=8192, max_num_seqs=256, max_num_batched_tokens=8192, gpu_memory_utilization_percent=90
    )
    return estimate(
        MemoryRequest(
            architecture=BASE.models[0].architecture, gpu=BASE.products[A6000], engine=ENGINE,
            parallelism=Parallelism(), limits=limits, measured_ratio=ratio,
        )
    )  # fmt: skip


def test_memory_that_was_taken_beyond_the_prediction_is_in_the_bill():
    plain, more = memory(1.0), memory(1.1)
    budget = plain.visible_gib * 0.9
    rest = budget - plain.kv_cache_gib_per_gpu
    assert more.kv_cache_gib_per_gpu == pytest.approx(budget - 1.1 * rest)
    assert more.kv_tokens < plain.kv_tokens
    lines = {line.item: line.gib for line in more.bill}
    assert lines["Measured beyond"] == pytest.approx(-0.1 * rest)
    assert sum(g for item, g in lines.items() if item not in {"KV cache", "Margin"}) == pytest.approx(
        more.kv_cache_gib_per_gpu
    )
    assert "Measured beyond" not in {line.item for line in plain.bill}


def test_memory_that_was_less_than_predicted_is_not_relied_upon():
    assert Correction(memory=0.7).memory_ratio == 1.0
    assert plan(corrected(BASE, memory=0.7)).estimate == plan(BASE).estimate

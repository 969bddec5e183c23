"""What a load takes: by the mean lengths of its requests, and never more prompts than the GPUs can compute."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.plan_support import (
    A6000,
    H100,
    L40S,
    LLAMA_8B,
    LLAMA_70B_FP8,
    QWEN_32B,
    QWEN_MOE_FP8,
    decide,
    shapes,
)
from shardwright.api.defaults import mean_of, resolve
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.catalog.engines import engine_class
from shardwright.catalog.performance import load_performance_constants
from shardwright.planner.performance.load import engine_of
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.speed import speed
from shardwright.planner.replica import planned_request
from shardwright.planner.types import Plan

WORLDS = st.tuples(
    st.sampled_from([LLAMA_8B, LLAMA_70B_FP8, QWEN_32B, QWEN_MOE_FP8]),
    st.sampled_from([H100, L40S, A6000]),
    st.integers(16, 8000),
    st.integers(1, 40),
    st.floats(1, 3),
    st.integers(10, 20_000),
)


def test_the_mean_of_a_log_normal_is_found_from_two_of_its_percentiles():
    rng = Random(7)
    drawn = sorted(rng.lognormvariate(6.9, 0.8) for _ in range(200_000))
    p50, p95 = round(drawn[100_000]), round(drawn[190_000])
    assert mean_of(p50, p95) == pytest.approx(sum(drawn) / len(drawn), rel=0.02)


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_a_mean_lies_between_its_percentiles_and_grows_with_both(p50, p95):
    p50, p95 = sorted((p50, p95))
    assert p50 <= mean_of(p50, p95) <= p95
    assert mean_of(p50, p95 + 1) >= mean_of(p50, p95)
    assert mean_of(p50, p50) == p50


@settings(deadline=None, max_examples=60)
@given(WORLDS)
def test_no_plan_takes_more_prompts_than_its_gpus_compute(world):
    """Short answers: there the prompts are all of the work, and a queue that is bounded hides that they pile up."""
    model, gpu, into, out, tail, load = world
    workload = {
        "requestsPerMinute": load,
        "inputTokens": {"p50": into, "p95": int(into * tail)},
        "outputTokens": {"p50": out, "p95": int(out * tail)},
    }
    spec = {
        "workload": workload,
        "slo": {"ttft": {"percentile": 95, "milliseconds": 20_000}},
        "pool": {"maxGPUs": 64},
    }
    found = decide(model, shapes((gpu, 8, 8)), **spec)
    if not isinstance(found, Plan) or found.speed is None:
        return
    asked = planned_request(
        found, resolve(LLMServiceSpec.model_validate({"model": {"id": model}, **spec})), engine_class()
    )
    engine = engine_of(asked, speed(asked, load_performance_constants()))
    busy = asked.rate_per_s / 1000 * engine.least_ms / engine.speed.data
    assert busy < 0.9
    assert not predict(asked).saturated


def test_a_closed_loop_is_no_faster_than_its_prompts():
    found = decide(
        LLAMA_8B,
        shapes((H100, 8)),
        workload={
            "concurrency": 64,
            "inputTokens": {"p50": 2000, "p95": 2000},
            "outputTokens": {"p50": 1, "p95": 1},
        },
    )
    spec = LLMServiceSpec.model_validate(
        {
            "model": {"id": LLAMA_8B},
            "pool": {"maxGPUs": 8},
            "workload": {
                "concurrency": 64,
                "inputTokens": {"p50": 2000, "p95": 2000},
                "outputTokens": {"p50": 1, "p95": 1},
            },
        }
    )
    asked = planned_request(found, resolve(spec), engine_class())
    engine = engine_of(asked, speed(asked, load_performance_constants()))
    assert predict(asked).requests_per_s <= 1000 / engine.least_ms * (1 + 1e-9)

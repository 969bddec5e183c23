"""Properties: more load is never faster, better hardware never slower, the highest rate is the border."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.performance.perf_support import GPT_OSS, KIMI, LLAMA_8B, LLAMA_70B, request
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.rate import Limit, Targets, highest_rate

SLACK = 1 + 1e-6
PEAKS = ("bf16_tflops", "fp8_tflops", "fp4_tflops")
ARRANGED = st.sampled_from([
    (LLAMA_8B, "H100", 1, 1, 1), (LLAMA_8B, "L4", 1, 1, 1), (LLAMA_70B, "H100", 4, 1, 1),
    (LLAMA_70B, "A6000", 4, 2, 1), (GPT_OSS, "B200", 2, 1, 1), (KIMI, "H200", 8, 1, 2),
])  # fmt: skip
SIZES = {
    "input_tokens": st.integers(1, 30000),
    "output_tokens": st.integers(1, 4000),
    "max_num_seqs": st.integers(1, 1024),
    "max_num_batched_tokens": st.sampled_from([512, 2048, 8192]),
}


@st.composite
def asked(draw, **load):
    model, gpu, tensor, pipeline, data = draw(ARRANGED)
    sizes = {name: draw(each) for name, each in SIZES.items()}
    return request(
        model, gpu, tensor=tensor, pipeline=pipeline, data=data, nvlink=gpu != "A6000", **sizes, **load
    )


def slower(a, b):
    """Whether `b` is at least as slow as `a` in everything."""
    return a.ttft_ms <= b.ttft_ms * SLACK and a.tpot_ms <= b.tpot_ms * SLACK


@settings(max_examples=150, deadline=None)
@given(asked(concurrency=1.0), st.floats(1, 2000), st.floats(1, 3))
def test_more_in_flight_is_never_faster(one, concurrency, more):
    low = predict(replace(one, concurrency=concurrency))
    high = predict(replace(one, concurrency=concurrency * more))
    assert slower(low, high)
    assert low.requests_per_s <= high.requests_per_s * SLACK
    assert low.running <= high.running


@settings(max_examples=150, deadline=None)
@given(asked(rate_per_s=1.0), st.floats(0.001, 200), st.floats(1, 3))
def test_a_higher_rate_is_never_faster(one, rate, more):
    low = predict(replace(one, rate_per_s=rate))
    high = predict(replace(one, rate_per_s=rate * more))
    assert slower(low, high)
    assert low.running <= high.running * SLACK + 1e-6
    assert low.utilisation <= high.utilisation * SLACK + 1e-9


@settings(max_examples=100, deadline=None)
@given(
    asked(rate_per_s=0.5),
    st.sampled_from([("memory_gbytes_s",), PEAKS, ("link_gbytes_s",), ("pcie_gbytes_s",)]),
    st.floats(1, 10),
)
def test_better_hardware_is_never_slower(one, what, better):
    gpu = one.gpu
    faster = {name: (getattr(gpu, name) or 0.0) * better or None for name in what}
    raised = replace(one, gpu=replace(gpu, **faster))
    assert slower(predict(raised), predict(one))


@settings(max_examples=100, deadline=None)
@given(asked(concurrency=8), st.integers(1, 5000), st.integers(0, 2000))
def test_longer_prompts_are_never_faster(one, longer, cached):
    more = replace(one, input_tokens=one.input_tokens + longer)
    assert predict(one).ttft_ms <= predict(more).ttft_ms * SLACK
    shared = min(cached, one.input_tokens - 1)
    hit = replace(one, shared_prefix_tokens=shared)
    assert predict(hit).ttft_ms <= predict(one).ttft_ms * SLACK


@settings(max_examples=100, deadline=None)
@given(asked(rate_per_s=1.0), st.floats(20, 20000), st.floats(5, 500), st.sampled_from([50, 95, 99]))
def test_the_highest_rate_is_the_border(one, ttft_ms, tpot_ms, percentile):
    targets = Targets(
        ttft_ms=ttft_ms, ttft_percentile=percentile, tpot_ms=tpot_ms, margin=1.1,
        p95_input_tokens=one.input_tokens * 2,
    )  # fmt: skip
    found = highest_rate(one, targets)
    looser = highest_rate(one, replace(targets, ttft_ms=ttft_ms * 1.5, tpot_ms=tpot_ms * 1.5))
    assert found.requests_per_s <= looser.requests_per_s * SLACK
    if found.requests_per_s:
        assert found.prediction.tpot_ms * 1.1 <= tpot_ms * SLACK
        assert found.prediction.ttft_ms * 1.1 <= ttft_ms * SLACK
    if found.limit is not Limit.SLOTS and found.requests_per_s > 1e-3:
        above = predict(replace(one, rate_per_s=found.requests_per_s * 1.05))
        strict = highest_rate(one, replace(targets, margin=1.2))
        assert above.ttft_ms >= found.prediction.ttft_ms / SLACK
        assert strict.requests_per_s <= found.requests_per_s * SLACK


def test_each_target_can_be_what_stops():
    one = request(LLAMA_70B, tensor=4, rate_per_s=1.0, max_num_seqs=64)
    assert highest_rate(one, Targets()).limit is Limit.SLOTS
    assert highest_rate(one, Targets(ttft_ms=150)).limit is Limit.TTFT
    assert highest_rate(one, Targets(tpot_ms=20)).limit is Limit.TPOT
    assert highest_rate(one, Targets(itl_ms=95, margin=1.0)).limit is Limit.STEP
    none = highest_rate(one, Targets(tpot_ms=1))
    assert none.requests_per_s == 0
    assert none.prediction.running == 1


def test_ttft_is_judged_at_the_p95_input():
    one = request(LLAMA_70B, tensor=4, rate_per_s=1.0)
    median = Targets(ttft_ms=600, ttft_percentile=95)
    long = replace(median, p95_input_tokens=9000)
    assert highest_rate(one, long).requests_per_s < highest_rate(one, median).requests_per_s
    assert highest_rate(one, replace(long, ttft_percentile=50)) == highest_rate(
        one, replace(median, ttft_percentile=50)
    )

"""One prediction: its terms, its arithmetic, its loads, its class."""

from math import inf, isclose, isfinite

import pytest

from planner.performance.perf_support import GPT_OSS, KIMI, LLAMA_8B, LLAMA_70B, ROUND, request
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.tails import ttft_factor
from shardwright.planner.performance.types import LoadError
from shardwright.planner.performance.work import MissingFactError

LAYERS, HIDDEN, KV_HEADS, HEAD = 32, 4096, 8, 128
LAYER_WEIGHTS = HIDDEN * (HIDDEN + 2 * KV_HEADS * HEAD) + HIDDEN * HIDDEN + 3 * HIDDEN * 14336
HEAD_WEIGHTS = 128256 * HIDDEN
BANDWIDTH, FLOP = 3350e6 * 0.5, 989e9 * 0.5  # bytes and FLOP each ms at half the data sheet


def test_a_lone_request_by_hand():
    found = predict(request(concurrency=1, input_tokens=1000, output_tokens=101), ROUND)
    read = 2 * (LAYERS * LAYER_WEIGHTS + HEAD_WEIGHTS) / BANDWIDTH
    multiply = 2 * (LAYERS * LAYER_WEIGHTS + HEAD_WEIGHTS) / FLOP
    core = (read**4 + multiply**4) ** 0.25
    kv = (1000 + 101 / 2) * LAYERS * 2 * KV_HEADS * HEAD * 2 / BANDWIDTH
    launch = 1.0 + 0.1 * LAYERS + 0.01
    assert found.tpot.weights_ms == pytest.approx(read)
    assert found.tpot.kv_ms == pytest.approx(kv)
    assert found.tpot_ms == pytest.approx(core + kv + launch)
    multiply = (1000 * 2 * LAYERS * LAYER_WEIGHTS + 2 * HEAD_WEIGHTS) / FLOP
    prompt = (read**4 + multiply**4) ** 0.25
    attention = LAYERS * 4 * 32 * HEAD * 1000 * 1000 / 2 / FLOP
    assert found.ttft_ms == pytest.approx(5.0 + prompt + attention + 0.5 * LAYERS + launch)
    life = found.ttft_ms + found.tpot_ms * 100
    assert found.requests_per_s == pytest.approx(1000 / life)
    assert found.output_tokens_per_s == pytest.approx(101 * 1000 / life)


def test_a_batch_by_hand():
    lone = predict(request(LLAMA_70B, tensor=4, concurrency=1), ROUND)
    found = predict(request(LLAMA_70B, tensor=4, concurrency=11), ROUND)
    work = lone.ttft.prefill_ms
    assert found.tpot.interference_ms == pytest.approx(0.5 * 10 * work / 200)
    assert found.ttft.queue_ms == pytest.approx(0.1 * 10 * work / 2)
    assert found.ttft.step_ms == pytest.approx(0.5 * found.tpot.step_ms)
    each = 2 * 2 * 3 / 4 * 80 * 8192 * 2 / (450e6 * 0.5)  # two all-reduces a layer
    assert found.tpot.communication_ms == pytest.approx(2 * 80 * 0.01 + 11 * each)


@pytest.mark.parametrize(
    "asked",
    [
        request(),
        request(LLAMA_70B, tensor=8, rate_per_s=3.0),
        request(GPT_OSS, "B200", tensor=2, concurrency=300, max_num_seqs=64),
        request(KIMI, "H200", tensor=8, data=2, expert=True, rate_per_s=1.0),
        request(LLAMA_70B, "L40S", tensor=4, pipeline=2, nvlink=False, shared_prefix_tokens=300),
        request(LLAMA_8B, "L4", input_tokens=30000, max_num_batched_tokens=2048, concurrency=2),
    ],
)
def test_terms_add_up_to_the_figures(asked):
    found = predict(asked)
    ttft = sum(getattr(found.ttft, name) for name in found.ttft.__slots__)
    tpot = sum(getattr(found.tpot, name) for name in found.tpot.__slots__)
    assert isclose(ttft, found.ttft_ms)
    assert isclose(tpot, found.tpot_ms)
    assert all(getattr(found.ttft, name) >= 0 for name in found.ttft.__slots__)
    assert all(getattr(found.tpot, name) >= 0 for name in found.tpot.__slots__)


def test_open_loop_holds_littles_law():
    found = predict(request(LLAMA_70B, tensor=4, rate_per_s=4.0))
    life_s = (found.ttft_ms + found.tpot_ms * 199) / 1000
    assert found.running == pytest.approx(4.0 * life_s, rel=1e-6)
    assert found.requests_per_s == pytest.approx(4.0)
    assert 0 < found.utilisation < 1
    assert not found.saturated


def test_more_than_the_slots_waits_in_a_closed_loop_and_never_ends_in_an_open_one():
    fits = predict(request(concurrency=64, max_num_seqs=64))
    waits = predict(request(concurrency=96, max_num_seqs=64))
    assert waits.running == 64
    assert waits.ttft.slots_ms == pytest.approx(32 / waits.requests_per_s * 1000)
    assert waits.tpot_ms == fits.tpot_ms
    assert waits.saturated
    flooded = predict(request(rate_per_s=1000.0, max_num_seqs=64))
    assert flooded.ttft_ms == inf
    assert isfinite(flooded.tpot_ms)
    assert flooded.requests_per_s < 1000


def test_kv_capacity_bounds_the_batch_and_holds_a_shared_prefix_once():
    room = 10 * (1000 + 200 / 2)
    assert predict(request(concurrency=40, kv_capacity_tokens=room)).running == 10
    shared = request(concurrency=40, kv_capacity_tokens=room, shared_prefix_tokens=500)
    assert predict(shared).running == pytest.approx((room - 500) / 600)


def test_chunks_read_the_weights_again_and_shorten_the_longest_step():
    whole = predict(request(input_tokens=8000, max_num_batched_tokens=8192))
    cut = predict(request(input_tokens=8000, max_num_batched_tokens=1000))
    assert cut.ttft.weights_ms == pytest.approx(8 * whole.ttft.weights_ms)
    assert cut.ttft_ms > whole.ttft_ms
    assert cut.longest_step_ms < whole.longest_step_ms


def test_tails_grow_with_load_and_are_never_validated():
    light, busy = predict(request(concurrency=1)), predict(request(concurrency=50))
    assert light.tails.ttft_p95_ms == pytest.approx(1.3 * light.ttft_ms)
    assert busy.tails.ttft_p95_ms == pytest.approx(2.0 * busy.ttft_ms)
    assert busy.tails.ttft_p99_ms == pytest.approx(2.5 * busy.ttft_ms)
    assert busy.tails.tpot_p95_ms == pytest.approx(1.25 * busy.tpot_ms)
    assert not busy.tails.validated
    assert ttft_factor(90, 50) == ttft_factor(95, 50)


def test_old_engines_and_blackwell_have_their_own_constants():
    new, old = predict(request(), ROUND), predict(request(engine="0.7.3"), ROUND)
    assert old.tpot.launch_ms == pytest.approx(2 * new.tpot.launch_ms)
    shipped = predict(request(LLAMA_70B, "B200", input_tokens=8000))
    assert (
        shipped.ttft.compute_ms
        > predict(request(LLAMA_70B, "B200", input_tokens=8000), ROUND).ttft.compute_ms / 2
    )


@pytest.mark.parametrize(
    ("changes", "gap"),
    [
        ({"pipeline": 2}, "pipeline"),
        ({"data": 2, "model": KIMI, "gpu": "H200", "tensor": 8}, "data parallelism"),
        ({"fp8_kv": True}, "FP8 KV"),
        ({"shared_prefix_tokens": 100}, "prefix"),
        ({"speculative": True}, "speculative"),
        ({"gpu": "MI300X"}, "family"),
        ({"tensor": 16}, "TP16"),
        ({"model": "redhatai/Llama-3.3-70B-Instruct-quantized.w8a8"}, "INT8"),
    ],
)
def test_what_no_row_covers_is_unvalidated_and_has_the_widest_band(changes, gap):
    found = predict(request(**changes)).band
    assert not found.covered
    assert gap in "; ".join(found.gaps)
    same = predict(request(LLAMA_70B, tensor=4)).band
    related = predict(request(LLAMA_8B, "A100-80-PCIe")).band
    assert same.covered
    assert related.covered
    assert found.low <= related.low <= same.low < 1 < same.high <= related.high <= found.high


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"concurrency": 2, "rate_per_s": 1.0}, "concurrency"),
        ({"concurrency": 0}, "concurrency"),
        ({"rate_per_s": inf}, "rate_per_s"),
        ({"input_tokens": 0}, "input_tokens"),
        ({"output_tokens": 0}, "output_tokens"),
        ({"shared_prefix_tokens": 1000}, "shared_prefix_tokens"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
    ],
)
def test_a_load_without_an_answer_is_refused(changes, field):
    with pytest.raises(LoadError, match=field):
        request(**changes)


def test_a_card_without_a_rate_is_refused_by_name():
    with pytest.raises(MissingFactError, match="memory_gbytes_s of H100"):
        predict(request(product={"memory_gbytes_s": None}))

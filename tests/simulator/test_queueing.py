"""The simulated engine's time, in virtual time, against what the coefficients say on paper."""

import asyncio
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.arguments import Arguments, parse
from sim.engine.core import Core
from sim.engine.metrics import Metrics
from sim.engine.prefix import BLOCK_TOKENS, PrefixCache
from sim.engine.queueing import ReplicaModel, Scheduler, Sequence

MODEL = ReplicaModel()


def run(scheduler: Scheduler, now: float = 0.0) -> float:
    """Step until nothing is left; return when that is."""
    while (seconds := scheduler.begin(now)) is not None:
        assert sum(each.step_tokens for each in scheduler.running) <= scheduler.budget
        assert len(scheduler.running) <= scheduler.seats
        held = scheduler.held + sum(each.step_tokens for each in scheduler.running)
        assert held <= scheduler.model.kv_tokens or len(scheduler.running) == 1
        now += seconds
        scheduler.end(now)
    return now


@pytest.mark.parametrize("prompt", [1, 100, 2048, 2049, 20_000])
def test_a_lone_request_takes_what_the_coefficients_say(prompt: int) -> None:
    scheduler = Scheduler(MODEL)
    alone = Sequence(prompt, 50, 0.0)
    scheduler.add(alone)
    end = run(scheduler)
    chunks = ceil(prompt / MODEL.token_budget)
    ms = chunks * (MODEL.step_ms + MODEL.per_sequence_ms)
    # A last chunk of one token is a step like any other's: nothing tells it from an answer's token.
    ms += MODEL.per_prefill_token_ms * (prompt - (prompt % MODEL.token_budget == 1))
    ms += MODEL.per_kv_token_us / 1000 * sum(number * MODEL.token_budget for number in range(chunks))
    assert alone.first_token_s == pytest.approx(ms / 1000)
    ms += 49 * (MODEL.step_ms + MODEL.per_sequence_ms)
    ms += MODEL.per_kv_token_us / 1000 * sum(prompt + number for number in range(49))
    assert end == pytest.approx(ms / 1000)


@pytest.mark.parametrize("batch", [2, 16, 64])
def test_a_batch_decodes_in_step(batch: int) -> None:
    scheduler = Scheduler(MODEL)
    sequences = [Sequence(16, 101, 0.0) for _ in range(batch)]
    for sequence in sequences:
        scheduler.add(sequence)
    end = run(scheduler)
    first = MODEL.step_s(batch, 0, 16 * batch)
    assert [sequence.first_token_s for sequence in sequences] == pytest.approx([first] * batch)
    steps = sum(MODEL.step_s(batch, batch * (16 + number), 0) for number in range(100))
    assert end == pytest.approx(first + steps)


def test_prompts_wait_for_the_budget_and_answers_do_not() -> None:
    scheduler = Scheduler(MODEL)
    early = Sequence(10, 20, 0.0)
    scheduler.add(early)
    scheduler.end(scheduler.begin(0.0) or 0.0)
    late = Sequence(10 * MODEL.token_budget, 2, 0.0)
    scheduler.add(late)
    for _ in range(10):
        scheduler.begin(0.0)
        assert early.step_tokens == 1
        assert late.step_tokens == MODEL.token_budget - 1
        scheduler.end(0.0)


def test_a_full_cache_puts_the_youngest_back_and_loses_nothing() -> None:
    model = ReplicaModel(kv_tokens=1000)
    scheduler = Scheduler(model)
    sequences = [Sequence(300, 400, 0.0) for _ in range(3)]
    for sequence in sequences:
        scheduler.add(sequence)
    run(scheduler)
    assert [sequence.produced for sequence in sequences] == [400, 400, 400]
    assert scheduler.preempted > 0
    assert sequences[0].preemptions == 0, "the oldest goes on"


@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(1, 80)), min_size=1, max_size=12),
    st.integers(1000, 3000),
    st.integers(16, 512),
    st.integers(1, 8),
)
def test_every_request_gets_its_tokens_within_budget_cache_and_seats(
    sizes: list[tuple[int, int]], kv_tokens: int, budget: int, seats: int
) -> None:
    model = ReplicaModel(kv_tokens=kv_tokens, token_budget=budget, seats=seats)
    scheduler = Scheduler(model)
    sequences = [Sequence(prompt, output, 0.0) for prompt, output in sizes]
    for sequence in sequences:
        scheduler.add(sequence)
    run(scheduler)
    assert all(sequence.done and sequence.first_token_s is not None for sequence in sequences)
    assert not scheduler.waiting


def test_a_prefix_that_was_computed_is_found_by_whole_blocks_and_the_oldest_goes() -> None:
    cache = PrefixCache(10 * BLOCK_TOKENS)
    prompt = list(range(40))
    assert cache.hit(prompt) == 0
    cache.keep(prompt)
    assert cache.hit(prompt) == 32
    assert cache.hit([*prompt[:20], -1, *prompt[21:]]) == 16
    assert cache.hit(prompt[:32]) == 16, "the last token is computed"
    cache.keep(list(range(1000, 1000 + 10 * BLOCK_TOKENS)))
    assert cache.hit(prompt) == 0


def arguments() -> Arguments:
    return parse(["serve", "m/x", "--served-model-name=chat"], {})


@pytest.mark.looptime
@pytest.mark.parametrize("speed", [1.0, 10.0])
async def test_the_running_engine_keeps_the_time_of_the_model(speed: float) -> None:
    scheduler = Scheduler(MODEL)
    core = Core(scheduler, Metrics(arguments(), MODEL.kv_tokens), speed)
    loop = asyncio.get_running_loop()
    stepping = asyncio.ensure_future(core.run())
    began = loop.time()
    request = core.add(100, 50, 50, 0)
    for _ in range(50):
        assert await request.tokens.get()
    took = loop.time() - began
    stepping.cancel()
    on_paper = Scheduler(MODEL)
    on_paper.add(Sequence(100, 50, 0.0))
    assert took == pytest.approx(run(on_paper) / speed, rel=0.02)

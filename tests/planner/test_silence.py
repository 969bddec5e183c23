"""How long an engine may be without a token: it grows with what it takes in, and is there for what is predicted."""

from dataclasses import replace

import pytest

from planner.plan_support import A6000, H100, LLAMA_8B, LLAMA_70B_FP8, QWEN_MOE_FP8, request, shapes
from shardwright.api.defaults import resolve
from shardwright.autoscaler.planned import replica_model
from shardwright.planner.choice import plan
from shardwright.planner.silence import longest_silence_s
from shardwright.planner.types import Correction


def planned(model, gpu, **blocks):
    asked = request(model, shapes((gpu, 8)), **blocks)
    return asked, plan(asked), resolve(asked.spec)


@pytest.mark.parametrize(("name", "gpu"), [(LLAMA_8B, A6000), (LLAMA_70B_FP8, H100), (QWEN_MOE_FP8, H100)])
def test_it_is_no_shorter_than_the_fullest_step_and_grows_with_the_context(name, gpu):
    asked, decision, resolved = planned(name, gpu)
    found = longest_silence_s(decision, resolved, asked.engine)
    model = replica_model(decision, resolved, asked.engine)
    assert found > model.step_of(model.seats, 0, model.budget_tokens)
    longer = replace(
        decision, limits=replace(decision.limits, max_model_len=2 * decision.limits.max_model_len)
    )
    assert longest_silence_s(longer, resolved, asked.engine) > 2 * found * 0.9


def test_attention_over_a_long_prompt_is_counted_with_its_square():
    asked, decision, resolved = planned(LLAMA_8B, H100)
    of = {}
    for tokens in (16_384, 131_072):
        long = replace(decision, limits=replace(decision.limits, max_model_len=tokens))
        of[tokens] = longest_silence_s(long, resolved, asked.engine)
    assert of[131_072] > 8 * of[16_384]


def test_what_was_measured_slower_lengthens_it_and_what_was_faster_does_not_shorten_it():
    asked, decision, resolved = planned(LLAMA_8B, A6000)
    plain = longest_silence_s(decision, resolved, asked.engine)
    slow, fast = (replace(decision, correction=Correction(ttft=r, tpot=r)) for r in (2.0, 0.5))
    assert longest_silence_s(slow, resolved, asked.engine) == pytest.approx(2 * plain)
    assert longest_silence_s(fast, resolved, asked.engine) == pytest.approx(plain)


def test_without_a_predicted_speed_there_is_none():
    asked, decision, resolved = planned(LLAMA_8B, A6000)
    unknown = replace(decision, product=replace(decision.product, memory_gbytes_s=None))
    assert longest_silence_s(unknown, resolved, asked.engine) is None

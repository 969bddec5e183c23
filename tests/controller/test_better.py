"""What the planner says when prompts are too long for the target: the length it is asked for, and the sentence."""

import pytest

from planner.plan_support import A6000, H100, decide, shapes
from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.reasons import Reason
from shardwright.controller.better import LONGEST, answer, longer_tokens, with_longer_prompts
from shardwright.planner.types import NoPlan, Plan

SPEC = {
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "maxContextTokens": 32768},
    "pool": {"maxGPUs": 8},
    "workload": {"inputTokens": {"p50": 800, "p95": 2000}, "requestsPerMinute": 60},
}


@pytest.mark.parametrize(
    ("edge", "longest", "asked"),
    [
        (2000, 32768, 5000),
        (5000, 32768, 10_000),
        (10_000, 32768, 20_000),
        (20_000, 32768, 32768),
        (1, 8192, 2),
    ],
)
def test_the_next_edge_is_asked_for_as_far_as_prompts_may_go(edge, longest, asked):
    assert longer_tokens(edge, longest) == asked


def test_the_target_is_stated_so_that_it_binds_and_nothing_else_changes():
    spec = LLMServiceSpec.model_validate(SPEC)
    resolved = resolve(spec)
    other = with_longer_prompts(spec, resolved, 10_000)
    assert (other.workload.input_tokens.p50, other.workload.input_tokens.p95) == (800, 10_000)
    assert other.slo.ttft == resolved.targets.ttft
    assert other.workload.requests_per_minute == 60
    assert (other.model, other.pool) == (spec.model, spec.pool)
    assert with_longer_prompts(spec, resolved, 500).workload.input_tokens.p50 == 500


LENGTHS = {"inputTokens": {"p50": 800, "p95": 2000}}


def told(tokens, decision, core):
    return answer(core, resolve(LLMServiceSpec.model_validate(SPEC)), decision, tokens)


def test_each_answer_is_a_sentence_that_says_what_to_write_or_where_to_look():
    core = decide("meta-llama/Llama-3.1-8B-Instruct", shapes((A6000, 4)), workload=LENGTHS)
    other = decide("meta-llama/Llama-3.1-8B-Instruct", shapes((H100, 8)), workload=LENGTHS)
    assert isinstance(core, Plan)
    assert isinstance(other, Plan)
    gpus = other.gpus_per_replica * other.replicas
    assert told(5000, other, core).startswith(
        f"With workload.inputTokens.p95: 5000 the plan would be {other.summary} ({gpus} GPUs, $"
    )
    assert told(5000, other, core).endswith("write that to run it")
    assert told(5000, core, core).startswith("With workload.inputTokens.p95: 5000 the plan is the same: see ")
    assert told(2000, other, core).startswith("The plan counts with prompts of 2000 tokens: see ")
    none = NoPlan(reason=Reason.SLO_OUT_OF_REACH, message="x" * 2000, candidates=(), inputs_digest="")
    refused = told(5000, none, core)
    assert "nothing in the pool keeps the targets: xxx" in refused
    assert len(refused) == LONGEST

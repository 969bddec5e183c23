"""The step model that is drawn from a plan against the planner's own predictions, and targets that are no targets."""

from dataclasses import replace
from math import inf

import pytest

from planner.plan_support import (
    A100_80,
    A6000,
    H100,
    L4,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_32B,
    QWEN_MOE_FP8,
    request,
    shapes,
)
from shardwright.api.defaults import resolve
from shardwright.autoscaler.planned import carried, mean_lengths, replica_model, scaling_plan
from shardwright.autoscaler.replica import capacity
from shardwright.planner.choice import plan
from shardwright.planner.performance.predict import predict
from shardwright.planner.performance.rate import Targets, highest_rate
from shardwright.planner.replica import replica
from shardwright.planner.types import Correction

DENSE = [
    (LLAMA_8B, H100),
    (LLAMA_8B, L40S),
    (LLAMA_8B, A6000),
    (LLAMA_70B_FP8, H100),
    (LLAMA_70B, H100),
    (QWEN_32B, A100_80),
]
PROFILES = ["Chat", "RAG", "Writing", "Agent"]


def planned(model, gpu, **blocks):
    asked = request(model, shapes((gpu, 8)), **blocks)
    return asked, plan(asked), resolve(asked.spec)


def at_rate(asked, decision, resolved, rate):
    found = replica(
        decision, resolved.traffic, asked.engine, decision.product, slots=decision.limits.max_num_seqs,
        kv_room_tokens=decision.estimate.promised_kv_tokens, measured=decision.correction,
    )  # fmt: skip
    return found, predict(replace(found, rate_per_s=rate, concurrency=None))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("name", "gpu"), [*DENSE, (QWEN_MOE_FP8, H100)])
def test_the_line_is_near_the_planner_s_own_step(name, gpu, profile):
    asked, decision, resolved = planned(name, gpu, workload={"profile": profile})
    model = replica_model(decision, resolved, asked.engine)
    tpot_s = resolved.targets.tpot.milliseconds / 1000
    found, _ = at_rate(asked, decision, resolved, 0.01)
    inputs, outputs = found.input_tokens, found.output_tokens
    if model.step_of(1, inputs, 0) > tpot_s:
        tpot_s = inf
    served = capacity(model, inputs, outputs, tpot_s)
    moe = name == QWEN_MOE_FP8
    for share, bound in ((0.25, 0.25 if moe else 0.1), (0.5, 0.1), (0.75, 0.06), (0.95, 0.05)):
        _, seen = at_rate(asked, decision, resolved, share * served.rate_per_s)
        held = seen.running * (inputs + outputs / 2)
        step_s = model.step_of(seen.running, held, seen.running * inputs / outputs)
        assert step_s * 1000 == pytest.approx(seen.tpot_ms, rel=bound), share
    if tpot_s < inf:
        most = highest_rate(found, Targets(tpot_ms=tpot_s * 1000, margin=1.0)).requests_per_s
        # The law leaves out that a request holds its seat during its own prefill, which counts where few run.
        assert 0.96 < served.rate_per_s / most < 1.25


def test_what_was_measured_slows_the_replica_down():
    asked, decision, resolved = planned(LLAMA_8B, H100)
    model = replica_model(decision, resolved, asked.engine)
    slower = replica_model(replace(decision, correction=Correction(tpot=1.5)), resolved, asked.engine)
    assert slower.step_s == pytest.approx(1.5 * model.step_s, rel=0.1)
    assert slower.step_of(64, 80_000, 200) == pytest.approx(1.5 * model.step_of(64, 80_000, 200), rel=0.05)


def test_a_card_without_rates_has_no_model():
    asked, decision, resolved = planned(LLAMA_8B, H100)
    card = replace(decision.product, memory_gbytes_s=None)
    assert replica_model(replace(decision, product=card), resolved, asked.engine) is None


def bounds(**other):
    return {"cold_start_s": 600.0, "min_replicas": 1, "max_replicas": None, "max_gpus": 16} | other


def drawn(asked, decision, resolved, **other):
    model = replica_model(decision, resolved, asked.engine)
    return scaling_plan(decision, asked.spec, resolved, model, **bounds(**other))


def test_targets_and_bounds_are_those_of_the_spec():
    slo = {"ttft": {"percentile": 99, "milliseconds": 700}, "tpot": {"percentile": 95, "milliseconds": 40}}
    found = drawn(*planned(LLAMA_70B, H100, slo=slo), min_replicas=3, max_replicas=9)
    assert (found.ttft_s, found.tpot_s, found.percentile) == (0.7, 0.04, 95.0)
    assert (found.min_replicas, found.max_replicas, found.gpus_per_replica, found.max_gpus) == (3, 9, 4, 16)
    assert found.most == 4
    assert drawn(*planned(LLAMA_70B, H100), min_replicas=0).min_replicas == 1
    assert drawn(*planned(LLAMA_70B, H100), max_gpus=2).most == 1, "what runs is not refused"


def test_a_profile_s_target_that_an_idle_replica_misses_is_none_and_a_stated_one_is():
    asked, decision, resolved = planned(LLAMA_8B, L4)
    found = drawn(asked, decision, resolved)
    assert found.tpot_s == inf
    assert capacity(found.model, found.input_tokens, found.output_tokens, found.tpot_s).rate_per_s > 0
    stated = request(LLAMA_8B, shapes((L4, 8)), slo={"tpot": {"percentile": 95, "milliseconds": 20}}).spec
    assert scaling_plan(decision, stated, resolve(stated), found.model, **bounds()).tpot_s == 0.02


def test_mean_lengths_lie_above_the_median_and_within_the_context():
    traffic = resolve(request(LLAMA_8B, shapes((H100, 8))).spec).traffic
    inputs, outputs = mean_lengths(traffic, 8192)
    assert 1000 < inputs < 4000
    assert 250 < outputs < 800
    assert mean_lengths(traffic, 900) == (899.0, outputs)
    assert mean_lengths(replace(traffic, input_p50_tokens=500, input_p95_tokens=500), 8192)[0] == 500


def test_another_plan_gets_the_replicas_that_do_the_same():
    before, after = drawn(*planned(LLAMA_8B, A6000)), drawn(*planned(LLAMA_8B, H100))
    assert carried(6, before, after, (2.0, 4.0)) == 3
    assert carried(6, before, after, (4.0, 2.0)) == 12
    assert carried(6, before, before, (4.0, 2.0)) == 6, "the same replica: the same size"
    assert carried(6, before, after, (0.0, 2.0)) == 6
    assert carried(60, before, after, (4.0, 2.0)) == after.most

"""The explanation is the decision: its reasons, its figures, each once, whatever is asked."""

import json
from dataclasses import replace
from math import isclose

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.plan_support import (
    A100_80,
    A6000,
    H100,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_32B,
    QWEN_MOE_FP8,
    decide,
    explained,
    request,
    shapes,
    written,
)
from planner.worlds import cases
from shardwright.api.defaults import resolve
from shardwright.api.status import CalibrationStatus
from shardwright.planner.choice import plan
from shardwright.planner.explanation import curves, walk
from shardwright.planner.explanation.build import case_of, explain, full_explanation, with_curves
from shardwright.planner.explanation.document import Explanation, Service
from shardwright.planner.explanation.recorded import recorded
from shardwright.planner.explanation.text import candidate_lines, short_text, whole_text
from shardwright.planner.performance.rate import figures
from shardwright.planner.replica import planned_request
from shardwright.planner.report import plan_status
from shardwright.planner.types import Correction, NoPlan, Plan

CHAT = Service(namespace="team-a", name="chat")
BUSY = {
    "workload": {"requestsPerMinute": 360},
    "slo": {"ttft": {"percentile": 95, "milliseconds": 1000}, "tpot": {"percentile": 95, "milliseconds": 50}},
}


def whole(asked):
    """The whole explanation of a request."""
    return full_explanation(case_of(CHAT, asked, plan(asked)), asked)


def answers(found):
    return {step.question: f"{step.answer}: {step.because}" for step in found.questions}


@pytest.mark.parametrize(
    ("model", "nodes", "spec", "expected"),
    [
        (LLAMA_8B, [(H100, 8)], {}, {
            walk.ONE: "Yes: it holds 15.0 GiB of weights", walk.ISLAND: "Not asked: one GPU holds it",
            walk.BEYOND: "Not asked: an earlier", walk.EXPERTS: "Not asked: the model is dense",
        }),
        (LLAMA_70B, [(H100, 8)], {}, {
            walk.ONE: "No: weights 131.4 GiB", walk.ISLAND: "TP4: each GPU holds 32.9 GiB of weights",
        }),
        (QWEN_32B, [(A6000, 4)], {}, {
            walk.ONE: "No: weights", walk.ISLAND: "None: TP2: it fits, but its 2 ranks would talk over PCIe",
            walk.BEYOND: "Yes, TP1·PP2: 2 stages over the islands of one node",
        }),
        (QWEN_32B, [(A6000, 4)], {"pool": {"interconnect": {"policy": "Any"}}}, {
            walk.ONE: "No: weights", walk.BEYOND: "Yes, TP2: ranks without NVLink, which the policy allows",
        }),
        (LLAMA_8B, [(H100, 8)], {"parallelism": {"tensor": 2}}, {
            walk.ONE: "Not asked: parallelism.tensor is 2.", walk.ISLAND: "Not asked: parallelism.tensor is 2; each",
        }),
        (LLAMA_70B_FP8, [(H100, 8)], {**BUSY, "pool": {"maxGPUs": 32}}, {
            walk.ONE: "Yes, but: one replica takes 5 requests a minute", walk.ISLAND: "TP2: ",
            walk.KEPT: "Yes: TTFT P95 ", walk.REPLICAS: "H100 TP2 ×2: 360 requests a minute over 2 replicas, of which one takes ",
        }),
        (QWEN_MOE_FP8, [(H100, 8)], {"parallelism": {"tensor": 2, "expert": "Enabled"}}, {
            walk.EXPERTS: "Yes, TP2·EP: 128 experts over 2 GPUs",
        }),
        (QWEN_MOE_FP8, [(H100, 8)], {"parallelism": {"tensor": 2}}, {walk.EXPERTS: "No: TP2·EP: it fits"}),
    ],
)  # fmt: skip
def test_the_questions_are_answered_with_the_decisions_own_figures(model, nodes, spec, expected):
    found = answers(explained(request(model, shapes(*nodes), **spec)))
    assert list(found) == [walk.ONE, walk.ISLAND, walk.BEYOND, walk.EXPERTS, walk.KEPT, walk.REPLICAS]
    for question, start in expected.items():
        assert found[question].startswith(start), found[question]


def test_no_plan_is_said_with_the_questions_and_the_candidates():
    asked = request("meta-llama/Meta-Llama-3.1-405B-Instruct", shapes((H100, 8)))
    found = explained(asked)
    assert (found.planned, found.reason, found.answer.verdict) == (False, "NeedsMultiNode", "NoPlan")
    assert [step.verdict for step in found.questions] == ["No", "No", "No"]
    told = whole_text(found)
    assert told.startswith("team-a/chat: no plan, NeedsMultiNode\n")
    assert "TP8·PP2: NeedsMultiNode: it takes a group of 2 nodes" in told
    assert short_text(found).startswith("No plan: NeedsMultiNode\n")


def test_the_status_holds_the_same_candidates_in_the_same_order():
    decision = decide(LLAMA_70B, shapes((H100, 8), (A6000, 4)))
    assert isinstance(decision, Plan)
    status = plan_status(decision, "abcd1234")
    assert [c.arrangement for c in status.candidates] == [c.arrangement for c in decision.candidates]
    assert status.candidates[0].reason == "Chosen"
    assert all(c.message for c in status.candidates)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases)
def test_every_explanation_is_its_decision(case):
    """Candidates once, figures of the plan, curves through the planned point, a document that reads back."""
    asked = case.asked()
    decision = plan(asked)
    case = case_of(CHAT, asked, decision)
    found = with_curves(explain(case), case)
    assert Explanation.model_validate_json(found.model_dump_json(by_alias=True)) == found
    assert [c.arrangement for c in found.candidates] == [c.arrangement for c in decision.candidates]
    lines = candidate_lines(found.candidates)
    told = whole_text(found)
    for candidate in decision.candidates:
        line = f"  {candidate.arrangement}: {candidate.reason.value}: {candidate.message}"
        assert lines.count(line) == 1
        assert told.count(f"  {candidate.arrangement}: {candidate.reason.value}: ") == 1
    assert {r.name for r in found.reasons} == {c.reason for c in found.candidates}
    if isinstance(decision, NoPlan):
        assert found.choice is None
        assert found.message == decision.message
        return
    assert found.choice.summary == decision.summary
    assert found.choice.binding_constraint == decision.binding_constraint
    chosen = next(c for c in found.candidates if c.reason == "Chosen")
    if decision.replicas == chosen.replicas:
        assert found.choice.price_per_hour == chosen.price_per_hour
    assert isclose(sum(s.gib for s in found.memory.shares), found.memory.visible_gib, abs_tol=0.05)
    check_times(asked, decision, found)


def check_times(asked, decision, found):
    """The model, asked for the recorded load, gives the recorded figures; the terms add up to the medians."""
    if decision.speed is None:
        assert found.prediction is None
        assert found.curves is None
        return
    resolved, times = resolve(asked.spec), found.prediction
    again = figures(planned_request(decision, resolved, asked.engine), curves._targets(resolved))
    assert isclose(again.ttft_ms, decision.speed.ttft_ms, rel_tol=1e-9)
    assert isclose(again.tpot_ms, decision.speed.tpot_ms, rel_tol=1e-9)
    point = next(p for p in found.curves.points if p.load == found.curves.planned)
    for time in (times.ttft, times.tpot):
        here = next(t for t in point.times if t.percentile == time.percentile)
        assert (here.ttft_ms if time.name == "TTFT" else here.tpot_ms) == time.judged_ms
        assert isclose(sum(t.ms for t in time.terms), time.median_ms, abs_tol=0.06)
        if time.stated and found.load.stated is not None:
            assert time.kept
    loads = [p.load for p in found.curves.points]
    assert loads == sorted(set(loads))
    for name in ("ttft_ms", "tpot_ms"):
        for at in range(len(found.curves.percentiles)):
            line = [getattr(p.times[at], name) for p in found.curves.points]
            assert line == sorted(line)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([LLAMA_8B, LLAMA_70B_FP8, QWEN_MOE_FP8]),
    st.lists(st.tuples(st.sampled_from([H100, A100_80, L40S]), st.sampled_from([2, 4, 8])), min_size=1, max_size=2, unique=True),
    st.integers(10, 3000), st.integers(200, 4000), st.integers(8, 100),
)  # fmt: skip
def test_cost_against_a_target_is_the_decision_at_that_target(model, pool, rate, ttft, tpot):
    slo = {"ttft": {"percentile": 95, "milliseconds": ttft}, "tpot": {"percentile": 95, "milliseconds": tpot}}
    asked = request(model, shapes(*pool), workload={"requestsPerMinute": rate}, slo=slo)
    found = whole(asked)
    for curve in found.cost:
        name = curve.target.lower()
        assert curve.current_ms == slo[name]["milliseconds"]
        here = next(p for p in curve.points if p.target_ms == curve.current_ms)
        assert here.summary == (found.choice.summary if found.choice else None)
        for point in curve.points[::6]:
            other = {**slo, name: {"percentile": 95, "milliseconds": point.target_ms}}
            again = decide(model, shapes(*pool), workload={"requestsPerMinute": rate}, slo=other)
            assert point.summary == (again.summary if isinstance(again, Plan) else None)


def test_a_recorded_plan_tells_what_was_frozen_and_what_was_not():
    asked = request(LLAMA_70B, shapes((H100, 8), (A100_80, 8)), **BUSY)
    decision = plan(asked)
    fresh, report = whole(asked), plan_status(decision, "0123abcd")
    found = recorded(CHAT, asked.spec, replace(decision, candidates=()), report, engine=asked.engine)
    assert found.source.revision == "0123abcd"
    for part in ("choice", "prediction", "memory", "curves", "load", "answer", "notes"):
        assert getattr(found, part) == getattr(fresh, part), part
    assert [(c.arrangement, c.reason, c.message) for c in found.candidates] == [
        (c.arrangement, c.reason, c.message) for c in fresh.candidates
    ]
    assert [s.answer for s in found.questions] == [s.answer for s in fresh.questions]
    assert found.cost == ()
    assert "kubectl get lsvc chat -n team-a -o yaml | shardwright explain -f -" in str(
        found.source.not_recorded
    )
    assert found.candidates[0] == fresh.candidates[0]
    assert {c.ttft_ms for c in found.candidates[1:]} == {None}


def test_figures_of_another_model_or_workload_are_told_without_terms_and_curves():
    asked = request(LLAMA_70B, shapes((H100, 8)), **BUSY)
    decision = plan(asked)
    other = replace(decision, speed=replace(decision.speed, ttft_ms=decision.speed.ttft_ms * 1.1))
    old = replace(decision, speed=replace(decision.speed, load=None, slots=None, kv_room_tokens=None))
    for was in (other, old):
        report = plan_status(was, "0123abcd")
        found = recorded(CHAT, asked.spec, was, report, engine=asked.engine)
        assert found.curves is None
        assert (found.prediction.ttft.median_ms, found.prediction.ttft.terms) == (None, ())
        assert found.prediction.ttft.judged_ms == round(was.speed.ttft_ms)
        assert any("latency model" in sentence for sentence in found.source.not_recorded)


def test_what_was_measured_of_this_revision_is_told_and_of_another_is_not():
    asked = request(LLAMA_8B, shapes((H100, 8)))
    decision = plan(asked)
    figure = {
        "name": "TTFT",
        "reason": "AsPredicted",
        "ratio": "1.04",
        "measured": "130.00",
        "predicted": "125.00",
        "samples": 80,
    }
    for revision, told in (("0123abcd", True), ("ffffffff", False)):
        measured = CalibrationStatus.model_validate(
            {
                "revision": revision,
                "source": "Pods",
                "figures": [figure],
                "measuredAt": "2026-01-01T00:00:00Z",
            }
        )
        report = plan_status(decision, "0123abcd")
        found = recorded(CHAT, asked.spec, decision, report, engine=asked.engine, calibration=measured)
        assert (found.measured is not None) is told
        assert (
            "TTFT      130.0 where 125.0 is predicted, 1.04 times (AsPredicted); 80 samples"
            in whole_text(found)
        ) is told


def test_what_was_measured_before_is_a_term_of_its_own():
    asked = request(LLAMA_8B, shapes((H100, 8)), **BUSY)
    asked = replace(
        asked, corrections={(LLAMA_8B, H100): Correction(ttft=1.3, tpot=0.9, memory=1.2, requests=500)}
    )
    found = whole(asked)
    for time, sign in ((found.prediction.ttft, 1), (found.prediction.tpot, -1)):
        [measured] = [t for t in time.terms if t.name == "Measured"]
        assert measured.ms * sign > 0
        assert isclose(sum(t.ms for t in time.terms), time.median_ms, abs_tol=0.06)
        assert f"{measured.ms:.2f}  What such engines" in whole_text(found)
    assert [s.item for s in found.memory.shares if s.item == "Measured beyond"]
    assert isclose(sum(s.gib for s in found.memory.shares), found.memory.visible_gib, abs_tol=0.05)


def test_candidates_that_cannot_be_read_back_keep_their_sentence():
    asked = request(LLAMA_70B, shapes((H100, 8)))
    decision = plan(asked)
    report = plan_status(decision, "0123abcd")
    broken = [
        c.model_copy(update={"arrangement": c.arrangement[:20] + "…"}) if n == 1
        else c.model_copy(update={"reason": "FromTomorrow"}) if n == 2 else c
        for n, c in enumerate(report.candidates)
    ]  # fmt: skip
    found = recorded(
        CHAT, asked.spec, decision, report.model_copy(update={"candidates": broken}), engine=asked.engine
    )
    assert sorted(c.arrangement for c in found.candidates) == sorted(c.arrangement for c in broken)
    assert sum(c.parallelism is None for c in found.candidates) == 2


def test_too_few_replicas_of_another_writer_are_no_kept_target():
    asked = request(
        LLAMA_8B,
        shapes((H100, 8)),
        workload={"requestsPerMinute": 4000},
        scaling={"mode": "External"},
        replicas=1,
    )
    found = explained(asked)
    assert found.answer.verdict == "NotKept"
    assert "more replicas than run" in found.answer.keeps


def test_text_is_the_documents_own_words():
    asked = request(LLAMA_70B_FP8, shapes((H100, 8), (L40S, 4)), **BUSY)
    found = whole(asked)
    told = whole_text(found)
    for step in found.questions:
        assert f"{step.question} {step.answer}: {step.because}" in told
    for sentence in (found.answer.runs, found.answer.costs, found.answer.keeps, found.answer.limits):
        assert sentence in told
    assert json.loads(found.model_dump_json(by_alias=True))["choice"]["pricePerHour"] == 15.96
    assert "15.96" in told
    assert written(plan(asked), short=True).startswith("Plan: H100 TP2 ×2\n")

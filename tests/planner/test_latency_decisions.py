"""Named decisions with their load and pool: what keeps the targets at the lowest price, and what is said else.

The figures are the model's predictions, not measurements: a refit of its constants may move a border.
"""

import copy
import re

import pytest

from planner.plan_support import (
    A100_40,
    A100_80,
    A6000,
    H100,
    H200,
    L4,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_32B,
    QWEN_MOE_FP8,
    decide,
    explained,
    reasons,
    request,
    shapes,
    written,
)
from shardwright.api.reasons import Reason
from shardwright.planner.choice import plan
from shardwright.planner.report import plan_status
from shardwright.planner.types import NoPlan, Plan

FP8_405B = "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8"
MIXTRAL = "mistralai/Mixtral-8x7B-Instruct-v0.1"
SHORT = {"inputTokens": {"p50": 200, "p95": 400}, "outputTokens": {"p50": 100, "p95": 200}}
LONG = {"inputTokens": {"p50": 4000, "p95": 8000}, "outputTokens": {"p50": 200, "p95": 400}}
STARVED = {"inputTokens": {"p50": 500, "p95": 1000}, "outputTokens": {"p50": 200, "p95": 400}}
NODE = ((H100, 8),)
CHEAP_AND_FAST = ((H100, 8), (L40S, 4))
ANY, PREFER = ({"interconnect": {"policy": p}} for p in ("Any", "PreferNVLink"))


def slo(ttft=None, tpot=None, **more):
    found = {"ttft": ttft, "tpot": tpot}
    return {k: {"percentile": 95, "milliseconds": v} for k, v in found.items() if v} | more


def rate(requests, **more):
    return {"requestsPerMinute": requests, **more}


def planned(decision):
    assert isinstance(decision, Plan), decision.message
    return decision


def summary(decision):
    return planned(decision).summary


# name: (model, pool, spec, the plan)
DECISIONS = {
    "needs all eight, fits one": (
        LLAMA_8B, NODE, {"pool": {"maxGPUs": 8}, "workload": rate(4900), "slo": slo(2000, 50)}, "H100 TP1 ×8",
    ),
    "needs all eight, fits two": (
        LLAMA_70B_FP8, NODE, {"pool": {"maxGPUs": 8}, "workload": rate(850), "slo": slo(2000, 50)},
        "H100 TP2 ×4",
    ),
    "needs all eight, fits four": (
        LLAMA_70B, NODE, {"pool": {"maxGPUs": 8}, "workload": rate(450), "slo": slo(2000, 50)}, "H100 TP4 ×2",
    ),
    "needs all eight, fits eight": (
        FP8_405B, NODE, {"pool": {"maxGPUs": 8}, "workload": rate(80), "slo": slo(3000, 60)}, "H100 TP8 ×1",
    ),
    "low load takes one GPU": (
        LLAMA_8B, NODE, {"workload": rate(60), "slo": slo(1000, 50)}, "H100 TP1 ×1",
    ),
    "low load takes the smallest engine": (
        LLAMA_70B, NODE, {"workload": rate(10), "slo": slo(2000, 50)}, "H100 TP2 ×1",
    ),
    "more load takes the larger engine that shares its weights": (
        LLAMA_70B, NODE, {"workload": rate(60), "slo": slo(2000, 50)}, "H100 TP4 ×1",
    ),
    "a card starved of KV does for a trickle": (
        LLAMA_70B_FP8, NODE, {"workload": rate(10, **STARVED), "slo": slo(2000, 60)}, "H100 TP1 ×1",
    ),
    "a card starved of KV loses to two as soon as there is load": (
        LLAMA_70B_FP8, NODE, {"workload": rate(120, **STARVED), "slo": slo(2000, 60)}, "H100 TP2 ×1",
    ),
    "the cheap product wins for an 8B": (
        LLAMA_8B, CHEAP_AND_FAST, {"workload": rate(120), "slo": slo(tpot=60)}, "L40S TP1 ×1",
    ),
    "the cheap product loses at 20 ms": (
        LLAMA_8B, CHEAP_AND_FAST, {"workload": rate(120), "slo": slo(tpot=20)}, "H100 TP1 ×1",
    ),
    "8 ms take two where one fits": (
        LLAMA_8B, CHEAP_AND_FAST, {"workload": rate(120), "slo": slo(tpot=8)}, "H100 TP2 ×1",
    ),
    "50 ms for a 70B FP8 on one large card": (
        LLAMA_70B_FP8, ((H200, 8),), {"workload": rate(30), "slo": slo(tpot=50)}, "H200 TP1 ×1",
    ),
    "20 ms for it take two though one fits": (
        LLAMA_70B_FP8, ((H200, 8),), {"workload": rate(30), "slo": slo(tpot=20)}, "H200 TP2 ×1",
    ),
    "short prompts over PCIe under Any": (
        LLAMA_70B, ((A6000, 8),), {"pool": ANY, "workload": rate(10, **SHORT), "slo": slo(1500, 120)},
        "A6000 TP4 ×1",
    ),
    "long prompts in stages under PreferNVLink": (
        LLAMA_70B, ((A6000, 8),), {"pool": PREFER, "workload": rate(10, **LONG), "slo": slo(tpot=500)},
        "A6000 TP1·PP5 ×1",
    ),
    "a mixture of experts on two": (
        MIXTRAL, NODE, {"workload": rate(60), "slo": slo(1000, 50)}, "H100 TP2 ×1",
    ),
    "a small mixture of experts on one": (
        QWEN_MOE_FP8, NODE, {"workload": rate(430), "slo": slo(1000, 50)}, "H100 TP1 ×1",
    ),
    "MLA at TP8, its KV in every rank": (
        "deepseek-ai/DeepSeek-V3", ((H200, 8),), {"workload": rate(60), "slo": slo(5000, 80)}, "H200 TP8 ×1",
    ),
    "voice on the cheapest that is quick enough": (
        LLAMA_8B, ((L4, 4), (L40S, 4), (H100, 8)),
        {"workload": rate(120, profile="Voice"), "slo": slo(400, 40)}, "L40S TP1 ×1",
    ),
    "the fastest within the budget": (
        LLAMA_8B, NODE, {"pool": {"maxGPUs": 4}, "workload": rate(600), "slo": slo(optimizeFor="Latency")},
        "H100 TP4 ×1",
    ),
    "nothing stated: the cheapest that holds it": (
        LLAMA_8B, ((H100, 8), (L40S, 4), (A6000, 4)), {}, "A6000 TP1 ×1",
    ),
    "requests in flight over replicas": (
        LLAMA_8B, NODE, {"workload": {"concurrency": 400}, "slo": slo(1000, 50)}, "H100 TP1 ×4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECISIONS)
def test_decision(name):
    model, pool, spec, expected = DECISIONS[name]
    assert summary(decide(model, shapes(*pool), **copy.deepcopy(spec))) == expected


def test_a_whole_node_is_a_large_failure_domain_and_told():
    model, pool, spec, _ = DECISIONS["needs all eight, fits eight"]
    assert any("takes all 8 GPUs of a node" in n for n in planned(decide(model, shapes(*pool), **spec)).notes)
    model, pool, spec, _ = DECISIONS["needs all eight, fits four"]
    assert not any("of a node" in n for n in planned(decide(model, shapes(*pool), **spec)).notes)


class TestFigures:
    def test_a_plan_says_what_it_predicts(self):
        found = planned(decide(LLAMA_70B_FP8, shapes((H100, 8)), workload=rate(430), slo=slo(2000, 50)))
        status = plan_status(found, "abcd1234")
        assert status.replicas == 2
        assert status.price_per_hour == "15.96"
        assert 0 < status.ttft_milliseconds < 2000
        assert 0 < float(status.tpot_milliseconds) < 50
        assert (status.ttft_percentile, status.tpot_percentile) == (95, 95)
        assert 215 <= status.requests_per_minute_per_replica < 430
        assert "times the prediction (dense FP8 on H100" in status.error_band
        told = written(found)
        assert "15.96 an hour in all" in told
        assert "requests a minute; beyond that the engine's batch or its KV cache is full" in told

    def test_the_kv_cache_holds_what_runs_at_long_lengths(self):
        found = planned(decide(LLAMA_70B_FP8, shapes((H100, 8)), workload=rate(600), slo=slo(2000, 50)))
        assert found.planned_concurrency * 4400 == found.required_kv_tokens
        assert found.required_kv_tokens <= found.estimate.promised_kv_tokens
        assert found.planned_concurrency >= found.speed.running

    def test_a_percentile_counts(self):
        spec = {"workload": rate(120)}
        tight = {"tpot": {"percentile": 95, "milliseconds": 9}}
        loose = {"tpot": {"percentile": 50, "milliseconds": 9}}
        first = planned(decide(LLAMA_8B, shapes((H100, 8)), slo=tight, **spec))
        second = planned(decide(LLAMA_8B, shapes((H100, 8)), slo=loose, **spec))
        assert second.speed.most > first.speed.most or second.gpus_per_replica < first.gpus_per_replica

    def test_each_losing_arrangement_says_its_target(self):
        found = reasons(decide(LLAMA_8B, shapes(*CHEAP_AND_FAST), workload=rate(120), slo=slo(tpot=8)))
        assert found[f"{H100} TP1"] == "TPOTTooHigh"
        assert found[f"{L40S} TP1"] == "TPOTTooHigh"
        assert found[f"{H100} TP4"] == "LargerThanNeeded"
        slow = reasons(decide(LLAMA_8B, shapes((H100, 8), (L4, 4)), workload=rate(60), slo=slo(ttft=500)))
        assert slow[f"{L4} TP1"] == "TTFTTooHigh"

    def test_replicas_stay_within_scaling(self):
        few = decide(LLAMA_8B, shapes((H100, 8)), workload=rate(60), scaling={"minReplicas": 3})
        assert planned(few).replicas == 3
        external = decide(
            LLAMA_8B, shapes((H100, 8)), workload=rate(2200), slo=slo(1000, 50),
            scaling={"mode": "External"}, replicas=1,
        )  # fmt: skip
        assert planned(external).replicas == 1
        assert any("takes 4 replicas, and spec.replicas is 1" in note for note in external.notes)


class TestUnstatedTargets:
    """Those of the profile never refuse and never choose what costs more; they are told."""

    def test_they_refuse_nothing(self):
        found = planned(decide("Qwen/Qwen3-14B", shapes((A6000, 4)), workload=rate(5)))
        assert any("Chat profile's targets are not all kept" in note for note in found.notes)
        assert plan_status(found, "").missed_targets
        assert found.gpus_per_replica == 1
        stated = planned(decide("Qwen/Qwen3-14B", shapes((A6000, 4)), workload=rate(5), slo=slo(1000, 50)))
        assert stated.gpus_per_replica > 1
        assert plan_status(stated, "").missed_targets is None

    def test_they_add_no_replica_and_what_they_would_take_is_told(self):
        spec = {"workload": rate(100), "pool": {"maxGPUs": 16}}
        found = planned(decide("Qwen/Qwen3-8B", shapes((A6000, 4, 4)), **copy.deepcopy(spec)))
        loose = planned(decide("Qwen/Qwen3-8B", shapes((A6000, 4, 4)), slo=slo(60_000, 60_000), **spec))
        assert loose.replicas == found.replicas == 1
        [told] = [a.message for a in found.advice if a.reason.value == "ReplicasForProfile"]
        more = re.search(r"for ([\d.]+) an hour for (\d+) replicas instead of ([\d.]+) an hour", told)
        assert float(more[1]) == pytest.approx(int(more[2]) * float(more[3]))
        kept = planned(
            decide("Qwen/Qwen3-8B", shapes((A6000, 4, 4)), scaling={"minReplicas": int(more[2])}, **spec)
        )
        one_less = planned(
            decide("Qwen/Qwen3-8B", shapes((A6000, 4, 4)), scaling={"minReplicas": int(more[2]) - 1}, **spec)
        )
        assert not any(a.reason.value == "ReplicasForProfile" for a in kept.advice)
        assert one_less.speed.missed
        assert len(kept.speed.missed) < len(one_less.speed.missed)

    @pytest.mark.parametrize("most", [2, 4, 16])
    def test_a_larger_budget_costs_no_more_for_them(self, most):
        spec = {"workload": rate(215), "slo": slo(ttft=20_000), "pool": {"maxGPUs": most}}
        assert summary(decide(LLAMA_8B, shapes((A6000, 8, 2)), **spec)) == "A6000 TP1 ×2"

    @pytest.mark.parametrize("most", [8, 16])
    def test_no_replica_that_the_nodes_do_not_hold_is_added_for_them(self, most):
        spec = {"workload": rate(185), "pool": {"maxGPUs": most}}
        found = planned(decide(LLAMA_70B, shapes((A100_40, 8), (A100_40, 2)), **spec))
        assert found.replicas == 1
        assert not any("the load takes" in note for note in found.notes)

    def test_what_one_replica_takes_is_said_once(self):
        """The page's first lines and its questions name the same load of one replica."""
        asked = request(LLAMA_8B, shapes((A6000, 8, 2)), workload=rate(300), slo=slo(ttft=20_000))
        found = explained(asked)
        first = re.search(r"One replica takes ([\d.]+) requests a minute", found.answer.limits)[1]
        last = re.search(r"of which one takes ([\d.]+)", found.questions[-1].because)[1]
        assert first == last

    def test_what_is_not_predicted_is_planned_and_told(self):
        asked = request(LLAMA_8B, shapes((H100, 8)), workload=rate(60), slo=slo(1000, 50))
        blind = {**asked.products, H100: asked.products[H100].__class__(**{
            **{f: getattr(asked.products[H100], f) for f in asked.products[H100].__slots__},
            "memory_gbytes_s": None,
        })}  # fmt: skip
        found = planned(plan(type(asked)(
            spec=asked.spec, models=asked.models, pool=asked.pool, engine=asked.engine, products=blind,
        )))  # fmt: skip
        assert found.speed is None
        assert any("latency is not predicted (memory_gbytes_s" in note for note in found.notes)
        assert plan_status(found, "").ttft_milliseconds is None


REFUSED = {
    "no GPU is as quick": (LLAMA_8B, NODE, {"slo": slo(tpot=2)}, Reason.SLO_OUT_OF_REACH),
    "nor for the first token": (LLAMA_8B, ((A6000, 4),), {"slo": slo(ttft=100)}, Reason.SLO_OUT_OF_REACH),
    "nor under load": (
        LLAMA_8B, NODE, {"workload": rate(600), "slo": slo(50, 3), "pool": {"maxGPUs": 8}},
        Reason.SLO_OUT_OF_REACH,
    ),
    "the quick one is beyond the budget": (
        LLAMA_8B, NODE, {"workload": rate(60), "slo": slo(tpot=8), "pool": {"maxGPUs": 1}},
        Reason.SLO_OUT_OF_REACH,
    ),
    "more load than the budget": (
        LLAMA_8B, NODE, {"workload": rate(12_000), "slo": slo(1000, 50), "pool": {"maxGPUs": 2}},
        Reason.LOAD_TOO_HIGH,
    ),
    "more load than maxReplicas": (
        LLAMA_8B, NODE, {"workload": rate(12_000), "scaling": {"maxReplicas": 2}}, Reason.LOAD_TOO_HIGH,
    ),
    "a target that the load breaks": (
        LLAMA_8B, NODE, {"workload": rate(900), "slo": slo(tpot=12), "pool": {"maxGPUs": 1}},
        Reason.LOAD_TOO_HIGH,
    ),
    "more load than one card's cache holds": (
        LLAMA_70B_FP8, ((H100, 1),), {"workload": rate(60, **STARVED), "slo": slo(2000, 60), "pool": {"maxGPUs": 1}},
        Reason.LOAD_TOO_HIGH,
    ),
    "too many in flight for a target": (
        LLAMA_8B, NODE, {"workload": {"concurrency": 90}, "slo": slo(tpot=12), "pool": {"maxGPUs": 1}},
        Reason.LOAD_TOO_HIGH,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_refusal_advises_is_enough(name):
    """Every change that names a figure is tried alone: it leads to a plan."""
    model, pool, spec, reason = REFUSED[name]
    decision = decide(model, shapes(*pool), **copy.deepcopy(spec))
    assert isinstance(decision, NoPlan)
    assert decision.reason is reason
    advice = decision.message.split(": write ", 1)[1].split(";")[0]
    for change in advice.split(", or "):
        found = re.findall(r"(slo\.\w+\.milliseconds|pool\.maxGPUs|scaling\.maxReplicas) (\d+)", change)
        found += re.findall(r"(model\.allowedKVCacheDtypes) (\[Auto, FP8\])", change)
        assert found, change
        altered = copy.deepcopy(spec)
        for field, number in found:
            *parents, last = field.split(".")
            where = altered
            for parent in parents:
                where = where.setdefault(parent, {})
            where[last] = ["Auto", "FP8"] if last == "allowedKVCacheDtypes" else int(number)
        assert isinstance(decide(model, shapes(*pool), **altered), Plan), change


def test_a_refusal_names_the_term_and_the_best_figure():
    decision = decide(LLAMA_8B, shapes((A6000, 1)), slo=slo(tpot=10))
    assert isinstance(decision, NoPlan)
    for part in ("slo.tpot allows 10 ms", "most of it is reading the weights", "slo.tpot.milliseconds"):
        assert part in decision.message


@pytest.mark.parametrize("spec", [{}, {"workload": {"profile": "Voice"}}])
def test_without_a_load_or_a_target_one_gpu_comes_before_two_cheaper_ones(spec):
    """The rule of earlier versions: price decides only between what a stated load or target is judged for."""
    pool = ((A100_80, 4), (A6000, 4))
    asked = decide(QWEN_32B, shapes(*pool), pool=ANY, **spec, slo=slo(tpot=200))
    assert summary(asked).startswith("A6000 TP")
    assert summary(decide(QWEN_32B, shapes(*pool), pool=ANY, **spec)).startswith("A100-80 TP1")

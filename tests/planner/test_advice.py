"""Advice from practice: each kind has a decision that gives reason to it, with true figures, and one that does not."""

import copy
import re

import pytest

from planner.plan_support import (
    A6000,
    H100,
    H200,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    decide,
    explained,
    on_record,
    request,
    shapes,
    written,
)
from shardwright.api.defaults import resolve
from shardwright.api.reasons import AdviceReason
from shardwright.catalog.models import load_models
from shardwright.planner.choice import plan
from shardwright.planner.performance.rate import Replica, Targets
from shardwright.planner.replica import planned_request
from shardwright.planner.report import plan_status
from shardwright.planner.types import NoPlan, Plan
from shardwright.render.revision import read_revision

NODE = ((H100, 8),)
MIXED = ((L40S, 4, 4), (H100, 8))
PAIRS = {"interconnect": {"policy": "Any", "bridges": "Pairs"}}
KIMI_INT4 = "moonshotai/Kimi-K2.5"
V3 = "deepseek-ai/DeepSeek-V3"
FP8_405B = "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8"


def slo(**targets):
    return {name: {"percentile": 95, "milliseconds": ms} for name, ms in targets.items()}


def pinned(**degrees):
    return {"parallelism": degrees}


# reason: (a decision with it, what its sentence holds), (the decision without)
KINDS = {
    "LoadAssumed": (
        (LLAMA_8B, NODE, {"slo": slo(tpot=50)}, "8 requests in flight in a replica are assumed"),
        (LLAMA_8B, NODE, {"slo": slo(tpot=50), "workload": {"requestsPerMinute": 60}}),
    ),
    "PinnedAboveOneGPU": (
        (LLAMA_8B, NODE, pinned(tensor=4), "one H100 holds it as well: 3.99 an hour instead of 15.96"),
        (LLAMA_70B, NODE, pinned(tensor=4)),
    ),
    "KVCacheDecides": (
        (LLAMA_70B_FP8, NODE, {}, "the weights fit 1 GPU, and only the KV cache takes 2"),
        (LLAMA_8B, NODE, {}),
    ),
    "TensorOverPCIe": (
        (LLAMA_70B, ((A6000, 8),), {"pool": {"interconnect": {"policy": "Any"}}}, "4 tensor ranks have no NVLink"),
        (LLAMA_70B, NODE, {}),
    ),
    "TensorBeyondIsland": (
        (LLAMA_70B, ((A6000, 2), (A6000, 8)), {"pool": PAIRS, **pinned(tensor=4)}, "more than the 2 GPUs that NVLink"),
        (LLAMA_70B, ((A6000, 8),), {"pool": {"interconnect": {"policy": "Any"}}}),
    ),
    "StagesForCapacity": (
        (LLAMA_70B, ((A6000, 8),), {}, "pipeline stages are for memory"),
        (LLAMA_70B, NODE, {}),
    ),
    "KVCacheReplicated": (
        (V3, ((H200, 8),), {}, "each of the 8 tensor ranks holds the whole KV cache"),
        (FP8_405B, NODE, {}),
    ),
    "FourBitExperts": (
        (KIMI_INT4, ((H200, 8),), {}, "int4 weights are widened"),
        (V3, ((H200, 8),), {}),
    ),
    "WholeNodeDomain": (
        (LLAMA_70B, NODE, pinned(tensor=8), "takes all 8 GPUs of a node"),
        (LLAMA_70B, NODE, pinned(tensor=4)),
    ),
    "LatencyNeedsOwnGPUs": (
        (LLAMA_8B, NODE, {"workload": {"profile": "Voice"}}, "GPUs of their own"),
        (LLAMA_8B, NODE, {"workload": {"profile": "Chat"}}),
    ),
    "CheaperMix": (
        (
            LLAMA_8B, MIXED, {"workload": {"requestsPerMinute": 720}, "slo": slo(ttft=1500, tpot=60)},
            "% of the traffic",
        ),
        (LLAMA_8B, MIXED, {"workload": {"requestsPerMinute": 100}, "slo": slo(ttft=1500, tpot=60)}),
    ),
    "CheaperOverPCIe": (
        (
            LLAMA_70B, ((A6000, 8, 2),), {"workload": {"requestsPerMinute": 14}, "slo": slo(ttft=8000, tpot=300)},
            "keep what is stated: 3.28 an hour instead of 9.84 an hour for 3 replicas",
        ),
        (LLAMA_70B, ((A6000, 8, 2),), {"workload": {"requestsPerMinute": 20}, "slo": slo(ttft=8000, tpot=200)}),
    ),
    "ReplicasForProfile": (
        (
            LLAMA_8B, ((A6000, 8),), {"workload": {"requestsPerMinute": 300}, "slo": slo(ttft=20_000)},
            "would be kept under the load for",
        ),
        (LLAMA_8B, ((A6000, 8),), {"workload": {"requestsPerMinute": 300}, "slo": slo(ttft=20_000, tpot=100)}),
    ),
}  # fmt: skip


def planned(model, pool, spec):
    found = decide(
        model, shapes(*pool, bridges="Pairs" if spec.get("pool") == PAIRS else "None"), **copy.deepcopy(spec)
    )
    assert isinstance(found, Plan), found.message
    return found


def test_every_kind_has_its_decisions():
    assert list(KINDS) == [reason.value for reason in AdviceReason]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_told_where_there_is_reason_to_and_nowhere_else(kind):
    (model, pool, spec, part), without = KINDS[kind]
    found = planned(model, pool, spec)
    [told] = [a.message for a in found.advice if a.reason.value == kind]
    assert part in told
    assert kind not in {a.reason.value for a in planned(*without).advice}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_in_notes_status_explanation_and_record(kind):
    (model, pool, spec, _), _ = KINDS[kind]
    found = planned(model, pool, spec)
    told = [(a.reason.value, a.message) for a in found.advice]
    assert set(dict(told).values()) <= set(found.notes)
    status = plan_status(found, "0123abcd")
    assert [(a.reason, a.message) for a in status.advice] == told
    assert read_revision(on_record(found)).report.advice == status.advice
    asked = request(model, shapes((H100, 8)))
    document = explained(asked, found)
    assert [(a.reason, a.message) for a in document.advice] == told
    assert all(f"({reason})" in written(found, short=short) for reason, _ in told for short in (True, False))


class TestOneGPU:
    """A pin is only called needless where one GPU keeps the same for no more."""

    def test_a_target_that_one_misses_is_a_reason_for_a_pin(self):
        found = planned(LLAMA_8B, NODE, {**pinned(tensor=2), "slo": slo(tpot=8)})
        assert AdviceReason.PINNED_ABOVE_ONE_GPU not in {a.reason for a in found.advice}

    def test_so_is_low_latency(self):
        found = planned(LLAMA_8B, NODE, {**pinned(tensor=2), "slo": {"optimizeFor": "Latency"}})
        assert AdviceReason.PINNED_ABOVE_ONE_GPU not in {a.reason for a in found.advice}

    @pytest.mark.parametrize("load", [60, 3000, 12000])
    def test_the_price_that_is_told_is_that_of_the_plan_without_the_pin(self, load):
        spec = {
            "workload": {"requestsPerMinute": load},
            "slo": slo(ttft=2000, tpot=50),
            "pool": {"maxGPUs": 64},
        }
        pool = ((H100, 8, 8),)
        found, free = planned(LLAMA_8B, pool, {**spec, **pinned(tensor=2)}), planned(LLAMA_8B, pool, spec)
        each = found.product.price_per_gpu_hour
        cheaper = free.replicas * free.gpus_per_replica <= found.replicas * found.gpus_per_replica
        told = [a.message for a in found.advice if a.reason is AdviceReason.PINNED_ABOVE_ONE_GPU]
        assert bool(told) == (cheaper and free.gpus_per_replica == 1)
        assert all(f"{free.replicas * each:.2f} an hour" in message for message in told)


class TestHalfANode:
    def test_it_is_a_plan_of_its_own_when_pinned(self):
        spec = {"workload": {"requestsPerMinute": 100}, "slo": slo(ttft=2000, tpot=50)}
        found = planned(LLAMA_70B, NODE, {**spec, **pinned(tensor=8)})
        [told] = [a.message for a in found.advice if a.reason is AdviceReason.WHOLE_NODE_DOMAIN]
        tensor, replicas, price = re.search(r"TP(\d) would do .* (\d) replicas? for ([\d.]+)", told).groups()
        half = planned(LLAMA_70B, NODE, {**spec, **pinned(tensor=int(tensor))})
        assert (half.replicas, f"{half.replicas * int(tensor) * half.product.price_per_gpu_hour:.2f}") == (
            int(replicas), price,
        )  # fmt: skip

    def test_where_half_does_not_do_nothing_is_said_of_it(self):
        found = planned(FP8_405B, NODE, {})
        [told] = [a.message for a in found.advice if a.reason is AdviceReason.WHOLE_NODE_DOMAIN]
        assert "would do" not in told


class TestAssumedLoad:
    """A stated target without a load is judged for a lone request: what it means for more is told."""

    @pytest.mark.parametrize("pool", [NODE, ((A6000, 4),), ((L40S, 4),)])
    @pytest.mark.parametrize(
        "targets",
        [{"tpot": 9}, {"tpot": 30}, {"ttft": 400}, {"ttft": 700, "tpot": 45}, {"ttft": 5000, "tpot": 500}],
    )
    @pytest.mark.parametrize("profile", ["Chat", "RAG"])
    def test_the_border_is_the_latency_models(self, pool, targets, profile):
        asked = request(LLAMA_8B, shapes(*pool), slo=slo(**targets), workload={"profile": profile})
        found = plan(asked)
        if isinstance(found, NoPlan):
            return
        [told] = [a.message for a in found.advice if a.reason is AdviceReason.LOAD_ASSUMED]
        found_in = re.search(r"(\d+) requests in flight .*?( not)? holds? there; up to (\d+)", told)
        assumed, broken, most = found_in.groups()
        resolved = resolve(asked.spec)
        one = planned_request(found, resolved, asked.engine)
        wanted = Targets(
            ttft_ms=targets.get("ttft"), ttft_percentile=95, tpot_ms=targets.get("tpot"), tpot_percentile=95,
            p95_input_tokens=float(resolved.traffic.input_p95_tokens),
        )  # fmt: skip

        def kept(number):
            figures = Replica(one).at(wanted, concurrency=float(number))[1]
            return all(over <= 1 for _, over in figures.over(wanted))

        assert kept(int(most))
        assert int(most) == found.speed.slots or not kept(int(most) + 1)
        assert (broken is None) == kept(int(assumed)) == (int(most) >= int(assumed))
        assert found.speed.load == int(assumed)
        assert "workload.requestsPerMinute or workload.concurrency" in told

    def test_the_answer_does_not_call_a_target_kept_that_the_assumed_load_breaks(self):
        asked = request(LLAMA_8B, shapes((A6000, 4)), slo=slo(ttft=700))
        found = plan(asked)
        assert found.speed.in_flight_most < found.speed.load
        answer = explained(asked, found).answer
        assert answer.verdict == "NotKept"
        assert "Not TTFT" in answer.keeps
        assert "8 requests in flight in a replica (no load is stated)" in answer.keeps

    def test_targets_of_the_profile_are_no_promise(self):
        assert not planned(LLAMA_8B, NODE, {}).advice


@pytest.mark.parametrize(("replicas", "nodes"), [(1, 1), (2, 4)])
def test_a_group_over_nodes_is_named_with_its_gpus_and_price(replicas, nodes):
    found = decide(
        "meta-llama/Meta-Llama-3.1-405B-Instruct",
        shapes((H100, 8, nodes)),
        scaling={"minReplicas": replicas},
        pool={"maxGPUs": 64},
    )
    assert isinstance(found, NoPlan)
    assert found.reason.value == "NeedsMultiNode"
    gpus = 16
    assert f"{gpus} GPUs a replica, {gpus * 3.99:.2f} an hour" in found.message


def test_the_catalogue_has_a_mixture_of_experts_in_four_bits():
    assert load_models()[KIMI_INT4].quantization.format.value == "INT4"

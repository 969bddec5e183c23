"""A refusal names the single changes that would do: each of them is made here, and has the plan that is named."""

import copy
import re

import pytest

from planner.plan_support import (
    A100_80,
    A6000,
    H100,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    decide,
    shapes,
)
from shardwright.planner.types import NoPlan, Plan

QUICK = {"slo": {"tpot": {"percentile": 95, "milliseconds": 20}}}
TRICKLE = {"workload": {"requestsPerMinute": 10, "inputTokens": {"p50": 500, "p95": 1000}}}
REQUIRED = {"interconnect": {"policy": "RequireNVLink"}}
ANY = {"interconnect": {"policy": "Any"}}
H100_PCIE = "NVIDIA-H100-PCIe"


def tpot(milliseconds):
    return {"tpot": {"percentile": 99, "milliseconds": milliseconds}}


def without_pins(spec):
    del spec["parallelism"]


def unlinked(spec):
    spec["pool"]["interconnect"] = {"policy": "PreferNVLink"}


def quantised(spec):
    spec["model"] = {"variants": [{"id": LLAMA_70B_FP8}]}


WAYS = {
    "a pin": (
        LLAMA_8B, (A6000, 4), {**QUICK, "parallelism": {"tensor": 1}}, "leave out parallelism.tensor 1", without_pins,
    ),
    "two pins": (
        LLAMA_70B, (H100, 8), {"parallelism": {"tensor": 1, "pipeline": 1}},
        "leave out parallelism.tensor 1 and parallelism.pipeline 1", without_pins,
    ),
    "links": (
        LLAMA_8B, (A6000, 4), {**QUICK, "pool": REQUIRED}, "pool.interconnect.policy PreferNVLink", unlinked,
    ),
    "a quantised checkpoint": (
        LLAMA_70B, (H100, 1), {**TRICKLE, "pool": {"maxGPUs": 1}}, f"{LLAMA_70B_FP8} in model.variants", quantised,
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_would_do_as_well_does(way):
    model, pool, spec, phrase, change = WAYS[way]
    refused = decide(model, shapes(pool), **copy.deepcopy(spec))
    assert isinstance(refused, NoPlan)
    told = refused.message.split(". What would do as well: ")[1]
    found = re.search(re.escape(phrase) + r" \((\S+) on (\S+)\)", told)
    assert found, told
    altered = copy.deepcopy(spec)
    change(altered)
    decision = decide(model, shapes(pool), **altered)
    assert isinstance(decision, Plan)
    assert (str(decision.parallelism), decision.product.short_name) == found.groups()


@pytest.mark.parametrize(
    ("model", "pool", "spec"),
    [
        (LLAMA_8B, (A6000, 1), {**QUICK, "parallelism": {"tensor": 1}}),
        (LLAMA_8B, (L40S, 1), {**QUICK, "pool": REQUIRED}),
        (LLAMA_8B, (A6000, 1), QUICK),
    ],
)
def test_what_would_not_do_is_not_named(model, pool, spec):
    refused = decide(model, shapes(pool), **copy.deepcopy(spec))
    assert isinstance(refused, NoPlan)
    assert not re.search(r"leave out|PreferNVLink", refused.message)


def test_missing_nodes_are_told_beside_the_budget():
    spec = {"workload": {"requestsPerMinute": 60_000}}
    few = decide(LLAMA_8B, shapes((H100, 2)), pool={"maxGPUs": 2}, **spec)
    assert re.search(
        r"write pool.maxGPUs \d+ \(\d+ replicas of TP1 on H100, of which the nodes hold 2: add nodes\)",
        few.message,
    )
    enough = decide(LLAMA_8B, shapes((H100, 8, 16)), pool={"maxGPUs": 2}, **spec)
    assert "write pool.maxGPUs" in enough.message
    assert "add nodes" not in enough.message


BUDGETS = {
    # 693 replicas of one card would do too.
    "stages": (
        LLAMA_70B_FP8, (H100_PCIE, 8), (4, 48), REQUIRED,
        {"model": {"maxContextTokens": 32768}, "workload": {"requestsPerMinute": 2382}, "slo": tpot(81)},
    ),
    # Two replicas of four, as a budget of four has it, take what three of two take.
    "the load shared": (
        LLAMA_70B_FP8, (H100, 8), (4, 6), {},
        {"model": {"maxContextTokens": 8192}, "workload": {"concurrency": 149}, "slo": tpot(57)},
    ),
    # Replicas of two would do too, and alone are what fits a budget of one but for its size.
    "the load shared by what is small": (
        "Qwen/Qwen3-8B-AWQ", ("NVIDIA-GeForce-RTX-4090", 4), (1, 8), ANY,
        {"workload": {"concurrency": 37, "inputTokens": {"p50": 1000, "p95": 3925}}, "slo": tpot(15)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUDGETS)
def test_the_budget_that_is_named_is_the_smallest(name):
    model, pool, (few, gpus), links, spec = BUDGETS[name]

    def decided(budget):
        return decide(model, shapes(pool), **copy.deepcopy(spec), pool={"maxGPUs": budget, **links})

    refused = decided(few)
    assert isinstance(refused, NoPlan)
    assert f"write pool.maxGPUs {gpus} (" in refused.message
    assert isinstance(decided(gpus - 1), NoPlan)
    assert isinstance(decided(gpus), Plan)


def test_the_relaxed_target_that_is_named_is_the_nearest():
    """Four cards at 48 ms would do too, and one replica of eight at 33."""

    def decided(milliseconds):
        lengths = {"inputTokens": {"p50": 400, "p95": 1464}, "outputTokens": {"p50": 50, "p95": 107}}
        return decide(
            "mistralai/Mixtral-8x7B-Instruct-v0.1", shapes((A100_80, 8, 2)), pool={"maxGPUs": 8},
            workload={"requestsPerMinute": 1240, **lengths}, slo=tpot(milliseconds),
        )  # fmt: skip

    refused = decided(29)
    assert isinstance(refused, NoPlan)
    named = int(re.search(r"or slo\.tpot\.milliseconds (\d+)", refused.message)[1])
    assert isinstance(decided(named), Plan)
    assert isinstance(decided(named - 2), NoPlan)

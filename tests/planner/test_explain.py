"""The explanation follows the questions in their order and stops at the one that was answered with yes."""

import pytest

from planner.plan_support import A6000, H100, LLAMA_8B, LLAMA_70B, QWEN_32B, decide, shapes
from shardwright.planner.explain import text
from shardwright.planner.report import plan_status
from shardwright.planner.types import Plan


def questions(written):
    lines = written.splitlines()
    start = lines.index("Questions, in order:") + 1
    return lines[start : lines.index("", start)]


@pytest.mark.parametrize(
    ("model", "nodes", "spec", "answers"),
    [
        (LLAMA_8B, [(H100, 8)], {}, ["one GPU hold it? Yes: one H100"]),
        (LLAMA_70B, [(H100, 8)], {}, ["one GPU hold it? No: weights 131.4 GiB", "does? TP4; for less, TP2: its KV cache"]),
        (QWEN_32B, [(A6000, 4)], {}, ["hold it? No: weights", "None on this product", "stages over the islands of one node? Yes: TP1·PP2"]),
        (
            QWEN_32B, [(A6000, 4)], {"pool": {"interconnect": {"policy": "Any"}}},
            ["hold it? No: weights", "None on this product", "ranks without NVLink, which the policy allows? Yes: TP2"],
        ),
        (LLAMA_8B, [(H100, 8)], {"parallelism": {"tensor": 2}}, ["Not asked: parallelism.tensor is 2.", "Not asked: parallelism.tensor is 2, which holds it"]),
    ],
)  # fmt: skip
def test_the_questions_stop_at_yes(model, nodes, spec, answers):
    found = questions(text(decide(model, shapes(*nodes), **spec)))
    assert len(found) == len(answers)
    for line, answer in zip(found, answers, strict=True):
        assert answer in line


def test_no_plan_is_said_with_its_candidates():
    written = text(decide("meta-llama/Meta-Llama-3.1-405B-Instruct", shapes((H100, 8))))
    assert written.startswith("No plan: NeedsMultiNode\n")
    assert "TP8·PP2: NeedsMultiNode: it takes a group of 2 nodes" in written


def test_the_status_holds_the_same_candidates_in_the_same_order():
    decision = decide(LLAMA_70B, shapes((H100, 8), (A6000, 4)))
    assert isinstance(decision, Plan)
    status = plan_status(decision, "abcd1234")
    assert [c.arrangement for c in status.candidates] == [c.arrangement for c in decision.candidates]
    assert status.candidates[0].reason == "Chosen"
    assert all(c.message for c in status.candidates)

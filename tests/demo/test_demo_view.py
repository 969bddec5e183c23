"""The demo's text and its judgement of a plan."""

import pytest

import demo
import demo_view

PLAN = {
    "summary": "H100 TP4 ×1",
    "model": "meta-llama/Llama-3.3-70B-Instruct",
    "gpuProduct": "NVIDIA-H100-80GB-HBM3",
    "tensor": 4,
    "pipeline": 1,
    "replicas": 1,
    "gpusPerReplica": 4,
    "maxContextTokens": 32768,
    "kvTokens": 380000,
    "maxConcurrency": "11.6",
    "coverage": "measured",
    "bindingConstraint": "weights",
    "memoryBill": [{"item": "weights", "gibibytes": "32.9", "why": ""}],
    "candidates": [],
}
PRODUCTS = {
    "h100-0": "NVIDIA-H100-80GB-HBM3",
    "h100-cordoned": "NVIDIA-H100-80GB-HBM3",
    "l40s-0": "NVIDIA-L40S",
}
EXPECTED = demo.Expected("large-70b.yaml", 4, 1, ("NVIDIA-H100-80GB-HBM3",), "why")


def service(**changes):
    return {"metadata": {"name": "large"}, "status": {"plan": PLAN | changes}}


def pod(node="h100-0", gpus=4):
    container = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {"metadata": {"name": "large-1"}, "spec": {"nodeName": node, "containers": [container]}}


def test_what_the_example_promises_passes():
    assert demo.check(EXPECTED, service(), [pod()], PRODUCTS) == []


@pytest.mark.parametrize(
    ("changes", "pods", "word"),
    [
        ({"tensor": 8}, [pod()], "TP8"),
        ({"pipeline": 2}, [pod()], "PP2"),
        ({}, [], "0 pods"),
        ({}, [pod("l40s-0")], "l40s-0"),
        ({}, [pod("h100-cordoned")], "not to be used"),
        ({}, [pod(gpus=8)], "8 GPUs"),
        ({"gpuProduct": "NVIDIA-L40S"}, [pod("l40s-0")], "planned on NVIDIA-L40S"),
    ],
)
def test_anything_else_is_said(changes, pods, word):
    assert any(word in sentence for sentence in demo.check(EXPECTED, service(**changes), pods, PRODUCTS))


def test_every_reason_is_shown_once_before_any_is_shown_twice():
    reasons = ["WeightsDoNotFit", "WeightsDoNotFit", "WeightsDoNotFit", "Chosen", "KVTooSmall", "OverBudget"]
    candidates = [
        {"arrangement": str(n), "reason": reason, "message": ""} for n, reason in enumerate(reasons)
    ]
    assert [each["arrangement"] for each in demo_view.notable(candidates)] == ["0", "1", "4", "5"]


def test_products_come_before_more_of_the_same():
    names = ["m on A TP2", "m on A TP4", "m on B TP1", "m on C TP1"]
    candidates = [{"arrangement": name, "reason": "CostsMore", "message": ""} for name in names]
    assert [each["arrangement"] for each in demo_view.notable(candidates)] == names
    candidates.insert(1, {"arrangement": "m on A TP3", "reason": "CostsMore", "message": ""})
    assert [each["arrangement"] for each in demo_view.notable(candidates)] == [
        "m on A TP2", "m on A TP3", "m on B TP1", "m on C TP1",
    ]  # fmt: skip


def test_the_bill_reads_as_a_sum():
    lines = [("Visible", "79.19"), ("Weights", "-32.89"), ("KV cache", "46.30"), ("Margin", "-0.72")]
    items = [{"item": item, "gibibytes": gibibytes} for item, gibibytes in lines]
    assert (
        demo_view.bill(items) == "Visible 79.19 - Weights 32.89 = KV cache 46.30, kept back: Margin 0.72 GiB"
    )


def test_long_sentences_wrap_under_their_label(monkeypatch):
    monkeypatch.setattr(demo_view, "width", lambda: 80)
    lines = demo_view.explanation(service(bindingConstraint="weights of two GPUs do not leave room " * 4))
    assert all(len(line) <= 80 for line in lines)
    first = next(number for number, line in enumerate(lines) if line.strip().startswith("because"))
    assert lines[first + 1].startswith(" " * 18)

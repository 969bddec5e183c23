"""Requests and round constants for the latency model's tests."""

from dataclasses import replace

from shardwright.catalog.engines import engine_class
from shardwright.catalog.gpus import load_products
from shardwright.catalog.models import load_models
from shardwright.catalog.performance import PerformanceConstants
from shardwright.planner.performance.types import PerformanceRequest
from shardwright.planner.types import Parallelism

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "nvidia/Llama-3.3-70B-Instruct-FP8"
GPT_OSS = "openai/gpt-oss-120b"
KIMI = "moonshotai/Kimi-K2.5"

ROUND = PerformanceConstants(
    common_bandwidth_share=0.5, expert_bandwidth_share=0.5, kv_bandwidth_share=0.5,
    compute_share_16bit=0.5, compute_share_8bit=0.5, compute_share_experts=0.25,
    blackwell_compute_factor=1.0, attention_compute_share=0.5, nvlink_allreduce_ms=0.01,
    pcie_allreduce_ms=0.1, nvlink_share=0.5, pcie_share=0.5, step_ms=1.0, layer_ms=0.1, routing_ms=0.01,
    sequence_ms=0.01, interference_share=0.5, request_ms=5.0, prefill_layer_ms=0.5,
    prefill_layer_ranks_ms=0.25, prefill_routing_ms=0.05, burst_share=0.1, old_engine_factor=2.0,
    overlap_exponent=4.0, queue_limit=8.0,
)  # fmt: skip


def request(model=LLAMA_8B, gpu="H100", **changes):
    split = Parallelism(
        tensor=changes.pop("tensor", 1),
        pipeline=changes.pop("pipeline", 1),
        data=changes.pop("data", 1),
        expert=changes.pop("expert", False),
    )
    product = replace(load_products()[gpu], **changes.pop("product", {}))
    given = {"input_tokens": 1000, "output_tokens": 200, **changes}
    if "rate_per_s" not in given and "concurrency" not in given:
        given["concurrency"] = 8
    return PerformanceRequest(
        architecture=load_models()[model],
        gpu=product,
        engine=engine_class(given.pop("engine", "0.19.0")),
        parallelism=split,
        **given,
    )

"""One replica of an arrangement as the latency model sees it.

Decides the one question that planning, explaining and comparing with what is measured put to the model, so
that their figures cannot differ. Never predicts.
"""

from dataclasses import replace

from shardwright.api.defaults import Resolved, Traffic
from shardwright.catalog.types import EngineClass, GPUProduct
from shardwright.planner.performance.types import PerformanceRequest
from shardwright.planner.question import Fit
from shardwright.planner.types import Correction, LoadKind, Plan


def planned_request(plan: Plan, resolved: Resolved, engine: EngineClass) -> PerformanceRequest | None:
    """Return the question to the latency model that one replica of a plan is, at its planned load.

    None when no speed is predicted, or when it is from before all that it takes was kept.
    """
    speed = plan.speed
    if speed is None or not speed.load or speed.slots is None or speed.kv_room_tokens is None:
        return None
    asked = replica(
        plan, resolved.traffic, engine, plan.product, slots=speed.slots, kv_room_tokens=speed.kv_room_tokens,
        measured=plan.correction,
    )  # fmt: skip
    if speed.kind is LoadKind.RATE:
        return replace(asked, rate_per_s=speed.load / 60)
    return replace(asked, rate_per_s=None, concurrency=speed.load)


def replica(
    split: Fit | Plan, traffic: Traffic, engine: EngineClass, gpu: GPUProduct, *, slots: int,
    kv_room_tokens: int, measured: Correction | None,
) -> PerformanceRequest:  # fmt: skip
    """Return the question without a load of its own: requests of the workload's mean lengths.

    `slots`: requests that may run at once; `kv_room_tokens`: KV tokens promised to them; `measured`: what was
    measured before and is counted with.
    """
    longest = split.limits.max_model_len
    inputs = max(1.0, min(traffic.input_mean_tokens, longest - 1.0))
    return PerformanceRequest(
        architecture=split.model.architecture,
        gpu=gpu,
        engine=engine,
        parallelism=split.parallelism,
        input_tokens=inputs,
        output_tokens=traffic.output_mean_tokens,
        shared_prefix_tokens=float(min(traffic.shared_prefix_tokens, inputs - 1)),
        rate_per_s=1.0,
        max_num_seqs=slots,
        max_num_batched_tokens=split.limits.max_num_batched_tokens,
        kv_capacity_tokens=kv_room_tokens,
        fp8_kv=split.limits.kv_cache_dtype == "fp8",
        nvlink=split.within_island,
        ttft_ratio=(measured and measured.ttft) or 1.0,
        tpot_ratio=(measured and measured.tpot) or 1.0,
    )


def load_of_one(asked: PerformanceRequest) -> float | None:
    """Return the load of a question as `Speed.load` has it."""
    return asked.concurrency if asked.rate_per_s is None else asked.rate_per_s * 60

"""From a plan in force to what the law needs: a linear step model of one replica, targets and bounds.

Decides the terms of the step from the planner's own latency model, so that sizing and planning count with the
same figures. Never predicts anything by itself.

The planner's step is not linear in the batch where reading the weights and multiplying overlap, and where a
batch touches more experts; a line is laid through it over the batches that keep the TPOT target. How far the
two lie apart is in docs/autoscaling.md and held by tests/autoscaler/test_planned.py.
"""

from math import ceil, inf
from typing import Final

from shardwright.api.defaults import Resolved
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.autoscaler.replica import KV_IN_USE_MOST, ReplicaModel
from shardwright.autoscaler.signals import ScalingPlan
from shardwright.catalog.performance import load_performance_constants
from shardwright.catalog.types import EngineClass
from shardwright.planner.performance.decode import decode_step
from shardwright.planner.performance.load import Engine, engine_of, run
from shardwright.planner.performance.speed import speed
from shardwright.planner.performance.work import MissingFactError
from shardwright.planner.replica import replica
from shardwright.planner.types import Plan

POINTS: Final = 16
"""Batches that the line is laid through, evenly spaced."""


def replica_model(plan: Plan, resolved: Resolved, engine: EngineClass) -> ReplicaModel | None:
    """Return one replica of a plan as the law sees it; None when the planner predicts no speed of it."""
    limits, ranks = plan.limits, plan.parallelism.data
    kv_tokens = max(1, plan.estimate.promised_kv_tokens)
    asked = replica(
        plan, resolved.traffic, engine, plan.product, slots=limits.max_num_seqs, kv_room_tokens=kv_tokens,
        measured=plan.correction,
    )  # fmt: skip
    constants = load_performance_constants()
    try:
        found = engine_of(asked, speed(asked, constants))
    except MissingFactError:
        return None
    seats = limits.max_num_seqs * ranks
    held = found.context_tokens
    room = min(float(seats), KV_IN_USE_MOST * kv_tokens * ranks / held)
    most = _most_within(found, resolved.targets.tpot.milliseconds, max(2.0, room))
    step_ms, sequence_ms = _line(found, most)
    kv_ms = decode_step(found.speed, most, held).kv_ms / (most * held)
    prefill_ms = found.speed.interference_share * found.work_ms / (ranks * asked.input_tokens)
    to_s = found.tpot_ratio / 1000
    return ReplicaModel(
        step_s=step_ms * to_s,
        sequence_s=sequence_ms * to_s,
        kv_token_s=kv_ms * to_s,
        prefill_token_s=prefill_ms * to_s,
        kv_tokens=kv_tokens * ranks,
        budget_tokens=limits.max_num_batched_tokens * ranks,
        seats=seats,
    )


def _most_within(engine: Engine, tpot_ms: float, room: float) -> float:
    """Return the largest batch that keeps the target; all that there is room for when not even one does."""
    if run(engine, room).tpot_ms <= tpot_ms or run(engine, 1.0).tpot_ms > tpot_ms:
        return room
    low, high = 1.0, room
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (middle, high) if run(engine, middle).tpot_ms <= tpot_ms else (low, middle)
    return max(2.0, low)


def _line(engine: Engine, most: float) -> tuple[float, float]:
    """Return ms of a step, and for each sequence, without the KV cache: least squares, neither below zero."""
    batches = [1 + (most - 1) * i / (POINTS - 1) for i in range(POINTS)]
    times = []
    for batch in batches:
        step = decode_step(engine.speed, batch, engine.context_tokens)
        times.append(step.total_ms - step.kv_ms)
    mean_batch, mean_time = sum(batches) / POINTS, sum(times) / POINTS
    spread = sum((b - mean_batch) ** 2 for b in batches)
    slope = sum((b - mean_batch) * (t - mean_time) for b, t in zip(batches, times, strict=True)) / spread
    slope = max(0.0, min(slope, mean_time / mean_batch))
    return max(1e-6, mean_time - slope * mean_batch), slope


def scaling_plan(
    plan: Plan, spec: LLMServiceSpec, resolved: Resolved, model: ReplicaModel, *, cold_start_s: float,
    min_replicas: int, max_replicas: int | None, max_gpus: int, idle_s: float | None = None,
) -> ScalingPlan:  # fmt: skip
    """Return what the law decides within. `model`: see `replica_model`.

    A target that nobody stated and that an idle replica misses is no target here: no size would be right, and
    the profile's guess must not keep a service from being sized.
    """
    each, slo, targets = plan.gpus_per_replica, spec.slo, resolved.targets
    longest = plan.limits.max_model_len
    inputs = min(resolved.traffic.input_mean_tokens, longest - 1.0)
    outputs = min(resolved.traffic.output_mean_tokens, float(longest))
    ttft_s, tpot_s = targets.ttft.milliseconds / 1000, targets.tpot.milliseconds / 1000
    if not (slo and slo.ttft) and model.own_prefill_s(resolved.traffic.input_p50_tokens) > ttft_s:
        ttft_s = inf
    if not (slo and slo.tpot) and model.step_of(1, inputs, 0) > tpot_s:
        tpot_s = inf
    budget = max(max_gpus, each)
    most = max(1, budget // each if max_replicas is None else max_replicas)
    return ScalingPlan(
        model=model,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        percentile=float(min(targets.ttft.percentile, targets.tpot.percentile)),
        input_tokens=inputs,
        output_tokens=outputs,
        min_replicas=min(max(1, min_replicas), most),
        max_replicas=most,
        gpus_per_replica=each,
        max_gpus=budget,
        cold_start_s=cold_start_s,
        idle_s=idle_s,
    )


def carried(size: int, before: ScalingPlan, after: ScalingPlan, rates: tuple[float, float]) -> int:
    """Return the size of another plan that does what `size` replicas of one did.

    `rates`: what a replica of either serves each second; zero where it is not known, and then the size stays.
    """
    least, most = after.min_replicas, after.most
    wanted = (
        size if not all(rates) or before.model == after.model else ceil(size * rates[0] / rates[1] - 0.02)
    )
    return max(least, min(most, wanted))

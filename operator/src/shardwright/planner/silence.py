"""How long an engine that works may bring no token.

Decides the longest time that is predicted between two tokens of an engine with requests in its batch: while
the longest prompt that it takes is computed, which a request that is put back and computed anew also is, and
one step of a full batch. Requests that decode meanwhile bring tokens in each step, so that only their absence
is counted. Never says when an engine hangs.
"""

from dataclasses import replace

from shardwright.api.defaults import Resolved
from shardwright.catalog.performance import load_performance_constants
from shardwright.catalog.types import EngineClass
from shardwright.planner.performance.decode import decode_step
from shardwright.planner.performance.load import engine_of
from shardwright.planner.performance.speed import speed
from shardwright.planner.performance.work import MissingFactError
from shardwright.planner.replica import replica
from shardwright.planner.types import Plan


def longest_silence_s(plan: Plan, resolved: Resolved, engine: EngineClass) -> float | None:
    """Return the seconds; None when no speed is predicted of the plan."""
    limits = plan.limits
    kv_tokens = max(1, plan.estimate.promised_kv_tokens)
    usual = replica(
        plan, resolved.traffic, engine, plan.product, slots=limits.max_num_seqs, kv_room_tokens=kv_tokens,
        measured=plan.correction,
    )  # fmt: skip
    longest = max(1.0, limits.max_model_len - 1.0)
    asked = replace(usual, input_tokens=longest, output_tokens=1.0, shared_prefix_tokens=0.0)
    try:
        found = engine_of(asked, speed(asked, load_performance_constants()))
    except MissingFactError:
        return None
    seats = limits.max_num_seqs * plan.parallelism.data
    held = kv_tokens * plan.parallelism.data / seats
    step_ms = decode_step(found.speed, seats, held).total_ms
    # What was measured faster than predicted is not counted: the bound is for the slowest that is normal.
    ratio = max(1.0, found.ttft_ratio, found.tpot_ratio)
    return (found.alone_ms + step_ms) * ratio / 1000

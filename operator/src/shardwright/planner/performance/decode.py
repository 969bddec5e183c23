"""The time of one decode step of a batch.

Decides the terms of TPOT but for the prefills of others. Never decides how many requests run.

Formula (roofline): reading all touched weights and multiplying overlap (p-norm); the KV cache, all-reduces
and launches add to it. Pipeline stages work on one micro-batch each, so that a token crosses all of them.
"""

from typing import NamedTuple

from shardwright.planner.performance.speed import PIPELINE_HOP_MS, Speed, joined, touched


class Step(NamedTuple):
    """The terms of one decode step, ms. A tuple because a search makes thousands of them."""

    weights_ms: float
    compute_ms: float
    kv_ms: float
    communication_ms: float
    launch_ms: float

    @property
    def total_ms(self) -> float:
        """The step."""
        return self.weights_ms + self.compute_ms + self.kv_ms + self.communication_ms + self.launch_ms


def decode_step(speed: Speed, running: float, context_tokens: float) -> Step:
    """Return the step in which `running` requests, each with `context_tokens` behind it, get one token."""
    batch = max(1.0, running / (speed.pipeline * speed.data))
    read = speed.common_read_ms + touched(speed, batch * speed.data) * speed.experts_read_ms
    multiply = batch * (speed.token_ms + speed.head_ms)
    window = min(context_tokens, speed.window_tokens)
    cached = batch * (context_tokens * speed.kv_token_ms + window * speed.window_token_ms)
    attention = batch * context_tokens * speed.decode_pair_ms
    hops = (speed.pipeline - 1) * PIPELINE_HOP_MS
    return Step(
        read,
        joined(read, multiply, speed.overlap_exponent) - read,
        max(cached, attention),
        speed.message_ms + batch * speed.message_token_ms + hops,
        speed.launch_ms + batch * speed.sequence_ms,
    )

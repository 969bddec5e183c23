"""The time of one prompt on the GPUs.

Decides the terms of prefill and of one chunk of it. Never decides how long a request waits for it.

Formula: multiplying the new tokens and reading the weights overlap (p-norm) in each chunk; attention over all
pairs of tokens, all-reduces and launches add to it. Tokens found in the prefix cache are not multiplied, but
attended to.
"""

from dataclasses import dataclass
from math import ceil

from shardwright.planner.performance.speed import PIPELINE_HOP_MS, Speed, joined, touched


@dataclass(frozen=True, slots=True)
class Prefill:
    """The terms of one prompt, ms."""

    chunks: int
    weights_ms: float
    compute_ms: float
    attention_ms: float
    communication_ms: float
    launch_ms: float
    multiplied_ms: float
    """What no sharing of a chunk with other prompts takes away: multiplying and attending its own tokens."""

    @property
    def gpu_ms(self) -> float:
        """Work of the GPUs: what other requests wait for."""
        return self.weights_ms + self.compute_ms + self.attention_ms + self.communication_ms

    @property
    def total_ms(self) -> float:
        """All of it."""
        return self.gpu_ms + self.launch_ms


def prefill(speed: Speed, input_tokens: float, cached_tokens: float, chunk_tokens: float) -> Prefill:
    """Return the prefill of a prompt whose first `cached_tokens` are in the prefix cache."""
    new = input_tokens - cached_tokens
    chunks = ceil(new / chunk_tokens)
    each = new / chunks
    read = speed.common_read_ms + touched(speed, each * speed.data) * speed.experts_read_ms
    multiply = each * speed.token_ms + speed.head_ms
    hops = (speed.pipeline - 1) * PIPELINE_HOP_MS
    attention = _attention_ms(speed, input_tokens, cached_tokens)
    return Prefill(
        chunks=chunks,
        weights_ms=chunks * read,
        compute_ms=chunks * (joined(read, multiply, speed.overlap_exponent) - read),
        attention_ms=attention,
        communication_ms=chunks * (speed.message_ms + hops) + new * speed.message_token_ms,
        launch_ms=chunks * speed.prefill_launch_ms,
        multiplied_ms=new * speed.token_ms + attention,
    )


def _attention_ms(speed: Speed, input_tokens: float, cached_tokens: float) -> float:
    """Return ms over the causal pairs of new tokens; a sliding window bounds how far back they look."""
    pairs = (input_tokens * input_tokens - cached_tokens * cached_tokens) / 2
    found = pairs * speed.pair_ms
    if speed.window_pair_ms:
        near = (input_tokens - cached_tokens) * min(input_tokens, speed.window_tokens)
        found += min(pairs, near) * speed.window_pair_ms
    return found

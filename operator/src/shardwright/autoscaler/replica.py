"""What one replica does with a load: the time of a step, the rate within the targets, its own prefill.

Decides figures of one replica from a linear step model. Never counts replicas.

The form (a constant, and terms for sequences, KV tokens read and prompt tokens computed in the step) is the
one that continuous batching with chunked prefill has: vLLM V1 packs one token of each running sequence and
the chunks of prompts into one step of at most `max_num_batched_tokens`.
"""

from dataclasses import dataclass
from math import inf

KV_IN_USE_MOST = 0.95
"""Share of the KV cache that a size is planned for; the rest is for lengths above their mean. Our choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaModel:
    """A replica as a queueing system. Terms of a step may be zero, all else is above zero."""

    step_s: float
    """Seconds that every step takes."""
    sequence_s: float
    """Seconds that each sequence of the step adds."""
    kv_token_s: float
    """Seconds that each token held in the KV cache adds."""
    prefill_token_s: float
    """Seconds that each prompt token computed in the step adds."""
    kv_tokens: int
    budget_tokens: int
    """Tokens that one step may compute (`max_num_batched_tokens`)."""
    seats: int
    """Sequences that may run at once (`max_num_seqs`)."""

    def times(self, factor: float) -> "ReplicaModel":
        """Return a replica whose every step takes `factor` times as long."""
        return ReplicaModel(
            step_s=self.step_s * factor,
            sequence_s=self.sequence_s * factor,
            kv_token_s=self.kv_token_s * factor,
            prefill_token_s=self.prefill_token_s * factor,
            kv_tokens=self.kv_tokens,
            budget_tokens=self.budget_tokens,
            seats=self.seats,
        )

    def step_of(self, sequences: float, held_tokens: float, prefill_tokens: float) -> float:
        """Return the seconds of one step."""
        return (
            self.step_s
            + self.sequence_s * sequences
            + self.kv_token_s * held_tokens
            + self.prefill_token_s * prefill_tokens
        )

    def own_prefill_s(self, prompt_tokens: float) -> float:
        """Return the seconds to the first token of a prompt that has a replica to itself."""
        steps = max(1.0, -(-prompt_tokens // self.budget_tokens))
        return (
            steps * (self.step_s + self.sequence_s)
            + self.prefill_token_s * prompt_tokens
            + self.kv_token_s * prompt_tokens * steps
        )

    def longest_prompt_tokens(self, ttft_s: float) -> int:
        """Return the longest prompt that a replica of its own answers within `ttft_s`; zero for none."""
        low, high = 0, self.kv_tokens
        if self.own_prefill_s(high) <= ttft_s:
            return high
        while high - low > 1:
            middle = (low + high) // 2
            if self.own_prefill_s(middle) <= ttft_s:
                low = middle
            else:
                high = middle
        return low


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one replica serves within the targets."""

    rate_per_s: float
    """Requests a second; zero when not even one request at a time meets the target."""
    in_flight: float
    """Requests in flight at that rate."""


def capacity(model: ReplicaModel, input_tokens: float, output_tokens: float, tpot_s: float) -> Capacity:
    """Return the rate at mean lengths at which the first of four limits is met.

    A token takes `tpot_s`; or the KV cache, the seats or the token budget are full.

    With B requests decoding, a step brings B tokens; as many requests as it ends begin, so it computes B ×
    input / output prompt tokens, and it lasts T(B); the rate is B / (output × T(B)). T is linear in B, so the
    B at the target is found by division. TTFT does not enter: what a queue adds to it is what the headroom of
    the law is for.
    """
    output = max(1.0, output_tokens)
    held = input_tokens + output / 2
    per_request = model.sequence_s + model.kv_token_s * held + model.prefill_token_s * input_tokens / output
    by_tpot = (tpot_s - model.step_s) / per_request if per_request else inf
    most = min(
        by_tpot,
        KV_IN_USE_MOST * model.kv_tokens / held if held else inf,
        float(model.seats),
        model.budget_tokens / (1 + input_tokens / output),
    )
    if most <= 0:
        return Capacity(rate_per_s=0.0, in_flight=0.0)
    return Capacity(rate_per_s=most / (output * (model.step_s + per_request * most)), in_flight=most)

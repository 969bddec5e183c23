"""`spec.workload`, `spec.slo` and `spec.availability`: what the service must do."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from shardwright.api.base import ApiModel, CelRule

Tokens = Annotated[int, Field(ge=1, le=16_777_216)]
Milliseconds = Annotated[int, Field(ge=1, le=3_600_000)]
Percentile = Literal[50, 90, 95, 99]


class TokenDistribution(ApiModel):
    """Median and 95th percentile of a length in tokens."""

    p50: Tokens
    """Median, in tokens."""
    p95: Tokens
    """95th percentile, in tokens."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.p50 <= self.p95",
            "p50 must not exceed p95: write the median as p50 and the 95th percentile as p95",
            lambda s: s.p50 <= s.p95,
        ),
    )


class WorkloadSpec(ApiModel):
    """The traffic to plan for; `profile` gives the defaults of the rest."""

    profile: Literal["Chat", "RAG", "Writing", "Agent", "Voice", "Mixed"] | None = None
    """Kind of traffic; gives lengths and latency targets that are not written. Chat when absent."""
    input_tokens: TokenDistribution | None = None
    """Prompt lengths, the shared prefix included."""
    output_tokens: TokenDistribution | None = None
    """Answer lengths."""
    shared_prefix_tokens: Annotated[int, Field(ge=0, le=16_777_216)] | None = None
    """Tokens that all prompts begin with, such as a system prompt; 0 when absent."""
    requests_per_minute: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Planned request rate of the whole service."""
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Planned requests in flight in the whole service, instead of a rate."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!(has(self.requestsPerMinute) && has(self.concurrency))",
            "write either workload.requestsPerMinute or workload.concurrency, not both",
            lambda s: s.requests_per_minute is None or s.concurrency is None,
        ),
        CelRule(
            "!has(self.sharedPrefixTokens) || !has(self.inputTokens) || "
            "self.sharedPrefixTokens <= self.inputTokens.p95",
            "sharedPrefixTokens is a part of the input: write at most inputTokens.p95",
            lambda s: (s.shared_prefix_tokens or 0) <= (s.input_tokens.p95 if s.input_tokens else 2**62),
            "sharedPrefixTokens",
        ),
    )


class LatencyTarget(ApiModel):
    """A latency that a percentile of the requests must keep."""

    percentile: Percentile
    """Share of the requests, in percent: 50, 90, 95 or 99."""
    milliseconds: Milliseconds
    """The bound."""


class SloSpec(ApiModel):
    """Latency targets as the client sees them, router queue included."""

    ttft: LatencyTarget | None = None
    """Time to first token."""
    tpot: LatencyTarget | None = None
    """Time per output token: mean of a request after its first token."""
    itl: LatencyTarget | None = None
    """Inter-token latency: each single gap, for traffic that hears jitter."""
    optimize_for: Literal["Cost", "Latency"] | None = None
    """What to minimise among the plans that keep the targets; Cost when absent."""


class AvailabilitySpec(ApiModel):
    """Which failures the service must survive."""

    survive_node_loss: bool | None = None
    """Keeps serving when one node is lost: at least two replicas, on different nodes. False when absent."""

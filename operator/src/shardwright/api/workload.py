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
    p95: Tokens

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule("self.p50 <= self.p95", "p50 must not exceed p95: write the median first, the 95th percentile second"),
    )


class WorkloadSpec(ApiModel):
    """The traffic to plan for; `profile` gives the defaults of the rest."""

    profile: Literal["Chat", "RAG", "Writing", "Agent", "Voice", "Mixed"] | None = None
    input_tokens: TokenDistribution | None = None
    output_tokens: TokenDistribution | None = None
    shared_prefix_tokens: Annotated[int, Field(ge=0, le=16_777_216)] | None = None
    requests_per_minute: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!(has(self.requestsPerMinute) && has(self.concurrency))",
            "write either workload.requestsPerMinute or workload.concurrency, not both",
        ),
        CelRule(
            "!has(self.sharedPrefixTokens) || !has(self.inputTokens) || self.sharedPrefixTokens <= self.inputTokens.p95",
            "sharedPrefixTokens is a part of the input: write at most inputTokens.p95",
        ),
    )


class LatencyTarget(ApiModel):
    """A latency that a percentile of the requests must keep."""

    percentile: Percentile
    milliseconds: Milliseconds


class SloSpec(ApiModel):
    """Latency targets as the client sees them, router queue included."""

    ttft: LatencyTarget | None = None
    tpot: LatencyTarget | None = None
    itl: LatencyTarget | None = None
    optimize_for: Literal["Cost", "Latency"] | None = None


class AvailabilitySpec(ApiModel):
    """Which failures the service must survive."""

    survive_node_loss: bool | None = None

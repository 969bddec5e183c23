"""`spec.engine`: the vLLM that serves, and the limits that a user sets by hand."""

from typing import Annotated, Literal

from pydantic import Field

from shardwright.api.base import ApiModel, Name, SecretKeyRef, Text

Percent = Annotated[int, Field(ge=10, le=98)]
Version = Annotated[str, Field(min_length=3, max_length=32, pattern=r"^\d+\.\d+\.\d+([-.+a-z0-9]*)?$")]


class EnvVar(ApiModel):
    """An environment variable of the engine container; secrets come by reference."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    value: Annotated[str, Field(max_length=4096)] | None = None
    secret_ref: SecretKeyRef | None = None


class PullSecret(ApiModel):
    """A Secret with registry credentials."""

    name: Name


class Speculative(ApiModel):
    """Speculative decoding."""

    method: Annotated[str, Field(min_length=1, max_length=32)]
    model: Text | None = None
    num_speculative_tokens: Annotated[int, Field(ge=1, le=32)] | None = None


class EngineSpec(ApiModel):
    """The inference engine."""

    type: Literal["vLLM"] | None = None
    version: Version | None = None
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    image_pull_secrets: Annotated[list[PullSecret], Field(max_length=8)] | None = None
    args: Annotated[list[Annotated[str, Field(max_length=2048)]], Field(max_length=64)] | None = None
    env: Annotated[list[EnvVar], Field(max_length=64)] | None = None
    gpu_memory_utilization_percent: Percent | None = None
    max_num_seqs: Annotated[int, Field(ge=1, le=65_536)] | None = None
    max_num_batched_tokens: Annotated[int, Field(ge=16, le=1_048_576)] | None = None
    tool_call_parser: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    reasoning_parser: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    speculative: Speculative | None = None
    kv_offload_gib: Annotated[int, Field(ge=1, le=65_536)] | None = None
    multi_node: Literal["LeaderWorkerSet", "StatefulSet"] | None = None

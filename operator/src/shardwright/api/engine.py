"""`spec.engine`: the vLLM that serves, and the limits that a user sets by hand."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from shardwright.api.base import ApiModel, CelRule, Name, SecretKeyRef, Text, Word, keyed_by
from shardwright.api.flags import OWNED_ENV, OWNED_FLAGS, OwnedFlags

Percent = Annotated[int, Field(ge=10, le=98)]
Version = Annotated[str, Field(min_length=3, max_length=32, pattern=r"^\d+\.\d+\.\d+([-.+a-z0-9]*)?$")]
Image = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._:/@+]*$")]
Argument = Annotated[str, Field(max_length=2048)]

_SECRET_NAME = re.compile(r"(?i)(_token|_key|_secret|_password)\Z")


def _args_rule(owned: OwnedFlags) -> CelRule:
    # vLLM reads `_` in a flag as `-`. A list of words, because a pattern over 64 long arguments would exceed
    # the API server's cost limit for one object.
    words = ", ".join(f"'{flag}'" for flag in owned.flags)
    return CelRule(
        f"!has(self.args) || !self.args.exists(a, a.split('=', 2)[0].replace('_', '-') in [{words}])",
        f"the plan owns {', '.join(flag for flag in owned.flags if flag.startswith('--'))} in engine.args: "
        f"{owned.instead}",
        lambda s: not any(arg.split("=", 1)[0].replace("_", "-") in owned.flags for arg in s.args or ()),
        "args",
    )


class EnvVar(ApiModel):
    """An environment variable of the engine container; secrets come by reference."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] | None = None
    """Its value; use `secretRef` for anything secret."""
    secret_ref: SecretKeyRef | None = None
    """Secret key that holds the value."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "has(self.value) != has(self.secretRef)",
            "an env entry needs exactly one of value and secretRef: write value: TEXT, or "
            "secretRef: {name: SECRET, key: KEY}",
            lambda s: (s.value is None) != (s.secret_ref is None),
        ),
        CelRule(
            "!has(self.value) || !self.name.matches('(?i)(_token|_key|_secret|_password)$')",
            "an env value is readable by everyone who may read the pod: write secretRef: {name: SECRET, "
            "key: KEY}",
            lambda s: s.value is None or _SECRET_NAME.search(s.name) is None,
            "value",
        ),
    )


class PullSecret(ApiModel):
    """A Secret with registry credentials."""

    name: Name
    """Name of the Secret."""


class Speculative(ApiModel):
    """Speculative decoding."""

    method: Word
    """vLLM's name of the method, such as eagle3, mtp or ngram."""
    model: Text | None = None
    """Draft model, for the methods that use one."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=32)] | None = None
    """Tokens proposed in one step."""


class EngineSpec(ApiModel):
    """The inference engine."""

    type: Literal["vLLM"] | None = None
    """The engine; vLLM is the only one."""
    version: Version | None = None
    """vLLM version, such as 0.33.0; the operator's default when absent."""
    image: Image | None = None
    """Container image instead of the official one of `version`."""
    image_pull_secrets: (
        Annotated[list[PullSecret], Field(max_length=8, json_schema_extra=keyed_by("name"))] | None
    ) = None
    """Registry credentials."""
    args: Annotated[list[Argument], Field(max_length=64)] | None = None
    """Further flags of `vllm serve`; those that the plan owns are refused."""
    env: Annotated[list[EnvVar], Field(max_length=64, json_schema_extra=keyed_by("name"))] | None = None
    """Further environment of the engine container."""
    gpu_memory_utilization_percent: Percent | None = None
    """Share of each GPU's memory that vLLM may use, in percent."""
    max_num_seqs: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Most requests in one batch; it decides the activation memory."""
    max_num_batched_tokens: Annotated[int, Field(ge=16, le=1_048_576)] | None = None
    """Most tokens in one step."""
    tool_call_parser: Word | None = None
    """vLLM's parser of tool calls, such as llama3_json; switches automatic tool choice on."""
    reasoning_parser: Word | None = None
    """vLLM's parser of reasoning text, such as deepseek_r1."""
    speculative: Speculative | None = None
    """Speculative decoding."""
    kv_offload_gib: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Host memory for evicted KV cache blocks, in GiB for each replica."""
    multi_node: Literal["LeaderWorkerSet", "StatefulSet"] | None = None
    """Workload kind of replicas that span nodes."""

    cel_rules: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.image) || has(self.version)",
            "engine.image needs engine.version, because memory and flags depend on it: write the vLLM "
            "version that "
            "the image holds",
            lambda s: s.image is None or s.version is not None,
            "image",
        ),
        CelRule(
            f"!has(self.env) || !self.env.exists(e, e.name in {list(OWNED_ENV)})",
            f"the operator owns {', '.join(OWNED_ENV)} in engine.env: remove it; a hub token goes to "
            "model.source.hub.tokenSecretRef, a mirror to model.source.hub.endpoint, a cache to model.cache",
            lambda s: not any(e.name in OWNED_ENV for e in s.env or ()),
            "env",
        ),
        *(_args_rule(owned) for owned in OWNED_FLAGS),
    )

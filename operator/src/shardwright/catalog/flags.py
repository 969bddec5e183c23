"""What each flag of `vllm serve` means to a plan: owned by it, secret, harmless, or not covered.

Decides the class of a flag. Never parses an argument list; `args` does. A flag that this module does not name
is not covered by the plan: it may change memory or latency, and the plan then says so and keeps a wider
margin.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Final

from shardwright.catalog.flag_table import ADDED_IN_0_33, FLAGS_0_32

CHECKED_VERSIONS: Final = ((0, 32), (0, 33))
"""Engine versions, major and minor, for which the table is complete."""


class FlagClass(StrEnum):
    """What a flag in `engine.args` does to the plan."""

    OWNED = "Owned"
    """The plan renders it; a field of the resource sets it."""
    SECRET = "Secret"  # noqa: S105 -- a class's name
    """Its value is a secret, which an argument would show to anyone who can read pods."""
    HARMLESS = "Harmless"
    """It changes neither memory nor latency in a way that the plan depends on."""
    NOT_COVERED = "NotCovered"
    """It may change memory or latency: allowed, and the plan no longer covers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of the engine."""

    name: str
    """The long option, such as --max-num-seqs."""
    options: tuple[str, ...]
    values: str
    """How many values it takes: 0, 1, ? (none or one) or + (one or more)."""
    kind: str
    """none, int, float or str."""
    choices: tuple[str, ...]
    since: tuple[int, int] | None
    """First version, when the flag is newer than the oldest version of the table."""
    group: str


_PARALLELISM = "spec.parallelism (tensor, pipeline, expert); the planner chooses what is not pinned"
_GROUPS = "nothing: groups that span nodes are the operator's to wire up"
_PORT = "nothing: probes, Services and metrics rely on the engine's port"
_SOURCE = "spec.model.source and spec.model.cache"
_KV = "spec.engine.gpuMemoryUtilizationPercent; the KV cache is what remains, as the plan's bill shows"
_QUANT = "spec.model.quantization, with quantizeAtLoad for a checkpoint of 16 bit"
_TLS = "nothing: probes and Services speak plain HTTP to the engine; terminate TLS before it"

OWNED: Final = MappingProxyType(
    {
        "--model": "spec.model.id",
        "--served-model-name": "spec.model.servedName",
        "--revision": "spec.model.revision",
        "--tokenizer": "spec.model.tokenizer",
        "--trust-remote-code": "spec.model.trustRemoteCode",
        "--chat-template": "spec.model.chatTemplate",
        "--max-model-len": "spec.model.maxContextTokens",
        "--quantization": _QUANT,
        "--quantization-config": _QUANT,
        "--load-format": _SOURCE,
        "--download-dir": _SOURCE,
        "--kv-cache-dtype": "spec.model.allowedKVCacheDtypes",
        "--tool-call-parser": "spec.engine.toolCallParser",
        "--enable-auto-tool-choice": "spec.engine.toolCallParser",
        "--reasoning-parser": "spec.engine.reasoningParser",
        "--gpu-memory-utilization": "spec.engine.gpuMemoryUtilizationPercent",
        "--kv-cache-memory-bytes": _KV,
        "--num-gpu-blocks-override": _KV,
        "--max-num-seqs": "spec.engine.maxNumSeqs",
        "--max-num-batched-tokens": "spec.engine.maxNumBatchedTokens",
        "--shutdown-timeout": "spec.drain.maxSeconds",
        "--custom-histogram-buckets": "spec.slo; its targets become bucket edges",
        "--disable-log-stats": "nothing: the operator reads the engine's metrics",
        "--config": "spec.engine.args; a file would hide flags from the plan",
        "--tensor-parallel-size": _PARALLELISM,
        "--pipeline-parallel-size": _PARALLELISM,
        "--prefill-context-parallel-size": _PARALLELISM,
        "--decode-context-parallel-size": _PARALLELISM,
        "--enable-expert-parallel": _PARALLELISM,
        "--data-parallel-size": _PARALLELISM,
        "--data-parallel-size-local": _PARALLELISM,
        "--device-ids": _PARALLELISM,
        "--distributed-executor-backend": _PARALLELISM,
        "--data-parallel-rank": _GROUPS,
        "--data-parallel-start-rank": _GROUPS,
        "--data-parallel-address": _GROUPS,
        "--data-parallel-rpc-port": _GROUPS,
        "--data-parallel-backend": _GROUPS,
        "--data-parallel-hybrid-lb": _GROUPS,
        "--data-parallel-external-lb": _GROUPS,
        "--data-parallel-multi-port-external-lb": _GROUPS,
        "--data-parallel-supervisor-port": _GROUPS,
        "--nnodes": _GROUPS,
        "--node-rank": _GROUPS,
        "--master-addr": _GROUPS,
        "--master-port": _GROUPS,
        "--headless": _GROUPS,
        "--host": _PORT,
        "--port": _PORT,
        "--uds": _PORT,
        "--grpc": _PORT,
        "--grpc-port": _PORT,
        "--root-path": _PORT,
        "--ssl-keyfile": _TLS,
        "--ssl-certfile": _TLS,
        "--ssl-ca-certs": _TLS,
        "--ssl-cert-reqs": _TLS,
    }
)
"""Flags that the plan or the rendered pod owns, and the field to use instead."""

SECRET: Final = MappingProxyType(
    {
        "--api-key": "spec.routing.apiKeySecretRef",
        "--hf-token": "spec.model.source.hub.tokenSecretRef",
    }
)

HARMLESS: Final = frozenset(
    {
        "--allowed-local-media-path",
        "--allowed-media-domains",
        "--code-revision",
        "--cpu-distributed-timeout-seconds",
        "--distributed-timeout-seconds",
        "--enable-log-requests",
        "--fail-on-environ-validation",
        "--generation-config",
        "--ignore-patterns",
        "--logprobs-mode",
        "--max-logprobs",
        "--max-num-queued-reqs",
        "--max-num-queued-tokens",
        "--override-generation-config",
        "--prefix-caching-hash-algo",
        "--reasoning-parser-plugin",
        "--safetensors-load-strategy",
        "--safetensors-prefetch-block-size",
        "--safetensors-prefetch-num-threads",
        "--scheduling-policy",
        "--seed",
        "--structured-outputs-config",
        "--tokenizer-mode",
        "--tokenizer-revision",
        "--use-tqdm-on-load",
    }
)

_HARMLESS_GROUPS = frozenset({"F", "O"})


def classify(flag: Flag) -> FlagClass:
    """Return the class of `flag`; flags of the frontend and of observability are harmless unless owned."""
    if flag.name in SECRET:
        return FlagClass.SECRET
    if flag.name in OWNED:
        return FlagClass.OWNED
    if flag.name in HARMLESS or flag.group in _HARMLESS_GROUPS:
        return FlagClass.HARMLESS
    return FlagClass.NOT_COVERED


@cache
def flags() -> MappingProxyType[str, Flag]:
    """Return every flag by each of its option strings."""
    found: dict[str, Flag] = {}
    for table, since in ((FLAGS_0_32, None), (ADDED_IN_0_33, (0, 33))):
        for line in table.splitlines():
            flag = _flag(line, since)
            found.update(dict.fromkeys(flag.options, flag))
    return MappingProxyType(found)


def _flag(line: str, since: tuple[int, int] | None) -> Flag:
    group, options, values, kind, choices = line.split(";")
    names = tuple(options.split())
    return Flag(
        name=next(name for name in names if name.startswith("--")),
        options=names,
        values=values,
        kind=kind,
        choices=tuple(choices.split(",")) if choices else (),
        since=since,
        group=group,
    )

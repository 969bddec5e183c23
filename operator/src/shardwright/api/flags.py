"""The engine flags and variables that the plan owns, and the field of the resource to write instead of each.

Decides which entries of `spec.engine.args` and `spec.engine.env` are refused when the object is applied.
Never parses a command line: what one entry alone does not show (abbreviated flags, values, flags that change
memory) is checked where the command line is built.
"""

from typing import Final, NamedTuple


class OwnedFlags(NamedTuple):
    """Flags, in vLLM's spelling, with one way to say the same in the resource."""

    flags: tuple[str, ...]
    instead: str
    """What to do, in the imperative."""


OWNED_FLAGS: Final[tuple[OwnedFlags, ...]] = (
    OwnedFlags(
        (
            "--tensor-parallel-size",
            "-tp",
            "--pipeline-parallel-size",
            "-pp",
            "--data-parallel-size",
            "-dp",
            "--data-parallel-size-local",
            "-dpl",
            "--enable-expert-parallel",
            "--no-enable-expert-parallel",
            "-ep",
            "--prefill-context-parallel-size",
            "-pcp",
            "--decode-context-parallel-size",
            "-dcp",
            "--device-ids",
            "--distributed-executor-backend",
        ),
        "write spec.parallelism.tensor, pipeline, data or expert",
    ),
    OwnedFlags(
        (
            "--nnodes",
            "-n",
            "--node-rank",
            "-r",
            "--master-addr",
            "--master-port",
            "--headless",
            "--data-parallel-rank",
            "-dpn",
            "--data-parallel-start-rank",
            "-dpr",
            "--data-parallel-address",
            "-dpa",
            "--data-parallel-rpc-port",
            "-dpp",
            "--data-parallel-backend",
            "-dpb",
            "--data-parallel-hybrid-lb",
            "--no-data-parallel-hybrid-lb",
            "-dph",
            "--data-parallel-external-lb",
            "--no-data-parallel-external-lb",
            "-dpe",
            "--data-parallel-multi-port-external-lb",
            "-dpm",
            "--data-parallel-supervisor-port",
        ),
        "remove it, the operator wires up the processes of an engine itself",
    ),
    OwnedFlags(("--max-model-len",), "write spec.model.maxContextTokens"),
    OwnedFlags(
        (
            "--gpu-memory-utilization",
            "--device-memory-utilization",
            "--kv-cache-memory-bytes",
            "--num-gpu-blocks-override",
        ),
        "write spec.engine.gpuMemoryUtilizationPercent",
    ),
    OwnedFlags(
        ("--max-num-seqs", "--max-num-batched-tokens"),
        "write spec.engine.maxNumSeqs or spec.engine.maxNumBatchedTokens",
    ),
    OwnedFlags(
        ("--kv-cache-dtype", "--quantization", "-q", "--quantization-config"),
        "write spec.model.allowedKVCacheDtypes, or spec.model.quantization with quantizeAtLoad",
    ),
    OwnedFlags(
        (
            "--model",
            "--served-model-name",
            "--revision",
            "--tokenizer",
            "--chat-template",
            "--trust-remote-code",
            "--no-trust-remote-code",
        ),
        "write spec.model.id, servedName, revision, tokenizer, chatTemplate or trustRemoteCode",
    ),
    OwnedFlags(("--load-format", "--download-dir"), "write spec.model.source and spec.model.cache"),
    OwnedFlags(
        (
            "--tool-call-parser",
            "--enable-auto-tool-choice",
            "--no-enable-auto-tool-choice",
            "--reasoning-parser",
        ),
        "write spec.engine.toolCallParser or spec.engine.reasoningParser",
    ),
    OwnedFlags(
        (
            "--host",
            "--port",
            "--uds",
            "--grpc",
            "--grpc-port",
            "--root-path",
            "--ssl-keyfile",
            "--ssl-certfile",
            "--ssl-ca-certs",
            "--ssl-cert-reqs",
            "--config",
            "--disable-log-stats",
            "--custom-histogram-buckets",
        ),
        "remove it, probes, Services and metrics depend on the operator's value",
    ),
    OwnedFlags(
        ("--api-key", "--hf-token"),
        "everyone who may read the pod can read its args, so write spec.routing.apiKeySecretRef or "
        "spec.model.source.hub.tokenSecretRef",
    ),
    OwnedFlags(("--shutdown-timeout",), "write spec.drain.maxSeconds"),
)
"""Checked against the options of vLLM 0.32 (`vllm serve --help=all`)."""

OWNED_ENV: Final = (
    "VLLM_HOST_IP",
    "VLLM_PORT",
    "VLLM_SERVER_DEV_MODE",
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
    "VLLM_CACHE_ROOT",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
)
"""Environment of the engine container that the operator sets, or that would contradict the plan."""

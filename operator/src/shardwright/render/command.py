"""The engine's command line: everything the plan's figures depend on, stated explicitly.

Decides the flags of `vllm serve`. Never leaves a figure to the engine's default: those change between
versions and GPUs (utilisation went from 0.90 to 0.92, the batch defaults follow the GPU's memory).
"""

import json
from typing import Final

from shardwright.api.defaults import resolve
from shardwright.api.llmservice import LLMService, LLMServiceSpec
from shardwright.api.names import ENGINE_PORT
from shardwright.api.workload import LatencyTarget, SloSpec
from shardwright.catalog.types import EngineClass
from shardwright.planner.legality import quantizes_at_load
from shardwright.planner.types import Plan
from shardwright.render.routing import engine_flags
from shardwright.render.storage import DOWNLOADS, HUB_PATH, Storage, source_type

COMMAND: Final = ("vllm", "serve")

ACCESS_LOG_SINCE: Final = (0, 32, 0)
"""`--disable-access-log-for-endpoints` is in the flag list of 0.32 and 0.33; earlier versions were not
read."""

TTFT_EDGES_S: Final = (
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1,
    1.5,
    2,
    3,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
ITL_EDGES_S: Final = (
    0.005,
    0.01,
    0.015,
    0.02,
    0.03,
    0.04,
    0.05,
    0.06,
    0.08,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    1,
    5,
    40,
    80,
)
"""Bucket edges in seconds, finer than the engine's own where targets are set (its own are 1, 2.5, 5 above a
second, and start at 10 ms between tokens). Our choice; the targets are added to them. The families' names are
those of the 0.32.0 wheel, v1/metrics/buckets.py; `inter_token_latency` also covers the time per output
token."""


def engine_args(service: LLMService, plan: Plan, engine: EngineClass, files: Storage) -> list[str]:
    """Return the arguments after `vllm serve`: what the plan owns, then `spec.engine.args`."""
    spec = service.spec
    args = [files.model, f"--served-model-name={spec.model.served_name or service.metadata.name}"]
    args += _source_args(spec, plan, files)
    args += _plan_args(plan)
    args += _model_args(spec, plan)
    args += _server_args(spec, engine)
    args += engine_flags(spec, plan, engine.version)
    args += (spec.engine.args if spec.engine else None) or []
    return args


def histogram_buckets(spec: LLMServiceSpec) -> dict[str, list[float]]:
    """Return the edges in seconds of the latency histograms, with every stated target as an edge.

    Attainment is then a ratio of two counters instead of an interpolation between distant edges. The targets
    that a profile implies are among the standard edges, so that they need not be part of the pod's digest.
    """
    slo = spec.slo or SloSpec()
    return {
        "time_to_first_token": _edges(TTFT_EDGES_S, slo.ttft),
        "inter_token_latency": _edges(ITL_EDGES_S, slo.tpot, slo.itl),
    }


def _edges(standard: tuple[float, ...], *targets: LatencyTarget | None) -> list[float]:
    return sorted({float(edge) for edge in standard} | {t.milliseconds / 1000 for t in targets if t})


def _source_args(spec: LLMServiceSpec, plan: Plan, files: Storage) -> list[str]:
    source = source_type(spec)
    args = []
    if source == "Hub" and not files.fetched:
        if plan.model.revision:
            args.append(f"--revision={plan.model.revision}")
        args.append(f"{DOWNLOADS}{HUB_PATH}/hub")
    if source == "URI":
        args.append("--load-format=runai_streamer")
    if files.tokenizer:
        args.append(f"--tokenizer={files.tokenizer}")
    if spec.model.trust_remote_code:
        args.append("--trust-remote-code")
    if files.chat_template:
        args.append(f"--chat-template={files.chat_template}")
    return args


def _plan_args(plan: Plan) -> list[str]:
    split, limits = plan.parallelism, plan.limits
    args = [f"--tensor-parallel-size={split.tensor}", f"--pipeline-parallel-size={split.pipeline}"]
    if split.data > 1:
        args.append(f"--data-parallel-size={split.data}")
    if split.expert:
        args.append("--enable-expert-parallel")
    args += [
        f"--max-model-len={limits.max_model_len}",
        f"--max-num-seqs={limits.max_num_seqs}",
        f"--max-num-batched-tokens={limits.max_num_batched_tokens}",
        f"--gpu-memory-utilization={limits.gpu_memory_utilization_percent / 100:.2f}",
        f"--kv-cache-dtype={limits.kv_cache_dtype}",
    ]
    if limits.enforce_eager:
        args.append("--enforce-eager")
    return args


def _model_args(spec: LLMServiceSpec, plan: Plan) -> list[str]:
    args = []
    if quantizes_at_load(spec, plan.model.architecture):  # a chosen variant may be quantised already
        args.append("--quantization=fp8")
    if spec.engine is not None and spec.engine.tool_call_parser:
        args += ["--enable-auto-tool-choice", f"--tool-call-parser={spec.engine.tool_call_parser}"]
    if spec.engine is not None and spec.engine.reasoning_parser:
        args.append(f"--reasoning-parser={spec.engine.reasoning_parser}")
    return args


def _server_args(spec: LLMServiceSpec, engine: EngineClass) -> list[str]:
    args = [f"--port={ENGINE_PORT}"]
    if engine.has_shutdown_timeout:
        args.append(f"--shutdown-timeout={resolve(spec).drain_seconds}")
    if engine.has_custom_histogram_buckets:
        args.append(
            f"--custom-histogram-buckets={json.dumps(histogram_buckets(spec), separators=(',', ':'))}"
        )
    if engine.version >= ACCESS_LOG_SINCE:
        args.append("--disable-access-log-for-endpoints=/health,/metrics")
    return args

"""TPOT as aiconfigurator-core predicts it: an optional second opinion, from a process of its own.

Decides which questions that library can be asked, and in which words. Never loads it, and never fails for
want of it: no opinion is an answer, with its reason.
"""

import argparse
import json
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from shardwright.catalog.types import AttentionKind, ModelArchitecture, NumberFormat
from shardwright.planner.performance.agreement import Agreement, compare
from shardwright.planner.performance.types import PerformanceRequest, Prediction

SOURCE: Final = "aiconfigurator-core"
ANSWER_S: Final = 120.0
"""The first answer loads the tables of one GPU: 2 to 9 s here."""
SYSTEMS: Final = {
    "H100": "h100_sxm",
    "H200": "h200_sxm",
    "A100-80": "a100_sxm",
    "L40S": "l40s",
    "B200": "b200_sxm",
    "B300": "b300_sxm",
    "GB200": "gb200",
    "GB300": "gb300",
    "RTX-PRO-6000": "rtx_pro_6000_server",
}
"""Its names of the GPUs that it has vLLM tables for (`systems/support_matrix` of 0.12.0)."""
_GEMM: Final = {
    NumberFormat.BF16: "bfloat16",
    NumberFormat.FP16: "bfloat16",
    NumberFormat.FP8: "fp8",
    NumberFormat.FP8_BLOCK: "fp8_block",
    NumberFormat.INT4: "int4_wo",
    NumberFormat.AWQ: "int4_wo",
    NumberFormat.GPTQ: "int4_wo",
    NumberFormat.NVFP4: "nvfp4",
    NumberFormat.MXFP4: "bfloat16",
}
_EXPERTS: Final = {**_GEMM, NumberFormat.MXFP4: "w4a16_mxfp4"}
"""MXFP4 checkpoints keep all but the experts in 16 bit."""


def add_option(parser: argparse._ActionsContainer) -> None:
    """Add the option that asks for it."""
    parser.add_argument(
        "--second-opinion", nargs="?", const=sys.executable, metavar="PYTHON",
        help=f"ask {SOURCE} for the TPOT too (pip install 'shardwright[aic]'), in another Python when given",
    )  # fmt: skip


class NoOpinionError(Exception):
    """The library is not asked, or has no answer; the message says why."""


@dataclass(slots=True)
class SecondOpinion:
    """The process, started when it is first asked."""

    python: str = sys.executable
    """Interpreter of an environment that has the library."""
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def tpot_ms(self, request: PerformanceRequest, running: float) -> float:
        """Return its TPOT, ms, with `running` requests at once. Raises NoOpinionError."""
        asked = question(request, running)
        try:
            answer = json.loads(self._answer(json.dumps(asked).encode() + b"\n"))
            found = float(answer["tpotMs"]) if "tpotMs" in answer else None
            reason = str(answer["reason"]) if found is None else ""
        except (OSError, ValueError, TypeError, LookupError) as error:
            self.close()
            raise NoOpinionError(f"its process failed: {error}") from error
        if found is None:
            raise NoOpinionError(reason)
        if not 0 < found < inf:
            raise NoOpinionError(f"it answered {found:g} ms")
        return found

    def _answer(self, line: bytes) -> bytes:
        if self._process is None:
            worker = str(Path(__file__).with_name("aic_worker.py"))
            self._process = subprocess.Popen(  # noqa: S603 -- our own file, with the interpreter that the user names
                [self.python, "-P", worker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # it has said why, and ended
            process.stdin.write(line)
        return _line(process.stdout)


def compared(other: SecondOpinion, request: PerformanceRequest, found: Prediction) -> Agreement | str:
    """Return what the library says of a prediction of ours; why nothing, when it has no answer."""
    running = found.running if request.concurrency is None else request.concurrency
    try:
        return compare(found.tpot_ms, other.tpot_ms(request, running), found.band)
    except NoOpinionError as error:
        return str(error)


def _line(stream: IO[bytes]) -> bytes:
    """Read one line. Raises OSError when none is there in time; half a line is none."""
    until, found = time.monotonic() + ANSWER_S, b""
    while not found.endswith(b"\n"):
        wait_s = until - time.monotonic()
        if wait_s <= 0 or not select.select([stream], [], [], wait_s)[0]:
            raise OSError(f"no answer within {ANSWER_S:g} s")
        part = stream.read(1 << 16)
        if not part:
            raise OSError("it ended without an answer")
        found += part
    return found


def question(request: PerformanceRequest, running: float) -> dict[str, Any]:
    """Return what the process is asked. Raises NoOpinionError where the library has nothing to go by."""
    model, gpu = request.architecture, request.gpu
    system = SYSTEMS.get(gpu.short_name)
    if system is None:
        raise NoOpinionError(f"it has no vLLM tables for {gpu.short_name}")
    gemm = _GEMM.get(model.quantization.format)
    if gemm is None:
        raise NoOpinionError(f"{model.quantization.format} is no format of it")
    split = request.parallelism
    if request.shared_prefix_tokens or request.speculative or not request.nvlink:
        raise NoOpinionError("it is not asked for shared prefixes, speculative decoding or ranks over PCIe")
    return {
        "config": hf_config(model),
        "system": system,
        "tensor": split.tensor,
        "pipeline": split.pipeline,
        "data": split.data,
        "expertParallel": split.expert,
        "gemm": gemm,
        "experts": _EXPERTS[model.quantization.format] if model.moe else None,
        "kv": "fp8" if request.fp8_kv else "bfloat16",
        "batch": max(1, round(running / split.data)),
        "inputTokens": round(request.input_tokens),
        "outputTokens": round(request.output_tokens),
        "chunkTokens": round(min(request.input_tokens, request.max_num_batched_tokens)),
    }


def hf_config(model: ModelArchitecture) -> dict[str, object]:
    """Return a config.json of the same shape in a class that the library knows. Raises NoOpinionError."""
    moe, mla = model.moe, model.mla
    shape: dict[str, object] = {
        "num_hidden_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_position_embeddings,
        "tie_word_embeddings": model.tie_word_embeddings,
        "torch_dtype": "bfloat16",
    }
    if moe is not None:
        shape["num_experts_per_tok"] = moe.experts_per_token
    if mla is not None and moe is not None and not mla.index_heads:
        return shape | {
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            "kv_lora_rank": mla.kv_lora_rank,
            "q_lora_rank": mla.q_lora_rank,
            "qk_nope_head_dim": mla.qk_nope_head_dim,
            "qk_rope_head_dim": mla.qk_rope_head_dim,
            "v_head_dim": mla.v_head_dim,
            "n_routed_experts": moe.num_experts,
            "moe_intermediate_size": moe.expert_intermediate_size,
            "n_shared_experts": moe.num_shared_experts,
            "first_k_dense_replace": moe.dense_layers,
        }
    if model.family == "gpt_oss" and moe is not None:
        return shape | {
            "architectures": ["GptOssForCausalLM"],
            "model_type": "gpt_oss",
            "num_local_experts": moe.num_experts,
            "intermediate_size": moe.expert_intermediate_size,
            "sliding_window": model.sliding_window,
        }
    if model.attention is not AttentionKind.FULL or mla is not None:
        raise NoOpinionError(f"{model.attention} attention of {model.family} is not put to it")
    if moe is not None:
        return shape | {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_experts": moe.num_experts,
            "moe_intermediate_size": moe.expert_intermediate_size,
        }
    return shape | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}

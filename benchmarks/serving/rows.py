"""Measured serving rows as questions to the latency model.

Decides which rows count (scored, vLLM) and which catalogue entries their names mean. A row says nothing of
max-num-seqs and KV capacity: rows bound by either are not scored.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from shardwright.catalog.engines import default_batch, engine_class
from shardwright.catalog.gpus import load_products
from shardwright.catalog.models import load_models
from shardwright.catalog.quantization import named
from shardwright.catalog.types import ModelArchitecture
from shardwright.planner.performance.types import PerformanceRequest
from shardwright.planner.performance.work import Work, work
from shardwright.planner.types import Parallelism

DATA = Path(__file__).resolve().parent.parent / "data" / "serving_benchmarks.csv"
UNSTATED_ENGINE = "0.12.0"
"""Taken for a row without a version: the V1 engine, as all of its source's rows."""
NIGHTLY_ENGINE = "0.19.0"
UNLIMITED_SEQS = 4096

PRODUCTS = {
    "b200_sxm": "B200",
    "h200_sxm": "H200",
    "h100_sxm": "H100",
    "h100_pcie": "H100-PCIe",
    "h20": "H20",
    "a100_sxm": "A100-80",
    "a100_sxm40": "A100-40",
    "a800_sxm": "A800",
    "a6000": "A6000",
    "l4": "L4",
    "rtx3090": "RTX3090",
    "rtx4090": "RTX4090",
    "rtx4090d": "RTX4090D",
    "rtx5090": "RTX5090",
    "rtx6000ada": "RTX6000-Ada",
    "mi300x": "MI300X",
}
"""GPU names of the file to short names of the catalogue."""
MODELS = {
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "kimi-k2.5": "moonshotai/Kimi-K2.5",
    "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B-Instruct",
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B-Instruct",
    "minimax-m2.5": "MiniMaxAI/MiniMax-M2.5",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "phi-4": "microsoft/phi-4",
    "qwen2.5-0.5b": "Qwen/Qwen2.5-0.5B-Instruct",
    "qwen2.5-1.5b": "Qwen/Qwen2.5-1.5B-Instruct",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B-Instruct",
    "qwen2.5-14b": "Qwen/Qwen2.5-14B-Instruct",
    "qwen2.5-32b": "Qwen/Qwen2.5-32B-Instruct",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "qwen3-32b": "Qwen/Qwen3-32B",
}
CHECKPOINTS = {
    ("gpt-oss-120b", "mxfp4"): "openai/gpt-oss-120b",
    ("kimi-k2.5", "int4"): "moonshotai/Kimi-K2.5",
    ("kimi-k2.5", "nvfp4"): "nvidia/Kimi-K2.5-NVFP4",
    ("llama-3.1-70b", "fp8"): "nvidia/Llama-3.1-70B-Instruct-FP8",
    ("minimax-m2.5", "fp8"): "MiniMaxAI/MiniMax-M2.5",
    ("minimax-m2.5", "nvfp4"): "nvidia/MiniMax-M2.5-NVFP4",
    ("qwen3-235b-a22b", "fp8"): "Qwen/Qwen3-235B-A22B-FP8",
}
"""Checkpoints with their own list of modules left in 16 bit."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One measured row and its question."""

    id: int
    group: str
    model: str
    gpu: str
    quant: str
    isl: float
    osl: float
    ttft_ms: float
    tpot_ms: float
    tokens_per_s: float
    request: PerformanceRequest
    work: Work

    @property
    def gpus(self) -> int:
        """Of the replica."""
        return self.request.parallelism.gpus

    @property
    def cell(self) -> str:
        """Model, format and GPU, for tables."""
        return f"{self.model} {self.quant} on {self.gpu}"


@lru_cache(maxsize=4)
def load_rows(path: Path = DATA) -> tuple[Row, ...]:
    """Return the scored vLLM rows."""
    with path.open(encoding="utf-8", newline="") as file:
        raw = [row for row in csv.DictReader(file) if row["engine"] == "vllm" and row["scored"] == "True"]
    return tuple(_row(row) for row in raw)


def distinct(values: Iterable[str]) -> list[str]:
    """Return values once, sorted."""
    return sorted(set(values))


def architecture(model: str, quant: str) -> ModelArchitecture:
    """Return the architecture of a model in a format."""
    exact = CHECKPOINTS.get((model, quant))
    if exact is not None:
        return load_models()[exact]
    found = load_models()[MODELS[model]]
    number = named(quant)
    return found if number is None else replace(found, quantization=number)


def _engine_version(text: str) -> str:
    if text.startswith("nightly"):
        return NIGHTLY_ENGINE
    return text or UNSTATED_ENGINE


def _row(raw: dict[str, str]) -> Row:
    gpu = load_products()[PRODUCTS[raw["gpu"]]]
    engine = engine_class(_engine_version(raw["engine_version"]))
    isl, osl = float(raw["isl_eff"]), float(raw["osl_eff"])
    length = int(isl + osl) + 1
    request = PerformanceRequest(
        architecture=architecture(raw["model"], raw["quant"]),
        gpu=gpu,
        engine=engine,
        parallelism=Parallelism(
            tensor=int(raw["tp"]), pipeline=int(raw["pp"]), data=int(raw["dp"]), expert=int(raw["ep"]) > 1
        ),
        input_tokens=isl,
        output_tokens=osl,
        concurrency=float(raw["concurrency"]) if raw["concurrency"] else None,
        rate_per_s=float(raw["rate"]) if raw["rate"] else None,
        max_num_seqs=UNLIMITED_SEQS,
        max_num_batched_tokens=default_batch(engine, gpu, length)[1],
        fp8_kv=raw["kv"] == "fp8",
        nvlink=gpu.island_gpus > 1,
    )
    found = work(request.architecture, gpu, request.parallelism, fp8_kv=request.fp8_kv, nvlink=request.nvlink)
    return Row(
        id=int(raw["id"]),
        group=raw["group"],
        model=raw["model"],
        gpu=raw["gpu"],
        quant=raw["quant"],
        isl=float(raw["isl"]),
        osl=float(raw["osl"]),
        ttft_ms=float(raw["ttft_ms"]),
        tpot_ms=float(raw["tpot_ms"]),
        tokens_per_s=float(raw["out_tps"]),
        request=request,
        work=found,
    )


def measured(rows: Sequence[Row]) -> list[tuple[float, float, float]]:
    """Return TTFT, TPOT and tokens/s of each row."""
    return [(row.ttft_ms, row.tpot_ms, row.tokens_per_s) for row in rows]

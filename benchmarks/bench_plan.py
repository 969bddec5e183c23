"""How long one decision takes, and whether ten thousand of them leave memory behind, as JSON.

Five products and 128 GPUs; CPU time on one core. Prints the candidates of each decision and fails when a
median exceeds its bar, or when the resident memory has grown by more than its own.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Final

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.catalog.engines import engine_class
from shardwright.catalog.gpus import load_products
from shardwright.catalog.models import load_models
from shardwright.planner.choice import plan
from shardwright.planner.types import ModelChoice, PlanRequest
from shardwright.topology.pool import pool_of_shapes

BAR_MS: Final = 50.0
GROWTH_BAR_MIB: Final = 8.0
ROUNDS: Final = 15
PLANS: Final = 10_000
WARM: Final = 2_000
"""Plans after which the caches of the planner are full."""
SHAPES: Final = (
    ("NVIDIA-H100-80GB-HBM3", 8, 4), ("NVIDIA-H200", 8, 4), ("NVIDIA-A100-SXM4-80GB", 8, 2),
    ("NVIDIA-L40S", 4, 4), ("NVIDIA-RTX-A6000", 4, 8),
)  # fmt: skip
SMALL: Final = (("NVIDIA-H100-80GB-HBM3", 8, 2), ("NVIDIA-L40S", 4, 2))
MODELS: Final = (
    "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-30B-A3B-FP8",
    "mistralai/Mixtral-8x7B-Instruct-v0.1", "deepseek-ai/DeepSeek-V3",
)  # fmt: skip
BOTH: Final[dict[str, Any]] = {"allowedKVCacheDtypes": ["Auto", "FP8"]}
LOADS: Final = {"usual": (100, {}), "heavy": (3000, {}), "heavy, FP8 KV allowed": (3000, BOTH)}
"""Requests a minute, and what of the model is stated. A heavy load asks for other limits than the usual ones."""


def decide(
    model_id: str, requests_per_minute: int, model: dict[str, Any], shapes: tuple[tuple[str, int, int], ...]
) -> tuple[float, int]:
    """Decide once; return milliseconds of CPU time and the candidates. Each rate is a question of its own."""
    products = load_products()
    spec = LLMServiceSpec.model_validate(
        {
            "model": {"id": model_id, **model},
            "pool": {"maxGPUs": 128},
            "workload": {"requestsPerMinute": requests_per_minute},
            "slo": {
                "ttft": {"percentile": 95, "milliseconds": 3000},
                "tpot": {"percentile": 95, "milliseconds": 60},
            },
        }
    )
    pool = pool_of_shapes(list(shapes), products, "None")
    choice = ModelChoice(model_id=model_id, revision=None, architecture=load_models()[model_id])
    request = PlanRequest(spec=spec, models=(choice,), pool=pool, engine=engine_class(), products=products)
    start = time.process_time()
    decision = plan(request)
    return (time.process_time() - start) * 1000, len(decision.candidates)


def speed(model_id: str, load: str) -> dict[str, float]:
    """Measure one kind of decision."""
    rate, model = LOADS[load]
    first, count = decide(model_id, rate - 1, model, SHAPES)
    times = [decide(model_id, rate + index, model, SHAPES)[0] for index in range(ROUNDS)]
    return {
        "candidates": count,
        "firstMilliseconds": round(first, 1),
        "medianMilliseconds": round(statistics.median(times), 1),
        "worstMilliseconds": round(max(times), 1),
    }


def resident_mib() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / (1 << 20)


def memory(plans: int) -> dict[str, float]:
    """Decide so many times, each time something new, and return how much memory that leaves."""
    before = 0.0
    for index in range(plans):
        decide(MODELS[index % len(MODELS)], 1 + index, BOTH if index % 3 else {}, SMALL)
        if index == min(WARM, plans // 2):
            before = resident_mib()
    after = resident_mib()
    return {
        "plans": plans,
        "warmMiB": round(before, 1),
        "endMiB": round(after, 1),
        "grownMiB": round(after - before, 1),
        "barMiB": GROWTH_BAR_MIB,
    }


def main() -> int:
    """Measure, print, and say by the exit code whether the bars are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plans", type=int, default=PLANS, help="decisions of the memory run; 0: none")
    plans = parser.parse_args().plans
    found = {model_id: {load: speed(model_id, load) for load in LOADS} for model_id in MODELS}
    kept = memory(plans) if plans else None
    print(
        json.dumps(
            {
                "gpus": sum(gpus * nodes for _, gpus, nodes in SHAPES),
                "products": len(SHAPES),
                "barMilliseconds": BAR_MS,
                "models": found,
                "memory": kept,
            },
            indent=2,
        )
    )
    slow = any(entry["medianMilliseconds"] > BAR_MS for loads in found.values() for entry in loads.values())
    return int(slow or (kept is not None and kept["grownMiB"] > GROWTH_BAR_MIB))


if __name__ == "__main__":
    sys.exit(main())

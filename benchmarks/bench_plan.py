"""How long one decision takes: five products, 128 GPUs, CPU time on one core, as JSON.

Prints the candidates of each decision and fails when the median exceeds the bar.
"""

import json
import statistics
import sys
import time
from typing import Final

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.catalog.engines import engine_class
from shardwright.catalog.gpus import load_products
from shardwright.catalog.models import load_models
from shardwright.planner.choice import plan
from shardwright.planner.types import ModelChoice, PlanRequest
from shardwright.topology.pool import pool_of_shapes

BAR_MS: Final = 50.0
ROUNDS: Final = 15
SHAPES: Final = (
    ("NVIDIA-H100-80GB-HBM3", 8, 4), ("NVIDIA-H200", 8, 4), ("NVIDIA-A100-SXM4-80GB", 8, 2),
    ("NVIDIA-L40S", 4, 4), ("NVIDIA-RTX-A6000", 4, 8),
)  # fmt: skip
MODELS: Final = (
    "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-30B-A3B-FP8",
    "mistralai/Mixtral-8x7B-Instruct-v0.1", "deepseek-ai/DeepSeek-V3",
)  # fmt: skip


def decide(model_id: str, requests_per_minute: int) -> tuple[float, int]:
    """Decide once; return milliseconds of CPU time and the candidates. Each rate is a question of its own."""
    products = load_products()
    spec = LLMServiceSpec.model_validate(
        {
            "model": {"id": model_id},
            "pool": {"maxGPUs": 128},
            "workload": {"requestsPerMinute": requests_per_minute},
            "slo": {
                "ttft": {"percentile": 95, "milliseconds": 3000},
                "tpot": {"percentile": 95, "milliseconds": 60},
            },
        }
    )
    pool = pool_of_shapes(list(SHAPES), products, "None")
    choice = ModelChoice(model_id=model_id, revision=None, architecture=load_models()[model_id])
    request = PlanRequest(spec=spec, models=(choice,), pool=pool, engine=engine_class(), products=products)
    start = time.process_time()
    decision = plan(request)
    return (time.process_time() - start) * 1000, len(decision.candidates)


def main() -> int:
    """Measure, print, and say by the exit code whether the bar is met."""
    found = {}
    for model_id in MODELS:
        first, count = decide(model_id, 99)
        times = [decide(model_id, 100 + index)[0] for index in range(ROUNDS)]
        found[model_id] = {
            "candidates": count,
            "firstMilliseconds": round(first, 1),
            "medianMilliseconds": round(statistics.median(times), 1),
            "worstMilliseconds": round(max(times), 1),
        }
    print(
        json.dumps(
            {"gpus": 128, "products": len(SHAPES), "barMilliseconds": BAR_MS, "models": found}, indent=2
        )
    )
    return int(any(entry["medianMilliseconds"] > BAR_MS for entry in found.values()))


if __name__ == "__main__":
    sys.exit(main())

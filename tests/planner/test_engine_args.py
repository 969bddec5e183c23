"""Flags added by hand widen the reserve that the plan keeps."""

from shardwright.catalog.engines import engine_class
from shardwright.catalog.gpus import load_products
from shardwright.catalog.models import load_models
from shardwright.planner.engine_args import uncovered
from shardwright.planner.margin import UNCOVERED_FACTOR
from shardwright.planner.memory import estimate
from shardwright.planner.types import EngineLimits, MemoryRequest, Parallelism


def test_only_flags_that_may_change_memory_are_uncovered():
    args = ["--seed", "1", "--block-size=32", "--block_size", "16", "--no-such-flag"]
    assert uncovered(args) == ("--block-size", "--no-such-flag")


def test_an_uncovered_flag_widens_the_reserve_and_is_named():
    def ask(*flags: str):
        return estimate(
            MemoryRequest(
                architecture=load_models()["meta-llama/Llama-3.1-8B-Instruct"],
                gpu=load_products()["NVIDIA-H100-80GB-HBM3"],
                engine=engine_class("0.19.0"),
                parallelism=Parallelism(),
                limits=EngineLimits(
                    max_model_len=8192,
                    max_num_seqs=256,
                    max_num_batched_tokens=8192,
                    gpu_memory_utilization_percent=90,
                ),
                added_flags=flags,
            )
        )

    plain, widened = ask(), ask("--block-size")
    assert plain.covered
    assert not widened.covered
    assert "--block-size" in widened.coverage
    assert widened.margin_gib == plain.margin_gib * UNCOVERED_FACTOR
    assert widened.kv_cache_gib_per_gpu == plain.kv_cache_gib_per_gpu

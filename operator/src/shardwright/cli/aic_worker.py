"""A process of its own that asks aiconfigurator-core for TPOT: JSON lines in, one JSON line out for each.

Decides how a question is put to that library. Never imported by anything here: its 600 MB of tables and its
dependencies stay out of every other process. Run by file name, with any Python that has the library.

Entry points and their traps: aiconfigurator-core 0.12.0, `sdk/models`, `sdk/perf_database.py`,
`sdk/backends/vllm_backend.py`.
"""

import json
import logging
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

BACKEND = "vllm"


def main() -> int:
    """Answer each line of standard input."""
    logging.disable(logging.WARNING)
    answers = sys.stdout
    sys.stdout = sys.stderr  # what the library prints is no answer
    try:
        ask = _ask_of_library()
    except ImportError as error:
        print(json.dumps({"reason": f"aiconfigurator-core is not installed: {error}"}), file=answers)
        return 1
    for line in sys.stdin:
        print(json.dumps(_answer(ask, json.loads(line))), file=answers, flush=True)
    return 0


def _answer(ask: Callable[[dict[str, Any]], float], question: dict[str, Any]) -> dict[str, object]:
    try:
        return {"tpotMs": ask(question)}
    except Exception as error:  # noqa: BLE001 -- whatever it raises means that it has no opinion
        return {"reason": f"{type(error).__name__}: {error}"[:300]}


def _ask_of_library() -> Callable[[dict[str, Any]], float]:
    from aiconfigurator_core.sdk import common, config  # noqa: PLC0415 -- see the module's docstring
    from aiconfigurator_core.sdk.backends.factory import get_backend  # noqa: PLC0415
    from aiconfigurator_core.sdk.models import get_model  # noqa: PLC0415
    from aiconfigurator_core.sdk.perf_database import (  # noqa: PLC0415
        get_database_view,
        get_latest_database_version,
    )

    @lru_cache(maxsize=16)
    def database(system: str) -> object:
        version = get_latest_database_version(system, BACKEND)
        found = get_database_view(system, BACKEND, version)
        if found is None:
            raise ValueError(f"no {BACKEND} tables for {system}")
        return found

    def ask(question: dict[str, Any]) -> float:
        moe = bool(question["expertParallel"]), question["tensor"] * question["data"]
        formats = {
            "gemm_quant_mode": (common.GEMMQuantMode, question["gemm"]),
            "moe_quant_mode": (common.MoEQuantMode, question["experts"]),
            "kvcache_quant_mode": (common.KVCacheQuantMode, question["kv"]),
        }
        split = config.ModelConfig(
            tp_size=question["tensor"],
            pp_size=question["pipeline"],
            attention_dp_size=question["data"],
            moe_tp_size=1 if moe[0] else moe[1],
            moe_ep_size=moe[1] if moe[0] else 1,
            **{name: kind[value] for name, (kind, value) in formats.items() if value},
        )
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(question["config"]), encoding="utf-8")
            model = get_model(folder, split, BACKEND)
        runtime = config.RuntimeConfig(
            batch_size=question["batch"], isl=question["inputTokens"], osl=question["outputTokens"]
        )
        # Its backends remember answers by the load alone, whatever the model: a new one for each question.
        found = get_backend(BACKEND).run_agg(
            model, database(question["system"]), runtime, ctx_tokens=question["chunkTokens"]
        )
        return float(found.get_summary_df().iloc[0]["tpot"])

    return ask


if __name__ == "__main__":
    raise SystemExit(main())

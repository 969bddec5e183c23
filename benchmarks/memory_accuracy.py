"""The memory model against measured vLLM starts: one line a row, then the summary, or all of it as JSON.

Decides which rows count: those whose start succeeded with logged KV tokens, and whose class the model covers.
Sliding-window hybrids are judged by maximum concurrency, as vLLM prints their tokens in two ways. Every question
goes through the same options as `shardwright estimate`; the row's own visible memory is not used.

    python benchmarks/memory_accuracy.py [--json] [--rows FILE] [--update docs/memory-model.md]
"""

import argparse
import csv
import json
import re
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from shardwright.catalog.errors import CatalogError
from shardwright.catalog.types import AttentionKind
from shardwright.cli.estimate_options import OptionError, UnknownMemoryError, from_mapping, question
from shardwright.planner.memory import estimate

ROWS = Path(__file__).resolve().parent.parent / "tests" / "data" / "vllm_startup_observations.csv"
BEGIN, END = "<!-- figures: make accuracy-memory -->", "<!-- end of figures -->"
COLUMNS = {
    "model": "model",
    "gpu": "gpu",
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "ep": "ep",
    "dtype_or_quant": "quantization",
    "kv_dtype": "kv-cache-dtype",
    "gpu_mem_util": "gpu-memory-utilization",
    "max_model_len": "max-model-len",
    "max_num_seqs": "max-num-seqs",
    "max_batched_tokens": "max-num-batched-tokens",
    "enforce_eager": "enforce-eager",
}
LEFT_OUT = {
    230: "hybrid state (gated delta layers)",
    232: "hybrid state (gated delta layers)",
    234: "hybrid state (gated delta layers)",
    242: "unified memory, whose accounting differs",
    244: "engine before V1; GPU product not stated",
    246: "engine before V1",
    254: "engine before V1 with adapters; GPU product not stated",
    256: "engine before V1",
    258: "engine before V1",
    260: "engine before V1",
}
"""Started rows that are not covered, each with the class that the fit of the model leaves out."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One measured start and what the model says of it. Sizes are GiB of one GPU."""

    id: int
    model: str
    gpu: str
    split: str
    version: str
    outcome: str
    verdict: str
    covered: bool
    coverage: str
    measured_tokens: int | None
    predicted_tokens: int | None
    error_percent: float | None
    measured_gib: float | None
    predicted_gib: float | None
    margin_gib: float | None
    margin_limit_gib: float | None
    measured_weights_gib: float | None = None
    predicted_weights_gib: float | None = None

    @property
    def counts(self) -> bool:
        """Whether it started and logged its tokens."""
        return self.outcome == "ok" and self.measured_tokens is not None

    @property
    def overpromised_gib(self) -> float:
        """How much more than it had is promised after the margin; 0 when nothing is."""
        if self.measured_gib is None or self.predicted_gib is None or self.margin_gib is None:
            return 0.0
        return max(0.0, max(0.0, self.predicted_gib - self.margin_gib) - max(0.0, self.measured_gib))


def number(text: str) -> float | None:
    """Return a cell as a number; None when it is empty."""
    return float(text) if text else None


def version(text: str) -> str:
    """Return the version a cell names; of a range the first; 0.32.0 where it says 2026 only."""
    found = re.search(r"\d+\.\d+(\.\d+)?", text)
    return found[0] if found else "0.32.0"


def judge(row: dict[str, str]) -> Judged:
    """Return what the model says of one row."""
    options: dict[str, object] = {option: row[column] for column, option in COLUMNS.items() if row[column]}
    options["engine-version"] = version(row["vllm_version"])
    tokens, gib = number(row["kv_tokens"]), number(row["kv_cache_gib_per_gpu"])
    known = {
        "id": int(row["id"]),
        "model": row["model"],
        "gpu": row["gpu"],
        "split": f"TP{row['tp']} PP{row['pp']}",
        "version": version(row["vllm_version"]),
        "outcome": row["outcome"],
        "measured_tokens": None if tokens is None else int(tokens),
        "measured_gib": gib,
        "measured_weights_gib": number(row["weights_gib_per_gpu"]),
    }
    try:
        request = question(from_mapping(options)).request
    except (OptionError, CatalogError, UnknownMemoryError) as error:
        nothing = dict.fromkeys(
            ("predicted_tokens", "error_percent", "predicted_gib", "margin_gib", "margin_limit_gib")
        )
        return Judged(**known, **nothing, verdict="Unknown", covered=False, coverage=str(error))
    answer = estimate(request)
    concurrency = number(row["max_concurrency"])
    error = None
    if request.architecture.attention is AttentionKind.SLIDING_HYBRID and concurrency:
        error = 100 * (answer.max_concurrency / concurrency - 1)
    elif tokens:
        error = 100 * (answer.kv_tokens / tokens - 1)
    return Judged(
        **known,
        verdict=str(answer.verdict),
        covered=answer.covered,
        coverage=answer.coverage,
        predicted_tokens=answer.kv_tokens,
        error_percent=error,
        predicted_gib=answer.kv_cache_gib_per_gpu,
        margin_gib=answer.margin_gib,
        margin_limit_gib=margin_limit(request, answer.visible_gib),
        predicted_weights_gib=answer.weights_gib_per_gpu,
    )


def margin_limit(request, visible_gib: float) -> float:
    """Return the reserve a covered row may have: 4 GiB AMD, 2 GiB MoE and MLA, max(0.5 GiB, 1 %) dense."""
    if request.gpu.vendor == "amd":
        return 4.0
    if request.architecture.moe is not None or request.architecture.mla is not None:
        return 2.0
    return max(0.5, 0.01 * visible_gib * request.limits.gpu_memory_utilization_percent / 100)


def load(path: Path = ROWS) -> list[Judged]:
    """Return every row of a file, judged."""
    with path.open(encoding="utf-8", newline="") as file:
        return [judge(row) for row in csv.DictReader(file)]


def summary(rows: list[Judged]) -> dict[str, object]:
    """Return counts, error distribution over covered rows, and what is wrong, if anything."""
    counted = [row for row in rows if row.counts]
    covered = [row for row in counted if row.covered and row.error_percent is not None]
    errors = sorted(abs(row.error_percent) for row in covered)
    weights = sorted(
        abs(100 * (row.predicted_weights_gib / row.measured_weights_gib - 1))
        for row in rows
        if row.covered and row.measured_weights_gib and row.predicted_weights_gib
    )
    return {
        "rows": len(rows),
        "started_with_logged_tokens": len(counted),
        "covered": len(covered),
        "median_abs_error_percent": round(statistics.median(errors), 3),
        "p90_abs_error_percent": round(statistics.quantiles(errors, n=10, method="inclusive")[-1], 3),
        "max_abs_error_percent": round(errors[-1], 3),
        "weights_median_abs_error_percent": round(statistics.median(weights), 3),
        "weights_p90_abs_error_percent": round(
            statistics.quantiles(weights, n=10, method="inclusive")[-1], 3
        ),
        "overpromised": [row.id for row in rows if row.covered and row.overpromised_gib > 0],
        "not_covered": {row.id: row.coverage for row in counted if not row.covered},
        "failures": {row.id: row.verdict for row in rows if row.outcome != "ok"},
        "started_but_not_told_fits": {
            row.id: row.verdict
            for row in rows
            if row.outcome == "ok" and row.covered and row.verdict != "Fits"
        },
    }


def main() -> int:
    """Print the rows and the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")
    parser.add_argument("--update", type=Path, metavar="PAGE", help="write the summary into a page")
    args = parser.parse_args()
    rows = load(args.rows)
    total = summary(rows)
    if args.update is not None:
        args.update.write_text(with_table(args.update.read_text(encoding="utf-8"), rows), encoding="utf-8")
        return 0
    if args.json:
        print(json.dumps({"summary": total, "rows": [asdict(row) for row in rows]}, indent=2))
        return 0
    head = ("id", "model", "GPU", "split", "vLLM", "outcome", "verdict", "KV GiB measured", "predicted")
    print("| " + " | ".join((*head, "margin", "error %", "covered")) + " |")
    print("|" + "---|" * (len(head) + 3))
    for row in rows:
        print("| " + " | ".join(cells(row)) + " |")
    print(json.dumps(total, indent=2))
    return 0


def with_table(page: str, rows: list[Judged]) -> str:
    """Return a page with the part between its two markers replaced by the present figures."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


def table(rows: list[Judged]) -> str:
    """Return errors by class over the covered rows, and the rows that are not covered."""
    lines = ["| class | rows | median error % | P90 % | largest % |", "|---|---|---|---|---|"]
    counted = [row for row in rows if row.counts]
    covered = [row for row in counted if row.covered and row.error_percent is not None]
    groups = {"all covered rows": covered}
    for row in covered:
        groups.setdefault(row.coverage, []).append(row)
    for name, members in groups.items():
        errors = sorted(abs(row.error_percent) for row in members)
        p90 = statistics.quantiles(errors, n=10, method="inclusive")[-1] if len(errors) > 1 else errors[0]
        lines.append(
            f"| {name} | {len(errors)} | {statistics.median(errors):.2f} | {p90:.2f} | {errors[-1]:.2f} |"
        )
    lines += ["", "Started, with logged tokens, not covered:", ""]
    lines += ["| row | model | class that is left out | what is said of it |", "|---|---|---|---|"]
    lines += [
        f"| {row.id} | {row.model} | {LEFT_OUT[row.id]} | {row.coverage} |"
        for row in counted
        if not row.covered
    ]
    lines += [
        "",
        "Failed starts and the verdict given:",
        "",
        "| row | model | recorded | verdict |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row.id} | {row.model} on {row.gpu}, {row.split} | {row.outcome or 'failed, reason not stated'} "
        f"| {row.verdict} |"
        for row in rows
        if row.outcome != "ok"
    ]
    return "\n".join(lines)


def cells(row: Judged) -> tuple[str, ...]:
    """Return a row's cells."""
    return (
        str(row.id), row.model, row.gpu, row.split, row.version, row.outcome or "not stated", row.verdict,
        size(row.measured_gib), size(row.predicted_gib), size(row.margin_gib), size(row.error_percent),
        "yes" if row.covered else row.coverage,
    )  # fmt: skip


def size(value: float | None) -> str:
    """Return two decimals, or nothing."""
    return "" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())

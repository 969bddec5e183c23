"""Refits the latency model's constants to the measured serving rows and reports their errors.

Decides the fitted values, measured classes and error bands of `catalog/data/performance_constants.json`; the
constants that are held fixed, their units, bounds and sources are edited by hand. Without --write it only prints.

    python benchmarks/fit_performance.py [-o text|json] [--write]
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from serving.fitting import fit, predictions
from serving.forms import Figures, Form, shipped_form
from serving.judge import FIGURES, errors, factors, grouped, held_out, macro
from serving.rows import Row, load_rows

import shardwright.catalog
from shardwright.planner.performance.band import alike

TABLE = Path(shardwright.catalog.__file__).parent / "data" / "performance_constants.json"
DIGITS = 3
HOW = (
    "robust fit of all fitted constants together (make fit): least mean absolute log error of TTFT, TPOT "
    "and, at half the weight, throughput; rounded to three digits"
)
SOURCE = "benchmarks/data/serving_benchmarks.csv, scored vLLM rows"


def main() -> int:
    """Print the fit, and write it when asked."""
    options = _options()
    rows, form = load_rows(), shipped_form()
    values = fit(form, rows)
    rounded = {name: float(f"{value:.{DIGITS}g}") for name, value in values.items()}
    by_model = held_out(form, rows, lambda row: row.model)
    by_gpu = held_out(form, rows, lambda row: row.gpu)
    found = {
        "rows": len(rows),
        "constants": {name: rounded[name] for name in form.bounds},
        "at_a_bound": _at_a_bound(form, values),
        "in_sample": asdict(errors(rows, predictions(form, rows, rounded))),
        "model_held_out": asdict(errors(rows, by_model)),
        "gpu_held_out": asdict(errors(rows, by_gpu)),
        "macro_by_model": macro(grouped(rows, by_model, lambda row: row.model)),
        "macro_by_gpu": macro(grouped(rows, by_gpu, lambda row: row.gpu)),
        "bands": _bands(rows, by_model, by_gpu),
    }
    if options.write:
        _write(found["constants"], _measured(rows), found["bands"])
    print(json.dumps(found, indent=1) if options.output == "json" else _text(found))
    return 0


def _at_a_bound(form: Form, values: dict[str, float]) -> list[str]:
    return [
        name for name, (low, high) in form.bounds.items() if not 1.001 * low < values[name] < 0.999 * high
    ]


def _bands(rows: Sequence[Row], by_model: list[Figures], by_gpu: list[Figures]) -> dict:
    """Return the factors for what was measured, what is related, and neither (the square of the second)."""
    same, related = factors(rows, by_model), factors(rows, by_gpu)
    return {
        "source": "make fit: factors between which four of five measured TTFTs and TPOTs lie, with the model "
        "(same) and the GPU (related) held out; unrelated: the square of related, a judgement",
        "same": _band(same),
        "related": _band((min(same[0], related[0]), max(same[1], related[1]))),
        "unrelated": _band((related[0] ** 2, related[1] ** 2)),
    }


def _band(found: tuple[float, float]) -> dict[str, float]:
    return {"low": round(min(1.0, found[0]), 2), "high": round(max(1.0, found[1]), 2)}


def _measured(rows: Sequence[Row]) -> list[dict]:
    classes: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        model, gpu = row.request.architecture, row.request.gpu
        classes[gpu.short_name, gpu.family, alike(model.quantization.format), model.moe is not None].append(
            row
        )
    return [
        {
            "gpu": gpu,
            "family": family,
            "format": str(number),
            "experts": experts,
            "tensor": sorted({row.request.parallelism.tensor for row in same}),
            "rows": len(same),
        }
        for (gpu, family, number, experts), same in sorted(classes.items())
    ]


def _write(constants: dict[str, float], measured: list[dict], bands: dict) -> None:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    for row in table["constants"]:
        if row["name"] in constants:
            row.update(value=constants[row["name"]], source=SOURCE, fit=HOW)
    table.update(measured=measured, bands=bands)
    lines = ["{"]
    for key, value in table.items():
        last = "" if key == list(table)[-1] else ","
        if isinstance(value, list):
            body = ",\n".join(f"  {json.dumps(item)}" for item in value)
            lines.append(f' "{key}": [\n{body}\n ]{last}')
        else:
            lines.append(f' "{key}": {json.dumps(value)}{last}')
    TABLE.write_text("\n".join([*lines, "}"]) + "\n", encoding="utf-8")


def _text(found: dict) -> str:
    lines = [f"{found['rows']} rows; constants at a bound: {', '.join(found['at_a_bound']) or 'none'}"]
    lines += [f"  {name:26s} {value:g}" for name, value in found["constants"].items()]
    lines.append("median (P90) absolute error in percent: " + ", ".join(FIGURES))
    for key in ("in_sample", "model_held_out", "gpu_held_out"):
        each = found[key]
        cells = "  ".join(f"{m:5.1f} ({p:.0f})" for m, p in zip(each["median"], each["p90"], strict=True))
        lines.append(f"  {key:26s} {cells}")
    for key in ("macro_by_model", "macro_by_gpu"):
        lines.append(f"  {key:26s} " + "  ".join(f"{value:5.1f}" for value in found[key]))
    lines += [f"  band {key:21s} {found['bands'][key]}" for key in ("same", "related", "unrelated")]
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--write", action="store_true", help="write values, measured classes and bands")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m shardwright.cli.docs`: write, or with `--check` compare, the files made from the models.

Decides which generated file lies where: the CRD, the chart's copy of it, docs/api.md, docs/reasons.md and the
schema of `shardwright diff -o json`. What is in them is decided in `shardwright.api` and `cli.diff_report`.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from shardwright.api.crd import crd
from shardwright.api.reference import api_reference, reasons_reference
from shardwright.cli.diff_report import DiffReport

ROOT = Path(__file__).resolve().parents[4]
"""The checkout; generated files exist only there."""


def generated() -> dict[str, str]:
    """Map each generated file, relative to the checkout, to its text."""
    definition = yaml.safe_dump(crd(), sort_keys=False, width=120, allow_unicode=True)
    return {
        "crds/llmservices.shardwright.dev.yaml": definition,
        "charts/shardwright/files/crd.yaml": definition,
        "docs/api.md": api_reference(),
        "docs/reasons.md": reasons_reference(),
        "docs/diff.schema.json": _schema(),
    }


def _schema() -> str:
    """Return the JSON Schema of `shardwright diff -o json`."""
    found = DiffReport.model_json_schema(by_alias=True, mode="serialization")
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files, or with --check name those that are out of step; 1 when there are any."""
    parser = argparse.ArgumentParser(prog="python -m shardwright.cli.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    args = parser.parse_args(argv)
    stale = [name for name, text in generated().items() if _read(args.root / name) != text]
    if args.check:
        for name in stale:
            print(f"{name} is out of step with the models: run make generate", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        path = args.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(generated()[name], encoding="utf-8")
        print(f"wrote {name}")
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())

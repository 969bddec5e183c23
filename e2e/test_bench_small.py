"""A small run of the scale benchmark: every target that does not depend on the machine's speed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXACT = (
    "unsettledServices",
    "writesPerChildMax",
    "statusWritesPerServiceMax",
    "writesToServices",
    "refusedRequests",
    "rssMiB",
    "rssAfterRestartMiB",
    "idleWrites",
    "idleRequestsPerSecond",
    "restartWrites",
    "outageExits",
    "outageOtherWrites",
)


@pytest.mark.cluster
def test_a_small_run_keeps_every_target_that_time_does_not_touch(tmp_path: Path) -> None:
    result, log = tmp_path / "result.json", tmp_path / "operator.log"
    size = ["--services", "20", "--foreign-pods", "60", "--nodes", "40"]
    phases = ["--idle-seconds", "15", "--changes", "3", "--burst", "8", "--no-gate"]
    command = [sys.executable, str(ROOT / "benchmarks" / "bench_scale.py"), *size, *phases]
    files = ["--write", str(result), "--log", str(log)]
    run = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    rows = {row["name"]: row for row in json.loads(result.read_text())["results"]}
    missed = {name: rows[name]["value"] for name in EXACT if not rows[name]["pass"]}
    assert not missed, (missed, run.stderr[-2000:])
    assert all(row["value"] is not None for row in rows.values())

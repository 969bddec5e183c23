"""What the committed run of the router's policies has to show, and that the docs show that run."""

import json
from pathlib import Path

from router_picture import RESULTS, picture

ROOT = Path(__file__).parents[2]
ROWS = json.loads(RESULTS.read_text())["rows"]


def p95_ms(policy: str, load: float) -> tuple[int, int]:
    [row] = [r for r in ROWS if (r["kind"], r["policy"], r["load"]) == ("router", policy, load)]
    assert row["failed"] == 0
    return row["shortP95Ms"], row["longP95Ms"]


def test_at_70_percent_short_requests_wait_a_third_and_long_ones_no_longer():
    (short, long), (short_in_turn, long_in_turn) = p95_ms("kv_aware", 0.7), p95_ms("round_robin", 0.7)
    assert 3 * short <= short_in_turn
    assert long <= 1.2 * long_in_turn


def test_the_docs_show_the_committed_run():
    assert picture(ROWS) == (ROOT / "docs/images/router.svg").read_text()
    text = (ROOT / "benchmarks/README.md").read_text()
    for policy in sorted({row["policy"] for row in ROWS if row["kind"] == "router"}):
        cells = [p95_ms(policy, load) for load in (0.3, 0.5, 0.7, 0.9)]
        told = " | ".join(f"{short / 1000:.1f} / {long / 1000:.1f}" for short, long in cells)
        assert f"| `{policy}` | {told} |" in text

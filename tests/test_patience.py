"""No test depends on the speed of the machine: what would make one do so is looked for in the tests' own source."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "e2e").glob("*.py")])
LEAST_S, FOREVER_S = 30, 1000
WAITS = "tests/patience.py"
CLOCKS = {"monotonic", "perf_counter", "process_time", "monotonic_ns", "perf_counter_ns"}
READS_A_CLOCK = {
    WAITS: "the limit of all waiting",
    "tests/page/devtools.py": "the limit of waiting for a browser",
    "tests/cluster/test_api.py": "requests come no sooner than",
    "tests/cli/test_any_input.py": "CPU time, a thousand times what is usual, for what grows without end",
    "e2e/controller_world.py": "nothing is written for at least",
    "e2e/test_calibration.py": "requests come at a rate",
    "e2e/test_autoscaling.py": "requests come at a rate, and sizes are watched for at least",
    "e2e/operator_process.py": "figures of the benchmarks",
    "e2e/demo.py": "is shown",
    "e2e/test_endpoints.py": "is shown",
    "e2e/test_live_ghosts.py": "is shown",
    "e2e/test_live_ramp.py": "Prometheus is away for at least",
    "e2e/routed.py": "requests of a cold start are told from others",
}


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def owner_of(call: ast.Call) -> str:
    return getattr(getattr(call.func, "value", None), "id", "")


def number(node: ast.expr | None) -> float | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


def limits(call: ast.Call) -> list[ast.expr]:
    """Arguments that end a wait."""
    found = [
        k.value for k in call.keywords if k.arg and "timeout" in k.arg.lower() and "shutdown" not in k.arg
    ]
    if name_of(call) == "wait_for" and owner_of(call) == "asyncio":
        found += call.args[1:2]
    if name_of(call) == "timeout" and owner_of(call) == "asyncio":
        found += call.args[:1]
    if name_of(call) in {"result", "join", "wait"} and not isinstance(call.func, ast.Name):
        found += call.args[:1]
    return found


def hurries(path: str, source: str) -> list[str]:
    """Give each place that a slow machine could make fail."""
    found = []
    fake_clock = "looptime" in source or path.startswith("tests/controller/")
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        where = f"{path}:{call.lineno}: "
        for limit in limits(call):
            seconds = number(limit)
            if seconds is not None and seconds < LEAST_S:
                found.append(f"{where}a limit of {seconds} s")
        if any(k.arg == "deadline" and ast.unparse(k.value) != "None" for k in call.keywords):
            found.append(f"{where}a deadline")
        is_clock = name_of(call) in CLOCKS or (name_of(call) == "time" and owner_of(call) == "loop")
        if is_clock and path not in READS_A_CLOCK and not fake_clock:
            found.append(f"{where}a clock is read")
        if name_of(call) == "sleep" and path.startswith("tests/") and path != WAITS and not fake_clock:
            seconds = number(call.args[0])
            if seconds is None or 0 < seconds < FOREVER_S:
                found.append(f"{where}a sleep")
    return found


@pytest.mark.parametrize("path", [str(path.relative_to(ROOT)) for path in TESTS])
def test_no_test_is_in_a_hurry(path):
    assert hurries(path, (ROOT / path).read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "client = Client(timeout_s=0.3)",
        "await asyncio.wait_for(event.wait(), 5)",
        "async with asyncio.timeout(1): pass",
        "await asyncio.wait(tasks, timeout=0.5)",
        "process.wait(5)",
        "assert loop.time() - began < 1",
        "assert time.monotonic() - began < 1",
        "await asyncio.sleep(0.05)",
        "settings(deadline=timedelta(milliseconds=500))",
    ],
)
def test_haste_is_seen(line):
    body = f"async def test():\n    {line}\n"
    assert len(hurries("tests/cluster/test_x.py", body)) == 1

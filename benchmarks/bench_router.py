"""What each policy of the real router does to the time to first token, before four simulated engines.

Decides the load, what is kept of it and what is printed. Never judges: the figures are what a choice is made from.
The engines' time runs ten times as fast as the wall's; figures are in the engines' time. Beside each policy of the
router stand three that are computed in virtual time from the same requests, without a machine in between: what in-turn,
fewest requests and fewest tokens would give.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "operator" / "src"), str(ROOT / "e2e")]

from harness.network import Network, PodNetworks, why_not
from harness.processes import Process
from harness.waiting import wait_until
from sim import router
from sim.clients.load import Client, Outcome, Result, Work, percentile
from sim.engine.behaviour import CONTROL_PORT, VARIABLE
from sim.engine.queueing import ReplicaModel, Scheduler, Sequence

OUT = ROOT / "benchmarks" / "results" / "router.json"
ENGINES = 4
SHORT, LONG = (500, 100), (20_000, 100)
LONG_SHARE = 0.2
WORK = Work([SHORT, LONG], [1 - LONG_SHARE, LONG_SHARE])
LOADS = (0.3, 0.5, 0.7, 0.9)
POLICIES = ("round_robin", "random", "power_of_two", "cache_aware", "sticky_least_loaded", "kv_aware")
SPEED = 10.0
WARM_UP_S = 60.0
FLAGS = (
    "--served-model-name=chat",
    "--max-model-len=32768",
    "--max-num-seqs=256",
    "--max-num-batched-tokens=2048",
)
# Frames of ten tokens: the first comes by itself in any case, and the machine has two cores.
# kv_aware asks an engine for a prompt's tokens, which later versions answer with --enable-scale-out only; nothing
# publishes what caches hold, so it goes by the tokens that are to be computed. No prefix is shared here, and looking for one costs the machine's time.
SERVING = (
    *("--enable-server-load-tracking", "--enable-scale-out", "--no-enable-prefix-caching"),
    *("--stream-interval=10", "--shutdown-timeout=1"),
)


def capacity(model: ReplicaModel) -> float:
    """Return the requests a second that one engine ends with a full queue, from the middle of such a run."""
    scheduler, source, now = Scheduler(model), random.Random(1), 0.0
    for _ in range(3000):
        scheduler.add(Sequence(*source.choices(WORK.lengths, WORK.weights)[0], 0.0))
    ends: list[float] = []
    while (seconds := scheduler.begin(now)) is not None:
        now += seconds
        ends += [now] * len(scheduler.end(now).finished)
    return 0.6 * len(ends) / (ends[int(0.8 * len(ends))] - ends[int(0.2 * len(ends))])


def arrivals(rate: float, seconds: float, seed: int) -> list[tuple[float, int, int]]:
    """Draw (time, prompt, answer)."""
    source, now, found = random.Random(seed), 0.0, []
    while (now := now + source.expovariate(rate)) < seconds:
        found.append((now, *source.choices(WORK.lengths, WORK.weights)[0]))
    return found


Choice = Callable[[int, list[Scheduler]], int]
VIRTUAL: dict[str, Choice] = {
    "in turn": lambda number, engines: number % len(engines),
    "fewest requests": lambda number, engines: _least(
        engines, lambda e: len(e.running) + len(e.waiting), number
    ),
    "fewest tokens": lambda number, engines: _least(engines, _tokens, number),
}


def virtual(choose: Choice, rate: float, seconds: float, seed: int) -> list[Sequence]:
    """Serve the arrivals in virtual time; return those after the warm-up."""
    engines = [Scheduler(ReplicaModel()) for _ in range(ENGINES)]
    due: list[float | None] = [None] * ENGINES
    kept = []
    for number, (at, prompt, answer) in enumerate([*arrivals(rate, seconds, seed), (float("inf"), 0, 0)]):
        while any(end is not None and end <= at for end in due):
            index = min((i for i in range(ENGINES) if due[i] is not None), key=lambda i: due[i] or 0.0)
            now = due[index] or 0.0
            engines[index].end(now)
            lasts = engines[index].begin(now)
            due[index] = None if lasts is None else now + lasts
        if at == float("inf"):
            break
        index = choose(number, engines)
        sequence = Sequence(prompt, answer, at)
        engines[index].add(sequence)
        if at > WARM_UP_S:
            kept.append(sequence)
        if due[index] is None:
            due[index] = at + (engines[index].begin(at) or 0.0)
    return kept


def _least(engines: list[Scheduler], weigh: Callable[[Scheduler], float], number: int) -> int:
    return min(range(len(engines)), key=lambda i: (weigh(engines[i]), (i - number) % len(engines)))


def _tokens(engine: Scheduler) -> float:
    """Return the prompt tokens that are to be computed, and a little for each that is in the cache."""
    left = sum(each.known - each.held for each in (*engine.running, *engine.waiting))
    return left + 0.05 * engine.held


@contextmanager
def engines(directory: Path) -> Iterator[list[str]]:
    """Run the engines and give their addresses."""
    with ExitStack() as stack:
        stack.enter_context(Network())
        networks, addresses = PodNetworks(), []
        environment = dict(os.environ) | {
            "PYTHONPATH": str(ROOT / "e2e"),
            VARIABLE: json.dumps({"speed": SPEED, "start_s": 1.0}),
        }
        for number in range(ENGINES):
            pod = networks.add()
            stack.callback(pod.close)
            argv = [sys.executable, "-m", "sim.engine", "serve", "m/x", *FLAGS, *SERVING]
            process = Process("engine", argv, directory / f"engine-{number}.log", environment)
            with pod.entered():
                process.start()
            stack.callback(process.kill)
            addresses.append(pod.address)
        for address in addresses:
            wait_until(lambda: get(f"http://{address}:8000/health") is not None, "an engine")  # noqa: B023
        yield addresses


def get(url: str) -> str:
    """Read a page."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as response:
        return str(response.read().decode())


def lateness(addresses: list[str]) -> tuple[float, int]:
    """Return by how many seconds, of the wall, how many steps of all engines were late so far."""
    states = [json.loads(get(f"http://{address}:{CONTROL_PORT}/state")) for address in addresses]
    return sum(state["late_s"] for state in states), sum(state["steps"] for state in states)


def measured(
    policy: str, load: float, *, rate: float, seconds: float, addresses: list[str], directory: Path
) -> dict[str, object]:
    """Send one load through the router with one policy."""
    workers = tuple(f"http://{address}:8000" for address in addresses)
    before = lateness(addresses)
    with (
        router.Router(directory, policy, workers) as front,
        Client("chat", target=front.url, seed=7) as client,
    ):
        began = time.monotonic()
        client.load(rate * SPEED, WORK)
        time.sleep(seconds / SPEED)
        results = client.drain()
        took = (time.monotonic() - began) * SPEED
    first = min(result.began_s for result in results)
    kept = [result for result in results if result.began_s - first > WARM_UP_S / SPEED]
    late_s, steps = (after - first for after, first in zip(lateness(addresses), before, strict=True))
    return row("router", policy, load, [tokens_and_first(each) for each in kept]) | {
        "failed": sum(each.outcome is not Outcome.OK for each in kept),
        "seconds": round(took),
        # What the machine adds to a step of some 60 ms: the figures are worth nothing where this is not small.
        "lateMsPerStep": round(1000 * SPEED * late_s / max(1, steps), 2),
    }


def tokens_and_first(result: Result) -> tuple[int, float | None]:
    """Give prompt tokens and TTFT in the engine's seconds."""
    return result.prompt_tokens, None if result.ttft_s is None else result.ttft_s * SPEED


def row(kind: str, policy: str, load: float, seen: list[tuple[int, float | None]]) -> dict[str, object]:
    """Give a row of the table: milliseconds of the engine."""
    short = [first for prompt, first in seen if prompt == SHORT[0] and first is not None]
    long = [first for prompt, first in seen if prompt == LONG[0] and first is not None]
    return {
        "kind": kind,
        "policy": policy,
        "load": load,
        "requests": len(seen),
        "shortP50Ms": round(1000 * percentile(short, 50)),
        "shortP95Ms": round(1000 * percentile(short, 95)),
        "longP50Ms": round(1000 * percentile(long, 50)),
        "longP95Ms": round(1000 * percentile(long, 95)),
    }


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help=f"write {OUT.relative_to(ROOT)}")
    parser.add_argument("--seconds", type=float, default=600.0, help="of the engines' time, for each point")
    parser.add_argument("--policies", nargs="*", default=POLICIES)
    parser.add_argument("--loads", nargs="*", type=float, default=LOADS)
    options = parser.parse_args()
    if reason := why_not() or router.why_not():
        print(reason, file=sys.stderr)
        return 2
    whole = ENGINES * capacity(ReplicaModel())
    rows: list[dict[str, object]] = []

    def told(one: dict[str, object]) -> None:
        rows.append(one)
        print(json.dumps(one), flush=True)

    for load in options.loads:
        for name, choose in VIRTUAL.items():
            served = virtual(choose, load * whole, 10 * options.seconds, seed=7)
            firsts = [(s.prompt_tokens, s.first_token_s and s.first_token_s - s.arrived_s) for s in served]
            told(row("virtual", name, load, firsts))
    with tempfile.TemporaryDirectory() as name, engines(Path(name)) as addresses:
        for load in options.loads:
            for policy in options.policies:
                one = measured(
                    policy,
                    load,
                    rate=load * whole,
                    seconds=options.seconds,
                    addresses=addresses,
                    directory=Path(name),
                )
                told(one)
    if options.write:
        setting = {
            "engines": ENGINES,
            "requestsPerSecondAtFull": round(whole, 3),
            "short": SHORT,
            "long": LONG,
            "longShare": LONG_SHARE,
            "speed": SPEED,
        }
        OUT.write_text(json.dumps({"setting": setting, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

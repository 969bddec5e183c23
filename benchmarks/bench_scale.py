"""`make bench-scale`: what the operator costs with 1000 services on a real API server, as JSON.

It decides the order of the phases and the exit code: 1 when a target is missed. Only the operator is measured; the
control plane runs without throttling beside it.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "e2e")]

from scale import audit, load, report, specs
from scale.client import Client
from scale.phases import Phases
from scale.watch import Watcher, service_fact, service_key, workload_fact, workload_key

from harness.cluster import Cluster
from operator_process import NAMESPACE, ROOT, OperatorProcess

ACCOUNT = "shardwright"
PHASES = ("idle", "changes", "burst", "restart", "outage")
_SERVICES = "/apis/shardwright.dev/v1alpha1/llmservices"
_WORKLOADS = "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io/managed-by=shardwright"


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark and print its result."""
    options = _options(argv)
    result = run(options)
    text = json.dumps(result, indent=2)
    if options.write:
        options.write.write_text(text + "\n")
    print(text if options.output == "json" else report.table(result["results"]))
    if options.profile:
        print(options.profile.read_text(), file=sys.stderr)
    if options.output == "json":
        print(report.table(result["results"]), file=sys.stderr)
    failed = [row["name"] for row in result["results"] if not row["pass"]]
    return 1 if failed and options.gate else 0


def loop_ms() -> float:
    """Give the CPU time of a fixed loop: machines, and one machine at other hours, differ in what a second does."""
    began = time.process_time()
    total = 0
    for number in range(2_000_000):
        total += number
    return round((time.process_time() - began) * 1000, 1)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Bring up everything, measure, take everything away."""
    began, speed = time.monotonic(), [loop_ms()]

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s] {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="shardwright-bench-") as scratch:
        user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
        directory = Path(scratch)
        with Cluster(apiserver_args=audit.apiserver_args(directory, user)) as cluster:
            say("control plane up")
            operator = OperatorProcess(cluster, environment=_sampling(options.profile)).install()
            if operator.user != user:
                raise RuntimeError(f"the chart's account is {operator.user}, the audit log follows {user}")
            try:
                phases = asyncio.run(_measure(cluster, operator, directory / "audit.log", options, say))
            finally:
                operator.stop()
                speed.append(loop_ms())
                if options.log:
                    options.log.write_text(operator.log.read_text() if operator.log.exists() else "")
                if options.audit_log:
                    shutil.copy(directory / "audit.log", options.audit_log)
    return {
        "machine": {
            "cores": os.cpu_count(),
            "arch": platform.machine(),
            "python": platform.python_version(),
            "loopMillisBeforeAndAfter": speed,
        },
        "load": {
            "services": options.services,
            "distinctSpecs": min(options.services, len(specs.distinct_specs())),
            "foreignPods": options.foreign_pods,
            "nodes": options.nodes,
        },
        "sampled": bool(options.profile),
        "wallSeconds": round(time.monotonic() - began, 1),
        "results": report.judge(phases.figures),
        "detail": phases.detail,
    }


async def _measure(
    cluster: Cluster,
    operator: OperatorProcess,
    audit_log: Path,
    options: argparse.Namespace,
    say: Callable[[str], None],
) -> Phases:
    async with Client(cluster.kubeconfig) as client:
        await load.create_fleet(client, options.nodes, options.foreign_pods, say)
        await load.create_services(client, options.services, say)
        async with (
            Watcher(client, _SERVICES, service_key, service_fact) as services,
            Watcher(client, _WORKLOADS, workload_key, workload_fact) as workloads,
        ):
            phases = Phases(
                cluster=cluster,
                operator=operator,
                client=client,
                log=audit.AuditLog(audit_log),
                services=services,
                workloads=workloads,
                count=options.services,
                say=say,
            )
            await phases.first_pass()
            if "idle" in options.phases:
                await phases.idle(options.idle_seconds)
            if "changes" in options.phases:
                await phases.single_changes(options.changes)
            if "burst" in options.phases:
                await phases.burst(options.burst)
            if "restart" in options.phases:
                await phases.restart()
            if "outage" in options.phases:
                await phases.outage()
            phases.finish()
            return phases


def _sampling(profile: Path | None) -> dict[str, str]:
    if profile is None:
        return {}
    path = [ROOT / "benchmarks" / "sampler", ROOT / "operator" / "src"]
    return {"SHARDWRIGHT_PROFILE": str(profile.resolve()), "PYTHONPATH": os.pathsep.join(map(str, path))}


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_scale.py", description=__doc__)
    add = parser.add_argument
    add("--services", type=int, default=1000, help="LLMServices (default: 1000)")
    add("--foreign-pods", type=int, default=None, help="pods of other people (default: 5 for each service)")
    add(
        "--nodes",
        type=int,
        default=None,
        help="simulated nodes (default: room for all, 500 for 1000 services)",
    )
    add("--idle-seconds", type=float, default=60.0, help="length of the idle phase")
    add(
        "--changes",
        type=int,
        default=None,
        help="services changed one at a time, there and back (default: 50)",
    )
    add("--burst", type=int, default=None, help="services changed at once (default: 100)")
    add(
        "--phases",
        nargs="*",
        choices=PHASES,
        default=PHASES,
        help="what comes after the first pass (default: all); what is left out has not passed",
    )
    add("-o", "--output", choices=("json", "text"), default="json")
    add("--write", type=Path, metavar="FILE", help="write the JSON there too")
    add("--log", type=Path, metavar="FILE", help="keep the operator's log")
    add(
        "--audit-log",
        type=Path,
        metavar="FILE",
        help="keep the API server's record of the operator's requests",
    )
    add(
        "--profile",
        type=Path,
        metavar="FILE",
        help="sample where the operator spends its CPU time",
    )
    add("--no-gate", dest="gate", action="store_false", help="exit 0 even when a target is missed")
    options = parser.parse_args(argv)
    if options.services < 4:
        parser.error("--services: at least 4")
    options.foreign_pods = 5 * options.services if options.foreign_pods is None else options.foreign_pods
    options.nodes = specs.fleet_size(options.services) if options.nodes is None else options.nodes
    options.changes = min(50, options.services // 2) if options.changes is None else options.changes
    options.burst = min(100, max(4, options.services // 8)) if options.burst is None else options.burst
    return options


if __name__ == "__main__":
    sys.exit(main())

"""What is done to the operator, phase by phase, and what is read after each.

It decides when a phase begins and ends. The end is always "every service settled and no request for a while", seen
from outside. It never judges a figure.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from harness.cluster import Cluster
from operator_process import OperatorProcess
from scale import audit, specs
from scale.client import Client, in_parallel
from scale.report import spread
from scale.watch import ServiceFact, Watcher, WorkloadFact

Figures = dict[str, float]
Detail = dict[str, Any]
_PASS_TIMEOUT_S = 600.0
_QUIET_S = 5.0
_SAMPLE_EVERY_S = 0.2
_PAUSE_S = 0.5
OUTAGE_S = 10.0


class Phases:
    """The phases over one cluster, one operator and one load."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        operator: OperatorProcess,
        client: Client,
        log: audit.AuditLog,
        services: Watcher[ServiceFact],
        workloads: Watcher[WorkloadFact],
        count: int,
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._operator = operator
        self._client = client
        self._log = log
        self._services = services
        self._workloads = workloads
        self._count = count
        self._say = say
        self._outage_mark: int | None = None
        self.figures: Figures = {}
        self.detail: Detail = {}

    async def first_pass(self) -> None:
        """Start the operator with every service already there, and let it settle."""
        began, began_unix = time.monotonic(), time.time()
        samples: list[tuple[float, float]] = []
        self._operator.launch()
        with self._sampled(samples):
            ready_s = await self._wait_ready()
            unsettled = await self._settle()
        usage = self._operator.usage()
        requests = self._log.since(0)
        children, status = audit.writes_per_child(requests), audit.status_writes(requests)
        last_child = max((r.at_s for r in requests if r.resource == "deployments"), default=began_unix)
        self.figures |= {
            "firstPassCPUSeconds": usage.cpu_s,
            "unsettledServices": unsettled,
            "writesPerChildMax": max(children.values(), default=0),
            "statusWritesPerServiceMax": max(status.values(), default=0),
            "rssMiB": usage.rss_mib,
        }
        self.detail["firstPass"] = {
            "peakRSSMiB": round(usage.peak_rss_mib, 1),
            "readySeconds": round(ready_s, 2),
            "lastDeploymentSeconds": round(last_child - began_unix, 2),
            "settledSeconds": round(time.monotonic() - began - _QUIET_S, 2),
            "cpuSecondsAtReady": _cpu_at(samples, began + ready_s),
            "cpuSecondsAtLastDeployment": _cpu_at(samples, began + last_child - began_unix),
            "requests": audit.by_verb(requests),
            "children": len(children),
            "childrenWrittenTwice": sum(count > 1 for count in children.values()),
            "childWrites": _by_resource(children),
            "statusWrites": {
                "total": sum(status.values()),
                "mean": round(sum(status.values()) / self._count, 2),
            },
            "events": sum(r.is_event for r in requests),
            "cpuSecondsByStep": self._steps(usage.cpu_s),
        }
        self._say(f"first pass: {usage.cpu_s:.1f} CPU s, {usage.rss_mib:.0f} MiB")

    async def idle(self, seconds: float) -> None:
        """Do nothing for a while."""
        mark, before = self._log.refresh(), self._operator.usage().cpu_s
        await asyncio.sleep(seconds)
        requests = self._log.since(mark)
        self.figures["idleWrites"] = len(audit.writes(requests))
        self.figures["idleRequestsPerSecond"] = len(requests) / seconds
        self.detail["idle"] = {
            "seconds": seconds,
            "cpuMillisPerSecond": round((self._operator.usage().cpu_s - before) * 1000 / seconds, 1),
            "requests": audit.by_verb(requests),
        }
        self._say(f"idle: {len(requests)} requests in {seconds:.0f} s")

    async def single_changes(self, count: int) -> None:
        """Change one service at a time, then each back, with a pause in which pods come and go."""
        latencies: list[float] = []
        mark = self._log.refresh()
        for replicas in (2, 1):
            for index in _spread_over(self._count, count, start=0):
                latencies.append(await self._change(index, replicas))
                await asyncio.sleep(_PAUSE_S)
        self.figures["changeP99Seconds"] = spread(latencies)["p99"]
        self.detail["singleChanges"] = spread(latencies) | {
            "change": "scaling.minReplicas 1 -> 2 -> 1, seen as spec.replicas of the Deployment",
            "requestsPerChange": _per(self._log.since(mark), len(latencies)),
        }
        self._say(
            f"single change: p50 {spread(latencies)['p50']:.3f} s, p99 {spread(latencies)['p99']:.3f} s"
        )

    async def burst(self, count: int) -> None:
        """Change many services at once."""
        await self._settle()
        mark, before = self._log.refresh(), self._operator.usage().cpu_s
        latencies: list[float] = []
        began = time.time()

        async def one(index: int) -> None:
            latencies.append(await self._change(index, 2))

        async with asyncio.TaskGroup() as group:
            for index in _spread_over(self._count, count, start=1):
                group.create_task(one(index))
        unsettled = await self._settle()
        self.figures["burstP99Seconds"] = spread(latencies)["p99"]
        received = [
            r.at_s - began for r in self._log.since(mark) if r.resource == "deployments" and r.is_write
        ]
        self.detail["burst"] = spread(latencies) | {
            # The rest of the latency is the API server's own: it works for the new pods at the same time.
            "operatorSentSeconds": spread(received),
            "unsettledAfter": unsettled,
            "cpuSeconds": round(self._operator.usage().cpu_s - before, 2),
            "requestsPerChange": _per(self._log.since(mark), len(latencies)),
        }
        self._say(
            f"{count} at once: p50 {spread(latencies)['p50']:.2f} s, p99 {spread(latencies)['p99']:.2f} s"
        )

    async def restart(self) -> None:
        """Stop the operator in good order, start it again, and let it look at everything."""
        self._stop()
        mark, began = self._log.refresh(), time.monotonic()
        self._operator.launch()
        ready_s = await self._wait_ready()
        await self._settle()
        requests, usage = self._log.since(mark), self._operator.usage()
        self.figures["restartWrites"] = len(audit.writes(requests))
        self.figures["rssAfterRestartMiB"] = usage.rss_mib
        self.detail["restart"] = {
            "readySeconds": round(ready_s, 2),
            "quietSeconds": round(time.monotonic() - began - _QUIET_S, 2),
            "cpuSeconds": round(usage.cpu_s, 2),
            "rssMiB": round(usage.rss_mib, 1),
            "peakRSSMiB": round(usage.peak_rss_mib, 1),
            "requests": audit.by_verb(requests),
            "cpuSecondsByStep": self._steps(usage.cpu_s),
        }
        self._say(f"restart: {len(audit.writes(requests))} writes, {usage.cpu_s:.1f} CPU s")

    async def outage(self) -> None:
        """Kill the API server, start it again, and ask for one more service."""
        pid, mark = self._operator.pid, self._log.refresh()
        self._outage_mark = mark
        # In this thread: a child that is bound to its parent must be started by the main thread.
        with self._cluster.without_apiserver():
            await asyncio.sleep(OUTAGE_S)
        back = time.monotonic()
        new = specs.service("after-outage", "team-0", specs.distinct_specs()[-4])
        # The other controllers come back by their own back-off; a plain Deployment shows when.
        plain = specs.plain_deployment("plain", "other-0")
        await in_parallel([partial(self._client.create, plain), partial(self._client.create, new)])
        plain_ready = asyncio.create_task(self._until_available("other-0", "plain"))
        key = ("team-0", "after-outage")
        child = await self._workloads.wait_for_object(
            key, lambda _: True, "the Deployment of the new service"
        )
        ready = await self._services.wait_for_object(key, lambda fact: fact.settled, "the new service Ready")
        plain_s = await plain_ready - back
        await self._settle()
        survived = self._operator.is_running and self._operator.pid == pid
        children = audit.writes_per_child(self._log.since(mark))
        others = {child: n for child, n in children.items() if not child[2].startswith("after-outage")}
        self.figures |= {
            "outageExits": 0 if survived else 1,
            "outageChildSeconds": child - back,
            "outageReadyLagSeconds": max(0.0, ready - back - plain_s),
            "outageOtherWrites": sum(others.values()),
        }
        self.detail["outage"] = {
            "seconds": OUTAGE_S,
            "deploymentSeconds": round(child - back, 2),
            "readySeconds": round(ready - back, 2),
            "plainDeploymentReadySeconds": round(plain_s, 2),
            "requests": audit.by_verb(self._log.since(mark)),
        }
        self._say(
            f"outage: Deployment after {child - back:.1f} s, Ready after {ready - back:.1f} s"
            f" (a plain Deployment: {plain_s:.1f} s)"
        )

    def finish(self) -> None:
        """Stop the operator and count what must not have happened at all."""
        peak = self._operator.usage().peak_rss_mib
        self._stop()
        requests = self._log.since(0)
        self.figures["writesToServices"] = len(audit.service_writes(requests))
        # An API server that has just started refuses everybody until it has read the roles.
        refused = [r for r in requests[: self._outage_mark] if r.code in {403, 422}]
        self.figures["refusedRequests"] = len(refused)
        self.detail["wholeRun"] = {
            "requests": audit.by_verb(requests),
            "answers": _answers(requests),
            "refused": audit.by_verb(refused),
            "peakRSSMiBOfSecondProcess": round(peak, 1),
        }

    async def _change(self, index: int, replicas: int) -> float:
        key = (specs.namespace(index), specs.name(index))
        path = f"/apis/shardwright.dev/v1alpha1/namespaces/{key[0]}/llmservices/{key[1]}"
        sent = time.monotonic()
        await self._client.merge(path, {"spec": {"scaling": {"minReplicas": replicas}}})
        seen = await self._workloads.wait_for_object(
            key, lambda fact: fact.replicas == replicas, f"{key} with {replicas} replicas"
        )
        return seen - sent

    async def _until_available(self, namespace: str, name: str) -> float:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        while not (await self._client.get(path)).get("status", {}).get("availableReplicas"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        return time.monotonic()

    async def _wait_ready(self) -> float:
        return await asyncio.to_thread(self._operator.wait_ready)

    async def _settle(self) -> int:
        """Wait until all services are settled and the operator is quiet; give how many are not settled."""

        def unsettled() -> int:
            return sum(not seen.fact.settled for seen in self._services.seen.values())

        deadline = time.monotonic() + _PASS_TIMEOUT_S
        mark, since = self._busy(), time.monotonic()
        while time.monotonic() < deadline:
            await asyncio.sleep(0.25)
            _ = self._operator.pid
            now = self._busy()
            if now != mark or unsettled():
                mark, since = now, time.monotonic() if now != mark else since
            if time.monotonic() - since > _QUIET_S and not unsettled():
                return 0
        self._say(f"{unsettled()} services have not settled: {self._why_not()}")
        return unsettled()

    def _busy(self) -> int:
        self._log.refresh()
        return sum(request.verb != "watch" for request in self._log.requests)

    def _why_not(self) -> dict[str, int]:
        reasons: dict[str, int] = {}
        for seen in self._services.seen.values():
            if not seen.fact.settled:
                text = ",".join(seen.fact.reasons) or f"observed {seen.fact.observed_generation}"
                reasons[text] = reasons.get(text, 0) + 1
        return reasons

    def _stop(self) -> None:
        took = self._operator.stop()
        self.figures["sigtermSeconds"] = max(took, self.figures.get("sigtermSeconds", 0.0))
        self._say(f"SIGTERM to exit: {took:.2f} s")

    @contextmanager
    def _sampled(self, samples: list[tuple[float, float]]) -> Iterator[None]:
        async def sample() -> None:
            while self._operator.is_running:
                samples.append((time.monotonic(), self._operator.usage().cpu_s))
                await asyncio.sleep(_SAMPLE_EVERY_S)

        task = asyncio.create_task(sample())
        try:
            yield
        finally:
            task.cancel()

    def _steps(self, total_s: float) -> dict[str, float]:
        """Read the operator's own CPU seconds by step; the rest is sockets, TLS, JSON and the start."""
        prefix = 'shardwright_cpu_seconds_total{step="'
        metrics = self._operator.metrics()
        steps = {name.removeprefix(prefix)[:-2]: s for name, s in metrics.items() if name.startswith(prefix)}
        return {step: round(s, 2) for step, s in (steps | {"rest": total_s - sum(steps.values())}).items()}


def _spread_over(total: int, count: int, start: int) -> list[int]:
    """Give `count` indices over the whole range; ranges of different `start` have none in common."""
    step = max(2, total // count)
    return list(range(start, total, step))[:count]


def _cpu_at(samples: list[tuple[float, float]], at_s: float) -> float:
    return round(
        next((cpu for moment, cpu in samples if moment >= at_s), samples[-1][1] if samples else 0.0), 2
    )


def _per(requests: list[audit.Request], count: int) -> dict[str, float]:
    return {name: round(number / count, 2) for name, number in audit.by_verb(requests).items()}


def _by_resource(children: dict[tuple[str, str, str], int]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for (resource, _, _), count in children.items():
        totals[resource] = totals.get(resource, 0) + count
    return dict(sorted(totals.items()))


def _answers(requests: list[audit.Request]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for request in requests:
        totals[str(request.code)] = totals.get(str(request.code), 0) + 1
    return dict(sorted(totals.items()))

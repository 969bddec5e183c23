"""The operator process: wiring, start, end.

Decides the order of the start (log in, wait for the resource's CRD, fill the store, then work) and of
the end. Never decides anything about a service.
"""

import asyncio
import ctypes
import gc
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import kopf
import uvloop

from shardwright.api.llmservice import GROUP, PLURAL
from shardwright.cluster.api import Api
from shardwright.cluster.credentials import Credentials
from shardwright.cluster.errors import Forbidden, Gone
from shardwright.cluster.transport import AiohttpTransport, TokenBucket
from shardwright.cluster.watch import Watch
from shardwright.controller import host, logs
from shardwright.controller.health import Canary, Health, serve
from shardwright.controller.options import Options
from shardwright.controller.parts import Parts, clock
from shardwright.controller.sources import (
    canaries,
    capabilities,
    declared_nodes,
    find_resource,
    follow_pool,
    seed_nodes,
    watches,
)
from shardwright.controller.workers import work_forever
from shardwright.metrics.exposition import Exposition

__all__ = ["Operator", "Options", "run"]

_LOG = logging.getLogger(__name__)

RETRY_S: Final = 2.0


EXIT_S: Final = 0.3
"""How long the end may take; whatever still runs then is left to the end of the process."""
_NO_CRD: Final = (
    f"the API server has no {PLURAL}.{GROUP}; install the CRD with `helm upgrade`, or with "
    "`shardwright crds | kubectl apply --server-side -f -`"
)
T = TypeVar("T")


def run(options: Options) -> int:
    """Run the operator until SIGTERM or SIGINT; the exit code."""
    logs.configure(options.log_format, options.log_level)
    return uvloop.run(_run(options))


async def _run(options: Options) -> int:
    operator = Operator(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, operator.stop.set)
    return await operator.run()


@dataclass(slots=True)
class Operator:
    """One operator."""

    options: Options
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    metrics: Exposition = field(default_factory=Exposition)
    port: int = 0
    """Of /metrics, once it is open."""

    async def run(self) -> int:
        """Run until `stop` is set; the exit code."""
        health = Health(clock)
        address, port = self.options.metrics_address, self.options.metrics_port
        try:
            runner, self.port = await serve(health, self.metrics, address, port)
        except OSError as error:
            _LOG.critical("cannot listen address=%s port=%d error=%s", address, port, error)
            return 1
        _LOG.info("listening port=%d paths=/metrics,/healthz,/readyz", self.port)
        main = asyncio.create_task(self._main(health), name="main")
        stopped = asyncio.create_task(self.stop.wait())
        await asyncio.wait({main, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        health.stopping = True
        health.ready = False
        code = 0
        if main.done() and not main.cancelled() and main.exception() is not None:
            _LOG.critical("operator failed", exc_info=main.exception())
            code = 1
        main.cancel()
        await asyncio.wait({main}, timeout=EXIT_S)
        await runner.cleanup()
        _LOG.info("stopped code=%d", code)
        return code

    async def _main(self, health: Health) -> None:
        credentials = await self._until("log in", lambda: Credentials.load(self.options.source))
        transport = AiohttpTransport(credentials)
        bucket = TokenBucket(self.options.requests_per_second, self.options.burst, clock)
        api = Api(transport, bucket=bucket, observer=self.metrics)
        _LOG.info(
            "starting server=%s namespaces=%s", credentials.server, ",".join(self.options.namespaces) or "all"
        )
        async with AsyncExitStack() as stack:
            stack.push_async_callback(transport.close)
            parts = Parts.wire(api, self.options, self.metrics)
            await self._fill(parts, health, stack)
            await self._start(parts, health, stack, credentials)
            await asyncio.Event().wait()

    async def _until(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it works, in steps of seconds, and say why it does not."""
        said = ""
        while True:
            try:
                return await attempt()
            except Gone:
                why = _NO_CRD
            except Forbidden as error:
                why = f"a right is missing: {error}"
            except Exception as error:  # noqa: BLE001 -- config loaders raise all sorts, and the start must go on
                why = f"{type(error).__name__}: {error}"
            if why != said:
                _LOG.warning("cannot %s yet, trying again every %.0f s: %s", what, RETRY_S, why)
                said = why
            await asyncio.sleep(RETRY_S)

    async def _fill(self, parts: Parts, health: Health, stack: AsyncExitStack) -> None:
        """Fill the store before anything is decided: a missing node would look like a missing GPU."""
        await self._until("find the resource", lambda: find_resource(parts.api, self.options.scopes[0]))
        if self.options.pool_config_map is None:
            await self._until("list nodes", lambda: seed_nodes(parts))
        else:
            where = self.options.pool_config_map
            await self._until("read the declared pool", lambda: declared_nodes(parts, where))
        memory = parts.calibrator.memory if parts.calibrator is not None else None
        if memory is not None:
            await self._until("read the calibration store", memory.load)
        parts.reconciler.capabilities = await self._until(
            "discover", lambda: capabilities(parts.api, self.options)
        )
        for watch in watches(parts, self.options, parts.reconciler.capabilities):
            health.watches.append(watch)
            await stack.enter_async_context(_task(f"watch {watch.kind.plural}", watch.run(), health))
        for watch in health.watches:
            await watch.synced.wait()

    async def _start(
        self, parts: Parts, health: Health, stack: AsyncExitStack, credentials: Credentials
    ) -> None:
        declared = self.options.pool_config_map
        handlers = host.registry(credentials, parts.store, nodes=declared is None)
        await stack.enter_async_context(_host(handlers, self.options, health, self.stop))
        for index in range(self.options.workers):
            worker = work_forever(parts.queue, parts.reconciler.reconcile, self.metrics)
            await stack.enter_async_context(_task(f"worker {index}", worker, health))
        stack.callback(parts.queue.close)
        health.queue_stuck_s = parts.queue.stuck_s
        health.canaries += canaries(parts, self.options)
        for canary in health.canaries:
            await stack.enter_async_context(_task(f"canary {canary.kind.plural}", canary.run(), health))
        await stack.enter_async_context(_task("expiry", parts.dispatch.expire_forever(), health))
        if declared is not None:
            await stack.enter_async_context(_task("declared pool", follow_pool(parts, declared), health))
        await stack.enter_async_context(_task("gpu faults", parts.gpu_faults.run(), health))
        if parts.scaler.better is not None:
            stack.push_async_callback(parts.scaler.better.close)
        if parts.scaler.watchdog is not None:
            stack.push_async_callback(parts.scaler.watchdog.close)
        await stack.enter_async_context(_task("autoscaler", parts.scaler.run(), health))
        if parts.scaler.waker is not None and parts.activators is not None:
            stack.push_async_callback(parts.activators.close)
            await stack.enter_async_context(_task("waking", parts.scaler.waker.run(), health))
        if parts.drains is not None:
            stack.push_async_callback(parts.drains.close)
            await stack.enter_async_context(_task("drains", parts.drains.run(), health))
        if parts.canaries is not None:
            await stack.enter_async_context(_task("canaries", parts.canaries.run(), health))
        if parts.calibrator is not None:
            stack.push_async_callback(parts.calibrator.source.close)
            await stack.enter_async_context(_task("calibration", parts.calibrator.run(), health))
        parts.dispatch.started = True
        _settle_memory()
        self._expose(parts, health)
        health.ready = True
        _LOG.info(
            "ready services=%d nodes=%d pods=%d",
            len(parts.store.services),
            len(parts.store.nodes),
            len(parts.store.pods),
        )

    def _expose(self, parts: Parts, health: Health) -> None:
        store = parts.store
        counts: dict[str, Callable[[], float]] = {
            "services": lambda: len(store.services),
            "nodes": lambda: len(store.nodes),
            "pods": lambda: len(store.pods),
            "children": lambda: len(store.children),
            "waiting": lambda: len(parts.dispatch.waiting),
        }
        self.metrics.gauges("shardwright_objects", "Objects known, by sort", "sort", counts)
        self.metrics.gauge(
            "shardwright_gpu_fault_nodes",
            "Nodes that get no new pods since the GPUs of engines failed on them",
            lambda: float(parts.gpu_faults.kept_off()),
        )
        calibrator = parts.calibrator
        if calibrator is not None:
            sizes: dict[str, Callable[[], float]] = {
                "known": lambda: parts.scaler.sizes.scaled["known"],
                "unknown": lambda: parts.scaler.sizes.scaled["unknown"],
            }
            self.metrics.gauges(
                "shardwright_scaled_services",
                "Services that the autoscaler sizes, by whether all is known of their engines",
                "signals",
                sizes,
            )
            self.metrics.gauge(
                "shardwright_engine_metrics_up",
                "1 while the engines' metrics can be read, 0 while they cannot",
                lambda: float(calibrator.up),
            )
        ages: dict[str, Callable[[], float]] = {}
        for watch in health.watches:
            ages[watch.kind.plural] = partial(_age, watch)
        for canary in health.canaries:
            ages[canary.kind.plural] = partial(_age, canary)
        self.metrics.gauges(
            "shardwright_watch_age_seconds", "Since a watch's last sign of life", "kind", ages
        )
        self.metrics.gauge(
            "shardwright_queue_oldest_seconds", "Age of the longest-waiting key", parts.queue.oldest_s
        )


def _settle_memory() -> None:
    """Keep what was loaded out of garbage collection, and collect seldom.

    Objects die by reference counting; cycles are few. With the default thresholds a tenth of the CPU of
    a busy operator went into looking at objects that stay.
    """
    gc.collect()
    gc.freeze()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc: give back what the first lists took
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def _age(beating: Watch | Canary) -> float:
    return clock() - beating.beat_at


@asynccontextmanager
async def _task(name: str, coroutine: Awaitable[None], health: Health) -> AsyncIterator[None]:
    """Run something beside, that must not end before the operator does."""
    task = asyncio.ensure_future(coroutine)
    assert isinstance(task, asyncio.Task)
    health.tasks[name] = task
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


@asynccontextmanager
async def _host(
    handlers: kopf.OperatorRegistry, options: Options, health: Health, stop: asyncio.Event
) -> AsyncIterator[None]:
    """Run kopf. It sets signal handlers of its own, so ours are set again once it has."""
    stop_flag, ready_flag = asyncio.Event(), asyncio.Event()
    operator = kopf.operator(
        registry=handlers,
        settings=host.settings(),
        clusterwide=not options.namespaces,
        namespaces=list(options.namespaces),
        stop_flag=stop_flag,
        ready_flag=ready_flag,
    )
    async with _task("kopf", operator, health):
        kopf_task = health.tasks["kopf"]
        ready = asyncio.ensure_future(ready_flag.wait())
        await asyncio.wait({kopf_task, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(ValueError, RuntimeError):
                loop.add_signal_handler(number, stop.set)
        try:
            yield
        finally:
            stop_flag.set()

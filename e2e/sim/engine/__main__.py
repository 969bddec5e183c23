"""The life of a simulated `vllm serve`: load with the port closed, serve, drain on SIGTERM, end with vLLM's exit codes.

It decides what is open when, and how the process ends. As observed of vLLM 0.32 (docs/development.md): with
`--shutdown-timeout` 0 the engine is killed at once, the listener closes, and open streams get neither data nor an end
until SIGKILL; with more, streams run to their end while /health stays 200 and new requests get 500.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress

from aiohttp import web

from sim.engine import control
from sim.engine.api import Server
from sim.engine.arguments import Arguments, parse
from sim.engine.behaviour import (
    ENGINE_FAILED,
    LOAD_LOG,
    VARIABLE,
    XID_LOG,
    Behaviour,
    Fault,
    from_json,
)
from sim.engine.core import Core
from sim.engine.metrics import Metrics
from sim.engine.queueing import Scheduler

_FAILS_AFTER = 0.8
"""Share of the start after which a load fails: the weights are there, the rest does not fit."""
_DEATH_S = 5.0
"""From the engine's end to the server's, observed."""


class Process:
    """One engine's life."""

    def __init__(self, arguments: Arguments, behaviour: Behaviour) -> None:
        self._arguments = arguments
        self._behaviour = behaviour
        self._ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._terminated = asyncio.Event()
        self._loaded = False
        self._core: Core | None = None
        self._runners: list[web.AppRunner] = []

    async def run(self) -> int:
        """Run it to its end and return the exit code."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._terminated.set)
        await self._listen(control.application(self.state, self.fail), self._behaviour.control_port)
        for work in (self._load, self._serve):
            task: asyncio.Future[int | None] = asyncio.ensure_future(work())
            await asyncio.wait([task, self._ended], return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done():
                task.cancel()
                return self._ended.result() or 0
            code = task.result()
            if code is not None:
                return code
        return 0

    def state(self) -> dict[str, object]:
        """Say what it does."""
        core = self._core
        return {
            "pid": os.getpid(),
            "loaded": self._loaded,
            "terminating": self._terminated.is_set(),
            "in_flight": core.in_flight if core else 0,
            "late_s": core.late_s if core else 0.0,
            "steps": core.steps if core else 0,
            "held": core.scheduler.held if core else 0,
        }

    def fail(self, fault: Fault) -> None:
        """Fail from now on."""
        core = self._core
        if fault is Fault.EXIT:
            self._end(1)
        elif core is None:
            raise web.HTTPConflict(text="the engine is not loaded")
        elif fault is Fault.HANG:
            core.hung = True
        elif fault is Fault.RECOVERY:
            core.recover()
        elif fault is Fault.NAN_METRICS:
            core.metrics.nan = True
        else:
            if fault is Fault.XID:
                _say(*XID_LOG)
            _say(
                "ERROR [core_client.py] Engine core proc EngineCore died unexpectedly, shutting down client."
            )
            core.die()
            loop = asyncio.get_running_loop()
            loop.call_later(_DEATH_S, self._end, 1 if fault is Fault.XID else 0)

    async def _load(self) -> int | None:
        """Load the model with the port closed; return an exit code when that fails."""
        behaviour, arguments = self._behaviour, self._arguments
        _say(f"INFO [model_runner] Starting to load model {arguments.model}...")
        seconds = behaviour.start_s / behaviour.speed
        failing = behaviour.load_fault is not None or behaviour.model.kv_tokens < arguments.max_model_len
        with suppress(TimeoutError):
            await asyncio.wait_for(self._terminated.wait(), seconds * (_FAILS_AFTER if failing else 1.0))
            return 0
        if behaviour.load_fault is not None:
            _say(LOAD_LOG[behaviour.load_fault].replace("MODEL", arguments.model))
        elif failing:
            _say(
                f"(EngineCore pid=77) ValueError: To serve at least one request with the model's max seq len "
                f"({arguments.max_model_len}), more KV cache is needed, which is larger than the available KV cache "
                f"memory. Based on the available memory, the estimated maximum model length is "
                f"{behaviour.model.kv_tokens}."
            )
        if failing:
            _say(ENGINE_FAILED)
            return 1
        kv = behaviour.model.kv_tokens
        _say(
            f"INFO [kv_cache_utils] GPU KV cache size: {kv:,} tokens, Maximum concurrency for "
            f"{arguments.max_model_len:,} tokens per request: {kv / arguments.max_model_len:.2f}x"
        )
        return None

    async def _serve(self) -> int | None:
        behaviour, arguments = self._behaviour, self._arguments
        scheduler = Scheduler(
            behaviour.model, seats=arguments.max_num_seqs, budget=arguments.max_num_batched_tokens
        )
        self._core = core = Core(scheduler, Metrics(arguments, behaviour.model.kv_tokens), behaviour.speed)
        server = Server(arguments, behaviour, core)
        steps = asyncio.ensure_future(core.run())
        steps.add_done_callback(self._stepped)
        runner = await self._listen(server.application(), arguments.port)
        self._loaded = True
        _say("INFO:     Application startup complete.")
        for fault in behaviour.faults:
            self.fail(fault)
        await self._terminated.wait()
        if arguments.shutdown_timeout_s <= 0:
            # Kept as it was seen, flaw and all: the engine is gone, and who is connected is left hanging.
            _say("INFO [launcher] Shutting down, in-flight requests are aborted.")
            core.hung = True
            for site in list(runner.sites):
                await site.stop()
            await server.idle.wait()
            return 0
        await self._drain(server, core)
        return 0

    async def _drain(self, server: Server, core: Core) -> None:
        server.draining = True
        _say(f"INFO [launcher] Draining {core.in_flight} requests.")
        with suppress(TimeoutError):
            seconds = self._arguments.shutdown_timeout_s / self._behaviour.speed
            await asyncio.wait_for(server.idle.wait(), seconds)
        core.abort_all()
        await asyncio.sleep(self._behaviour.teardown_s / self._behaviour.speed)
        for runner in self._runners:
            await runner.cleanup()

    async def _listen(self, application: web.Application, port: int) -> web.AppRunner:
        # As uvicorn does: a connection that nobody uses is closed, whatever the simulator's speed.
        runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.1,
            keepalive_timeout=self._arguments.keep_alive_s,
        )
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", port, backlog=1024).start()
        self._runners.append(runner)
        return runner

    def _stepped(self, task: "asyncio.Future[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            _say(f"the simulator's own mistake: {task.exception()!r}")
            self._end(70)

    def _end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)


async def _main() -> int:
    arguments = parse(sys.argv[1:], dict(os.environ))
    behaviour = from_json(os.environ.get(VARIABLE, ""))
    return await Process(arguments, behaviour).run()


def _say(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)


if __name__ == "__main__":
    code = asyncio.run(_main())
    # Not through the exit of the interpreter: threads and connections may be left, as in a killed server.
    os._exit(code)

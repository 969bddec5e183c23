"""One container: pull, start, probe, end, and again with back-off, as the kubelet does.

It decides when a container is started, ready, killed and tried again. Seconds of manifests are divided by the agent's
time scale, but for a probe's time-out: a busy machine answers no faster because the test's time runs faster.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from harness.network import PodNetwork
from harness.processes import Process, ProcessError
from sim import router
from sim.engine.behaviour import VARIABLE
from sim.kubelet import accounts, environment, timing
from sim.kubelet.api import AWAY, Api
from sim.kubelet.rules import Rules
from sim.kubelet.status import ContainerState, exit_code, terminated, timestamp

Json = Any
SOURCES = Path(__file__).parents[2]
PROGRAMS: dict[str, tuple[str, ...]] = {
    "vllm": (sys.executable, "-m", "sim.engine"),
    "vllm-router": (str(router.program()),),
    # The operator's image has its program as entry point: the first word is its command.
    "endpoints": (sys.executable, "-m", "shardwright.cli.main", "endpoints"),
}
_CONFIG_RETRY_S = 5.0
_PROBE_KINDS = ("startupProbe", "readinessProbe", "livenessProbe")


@dataclass(frozen=True, slots=True)
class Host:
    """What all containers of an agent share."""

    api: Api
    rules: Rules
    scale: float
    logs: Path
    programs: dict[str, tuple[str, ...]]


class Container:
    """One container of one pod. `changed` is called when its state is another."""

    def __init__(
        self, host: Host, pod: Json, manifest: Json, network: PodNetwork, changed: Callable[[], None]
    ) -> None:
        self.state = ContainerState(manifest["name"], manifest["image"])
        self._host = host
        self._pod = pod
        self._manifest = manifest
        self._network = network
        self._changed = changed
        self._policy = pod["spec"].get("restartPolicy", "Always")
        self._probes = {kind: timing.probe_of(manifest.get(kind), manifest) for kind in _PROBE_KINDS}
        self._process: Process | None = None
        for before in pod.get("status", {}).get("containerStatuses", []):
            if before["name"] == self.state.name:
                # It ran under an agent that is gone.
                self.state.restarts = before["restartCount"] + ("running" in before["state"])
        self._ending = asyncio.Event()

    async def run(self) -> None:
        """Run it until it is not to be started again."""
        backoff = timing.Backoff()
        await self._pull()
        while not self._ending.is_set():
            process = await self._start()
            if process is not None:
                await self._watch(process)
            code = self.state.exit_code
            again = self._policy == "Always" or (self._policy == "OnFailure" and code != 0)
            if self._ending.is_set() or not again:
                return
            wait_s = backoff.failed(time.monotonic() * self._host.scale)
            self.state.last = self.state.state
            if wait_s > 0:
                name = f"{self._pod['metadata']['name']}_{self._pod['metadata']['namespace']}"
                message = f"back-off {wait_s:.0f}s restarting failed container={self.state.name} pod={name}"
                self._waits("CrashLoopBackOff", message)
                await self._pause(wait_s)
            self.state.restarts += 1

    async def stop(self, grace_s: float) -> None:
        """End it for good: preStop, SIGTERM, and SIGKILL when the grace is over."""
        self._ending.set()
        await self._kill(grace_s)

    def kill(self) -> None:
        """End it at once, without a word."""
        self._ending.set()
        if self._process is not None:
            self._process.kill()

    async def _pull(self) -> None:
        backoff = timing.Backoff()
        backoff.failed(time.monotonic() * self._host.scale)
        while not self._ending.is_set() and (error := self._host.rules.pull_error(self._pod, self._manifest)):
            image = self.state.image
            self._waits("ErrImagePull", f'failed to pull and unpack image "{image}": {error}')
            wait_s = backoff.failed(time.monotonic() * self._host.scale)
            await self._pause(wait_s / 2)
            self._waits("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {error}')
            await self._pause(wait_s / 2)

    async def _start(self) -> Process | None:
        """Start the program; None when it cannot be: then the state says how it ended."""
        while True:
            try:
                address = self._network.address
                known = await environment.variables(self._host.api, self._pod, self._manifest, address)
                where = self._log().parent
                known |= await accounts.variables(self._host.api, self._pod, self._manifest, where)
                break
            except environment.ConfigError as error:
                self._waits("CreateContainerConfigError", str(error))
            except AWAY:
                pass
            await self._pause(_CONFIG_RETRY_S)
            if self._ending.is_set():
                return None
        if self._ending.is_set():
            return None
        log = self._log()
        log.parent.mkdir(parents=True, exist_ok=True)
        words = environment.command(self._manifest, known)
        program = self._host.programs.get(words[0]) if words else None
        self.state.runs += 1
        if program is None:
            # runc's words; an image without a command would need a registry to know what it runs.
            said = f'exec: "{words[0] if words else ""}": executable file not found in $PATH'
            self.state.state = {
                "terminated": {
                    "exitCode": 128,
                    "reason": "StartError",
                    "message": said,
                    "finishedAt": timestamp(),
                }
            }
            self._changed()
            return None
        process = Process(self.state.name, [*program, *words[1:]], log, self._environment(known))
        with self._network.entered():
            process.start()
        return process

    async def _watch(self, process: Process) -> None:
        """Follow a process from its start to its end."""
        self._process = process
        began = timestamp()
        self.state.state = {"running": {"startedAt": began}}
        self.state.started = self._probes["startupProbe"] is None
        self.state.ready = self.state.started and self._probes["readinessProbe"] is None
        self._changed()
        probing = asyncio.ensure_future(self._probe())
        try:
            await _exit_of(process)
        finally:
            probing.cancel()
            with suppress(asyncio.CancelledError):
                await probing
        # What the main process leaves behind goes with the pod's process namespace.
        process.signal(signal.SIGKILL)
        process.kill()
        code = exit_code(process.exit_code or 0)
        policy = self._manifest.get("terminationMessagePolicy", "File")
        self.state.state = terminated(code, began, self._log().read_bytes(), policy)
        self.state.started = self.state.ready = False
        self._changed()

    async def _kill(self, grace_s: float) -> None:
        process = self._process
        if process is None or process.pid is None:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_s / self._host.scale
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._pre_stop()
        pid = process.pid
        if pid is not None:
            # To the main process alone, as to PID 1 of a container.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            with suppress(TimeoutError):
                # The kubelet gives two seconds at least, whatever preStop took.
                async with asyncio.timeout_at(max(until, loop.time() + 2.0 / self._host.scale)):
                    await _exit_of(process)
        process.signal(signal.SIGKILL)

    async def _pre_stop(self) -> None:
        hook = self._manifest.get("lifecycle", {}).get("preStop", {})
        if sleep := hook.get("sleep"):
            await asyncio.sleep(sleep["seconds"] / self._host.scale)
        elif hook:
            raise ProcessError(f"the node agent runs no such preStop: {sorted(hook)}")

    async def _probe(self) -> None:
        startup, ready, alive = (self._probes[kind] for kind in _PROBE_KINDS)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            if startup is not None:
                if not await self._until_started(session, startup):
                    await self._is_alive(False)
                    return
                self.state.started = True
                self.state.ready = ready is None
                self._changed()
            both: list[Awaitable[None]] = []
            if ready is not None:
                both.append(self._each(session, ready, self._is_ready))
            if alive is not None:
                both.append(self._each(session, alive, self._is_alive))
            await asyncio.gather(*both)

    async def _until_started(self, session: aiohttp.ClientSession, probe: timing.Probe) -> bool:
        verdict = timing.Verdict(probe)
        await asyncio.sleep(probe.delay_s / self._host.scale)
        while True:
            found = verdict.observe(await self._ask(session, probe))
            if found is not None:
                return found
            await asyncio.sleep(probe.period_s / self._host.scale)

    async def _each(
        self, session: aiohttp.ClientSession, probe: timing.Probe, told: Callable[[bool], Awaitable[None]]
    ) -> None:
        verdict = timing.Verdict(probe)
        await asyncio.sleep(probe.delay_s / self._host.scale)
        while True:
            found = verdict.observe(await self._ask(session, probe))
            if found is not None:
                await told(found)
            await asyncio.sleep(probe.period_s / self._host.scale)

    async def _is_ready(self, ready: bool) -> None:
        if self.state.ready != ready:
            self.state.ready = ready
            self._changed()

    async def _is_alive(self, alive: bool) -> None:
        # A pod that is being deleted is not killed by its liveness or start-up probe.
        if not alive and not self._ending.is_set():
            await self._unhealthy()

    async def _unhealthy(self) -> None:
        await self._kill(self._pod["spec"].get("terminationGracePeriodSeconds", 30))
        await asyncio.Event().wait()  # until the end is seen, which ends the probes

    async def _ask(self, session: aiohttp.ClientSession, probe: timing.Probe) -> bool:
        address = self._network.address
        try:
            async with asyncio.timeout(probe.timeout_s):
                if probe.path is None:
                    _, writer = await asyncio.open_connection(address, probe.port)
                    writer.close()
                    return True
                async with session.get(f"http://{address}:{probe.port}{probe.path}") as answer:
                    return 200 <= answer.status < 400
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def _waits(self, reason: str, message: str) -> None:
        self.state.state = {"waiting": {"reason": reason, "message": message}}
        self._changed()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds / self._host.scale)

    def _log(self) -> Path:
        uid: str = self._pod["metadata"]["uid"]
        return self._host.logs / uid / self.state.name / f"{self.state.restarts}.log"

    def _environment(self, known: dict[str, str]) -> dict[str, str]:
        behaviour = {"speed": self._host.scale} | self._host.rules.engine(self._pod, self._manifest)
        sources = os.pathsep.join((str(SOURCES), str(SOURCES.parent / "operator" / "src")))
        own = {"PATH": os.environ["PATH"], "PYTHONPATH": sources, "PYTHONUNBUFFERED": "1"}
        return own | known | {VARIABLE: json.dumps(behaviour)}


async def _exit_of(process: Process) -> None:
    """Wait for the end of a child without looking again and again."""
    pid = process.pid
    if pid is None:
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)

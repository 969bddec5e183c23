"""Starts, watches and ends child processes, and makes sure none outlives the program that asked for it.

It decides signals and waiting times. It never ends a process by name: only those it started, by their id.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

STOP_GRACE_S = 4.0
_TAIL_BYTES = 3000

# Runs in the child before the program itself: ask the kernel to end it when its parent dies, however that
# happens. A small launcher instead of preexec_fn, which may dead-lock in a process with threads.
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

_live: set["Process"] = set()


class ProcessError(RuntimeError):
    """A child ended although it should run; the message holds the end of its log."""


class Process:
    """One child in a process group of its own, its output appended to a log file."""

    def __init__(self, name: str, argv: list[str], log: Path, env: dict[str, str]) -> None:
        self.name = name
        self.argv = argv
        self.log = log
        self._env = env
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """How it ended: minus the signal's number when a signal ended it; None before that."""
        return self._child.poll() if self._child is not None else None

    def start(self) -> None:
        """Start the program. Starting one that runs is a mistake of the caller."""
        if self.pid is not None:
            raise ProcessError(f"{self.name} runs already as {self.pid}")
        _install_exit_hooks()
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                _bound_to_parent(self.argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                cwd=self.log.parent,
                start_new_session=True,
            )
        _live.add(self)

    def check(self) -> None:
        """Raise when the program is not running."""
        if self.pid is None:
            code = None if self._child is None else self._child.returncode
            raise ProcessError(
                f"{self.name} is not running (exit code {code}); end of its log:\n{self.tail()}"
            )

    def tail(self) -> str:
        """Give the end of the log."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group, if it is still there."""
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def kill(self) -> None:
        """End it at once, as a crash would, and collect it."""
        stop_all([self], grace_s=0.0)

    def stop(self) -> None:
        """Ask it to end, then insist."""
        stop_all([self])


def stop_all(processes: Iterable[Process], grace_s: float = STOP_GRACE_S) -> None:
    """End processes together: they share one grace period instead of waiting for each other."""
    remaining = list(processes)
    deadline = time.monotonic() + grace_s
    if grace_s > 0:
        for process in remaining:
            process.signal(signal.SIGTERM)
        while any(process.pid is not None for process in remaining) and time.monotonic() < deadline:
            time.sleep(0.02)
    for process in remaining:
        if process.pid is not None:
            process.signal(signal.SIGKILL)
        if process._child is not None:
            process._child.wait()
        _live.discard(process)


def _bound_to_parent(argv: list[str]) -> list[str]:
    # The kernel watches the *thread* that forked, so only the main thread can lend its life to a child.
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return argv
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *argv]


_hooks_installed = False


def _install_exit_hooks() -> None:
    global _hooks_installed  # noqa: PLW0603 - once per process is the point
    if _hooks_installed:
        return
    _hooks_installed = True
    owner = os.getpid()

    def stop_own() -> None:
        # A forked copy of this process inherits the hook but not the children.
        if os.getpid() == owner:
            stop_all(list(_live))

    atexit.register(stop_own)
    on_main_thread = threading.current_thread() is threading.main_thread()
    # Python ends on SIGTERM without running exit hooks; leave a handler that somebody else set alone.
    if on_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, _frame: object) -> None:
    # pytest takes SystemExit for one failed test and goes on; this ends the whole run, fixtures included.
    raise KeyboardInterrupt(signal.Signals(number).name)


def is_alive(pid: int) -> bool:
    """Tell whether a process exists and has not ended (a zombie has)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    stat = _proc_stat(pid)
    return stat is None or stat[0] != "Z"


def start_time(pid: int) -> str:
    """Give a mark that tells a process from a later one with the same id; "0" where the system has none."""
    stat = _proc_stat(pid)
    return "0" if stat is None else stat[19]


def _proc_stat(pid: int) -> list[str] | None:
    """Give the fields of /proc/<pid>/stat after the program's name, which may itself hold blanks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None

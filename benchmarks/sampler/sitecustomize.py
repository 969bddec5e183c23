"""Samples where a Python process spends its CPU time; active when it is on PYTHONPATH and told a file.

Python imports a module of this name at start. It decides nothing about the program: a timer of CPU time fires at
each tick of the kernel, and the stack of the main thread is counted. Unlike a tracing profiler it hardly slows the program,
so the CPU figures of a sampled run still hold. Time in C counts for the Python function that called it.
"""

import atexit
import os
import signal
from collections import Counter
from types import FrameType

_VARIABLE = "SHARDWRIGHT_PROFILE"
_EVERY_S = 0.001
_ROWS = 60


class Sampler:
    """Counts each function once per sample in which it is on the stack, and the innermost one apart."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._samples = 0
        self._inner: Counter[str] = Counter()
        self._on_stack: Counter[str] = Counter()

    def start(self) -> None:
        """Start the timer; the figures are written when the program ends."""
        signal.signal(signal.SIGPROF, self._take)
        signal.setitimer(signal.ITIMER_PROF, _EVERY_S, _EVERY_S)
        atexit.register(self.write)

    def _take(self, _number: int, frame: FrameType | None) -> None:
        self._samples += 1
        seen: set[str] = set()
        while frame is not None:
            code = frame.f_code
            name = f"{'/'.join(code.co_filename.rsplit('/', 2)[-2:])}:{code.co_qualname}"
            if not seen:
                self._inner[name] += 1
            if name not in seen:
                seen.add(name)
                self._on_stack[name] += 1
            frame = frame.f_back

    def write(self) -> None:
        """Stop and write both tables."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        with open(self._path, "w") as file:  # noqa: PTH123 - a start-up module imports as little as it can
            for title, counts in (("innermost", self._inner), ("on the stack", self._on_stack)):
                file.write(f"{title}: share of {self._samples} samples\n")
                file.writelines(
                    f"{100 * count / max(1, self._samples):5.1f} %  {name}\n"
                    for name, count in counts.most_common(_ROWS)
                )
                file.write("\n")


if _path := os.environ.get(_VARIABLE):
    Sampler(_path).start()

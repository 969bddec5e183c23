"""How tests wait: for what must come, with a limit that no slow machine reaches; and time-outs without waiting.

Decides the limit. Nothing in a test may depend on how fast the machine is; `test_patience.py` looks for what does.
"""

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 60.0
"""How long what must come may take."""


async def eventually(probe: Callable[[], object]) -> None:
    """Let the loop run until `probe` holds."""
    end = time.monotonic() + PATIENCE_S
    while not probe():
        assert time.monotonic() < end, f"not within {PATIENCE_S:g} s"
        await asyncio.sleep(0.002)


class Clock:
    """The running loop's clock, which a test can set forward: what is due by then happens in the next turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real, self._ahead_s = loop.time, 0.0
        loop.time = self  # type: ignore[method-assign]

    def __call__(self) -> float:
        return self._real() + self._ahead_s

    def advance(self, seconds: float) -> None:
        """Set it forward."""
        self._ahead_s += seconds


async def sockets_closed() -> None:
    """Wait until the loop watches no socket but its own, and those that were closed are let go of."""
    watched = asyncio.get_running_loop()._selector.get_map()
    await eventually(lambda: len(watched) <= 1)
    for _ in range(3):
        await asyncio.sleep(0)

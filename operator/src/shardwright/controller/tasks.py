"""Ends tasks that somebody began beside a loop. Decides nothing."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks, one after the other, and wait for each. Raises what a task that had ended raised."""
    for task in list(tasks):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

"""Waiting for a cluster to reach a state, with an answer when it never does.

It decides how often to look, and for how long: one limit for all, which no slow machine reaches. It never sleeps longer than it must, and never hides why the last look failed.
"""

import http.client
import time
from collections.abc import Callable
from typing import TypeVar

from harness.api import ApiError

Result = TypeVar("Result")
PATIENCE_S = 300.0
"""How long what must come may take: minutes more than on a slow machine, since it is a test that waits. There is no other limit."""


def wait_until(probe: Callable[[], Result], what: str, *, every_s: float = 0.1) -> Result:
    """Call `probe` until its result is true, and give that. A server that refuses or is away counts as "not yet"."""
    deadline = time.monotonic() + PATIENCE_S
    last: object = None
    while time.monotonic() < deadline:
        try:
            result = probe()
        except (ApiError, OSError, http.client.HTTPException) as error:
            last = error
        else:
            if result:
                return result
            last = result
        time.sleep(every_s)
    raise TimeoutError(f"{what}: not after {PATIENCE_S:.0f} s; last seen: {last!r}")

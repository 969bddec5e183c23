"""Workers: take a key, reconcile it, put it back when due.

Decides what an error means for the next attempt.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from shardwright.api.llmservice import ServiceKey
from shardwright.cluster.errors import ClusterError, Gone
from shardwright.controller.queue import QueueClosed, WorkQueue
from shardwright.controller.reconcile import Result
from shardwright.metrics.exposition import Exposition

_LOG = logging.getLogger(__name__)

LONGEST_S: Final = 120.0
"""How long one reconciliation may take: a few requests at their own time-out."""


async def work_forever(
    queue: WorkQueue[ServiceKey], reconcile: Callable[[ServiceKey], Awaitable[Result]], metrics: Exposition
) -> None:
    """Work until the queue is closed."""
    while True:
        try:
            key = await queue.get()
        except QueueClosed:
            return
        started = time.perf_counter()
        result = "error"
        try:
            async with asyncio.timeout(LONGEST_S):
                due = await reconcile(key)
        except Gone as error:
            # The object, or its namespace, went while we worked on it; its own event removes it.
            result = "gone"
            _LOG.info("gone while reconciling service=%s error=%s", key, error)
            queue.retry(key)
        except ClusterError as error:
            delay = queue.retry(key, error.retry_after_s)
            _LOG.warning(
                "reconcile failed service=%s attempt=%d again_in=%.1fs error=%s",
                key,
                queue.failures(key),
                delay,
                error,
            )
        except Exception:  # noqa: BLE001 -- one service's fault must not end the worker
            delay = queue.retry(key)
            _LOG.exception("reconcile crashed service=%s again_in=%.1fs", key, delay)
        else:
            result = "ok"
            queue.forget(key)
            if due.requeue_after_s is not None:
                queue.add_after(key, due.requeue_after_s)
        finally:
            queue.done(key)
            metrics.reconciled(result, time.perf_counter() - started)

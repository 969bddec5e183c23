"""How many engines may start at once that each fetch their weights from a hub by themselves. Pure.

Decides growth alone: what is stated is never taken back, and a smaller size is taken as it is. Where a Job
fetches the weights once (`controller.fetching`), or they come from elsewhere, it decides nothing.
"""

from typing import Final

from shardwright.api.reasons import Reason
from shardwright.controller.rolling import ready_of, starts_of
from shardwright.controller.situation import Situation
from shardwright.diagnose.trouble import trouble_of
from shardwright.render.fetch import fetches_alone, fetches_alone_on_record

AT_ONCE: Final = 8
"""Starts beyond what answers. The hub lets an address without an account resolve 3,000 files in five minutes
(huggingface.co/docs/hub/rate-limits), and the largest models have some 200: eight leave half of that to
others. Our choice, as is that later as many may start as already answer: growth at most doubles."""


def at_once(now: Situation, count: int) -> int:
    """Return how many of `count` replicas of the target to state for now.

    While the hub refuses one of them for asking too often none is added; who is there waits at the kubelet's
    growing distances.
    """
    current = now.deployments.get(now.target)
    stated = current.replicas if current else 0
    if count <= stated:  # as nearly always
        return count
    fewer = stated if _is_limited(now) else in_turn(count, stated=stated, ready=ready_of(now))
    return fewer if fewer < count and _each_fetches(now) else count


def in_turn(count: int, *, stated: int, ready: int, least: int = AT_ONCE) -> int:
    """Return how many of `count` replicas to state, where `ready` answer."""
    return min(count, max(stated, ready + max(least, ready)))


def _each_fetches(now: Situation) -> bool:
    """Whether the target's engines do: by its record, since what the spec leads to may wait."""
    record = now.record_of(now.target) or now.proposal.record
    return fetches_alone_on_record(record.stored()) if record is not None else fetches_alone(now.service.spec)


def _is_limited(now: Situation) -> bool:
    """Whether the hub refuses one that starts. Who leaves or cannot be reached may say so for ever."""
    found = (start.trouble for start in starts_of(now))
    return any(t is not None and trouble_of(t).reason is Reason.HUB_RATE_LIMITED for t in found)

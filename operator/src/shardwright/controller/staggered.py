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
_HUB: Final = frozenset({Reason.HUB_RATE_LIMITED, Reason.HUB_UNAVAILABLE, Reason.HUB_UNAUTHORIZED})
"""Trouble of those that ask it again and again."""


def at_once(now: Situation, count: int) -> int:
    """Return how many of `count` replicas of the target to state for now.

    While the hub refuses one of them for asking too often none is added; who is there waits at the kubelet's
    growing distances. Who stands still on a node for another reason fetches nothing, and holds nobody up: the
    first eight may all be on the one node that cannot pull the image. Who leaves or cannot be reached may say
    for ever what it said last, and does not count.
    """
    current = now.deployments.get(now.target)
    stated = current.replicas if current else 0
    if count <= stated:  # as nearly always
        return count
    found = [trouble_of(s.trouble).reason for s in starts_of(now) if s.bound and s.trouble is not None]
    if Reason.HUB_RATE_LIMITED in found:
        fewer = stated
    else:
        idle = sum(reason not in _HUB for reason in found)
        fewer = in_turn(count, stated=stated, ready=ready_of(now), idle=idle)
    return fewer if fewer < count and _each_fetches(now) else count


def in_turn(count: int, *, stated: int, ready: int, idle: int = 0, least: int = AT_ONCE) -> int:
    """Return how many of `count` replicas to state, where `ready` answer and `idle` do not get to fetch."""
    return min(count, max(stated, ready + idle + max(least, ready)))


def _each_fetches(now: Situation) -> bool:
    """Whether the target's engines do: by its record, since what the spec leads to may wait."""
    record = now.record_of(now.target) or now.proposal.record
    return fetches_alone_on_record(record.stored()) if record is not None else fetches_alone(now.service.spec)

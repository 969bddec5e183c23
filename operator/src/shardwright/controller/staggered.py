"""How many engines may start at once that each fetch their weights from a hub by themselves. Pure.

Decides growth alone: what is stated is never taken back, and a smaller size is taken as it is. Where a Job
fetches the weights once (`controller.fetching`), or they come from elsewhere, it decides nothing.
"""

from typing import Final

from shardwright.api.reasons import Reason
from shardwright.controller.rolling import ready_of
from shardwright.controller.situation import Situation
from shardwright.diagnose.trouble import trouble_of
from shardwright.render.fetch import fetches
from shardwright.render.storage import source_type

AT_ONCE: Final = 8
"""Starts beyond what answers. The hub lets an address without an account resolve 3,000 files in five minutes
(huggingface.co/docs/hub/rate-limits), and the largest models have some 200: eight leave half of that to
others. Our choice, as is that later as many may start as already answer: growth at most doubles."""


def at_once(now: Situation, count: int) -> int:
    """Return how many of `count` replicas of the target to state for now.

    While the hub refuses one of them for asking too often none is added; who is there waits at the kubelet's
    growing distances.
    """
    if source_type(now.service.spec) != "Hub" or fetches(now.service.spec, now.proposal.for_one_pod):
        return count
    current = now.deployments.get(now.target)
    stated = current.replicas if current else 0
    return min(count, stated) if _is_limited(now) else in_turn(count, stated=stated, ready=ready_of(now))


def in_turn(count: int, *, stated: int, ready: int, least: int = AT_ONCE) -> int:
    """Return how many of `count` replicas to state, where `ready` answer."""
    return min(count, max(stated, ready + max(least, ready)))


def _is_limited(now: Situation) -> bool:
    found = (now.troubles.get((pod.namespace, pod.name)) for pod in now.pods_of(now.target) if not pod.ready)
    return any(t is not None and trouble_of(t).reason is Reason.HUB_RATE_LIMITED for t in found)

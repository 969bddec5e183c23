"""Events on transitions, for `kubectl describe` and for whoever watches events.

Decides which events are worth a request: one for each (object, reason, message) until another one takes
its place, and at most a few a minute for one object. Never raises: an event that cannot be posted is
dropped and counted.
"""

import logging
import secrets
from collections.abc import Callable
from typing import Final

from shardwright.api.llmservice import API_VERSION, KIND, ServiceKey
from shardwright.cluster.api import Api
from shardwright.cluster.errors import ClusterError
from shardwright.cluster.json import JsonObject

_LOG = logging.getLogger(__name__)

COMPONENT: Final = "shardwright.dev/operator"
BURST: Final = 6
REFILL_S: Final = 30.0
"""One event in 30 s for one object in the long run."""
_LONGEST_NOTE: Final = 1000
"""The API server's limit is 1024 bytes."""


class Recorder:
    """Posts events about LLMServices.

    `clock` gives seconds, `timestamp` an RFC 3339 time with microseconds.
    """

    def __init__(
        self, api: Api, *, clock: Callable[[], float], timestamp: Callable[[], str], instance: str
    ) -> None:
        self._api = api
        self._clock = clock
        self._timestamp = timestamp
        self._instance = instance[:128]
        self._last: dict[tuple[str, str], tuple[str, str]] = {}
        self._budget: dict[str, tuple[float, float]] = {}
        self.dropped = 0

    async def post(
        self, key: ServiceKey, uid: str, *, reason: str, note: str, action: str, warning: bool = False
    ) -> None:
        """Post an event, unless the last one of this action said the same or the object had too many."""
        if self._last.get((uid, action)) == (reason, note):
            return
        if not self._allowed(uid):
            self.dropped += 1
            return
        self._last[uid, action] = (reason, note)
        level = logging.WARNING if warning else logging.INFO
        _LOG.log(level, "told service=%s action=%s reason=%s note=%s", key, action, reason, note)
        event: JsonObject = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{key.name}.{secrets.token_hex(8)}", "namespace": key.namespace},
            "eventTime": self._timestamp(),
            "reportingController": COMPONENT,
            "reportingInstance": self._instance,
            "action": action,
            "reason": reason,
            "note": note.encode()[:_LONGEST_NOTE].decode(errors="ignore"),
            "type": "Warning" if warning else "Normal",
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": key.name,
                "namespace": key.namespace,
                "uid": uid,
            },
        }
        try:
            await self._api.create_event(key.namespace, event)
        except ClusterError as error:
            self.dropped += 1
            _LOG.debug("event dropped service=%s reason=%s error=%s", key, reason, error)

    def forget(self, uid: str) -> None:
        """Forget an object that is gone."""
        self._budget.pop(uid, None)
        for known in [k for k in self._last if k[0] == uid]:
            del self._last[known]

    def _allowed(self, uid: str) -> bool:
        now = self._clock()
        level, at = self._budget.get(uid, (float(BURST), now))
        level = min(float(BURST), level + (now - at) / REFILL_S)
        if level < 1:
            return False
        self._budget[uid] = (level - 1, now)
        return True

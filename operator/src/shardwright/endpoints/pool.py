"""Which engines a router should have, and what of its list differs. Pure.

Decides from EndpointSlices alone who is served. What is not known (no slice was seen yet, none is left) is
never taken for no engine. Never asks a router or the API server.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from shardwright.api.names import url_host
from shardwright.cluster.json import JsonObject

Key = tuple[str, str]
"""(namespace, name) of a slice."""
_PORT_NAME: Final = "http"


class Change(NamedTuple):
    """What to do to a router's list, in this order."""

    remove: tuple[str, ...]
    add: tuple[str, ...]


class Slice(NamedTuple):
    """One EndpointSlice: its resourceVersion, and the URLs of the engines that serve."""

    version: str
    urls: frozenset[str]


def difference(wanted: Iterable[str], listed: Iterable[str]) -> Change:
    """Return what makes a list hold exactly what is wanted."""
    theirs, ours = set(listed), set(wanted)
    return Change(tuple(sorted(theirs - ours)), tuple(sorted(ours - theirs)))


def read_slice(obj: JsonObject) -> Slice:
    """Read an EndpointSlice. Raises KeyError for what is none."""
    port = next((p["port"] for p in obj.get("ports") or () if p.get("name") == _PORT_NAME), None)
    found: set[str] = set()
    for endpoint in obj.get("endpoints") or () if port else ():
        if _serves(endpoint.get("conditions") or {}):
            # One pod has one entry; further addresses would be the same pod's.
            found.add(f"http://{url_host(endpoint['addresses'][0])}:{port}")
    return Slice(str(obj["metadata"]["resourceVersion"]), frozenset(found))


def _serves(conditions: JsonObject) -> bool:
    """Whether new requests may go there. The API has an absent `ready` count as true."""
    return conditions.get("ready") is not False and not conditions.get("terminating")


def _newer(one: str, other: str) -> bool:
    """Whether a resourceVersion is later; those of one kind are comparable numbers (KEP-5504)."""
    return one.isdigit() and other.isdigit() and int(one) > int(other)


@dataclass(slots=True)
class Slices:
    """The slices of one Service, as a watch and lists beside it tell of them. `changed` is called on news."""

    changed: Callable[[], None] = lambda: None
    _known: dict[Key, Slice] = field(default_factory=dict)
    _as_of: str = ""
    """Version of the last whole list."""

    def wanted(self) -> frozenset[str] | None:
        """Return the URLs of all engines that serve, or None when that is not known.

        Kubernetes keeps one slice of a Service that selects nobody: without any, nobody has looked yet.
        """
        if not self._known:
            return None
        return frozenset().union(*(each.urls for each in self._known.values()))

    def upsert(self, obj: JsonObject) -> None:
        """Take a slice, unless a later state of it is known: another one, or that it was gone."""
        metadata = obj["metadata"]
        key, each = (metadata["namespace"], metadata["name"]), read_slice(obj)
        if key in self._known or not _newer(self._as_of, each.version):
            self._take(key, each)

    def remove(self, key: Key, version: str) -> None:
        """Forget a slice that was gone at `version`, unless a later state of it is known."""
        before = self._known.get(key)
        if before is not None and not _newer(before.version, version):
            del self._known[key]
            self.changed()

    def keys(self) -> set[Key]:
        """All slices that are known."""
        return set(self._known)

    def listed(self, items: Iterable[JsonObject], version: str) -> None:
        """Take a whole list of this version: what it does not have is gone.

        Lists are read with a quorum, so that one which is older than the last tells of another history: the
        API server's store was put back from a copy. Then nothing that was known counts.
        """
        if _newer(self._as_of, version):
            self._known.clear()
        self._as_of = version
        found = {(o["metadata"]["namespace"], o["metadata"]["name"]): read_slice(o) for o in items}
        for key, each in found.items():
            self._take(key, each)
        for key in self.keys() - set(found):
            self.remove(key, version)

    def _take(self, key: Key, each: Slice) -> None:
        before = self._known.get(key)
        if before == each or (before is not None and _newer(before.version, each.version)):
            return
        self._known[key] = each
        if before is None or before.urls != each.urls:
            self.changed()


def is_filled(wanted: frozenset[str] | None, listed: frozenset[str], *, before: bool) -> bool:
    """Whether a router with this list may get requests.

    With nobody to serve it may: it answers 503, which says more than a refused connection. While what is
    wanted is not known, a list that holds somebody was filled by an earlier run of this process, and counts.
    `before` is the answer of the last look, which an unknown alone never makes worse.
    """
    if wanted is None:
        return before or bool(listed)
    return not wanted or bool(wanted & listed)

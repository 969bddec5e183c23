"""Writes the children of one service, and only what differs.

Decides whether a child is ours to write: it must not exist yet, or have this very LLMService as its
controller. Never adopts an object, never removes one that is not ours, and never decides what a child
says.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from shardwright.api.llmservice import KIND
from shardwright.cluster.api import Api
from shardwright.cluster.drift import desired_digest
from shardwright.cluster.errors import Conflict, Invalid, Transient
from shardwright.cluster.facts import ChildFacts, ChildKey, ServiceEntry, written_facts
from shardwright.cluster.json import JsonObject
from shardwright.cluster.kinds import BY_KIND, CHILD_KINDS
from shardwright.cluster.store import Store
from shardwright.metrics.exposition import Exposition

CENSUS_S: Final = 600.0
"""How long a list of names is believed. What came into being since then is noticed when it is written."""


@dataclass(frozen=True, slots=True)
class Desired:
    """A child as it should be, with its digest."""

    key: ChildKey
    digest: bytes
    obj: JsonObject

    @classmethod
    def of(cls, obj: JsonObject) -> "Desired":
        """Take a rendered child."""
        metadata = obj["metadata"]
        return cls((obj["kind"], metadata["namespace"], metadata["name"]), desired_digest(obj), obj)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of applying."""

    written: int = 0
    conflicts: tuple[str, ...] = ()
    """The children whose name something else has, as `Kind/name`."""


@dataclass(slots=True)
class Applier:
    """Applies children. One for the whole operator."""

    api: Api
    store: Store
    metrics: Exposition
    clock: Callable[[], float]
    _census: dict[tuple[str, str], tuple[float, set[str]]] = field(default_factory=dict)
    """Names by (kind, namespace), and until when they are believed."""

    def differs(self, child: ChildKey, digest: bytes) -> bool:
        """Whether a child is missing or says something else."""
        live = self.store.children.get(child)
        if live is None or live.deleting:
            return True
        return live.digest != digest

    async def apply(self, entry: ServiceEntry, desired: Iterable[Desired]) -> Outcome:
        """Apply what differs, in order.

        Raises ClusterError. Stops at the first name that is taken, since what follows may rest on it.
        """
        written = 0
        for child in desired:
            if not self.differs(child.key, child.digest):
                self.metrics.applied(child.key[0], "unchanged")
                continue
            if not await self._write(entry, child):
                self.metrics.applied(child.key[0], "refused")
                return Outcome(written, (f"{child.key[0]}/{child.key[2]}",))
            self.metrics.applied(child.key[0], "written")
            written += 1
        return Outcome(written)

    async def take_census(self, namespaces: Iterable[str]) -> None:
        """Note all names of some namespaces, so that many new children need no look each."""
        for namespace in namespaces:
            for kind in CHILD_KINDS:
                names = await self.api.names(kind, namespace)
                self._census[kind.kind, namespace] = (self.clock() + CENSUS_S, names)

    async def _write(self, entry: ServiceEntry, child: Desired) -> bool:
        """Apply one child; False when its name is taken."""
        known = self.store.children.get(child.key)
        if known is None and self._surely_absent(child.key):
            try:
                applied = await self.api.apply(child.obj, force=False)
            except Conflict:
                return False if await self._taken(entry, child.key) else await self._write_over(child)
            if not applied.created:
                # It came into being since the census. Applying nothing takes back what we put into it.
                await self.api.apply({k: child.obj[k] for k in ("apiVersion", "kind")} | _identity(child.obj))
                return False
            self._took(child, applied.metadata)
            return True
        if await self._taken(entry, child.key):
            return False
        return await self._write_over(child)

    async def _write_over(self, child: Desired) -> bool:
        try:
            applied = await self.api.apply(child.obj)
        except Invalid:
            if child.key not in self.store.children:
                raise
            # A list keyed by what was edited, as the ports of a Service are, would hold our entry and the
            # edited one. It is replaced whole first.
            await self.api.replace_spec(child.obj)
            applied = await self.api.apply(child.obj)
        self._took(child, applied.metadata)
        return True

    def _took(self, child: Desired, metadata: JsonObject) -> None:
        with self.metrics.cpu("apply"):
            self.store.hold_child(written_facts(child.obj, metadata, child.digest))
        # From here on the name is there, also when its label is taken off and the watch loses sight of it.
        _, names = self._census.get(child.key[:2], (0.0, set()))
        names.add(child.key[2])

    def _surely_absent(self, key: ChildKey) -> bool:
        until, names = self._census.get(key[:2], (0.0, set()))
        return until > self.clock() and key[2] not in names

    async def delete(self, child: ChildFacts) -> None:
        """Delete a child that is ours."""
        await self.api.delete(BY_KIND[child.kind], child.namespace, child.name, uid=child.uid)
        live = self.store.children.get(child.child_key)
        if live is not None and live.uid == child.uid:
            self.store.hold_child(live._replace(deleting=True))
        self.metrics.applied(child.kind, "deleted")

    async def _taken(self, entry: ServiceEntry, key: ChildKey) -> bool:
        """Whether another's object has this name.

        Raises Transient while a former child of ours is being deleted.
        """
        live = self.store.children.get(key)
        if live is None:
            metadata = await self.api.metadata(BY_KIND[key[0]], key[1], key[2])
            if metadata is None:
                return False
            owners = [o for o in metadata.get("ownerReferences") or () if o.get("controller")]
            uid, name = next(((o["uid"], o["name"]) for o in owners if o.get("kind") == KIND), ("", ""))
            deleting = "deletionTimestamp" in metadata
        else:
            uid, name, deleting = live.owner_uid, live.owner_name, live.deleting
        former = uid != entry.uid and name == entry.key.name
        if (deleting and name == entry.key.name) or former:
            raise Transient(f"waiting for the deletion of {key[0]}/{key[2]} of a former {entry.key}")
        return uid != entry.uid


def _identity(obj: JsonObject) -> JsonObject:
    return {"metadata": {name: obj["metadata"][name] for name in ("name", "namespace")}}

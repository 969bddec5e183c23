"""Writes the children of one service, and only what differs.

Decides whether a child is ours to write: it must not exist yet, have this very LLMService as its controller,
or be without a controller and written by us for this service. Never takes over another's object, never
removes one, and never decides what a child says.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Final

from shardwright.api.names import FIELD_MANAGER
from shardwright.api.problems import Problem
from shardwright.cluster.api import Api
from shardwright.cluster.drift import clearing, desired_digest, made_by, mark
from shardwright.cluster.errors import ClusterError, Conflict, Forbidden, Gone, Invalid, Transient
from shardwright.cluster.facts import ChildFacts, ChildKey, ServiceEntry, seen_facts, written_facts
from shardwright.cluster.json import JsonObject
from shardwright.cluster.kinds import BY_KIND, CHILD_KINDS, LLM_SERVICE
from shardwright.cluster.store import Store
from shardwright.controller.refusals import Refusals, is_of_child
from shardwright.metrics.exposition import Exposition

CENSUS_S: Final = 600.0
"""How long a list of names is believed. What came into being since then is noticed when it is written."""
_UNDER_PODS: Final = frozenset({"ControllerRevision", "ServiceAccount", "Deployment"})
"""Kinds without which the pods of a new workload must not, or cannot, start."""


class Leaving(Transient):
    """An object of ours, or its service, is being deleted: its name is free only when that has ended."""


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


@dataclass(slots=True)
class Outcome:
    """What became of applying."""

    written: int = 0
    conflicts: list[str] = field(default_factory=list)
    """The children whose name something else has, as `Kind/name`."""
    refused: list[Problem] = field(default_factory=list)
    """What the API server refuses."""
    retry: ClusterError | None = None
    """Why it has to be tried again soon."""
    next_s: float = inf
    """When what is refused is offered again."""
    stands: bool = True
    """What the pods of a new workload rest on is there."""


@dataclass(slots=True)
class Applier:
    """Applies children. One for the whole operator."""

    api: Api
    store: Store
    metrics: Exposition
    clock: Callable[[], float]
    refusals: Refusals = field(init=False)
    _census: dict[tuple[str, str], tuple[float, set[str]]] = field(default_factory=dict)
    """Names by (kind, namespace), and until when they are believed."""
    _unanswered: dict[str, set[ChildKey]] = field(default_factory=dict)
    """Children whose creation was sent, while it is unknown whether it made them, or has met another's.

    By uid of the service.
    """

    _conflicts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By uid of the service: the conflicts of its last outcome."""

    def __post_init__(self) -> None:
        self.refusals = Refusals(self.clock)

    def forget(self, uid: str) -> None:
        """Forget a service that is gone."""
        self.refusals.forget(uid)
        self._unanswered.pop(uid, None)
        self._conflicts.pop(uid, None)

    def differs(self, child: ChildKey, digest: bytes) -> bool:
        """Whether a child is missing or says something else."""
        live = self.store.children.get(child)
        if live is None or live.deleting:
            return True
        return live.digest != digest

    async def apply(
        self, entry: ServiceEntry, desired: Iterable[Desired], remove: Iterable[ChildFacts] = ()
    ) -> Outcome:
        """Apply what differs, in order, then remove.

        What cannot be written keeps only a new workload from being written, which would rest on it. An error
        that says nothing of one child ends it, to be raised when what is seen has been reported.
        """
        outcome = Outcome()
        wanted = list(desired)
        self.refusals.keep(entry.uid, {child.key for child in wanted})
        left = iter(wanted)
        try:
            await self._apply(entry, left, remove, outcome)
        except ClusterError as error:
            outcome.retry = error
            self._recall(entry, left, outcome)
        self._conflicts.pop(entry.uid, None)
        if outcome.conflicts:
            self._conflicts[entry.uid] = tuple(outcome.conflicts)
        return outcome

    def _recall(self, entry: ServiceEntry, left: Iterable[Desired], outcome: Outcome) -> None:
        """Tell of the children that were not looked at what was known of them."""
        for child in left:
            live = self.store.children.get(child.key)
            refusal = self.refusals.standing(entry.uid, child.key, child.digest, live)
            if refusal is not None:
                outcome.refused.append(refusal.problem)
            elif f"{child.key[0]}/{child.key[2]}" in self._conflicts.get(entry.uid, ()):
                outcome.conflicts.append(f"{child.key[0]}/{child.key[2]}")

    async def _apply(
        self, entry: ServiceEntry, wanted: Iterable[Desired], remove: Iterable[ChildFacts], outcome: Outcome
    ) -> None:
        for child in wanted:
            if not self.differs(child.key, child.digest):
                self.refusals.drop(entry.uid, child.key)
                self.metrics.applied(child.key[0], "unchanged")
            elif outcome.stands or child.key[0] != "Deployment" or child.key in self.store.children:
                await self._offer(entry, child, outcome)
        for gone in remove:
            await self._remove(gone, outcome)

    async def _offer(self, entry: ServiceEntry, child: Desired, outcome: Outcome) -> None:
        """Write a child, unless it was refused and nothing has changed since."""
        kind, _, name = child.key
        about = (entry.uid, child.key, child.digest, self.store.children.get(child.key))
        refusal = self.refusals.standing(*about)
        if refusal is None:
            try:
                if await self._write(entry, child):
                    self.refusals.drop(entry.uid, child.key)
                    self.metrics.applied(kind, "written")
                    outcome.written += 1
                    return
                outcome.conflicts.append(f"{kind}/{name}")
            except Leaving as error:
                outcome.retry = error
            except ClusterError as error:
                if not is_of_child(child.key, error):
                    raise
                refusal = self.refusals.note(*about, error)
                outcome.retry = outcome.retry if refusal else error
            self.metrics.applied(kind, "refused")
        if refusal is not None:
            outcome.refused.append(refusal.problem)
            outcome.next_s = min(outcome.next_s, refusal.until_s - self.clock())
        if refusal is None or kind in _UNDER_PODS:
            outcome.stands = False

    async def _remove(self, child: ChildFacts, outcome: Outcome) -> None:
        """Delete a child that is ours."""
        try:
            await self.api.delete(BY_KIND[child.kind], child.namespace, child.name, uid=child.uid)
        except Forbidden as error:
            outcome.retry = error
            return
        live = self.store.children.get(child.child_key)
        if live is not None and live.uid == child.uid:
            self.store.hold_child(live._replace(deleting=True))
        self.metrics.applied(child.kind, "deleted")

    async def take_census(self, namespaces: Iterable[str]) -> None:
        """Note all names of some namespaces, so that many new children need no look each."""
        for namespace in namespaces:
            for kind in CHILD_KINDS:
                names = await self.api.names(kind, namespace)
                self._census[kind.kind, namespace] = (self.clock() + CENSUS_S, names)

    async def _write(self, entry: ServiceEntry, child: Desired) -> bool:
        """Apply one child; False when its name is taken."""
        if child.key not in self.store.children and self._surely_absent(child.key):
            made = await self._create(entry, child)
            if made is not None:
                return made
        elif child.key in self._unanswered.get(entry.uid, ()) and await self._met_another(entry, child):
            return False
        if await self._taken(entry, child.key):
            return False
        return await self._write_over(child)

    async def _create(self, entry: ServiceEntry, child: Desired) -> bool | None:
        """Apply a child of a name that nothing had at the census.

        False when another's object has it by now, None when that is to be looked at.
        """
        # Whatever becomes of the answer, from here on the name may be there: the next attempt looks first.
        self._census[child.key[:2]][1].add(child.key[2])
        unanswered = self._unanswered.setdefault(entry.uid, set())
        unanswered.add(child.key)
        try:
            applied = await self.api.apply(child.obj, force=False)
        except (Conflict, Invalid):
            unanswered.discard(child.key)
            return None
        if not applied.created and not made_by(applied.metadata):
            await self._take_back(child, applied.metadata)
            return False  # and it is looked at again: the watch may still tell of it as of ours
        unanswered.discard(child.key)
        self._took(child, applied.metadata)
        return True

    async def _met_another(self, entry: ServiceEntry, child: Desired) -> bool:
        """Whether a creation went into another's object; what it put there is then taken back.

        The store is not asked, as long as that object is there: the watch tells late that we have left it.
        """
        metadata = await self.api.metadata(BY_KIND[child.key[0]], child.key[1], child.key[2])
        marked = metadata is not None and bool(mark(metadata))
        owner = seen_facts(child.key[0], metadata).owner_uid if metadata is not None else ""
        if metadata is None or made_by(metadata) or (not marked and owner == entry.uid):
            self._unanswered.get(entry.uid, set()).discard(child.key)
            return False
        if marked:
            await self._take_back(child, metadata)
        return True

    async def _take_back(self, child: Desired, metadata: JsonObject) -> None:
        """Take what we put into another's object out of it, by applying nothing but its uid."""
        kind, namespace, name = child.key
        head = {"name": name, "namespace": namespace, "uid": metadata["uid"]}
        with suppress(Conflict, Gone):  # by then it is another object, or none
            await self.api.apply({"apiVersion": child.obj["apiVersion"], "kind": kind, "metadata": head})

    async def _write_over(self, child: Desired) -> bool:
        try:
            applied = await self.api.apply(child.obj)
        except Invalid as error:
            if not await self._cleared(child, error.fields):
                raise
            applied = await self.api.apply(child.obj)
        self._took(child, applied.metadata)
        return True

    async def _cleared(self, child: Desired, places: tuple[str, ...]) -> bool:
        """Take out of a live child what others put beside our values, where the two together are invalid.

        The ports of a Service are such a list, keyed by what was edited, and the two bounds of a budget such
        a choice. `places` is what the API server names; False when there is nothing to take out.
        """
        if not places:
            return False
        kind, namespace, name = BY_KIND[child.key[0]], child.key[1], child.key[2]
        try:
            live = await self.api.get(kind, namespace, name)
        except Gone:
            return False
        patch = clearing(live, child.obj, places)
        if patch:
            await self.api.merge_as(kind, namespace, name, patch, manager=FIELD_MANAGER)
        return bool(patch)

    def _took(self, child: Desired, metadata: JsonObject) -> None:
        with self.metrics.cpu("apply"):
            self.store.hold_child(written_facts(child.obj, metadata, child.digest))
        # From here on the name is there, also when its label is taken off and the watch loses sight of it.
        _, names = self._census.get(child.key[:2], (0.0, set()))
        names.add(child.key[2])

    def _surely_absent(self, key: ChildKey) -> bool:
        until, names = self._census.get(key[:2], (0.0, set()))
        return until > self.clock() and key[2] not in names

    async def _taken(self, entry: ServiceEntry, key: ChildKey) -> bool:
        """Whether another's object has this name. Raises Leaving while one of ours is being deleted."""
        live = self.store.children.get(key) or await self._look(key)
        if live is None:
            return False
        ours = live.owner_uid == entry.uid or (live.key == entry.key and live.belongs_to(entry.uid))
        former = live.owner_uid != entry.uid and live.owner_name == entry.key.name
        if former or (ours and live.deleting):
            raise Leaving(f"waiting for the deletion of {key[0]}/{key[2]} of {entry.key}")
        if ours and not live.owner_uid:
            await self._confirm(entry)
        return not ours

    async def _look(self, key: ChildKey) -> ChildFacts | None:
        metadata = await self.api.metadata(BY_KIND[key[0]], key[1], key[2])
        return seen_facts(key[0], metadata) if metadata is not None else None

    async def _confirm(self, entry: ServiceEntry) -> None:
        """Make sure that a service stays, before an object without an owner is made its child again.

        A deletion that leaves orphans is seen in the children first, and a child that is given back to a
        service on its way out would be collected with it. Raises Leaving.
        """
        where = f"metadata.name={entry.key.name}"
        async for found, _ in self.api.list_pages(LLM_SERVICE, entry.key.namespace, fields=where):
            for item in found:
                if item["metadata"]["uid"] == entry.uid and "deletionTimestamp" not in item["metadata"]:
                    return
        raise Leaving(f"{entry.key} is being deleted and leaves its children")

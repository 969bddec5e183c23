"""Objects with owners of their fields: as much of server-side apply as the operator's children need.

Lists of maps are keyed as Kubernetes keys them; all other lists are one value. `docs` of the API reference, "Server-Side
Apply", has the rules; the tests on the real control plane hold the two together.
"""

import copy
import itertools
import json
from collections.abc import Callable

from shardwright.cluster.errors import Conflict, Gone, Invalid

KEYS = {"ports": "port", "ownerReferences": "uid", "containers": "name"}
HEAD = {"apiVersion", "kind", "status"}
IDENTITY = {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"}
Path = tuple[str, ...]
Key = tuple[str, str, str]


def leaves(value, path: Path = ()) -> dict[Path, object]:
    """Every value by its path; an item of a keyed list is `k:{"port":80}` in it."""
    if isinstance(value, dict) and value and path != ("f:data",):
        items = {f"f:{name}": item for name, item in value.items()}
        if not path:
            items = {name: item for name, item in items.items() if name[2:] not in HEAD}
        if path == ("f:metadata",):
            items = {name: item for name, item in items.items() if name[2:] not in IDENTITY}
    elif isinstance(value, list) and value and _key(path, value):
        key = _key(path, value)
        items = {f"k:{json.dumps({key: item[key]}, separators=(',', ':'))}": item for item in value}
    else:
        return {path: value}
    found: dict[Path, object] = {}
    for name, item in items.items():
        found |= leaves(item, (*path, name))
    return found


def _key(path: Path, items: list) -> str:
    key = KEYS.get(path[-1][2:], "") if path else ""
    return key if all(isinstance(item, dict) and key in item for item in items) else ""


def built(values: dict[Path, object]):
    """Put values by path back together."""
    if () in values:
        return values[()]
    inner: dict[str, dict[Path, object]] = {}
    for path, value in values.items():
        inner.setdefault(path[0], {})[path[1:]] = value
    parts = {name: built(part) for name, part in inner.items()}
    if all(name.startswith("k:") for name in parts):
        return list(parts.values())
    return {name[2:]: part for name, part in parts.items()}


def fields(paths: set[Path]) -> dict:
    tree: dict = {}
    for path in sorted(paths):
        at = tree
        for name in path:
            at = at.setdefault(name, {})
    return tree


class Objects:
    """What is stored. `now` gives whole seconds as text; `told` hears of every change."""

    def __init__(self, now: Callable[[], str], told: Callable[[str, Key, dict], None]) -> None:
        self.live: dict[Key, dict] = {}
        self.owners: dict[str, dict[tuple[str, str], tuple[str, set[Path]]]] = {}
        """By uid: of each manager and operation, when it said something, and its fields."""
        self.versions = itertools.count(1000)
        self.now = now
        self.told = told
        self.uids = itertools.count(1)

    def _owners(self, live: dict) -> dict[tuple[str, str], tuple[str, set[Path]]]:
        """Whoever put an object here past us said all of it."""
        said = {("somebody", "Update"): (self.now(), set(leaves(live)))}
        return self.owners.setdefault(live["metadata"]["uid"], said)

    def apply(self, obj: dict, *, force: bool, manager: str = "shardwright") -> tuple[dict, bool]:
        key = (obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"])
        live = self.live.get(key)
        if "uid" in obj["metadata"] and (live is None or live["metadata"]["uid"] != obj["metadata"]["uid"]):
            raise Conflict("uid mismatch", status=409)
        wanted = leaves(obj)
        if live is None:
            self._check(obj)
            made = copy.deepcopy(obj)
            made["metadata"] |= {
                "uid": f"uid-{key[2]}-{key[0]}-{next(self.uids)}",
                "creationTimestamp": self.now(),
            }
            self.owners[made["metadata"]["uid"]] = {(manager, "Apply"): (self.now(), set(wanted))}
            self._store("ADDED", key, made)
            return made["metadata"], True
        owners = {who: (at, set(paths)) for who, (at, paths) in self._owners(live).items()}
        values, mine = leaves(live), owners.get((manager, "Apply"), ("", set()))[1]
        for who, (at, paths) in list(owners.items()):
            taken = (
                {p for p in paths & set(wanted) if values.get(p) != wanted[p]}
                if who != (manager, "Apply")
                else set()
            )
            if taken and not force:
                raise Conflict(f"conflict with {who[0]}: {min(taken)}", status=409)
            owners[who] = (at, paths - taken)
        elsewhere = set().union(*(paths for who, (_, paths) in owners.items() if who != (manager, "Apply")))
        after = {p: v for p, v in values.items() if p not in mine - set(wanted) - elsewhere} | wanted
        if after == values and mine == set(wanted):
            return live["metadata"], False
        owners[manager, "Apply"] = (self.now(), set(wanted))
        self._replace(key, after, owners)
        return self.live[key]["metadata"], False

    def merge(self, key: Key, patch: dict, manager: str) -> None:
        """A merge patch, as `kubectl edit` sends one."""
        live = self.live.get(key)
        if live is None:
            raise Gone(f"{key} not found", status=404)
        owners = {who: (at, set(paths)) for who, (at, paths) in self._owners(live).items()}
        before, after = leaves(live), leaves(_merged(live, patch))
        changed = {p for p, v in after.items() if before.get(p, patch) != v}
        if after == before:
            return
        for who, (at, paths) in list(owners.items()):
            owners[who] = (at, (paths & set(after)) - changed)
        said = owners.get((manager, "Update"), ("", set()))[1] | changed
        owners[manager, "Update"] = (self.now(), said)
        self._replace(key, after, owners)

    def delete(self, key: Key) -> None:
        live = self.live.pop(key, None)
        if live is not None:
            self.owners.pop(live["metadata"]["uid"], None)
            live["metadata"]["resourceVersion"] = str(next(self.versions))
            self.told("DELETED", key, live)

    def _replace(self, key: Key, values: dict[Path, object], owners: dict) -> None:
        live = self.live[key]
        made = built(values)
        self._check(made | {"kind": key[0]})
        made |= {name: live[name] for name in HEAD & live.keys()}
        head = {name: live["metadata"][name] for name in IDENTITY & live["metadata"].keys()}
        made["metadata"] = made.get("metadata", {}) | head
        self.owners[head["uid"]] = {who: said for who, said in owners.items() if said[1]}
        self._store("MODIFIED", key, made)

    def _store(self, sort: str, key: Key, obj: dict) -> None:
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(next(self.versions))
        if key[0] in {"Deployment", "PodDisruptionBudget"}:
            metadata["generation"] = metadata.get("generation", 0) + 1
        metadata["managedFields"] = [
            {"manager": who, "operation": how, "time": at, "fieldsV1": fields(paths)}
            for (who, how), (at, paths) in self.owners[metadata["uid"]].items()
        ]
        self.live[key] = obj
        self.told(sort, key, obj)

    def _check(self, obj: dict) -> None:
        """Two of the API server's rules that a merge of two authors can break."""
        spec = obj.get("spec") or {}
        if obj["kind"] == "PodDisruptionBudget" and {"minAvailable", "maxUnavailable"} <= spec.keys():
            raise Invalid("minAvailable and maxUnavailable cannot be both set", status=422, fields=("spec",))
        if obj["kind"] == "Service":
            names = [port.get("name") for port in spec.get("ports") or ()]
            if len(names) != len(set(names)):
                raise Invalid(
                    "spec.ports[1].name: Duplicate value", status=422, fields=("spec.ports[1].name",)
                )
        owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
        if sum(1 for owner in owners if owner.get("controller")) > 1:
            raise Invalid("Only one reference can have Controller set to true", status=422)


def _merged(live, patch):
    if not isinstance(patch, dict):
        return patch
    found = dict(live) if isinstance(live, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merged(found.get(name), value)
    return found

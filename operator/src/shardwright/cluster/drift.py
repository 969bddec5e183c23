"""Whether a live child still says what we last applied, and what others say in it. Pure.

Decides equality by a digest over exactly the fields that our field manager owns:
`metadata.managedFields` says which these are, so defaults that the server filled in, status, and what
others own never count. A hand edit takes a field out of our set or changes its value, and both change
the digest. What others added is told apart from it, and never decides whether something is written.

The form of `fieldsV1` is documented in Kubernetes' "Server-Side Apply" and in `FieldsV1` of the API
reference: `f:NAME` a field, `k:{...}` a list item by its keys, `v:VALUE` a set item, `.` the field
itself.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

from msgspec import Raw

from shardwright.api.names import FIELD_MANAGER
from shardwright.cluster.json import JsonObject, canonical, loads

_ABSENT: Final = object()
_IDENTITY: Final = frozenset({"name", "namespace"})
_HEAD: Final = frozenset({"apiVersion", "kind", "metadata"})
_QUIET: Final = "spec.template.metadata"
_DROPPED: Final = frozenset(
    {
        "allocateLoadBalancerNodePorts",
        "externalTrafficPolicy",
        "healthCheckNodePort",
        "loadBalancerClass",
        "nodePort",
    }
)
"""Fields that a Service of our type does not have. When we put the type back, the server drops what another
type brought, and leaves it in managedFields (kubernetes, pkg/registry/core/service/strategy.go)."""
_UNKNOWN: Final = "before-first-apply"
"""The server's name for whoever said what is in an object whose managedFields were emptied: the defaults that
it filled in are among that."""


def digest(value: object) -> bytes:
    """16 bytes that are equal for equal JSON values, whatever the order of their keys."""
    return blake2b(canonical(value), digest_size=16).digest()


def mark(metadata: JsonObject, manager: str = FIELD_MANAGER) -> bytes:
    """16 bytes that are equal while nobody changes what `manager` says, it included; empty: it says nothing.

    Whoever else changes a value takes its field out of the set. A write of its own that changes something
    moves the time of its entry, so that a write whose answer was lost, or that landed late, is noticed.
    """
    entry = _entry(metadata, manager)
    if entry is None:
        return b""
    fields = entry.get("fieldsV1") or {}
    said = bytes(fields) if isinstance(fields, Raw) else canonical(fields)
    return blake2b(said + str(entry.get("time")).encode(), digest_size=16).digest()


def made_by(metadata: JsonObject, manager: str = FIELD_MANAGER) -> bool:
    """Whether an object came into being by an apply of `manager`, as far as managedFields tell.

    Their times are whole seconds. It did not if the object is older than that apply, if somebody else said
    something of it before, or in the same second something of what we state, as only its author would:
    what controllers add to a new object (labels, an account's secrets) lies beside that.
    """
    entry = _entry(metadata, manager)
    if entry is None or str(metadata.get("creationTimestamp")) < str(entry.get("time")):
        return False
    ours = _fields(entry).keys() - {"f:metadata"}
    for other in _others(metadata):
        if str(other.get("time")) < str(entry.get("time")):
            return False
        if other.get("time") == entry.get("time") and ours & _fields(other).keys():
            return False
    return True


def owned_fields(live: JsonObject, manager: str = FIELD_MANAGER) -> JsonObject:
    """Find the fields that `manager` owns by apply, outside subresources; empty when it owns none."""
    return _fields(_entry(live["metadata"], manager))


def additions(metadata: JsonObject) -> tuple[tuple[str, str], ...]:
    """Name what others say under `spec` beyond what we say, as (field, manager), sorted.

    Applying takes back what they changed, but not what they added. Annotations and labels of a pod template
    do not count: `kubectl rollout restart` writes one.
    """
    found: set[tuple[str, str]] = set()
    for entry in _others(metadata):
        if not _mentions(entry, "spec"):
            continue  # nearly always, and cheaper than to read it
        theirs, ours = _fields(entry), _fields(_entry(metadata, FIELD_MANAGER))
        manager = str(entry.get("manager") or "someone")
        beyond = _beyond(theirs.get("f:spec") or {}, ours.get("f:spec") or {}, "spec")
        found |= {
            (field, manager)
            for field in beyond
            if not field.startswith(_QUIET) and field.rpartition(".")[2] not in _DROPPED
        }
    return tuple(sorted(found))


def clearing(live: JsonObject, obj: JsonObject, places: tuple[str, ...]) -> JsonObject:
    """Build the merge patch that takes out what others say inside of what `obj` states, at `places`.

    Those are paths as the API server names what is invalid. A list is put back whole. Empty when others say
    nothing there.
    """
    near = [place.partition("[")[0] + "." for place in places]
    stated = {name: value for name, value in obj.items() if name not in _HEAD}
    patch: JsonObject = {}
    for entry in _others(live["metadata"]):
        theirs = {name: sub for name, sub in _fields(entry).items() if name[2:] in stated}
        _clear(patch, theirs, stated, "", near)
    return patch


def _clear(patch: JsonObject, theirs: JsonObject, ours: JsonObject, path: str, near: list[str]) -> None:
    for name, fields in theirs.items():
        key, at = name[2:], f"{path}{name[2:]}."
        if not name.startswith("f:") or not any(at.startswith(p) or p.startswith(at) for p in near):
            continue
        if key not in ours:
            patch[key] = None
        elif isinstance(ours[key], list):
            patch[key] = ours[key]
        elif isinstance(ours[key], dict):
            inner = patch.get(key, {})
            _clear(inner, fields, ours[key], at, near)
            if inner:
                patch[key] = inner


def _beyond(theirs: JsonObject, ours: JsonObject, path: str) -> Iterator[str]:
    """Name the fields of one set that are not in another, not going further into what is there in neither."""
    for name, sub in theirs.items():
        if name == ".":
            continue
        kind, _, rest = name.partition(":")
        if kind == "k":
            rest = ",".join(str(value) for value in loads(rest.encode()).values())
        at = f"{path}.{rest}" if kind == "f" else f"{path}[{rest}]"
        if name not in ours:
            yield at
        else:
            yield from _beyond(sub, ours[name], at)


def _others(metadata: JsonObject) -> Iterator[JsonObject]:
    """Entries of other managers, outside subresources."""
    for entry in metadata.get("managedFields") or ():
        if entry.get("manager") not in {FIELD_MANAGER, _UNKNOWN} and not entry.get("subresource"):
            yield entry


def _mentions(entry: JsonObject, field: str) -> bool:
    fields = entry.get("fieldsV1") or {}
    name = f"f:{field}"
    return f'"{name}"'.encode() in bytes(fields) if isinstance(fields, Raw) else name in fields


def _entry(metadata: JsonObject, manager: str) -> JsonObject | None:
    """Return what `manager` states by apply, outside subresources."""
    for entry in metadata.get("managedFields") or ():
        if (
            entry.get("manager") == manager
            and entry.get("operation") == "Apply"
            and not entry.get("subresource")
        ):
            found: JsonObject = entry
            return found
    return None


def _fields(entry: JsonObject | None) -> JsonObject:
    fields = (entry or {}).get("fieldsV1") or {}
    found: JsonObject = loads(fields) if isinstance(fields, Raw) else fields
    return found


def live_digest(live: JsonObject, manager: str = FIELD_MANAGER) -> bytes:
    """Digest of what `manager` says in a live object."""
    fields = owned_fields(live, manager)
    return digest(project(live, fields) if fields else {})


def desired_digest(obj: JsonObject) -> bytes:
    """Digest of an object that we would apply; equal to `live_digest` when applying it would change nothing.

    Assumes canonical values, as rendering gives them: quantities as Kubernetes prints them, no nulls.
    """
    content = {name: value for name, value in obj.items() if name not in {"apiVersion", "kind"}}
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _IDENTITY}
    if metadata:
        content["metadata"] = metadata
    else:
        del content["metadata"]
    return digest(content)


def project(value: Any, fields: JsonObject) -> Any:  # noqa: ANN401 -- any JSON value
    """Take the part of a live value that a field set names."""
    if isinstance(value, Raw):
        value = loads(value)
    if not fields or (len(fields) == 1 and "." in fields):
        return value if not fields else _empty_like(value)
    if isinstance(value, dict):
        return _project_map(value, fields)
    if isinstance(value, list):
        return _project_list(value, fields)
    return value


def _empty_like(value: Any) -> Any:  # noqa: ANN401 -- any JSON value
    """Empty a map or list that is owned itself while its items are not."""
    if isinstance(value, dict):
        return {}
    return [] if isinstance(value, list) else value


def _project_map(value: JsonObject, fields: JsonObject) -> JsonObject:
    result: JsonObject = {}
    for name, sub in fields.items():
        if name.startswith("f:"):
            item = value.get(name[2:], _ABSENT)
            if item is not _ABSENT:
                result[name[2:]] = project(item, sub)
    return result


def _project_list(value: list[Any], fields: JsonObject) -> list[Any]:
    """Keep the live order: it is ours, and another manager's items only stand between."""
    by_key: dict[tuple[tuple[str, Any], ...], JsonObject] = {}
    names: tuple[str, ...] = ()
    values: list[Any] = []
    for name, sub in fields.items():
        if name.startswith("k:"):
            key = loads(name[2:].encode())
            names = tuple(sorted(key))
            by_key[tuple((n, key[n]) for n in names)] = sub
        elif name.startswith("v:"):
            values.append(loads(name[2:].encode()))
    if not by_key:
        return [item for item in value if item in values]
    kept = []
    for item in value:
        own = by_key.get(tuple((n, item.get(n)) for n in names))
        if own is not None:
            kept.append(project(item, own))
    return kept

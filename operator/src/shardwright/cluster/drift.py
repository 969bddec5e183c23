"""Whether a live child still says what we last applied. Pure.

Decides equality by a digest over exactly the fields that our field manager owns:
`metadata.managedFields` says which these are, so defaults that the server filled in, status, and what
others own never count. A hand edit takes a field out of our set or changes its value, and both change
the digest. Never looks at another manager's fields.

The form of `fieldsV1` is documented in Kubernetes' "Server-Side Apply" and in `FieldsV1` of the API
reference: `f:NAME` a field, `k:{...}` a list item by its keys, `v:VALUE` a set item, `.` the field
itself.
"""

from hashlib import blake2b
from typing import Any, Final

from msgspec import Raw

from shardwright.api.names import FIELD_MANAGER
from shardwright.cluster.json import JsonObject, canonical, loads

_ABSENT: Final = object()
_IDENTITY: Final = frozenset({"name", "namespace"})


def digest(value: object) -> bytes:
    """16 bytes that are equal for equal JSON values, whatever the order of their keys."""
    return blake2b(canonical(value), digest_size=16).digest()


def mark(metadata: JsonObject, manager: str = FIELD_MANAGER) -> bytes:
    """16 bytes that are equal while `manager` owns the same fields, as long as the server says so alike."""
    fields = _stated(metadata, manager)
    return blake2b(fields, digest_size=16).digest() if isinstance(fields, Raw) else digest(fields)


def owned_fields(live: JsonObject, manager: str = FIELD_MANAGER) -> JsonObject:
    """Find the fields that `manager` owns by apply, outside subresources; empty when it owns none."""
    fields = _stated(live["metadata"], manager)
    found: JsonObject = loads(fields) if isinstance(fields, Raw) else fields
    return found


def editors_of_pods(metadata: JsonObject) -> tuple[str, ...]:
    """Name the managers, other than ours, that say something in a Deployment's pod spec, sorted.

    Applying takes back what they changed, but not what they added. Annotations and labels of the template do
    not count: `kubectl rollout restart` writes one.
    """
    found = set()
    for entry in metadata.get("managedFields") or ():
        if entry.get("manager") == FIELD_MANAGER or entry.get("subresource"):
            continue
        fields = entry.get("fieldsV1") or {}
        if isinstance(fields, Raw):
            if b'"f:template"' not in bytes(fields):
                continue  # nearly always, and cheaper than to read it
            fields = loads(fields)
        if "f:spec" in ((fields.get("f:spec") or {}).get("f:template") or {}):
            found.add(str(entry.get("manager") or "someone"))
    return tuple(sorted(found))


def _stated(metadata: JsonObject, manager: str) -> Raw | JsonObject:
    for entry in metadata.get("managedFields") or ():
        if (
            entry.get("manager") == manager
            and entry.get("operation") == "Apply"
            and not entry.get("subresource")
        ):
            fields: Raw | JsonObject = entry.get("fieldsV1") or {}
            return fields
    return {}


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

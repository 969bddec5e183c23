"""From watches to the store: one small adapter for each sort of object. Decides nothing."""

from shardwright.cluster.json import JsonObject
from shardwright.cluster.kinds import Kind
from shardwright.cluster.store import Key, Store


class ServiceSink:
    """LLMServices."""

    def __init__(self, store: Store, namespace: str | None) -> None:
        self._store = store
        self._namespace = namespace

    def upsert(self, obj: JsonObject) -> None:
        """See Sink."""
        self._store.set_service(obj)

    def remove(self, key: Key, version: str) -> None:  # noqa: ARG002
        """See Sink."""
        self._store.remove_service(key)

    def keys(self) -> set[Key]:
        """See Sink."""
        return {(key[0], key[1]) for key in self._store.services if self._namespace in {None, key[0]}}


class ChildSink:
    """Children of one kind. List items carry no kind, so it is put back."""

    def __init__(self, store: Store, kind: Kind, namespace: str | None) -> None:
        self._store = store
        self._kind = kind
        self._namespace = namespace

    def upsert(self, obj: JsonObject) -> None:
        """See Sink."""
        obj["kind"] = self._kind.kind
        self._store.set_child(obj)

    def remove(self, key: Key, version: str) -> None:
        """See Sink."""
        self._store.remove_child(self._kind.kind, key, version)

    def keys(self) -> set[Key]:
        """See Sink."""
        return self._store.child_keys(self._kind.kind, self._namespace)


class PodSink:
    """Pods, ours and foreign."""

    def __init__(self, store: Store, namespace: str | None) -> None:
        self._store = store
        self._namespace = namespace

    def upsert(self, obj: JsonObject) -> None:
        """See Sink."""
        self._store.set_pod(obj)

    def remove(self, key: Key, version: str) -> None:  # noqa: ARG002
        """See Sink."""
        self._store.remove_pod(key)

    def keys(self) -> set[Key]:
        """See Sink."""
        return {key for key in self._store.pods if self._namespace in {None, key[0]}}


class AutoscalerSink:
    """HorizontalPodAutoscalers, whoever made them."""

    def __init__(self, store: Store, namespace: str | None) -> None:
        self._store = store
        self._namespace = namespace

    def upsert(self, obj: JsonObject) -> None:
        """See Sink."""
        self._store.set_autoscaler(obj)

    def remove(self, key: Key, version: str) -> None:  # noqa: ARG002
        """See Sink."""
        self._store.remove_autoscaler(key)

    def keys(self) -> set[Key]:
        """See Sink."""
        return {key for key in self._store.autoscalers if self._namespace in {None, key[0]}}

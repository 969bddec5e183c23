"""What is observed, as small facts, and who is told when it changes.

Decides which observed object is newer and which service a change concerns. Read-only for all but the
watches and the echo of our own writes. Never keeps a body and never does I/O.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from shardwright.api.llmservice import ServiceKey
from shardwright.cluster.facts import (
    AutoscalerFacts,
    ChildFacts,
    ChildKey,
    ServiceEntry,
    StatusFacts,
    autoscaler_facts,
    child_facts,
    fetch_trouble,
    pod_trouble,
    same_by_us,
)
from shardwright.cluster.json import JsonObject
from shardwright.diagnose.facts import PodTrouble
from shardwright.topology.facts import is_terminal, node_facts, pod_facts
from shardwright.topology.types import NodeFacts, PodFacts

_NO_CHILDREN: Final[Mapping[tuple[str, str], ChildFacts]] = MappingProxyType({})
_NO_PODS: Final[Mapping[str, PodFacts]] = MappingProxyType({})
_ENDED: Final = 4096
"""More children than go while an answer is on its way."""
Key = tuple[str, str]
Inner = TypeVar("Inner")
Value = TypeVar("Value")


class Listener(Protocol):
    """Is told what changed, after the store holds it."""

    def service_changed(
        self, key: ServiceKey, before: ServiceEntry | None, after: ServiceEntry | None
    ) -> None:
        """Take note that a service came, changed or went."""
        ...

    def node_changed(self, before: NodeFacts | None, after: NodeFacts | None) -> None:
        """Take note that a node came, changed or went."""
        ...

    def pod_changed(self, before: PodFacts | None, after: PodFacts | None) -> None:
        """Take note that a pod came, changed or went."""
        ...

    def child_changed(self, before: ChildFacts | None, after: ChildFacts | None) -> None:
        """Take note that a child came, changed or went, other than by our own write."""
        ...

    def autoscaler_changed(self, before: AutoscalerFacts | None, after: AutoscalerFacts | None) -> None:
        """Take note that an autoscaler came, changed or went."""
        ...


class Store:
    """All facts. `read_service` turns a raw LLMService, and what was known of it, into an entry."""

    def __init__(self, read_service: Callable[[JsonObject, ServiceEntry | None], ServiceEntry]) -> None:
        self._read_service = read_service
        self.services: dict[ServiceKey, ServiceEntry] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[Key, PodFacts] = {}
        self.troubles: dict[Key, PodTrouble] = {}
        """What is wrong with our own pods, of those with which something is."""
        self.fetch_pods: dict[Key, str] = {}
        """The newest pod of each of our Jobs, by namespace and Job."""
        self.children: dict[ChildKey, ChildFacts] = {}
        self.autoscalers: dict[Key, AutoscalerFacts] = {}
        self.listener: Listener | None = None
        self.nodes_watched = True
        """False: `nodes` are as somebody declared them, and nothing tells when one is lost."""
        self._children_of: defaultdict[ServiceKey, dict[tuple[str, str], ChildFacts]] = defaultdict(dict)
        self._pods_of: defaultdict[ServiceKey, dict[str, PodFacts]] = defaultdict(dict)
        self._routers_of: defaultdict[ServiceKey, dict[str, PodFacts]] = defaultdict(dict)
        self.marks: dict[str, dict[str, str]] = {}
        """Labels that nodes have for us only, by node: those that we may not write."""
        self._unmarked: dict[str, NodeFacts] = {}
        """Nodes with marks, as the API server has them."""
        self._node_versions: dict[str, str] = {}
        self._ended: dict[str, str] = {}
        """By uid: at which version children went lately, or were no longer selected."""

    def children_of(self, key: ServiceKey) -> Mapping[tuple[str, str], ChildFacts]:
        """Children labelled with a service, by (kind, name)."""
        return self._children_of.get(key, _NO_CHILDREN)

    def pods_of(self, key: ServiceKey) -> Mapping[str, PodFacts]:
        """Own pods of a service, by name."""
        return self._pods_of.get(key, _NO_PODS)

    def routers_of(self, key: ServiceKey) -> Mapping[str, PodFacts]:
        """Pods of a service's routers, by name."""
        return self._routers_of.get(key, _NO_PODS)

    def reachable(self, pod: PodFacts) -> bool:
        """Whether the node of a pod is there and ready. Its own status says so only a minute later."""
        if not self.nodes_watched:
            return True
        node = self.nodes.get(pod.node)
        return node is not None and node.ready

    def autoscalers_at(self, namespace: str, kind: str, names: set[str]) -> tuple[str, ...]:
        """Names of autoscalers aimed at one of `names`, sorted."""
        return tuple(
            sorted(
                a.name
                for a in self.autoscalers.values()
                if a.namespace == namespace and a.target_kind == kind and a.target_name in names
            )
        )

    # Services.

    def set_service(self, obj: JsonObject) -> None:
        """Take an LLMService, unless a newer version of it is known."""
        metadata = obj["metadata"]
        key = ServiceKey((metadata["namespace"], metadata["name"]))
        before = self.services.get(key)
        if (
            before is not None
            and before.uid == metadata["uid"]
            and not _newer(metadata["resourceVersion"], before.resource_version)
        ):
            return
        after = self._read_service(obj, before)
        self.services[key] = after
        if self.listener is not None:
            self.listener.service_changed(key, before, after)

    def hold_status(self, key: ServiceKey, metadata: JsonObject, status: StatusFacts) -> None:
        """Take a status as we have just written it, without telling the listener.

        When the answer shows that something else changed too, nothing is taken: the watch brings all of it.
        """
        before = self.services.get(key)
        if (
            before is not None
            and before.uid == metadata["uid"]
            and before.generation == metadata.get("generation", 1)
            and "deletionTimestamp" not in metadata
            and _newer(metadata["resourceVersion"], before.resource_version)
        ):
            version = metadata["resourceVersion"]
            self.services[key] = replace(before, resource_version=version, status=status)

    def remove_service(self, key: Key) -> None:
        """Forget an LLMService."""
        service = ServiceKey(key)
        before = self.services.pop(service, None)
        if before is not None and self.listener is not None:
            self.listener.service_changed(service, before, None)

    # Nodes and pods.

    def set_node(self, obj: JsonObject) -> None:
        """Take a node. Heartbeats change nothing that is kept, and are not told."""
        facts = node_facts(obj)
        self._node_versions[facts.name] = obj["metadata"]["resourceVersion"]
        self._keep_node(facts)

    def mark_node(self, name: str, labels: dict[str, str]) -> None:
        """Have a node carry labels that the API server does not know of; none: no more."""
        live = self._unmarked.get(name) or self.nodes.get(name)
        self.marks.pop(name, None)
        if labels:
            self.marks[name] = labels
        if live is not None:
            self._keep_node(live)

    def _keep_node(self, facts: NodeFacts) -> None:
        """Take a node as the API server has it."""
        self._unmarked.pop(facts.name, None)
        if marks := self.marks.get(facts.name):
            self._unmarked[facts.name] = facts
            facts = replace(facts, labels=facts.labels | marks)
        before = self.nodes.get(facts.name)
        if before == facts:
            return
        self.nodes[facts.name] = facts
        if self.listener is not None:
            self.listener.node_changed(before, facts)

    def remove_node(self, name: str) -> None:
        """Forget a node."""
        self._node_versions.pop(name, None)
        self._unmarked.pop(name, None)
        self.marks.pop(name, None)
        before = self.nodes.pop(name, None)
        if before is not None and self.listener is not None:
            self.listener.node_changed(before, None)

    def node_versions(self) -> dict[Key, str]:
        """ResourceVersion of each node, keyed as a watch does."""
        return {("", name): version for name, version in self._node_versions.items()}

    def set_pod(self, obj: JsonObject) -> None:
        """Take a pod; one that has ended is as good as gone."""
        if is_terminal(obj):
            self.remove_pod((obj["metadata"]["namespace"], obj["metadata"]["name"]))
            return
        facts = pod_facts(obj)
        key = (facts.namespace, facts.name)
        before = self.pods.get(key)
        told_trouble = False
        if facts.owner:
            told_trouble = self._take_trouble(key, pod_trouble(obj))
        elif facts.fetches:
            told_trouble = self._take_trouble(key, fetch_trouble(obj), words=True)
        if before == facts and not told_trouble:
            return
        self.pods[key] = facts
        if before is not None and before.owner and before.owner != facts.owner:
            _drop(self._pods_of, ServiceKey((before.namespace, before.owner)), before.name)
        if before is not None and before.router_of and before.router_of != facts.router_of:
            _drop(self._routers_of, ServiceKey((before.namespace, before.router_of)), before.name)
        if facts.owner:
            self._pods_of[ServiceKey((facts.namespace, facts.owner))][facts.name] = facts
        if facts.fetches:
            self._take_fetch_pod(facts)
        if facts.router_of:
            self._routers_of[ServiceKey((facts.namespace, facts.router_of))][facts.name] = facts
        if self.listener is not None:
            self.listener.pod_changed(before, facts)

    def _take_fetch_pod(self, facts: PodFacts) -> None:
        """Remember the pod of a Job; one that leaves, whose end may be told late, takes no other's place."""
        job = (facts.namespace, facts.fetches)
        known = self.pods.get((facts.namespace, self.fetch_pods.get(job, "")))
        if not facts.terminating or known is None or known.terminating:
            self.fetch_pods[job] = facts.name

    def _take_trouble(self, key: Key, trouble: PodTrouble | None, *, words: bool = False) -> bool:
        """Remember what is wrong with one of our pods; whether that is news, as other `words` are of some."""
        before = self.troubles.get(key)
        if trouble is None:
            self.troubles.pop(key, None)
        else:
            self.troubles[key] = trouble
        if words and (before and before.message) != (trouble and trouble.message):
            return True
        return (before and (before.reason, before.container)) != (
            trouble and (trouble.reason, trouble.container)
        )

    def remove_pod(self, key: Key) -> None:
        """Forget a pod."""
        self.troubles.pop(key, None)
        before = self.pods.pop(key, None)
        if before is None:
            return
        if before.owner:
            _drop(self._pods_of, ServiceKey((before.namespace, before.owner)), before.name)
        if before.fetches and self.fetch_pods.get((before.namespace, before.fetches)) == before.name:
            del self.fetch_pods[before.namespace, before.fetches]
        if before.router_of:
            _drop(self._routers_of, ServiceKey((before.namespace, before.router_of)), before.name)
        if self.listener is not None:
            self.listener.pod_changed(before, None)

    # Children.

    def set_child(self, obj: JsonObject) -> None:
        """Take a child, unless a newer version of it is known."""
        metadata = obj["metadata"]
        key = (obj["kind"], metadata["namespace"], metadata["name"])
        before = self.children.get(key)
        if (
            before is not None
            and before.uid == metadata["uid"]
            and not _newer(metadata["resourceVersion"], before.resource_version)
        ):
            return
        after = child_facts(obj, before)
        self._ended.pop(after.uid, None)
        self._keep_child(after)
        if self.listener is not None:
            self.listener.child_changed(before, after)

    def hold_child(self, after: ChildFacts) -> None:
        """Take a child as we have just written it, without telling the listener.

        The answer to a write may come after the watch has told what became of the child: then it is old, and
        says what we wrote at most. What only a status tells is in no answer, and stays.
        """
        ended = self._ended.get(after.uid)
        if ended is not None and not (ended and _newer(after.resource_version, ended)):
            return
        before = self.children.get(after.child_key)
        if before is not None and before.uid == after.uid:
            if _newer(before.resource_version, after.resource_version):
                same = same_by_us(before, after)
                after = before._replace(digest=after.digest if same else before.digest)
            else:
                after = after._replace(
                    deadline_exceeded=before.deadline_exceeded,
                    create_failure=before.create_failure,
                    ready=before.ready,
                    since=before.since or after.since,
                    ended=before.ended,
                )
        self._keep_child(after)

    def _keep_child(self, after: ChildFacts) -> None:
        before = self.children.get(after.child_key)
        self.children[after.child_key] = after
        if before is not None and before.service != after.service:
            _drop(self._children_of, before.key, (before.kind, before.name))
        self._children_of[after.key][after.kind, after.name] = after

    def remove_child(self, kind: str, key: Key, version: str = "") -> None:
        """Forget a child that is gone, or no longer selected, at this version."""
        before = self.children.pop((kind, *key), None)
        if before is None:
            return
        self._ended[before.uid] = version
        if len(self._ended) > _ENDED:
            del self._ended[next(iter(self._ended))]
        _drop(self._children_of, before.key, (before.kind, before.name))
        if self.listener is not None:
            self.listener.child_changed(before, None)

    def child_keys(self, kind: str, namespace: str | None) -> set[Key]:
        """All children of a kind, of one namespace or of all."""
        return {
            (child.namespace, child.name)
            for child in self.children.values()
            if child.kind == kind and namespace in {None, child.namespace}
        }

    # Autoscalers.

    def set_autoscaler(self, obj: JsonObject) -> None:
        """Take an autoscaler."""
        facts = autoscaler_facts(obj)
        before = self.autoscalers.get(facts[:2])
        self.autoscalers[facts[:2]] = facts
        if before != facts and self.listener is not None:
            self.listener.autoscaler_changed(before, facts)

    def remove_autoscaler(self, key: Key) -> None:
        """Forget an autoscaler."""
        before = self.autoscalers.pop(key, None)
        if before is not None and self.listener is not None:
            self.listener.autoscaler_changed(before, None)


def _drop(index: dict[ServiceKey, dict[Inner, Value]], key: ServiceKey, inner: Inner) -> None:
    held = index.get(key)
    if held is not None:
        held.pop(inner, None)
        if not held:
            del index[key]


def _newer(candidate: str, known: str) -> bool:
    """Whether a resourceVersion is newer. Versions of one object are comparable numbers (KEP-5504)."""
    return int(candidate) > int(known) if candidate.isdigit() and known.isdigit() else candidate != known

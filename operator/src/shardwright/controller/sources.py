"""Where facts come from: the first lists, the watches, the declared pool, what the cluster serves.

Decides which objects are looked at in which scope. Never decides anything about them.
"""

import asyncio
import logging
from functools import partial
from typing import Final

from shardwright.cluster import kinds
from shardwright.cluster.api import Api
from shardwright.cluster.declared import declared_node, flat
from shardwright.cluster.documents import parse_objects
from shardwright.cluster.errors import ClusterError, Forbidden
from shardwright.cluster.sinks import AutoscalerSink, ChildSink, PodSink, ServiceSink
from shardwright.cluster.store import Store
from shardwright.cluster.watch import Watch
from shardwright.controller.health import Canary
from shardwright.controller.options import Options
from shardwright.controller.parts import Parts, clock
from shardwright.render.request import Capabilities

_LOG = logging.getLogger(__name__)

DECLARED_POOL_S: Final = 60.0
GATHER_S: Final = 0.2
"""Events of pods and children that come so close together are read together: nothing waits for them."""
NODES_KEY: Final = "nodes.yaml"


async def find_resource(api: Api, scope: str | None) -> None:
    """Return when LLMServices can be listed. Raises Gone while their CRD is not installed."""
    async for _ in api.list_pages(kinds.LLM_SERVICE, scope, page=1):
        return


async def seed_nodes(parts: Parts) -> None:
    """List the nodes once."""
    async for items, _ in parts.api.list_pages(kinds.NODE):
        for item in items:
            parts.store.set_node(item)


async def declared_nodes(parts: Parts, where: tuple[str, str]) -> None:
    """Read the nodes that a ConfigMap declares, as `kubectl get nodes -o yaml` prints them."""
    config_map = await parts.api.get(kinds.CONFIG_MAP, *where)
    text = (config_map.get("data") or {}).get(NODES_KEY)
    if text is None:
        raise ValueError(f"ConfigMap {'/'.join(where)} has no key {NODES_KEY}")
    found = [raw for raw in flat(parse_objects(text)) if raw.get("kind", "Node") == "Node"]
    for node in found:
        declared_node(node)  # raises before anything is taken
    for node in found:
        node["metadata"].setdefault("resourceVersion", "0")
        parts.store.set_node(node)
    for name in set(parts.store.nodes) - {node["metadata"]["name"] for node in found}:
        parts.store.remove_node(name)


async def follow_pool(parts: Parts, where: tuple[str, str]) -> None:
    """Read the declared pool again, now and then."""
    while True:
        await asyncio.sleep(DECLARED_POOL_S)
        try:
            await declared_nodes(parts, where)
        except (ClusterError, ValueError) as error:
            _LOG.warning(
                "declared pool unreadable, keeping the last one config_map=%s error=%s",
                "/".join(where),
                error,
            )


async def capabilities(api: Api, options: Options) -> Capabilities:
    """Find out what the cluster serves and lets us use."""
    monitor = await _usable(api, kinds.POD_MONITOR, options)
    route = options.gateways and await _usable(api, kinds.HTTP_ROUTE, options)
    pool = options.gateways and await _usable(api, kinds.INFERENCE_POOL, options)
    return Capabilities(pod_monitor=monitor, http_route=route, inference_pool=pool, router=options.router)


async def _usable(api: Api, kind: kinds.Kind, options: Options) -> bool:
    if not await api.serves(kind):
        return False
    try:
        for scope in options.scopes:
            await api.versions(kind, scope)
    except Forbidden:
        _LOG.info("served but not permitted, so not used kind=%s", kind.kind)
        return False
    return True


def watches(parts: Parts, options: Options, served: Capabilities) -> list[Watch]:
    """Make all watches of our own."""
    api, store = parts.api, parts.store
    usable = (served.pod_monitor, served.http_route, served.inference_pool)
    optional = (kind for kind, there in zip(kinds.OPTIONAL_KINDS, usable, strict=True) if there)
    child_kinds = (*kinds.CHILD_KINDS, *optional)
    found = [
        Watch(
            api,
            kind,
            ChildSink(store, kind, scope),
            namespace=scope,
            labels=kinds.OURS,
            # Of a Deployment its progress is read besides, and of a record all: what runs is read from it. Of
            # the others, metadata tells who changed what.
            metadata_only=kind not in {kinds.DEPLOYMENT, kinds.REVISION},
            gather_s=GATHER_S,
            clock=clock,
        )
        for kind in child_kinds
        for scope in options.scopes
    ]
    found += [
        Watch(api, kinds.LLM_SERVICE, ServiceSink(store, scope), namespace=scope, clock=clock)
        for scope in options.scopes
    ]
    found += [
        Watch(
            api,
            kinds.POD,
            PodSink(store, scope),
            namespace=scope,
            fields=kinds.LIVE_PODS,
            gather_s=GATHER_S,
            clock=clock,
        )
        for scope in options.pod_scopes
    ]
    found += [
        Watch(api, kinds.AUTOSCALER, AutoscalerSink(store, scope), namespace=scope, clock=clock)
        for scope in options.scopes
    ]
    return found


def canaries(parts: Parts, options: Options) -> list[Canary]:
    """Watch over kopf's watch of nodes."""
    store = parts.store
    if options.pool_config_map is not None:
        return []
    remove = partial(_remove_node, store)
    return [Canary(parts.api, kinds.NODE, (None,), store.node_versions, remove, clock)]


def _remove_node(store: Store, key: tuple[str, str]) -> None:
    store.remove_node(key[1])

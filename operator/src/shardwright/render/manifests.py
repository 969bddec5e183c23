"""All objects of one revision of a service.

Decides which children there are and every field of them but the pod's. Values are canonical: what the API
server returns equals what is written, so that comparing the two is comparing digests.

Owner references are controller references without `blockOwnerDeletion`: deleting the LLMService in the
foreground need not wait for its children, and setting it would take `update` on llmservices/finalizers where
the admission plugin OwnerReferencesPermissionEnforcement is on.
"""

from typing import Final

from shardwright.api.llmservice import LLMService
from shardwright.api.names import (
    CLIENT_PORT,
    ENGINE_PORT,
    ENGINE_PORT_NAME,
    LABEL_REVISION,
    LABEL_ROLE,
    LABEL_SERVICE,
    LABEL_SERVING,
    engine_selector,
    engine_service_name,
    revision_labels,
    router_labels,
    router_selector,
    service_labels,
    workload_name,
)
from shardwright.render.children import engine_of, metadata
from shardwright.render.digest import template_digest
from shardwright.render.failed_start import annotation
from shardwright.render.fetch import ANNOTATION_FETCHED, fetch_data, fetch_job, fetches, is_offline
from shardwright.render.gateway import gateway_objects
from shardwright.render.request import JsonObject, RenderRequest
from shardwright.render.revision import read_revision, revision_data
from shardwright.render.router import router_objects
from shardwright.render.routing import wants_router
from shardwright.render.startup import startup_budget
from shardwright.render.storage import source_type
from shardwright.render.template import pod_template

SCRAPE_INTERVAL: Final = "15s"
"""Queue and latency signals are judged over windows of a minute and more: four samples each."""


def render(request: RenderRequest) -> tuple[JsonObject, ...]:
    """Return all children: those that belong to the service, then those of the revision.

    Raises ValueError when neither a plan nor a stored revision is given, RevisionError when the stored data
    cannot be read.
    """
    data = _data(request)
    return (*_shared(request), *_job(request, data), *_workload(request, data), *_routers(request, data))


def workload(request: RenderRequest) -> tuple[JsonObject, ...]:
    """Return the revision's own objects: ControllerRevision first, so that what runs is always on record."""
    return _workload(request, _data(request))


def _data(request: RenderRequest) -> JsonObject:
    return dict(request.stored) if request.stored is not None else _new_data(request)


def _workload(request: RenderRequest, data: JsonObject) -> tuple[JsonObject, ...]:
    return _controller_revision(request, data), _deployment(request, data)


def _job(request: RenderRequest, data: JsonObject) -> tuple[JsonObject, ...]:
    """Return the Job that fetches the weights, where it is to be made."""
    if request.fetch is None or not data.get("fetch"):
        return ()
    return (fetch_job(request.service, data, request.fetch),)


def _shared(request: RenderRequest) -> tuple[JsonObject, ...]:
    """Return what all revisions share: account, Services, disruption budget, pod monitor."""
    service = request.service
    routed = wants_router(service.spec) if request.routed is None else request.routed
    objects = [
        _service_account(service),
        _client_service(service, request.serves, routed=routed),
        _engine_service(service, request.serves),
        _budget(service),
    ]
    if request.capabilities.pod_monitor and _scraped_by_monitor(request):
        objects.append(_pod_monitor(service))
    selector = _serving(service.metadata.name, request.serves)[1]
    return (*objects, *gateway_objects(service, selector, request.capabilities))


def _routers(request: RenderRequest, data: JsonObject) -> tuple[JsonObject, ...]:
    """Return the routers, where there are to be any. Policy and key follow what these engines are told."""
    if not wants_router(request.service.spec):
        return ()
    engine = engine_of(data["template"]["spec"])
    return router_objects(request.service, request.capabilities.router, engine, int(data["startupSeconds"]))


def _new_data(request: RenderRequest) -> JsonObject:
    plan, service = request.plan, request.service
    if plan is None:
        raise ValueError("RenderRequest needs a plan, or the stored data of the revision")
    budget = startup_budget(plan, source_type(service.spec))
    fetched = fetches(service.spec, request.for_one_pod)
    template = pod_template(
        service,
        plan,
        revision_hash=request.revision_hash,
        preferred_nodes=request.preferred_nodes,
        pod_monitor=request.capabilities.pod_monitor,
        fetched=fetched and is_offline(service.spec),
    )
    return revision_data(
        plan,
        revision_hash=request.revision_hash,
        digest=request.template_digest or template_digest(service.spec),
        template=template,
        progress_deadline_s=budget.progress_deadline_s,
        startup_s=budget.engine_s,
        pod_monitor=request.capabilities.pod_monitor,
        fetch=fetch_data(service, plan) if fetched else None,
    )


def _scraped_by_monitor(request: RenderRequest) -> bool:
    return request.stored is None or read_revision(request.stored).pod_monitor


def _controller_revision(request: RenderRequest, data: JsonObject) -> JsonObject:
    service, revision = request.service, request.revision_hash
    name = workload_name(service.metadata.name, revision)
    head = metadata(service, name, revision_labels(service.metadata.name, revision))
    notes = annotation(request.failed) if request.failed is not None else {}
    notes |= {ANNOTATION_FETCHED: "true"} if request.fetched else {}
    if notes:
        head["annotations"] = notes
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": head,
        "revision": request.revision_number,
        "data": data,
    }


def _deployment(request: RenderRequest, data: JsonObject) -> JsonObject:
    service, revision = request.service, request.revision_hash
    name = service.metadata.name
    selector = {LABEL_SERVICE: name, LABEL_REVISION: revision, LABEL_ROLE: engine_selector(name)[LABEL_ROLE]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(service, workload_name(name, revision), revision_labels(name, revision)),
        "spec": {
            "replicas": request.replicas,
            "selector": {"matchLabels": selector},
            # A revision's template never changes: this only acts when a hand edit is put right; then no pod
            # may need a GPU that no other has given up.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "progressDeadlineSeconds": data["progressDeadlineSeconds"],
            # Revisions are ControllerRevisions; an old ReplicaSet has nothing to go back to.
            "revisionHistoryLimit": 0,
            "template": data["template"],
        },
    }


def _serving(name: str, serves: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels of a Service, and its selector.

    The serving label is how a pod leaves traffic before it is deleted. During a blue-green rollout the
    selector names one revision besides, and the label says which: nothing else does, and a restart reads it.
    """
    alone = {LABEL_REVISION: serves} if serves else {}
    return service_labels(name) | alone, engine_selector(name) | {LABEL_SERVING: "true"} | alone


def _client_service(service: LLMService, serves: str, *, routed: bool) -> JsonObject:
    """Return the endpoint. Its labels say whether it selects routers: a restart reads it there."""
    name = service.metadata.name
    labels, selector = _serving(name, serves)
    if routed:
        labels, selector = labels | router_labels(name), router_selector(name)
    port = {
        "name": ENGINE_PORT_NAME,
        "port": CLIENT_PORT,
        "targetPort": ENGINE_PORT_NAME,
        "protocol": "TCP",
        "appProtocol": "http",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(service, name, labels),
        "spec": {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [port],
        },
    }


def _engine_service(service: LLMService, serves: str) -> JsonObject:
    name = service.metadata.name
    labels, selector = _serving(name, serves)
    port = {
        "name": ENGINE_PORT_NAME,
        "port": ENGINE_PORT,
        "targetPort": ENGINE_PORT_NAME,
        "protocol": "TCP",
        "appProtocol": "http",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(service, engine_service_name(name), labels),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": selector,
            "ports": [port],
        },
    }


def _service_account(service: LLMService) -> JsonObject:
    name = service.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(service, engine_service_name(name), service_labels(name)),
        # The engine never talks to the API server.
        "automountServiceAccountToken": False,
    }


def _budget(service: LLMService) -> JsonObject:
    name = service.metadata.name
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(service, name, service_labels(name)),
        "spec": {
            # One at a time: an engine takes minutes to come back. Engines that are not ready may always be
            # evicted, or a crash loop would block a node's drain.
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": engine_selector(name)},
        },
    }


def _pod_monitor(service: LLMService) -> JsonObject:
    name = service.metadata.name
    endpoint = {"port": ENGINE_PORT_NAME, "path": "/metrics", "interval": SCRAPE_INTERVAL}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(service, name, service_labels(name)),
        "spec": {
            "selector": {"matchLabels": engine_selector(name)},
            "podTargetLabels": [LABEL_SERVICE, LABEL_REVISION, LABEL_ROLE],
            "podMetricsEndpoints": [endpoint],
        },
    }

"""All objects of one revision of a service.

Decides which children there are and every field of them but the pod's. Values are canonical: what the API
server returns equals what is written, so that comparing the two is comparing digests.

Owner references are controller references without `blockOwnerDeletion`: deleting the LLMService in the
foreground need not wait for its children, and setting it would take `update` on llmservices/finalizers where
the admission plugin OwnerReferencesPermissionEnforcement is on.
"""

from typing import Final

from shardwright.api.llmservice import API_VERSION, KIND, LLMService
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
    service_labels,
    workload_name,
)
from shardwright.render.digest import template_digest
from shardwright.render.failed_start import annotation
from shardwright.render.request import JsonObject, RenderRequest
from shardwright.render.revision import read_revision, revision_data
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
    return (*shared(request), *workload(request))


def shared(request: RenderRequest) -> tuple[JsonObject, ...]:
    """Return the objects that all revisions share: account, Services, disruption budget, pod monitor."""
    service = request.service
    objects = [
        _service_account(service),
        _client_service(service, request.serves),
        _engine_service(service, request.serves),
        _budget(service),
    ]
    if request.capabilities.pod_monitor and _scraped_by_monitor(request):
        objects.append(_pod_monitor(service))
    return tuple(objects)


def workload(request: RenderRequest) -> tuple[JsonObject, ...]:
    """Return the revision's own objects: ControllerRevision first, so that what runs is always on record."""
    data = dict(request.stored) if request.stored is not None else _new_data(request)
    return _controller_revision(request, data), _deployment(request, data)


def _new_data(request: RenderRequest) -> JsonObject:
    plan, service = request.plan, request.service
    if plan is None:
        raise ValueError("RenderRequest needs a plan, or the stored data of the revision")
    budget = startup_budget(plan, source_type(service.spec))
    template = pod_template(
        service,
        plan,
        revision_hash=request.revision_hash,
        preferred_nodes=request.preferred_nodes,
        pod_monitor=request.capabilities.pod_monitor,
    )
    return revision_data(
        plan,
        revision_hash=request.revision_hash,
        digest=request.template_digest or template_digest(service.spec),
        template=template,
        progress_deadline_s=budget.progress_deadline_s,
        startup_s=budget.engine_s,
        pod_monitor=request.capabilities.pod_monitor,
    )


def _scraped_by_monitor(request: RenderRequest) -> bool:
    return request.stored is None or read_revision(request.stored).pod_monitor


def _metadata(service: LLMService, name: str, labels: dict[str, str]) -> JsonObject:
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": service.metadata.name,
        "uid": service.metadata.uid,
        "controller": True,
    }
    return {
        "name": name,
        "namespace": service.metadata.namespace,
        "labels": labels,
        # Offline rendering knows no uid, and a reference without one is refused.
        **({"ownerReferences": [owner]} if service.metadata.uid else {}),
    }


def _controller_revision(request: RenderRequest, data: JsonObject) -> JsonObject:
    service, revision = request.service, request.revision_hash
    name = workload_name(service.metadata.name, revision)
    metadata = _metadata(service, name, revision_labels(service.metadata.name, revision))
    if request.failed is not None:
        metadata["annotations"] = annotation(request.failed)
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
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
        "metadata": _metadata(service, workload_name(name, revision), revision_labels(name, revision)),
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


def _client_service(service: LLMService, serves: str) -> JsonObject:
    name = service.metadata.name
    labels, selector = _serving(name, serves)
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
        "metadata": _metadata(service, name, labels),
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
        "metadata": _metadata(service, engine_service_name(name), labels),
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
        "metadata": _metadata(service, engine_service_name(name), service_labels(name)),
        # The engine never talks to the API server.
        "automountServiceAccountToken": False,
    }


def _budget(service: LLMService) -> JsonObject:
    name = service.metadata.name
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(service, name, service_labels(name)),
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
        "metadata": _metadata(service, name, service_labels(name)),
        "spec": {
            "selector": {"matchLabels": engine_selector(name)},
            "podTargetLabels": [LABEL_SERVICE, LABEL_REVISION, LABEL_ROLE],
            "podMetricsEndpoints": [endpoint],
        },
    }

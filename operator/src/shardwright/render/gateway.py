"""The way from an existing Gateway to a service: an HTTPRoute, and an InferencePool for an endpoint picker.

Decides every field of them, and which are asked for. Never makes a Gateway or a picker, and never says
whether the Gateway took the route: that stands in the route's own status.
"""

from typing import Final

from shardwright.api.llmservice import LLMService, LLMServiceSpec
from shardwright.api.names import CLIENT_PORT, ENGINE_PORT, gateway_path, service_labels
from shardwright.api.problems import Problem
from shardwright.api.reasons import Reason
from shardwright.api.serving import EndpointPicker, GatewayRef
from shardwright.render.children import metadata
from shardwright.render.request import Capabilities, JsonObject
from shardwright.render.routing import wants_gateway

ROUTE: Final = "HTTPRoute"
POOL: Final = "InferencePool"
PICKER_PORT: Final = 9002
"""Where the pickers of the inference extension and of llm-d listen."""


def gateway_kinds(spec: LLMServiceSpec) -> tuple[str, ...]:
    """Return the kinds that a spec asks for."""
    reference = _reference(spec)
    if reference is None:
        return ()
    return (ROUTE, POOL) if reference.endpoint_picker else (ROUTE,)


def _reference(spec: LLMServiceSpec) -> GatewayRef | None:
    return spec.routing.gateway_ref if spec.routing and wants_gateway(spec) else None


def lacking(spec: LLMServiceSpec, served: Capabilities) -> tuple[Problem, ...]:
    """Name the kinds that a spec asks for and that the cluster does not serve, or does not let us write."""
    there = {ROUTE: served.http_route, POOL: served.inference_pool}
    missing = [kind for kind in gateway_kinds(spec) if not there[kind]]
    if not missing:
        return ()
    message = (
        f"{' and '.join(missing)} cannot be written: install the CRDs, set rbac.gateways in the operator's "
        "chart (--gateways), and restart it; until then the endpoint is the Service alone"
    )
    field = "spec.routing.type"
    return (Problem(reason=Reason.GATEWAY_UNAVAILABLE, field=field, message=message, blocking=False),)


def gateway_objects(
    service: LLMService, selector: dict[str, str], served: Capabilities
) -> tuple[JsonObject, ...]:
    """Return what there is to be; nothing while a kind is missing. `selector`: of engines that serve."""
    reference = _reference(service.spec)
    if reference is None or lacking(service.spec, served):
        return ()
    picker = reference.endpoint_picker
    pool = (_pool(service, picker, selector),) if picker is not None else ()
    return (*pool, _route(service, reference))


def _route(service: LLMService, reference: GatewayRef) -> JsonObject:
    """Return the route: `/namespace/name/v1/...` at the Gateway is `/v1/...` at the engines.

    Several services share a listener, and clients tell them apart by the path before `/v1`; a match by model
    would need the body. A request may last as long as its stream, so the route sets no limit (0s).
    """
    name, namespace = service.metadata.name, service.metadata.namespace
    parent: JsonObject = {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "name": reference.name,
        "namespace": reference.namespace or namespace,
    }
    if reference.section_name:
        parent["sectionName"] = reference.section_name
    to_service = {"group": "", "kind": "Service", "name": name, "port": CLIENT_PORT, "weight": 1}
    to_pool = {"group": "inference.networking.k8s.io", "kind": POOL, "name": name, "weight": 1}
    rewrite = {
        "type": "URLRewrite",
        "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}},
    }
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": ROUTE,
        "metadata": metadata(service, name, service_labels(name)),
        "spec": {
            "parentRefs": [parent],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": gateway_path(namespace, name)}}],
                    "filters": [rewrite],
                    "backendRefs": [to_pool if reference.endpoint_picker else to_service],
                    "timeouts": {"request": "0s"},
                }
            ],
        },
    }


def _pool(service: LLMService, picker: EndpointPicker, selector: dict[str, str]) -> JsonObject:
    """Return the pool: the engines that serve, as the Services select them."""
    name = service.metadata.name
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": POOL,
        "metadata": metadata(service, name, service_labels(name)),
        "spec": {
            "selector": {"matchLabels": selector},
            "targetPorts": [{"number": ENGINE_PORT}],
            "endpointPickerRef": {
                "group": "",
                "kind": "Service",
                "name": picker.name,
                "port": {"number": picker.port or PICKER_PORT},
                # A picker that is away costs balance, not requests.
                "failureMode": "FailOpen",
            },
        },
    }

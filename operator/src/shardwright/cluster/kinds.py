"""The handful of kinds that the operator touches, and their paths.

Decides paths without discovery: discovery costs requests at every start, and its cache file breaks a
read-only root file system.
"""

from typing import NamedTuple

from shardwright.api.llmservice import API_VERSION, KIND, PLURAL
from shardwright.api.names import LABEL_MANAGED_BY, MANAGED_BY


class Kind(NamedTuple):
    """A kind with its place in the API."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def collection(self, namespace: str | None) -> str:
        """Path of all objects, of one namespace or of the cluster (None)."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        if namespace is None or not self.namespaced:
            return f"{root}/{self.plural}"
        return f"{root}/namespaces/{namespace}/{self.plural}"

    def path(self, namespace: str | None, name: str, subresource: str = "") -> str:
        """Path of one object or of a subresource of it."""
        path = f"{self.collection(namespace)}/{name}"
        return f"{path}/{subresource}" if subresource else path


LLM_SERVICE = Kind(API_VERSION, KIND, PLURAL)
NODE = Kind("v1", "Node", "nodes", namespaced=False)
POD = Kind("v1", "Pod", "pods")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
REVISION = Kind("apps/v1", "ControllerRevision", "controllerrevisions")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
POD_MONITOR = Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
HTTP_ROUTE = Kind("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes")
INFERENCE_POOL = Kind("inference.networking.k8s.io/v1", "InferencePool", "inferencepools")
AUTOSCALER = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
EVENT = Kind("events.k8s.io/v1", "Event", "events")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
PRIORITY_CLASS = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False)

CHILD_KINDS = (DEPLOYMENT, REVISION, SERVICE, SERVICE_ACCOUNT, DISRUPTION_BUDGET, ROLE_BINDING)
"""Kinds that every cluster serves and of which we make children."""
OPTIONAL_KINDS = (POD_MONITOR, HTTP_ROUTE, INFERENCE_POOL)
"""Kinds of which children are made where the cluster serves them."""

BY_KIND = {kind.kind: kind for kind in (*CHILD_KINDS, *OPTIONAL_KINDS)}

OURS = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
"""Label selector of our children."""
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of the pods that can hold resources."""


def kind_of(obj: dict[str, object]) -> Kind:
    """Look up the kind of a rendered child. Raises KeyError for a kind that the operator does not make."""
    kind = str(obj["kind"])
    return CONFIG_MAP if kind == CONFIG_MAP.kind else BY_KIND[kind]

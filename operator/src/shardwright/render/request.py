"""What rendering takes: one revision of one service, as values.

Decides which inputs a manifest may depend on. Never holds a cluster client: whether a CRD exists is given,
and what of it feeds a pod is frozen in the revision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shardwright.api.llmservice import LLMService
from shardwright.planner.types import Plan
from shardwright.render.failed_start import FailedStart

JsonObject = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON."""


ROUTER_IMAGE: Final = "localhost/vllm-router:0.1.17"
"""What `Containerfile.router` makes of the locked wheel. Upstream's own image starts another program (its
Rust command line), which does not know `kv_aware`."""
ENDPOINTS_IMAGE: Final = "localhost/shardwright:0.1.0"
"""The operator's own image, by the name that docs/install.md builds it under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterParts:
    """What a router is made of in this installation."""

    image: str = ROUTER_IMAGE
    endpoints_image: str = ENDPOINTS_IMAGE
    """Has the command `shardwright endpoints`."""
    role_kind: str = "ClusterRole"
    role_name: str = "shardwright-endpoints"
    """Role that lets a router read EndpointSlices; bound in the service's namespace alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlace:
    """Where a Job that fetches weights may run."""

    as_engines: bool = False
    """On the plan's nodes only: the claim is for one node, or is bound where it is first used."""
    node: str = ""
    """The node that has the claim mounted, when it is for one node."""
    arch: str = ""
    """The processor of the engines' nodes, which their image is for; empty: not known, or not one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the cluster can do, as discovered, and what this installation has to offer."""

    pod_monitor: bool = False
    """monitoring.coreos.com/v1 PodMonitor is served."""
    http_route: bool = True
    """gateway.networking.k8s.io/v1 HTTPRoute is."""
    inference_pool: bool = True
    """inference.networking.k8s.io/v1 InferencePool is."""
    router: RouterParts = field(default_factory=RouterParts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderRequest:
    """One revision of a service, with the replicas it should have.

    Give `plan` for a new revision, or `stored` (the `data` of its ControllerRevision) for one that exists:
    then the pod template, the progress deadline and the scrape method are taken from it verbatim, and `plan`
    is not read.
    """

    service: LLMService
    revision_hash: str
    replicas: int
    """Of this revision's Deployment, always stated."""
    plan: Plan | None = None
    stored: Mapping[str, Any] | None = None
    template_digest: str = ""
    """Of the service's spec, when the caller knows it (`render.digest`); else it is taken here."""
    revision_number: int = 1
    """ControllerRevision.revision: the stored one's own number, or the highest one so far plus one."""
    preferred_nodes: tuple[str, ...] = ()
    """Nodes where the first replicas have reserved places; frozen in the template of the revision."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    serves: str = ""
    """The revision that alone gets traffic; empty: every replica that answers does."""
    failed: FailedStart | None = None
    """That this revision did not start."""
    fetched: bool = False
    """The record says that its weights are in the cache claim."""
    fetch: FetchPlace | None = None
    """Where the Job that fetches them is to run, when it is to be made."""
    for_one_pod: frozenset[str] = frozenset()
    """Claims that one pod alone can mount."""
    routed: bool | None = None
    """The Service selects the routers; None: where the spec asks for them. Not before one answers, when the
    engines were served without."""

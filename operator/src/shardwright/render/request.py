"""What rendering takes: one revision of one service, as values.

Decides which inputs a manifest may depend on. Never holds a cluster client: whether a CRD exists is given,
and what of it feeds a pod is frozen in the revision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardwright.api.llmservice import LLMService
from shardwright.planner.types import Plan
from shardwright.render.failed_start import FailedStart

JsonObject = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the cluster can do, as discovered."""

    pod_monitor: bool = False
    """monitoring.coreos.com/v1 PodMonitor is served."""


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

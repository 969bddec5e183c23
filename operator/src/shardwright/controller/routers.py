"""Where a service stands on its way to routers, or back. No I/O.

Decides when the Service may select the routers, and when they may go. An endpoint that serves is never moved
to routers of which none is ready; one that is new begins with them. A spec that cannot be run changes neither
routers nor routes, as it changes no engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.names import LABEL_ROLE, ROLE_ROUTER, router_name
from shardwright.cluster.facts import ChildFacts, ServiceEntry
from shardwright.cluster.json import JsonObject
from shardwright.diagnose.facts import RouterFacts
from shardwright.render.gateway import POOL, ROUTE, gateway_kinds
from shardwright.render.router import REPLICAS
from shardwright.render.routing import wants_router


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """What is live of a service's routers and of its Service."""

    endpoint: bool = False
    """There is a Service of ours."""
    routed: bool = False
    """It selects the routers, as its label says."""
    deployment: ChildFacts | None = None
    parts: list[ChildFacts] = field(default_factory=list)
    """All that there is of the routers, the Service aside."""
    gateway: list[ChildFacts] = field(default_factory=list)
    """What leads there from a Gateway."""
    wanted: bool = False
    """There are to be routers."""
    frozen: bool = False
    """Nobody says what is to be but what there is: the spec cannot be run."""

    def may_route(self) -> bool:
        """Whether the Service is to select the routers now."""
        return self.wanted and (self.routed or not self.endpoint or self.ready > 0)

    def left_over(self, spec: LLMServiceSpec) -> list[ChildFacts]:
        """Return what may go: routers that nobody wants, once the Service selects them no more."""
        if self.frozen:
            return []
        asked = gateway_kinds(spec)
        routes = [child for child in self.gateway if child.kind not in asked]
        return routes if self.wanted or self.routed else routes + self.parts

    @property
    def left_alone(self) -> frozenset[str] | None:
        """Kinds of routers' objects that are not written; None: all are as the spec says."""
        return frozenset(part.kind for part in self.parts) if self.frozen else None

    def may_write(self, obj: JsonObject) -> bool:
        """Whether a child may be written now; what is missing of routers that stay always may."""
        kind, role, alone = obj["kind"], obj["metadata"]["labels"].get(LABEL_ROLE), self.left_alone
        if alone is None or kind == "Service":
            return True
        return kind not in {ROUTE, POOL} and (role != ROLE_ROUTER or (self.wanted and kind not in alone))

    @property
    def leaves(self) -> bool:
        """Whether the Service still selects routers that are to go."""
        return self.routed and not self.wanted

    @property
    def ready(self) -> int:
        """Routers that answer."""
        return self.deployment.ready if self.deployment is not None else 0

    def facts(self) -> RouterFacts | None:
        """Return what is told of them; None where none are wanted."""
        if not self.wanted:
            return None
        stuck = self.deployment is not None and self.deployment.deadline_exceeded
        failure = self.deployment.create_failure if self.deployment is not None else ""
        return RouterFacts(
            desired=REPLICAS, ready=self.ready, in_front=self.routed, stuck=stuck, create_failure=failure
        )


def seen_routing(
    children: Mapping[tuple[str, str], ChildFacts], entry: ServiceEntry, *, frozen: bool = False
) -> Routing:
    """Read it from the children of a service; `frozen`: its spec cannot be run."""
    name = entry.key.name
    endpoint = children.get(("Service", name))
    ours = endpoint is not None and endpoint.belongs_to(entry.uid)
    parts = [
        child
        for child in children.values()
        if child.role == ROLE_ROUTER
        and child.kind != "Service"
        and child.belongs_to(entry.uid)
        and not child.deleting
    ]
    deployment = next((c for c in parts if (c.kind, c.name) == ("Deployment", router_name(name))), None)
    routes = [
        child
        for child in children.values()
        if child.kind in {ROUTE, POOL} and child.belongs_to(entry.uid) and not child.deleting
    ]
    routed = ours and endpoint is not None and endpoint.role == ROLE_ROUTER
    stay = routed or deployment is not None
    return Routing(
        gateway=routes,
        endpoint=ours,
        routed=routed,
        deployment=deployment,
        parts=parts,
        wanted=stay if frozen else entry.service is not None and wants_router(entry.service.spec),
        frozen=frozen,
    )

"""Plans remembered by what they depend on.

Decides nothing: equal inputs give the plan made before. Holds a bounded number, oldest out first.
"""

from collections import OrderedDict

from shardwright.planner.choice import plan, spec_digest
from shardwright.planner.placement import nodes_of
from shardwright.planner.types import Decision, ModelChoice, Plan, PlanRequest
from shardwright.topology.types import Pool

MOST_PLANS = 2048

_Key = tuple[str, tuple[ModelChoice, ...], str, tuple[int, int, int]]


class PlanCache:
    """Decisions by (spec digest, checkpoints, pool fingerprint, engine version).

    The products of all requests must come from one table; a new table needs a new cache.
    """

    def __init__(self, most: int = MOST_PLANS) -> None:
        """Start empty, holding at most `most` decisions."""
        self._most = most
        self._plans: OrderedDict[_Key, Decision] = OrderedDict()
        self._nodes: dict[tuple[str, str], tuple[Pool, tuple[str, ...]]] = {}
        self.misses = 0

    def plan(self, request: PlanRequest) -> Decision:
        """Return the decision for a request, made now or before."""
        key = (spec_digest(request.spec), request.models, request.pool.fingerprint, request.engine.version)
        found = self._plans.get(key)
        if found is not None:
            self._plans.move_to_end(key)
            return found
        self.misses += 1
        decision = plan(request)
        self._plans[key] = decision
        if len(self._plans) > self._most:
            self._plans.popitem(last=False)
        return decision

    def nodes(self, decision: Plan, pool: Pool) -> tuple[str, ...]:
        """Return `placement.nodes_of`, the same tuple for the same plan and pool so that claims share it."""
        key = (decision.inputs_digest, pool.fingerprint)
        known = self._nodes.get(key)
        if known is not None and (known[0] is pool or known[0].nodes == pool.nodes):
            return known[1]
        names = nodes_of(decision, pool)
        if len(self._nodes) >= self._most:
            self._nodes.clear()
        self._nodes[key] = (pool, names)
        return names

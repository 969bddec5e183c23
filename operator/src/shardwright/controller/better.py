"""What would keep a TTFT target that no number of replicas keeps: the planner is asked for longer prompts.

Decides what is asked, and that it is asked once for each plan and length. Never applies the answer: lengths
are the user's to state.
"""

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import Final

from shardwright.api.defaults import Resolved, resolve
from shardwright.api.llmservice import LLMService, LLMServiceSpec, ServiceKey
from shardwright.api.scaling_reasons import InfeasibleTerm
from shardwright.api.workload import SloSpec, TokenDistribution, WorkloadSpec
from shardwright.autoscaler.fleet import prompt_edge
from shardwright.cluster.errors import ClusterError
from shardwright.cluster.facts import ServiceEntry
from shardwright.controller.planning import Planning, Proposal
from shardwright.controller.queue import WorkQueue
from shardwright.controller.references import References
from shardwright.controller.sizes import Memory
from shardwright.controller.tasks import end
from shardwright.planner.report import decimal
from shardwright.planner.types import Decision, NoPlan, Plan

_LOG = logging.getLogger(__name__)

LONGEST: Final = 800
"""Characters of an answer: it is part of a condition's message."""
_SLOWER: Final = "see status.calibration for how much slower the engines are"


@dataclass(slots=True)
class Better:
    """See the module."""

    planning: Planning
    references: References
    queue: WorkQueue[ServiceKey]
    _asking: dict[ServiceKey, asyncio.Task[None]] = field(default_factory=dict)

    def look(
        self, entry: ServiceEntry, service: LLMService, proposal: Proposal, memory: Memory, edge_tokens: float
    ) -> None:
        """Ask when a service is told to get prompts that are too long, and was not asked for as long ones.

        More prompts than may miss are longer than `edge_tokens`.
        """
        told, core = memory.told, proposal.core
        if told is None or core is None or InfeasibleTerm.PROMPT_TOO_LONG not in (told.infeasible or ()):
            memory.asked = None
            return
        tokens = longer_tokens(edge_tokens, core.limits.max_model_len)
        question = (entry.spec_digest, proposal.target, tokens)
        if memory.asked == question or entry.key in self._asking:
            return
        memory.asked = question
        task = asyncio.get_running_loop().create_task(self._ask(entry, service, core, memory, tokens))
        self._asking[entry.key] = task
        task.add_done_callback(lambda _: self._asking.pop(entry.key, None))

    async def close(self) -> None:
        """Ask no more."""
        await end(self._asking.values())

    async def _ask(
        self, entry: ServiceEntry, service: LLMService, core: Plan, memory: Memory, tokens: int
    ) -> None:
        resolved = entry.resolved or resolve(service.spec)
        asked = service.model_copy(update={"spec": with_longer_prompts(service.spec, resolved, tokens)})
        try:
            models = (await self.references.resolve(entry.key, asked.spec)).models
            # Another digest: this is not what the spec asks for.
            other = replace(entry, spec_digest=entry.spec_digest + f"/{tokens}".encode())
            decision, _, _ = self.planning.decide(other, asked, models)
        except ClusterError as error:
            _LOG.warning("no better plan asked for service=%s error=%s", entry.key, error)
            memory.asked = None
            return
        told = memory.told
        if told is not None and told.infeasible:
            memory.told = told.model_copy(update={"remedy": answer(core, resolved, decision, tokens)})
            self.queue.add(entry.key)


def longer_tokens(edge_tokens: float, longest_tokens: int) -> int:
    """Return the length to plan for: the next edge of vLLM's buckets, as far as a prompt may go."""
    return int(min(prompt_edge(edge_tokens + 1, longest_tokens), longest_tokens))


def with_longer_prompts(spec: LLMServiceSpec, resolved: Resolved, tokens: int) -> LLMServiceSpec:
    """Return a spec with another length, and the TTFT target stated, so that it binds."""
    workload, slo = spec.workload or WorkloadSpec(), spec.slo or SloSpec()
    lengths = TokenDistribution(p50=min(resolved.traffic.input_p50_tokens, tokens), p95=tokens)
    return spec.model_copy(
        update={
            "workload": workload.model_copy(update={"input_tokens": lengths}),
            "slo": slo.model_copy(update={"ttft": resolved.targets.ttft}),
        }
    )


def answer(core: Plan, resolved: Resolved, decision: Decision, tokens: int) -> str:
    """Say what the planner found, as one sentence without a full stop."""
    asked = f"workload.inputTokens.p95: {tokens}"
    if tokens <= resolved.traffic.input_p95_tokens:
        return f"The plan counts with prompts of {resolved.traffic.input_p95_tokens} tokens: {_SLOWER}"
    if isinstance(decision, NoPlan):
        return f"With {asked} nothing in the pool keeps the targets: {decision.message}"[:LONGEST]
    same = (decision.product.label, decision.parallelism, decision.limits.max_num_batched_tokens) == (
        core.product.label,
        core.parallelism,
        core.limits.max_num_batched_tokens,
    )
    if same:
        return f"With {asked} the plan is the same: {_SLOWER}"
    gpus = decision.gpus_per_replica * decision.replicas
    price = decision.product.price_per_gpu_hour
    cost = f", ${decimal(price * gpus)}/h" if price is not None else ""
    return f"With {asked} the plan would be {decision.summary} ({gpus} GPUs{cost}): write that to run it"

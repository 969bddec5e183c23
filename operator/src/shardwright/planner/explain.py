"""A decision as text, for the command line and for logs.

Decides how it reads: the questions in the order in which they were asked, then every candidate once with its
reason, then the memory bill. Never a word that is not in the decision itself.
"""

from collections.abc import Iterable, Sequence

from shardwright.api.reasons import CandidateReason
from shardwright.planner.report import band_text
from shardwright.planner.types import GIB, Candidate, Decision, NoPlan, Placement, Plan


def text(decision: Decision, placement: Placement | None = None) -> str:
    """Write a decision out, with where it has room now when that is known."""
    if isinstance(decision, NoPlan):
        lines = [f"No plan: {decision.reason.value}", f"  {decision.message}"]
        return "\n".join([*lines, *_table(decision.candidates), ""])
    lines = [*_choice(decision), *_questions(decision), *_notes(decision), *_bill(decision)]
    if placement is not None:
        lines += _placement(placement)
    return "\n".join([*lines, *_table(decision.candidates), ""])


def _choice(plan: Plan) -> list[str]:
    limits, gpus, pod = plan.limits, plan.gpus_per_replica, plan.pod_resources
    engine = (
        f"max-num-seqs {limits.max_num_seqs}, max-num-batched-tokens {limits.max_num_batched_tokens}, "
        f"gpu-memory-utilization {limits.gpu_memory_utilization_percent} %, "
        f"kv-cache-dtype {limits.kv_cache_dtype}"
    )
    cache = (
        f"{plan.estimate.promised_kv_tokens} tokens for certain; the work needs {plan.required_kv_tokens} "
        f"({plan.planned_concurrency} requests in flight in one engine)"
    )
    needs = (
        f"{pod.cpu_millis / 1000:g} CPUs, {pod.memory_bytes / GIB:.0f} GiB memory of which "
        f"{plan.shm_bytes / GIB:.0f} GiB /dev/shm, {pod.ephemeral_bytes / GIB:.0f} GiB disk"
    )
    return [
        f"Plan: {plan.summary}",
        f"  model        {plan.model.model_id}",
        f"  GPU          {plan.product.label}, {gpus} a replica, {gpus * plan.replicas} in all",
        f"  context      {limits.max_model_len} tokens",
        f"  engine       {engine}",
        f"  KV cache     {cache}",
        f"  pod          {needs}",
        *_speed(plan),
        f"  coverage     {plan.coverage}",
    ]


def _speed(plan: Plan) -> list[str]:
    """Write what is predicted at the planned load."""
    speed = plan.speed
    if speed is None:
        return ["  speed        not predicted"]
    price = plan.product.price_per_gpu_hour
    total = "" if price is None else f", {price * plan.gpus_per_replica * plan.replicas:.2f} an hour in all"
    rate = f"{speed.requests_per_minute:.0f}"
    first = f"TTFT P{speed.ttft_percentile} {speed.ttft_ms:.0f} ms"
    times = f"{first}, TPOT P{speed.tpot_percentile} {speed.tpot_ms:.1f} ms"
    return [
        f"  speed        {times} with {speed.running:.1f} requests running in a replica{total}",
        f"  load         a replica takes {rate} requests a minute; more is stopped by {speed.limit}",
        f"  error band   {band_text(speed)}",
    ]


def _questions(plan: Plan) -> list[str]:
    """Write the questions up to the one that was answered with yes."""
    ours = [
        c for c in plan.candidates if (c.product, c.model_id) == (plan.product.label, plan.model.model_id)
    ]
    single = next((c for c in ours if c.parallelism.gpus == 1), None)
    lines, split = ["", "Questions, in order:"], plan.parallelism
    if split.gpus == 1:
        return [*lines, f"  1. Does one GPU hold it? Yes: {plan.binding_constraint}."]
    one, question = (
        "  1. Does one GPU hold it?",
        "  2. Which is the smallest tensor parallelism in an NVLink island that does?",
    )
    if single is None:
        lines.append(f"{one} Not asked: spec.parallelism pins other degrees.")
    else:
        lines.append(f"{one} {_answer(single)}: {single.message}.")
    pinned = next((c.message for c in ours if c.message.startswith("parallelism.tensor is")), "")
    if split.pipeline == 1 and plan.within_island:
        if pinned:
            return [*lines, f"{question} Not asked: {pinned}, which holds it."]
        return [*lines, f"{question} {split}; for less, {plan.binding_constraint}."]
    if pinned or single is None:
        lines.append(f"{question} Not asked: {pinned or 'spec.parallelism pins pipeline stages'}.")
    else:
        lines.append(f"{question} None on this product.")
    if split.pipeline > 1:
        return [*lines, f"  3. Do pipeline stages over the islands of one node? Yes: {split}."]
    return [*lines, f"  3. Do ranks without NVLink, which the policy allows? Yes: {split}."]


_HOLDS = frozenset(
    {
        CandidateReason.TTFT_TOO_HIGH, CandidateReason.TPOT_TOO_HIGH, CandidateReason.PAUSE_TOO_LONG,
        CandidateReason.RATE_TOO_LOW, CandidateReason.COSTS_MORE, CandidateReason.SLOWER,
    }
)  # fmt: skip


def _answer(single: Candidate) -> str:
    """Say whether one GPU holds it, though it lost."""
    if single.reason is CandidateReason.NOT_PINNED:
        return "Not asked"
    return "Yes, but" if single.reason in _HOLDS else "No"


def _notes(plan: Plan) -> list[str]:
    return ["", "Notes:", *(f"  - {note}" for note in plan.notes)] if plan.notes else []


def _bill(plan: Plan) -> list[str]:
    width = max((len(line.item) for line in plan.estimate.bill), default=0)
    rows = [f"  {line.item:<{width}} {line.gib:8.2f}  {line.why}" for line in plan.estimate.bill]
    return ["", "Memory of the fullest GPU, GiB:", *rows]


def _placement(placement: Placement) -> list[str]:
    lines = ["", f"Room now: {placement.placed} of {placement.wanted} replicas"]
    counts: dict[str, int] = {}
    for slot in placement.slots:
        counts[slot.node] = counts.get(slot.node, 0) + 1
    lines += [f"  {node}: {count}" for node, count in sorted(counts.items())]
    if placement.stranded_gpus:
        lines.append(f"  {placement.stranded_gpus} free GPUs are too few on their nodes for one more replica")
    if placement.obstacle:
        lines.append(f"  {placement.obstacle}")
    if placement.holders:
        held = ", ".join(f"{who} ({gpus})" for who, gpus in placement.holders)
        lines.append(f"  GPUs are held by {held}")
    return lines


def _table(candidates: Sequence[Candidate]) -> list[str]:
    if not candidates:
        return []
    return ["", f"Candidates ({len(candidates)}):", *_rows(candidates)]


def _rows(candidates: Iterable[Candidate]) -> list[str]:
    return [f"  {c.arrangement}: {c.reason.value}: {c.message}" for c in candidates]

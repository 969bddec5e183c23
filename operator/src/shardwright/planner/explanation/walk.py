"""The decision in the order of its questions, each with its answer and the figures behind it.

Decides how the candidates' own reasons are put in order. Every answer is read off the plan and its
candidates; nothing is judged a second time.
"""

from collections.abc import Mapping, Sequence
from math import ceil, inf

from shardwright.api.defaults import Resolved
from shardwright.api.reasons import CandidateReason
from shardwright.planner.explanation import figures as rounded
from shardwright.planner.explanation.document import Load, Prediction, Step, Time
from shardwright.planner.question import count
from shardwright.planner.types import Candidate, NoPlan, Parallelism, Plan

Prices = Mapping[str, float | None]
"""Dollars an hour of one GPU, by product label."""
ONE = "Does one GPU hold it?"
ISLAND = "Which is the smallest tensor parallelism in an NVLink island that does?"
BEYOND = "Are pipeline stages needed, or ranks without NVLink?"
EXPERTS = "Are experts spread over the ranks?"
KEPT = "Are TTFT and TPOT kept at the planned load?"
REPLICAS = "How many replicas, and on which GPU?"
_TOLD = 3
"""Candidates that stand for a question nothing answered."""
_HOLDS = frozenset(
    {
        CandidateReason.TTFT_TOO_HIGH, CandidateReason.TPOT_TOO_HIGH, CandidateReason.PAUSE_TOO_LONG,
        CandidateReason.RATE_TOO_LOW, CandidateReason.COSTS_MORE, CandidateReason.SLOWER,
        CandidateReason.RANKED_LOWER, CandidateReason.LARGER_THAN_NEEDED, CandidateReason.UNVALIDATED,
        CandidateReason.OVER_BUDGET, CandidateReason.NODE_TOO_SMALL, CandidateReason.POOL_TOO_SMALL,
    }
)  # fmt: skip
"""Reasons of an arrangement that holds the work and lost all the same."""


def walk(
    plan: Plan, candidates: Sequence[Candidate], load: Load, predicted: Prediction | None, prices: Prices
) -> tuple[Step, ...]:
    """Return the questions of a plan. `candidates`: as far as they are known, the chosen one among them."""
    ours = [c for c in candidates if (c.product, c.model_id) == (plan.product.label, plan.model.model_id)]
    single = next((c for c in ours if c.parallelism.gpus == 1), None)
    pinned = next((c.message for c in ours if c.reason is CandidateReason.NOT_PINNED), "")
    return (
        _one(plan, single),
        _island(plan, single, pinned, ours),
        _beyond(plan),
        _experts(plan, ours),
        _kept(predicted),
        _replicas(plan, candidates, load, prices),
    )


def walk_refused(decision: NoPlan, resolved: Resolved) -> tuple[Step, ...]:
    """Return the questions when nothing serves the model: what stood in the way of each."""
    found = decision.candidates
    if not found:
        return ()
    split = [c for c in found if c.parallelism.gpus > 1]
    inside = [c for c in split if c.parallelism.pipeline == 1]
    stages = [c for c in split if c.parallelism.pipeline > 1]
    single = [c for c in found if c.parallelism.gpus == 1]
    return (
        _refused(ONE, single, "no product was tried with one GPU"),
        _refused(
            ISLAND, inside, f"interconnect.policy {resolved.interconnect_policy} or the nodes left none"
        ),
        _refused(BEYOND, stages, "no stages were tried"),
    )


def _refused(question: str, tried: Sequence[Candidate], otherwise: str) -> Step:
    if not tried:
        return Step(question=question, verdict="NotAsked", answer="Not asked", because=f"{otherwise}.")
    nearest = sorted(
        tried, key=lambda c: (c.overshoot or (1.0 if c.reason in _HOLDS else 9.0), c.gib_short, c.arrangement)
    )
    more = f"; and {len(tried) - _TOLD} more" if len(tried) > _TOLD else ""
    told = "; ".join(f"{c.arrangement}: {c.message}" for c in nearest[:_TOLD])
    return Step(question=question, verdict="No", answer="No", because=f"{told}{more}.")


def _one(plan: Plan, single: Candidate | None) -> Step:
    if plan.gpus_per_replica == 1:
        return Step(question=ONE, verdict="Yes", answer="Yes", because=_room(plan))
    if single is None:
        because = "spec.parallelism pins other degrees."
        return Step(question=ONE, verdict="NotAsked", answer="Not asked", because=because)
    because = f"{single.message}."
    if single.reason is CandidateReason.NOT_PINNED:
        return Step(question=ONE, verdict="NotAsked", answer="Not asked", because=because)
    if single.reason in _HOLDS:
        return Step(question=ONE, verdict="YesBut", answer="Yes, but", because=because)
    return Step(question=ONE, verdict="No", answer="No", because=because)


def _room(plan: Plan) -> str:
    """Say what the fullest GPU holds."""
    bill, limits = plan.estimate, plan.limits
    who = "it" if plan.gpus_per_replica == 1 else "each GPU"
    engine = "the engine" if plan.parallelism.data == 1 else "each rank with its own attention"
    return (
        f"{who} holds {bill.weights_gib_per_gpu:.1f} GiB of weights, and {engine} has a KV cache for "
        f"{bill.promised_kv_tokens} tokens for certain, where the work needs {plan.required_kv_tokens} "
        f"({count(plan.planned_concurrency, 'request')} in flight, context of {limits.max_model_len} tokens)."
    )


def _island(plan: Plan, single: Candidate | None, pinned: str, ours: Sequence[Candidate]) -> Step:
    split = plan.parallelism
    if split.gpus == 1:
        because = "one GPU holds it, and more traffic means more replicas."
        return Step(question=ISLAND, verdict="NotAsked", answer="Not asked", because=because)
    if pinned or single is None:
        because = f"{pinned or 'spec.parallelism pins pipeline stages'}; {_room(plan)}"
        return Step(question=ISLAND, verdict="NotAsked", answer="Not asked", because=because)
    if split.pipeline == 1 and plan.within_island:
        said = plan.binding_constraint == f"{single.parallelism}: {single.message}"
        because = _room(plan) + ("" if said else f" For less, {plan.binding_constraint}.")
        return Step(question=ISLAND, verdict="Yes", answer=str(split), because=because)
    tried = [c for c in ours if c.parallelism.pipeline == 1 and c.parallelism.tensor > 1][:_TOLD]
    told = "; ".join(f"{c.parallelism}: {c.message}" for c in tried)
    because = f"{told or f'no two {plan.product.short_name} are linked for certain'}."
    return Step(question=ISLAND, verdict="No", answer="None", because=because)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _beyond(plan: Plan) -> Step:
    split = plan.parallelism
    if split.pipeline > 1:
        because = f"{count(split.pipeline, 'stage')} over the islands of one node. {_sentence(_room(plan))}"
        return Step(question=BEYOND, verdict="Yes", answer=f"Yes, {split}", because=because)
    if not plan.within_island and split.ranks > 1:
        because = f"ranks without NVLink, which the policy allows. {_sentence(_room(plan))}"
        return Step(question=BEYOND, verdict="Yes", answer=f"Yes, {split}", because=because)
    because = "an earlier question is answered with yes."
    return Step(question=BEYOND, verdict="NotAsked", answer="Not asked", because=because)


def _experts(plan: Plan, ours: Sequence[Candidate]) -> Step:
    moe, split = plan.model.architecture.moe, plan.parallelism
    if moe is None:
        because = "the model is dense: it has no experts."
        return Step(question=EXPERTS, verdict="NotAsked", answer="Not asked", because=because)
    if split.expert:
        because = f"{moe.num_experts} experts over {count(split.gpus, 'GPU')}."
        return Step(question=EXPERTS, verdict="Yes", answer=f"Yes, {split}", because=because)
    other = Parallelism(tensor=split.tensor, pipeline=split.pipeline, data=split.data, expert=True)
    found = next((c for c in ours if c.parallelism == other), None)
    if found is None:
        because = (
            "one rank has nothing to spread experts over."
            if split.gpus == 1
            else "spec.parallelism, or an earlier question, leaves it out."
        )
        return Step(question=EXPERTS, verdict="NotAsked", answer="Not asked", because=because)
    return Step(question=EXPERTS, verdict="No", answer="No", because=f"{other}: {found.message}.")


def _kept(predicted: Prediction | None) -> Step:
    if predicted is None:
        because = "no latency is predicted for this model on this GPU."
        return Step(question=KEPT, verdict="NotAsked", answer="Not known", because=because)
    times = (predicted.ttft, predicted.tpot)
    missed = [t.name for t in times if not t.kept]
    because = f"{'; '.join(time_text(t) for t in times)}; the margin of {predicted.margin} is counted in."
    if not missed:
        return Step(question=KEPT, verdict="Yes", answer="Yes", because=because)
    return Step(question=KEPT, verdict="No", answer=f"Not {' and '.join(missed)}", because=because)


def time_text(time: Time) -> str:
    """Say a predicted time beside its target."""
    whose = "target" if time.stated else "the profile's target"
    value = "without end" if time.judged_ms is None else f"{time.judged_ms} ms"
    return f"{time.name} P{time.percentile} {value} ({whose} {time.target_ms} ms)"


def _replicas(plan: Plan, candidates: Sequence[Candidate], load: Load, prices: Prices) -> Step:
    gpus, cost = plan.gpus_per_replica * plan.replicas, rounded.price(plan)
    bill = count(gpus, "GPU") if cost is None else f"{count(gpus, 'GPU')}, {cost:.2f} USD an hour"
    parts = [_load_text(plan, load), bill]
    others = [
        c for c in candidates
        if c.replicas and (c.product, c.model_id) != (plan.product.label, plan.model.model_id)
    ]  # fmt: skip
    if others:
        best = min(others, key=lambda c: (_cost(c, prices), c.parallelism.gpus, c.arrangement))
        parts.append(f"of other GPUs and checkpoints {best.arrangement} came closest: {best.message}")
    return Step(question=REPLICAS, verdict="Yes", answer=plan.summary, because=f"{'; '.join(parts)}.")


def _cost(candidate: Candidate, prices: Prices) -> float:
    """Return what all replicas cost; without a price as much as can be."""
    each = prices.get(candidate.product)
    return inf if each is None else each * candidate.parallelism.gpus * candidate.replicas


def _load_text(plan: Plan, load: Load) -> str:
    if load.stated is None:
        return "no load is stated, so that as many run as scaling says"
    if load.most_per_replica is None:
        return f"{load.stated} {load.unit} are stated, and what one replica takes is not known"
    needed = ceil(load.stated / load.most_per_replica - 1e-9) if load.most_per_replica else 0
    text = f"{load.stated} {load.unit} over {count(plan.replicas, 'replica')}, of which one takes "
    more = f" ({needed} would do for the load alone)" if 0 < needed < plan.replicas else ""
    return f"{text}{load.most_per_replica}{more}"

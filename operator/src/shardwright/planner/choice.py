"""The decision: which arrangement serves this model in this pool, and what became of every other one.

Decides a Plan or a NoPlan from values alone. Never looks at what is free now (see `placement`): a plan must
not change because a neighbour's pod came or went.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256

from pydantic.main import IncEx

from shardwright.api.defaults import MIN_REPLICAS_SURVIVING_NODE_LOSS, resolve
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.catalog.types import BRIDGED
from shardwright.planner.advice import advice
from shardwright.planner.candidates import Survey, survey
from shardwright.planner.engine_args import uncovered
from shardwright.planner.legality import format_note, quantizes_at_load
from shardwright.planner.load import load_of
from shardwright.planner.mix import cheaper_mix
from shardwright.planner.offers import offers
from shardwright.planner.question import Fit, Question, count, eligible, next_smaller
from shardwright.planner.ranking import Cost, cost_of, winner_of
from shardwright.planner.refusal import bad_request, empty_pool, nothing_fits
from shardwright.planner.resources import shm_bytes
from shardwright.planner.types import Candidate, Decision, LoadKind, Plan, PlanRequest
from shardwright.planner.verdict import told

_DIGEST_FIELDS: Mapping[str, IncEx | bool] = {
    "model": {
        "id", "revision", "max_context_tokens", "variants", "quantization", "quantize_at_load",
        "allowed_kv_cache_dtypes", "cache", "config",
    },
    "workload": True, "slo": True, "availability": True, "scaling": True, "replicas": True,
    "parallelism": True, "pool": True,
    "engine": {
        "version", "image", "args", "gpu_memory_utilization_percent", "max_num_seqs",
        "max_num_batched_tokens",
    },
}  # fmt: skip


def spec_digest(spec: LLMServiceSpec) -> str:
    """Digest the fields of a spec that a decision can depend on."""
    source = spec.model.source.type if spec.model.source else ""
    text = spec.model_dump_json(include=_DIGEST_FIELDS, exclude_none=True)
    return sha256(f"{source}{text}".encode()).hexdigest()[:16]


def inputs_digest(request: PlanRequest) -> str:
    """Digest everything that the decision depends on: spec, models, engine, pool shapes and product facts."""
    labels = sorted({node.product for node in request.pool.nodes})
    parts = (
        spec_digest(request.spec),
        repr(request.models),
        repr(request.engine),
        request.pool.fingerprint,
        repr([request.products.get(label) for label in labels]),
        *(
            [repr(sorted(request.corrections.items(), key=lambda item: item[0]))]
            if request.corrections
            else []
        ),
    )
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


def plan(request: PlanRequest, *, exhaustive: bool = False) -> Decision:
    """Decide. Total: every request has a plan or a reason why there is none.

    The order of the questions is the design's: one GPU; the smallest tensor parallelism in an island;
    pipeline stages over the islands of a node; a group of nodes, which is named and refused until groups
    exist. Under a stated load or target price decides between those that keep it. `exhaustive` tries also
    what cannot win, for the test that it cannot.
    """
    question = Question(
        spec=request.spec,
        resolved=resolve(request.spec),
        engine=request.engine,
        added_flags=uncovered((request.spec.engine and request.spec.engine.args) or ()),
        exhaustive=exhaustive,
        corrections=request.corrections,
    )
    digest = inputs_digest(request)
    refused = bad_request(question, request.models, digest) or empty_pool(
        question, request.pool, request.products, digest
    )
    if refused is not None:
        return refused
    own_image = bool(request.spec.engine and request.spec.engine.image)
    offered = offers(request.pool, request.products, request.engine, own_image=own_image)
    surveys = [survey(question, model, offer) for model in request.models for offer in offered]
    fits = [fit for s in surveys for fit in s.fits]
    if not fits:
        candidates = [c for s in surveys for c in (*s.losers, *((s.group,) if s.group else ()))]
        return nothing_fits(question, surveys, candidates, digest)
    cost = cost_of(question)
    return _plan(question, winner_of(fits, cost), cost, surveys, digest)


def _candidates(winner: Fit, cost: Cost, surveys: Sequence[Survey]) -> tuple[Candidate, ...]:
    """All candidates, the chosen one first, then those of its product, then by product."""
    ours: list[Candidate] = []
    others: list[Candidate] = []
    for s in surveys:
        lines = list(s.losers) + ([s.group] if s.group else [])
        same = s.model is winner.model and s.offer is winner.offer
        if s.fits:
            lines = told(s.fits, winner if same else winner_of(s.fits, cost), winner, cost) + lines
        (ours if same else others).extend(lines)
    ours.sort(key=lambda c: (c.reason.value != "Chosen", c.parallelism.gpus))
    return (*ours, *others)


def _binding(winner: Fit, candidates: Sequence[Candidate]) -> str:
    """Say what decided: why the next smaller arrangement on the same GPU did not do."""
    if winner.gpus == 1:
        return f"one {winner.offer.product.short_name} holds the weights and the KV cache that the work needs"
    nearest = next_smaller(winner, candidates)
    if nearest is None:
        return f"parallelism is pinned to {winner.parallelism}"
    return f"{nearest.parallelism}: {nearest.message}"


def _clamped_from(question: Question, fit: Fit) -> int | None:
    """Return the length that was asked for, or that the model declares, when a shorter one is served."""
    asked = question.resolved.max_context_tokens
    wanted = fit.model.architecture.max_position_embeddings if asked is None else asked
    return wanted if fit.limits.max_model_len < wanted else None


def _context_note(question: Question, fit: Fit) -> str:
    wanted, served = _clamped_from(question, fit), fit.limits.max_model_len
    if wanted is None:
        return ""
    if question.resolved.max_context_tokens is not None:
        return f"model.maxContextTokens {wanted} does not fit in this pool; {served} is served"
    return (
        f"the model takes {wanted} tokens; {served} fit on the GPUs that the workload needs and are served: "
        "set model.maxContextTokens to ask for more GPUs"
    )


def _load_note(question: Question, fit: Fit) -> str:
    need, replicas = fit.demand, question.replicas
    holds = fit.concurrency * replicas
    if need.service_concurrency is None or holds >= need.service_concurrency:
        return ""
    who = "1 replica holds" if replicas == 1 else f"{replicas} replicas hold"
    return (
        f"{who} {holds} requests in flight, fewer than stated ({need.concurrency_source}): raise "
        "scaling.minReplicas"
    )


def _replicas(question: Question, fit: Fit) -> int:
    """Return the replicas to run: what spec.replicas says under External, else what the load takes."""
    scale = question.resolved.scale
    return scale.planned_replicas if scale.mode == "External" else fit.replicas


def _speed_notes(question: Question, fit: Fit) -> list[str]:
    """Say which targets of the profile are missed, what is not predicted, and where replicas are too few."""
    load, targets = load_of(question.resolved), question.resolved.targets
    if fit.speed is None:
        if not targets.stated and load.kind is LoadKind.NONE:
            return []
        return [f"latency is not predicted ({fit.speed_unknown}): whether slo and load are kept is not known"]
    notes = []
    if fit.speed.missed:
        notes.append(
            f"the {question.resolved.traffic.profile} profile's targets are not all kept at that load: "
            f"{'; '.join(fit.speed.missed)}; write slo to make a target binding"
        )
    if _replicas(question, fit) < fit.replicas and load.kind is not LoadKind.NONE:
        notes.append(
            f"the stated load takes {count(fit.replicas, 'replica')}, and spec.replicas is "
            f"{question.resolved.scale.planned_replicas}"
        )
    return notes


def _correction_note(question: Question, fit: Fit) -> str:
    """Say what was measured before and is counted with."""
    known = question.corrections.get((fit.model.model_id, fit.offer.product.label))
    if known is None:
        return ""
    memory = known.memory_ratio if known.memory_ratio > 1 else None
    ratios = (("TTFT", known.ttft), ("TPOT", known.tpot), ("memory beside the KV cache", memory))
    said = ", ".join(f"{name} x{ratio:.2f}" for name, ratio in ratios if ratio is not None)
    return f"counts with what was measured of this model on this GPU: {said}" if said else ""


def _survival_note(question: Question, fit: Fit) -> str:
    """Say when surviveNodeLoss cannot hold: it is a wish that too small a pool leaves open."""
    if not question.resolved.survive_node_loss:
        return ""
    if question.resolved.scale.planned_replicas < MIN_REPLICAS_SURVIVING_NODE_LOSS and not question.loaded:
        return "availability.surviveNodeLoss needs two replicas: raise the replica count"
    if fit.survives:
        return ""
    if len(eligible(fit)) > 1:
        return (
            "availability.surviveNodeLoss: within nodes, pool.maxGPUs and scaling.maxReplicas there is no "
            "room for what the loss of a node would take"
        )
    return (
        "availability.surviveNodeLoss: only one node takes such a replica, and its loss takes all: add a node"
    )


def _room_note(question: Question, fit: Fit) -> str:
    """Say when the pool's nodes do not hold what the load takes."""
    if not question.loaded or fit.room >= fit.replicas:
        return ""
    return (
        f"the load takes {count(fit.replicas, 'replica')}, and the pool's nodes hold {fit.room} if all are "
        "free: add nodes, or write less load"
    )


def _bridge_note(question: Question, fit: Fit) -> str:
    """Say when bridges that are said to be fitted are not counted on."""
    fitted = fit.offer.product.interconnect in BRIDGED
    if (
        question.resolved.bridges == "None"
        or not fitted
        or fit.gpus == 1
        or (fit.within_island and fit.step == 1)
    ):
        return ""
    return (
        "pool.interconnect.bridges Pairs counts on nodes of exactly two GPUs only: on larger ones the device "
        "plugin may hand out GPUs of two pairs"
    )


def _quantization_note(question: Question, fit: Fit) -> str:
    if not quantizes_at_load(question.spec, fit.model.architecture):
        return ""
    return (
        "model.quantizeAtLoad: planned with the 16-bit weights, the peak while loading; what quantising "
        "frees becomes KV cache that is not promised"
    )


def _notes(question: Question, fit: Fit) -> tuple[str, ...]:
    notes = (
        _context_note(question, fit),
        _bridge_note(question, fit),
        format_note(fit.model.architecture, fit.offer.product),
        _quantization_note(question, fit),
        _survival_note(question, fit),
        _room_note(question, fit),
        "" if fit.speed else _load_note(question, fit),
        *_speed_notes(question, fit),
        _correction_note(question, fit),
        *fit.estimate.notes,
    )
    return tuple(note for note in notes if note)


def _most_node_gpus(fit: Fit) -> int:
    """Return the largest node that keeps the island whole, when a larger one of this product would not."""
    if not fit.within_island or fit.parallelism.ranks == 1:
        return 0
    good = {n.name for n in eligible(fit)}
    others = [n for n in fit.offer.holding(fit.gpus) if n.name not in good]
    from_switch = fit.offer.product.interconnect.value in {"nvswitch", "rack_nvswitch", "xgmi_full_mesh"}
    if from_switch and not others:
        return 0
    return max(n.labelled_gpus for n in eligible(fit))


def _plan(question: Question, fit: Fit, cost: Cost, surveys: Sequence[Survey], digest: str) -> Plan:
    offer = fit.offer
    candidates = _candidates(fit, cost, surveys)
    fits = [other for s in surveys for other in s.fits]
    mix = cheaper_mix(question, fits, fit, cost)
    advised = advice(question, fit, cost, fits=fits, candidates=candidates, mix=mix)
    coverage = fit.estimate.coverage
    if fit.unvalidated and fit.unvalidated != coverage:
        coverage = f"Unvalidated ({fit.unvalidated}); memory: {coverage}"
    smallest_memory = min(n.gpu_memory_mib for n in (*offer.nodes, *offer.old_driver))
    return Plan(
        model=fit.model,
        product=offer.product,
        parallelism=fit.parallelism,
        limits=fit.limits,
        estimate=fit.estimate,
        replicas=_replicas(question, fit),
        pod_resources=fit.resources,
        shm_bytes=shm_bytes(fit.parallelism),
        gpu_resource=eligible(fit)[0].gpu_resource,
        within_island=fit.within_island,
        planned_concurrency=fit.concurrency,
        required_kv_tokens=fit.needed_tokens,
        context_clamped_from=_clamped_from(question, fit),
        binding_constraint=_binding(fit, candidates),
        coverage=coverage,
        candidates=candidates,
        inputs_digest=digest,
        min_gpu_memory_mib=fit.memory_mib if smallest_memory < fit.memory_mib else 0,
        nodes_gpus=fit.gpus,
        most_node_gpus=_most_node_gpus(fit),
        min_driver_major=offer.min_driver,
        notes=(*_notes(question, fit), *(each.message for each in advised)),
        cheaper_mix=mix,
        advice=advised,
        speed=fit.speed,
        spare_replicas=fit.spare,
        correction=question.corrections.get((fit.model.model_id, offer.product.label)),
    )

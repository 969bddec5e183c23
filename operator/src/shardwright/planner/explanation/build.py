"""The explanation of a decision, from the values that it was made of.

Decides what goes into the document and nothing of the plan. Prices, reasons, times and bills are the
decision's own; what a recorded plan does not hold is null, and said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardwright.api.defaults import Resolved, resolve
from shardwright.api.llmservice import LLMServiceSpec
from shardwright.api.reasons import CANDIDATE_SENTENCES
from shardwright.catalog.types import EngineClass, GPUProduct
from shardwright.planner.explanation import document as doc
from shardwright.planner.explanation import figures as rounded
from shardwright.planner.explanation.answer import answer, refusal
from shardwright.planner.explanation.cost import cost_curves
from shardwright.planner.explanation.curves import curves_of, replica_of, terms_of
from shardwright.planner.explanation.walk import Prices, walk, walk_refused
from shardwright.planner.load import TPOT, TTFT, load_of, stated_fields
from shardwright.planner.memory import KV_CACHE, VISIBLE
from shardwright.planner.performance.rate import DEFAULT_MARGIN
from shardwright.planner.types import (
    GIB,
    Candidate,
    Decision,
    LoadKind,
    MemoryEstimate,
    NoPlan,
    Placement,
    Plan,
    PlanRequest,
    Speed,
)

_SHOWN_GIB = 0.005
DECIDED = doc.Source(type="Decided", revision=None, not_recorded=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What an explanation is made of."""

    service: doc.Service
    spec: LLMServiceSpec
    decision: Decision
    candidates: tuple[Candidate, ...]
    """All that were considered, or as many as are on record."""
    engine: EngineClass
    products: Mapping[str, GPUProduct]
    """By label, with the prices that the decision counts with."""
    source: doc.Source = DECIDED
    placement: Placement | None = None
    notes: tuple[str, ...] = ()
    """Beside the plan's own."""
    measured: doc.Measured | None = None
    advice: tuple[doc.Advice, ...] = ()
    """As on record, where the plan does not hold it."""
    proposal: doc.Proposal | None = None
    unread: tuple[doc.Candidate, ...] = ()
    """Candidates on record of which only the sentence can be read."""

    @property
    def prices(self) -> Prices:
        """USD per GPU-hour, by label."""
        return {label: product.price_per_gpu_hour for label, product in self.products.items()}


def case_of(
    service: doc.Service, request: PlanRequest, decision: Decision, placement: Placement | None = None
) -> Case:
    """Return the case of a decision that was just made."""
    return Case(
        service=service,
        spec=request.spec,
        decision=decision,
        candidates=decision.candidates,
        engine=request.engine,
        products=request.products,
        placement=placement,
    )


def explain(case: Case) -> doc.Explanation:
    """Return the document without curves and without what other targets cost: what a plan alone says."""
    resolved, decision, prices = resolve(case.spec), case.decision, case.prices
    common = {
        "service": case.service,
        "source": case.source,
        "candidates": (*(_candidate(c, prices) for c in case.candidates), *case.unread),
        "reasons": _reasons(case.candidates),
        "prices": _prices(case),
        "room": None if case.placement is None else _room(case.placement),
        "inputs_digest": decision.inputs_digest,
        "measured": case.measured,
        "proposal": case.proposal,
        "curves": None,
        "cost": (),
    }
    if isinstance(decision, NoPlan):
        return doc.Explanation(
            planned=False, reason=decision.reason.value, message=decision.message, choice=None,
            answer=refusal(decision), load=_load(resolved, None), prediction=None, memory=None,
            questions=walk_refused(decision, resolved), notes=case.notes, **common,
        )  # fmt: skip
    choice, load = _choice(decision), _load(resolved, decision.speed)
    predicted = _prediction(case, resolved, decision)
    return doc.Explanation(
        planned=True, reason=None, message=None, choice=choice, load=load, prediction=predicted,
        answer=answer(
            choice, decision.parallelism, load, predicted, short=_too_few(decision, resolved)
        ),
        memory=_memory(decision),
        questions=walk(decision, case.candidates, load, predicted, prices),
        notes=(*decision.notes, *case.notes), advice=_advice(decision) or case.advice,
        cheaper_mix=_mix(decision), **common,
    )  # fmt: skip


def with_curves(found: doc.Explanation, case: Case) -> doc.Explanation:
    """Add the terms of the predicted times and their curves, as far as this version's model made them."""
    decision, resolved = case.decision, resolve(case.spec)
    if isinstance(decision, NoPlan) or decision.speed is None or found.prediction is None:
        return found
    asked = replica_of(decision, resolved, case.engine)
    if asked is None:
        return found
    at, ttft, tpot = terms_of(asked)
    was = found.prediction
    predicted = was.model_copy(
        update={
            "ttft": was.ttft.model_copy(update={"median_ms": rounded.term_ms(at.ttft_ms), "terms": ttft}),
            "tpot": was.tpot.model_copy(update={"median_ms": rounded.term_ms(at.tpot_ms), "terms": tpot}),
        }
    )
    curves = curves_of(asked, decision.speed, resolved)
    return found.model_copy(update={"prediction": predicted, "curves": curves})


def full_explanation(case: Case, request: PlanRequest) -> doc.Explanation:
    """Return the whole document of a decision that was just made of `request`."""
    found = with_curves(explain(case), case)
    return found.model_copy(update={"cost": cost_curves(request, case.decision)})


def _choice(plan: Plan) -> doc.Choice:
    limits, each, pod = plan.limits, plan.product.price_per_gpu_hour, plan.pod_resources
    return doc.Choice(
        summary=plan.summary,
        model=plan.model.model_id,
        gpu_product=plan.product.label,
        gpu=plan.product.short_name,
        parallelism=str(plan.parallelism),
        gpus_per_replica=plan.gpus_per_replica,
        replicas=plan.replicas,
        gpus=plan.gpus_per_replica * plan.replicas,
        price_per_gpu_hour=None if each is None else rounded.two(each),
        price_per_hour=rounded.price(plan),
        price_origin=plan.product.price_origin,
        price_source=plan.product.price_source,
        max_context_tokens=limits.max_model_len,
        context_clamped_from=plan.context_clamped_from,
        engine=doc.Engine(
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            gpu_memory_utilization_percent=limits.gpu_memory_utilization_percent,
            kv_cache_dtype=limits.kv_cache_dtype,
        ),
        pod=doc.Pod(
            cpu_millis=pod.cpu_millis,
            memory_gib=rounded.two(pod.memory_bytes / GIB),
            shm_gib=rounded.two(plan.shm_bytes / GIB),
            ephemeral_gib=rounded.two(pod.ephemeral_bytes / GIB),
        ),
        binding_constraint=plan.binding_constraint,
        coverage=plan.coverage,
    )


def _load(resolved: Resolved, speed: Speed | None) -> doc.Load:
    traffic, stated = resolved.traffic, load_of(resolved)
    rate = stated.kind is LoadKind.RATE
    most = None if speed is None or speed.kind is not stated.kind else speed.most
    return doc.Load(
        unit="requests a minute" if rate else "requests in flight",
        stated=None if stated.kind is LoadKind.NONE else rounded.load(stated.total),
        per_replica=None if speed is None else rounded.load(speed.load),
        most_per_replica=rounded.most(most) if most else None,
        most_requests_per_minute_per_replica=None
        if speed is None
        else rounded.most(speed.requests_per_minute),
        limit=None if speed is None else speed.limit,
        running_per_replica=None if speed is None else rounded.load(speed.running),
        input_p50_tokens=traffic.input_p50_tokens,
        input_p95_tokens=traffic.input_p95_tokens,
        output_p50_tokens=traffic.output_p50_tokens,
        output_p95_tokens=traffic.output_p95_tokens,
        shared_prefix_tokens=traffic.shared_prefix_tokens,
        profile=traffic.profile,
    )


def _too_few(plan: Plan, resolved: Resolved) -> bool:
    """Whether fewer replicas are planned than the stated load takes."""
    speed, stated = plan.speed, load_of(resolved)
    if speed is None or speed.load is None or stated.kind is not speed.kind:
        return False
    return plan.replicas * speed.load < stated.total * (1 - 1e-6)


def _prediction(case: Case, resolved: Resolved, plan: Plan) -> doc.Prediction | None:
    speed, wanted = plan.speed, resolved.targets
    if speed is None:
        return None
    stated = stated_fields(case.spec)
    return doc.Prediction(
        margin=DEFAULT_MARGIN,
        band=doc.Band(
            low=rounded.two(speed.band_low), high=rounded.two(speed.band_high), covered=speed.covered,
            phrase=speed.band, gaps=speed.gaps,
        ),
        ttft=_time(
            "TTFT", speed.ttft_ms, speed.ttft_percentile, wanted.ttft.milliseconds, stated=TTFT in stated
        ),
        tpot=_time(
            "TPOT", speed.tpot_ms, speed.tpot_percentile, wanted.tpot.milliseconds, stated=TPOT in stated
        ),
    )  # fmt: skip


def _time(name: str, judged_ms: float, percentile: int, target_ms: int, *, stated: bool) -> doc.Time:
    held = judged_ms * DEFAULT_MARGIN
    return doc.Time(
        name="TTFT" if name == "TTFT" else "TPOT", percentile=percentile, judged_ms=rounded.ms(judged_ms),
        with_margin_ms=rounded.ms(held), target_ms=target_ms, stated=stated,
        plan_below_ms=rounded.ms(target_ms / DEFAULT_MARGIN) or 0,
        kept=held <= target_ms * (1 + 1e-9), median_ms=None, terms=(),
    )  # fmt: skip


def _memory(plan: Plan) -> doc.Memory:
    estimate = plan.estimate
    return doc.Memory(
        visible_gib=rounded.two(estimate.visible_gib),
        bill=tuple(
            doc.BillLine(item=line.item, gib=rounded.two(line.gib), why=line.why) for line in estimate.bill
        ),
        shares=_shares(estimate),
        kv_tokens=estimate.kv_tokens,
        promised_kv_tokens=estimate.promised_kv_tokens,
        needed_kv_tokens=plan.required_kv_tokens,
        requests_in_flight=plan.planned_concurrency,
        coverage=estimate.coverage,
    )


def _shares(estimate: MemoryEstimate) -> tuple[doc.Share, ...]:
    """Return the bill as parts of the visible memory: the KV cache is what it leaves, less the margin."""
    found = []
    for line in estimate.bill:
        if line.item == VISIBLE:
            continue
        gib = line.gib - estimate.margin_gib if line.item == KV_CACHE else -line.gib
        if gib >= _SHOWN_GIB:
            found.append(doc.Share(item=line.item, gib=rounded.two(gib)))
    return tuple(found)


def _advice(plan: Plan) -> tuple[doc.Advice, ...]:
    return tuple(doc.Advice(reason=each.reason.value, message=each.message) for each in plan.advice)


def _mix(plan: Plan) -> doc.Mix | None:
    """Return the two products that would do for less, None when there are none."""
    if not plan.cheaper_mix:
        return None
    prices = [part.price_per_hour for part in plan.cheaper_mix]
    total = None if None in prices else sum(price or 0.0 for price in prices)
    parts = tuple(
        doc.MixShare(
            model=part.model_id,
            gpu_product=part.product,
            parallelism=str(part.parallelism),
            kv_cache_dtype=part.kv_cache_dtype,
            replicas=part.replicas,
            gpus=part.gpus,
            traffic_percent=part.traffic_percent,
            price_per_hour=None if part.price_per_hour is None else rounded.two(part.price_per_hour),
        )
        for part in plan.cheaper_mix
    )
    return doc.Mix(parts=parts, price_per_hour=None if total is None else rounded.two(total))


def _candidate(found: Candidate, prices: Prices) -> doc.Candidate:
    speed, gpus, each = found.speed, found.parallelism.gpus, prices.get(found.product)
    priced = each is not None and found.replicas > 0
    return doc.Candidate(
        arrangement=found.arrangement,
        model=found.model_id,
        gpu=found.product,
        parallelism=str(found.parallelism),
        gpus_per_replica=gpus,
        replicas=found.replicas or None,
        price_per_hour=rounded.two((each or 0.0) * gpus * found.replicas) if priced else None,
        ttft_ms=None if speed is None else rounded.ms(speed.ttft_ms),
        tpot_ms=None if speed is None else rounded.ms(speed.tpot_ms),
        kv_tokens=None if found.estimate is None else found.estimate.promised_kv_tokens,
        reason=found.reason.value,
        message=found.message,
    )


def _prices(case: Case) -> tuple[doc.ProductPrice, ...]:
    """Return what was counted with, the chosen product first."""
    labels = dict.fromkeys(c.product for c in case.candidates)
    known = [case.products[label] for label in labels if label in case.products]
    return tuple(
        doc.ProductPrice(
            gpu=product.short_name,
            gpu_product=product.label,
            price_per_gpu_hour=None
            if product.price_per_gpu_hour is None
            else rounded.two(product.price_per_gpu_hour),
            origin=product.price_origin,
            source=product.price_source,
        )
        for product in known
    )


def _reasons(candidates: Sequence[Candidate]) -> tuple[doc.Reason, ...]:
    found = dict.fromkeys(c.reason for c in candidates)
    return tuple(doc.Reason(name=r.value, sentence=CANDIDATE_SENTENCES[r]) for r in found)


def _room(placement: Placement) -> doc.Room:
    counts: dict[str, int] = {}
    for slot in placement.slots:
        counts[slot.node] = counts.get(slot.node, 0) + 1
    return doc.Room(
        wanted=placement.wanted,
        placed=placement.placed,
        nodes=tuple(doc.NodeCount(name=n, count=c) for n, c in sorted(counts.items())),
        stranded_gpus=placement.stranded_gpus,
        obstacle=placement.obstacle,
        holders=tuple(doc.NodeCount(name=who, count=gpus) for who, gpus in placement.holders),
    )

"""What somebody with practice would say of a plan, beside that it is the best there is.

Decides which advice a chosen arrangement gives reason to; each has a reason and a sentence with the plan's
own figures. Never changes the choice: what is tried here (one GPU under a pin, half of a node) is only told.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardwright.api.reasons import AdviceReason, CandidateReason
from shardwright.catalog.types import FORMATS_INT4
from shardwright.planner.legality import is_power_of_two
from shardwright.planner.load import load_of, stated_fields, taking
from shardwright.planner.mix import mix_note
from shardwright.planner.performance.rate import Limit
from shardwright.planner.question import Fit, Question, count, next_smaller
from shardwright.planner.ranking import Cost, winner_of
from shardwright.planner.trial import judge
from shardwright.planner.types import Advice, Candidate, LoadKind, MixPart, Parallelism, Speed

WHOLE_NODE_GPUS = 8
"""From this many GPUs on, a replica that fills its node is told as a large failure domain."""
VOICE = "Voice"
"""The profile of a chain of services that answer within one breath."""
_STOPS = {
    Limit.TTFT.value: "slo.ttft would be missed",
    Limit.TPOT.value: "slo.tpot would be missed",
    Limit.STEP.value: "slo.itl would be missed",
    Limit.SLOTS.value: "batch or KV cache is full",
}


def advice(
    question: Question,
    winner: Fit,
    cost: Cost,
    *,
    fits: Sequence[Fit],
    candidates: Sequence[Candidate],
    mix: Sequence[MixPart],
) -> tuple[Advice, ...]:
    """Return what there is to advise of the `winner` among `fits`, in the order of the enum."""
    found = {
        AdviceReason.LOAD_ASSUMED: load_assumed(question, winner.speed),
        AdviceReason.PINNED_ABOVE_ONE_GPU: _one_would_do(question, winner, cost),
        AdviceReason.KV_CACHE_DECIDES: _kv_decides(question, winner, candidates),
        AdviceReason.TENSOR_OVER_PCIE: _unlinked(winner, islands=False),
        AdviceReason.TENSOR_BEYOND_ISLAND: _unlinked(winner, islands=True),
        AdviceReason.STAGES_FOR_CAPACITY: _stages(winner),
        AdviceReason.KV_CACHE_REPLICATED: _replicated(winner),
        AdviceReason.FOUR_BIT_EXPERTS: _four_bit_experts(winner),
        AdviceReason.WHOLE_NODE_DOMAIN: _whole_node(question, winner, cost, fits),
        AdviceReason.LATENCY_NEEDS_OWN_GPUS: _own_gpus(question),
        AdviceReason.CHEAPER_MIX: mix_note(mix, winner, cost),
        AdviceReason.CHEAPER_OVER_PCIE: _over_pcie(question, winner, cost, fits),
        AdviceReason.REPLICAS_FOR_PROFILE: _for_profile(question, winner, cost),
    }
    return tuple(Advice(reason=reason, message=message) for reason, message in found.items() if message)


def load_assumed(question: Question, speed: Speed | None) -> str:
    """Say at which load stated targets were looked at, where none is stated; empty where one is."""
    stated = sorted(stated_fields(question.spec))
    if not stated or speed is None or speed.load is None or speed.in_flight_most is None:
        return ""
    if load_of(question.resolved).kind is not LoadKind.NONE:
        return ""
    assumed, most = round(speed.load), speed.in_flight_most
    hold = "hold" if len(stated) > 1 else "holds"
    verdict = hold if most >= assumed else f"{'do' if len(stated) > 1 else 'does'} not hold"
    return (
        f"no load is stated: {assumed} requests in flight in a replica are assumed, and "
        f"{' and '.join(stated)} {verdict} there; up to {most} in flight are kept, beyond which "
        f"{_STOPS.get(speed.in_flight_limit, speed.in_flight_limit)}. State workload.requestsPerMinute or "
        "workload.concurrency to have your load judged"
    )


def _one_would_do(question: Question, winner: Fit, cost: Cost) -> str:
    """Say of pinned degrees that one GPU keeps what is stated, for no more money."""
    pins = question.spec.parallelism
    if pins is None or winner.gpus == 1 or cost.fastest or question.resolved.expert == "Enabled":
        return ""
    single = judge(question, winner.model, winner.offer, Parallelism(), winner.limits.kv_cache_dtype)
    if not isinstance(single, Fit) or single.clamped or cost.of(single) > cost.of(winner):
        return ""
    if question.asked and winner.predicted and not single.predicted:
        return ""
    keeps = " and keeps what is stated" if question.asked else ""
    return (
        f"spec.parallelism pins {winner.parallelism}, and one {winner.offer.product.short_name} holds it as "
        f"well{keeps}: {cost.text(single)} instead of {cost.text(winner)}"
    )


def _kv_decides(question: Question, winner: Fit, candidates: Sequence[Candidate]) -> str:
    """Say that the next smaller arrangement holds the weights, and not the KV cache."""
    nearest = next_smaller(winner, candidates)
    if nearest is None or nearest.reason is not CandidateReason.KV_TOO_SMALL:
        return ""
    asked = question.resolved.max_context_tokens is not None
    change = "a shorter model.maxContextTokens" if asked else "shorter requests in spec.workload"
    narrow = "" if "FP8" in question.resolved.kv_cache_dtypes else ", or FP8 in model.allowedKVCacheDtypes,"
    return (
        f"the weights fit {count(nearest.parallelism.gpus, 'GPU')}, and only the KV cache takes "
        f"{winner.gpus}: {change}{narrow} may do with fewer"
    )


def _unlinked(winner: Fit, *, islands: bool) -> str:
    """Say that ranks talk over PCIe: without links at all, or beyond an island."""
    split, island = winner.parallelism, winner.offer.island_gpus
    if winner.within_island or split.ranks == 1 or islands != (island > 1):
        return ""
    what = f"the {split.ranks} ranks" if split.data > 1 else f"the {split.tensor} tensor ranks"
    if islands:
        return (
            f"{what} are more than the {island} GPUs that NVLink joins for certain and may talk over PCIe: "
            "expect slower tokens"
        )
    return f"{what} have no NVLink for certain and may talk over PCIe: expect slower tokens"


def _over_pcie(question: Question, winner: Fit, cost: Cost, fits: Sequence[Fit]) -> str:
    """Say what the policy costs that takes ranks over PCIe last, where price decides between all others."""
    if question.policy != "PreferNVLink" or not cost.asked or cost.fastest:
        return ""
    other = winner_of(fits, replace(cost, anywhere=True))
    if cost.of(other) >= cost.of(winner):
        return ""
    name = f"{other.name} on {other.offer.product.short_name}"
    return (
        f"pool.interconnect.policy Any would take {name}, whose {other.parallelism.ranks} ranks talk over "
        f"PCIe, and keep what is stated: {cost.text(other)} instead of {cost.text(winner)}"
    )


def _for_profile(question: Question, winner: Fit, cost: Cost) -> str:
    """Say how many replicas would keep what the profile wants and one of them alone keeps."""
    load, speed = load_of(question.resolved), winner.speed
    if speed is None or not speed.missed or speed.comfortable <= 0 or load.kind is LoadKind.NONE:
        return ""
    replicas = taking(load.total, speed.comfortable)
    if replicas <= winner.replicas:
        return ""
    more = cost.text(replace(winner, replicas=replicas))
    return (
        f"what a lone request keeps of the {question.resolved.traffic.profile} profile's targets would be "
        f"kept under the load for {more} instead of {cost.text(winner)}: no replica is added for targets "
        "that slo does not state"
    )


def _stages(winner: Fit) -> str:
    if winner.parallelism.pipeline == 1:
        return ""
    return (
        f"the {winner.parallelism.pipeline} pipeline stages are for memory: they make no single request "
        "faster, and no measured row covers them"
    )


def _replicated(winner: Fit) -> str:
    """Say how often an MLA model's KV cache is held inside one replica."""
    split = winner.parallelism
    if winner.model.architecture.mla is None or split.tensor == 1:
        return ""
    other = Parallelism(data=split.ranks, pipeline=split.pipeline, expert=True)
    instead = (
        f"; {other}, which no measured row covers, would hold other requests in each"
        if winner.model.architecture.moe is not None and is_power_of_two(split.ranks)
        else ""
    )
    return f"each of the {split.tensor} tensor ranks holds the whole KV cache: MLA's is not split{instead}"


def _four_bit_experts(winner: Fit) -> str:
    architecture = winner.model.architecture
    if architecture.moe is None or architecture.quantization.format not in FORMATS_INT4:
        return ""
    return (
        "the experts' int4 weights are widened before they are multiplied: they save memory and no time, and "
        "rows measured of such a model took longer than predicted; an FP8 checkpoint in model.variants is "
        "compared where it fits"
    )


def _whole_node(question: Question, winner: Fit, cost: Cost, fits: Sequence[Fit]) -> str:
    """Say when the failure domain of a replica is a whole large node, and whether half would do."""
    if winner.gpus < max(WHOLE_NODE_GPUS, winner.offer.node_gpus):
        return ""
    told = f"a replica takes all {winner.gpus} GPUs of a node: whatever fails there takes the whole replica"
    half = _half(question, winner, cost, fits)
    if half is None:
        return told
    return (
        f"{told}; {half.name} would do with {half.gpus} of them, {count(half.replicas, 'replica')} for "
        f"{cost.text(half)} instead of {cost.text(winner)}"
    )


def _half(question: Question, winner: Fit, cost: Cost, fits: Sequence[Fit]) -> Fit | None:
    """Return the cheapest arrangement of at most half the GPUs that holds and keeps the same."""
    pins, half = question.spec.parallelism, Parallelism(tensor=winner.gpus // 2)
    found = [f for f in fits if f.model is winner.model and f.offer is winner.offer]
    if pins is not None:
        tried = judge(question, winner.model, winner.offer, half, winner.limits.kv_cache_dtype)
        found += [tried] if isinstance(tried, Fit) else []
    alike = [
        f
        for f in found
        if f.gpus * 2 <= winner.gpus
        and (winner.clamped or not f.clamped)
        and (f.predicted or not winner.predicted)
        and (f.room >= f.replicas or not question.loaded)
        and f.within_island >= winner.within_island
    ]
    return min(alike, key=lambda f: (cost.judged(f), f.gpus, f.name), default=None)


def _own_gpus(question: Question) -> str:
    if question.resolved.traffic.profile != VOICE:
        return ""
    return (
        "speech recognition, language model and speech synthesis of a voice chain need GPUs of their own: on "
        "a shared one each waits for the others' steps, which no prediction here counts"
    )

"""Each candidate's reason, recomputed from its estimate's figures, the prices and the nodes.

The rules are in `oracles`. The planner is asked again only for whether an arrangement fits when it stands
alone.
"""

import re
from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from planner.oracles import (
    CAPABILITY,
    legal,
    linked_gpus,
    needed_tokens,
    overheads_gib,
    wanted_context,
)
from planner.plan_support import (
    A100_40,
    H100,
    H200,
    L4,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_32B,
    QWEN_MOE_FP8,
    T4,
    written,
)
from planner.ranking_oracle import Stated, standing, verdict, winner
from planner.worlds import (
    AWQ,
    DEEPSEEK,
    GEMMA_27B,
    GPT_OSS,
    MIXTRAL,
    ROOMY,
    ask,
    drawn,
    nodes_of,
    random_world,
)
from shardwright.planner.choice import plan
from shardwright.planner.types import GIB, Plan

MODELS = (
    LLAMA_8B, LLAMA_70B, LLAMA_70B_FP8, QWEN_32B, QWEN_MOE_FP8, MIXTRAL, DEEPSEEK, GPT_OSS, AWQ, GEMMA_27B, "Qwen/Qwen3-14B",
)  # fmt: skip
LOST = {"LargerThanNeeded", "CostsMore", "RankedLower", "Unvalidated", "PoolTooSmall", "PriceUnknown"}
"""It fits, and another was chosen."""


def fits_by_its_sentence(candidate):
    """Whether a candidate fits and was only ranked behind another."""
    reason, message = candidate.reason.value, candidate.message
    shorter = reason == "KVTooSmall" and message.startswith("it holds only")
    unlinked = reason == "BeyondIsland" and "would talk over PCIe" in message
    return reason in {"Chosen", *LOST} or shorter or unlinked


class Case:
    """A decision with what its reasons are held against."""

    def __init__(self, asked, shapes):
        self.asked, self.shapes = asked, shapes
        self.decision = plan(asked)
        self.architectures = {m.model_id: m.architecture for m in asked.models}
        self.chosen = next((c for c in self.decision.candidates if c.reason.value == "Chosen"), None)
        self.fitting = [c for c in self.decision.candidates if fits_by_its_sentence(c)]
        loaded = asked.spec.workload is not None and asked.spec.workload.concurrency is not None
        self.stated = Stated(asked=loaded)
        self.interconnect = asked.spec.pool.interconnect
        self.policy = (self.interconnect and self.interconnect.policy) or "PreferNVLink"
        self.bridges = (self.interconnect and self.interconnect.bridges) or "None"
        self.replicas = (asked.spec.scaling and asked.spec.scaling.min_replicas) or 1
        self.percent = asked.engine.default_gpu_memory_utilization_percent

    def of(self, label):
        """(GPUs, linked GPUs, host) of the nodes of a product whose driver runs the engine's image."""
        product = self.asked.products[label]
        return [
            (gpus - missing, linked_gpus(product, gpus, gpus - missing, self.bridges), host)
            for name, gpus, missing, host, driver in self.shapes
            if self.asked.products[name].label == label and gpus > missing and driver != "535"
        ]

    def hybrid(self, candidate):
        """Whether the tokens that its KV cache holds depend on the length that they are counted for."""
        return self.architectures[candidate.model_id].attention.value == "SlidingHybrid"

    def needs(self, candidate):
        return needed_tokens(self.asked, self.architectures[candidate.model_id], candidate.parallelism)

    def context(self, candidate):
        return wanted_context(self.asked, self.architectures[candidate.model_id])

    def holds(self, candidate):
        """Whether the KV cache of its estimate holds one longest request and the requests in flight."""
        bill = candidate.estimate
        enough = self.hybrid(candidate) or bill.promised_kv_tokens >= self.needs(candidate)
        return enough and bill.largest_model_len >= self.context(candidate)

    def alone(self, candidate):
        """The decision when this arrangement is the only one that is asked for."""
        split = candidate.parallelism
        pins = {"tensor": split.tensor, "pipeline": split.pipeline, "data": split.data}
        pins["expert"] = "Enabled" if split.expert else "Disabled"
        dtypes = ["FP8" if candidate.kv_cache_dtype == "fp8" else "Auto"]
        stated = self.asked.spec.model_dump(by_alias=True, exclude_none=True)
        spec = type(self.asked.spec).model_validate(
            {**stated, "parallelism": pins, "model": {**stated["model"], "allowedKVCacheDtypes": dtypes}}
        )
        nodes = tuple(n for n in self.asked.pool.nodes if n.product == candidate.product)
        models = tuple(m for m in self.asked.models if m.model_id == candidate.model_id)
        pool = replace(self.asked.pool, nodes=nodes, excluded=(), fingerprint="alone")
        return plan(replace(self.asked, spec=spec, models=models, pool=pool))

    def held(self, candidate):
        """Replicas that the nodes of its product have GPUs, CPUs, memory, disk and links for."""
        plan = self.alone(candidate)
        pod, ranks = plan.pod_resources, plan.parallelism.ranks if plan.within_island else 1
        return sum(
            min(
                gpus // pod.gpus,
                1000 * cpus // pod.cpu_millis,
                size * GIB // pod.memory_bytes,
                space * GIB // pod.ephemeral_bytes,
            )
            for gpus, links, (cpus, size, space) in self.of(candidate.product)
            if links >= ranks
        )


def bill_adds_up(case, bill):
    """What is left for the KV cache is the engine's share of the memory less the bill's lines."""
    budget = bill.visible_gib * case.percent / 100
    subtracted = bill.cuda_graph_gib if case.asked.engine.subtracts_cuda_graphs else 0.0
    left = budget - (overheads_gib(bill) - bill.cuda_graph_gib) - subtracted
    assert abs(left - bill.kv_cache_gib_per_gpu) < 1e-6
    return left


def weights_do_not_fit(case, candidate):
    assert bill_adds_up(case, candidate.estimate) <= 0
    assert candidate.estimate.promised_kv_tokens == 0
    assert candidate.gib_short > 0


def kv_too_small(case, candidate):
    bill = candidate.estimate
    assert bill_adds_up(case, bill) > 0  # the weights do fit
    if candidate.gib_short == 0 and "of context" in candidate.message:
        asked = case.asked.spec.model.max_context_tokens
        assert asked is not None
        assert bill.largest_model_len < asked
        if case.decision.context_clamped_from is not None:
            assert bill.largest_model_len // 256 < case.decision.estimate.largest_model_len // 256
        return
    if not case.hybrid(candidate):
        assert bill.promised_kv_tokens < case.needs(candidate)
        promised = (bill.kv_cache_gib_per_gpu - bill.margin_gib) * GIB
        missing = case.needs(candidate) * bill.kv_bytes_per_token_per_gpu - promised
        assert abs(candidate.gib_short - max(0.0, missing) / GIB) < 0.02
    assert not isinstance(case.alone(candidate), Plan) or case.asked.spec.model.max_context_tokens


def fits(case, candidate):
    """It holds the work within the budget, on some node in every dimension, and its degree is legal."""
    split = candidate.parallelism
    assert bill_adds_up(case, candidate.estimate) > 0
    clamped = case.decision.context_clamped_from is not None
    assert case.holds(candidate) or (clamped and case.asked.spec.model.max_context_tokens)
    assert split.gpus * case.replicas <= case.asked.spec.pool.max_gpus
    roomy = [linked for gpus, linked, _ in case.of(candidate.product) if gpus >= split.gpus]
    assert roomy
    assert case.policy != "RequireNVLink" or max(roomy) >= split.ranks
    again = case.alone(candidate)
    assert isinstance(again, Plan)
    assert again.parallelism == split


def beyond_island(case, candidate):
    roomy = [n for gpus, n, _ in case.of(candidate.product) if gpus >= candidate.parallelism.gpus]
    if case.policy == "RequireNVLink":
        assert candidate.parallelism.ranks > max(roomy)
    again = case.alone(candidate)
    assert not isinstance(again, Plan) or not again.within_island


def over_budget(case, candidate):
    total = candidate.parallelism.gpus * case.replicas
    assert total > case.asked.spec.pool.max_gpus
    assert candidate.gpus_short == total - case.asked.spec.pool.max_gpus
    assert bill_adds_up(case, candidate.estimate) > 0


def node_too_small(case, candidate):
    """GPUs of one node would do; a pod of two CPUs and one a GPU, and 4 GiB and more a GPU, would not."""
    gpus = candidate.parallelism.gpus
    roomy = [host for have, _, host in case.of(candidate.product) if have >= gpus]
    assert roomy
    weights = candidate.estimate.weights_gib_per_gpu
    shm = 1 if gpus == 1 else min(16, 2 * gpus)
    stated = case.architectures[candidate.model_id].checkpoint_bytes
    disk = 8 + (stated / GIB if stated else weights * gpus) * 1.05
    for cpus, memory, space in roomy:
        unlinked = case.policy != "Any"  # a larger node without links may be left out
        assert cpus < 2 + gpus or memory < 4 + 4 * gpus + shm or space < disk + 1 or unlinked


def needs_multi_node(case, candidate):
    assert candidate.parallelism.gpus > max(gpus for gpus, _, _ in case.of(candidate.product))


def beyond_node(case, candidate):
    nodes, split = case.of(candidate.product), candidate.parallelism
    assert split.gpus > max(gpus for gpus, _, _ in nodes) or not any(
        gpus >= split.gpus and linked >= split.tensor for gpus, linked, _ in nodes
    )


def number_format(case, candidate):
    have = case.asked.products[candidate.product].compute_capability
    assert have < CAPABILITY[case.architectures[candidate.model_id].quantization.format.value]


def not_pinned(case, candidate):
    pins = case.asked.spec.parallelism
    assert pins.tensor not in {None, candidate.parallelism.tensor} or pins.expert == "Enabled"


def illegal(case, candidate):
    split = candidate.parallelism
    assert not legal(case.architectures[candidate.model_id], split.tensor, split.expert, split.data)


def driver(case, candidate):
    assert not case.of(candidate.product)


CHECKS = {
    "Chosen": (fits,), "WeightsDoNotFit": (weights_do_not_fit,), "KVTooSmall": (kv_too_small,),
    "CostsMore": (fits,), "LargerThanNeeded": (fits,),
    "RankedLower": (fits,), "Unvalidated": (fits,), "BeyondIsland": (beyond_island,), "PoolTooSmall": (fits,),
    "PriceUnknown": (fits,),
    "BeyondNode": (beyond_node,), "NeedsMultiNode": (needs_multi_node,), "OverBudget": (over_budget,),
    "NodeTooSmall": (node_too_small,), "NumberFormatUnsupported": (number_format,), "NotPinned": (not_pinned,),
    "IllegalTensorParallelism": (illegal,), "DriverTooOld": (driver,), "ContextTooLong": (),
}  # fmt: skip
UNJUDGED = {
    "NotPinned",
    "NumberFormatUnsupported",
    "IllegalTensorParallelism",
    "DriverTooOld",
    "ContextTooLong",
}


def check(case):
    """Every candidate is named once, and its reason is true."""
    names = [c.arrangement for c in case.decision.candidates]
    assert len(names) == len(set(names))
    told = written(case.decision)
    for candidate in case.decision.candidates:
        reason, split = candidate.reason.value, candidate.parallelism
        assert told.count(f"  {candidate.arrangement}: {reason}: ") == 1
        if reason not in UNJUDGED:
            assert legal(case.architectures[candidate.model_id], split.tensor, split.expert, split.data)
        for rule in CHECKS[reason]:
            rule(case, candidate)
    assert (case.chosen is not None) == isinstance(case.decision, Plan)
    if case.chosen is not None:
        ranked(case)
    return Counter(c.reason.value for c in case.decision.candidates)


def ranked(case):
    """The winner wins by the stated order, and each other is told the first rule that puts its rival before it."""
    found = {
        c.arrangement: standing(case.alone(c), case.held(c), case.policy, case.stated, case.asked.spec)
        for c in case.fitting
    }
    best = winner(list(found.values()), case.stated)
    assert found[case.chosen.arrangement] is best
    for candidate in case.fitting:
        ours = found[candidate.arrangement]
        assert (candidate.replicas, candidate.estimate) == (ours.plan.replicas, ours.plan.estimate)
        if ours is best:
            continue
        own = (
            best
            if best.same == ours.same
            else winner([f for f in found.values() if f.same == ours.same], case.stated)
        )
        against_best = ours is own or ours.share < best.share
        reason, words = verdict(ours, best if against_best else own, case.stated)
        wanted = re.escape(words).replace(re.escape("(|)"), r"\(.+\)")
        assert candidate.reason.value == reason, (candidate.message, words)
        assert re.fullmatch(wanted, candidate.message), (candidate.message, words)


def random_asking(rng):
    """A world, with a number of requests in flight in half of them, and with a GPU too old for most models in some."""
    world = random_world(rng)
    if rng.random() < 0.5:
        world = world.stating(workload={"concurrency": rng.choice([1, 8, 64, 300])})
    return world.with_nodes([(T4, 4, 0, ROOMY, "580")]) if rng.random() < 0.1 else world


@settings(
    max_examples=250,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(world=drawn(random_asking))
def test_each_reason_is_true_when_it_is_recomputed(mix, world):
    case = Case(world.asked(), world.shapes)
    check(case)
    mix.judges(case.decision) if isinstance(case.decision, Plan) else mix.idles()


def test_the_reasons_that_matter_are_met():
    """The property above means nothing for a reason that it never meets: here each of them is, for certain."""
    met = Counter()
    for model in MODELS:
        for wanted in (
            [(H100, 8), (H200, 8)],
            [(L4, 8), (L40S, 4), (A100_40, 8)],
            [(H100, 4), (A100_40, 4), (T4, 4)],
        ):
            for gpus, context in ((8, None), (8, 32768), (2, 4096)):
                shapes = [(label, count, 0, ROOMY, "580") for label, count in wanted]
                spec = {"model": {"maxContextTokens": context} if context else {}, "pool": {"maxGPUs": gpus}}
                met += check(Case(ask(model, nodes_of(shapes), spec), shapes))
    wanted = {
        "WeightsDoNotFit",
        "KVTooSmall",
        "CostsMore",
        "LargerThanNeeded",
        "RankedLower",
        "Unvalidated",
        "OverBudget",
    }
    assert wanted <= set(met), met
    assert (
        min(met[reason] for reason in ("WeightsDoNotFit", "KVTooSmall", "CostsMore", "RankedLower")) >= 5
    ), met


def test_a_node_too_small_in_any_dimension_takes_no_plan():
    for host in ((6, 1024, 4096), (128, 20, 4096), (128, 1024, 60)):
        shapes = [(H100, 8, 0, host, "580")]
        spec = {"pool": {"maxGPUs": 8}, "parallelism": {"tensor": 8}}
        case = Case(ask(LLAMA_70B_FP8, nodes_of(shapes), spec), shapes)
        assert check(case)["NodeTooSmall"] >= 1, host
        assert case.chosen is None

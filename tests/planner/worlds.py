"""Models, pools and specs at random, such that one GPU, ranks, stages, experts and refusals are all drawn.

A model drawn at random on GPUs drawn at random runs on one of them or on none: a world is of a kind first, and its
loads and targets lie about what the fastest arrangement of it can do.
"""

from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st

from planner.plan_support import (
    A100_40,
    A100_80,
    A6000,
    B200,
    H100,
    H200,
    L4,
    L40S,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN_32B,
    QWEN_MOE_FP8,
    products,
    request,
)
from shardwright.api.pool import PoolSpec
from shardwright.planner.choice import plan
from shardwright.planner.question import UNVALIDATED_GAIN
from shardwright.planner.types import Plan
from shardwright.topology.facts import node_facts
from shardwright.topology.pool import build_pool
from topology.cluster_objects import node

MIXTRAL, DEEPSEEK = "mistralai/Mixtral-8x7B-Instruct-v0.1", "deepseek-ai/DeepSeek-V3"
FP8_405B, GEMMA_27B = "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8", "google/gemma-3-27b-it"
GPT_OSS, GPT_OSS_LARGE, AWQ = "openai/gpt-oss-20b", "openai/gpt-oss-120b", "Qwen/Qwen3-8B-AWQ"
SMALL_MOE = "Qwen/Qwen1.5-MoE-A2.7B"
EXPERTS = {MIXTRAL, DEEPSEEK, GPT_OSS, GPT_OSS_LARGE, SMALL_MOE, QWEN_MOE_FP8}
VARIANTS = (LLAMA_70B_FP8, QWEN_32B, MIXTRAL)
LINKED, UNLINKED = (H100, H200, A100_40, A100_80), (L40S, A6000, L4)
CARDS = (*LINKED, *UNLINKED)


@dataclass(frozen=True)
class Kind:
    """Models, and nodes on which most of them take what the name says."""

    models: tuple
    cards: tuple
    sizes: tuple
    pins: tuple = ({},)


KINDS = {
    "one GPU": Kind((LLAMA_8B, AWQ, GPT_OSS, GEMMA_27B, SMALL_MOE), CARDS, (1, 2, 4, 8)),
    "ranks": Kind((LLAMA_70B, LLAMA_70B, LLAMA_70B_FP8, QWEN_32B, GEMMA_27B, MIXTRAL), LINKED, (4, 8)),
    "stages": Kind((LLAMA_70B, LLAMA_70B_FP8, QWEN_32B), (L40S, A6000), (4, 8)),
    "pairs": Kind((QWEN_32B, SMALL_MOE, GEMMA_27B, SMALL_MOE), (A6000,), (2,), ({}, {"data": 2}, {"data": 2})),
    "a whole node": Kind((DEEPSEEK, FP8_405B, LLAMA_70B), (H200, H200, B200), (8,), ({}, {}, {}, {"data": 8})),
    "experts": Kind(
        (QWEN_MOE_FP8, MIXTRAL, GPT_OSS_LARGE, SMALL_MOE), (*LINKED, A6000), (4, 8, 2),
        ({"expert": "Enabled"}, {"expert": "Enabled"}, {"tensor": 4}),
    ),
    "own attention": Kind(
        (QWEN_MOE_FP8, SMALL_MOE, MIXTRAL, SMALL_MOE), (H200, A100_80, L40S, A6000), (8, 4, 4, 2),
        ({"data": 2}, {"data": 4}, {"data": 2, "expert": "Disabled"}),
    ),
    "anything": Kind((LLAMA_8B, LLAMA_70B_FP8, QWEN_MOE_FP8, GPT_OSS_LARGE, AWQ), CARDS, (1, 2, 4, 8)),
}  # fmt: skip
CROWDS = (
    (DEEPSEEK, (H200,)), (MIXTRAL, (L40S, A100_40, A6000)), (SMALL_MOE, (A6000, L40S)), (LLAMA_70B, (A6000, L40S)),
    (DEEPSEEK, (H200, B200)), (QWEN_32B, (L40S, A6000)),
)  # fmt: skip
"""Models and GPUs on which more than tensor parallelism competes."""
RANKS_OR_STAGES = ((QWEN_32B, (A6000, L40S)), (LLAMA_70B, (L40S, A6000)))
"""Where ranks over PCIe hold the work, and stages beat them by a little or not quite."""
ROOMY = (128, 1024, 4096)
HOSTS = (
    ROOMY,
    ROOMY,
    ROOMY,
    ROOMY,
    ROOMY,
    ROOMY,
    (64, 256, 600),
    (6, 512, 4096),
    (64, 20, 2000),
    (64, 256, 60),
)
"""CPUs, GiB of memory, GiB of disk: some are too small for the pods that their GPUs would hold."""
DRIVERS = ("580", "580", "580", "580", "580", "580", "580", "580", "535", None)
BUDGETS = (16, 8, 32, 16, 32, 24, 16, 8, 4, 16, 2)
POLICIES = ("PreferNVLink", "PreferNVLink", "RequireNVLink", "Any")
LOADS = (0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.2)
TARGETS = (1.0, 1.1, 1.3, 1.6, 2.0, 3.0, 4.0, 8.0)


@dataclass(frozen=True)
class World:
    """A model, nodes of (label, GPUs, of them missing, host, driver), and a spec."""

    kind: str
    model: str
    shapes: tuple
    spec: dict

    def with_nodes(self, more):
        return replace(self, shapes=(*self.shapes, *more))

    def stating(self, **blocks):
        """The same with blocks of the spec in the place of those that it has."""
        return replace(self, spec={**self.spec, **blocks})

    @property
    def nodes(self):
        return nodes_of(self.shapes, whole=True)

    def asked(self, nodes=None):
        return ask(self.model, self.nodes if nodes is None else nodes, self.spec)

    @property
    def policy(self):
        return self.spec["pool"]["interconnect"]["policy"]


def nodes_of(shapes, *, whole=False):
    """Nodes of shapes. `whole`: their label says the product's own memory, not what `node` writes for most."""
    return [
        node_facts(
            node(
                f"n{index}", product, gpus, allocatable=gpus - missing,
                host={"cpu": str(host[0]), "memory": f"{host[1]}Gi", "ephemeral-storage": f"{host[2]}Gi"},
                labels={"nvidia.com/cuda.driver-version.major": driver}
                | ({"nvidia.com/gpu.memory": str(products()[product].memory_mib)} if whole else {}),
            )
        )
        for index, (product, gpus, missing, host, driver) in enumerate(shapes)
    ]  # fmt: skip


def ask(model, nodes, spec, **more):
    spec = {**spec, "pool": dict(spec["pool"])}
    pool = build_pool(nodes, [], products(), PoolSpec.model_validate(spec["pool"]))
    return request(model, pool, **more, **spec)


@dataclass(frozen=True)
class Edge:
    """Loads and targets, as so many times what the fastest arrangement does; None: none is stated."""

    load: float | None
    in_flight: bool
    ttft: float | None
    tpot: float | None
    percentile: int

    def of(self, world):
        """The world with them."""
        lengths = world.spec.get("workload", {})
        alone = {"workload": {**lengths, "requestsPerMinute": 1}, "slo": {"optimizeFor": "Latency"}}
        fastest = plan(world.stating(**alone).asked())
        speed = fastest.speed if isinstance(fastest, Plan) else None
        most, ttft, tpot = (speed.comfortable, speed.ttft_ms, speed.tpot_ms) if speed else (60, 1000, 40)
        per_minute = max(1, int(most * (self.load or 0)))
        in_flight = max(1, int(per_minute * (ttft + tpot * 249) / 60_000))
        load = {"concurrency": in_flight} if self.in_flight else {"requestsPerMinute": per_minute}
        targets = {"ttft": (self.ttft, ttft), "tpot": (self.tpot, tpot)}
        return world.stating(
            workload={**lengths, **(load if self.load else {})},
            slo={
                name: {"percentile": self.percentile, "milliseconds": max(1, int(share * figure * 1.16))}
                for name, (share, figure) in targets.items()
                if share is not None
            },
        )

    def of_both(self, small, large):
        """Both worlds with those of the small one."""
        stated = self.of(small).spec
        blocks = {name: stated[name] for name in ("workload", "slo") if name in stated}
        return small.stating(**blocks), large.stating(**blocks)


def random_nodes(rng, kind, *, roomy=False):
    """Nodes on which models of a kind run, and others: alike, smaller ones of the same product, any."""
    found = [(rng.choice(kind.cards), rng.choice(kind.sizes))]
    for _ in range(rng.choice([0, 1, 1, 2, 2])):
        label = rng.choice([found[0][0], found[0][0], *kind.cards, *CARDS])
        found.append((label, rng.choice([*kind.sizes, 1, 2, 4, 8])))
    if roomy:
        return tuple((*one, 0, ROOMY, "580") for one in found)
    return tuple((*one, rng.choice([0, 0, 0, 1]), rng.choice(HOSTS), rng.choice(DRIVERS)) for one in found)


def random_world(rng, *, roomy=False, pins=True):
    """A world without load and targets. `roomy`: whole hosts, and no context asked for; `pins`: some of them."""
    name = rng.choice(sorted(KINDS))
    kind = KINDS[name]
    model = rng.choice(kind.models)
    bridges = "Pairs" if name == "pairs" or rng.random() < 0.25 else "None"
    interconnect = {"policy": rng.choice(POLICIES), "bridges": bridges}
    spec = {"model": {}, "pool": {"maxGPUs": rng.choice(BUDGETS), "interconnect": interconnect}}
    if rng.random() < 0.3:
        spec["model"]["allowedKVCacheDtypes"] = ["Auto", "FP8"]
    if rng.random() < 0.15:
        spec["model"]["variants"] = [{"id": name} for name in rng.sample(VARIANTS, 2) if name != model]
    if not roomy and rng.random() < 0.4:
        spec["model"]["maxContextTokens"] = rng.choice([4096, 8192, 32768])
    if pins:
        pinned = rng.choice([*kind.pins, *kind.pins, *kind.pins, {}, {"pipeline": 2}])
        spec["parallelism"] = dict(pinned) if model in EXPERTS or not {"data", "expert"} & set(pinned) else {}
        if rng.random() < 0.3:
            spec["scaling"] = {"minReplicas": rng.randint(1, 3)}
    return World(name, model, random_nodes(rng, kind, roomy=roomy), spec)


def random_edge(rng):
    """A load or a target or both, most of them within reach."""
    return Edge(
        load=rng.choice([*LOADS, *LOADS, None]), in_flight=rng.random() < 0.3,
        ttft=rng.choice([*TARGETS, None, None]), tpot=rng.choice([*TARGETS, None, None]),
        percentile=rng.choice([95, 95, 50, 99]),
    )  # fmt: skip


@st.composite
def drawn(draw, make, **how):
    """The strategy of what `make` makes of a random generator.

    Drawn one by one, strategies repeat parts of earlier examples, so that a hundred of them are much alike.
    """
    return make(Random(draw(st.binary(min_size=8, max_size=8))), **how)


def worlds(**how):
    return drawn(random_world, **how)


def random_growth(rng, **how):
    """A world, and the same with more: nodes of its products, larger or smaller, or of any, and a larger budget."""
    small = random_world(rng, **how)
    labels = [*(label for label, *_ in small.shapes), *(label for label, *_ in small.shapes), *CARDS[:4]]
    added = [
        (rng.choice(labels), rng.choice([1, 2, 4, 8]), 0, ROOMY, "580") for _ in range(rng.randint(1, 2))
    ]
    budget = small.spec["pool"]["maxGPUs"] * rng.choice([1, 1, 2])
    return small, small.with_nodes(added).stating(pool={**small.spec["pool"], "maxGPUs": budget})


def random_crowd(rng, crowds=CROWDS, policies=POLICIES):
    """Many nodes under a load for many replicas, where ranks with own attention and stages win by their price."""
    model, cards = rng.choice(crowds)
    interconnect = {"policy": rng.choice(policies), "bridges": "None"}
    spec = {"model": {}, "pool": {"maxGPUs": rng.choice([16, 64, 64]), "interconnect": interconnect}}
    nodes = ((rng.choice(cards), 8, 0, ROOMY, "580"),) * rng.randint(2, 8)
    load, ttft, tpot = (
        rng.choice(some) for some in ((0.5, 1.0, 3.0, 8.0), (None, 4.0, 8.0), (None, 3.0, 8.0))
    )
    edge = replace(random_edge(rng), load=load, ttft=ttft, tpot=tpot)
    return edge.of(World("crowd", model, nodes, spec))


def random_case(rng):
    """A world, most of them with a load or targets, and with whatever else the search looks at in some."""
    kind = rng.random()
    if kind < 0.15:
        return random_crowd(rng, RANKS_OR_STAGES, ("Any",))
    if kind < 0.35:
        return random_crowd(rng)
    world = random_world(rng, roomy=rng.random() < 0.7, pins=rng.random() < 0.7)
    lengths = rng.choice([{}, {}, {}, {"profile": "RAG"}, {"profile": "Voice"}, {"sharedPrefixTokens": 300}])
    stated = random_edge(rng).of(world.stating(workload=lengths))
    slo, blocks = stated.spec["slo"], {}
    if rng.random() < 0.1:
        slo["itl"] = {"percentile": 95, "milliseconds": int(10 ** rng.uniform(2.2, 3.2))}
    if rng.random() < 0.1:
        slo["optimizeFor"] = "Latency"
    if rng.random() < 0.2:
        blocks["availability"] = {"surviveNodeLoss": True}
    if rng.random() < 0.2:
        blocks["scaling"] = {**stated.spec.get("scaling", {}), "maxReplicas": rng.choice([3, 4, 8])}
    if rng.random() < 0.1:
        blocks["engine"] = rng.choice([{"maxNumSeqs": 128}, {"maxNumBatchedTokens": 4096}])
    return stated.stating(**blocks)


edges, cases = drawn(random_edge), drawn(random_case)


def growths(**how):
    return drawn(random_growth, **how)


def judged(found):
    """The price of all replicas that counts: 1.3 times as much for what no measured row covers."""
    price = found.product.price_per_gpu_hour * found.gpus_per_replica * found.replicas
    split, narrow = found.parallelism, found.limits.kv_cache_dtype == "fp8"
    bold = split.pipeline > 1 or split.data > 1 or split.expert or narrow
    covered = found.estimate.covered and not (found.speed and found.speed.gaps)
    return price * (UNVALIDATED_GAIN if bold or not covered else 1.0)


class Mix:
    """What the examples of one property were: it must not be the same thing all the time."""

    LEAST: ClassVar = {
        "TP": 0.15, "PP": 0.05, "experts": 0.05, "one GPU": 0.1, "replicas": 0.1, "unlinked": 0.01,
    }  # fmt: skip
    MOST_IDLE = 0.4
    ENOUGH, COMMON = 200, 0.05
    """Examples from which on a share is no chance; of fewer, each of the common kinds is met."""

    def __init__(self):
        self.met, self.least = Counter(), dict(self.LEAST)

    def apart_from(self, kind):
        """Say that the property is not about a kind of plans."""
        self.least.pop(kind, None)

    def judges(self, decision):
        """Note a decision for which the property was judged."""
        split = decision.parallelism
        kinds = {
            "TP": split.tensor > 1, "PP": split.pipeline > 1, "experts": split.expert or split.data > 1,
            "one GPU": split.gpus == 1, "replicas": decision.replicas > 1,
            "unlinked": not decision.within_island,
        }  # fmt: skip
        self.met.update(["all", *(name for name, is_so in kinds.items() if is_so)])

    def idles(self):
        """Note an example for which it says nothing."""
        self.met.update(["all", "idle"])

    def assert_rich(self):
        met, every = self.met, self.met["all"]
        assert met["idle"] <= (self.MOST_IDLE if every >= self.ENOUGH else 0.5) * every, met
        for name, share in self.least.items():
            enough = share * every if every >= self.ENOUGH else float(share >= self.COMMON)
            assert met[name] >= enough, (name, met)


def repeatable():
    """Whether every run draws the same examples, so that their mix is a fact of the strategies."""
    return settings.default.derandomize

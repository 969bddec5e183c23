"""A thousand services planned and granted at once in a cluster that others use too.

What a node has left is counted here from the raw amounts that the nodes and foreign pods were made of.
"""

import random

import pytest

from planner.oracles import linked_gpus
from planner.plan_support import (
    A100_40,
    A100_80,
    A6000,
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
from shardwright.planner.placement import claim, nodes_of
from shardwright.planner.types import Plan
from shardwright.topology.facts import node_facts, pod_facts
from shardwright.topology.ledger import Ledger
from shardwright.topology.pool import build_pool
from topology.cluster_objects import node

MODELS = (
    LLAMA_8B, LLAMA_70B, LLAMA_70B_FP8, QWEN_32B, QWEN_MOE_FP8, "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "openai/gpt-oss-20b", "Qwen/Qwen3-8B-AWQ", "Qwen/Qwen3-14B", "google/gemma-3-27b-it",
)  # fmt: skip
PRODUCTS = (H100, H200, A100_40, A100_80, L40S, A6000, A6000, L4)
SERVICES, NODES = 1000, 220
GPUS, CPU, MEMORY, DISK = range(4)
HOSTS = ((8, 32, 200), (16, 96, 400), (64, 512, 1500), (128, 1024, 4000))
"""CPUs, GiB of memory, GiB of disk."""


def foreign_pod(name, where, amounts):
    """A pod of somebody else: (GPUs, CPUs, GiB of memory, GiB of disk)."""
    gpus, cpus, memory, disk = amounts
    asks = {"cpu": str(cpus), "memory": f"{memory}Gi", "ephemeral-storage": f"{disk}Gi"}
    if gpus:
        asks["nvidia.com/gpu"] = str(gpus)
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "others", "labels": {}},
        "spec": {"nodeName": where, "containers": [{"resources": {"requests": asks, "limits": asks}}]},
        "status": {"phase": "Running"},
    }


class Cluster:
    """Raw nodes and foreign pods, and by node what these leave: [GPUs, milli-CPUs, bytes, bytes]."""

    def __init__(self, rng):
        self.nodes, self.pods, self.left, self.facts = [], [], {}, {}
        for index in range(NODES):
            name, label = f"n{index:03}", rng.choice(PRODUCTS)
            labelled = 2 if label == A6000 and rng.random() < 0.5 else rng.choice([1, 2, 4, 8, 8, 8])
            gpus = labelled - (labelled > 1 and rng.random() < 0.1)
            host = rng.choice(HOSTS)
            amounts = {"cpu": str(host[0]), "memory": f"{host[1]}Gi", "ephemeral-storage": f"{host[2]}Gi"}
            self.nodes.append(node(name, label, labelled, allocatable=gpus, host=amounts))
            self.left[name], self.facts[name] = [gpus, *host], (label, labelled, gpus)
            for number in range(rng.choice([0, 0, 1, 2])):
                self._use(f"{name}-{number}", name, rng)
        for left in self.left.values():
            left[:] = [left[GPUS], left[CPU] * 1000, left[MEMORY] << 30, left[DISK] << 30]

    def _use(self, pod, name, rng):
        left = self.left[name]
        amounts = [rng.randint(0, left[GPUS] // 2)] + [int(have * rng.uniform(0, 0.8)) for have in left[CPU:]]
        self.pods.append(foreign_pod(pod, name, amounts))
        left[:] = [have - used for have, used in zip(left, amounts, strict=True)]

    def linked(self, name, bridges):
        label, labelled, gpus = self.facts[name]
        return linked_gpus(products()[label], labelled, gpus, bridges)


def variants():
    pairs = {"policy": "RequireNVLink", "bridges": "Pairs"}
    asks = [
        ({}, {}),
        ({"interconnect": pairs}, {}),
        ({"interconnect": pairs, "gpuProducts": [A6000, L40S]}, {}),  # nothing but bridges links these
        ({"interconnect": pairs, "gpuProducts": [A6000, L40S, A100_40]}, {"tensor": 4, "pipeline": 1}),
        ({"interconnect": pairs, "gpuProducts": [A6000, L40S]}, {"tensor": 4, "pipeline": 1}),  # never linked
        ({"interconnect": {"policy": "RequireNVLink", "bridges": "None"}}, {}),
        ({"interconnect": {"policy": "Any", "bridges": "Pairs"}}, {}),
    ]
    return [
        (m, {
            "model": {"maxContextTokens": 4096 * r},
            "pool": {"maxGPUs": g, **pool},
            "parallelism": pins,
            "scaling": {"minReplicas": r},
        })
        for m in MODELS for g in (8, 16) for r in (1, 3) for pool, pins in asks
    ]  # fmt: skip


class World:
    """Everything decided for a thousand services: the plan, spec and allowed nodes of each."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.cluster = cluster = Cluster(rng)
        nodes, pods = [node_facts(n) for n in cluster.nodes], [pod_facts(p) for p in cluster.pods]
        self.book, self.services, decided = Ledger(), {}, {}
        for one in nodes:
            self.book.set_node(one)
        for one in pods:
            self.book.set_pod(one)
        choices, pools = variants(), {}
        for index in range(SERVICES):
            chosen = rng.randrange(len(choices))
            model, spec = choices[chosen]
            if chosen not in decided:
                pool_spec = PoolSpec.model_validate(spec["pool"])
                pool = pools.setdefault(
                    pool_spec.model_dump_json(), build_pool(nodes, pods, products(), pool_spec)
                )
                decision = plan(request(model, pool, **spec))
                decided[chosen] = decision, nodes_of(decision, pool) if isinstance(decision, Plan) else ()
            decision, allowed = decided[chosen]
            if isinstance(decision, Plan):
                self.services[f"s{index}"] = decision, spec, allowed
                self.book.submit(
                    claim(
                        decision, ("team", f"s{index}"), "r1", allowed, replicas=decision.replicas,
                        priority=rng.randrange(3), created_s=float(index),
                    )
                )  # fmt: skip
        self.book.settle(0.0)

    def granted(self):
        for name, (decision, spec, allowed) in self.services.items():
            yield self.book.allocation(("team", name), "r1"), decision, spec, allowed


@pytest.fixture(scope="module", params=[7, 23])
def world(request):
    return World(request.param)


def amounts_left(world):
    left = {name: list(amounts) for name, amounts in world.cluster.left.items()}
    for allocation, decision, _, _ in world.granted():
        for slot in allocation.slots:
            assert slot.resources == decision.pod_resources
            for dimension, amount in enumerate(slot.resources):
                left[slot.node][dimension] -= amount
    return left


def test_each_service_keeps_to_its_own_budget_product_and_links(world):
    linked = 0
    for allocation, decision, spec, _ in world.granted():
        pool, tensor = spec["pool"], decision.parallelism.tensor
        gpus = decision.parallelism.tensor * decision.parallelism.pipeline
        assert sum(slot.resources.gpus for slot in allocation.slots) <= pool["maxGPUs"]
        assert gpus * spec["scaling"]["minReplicas"] <= pool["maxGPUs"]
        assert len(allocation.slots) <= spec["scaling"]["minReplicas"]
        required = pool.get("interconnect", {}).get("policy") == "RequireNVLink"
        bridges = pool.get("interconnect", {}).get("bridges", "None")
        for slot in allocation.slots:
            label, _, _ = world.cluster.facts[slot.node]
            assert label == decision.product.label
            assert slot.resources.gpus == gpus
            if required or decision.within_island:
                assert world.cluster.linked(slot.node, bridges) >= tensor
                linked += required and tensor > 1
    assert linked > 3  # the rule was put to use


def test_no_node_gives_more_than_allocatable_less_what_others_hold(world):
    for name, amounts in amounts_left(world).items():
        assert min(amounts) >= 0, (name, world.cluster.facts[name], amounts)


def test_every_dimension_is_what_stops_somebody(world):
    """Otherwise the test above would not notice a dimension that nobody compares."""
    left, stopped = amounts_left(world), [0, 0, 0, 0]
    for allocation, decision, _, allowed in world.granted():
        if allocation.short:
            for name in allowed:
                missing = [
                    dimension
                    for dimension, (need, have) in enumerate(
                        zip(decision.pod_resources, left[name], strict=True)
                    )
                    if need > have
                ]
                assert missing, f"{name} has room for one more replica"
                if len(missing) == 1:
                    stopped[missing[0]] += 1
    assert min(stopped) > 0, stopped


def test_most_services_have_a_plan_and_many_a_place(world):
    assert len(world.services) > 0.6 * SERVICES
    assert sum(len(allocation.slots) for allocation, *_ in world.granted()) > 100

"""What holds for every decision about latency, load and price, whatever the model and the pool."""

import random
from dataclasses import replace
from math import ceil

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.plan_support import H100, LLAMA_8B, decide, shapes
from planner.worlds import EXPERTS, drawn, edges, growths, judged, random_edge, random_world, worlds
from shardwright.planner.choice import plan
from shardwright.planner.placement import place
from shardwright.planner.types import Plan

OFTEN = settings(
    max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
more = st.sampled_from([1.0, 1.05, 1.3, 2.0, 4.0])


def comparable(asked, decision):
    """Whether price alone decided: the pool holds all its replicas, and no rank waits for a link that it lacks.

    Under PreferNVLink ranks without links come after all others, whatever they save; so do stages of such ranks.
    """
    linked = decision.within_island or (
        asked.spec.pool.interconnect.policy == "Any" and decision.parallelism.pipeline == 1
    )
    placed = place(decision, asked.pool, decision.replicas).placed
    return placed == decision.replicas and linked and decision.speed is not None


def never_costs_more(mix, strict, easy):
    """What is asked for in the world `easy` costs at most what it costs in the world `strict`."""
    asked = strict.asked()
    before = plan(asked)
    if not isinstance(before, Plan):
        mix.idles()
        return
    mix.judges(before)
    after = plan(easy.asked())
    assert isinstance(after, Plan), after.message
    if comparable(asked, before):
        assert judged(after) <= judged(before) + 1e-6, (before.summary, after.summary)


@OFTEN
@given(world=worlds(roomy=True), edge=edges, ttft=more, tpot=more)
def test_a_looser_target_never_costs_more(mix, world, edge, ttft, tpot):
    tight = edge.of(world)
    slo = {
        name: {**target, "milliseconds": int(target["milliseconds"] * {"ttft": ttft, "tpot": tpot}[name])}
        for name, target in tight.spec["slo"].items()
    }
    never_costs_more(mix, tight, tight.stating(slo=slo))


@OFTEN
@given(world=worlds(roomy=True), edge=edges, times=more)
def test_more_load_never_costs_less(mix, world, edge, times):
    quiet = edge.of(world)
    load = {name: int(value * times) for name, value in quiet.spec.get("workload", {}).items()}
    never_costs_more(mix, quiet.stating(workload=load), quiet)


@OFTEN
@given(worlds=growths(roomy=True), edge=edges)
def test_a_larger_pool_or_budget_never_costs_more(mix, worlds, edge):
    never_costs_more(mix, *edge.of_both(*worlds))


@settings(OFTEN, max_examples=200)
@given(world=worlds(roomy=True), edge=edges)
def test_a_plan_keeps_what_is_stated(mix, world, edge):
    stated = edge.of(world)
    asked = stated.asked()
    found = plan(asked)
    if not isinstance(found, Plan):
        mix.idles()
        return
    mix.judges(found)
    speed, slo, load = found.speed, stated.spec["slo"], stated.spec.get("workload", {})
    # Without a load a number in flight is assumed; where the targets do not hold there, a note says so.
    kept = bool(load) or speed.in_flight_most >= speed.load
    for name, figure in (("ttft", speed.ttft_ms), ("tpot", speed.tpot_ms)):
        if name in slo and kept:
            assert figure * 1.15 <= slo[name]["milliseconds"] * 1.001
    for total in load.values():
        assert total <= found.replicas * speed.most * 1.001
    assert kept or any(note.startswith("no load is stated") for note in found.notes)
    least = stated.spec.get("scaling", {}).get("minReplicas", 1)
    assert found.replicas >= least
    assert found.replicas * found.gpus_per_replica <= asked.spec.pool.max_gpus
    assert found.planned_concurrency >= (speed.running if load else 1) - 1e-6
    assert found.required_kv_tokens <= found.estimate.promised_kv_tokens or found.context_clamped_from
    # No replica more than load, bounds and the profile's targets take.
    for total in load.values():
        assert found.replicas <= max(least, 2 * ceil(total / speed.most - 1e-9))


@OFTEN
@given(world=worlds(), edge=edges)
def test_targets_that_nobody_stated_refuse_nothing(mix, world, edge):
    loaded = edge.of(world).stating(slo={})
    unstated = plan(loaded.asked())
    never = {"percentile": 95, "milliseconds": 3_600_000}
    stated = plan(loaded.stating(slo={"ttft": never, "tpot": never}).asked())
    assert isinstance(unstated, Plan) == isinstance(stated, Plan)
    mix.judges(unstated) if isinstance(unstated, Plan) else mix.idles()


def test_more_load_takes_replicas_one_by_one():
    rng, before = random.Random(3), 0
    for rate in sorted(rng.randrange(1, 8500) for _ in range(40)):
        slo = {
            "ttft": {"percentile": 95, "milliseconds": 1000},
            "tpot": {"percentile": 95, "milliseconds": 50},
        }
        found = decide(LLAMA_8B, shapes((H100, 8)), workload={"requestsPerMinute": rate}, slo=slo)
        assert isinstance(found, Plan)
        assert found.replicas >= before
        before = found.replicas
    assert before > 8


def random_pin(rng):
    """A world with a load or targets, and the same with something pinned that the planner chooses in the first."""
    edge = random_edge(rng)
    calm = replace(edge, load=edge.load and edge.load / 2, ttft=edge.ttft and 2 * edge.ttft)
    free = calm.of(random_world(rng, roomy=True, pins=False))
    parallelism, engine, model, pool = {"pipeline": 1}, {}, dict(free.spec["model"]), dict(free.spec["pool"])
    match rng.choice(["tensor", "seqs", "tokens", "dtype", "product", "data", "expert"]):
        case "data" if free.model in EXPERTS:
            parallelism["data"] = rng.choice([1, 2, 2, 4])
        case "expert" if free.model in EXPERTS:
            parallelism["expert"] = rng.choice(["Enabled", "Disabled"])
        case "seqs":
            engine["maxNumSeqs"] = rng.choice([64, 128, 256, 512, 1024])
        case "tokens":
            engine["maxNumBatchedTokens"] = rng.choice([2048, 4096, 8192, 16384])
        case "dtype":
            model["allowedKVCacheDtypes"] = [rng.choice(model.get("allowedKVCacheDtypes", ["Auto"]))]
        case "product":
            pool["gpuProducts"] = [rng.choice(free.shapes)[0]]
        case _:
            parallelism["tensor"] = rng.choice([2, 4, 8, 4, 1])
    return free.stating(parallelism=parallelism, engine=engine, model=model, pool=pool), free


@OFTEN
@given(worlds=drawn(random_pin))
def test_what_is_left_to_the_planner_never_costs_more_than_what_is_pinned(mix, worlds):
    """Stages apart: they are for capacity, and not tried where an island holds the work."""
    mix.apart_from("PP")
    never_costs_more(mix, *worlds)

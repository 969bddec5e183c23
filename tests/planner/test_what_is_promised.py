"""What an answer says beside the plan holds: advice works, a mix takes the load, what is to survive a node does."""

import re
from copy import deepcopy
from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from planner.worlds import drawn, random_edge, random_world
from shardwright.planner.choice import plan
from shardwright.planner.types import Plan

QUIET = [HealthCheck.too_slow]
WRITES = re.compile(r"(pool\.maxGPUs|scaling\.maxReplicas|slo\.(?:ttft|tpot|itl)\.milliseconds) (\d+)")
NARROW = "model.allowedKVCacheDtypes [Auto, FP8]"


def follow(spec, advice):
    """The spec with one of the changes that a refusal names."""
    changed = deepcopy(spec)
    if advice.startswith(NARROW):
        changed["model"]["allowedKVCacheDtypes"] = ["Auto", "FP8"]
    if advice.startswith("leave out "):
        changed["parallelism"] = {"expert": e} if (e := spec["parallelism"].get("expert")) else {}
    if variant := re.match(r"(\S+) in model\.variants", advice):
        changed["model"]["variants"] = [*spec["model"].get("variants", []), {"id": variant[1]}]
    if advice.startswith(("PreferNVLink or Any", "pool.interconnect.policy PreferNVLink")):
        changed["pool"]["interconnect"]["policy"] = "PreferNVLink"
    for field, number in WRITES.findall(advice):
        where = changed
        *parents, last = field.split(".")
        for name in parents:
            where = where.setdefault(name, {})
        where[last] = int(number)
    return changed


def random_want(rng):
    """A world that asks for more than its budget or its targets allow, in most cases."""
    edge, world = random_edge(rng), random_world(rng, roomy=True, pins=rng.random() < 0.3)
    busy = replace(edge, load=rng.choice([edge.load, 1.2, 3.0, 9.0])).of(world.stating(scaling={}))
    slo = {
        name: {**target, "milliseconds": max(1, int(target["milliseconds"] * rng.choice([0.3, 0.7, 1, 1])))}
        for name, target in busy.spec["slo"].items()
    }
    pool = {**busy.spec["pool"], "maxGPUs": rng.choice([1, 2, 4, 8])}
    return busy.stating(
        slo=slo, pool=pool, scaling={"maxReplicas": rng.choice([1, 2])} if rng.random() < 0.3 else {}
    )


def changes(message):
    """Return the changes of which each alone would do."""
    ends = "; shorter prompts|; a quantised|; less load|, or state less|, or lower scaling|$"
    message, _, others = message.partition(". What would do as well: ")
    found = re.search(rf"[:;] write (.*?)(?:{ends})", message)
    return [*(found[1].split(", or ") if found else []), *(others.split(", or ") if others else [])]


def one_less(spec, change):
    """The spec with the GPUs that a change names but one, and with the arrangement that it names; None: it names none."""
    told = re.fullmatch(
        r"pool\.maxGPUs (\d+) \(\d+ replicas? of TP(\d+)(?:·PP(\d+))?(?:·DP(\d+))?(·EP)? on ([^\s,]+)(?:, of which .*)?\)",
        change,
    )
    if told is None or "FP8" in spec["model"].get("allowedKVCacheDtypes", []):
        return None
    gpus, tensor, pipeline, data = (int(number or 1) for number in told.groups()[:4])
    pins = {
        "tensor": tensor,
        "pipeline": pipeline,
        "data": data,
        "expert": "Enabled" if told[5] else "Disabled",
    }
    return {
        **spec,
        "parallelism": pins,
        "pool": {**spec["pool"], "gpuProducts": [told[6]], "maxGPUs": gpus - 1},
    }


@settings(max_examples=60, suppress_health_check=QUIET)
@given(world=drawn(random_want))
def test_each_change_that_a_refusal_names_is_enough_and_no_more_than_that(world):
    refused = plan(world.asked())
    if isinstance(refused, Plan):
        return
    for change in changes(refused.message):
        after = world.stating(**follow(world.spec, change))
        assert isinstance(plan(after.asked()), Plan), (change, refused.message)
        less = one_less(world.spec, change)
        assert less is None or not isinstance(plan(world.stating(**less).asked()), Plan), change

"""Each candidate's reason under a stated load and stated targets, true when the arrangement stands alone."""

from hypothesis import HealthCheck, given, settings

from planner.plan_support import written
from planner.worlds import cases
from shardwright.planner.choice import plan
from shardwright.planner.legality import format_problem, illegality, image_problem
from shardwright.planner.question import UNVALIDATED_GAIN
from shardwright.planner.types import Plan

FITS = {
    "Chosen", "LargerThanNeeded", "CostsMore", "RankedLower", "Unvalidated", "Slower", "PoolTooSmall", "PriceUnknown",
}  # fmt: skip


def alone(asked, candidate):
    """What becomes of one arrangement when it is the only one asked for."""
    split = candidate.parallelism
    spec = asked.spec.model_copy(
        update={
            "parallelism": asked.spec.model_validate(
                {
                    "model": {"id": "x"}, "pool": {"maxGPUs": 1},
                    "parallelism": {
                        "tensor": split.tensor, "pipeline": split.pipeline, "data": split.data,
                        "expert": "Enabled" if split.expert else "Disabled",
                    },
                }
            ).parallelism,
            "model": asked.spec.model.model_copy(
                update={"allowed_kv_cache_dtypes": ["FP8" if candidate.kv_cache_dtype == "fp8" else "Auto"]}
            ),
        }
    )  # fmt: skip
    nodes = tuple(n for n in asked.pool.nodes if n.product == candidate.product)
    pool = type(asked.pool)(nodes=nodes, excluded=(), fingerprint="alone")
    models = tuple(m for m in asked.models if m.model_id == candidate.model_id)
    decision = plan(
        type(asked)(spec=spec, models=models, pool=pool, engine=asked.engine, products=asked.products)
    )
    same = [c for c in decision.candidates if c.parallelism == split]
    return decision, same[0] if same else None


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(case=cases)
def test_each_candidate_is_named_once_and_its_reason_is_true_alone(mix, case):
    asked = case.asked()
    decision = plan(asked)
    mix.judges(decision) if isinstance(decision, Plan) else mix.idles()
    names = [c.arrangement for c in decision.candidates]
    assert len(names) == len(set(names))
    told = written(decision)
    for candidate in decision.candidates:
        assert told.count(f"  {candidate.arrangement}: {candidate.reason.value}: ") == 1
        check(asked, decision, candidate)
    assert sum(c.reason.value == "Chosen" for c in decision.candidates) == isinstance(decision, Plan)


def check(asked, decision, candidate):
    """Recompute one reason alone."""
    reason, split = candidate.reason.value, candidate.parallelism
    architecture = next(m.architecture for m in asked.models if m.model_id == candidate.model_id)
    gpu = asked.products[candidate.product]
    if reason == "IllegalTensorParallelism":
        assert illegality(architecture, split)
    elif reason == "NumberFormatUnsupported":
        assert format_problem(architecture, gpu) or image_problem(asked.engine, gpu)
    elif reason == "NotPinned":
        pins = asked.spec.parallelism
        assert pins.tensor not in {None, split.tensor} or pins.expert == "Enabled"
    elif reason == "NeedsMultiNode":
        usable = [n for n in asked.pool.nodes if (n.driver_major or 580) >= 580]
        largest = max(n.gpus for n in usable if n.product == candidate.product)
        assert split.gpus > largest
    else:
        again, same = alone(asked, candidate)
        if reason in FITS:
            assert isinstance(again, Plan)
            assert (again.parallelism, again.limits.kv_cache_dtype) == (split, candidate.kv_cache_dtype)
            better(asked, decision, candidate, again)
        elif reason == "BeyondIsland" and isinstance(again, Plan):
            assert not again.within_island  # it fits, over PCIe
        elif reason == "KVTooSmall" and isinstance(again, Plan):
            assert again.context_clamped_from is not None
            assert again.limits.max_model_len < asked.spec.model.max_context_tokens
        elif same is not None:
            assert same.reason is candidate.reason or {reason, same.reason.value} == {
                "BeyondNode",
                "NeedsMultiNode",
            }
        else:
            assert not isinstance(again, Plan)


def better(asked, decision, candidate, again):
    """Whatever fits and lost, lost to something at least as good by the rule that it names."""
    price = asked.products[candidate.product].price_per_gpu_hour
    winner = decision.product.price_per_gpu_hour
    ours, theirs = candidate.parallelism.gpus, decision.parallelism.gpus
    own, other = ours * again.replicas, theirs * decision.replicas
    costs = (own * price, other * winner) if price and winner else (own, other)
    dearer = costs[0] > costs[1]
    match candidate.reason.value:
        case "CostsMore":
            assert dearer
        case "Unvalidated":
            enough = costs[0] * UNVALIDATED_GAIN < costs[1]
            assert candidate.parallelism.pipeline > 1 or not enough
        case "LargerThanNeeded" if theirs > 1:
            fewer = [
                c
                for c in decision.candidates
                if (c.product, c.model_id) == (candidate.product, candidate.model_id)
                and c.parallelism.gpus < ours
            ]
            assert any(isinstance(alone(asked, c)[0], Plan) for c in fewer)

"""Each candidate's reason under a stated load and stated targets, true when the arrangement stands alone."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.plan_support import written
from planner.test_properties import MODELS, ask, nodes_of, raw_nodes, specs
from shardwright.planner.choice import plan
from shardwright.planner.legality import format_problem, illegality, image_problem
from shardwright.planner.question import UNVALIDATED_GAIN
from shardwright.planner.types import Plan

asked_for = st.fixed_dictionaries(
    {},
    optional={
        "workload": st.one_of(
            st.fixed_dictionaries({"concurrency": st.sampled_from([1, 8, 64, 300])}),
            st.fixed_dictionaries({"requestsPerMinute": st.sampled_from([5, 120, 1000, 9000])}),
        ),
        "slo": st.fixed_dictionaries({}, optional={
            "ttft": st.fixed_dictionaries({
                "percentile": st.sampled_from([50, 95, 99]), "milliseconds": st.sampled_from([150, 600, 3000]),
            }),
            "tpot": st.fixed_dictionaries({
                "percentile": st.sampled_from([50, 95]), "milliseconds": st.sampled_from([8, 20, 60]),
            }),
            "optimizeFor": st.sampled_from(["Cost", "Latency"]),
        }),
    },
)  # fmt: skip
loaded = st.tuples(specs, asked_for).map(lambda pair: {**pair[0], **pair[1]})

FITS = {"Chosen", "LargerThanNeeded", "CostsMore", "RankedLower", "Unvalidated", "Slower", "PoolTooSmall"}


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


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(MODELS), raw_nodes, loaded)
def test_each_candidate_is_named_once_and_its_reason_is_true_alone(model, shapes, spec):
    asked = ask(model, nodes_of(shapes), spec)
    decision = plan(asked)
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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(MODELS), raw_nodes, raw_nodes, loaded)
def test_more_nodes_never_make_a_loaded_service_unfit(model, shapes, more, spec):
    if isinstance(plan(ask(model, nodes_of(shapes), spec)), Plan):
        assert isinstance(plan(ask(model, nodes_of([*shapes, *more]), spec)), Plan)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(MODELS), raw_nodes, loaded)
def test_a_loaded_plan_stays_within_its_cache_and_budget(model, shapes, spec):
    asked = ask(model, nodes_of(shapes), spec)
    decision = plan(asked)
    if isinstance(decision, Plan):
        assert decision.gpus_per_replica * decision.replicas <= asked.spec.pool.max_gpus
        assert decision.limits.max_num_seqs * decision.parallelism.data >= decision.planned_concurrency
        hybrid = decision.model.architecture.attention.value == "SlidingHybrid"
        assert hybrid or decision.estimate.promised_kv_tokens >= decision.required_kv_tokens

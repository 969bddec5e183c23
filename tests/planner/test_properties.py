"""What holds for every plan, whatever the model, the pool and the spec."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.oracles import legal, linked_gpus, needed_tokens
from planner.plan_support import products
from planner.worlds import edges, growths, worlds
from shardwright.planner.choice import plan
from shardwright.planner.placement import nodes_of as allowed_nodes
from shardwright.planner.placement import place
from shardwright.planner.types import GIB, Plan

QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
OFTEN = settings(max_examples=80, suppress_health_check=QUIET)
MOST = settings(max_examples=250, suppress_health_check=QUIET)


@MOST
@given(world=worlds())
def test_a_plan_stays_within_memory_island_node_and_budget(mix, world):
    asked = world.asked()
    decision = plan(asked)
    if not isinstance(decision, Plan):
        assert decision.message
        mix.idles()
        return
    mix.judges(decision)
    within_memory(asked, decision)
    split = decision.parallelism
    assert legal(decision.model.architecture, split.tensor, split.expert, split.data)
    assert decision.gpus_per_replica * decision.replicas <= asked.spec.pool.max_gpus
    assert world.policy != "RequireNVLink" or decision.within_island
    assert place(decision, asked.pool, 1).placed == 1, "a plan fits an empty pool"
    for name in allowed_nodes(decision, asked.pool):
        on_a_node(world, decision, world.shapes[int(name[1:])])
    for shape in selected(world, decision):
        on_a_node(world, decision, shape)


def within_memory(asked, decision):
    bill, limits = decision.estimate, decision.limits
    budget = bill.visible_gib * limits.gpu_memory_utilization_percent / 100
    spent = bill.weights_gib_per_gpu + bill.activation_gib + bill.non_torch_gib + bill.cuda_graph_gib
    assert spent + bill.kv_cache_gib_per_gpu <= budget + 1e-6
    promised = bill.promised_kv_tokens * bill.kv_bytes_per_token_per_gpu / GIB
    hybrid = decision.model.architecture.attention.value == "SlidingHybrid"
    assert hybrid or promised <= bill.kv_cache_gib_per_gpu - bill.margin_gib + 0.01
    assert bill.largest_model_len >= limits.max_model_len
    assert hybrid or bill.promised_kv_tokens >= decision.required_kv_tokens
    assert limits.max_num_seqs * decision.parallelism.data >= decision.planned_concurrency
    least = needed_tokens(asked, decision.model.architecture, decision.parallelism)
    assert decision.context_clamped_from is not None or decision.required_kv_tokens >= least


def on_a_node(world, decision, shape):
    """On a node that it may ever run on it has its GPUs, and its ranks have the links that are counted on."""
    label, labelled, missing, *_ = shape
    assert decision.pod_resources.gpus == decision.gpus_per_replica <= labelled - missing
    if decision.within_island:
        bridges = world.spec["pool"]["interconnect"]["bridges"]
        linked = linked_gpus(products()[label], labelled, labelled - missing, bridges)
        assert decision.parallelism.ranks <= linked


def selected(world, decision):
    """Return the whole nodes that the labels of the pod's node affinity select: it sees no more than these."""
    most = decision.most_node_gpus or 1024
    return [
        shape
        for shape in world.shapes
        if (shape[0], shape[2]) == (decision.product.label, 0) and decision.nodes_gpus <= shape[1] <= most
    ]


def decided(decision):
    if not isinstance(decision, Plan):
        return decision.reason
    return decision.summary, decision.model.model_id, decision.limits, decision.speed, decision.spare_replicas


@OFTEN
@given(world=worlds(), edge=edges, rng=st.randoms())
def test_no_order_of_the_inputs_changes_the_answer(mix, world, edge, rng):
    stated = edge.of(world)
    first = plan(stated.asked())
    mix.judges(first) if isinstance(first, Plan) else mix.idles()
    nodes = stated.nodes
    rng.shuffle(nodes)
    assert plan(stated.asked(nodes)) == first
    model = stated.spec["model"]
    turned = {name: value[::-1] if isinstance(value, list) else value for name, value in model.items()}
    assert decided(plan(stated.stating(model=turned).asked(nodes))) == decided(first)


@OFTEN
@given(worlds=growths(), edge=edges, loaded=st.booleans())
def test_adding_nodes_never_makes_a_fitting_service_unfit(mix, worlds, edge, loaded):
    small, large = edge.of_both(*worlds) if loaded else worlds
    before = plan(small.asked())
    if not isinstance(before, Plan):
        mix.idles()
        return
    mix.judges(before)
    after = plan(large.asked())
    assert isinstance(after, Plan), after.message
    asked = "maxContextTokens" in small.spec["model"]
    assert not asked or before.context_clamped_from is not None or after.context_clamped_from is None

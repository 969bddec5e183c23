"""Any value at all in a quantity: it is read as Kubernetes reads it, or it never counts as free room."""

import re
from contextlib import suppress
from decimal import ROUND_CEILING, Context, Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardwright.api.pool import PoolSpec
from shardwright.catalog.gpus import load_products
from shardwright.topology.facts import effective_requests, node_facts, pod_facts
from shardwright.topology.ledger import Ledger
from shardwright.topology.packing import lacking
from shardwright.topology.pool import build_pool
from shardwright.topology.quantities import MOST, QuantityError, milli, whole
from shardwright.topology.types import Claim, Resources
from topology.cluster_objects import node, pod

NAMES = ("nvidia.com/gpu", "cpu", "memory", "ephemeral-storage")
SPEC = PoolSpec.model_validate({"maxGPUs": 64})
OFTEN = settings(max_examples=150)

NUMBER = st.from_regex(r"\A[+-]?[0-9]{0,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,12}|[KMGTPE]i|[numkMGTPE])?\Z")
TEXT = st.one_of(
    NUMBER,
    st.text(max_size=90),
    st.text("0123456789eE+-.KMGi_² ٣", max_size=90),
    st.sampled_from(["1e400", "1e999999999", "-1e999999999", "1e-999999999", "9" * 5000, "1" + "0" * 70, "1e4294967296"]),
)  # fmt: skip
VALUE = st.one_of(
    TEXT,
    st.integers(),
    st.sampled_from([10**6000, -(10**6000), MOST, MOST + 1]),
    st.floats(),
    st.none(),
    st.booleans(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
SUFFIXES = {
    "": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
GRAMMAR = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE])?)", re.ASCII
)


def reference(text, scale):
    """Kubernetes' grammar by another way: decimals, exponents beyond reach told apart first. None: no quantity."""
    found = GRAMMAR.fullmatch(text)
    if found is None:
        return None
    sign, number, exponent, suffix = found.groups(default="")
    digits = Decimal(number)
    if digits == 0:
        return 0
    if sign == "-":
        return None
    if int(exponent or 0) > 5000:
        return MOST * scale
    if int(exponent or 0) < -6000:
        return 1
    exact = Context(prec=20_000, Emax=10**6, Emin=-(10**6), rounding=ROUND_CEILING)
    if suffix.endswith("i"):
        value = exact.multiply(digits, Decimal(1 << 10 * ("KMGTPE".index(suffix[0]) + 1)))
    else:
        value = exact.scaleb(digits, int(exponent or 0) + SUFFIXES[suffix])
    value = exact.multiply(value, Decimal(scale))
    return min(MOST * scale, int(value.to_integral_value(ROUND_CEILING)))


@OFTEN
@given(TEXT)
@example("1e400")
@example("5.")
@example("-0")
def test_a_text_reads_as_kubernetes_reads_it_or_is_refused(text):
    for read, scale in ((whole, 1), (milli, 1000)):
        wanted = reference(text, scale)
        if wanted is None or len(text) > 64:
            with pytest.raises(QuantityError) as refused:
                read(text)
            assert len(str(refused.value)) < 400
        else:
            assert read(text) == wanted


@OFTEN
@given(VALUE)
def test_any_value_is_a_bounded_amount_or_refused(value):
    for read, scale in ((whole, 1), (milli, 1000)):
        with suppress(QuantityError):
            assert 0 <= read(value) <= MOST * scale


def readable(value, name):
    try:
        return (milli if name == "cpu" else whole)(value)
    except QuantityError:
        return None


def put(raw, place, name, value):
    """The pod with `value` as an amount of `name` in one of the places that count."""
    spec = raw["spec"]
    if place == "pod":
        spec["resources"] = {"requests": {name: value}}
    elif place == "overhead":
        spec["overhead"] = {name: value}
    elif place == "init":
        spec["initContainers"] = [{"resources": {"requests": {name: value}}}]
    elif place == "sidecar":
        spec["initContainers"] = [{"restartPolicy": "Always", "resources": {"limits": {name: value}}}]
    else:
        spec["containers"][0]["resources"] = {place: {name: value}}
    return raw


@OFTEN
@given(
    VALUE,
    st.sampled_from(NAMES),
    st.sampled_from(["requests", "limits", "init", "sidecar", "overhead", "pod"]),
)
def test_a_foreign_pod_never_leaves_more_room_than_it_may(value, name, place):
    raw = put(pod("odd", "n1", 1), place, name, value)
    index = NAMES.index(name)
    counted = pod_facts(raw).requests[index]
    wanted = readable(value, name)
    if place == "pod" and name not in {"cpu", "memory"}:
        wanted = 0  # Kubernetes takes no other resource there
    pool = build_pool([node_facts(node("n1"))], [pod_facts(raw)], load_products(), SPEC)
    free, capacity = pool.nodes[0].free[index], pool.nodes[0].capacity[index]
    if wanted is None:
        assert free < 0, "what cannot be read takes the whole node"
    else:
        assert counted >= wanted
        assert free <= capacity - wanted
    book = Ledger()
    book.set_node(node_facts(node("n1")))
    book.set_pod(pod_facts(raw))
    claim = Claim(service=("t", "a"), revision="r", pod=Resources(1, 1, 1, 1), nodes=("n1",), replicas=1)
    got = book.request(claim, 0.0)
    assert not (wanted is None and got.slots)
    assert len(book.obstacle(claim)) < 400
    for who in (book.holders(("n1",)), pool.nodes[0].foreign):
        assert all(gpus <= 8 for _, gpus in who)


@OFTEN
@given(VALUE, st.sampled_from(NAMES), st.booleans())
def test_a_node_is_what_it_says_or_is_left_out_with_its_amount(value, name, counted):
    raw = node("n1", host={name: value}, labels=None if counted else {"nvidia.com/gpu.count": None})
    facts = node_facts(raw)
    pool = build_pool([facts], [], load_products(), SPEC)
    wanted = readable(value, name)
    if facts.unreadable:
        assert facts.allocatable[NAMES.index(name)] == 0
        assert pool.nodes == ()
        (left_out,) = pool.excluded
        assert name in left_out.message
        assert len(left_out.message) < 400
    else:
        assert wanted == facts.allocatable[NAMES.index(name)] < MOST
        assert all(n.gpus <= 1024 for n in pool.nodes)
    assert bool(facts.unreadable) == (wanted is None or wanted >= (1025 if "gpu" in name else MOST))


@OFTEN
@given(
    st.dictionaries(
        st.sampled_from([
            "nvidia.com/gpu.count", "nvidia.com/gpu.memory", "nvidia.com/gpu.replicas", "amd.com/gpu.vram",
            "nvidia.com/cuda.driver-version.major", "nvidia.com/mig-1g.count", "nvidia.com/gpu.product",
        ]),
        st.one_of(TEXT, st.text("0123456789²٣G-", max_size=6)),
    )
)  # fmt: skip
@example({"nvidia.com/gpu.count": "²"})
@example({"nvidia.com/gpu.memory": None, "amd.com/gpu.vram": "²G"})
def test_any_text_in_a_label_gives_a_place_or_a_reason(labels):
    pool = build_pool([node_facts(node("n1", labels=labels))], [], load_products(), SPEC)
    assert len(pool.nodes) + len(pool.excluded) == 1
    assert all(0 < n.gpus <= 8 for n in pool.nodes)


@given(st.tuples(*[st.integers(0, 2**70)] * 4), st.tuples(*[st.integers(-(2**200), 2**70)] * 4))
def test_what_is_lacking_can_always_be_said(need, room):
    sentence = lacking(Resources(*need), Resources(*room))
    assert (sentence == "") == all(n <= r for n, r in zip(need, room, strict=True))
    assert len(sentence) < 400


def test_a_node_without_a_product_label_is_told_when_its_gpus_cannot_be_read():
    raw = node("n1", host={"nvidia.com/gpu": "many"}, labels={"nvidia.com/gpu.product": None})
    (left_out,) = build_pool([node_facts(raw)], [], load_products(), SPEC).excluded
    assert "nvidia.com/gpu: 'many'" in left_out.message
    plain = node(
        "n2", host={"memory": "many", "nvidia.com/gpu": "0"}, labels={"nvidia.com/gpu.product": None}
    )
    assert build_pool([node_facts(plain)], [], load_products(), SPEC).excluded == ()


def test_sums_of_enormous_requests_stay_amounts():
    huge = {"containers": [{"resources": {"requests": {"cpu": "1e400"}}}] * 50}
    assert effective_requests(huge).cpu_millis == 50 * MOST * 1000

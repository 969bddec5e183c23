"""What a change is said to cost, where the prices changed since the plan in force was made."""

from dataclasses import replace

import pytest

from planner.plan_support import H100, L4, LLAMA_8B, decide, shapes
from shardwright.catalog.prices import with_prices
from shardwright.render.difference import Outline, phrases


def outline(label, replicas, price):
    plan = decide(LLAMA_8B, shapes((label, 4)))
    [product] = with_prices({label: plan.product}, {label: price}).values()
    return Outline(revision="r", plan=replace(plan, product=product), replicas=replicas)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ((H100, 2, 3.99), (H100, 3, 2.0), "+$2.00/h"),
        ((H100, 2, 3.99), (H100, 1, 5.0), "-$5.00/h"),
        ((H100, 2, 3.99), (H100, 2, 2.0), None),
        ((H100, 2, 3.99), (L4, 2, 0.5), "-$5.98/h"),  # two of TP2
    ],
)
def test_on_one_product_it_is_what_the_gpus_make(before, after, told):
    found = [phrase for phrase in phrases(outline(*before), outline(*after)) if "$" in phrase]
    assert found == ([told] if told else [])

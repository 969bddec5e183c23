"""Prices are for plans that are made from now on: what runs is not planned again for them, and nothing is written."""

import asyncio
import copy

import pytest

from controller.test_approvals import settle
from controller.test_told_counts import explained
from planner.plan_support import A6000, H100
from shardwright.catalog.gpus import load_products
from shardwright.catalog.prices import with_prices
from shardwright.controller.options import Options

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
LOADED = {"workload": {"requestsPerMinute": 30}}
OTHER = Options(products=with_prices(load_products(), {A6000: 9.0, H100: 0.5}))


def plan_of(fake, name):
    plan = fake.statuses[name]["plan"]
    return plan["gpuProduct"], plan["pricePerHour"], plan["priceOrigin"]


@pytest.mark.parametrize("policy", ["Auto", "Manual"])
async def test_a_restart_with_other_prices_writes_nothing_for_what_is_decided(fake, policy):
    fake.node("n1")
    fake.node("n2", product=H100)
    fake.put("chat", **LOADED)
    fake.put("waits", **LOADED, planPolicy=policy)
    await settle(fake)
    fake.run_pods("n1")
    await settle(fake)
    told, written = copy.deepcopy(fake.statuses), fake.writes()
    assert plan_of(fake, "chat") == (A6000, "0.82", "Default")
    await fake.restart(OTHER)
    await asyncio.sleep(2000)  # beyond several looks at everything
    assert fake.writes() == written
    assert fake.statuses == told
    assert fake.parts.planning.plans == 0


async def test_new_plans_count_with_them(fake):
    fake.node("n1")
    fake.node("n2", product=H100)
    fake.put("chat", **LOADED)
    await settle(fake)
    await fake.restart(OTHER)
    fake.put("new", **LOADED)
    await settle(fake)
    assert plan_of(fake, "chat") == (A6000, "0.82", "Default")
    assert plan_of(fake, "new") == (H100, "0.50", "Configured")
    fake.put("chat", workload={"requestsPerMinute": 31})
    await settle(fake)
    assert plan_of(fake, "chat") == (H100, "0.50", "Configured")


async def test_a_live_object_tells_the_price_that_its_plan_was_made_with(fake):
    fake.node("n1")
    fake.put("chat", **LOADED)
    await settle(fake)
    await fake.restart(OTHER)
    found, _ = explained(fake)
    assert (found.choice.price_per_gpu_hour, found.choice.price_origin) == (0.82, "Default")
    assert [(price.gpu, price.origin) for price in found.prices] == [("A6000", "Default")]

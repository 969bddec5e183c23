"""What was measured outlives a write that fails, and one that is under way."""

import asyncio
import json
from contextlib import suppress

import pytest

from render.planbuilder import plan
from shardwright.api.llmservice import ServiceKey
from shardwright.cluster.errors import Conflict, Forbidden, Transient
from shardwright.controller.calibration_store import REST_S, CalibrationStore
from shardwright.planner.calibration import Comparison, Figure, Measured

pytestmark = pytest.mark.asyncio
PLAN = plan()


class Server:
    """Fails as long as it has an error to raise."""

    def __init__(self):
        self.error, self.data, self.under_way = None, {}, lambda: None

    async def apply(self, obj):
        self.under_way()
        if self.error:
            raise self.error
        self.data = obj["data"]


def measured(ratio):
    return Comparison(
        figures=(Measured(figure=Figure.TTFT, measured=100.0 * ratio, predicted=100.0, samples=60),)
    )


class World:
    """A store, its server and its clock."""

    def __init__(self):
        self.server, self.now = Server(), 0.0
        self.store = CalibrationStore(self.server, ("ops", "kept"), lambda: self.now)

    def note(self, name, ratio, version="0.33.0"):
        self.store.note(ServiceKey(("team", name)), PLAN, version, measured(ratio))

    async def write(self):
        self.now += REST_S
        await self.store.write()

    def kept(self):
        """Ratio by engine version."""
        entries = map(json.loads, self.server.data.values())
        return {entry["engine"]: entry["ttft"] for entry in entries}


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize(
    "error", [Forbidden("no"), Transient("no answer"), Conflict("another's"), asyncio.CancelledError()]
)
@pytest.mark.parametrize("again", [None, 1.7])
async def test_a_write_that_fails_loses_nothing(world, error, again):
    world.note("a", 1.3)
    world.note("b", 1.5, version="0.20.0")
    world.server.error = error
    for _ in range(2):
        with suppress(asyncio.CancelledError):
            await world.write()
    assert world.kept() == {}
    if again:
        world.note("b", again, version="0.20.0")
    world.server.error = None
    await world.write()
    assert world.kept() == {"0.33.0": 1.3, "0.20.0": again or 1.5}
    world.server.under_way = lambda: pytest.fail("it is written already")
    await world.write()


async def test_what_is_measured_while_a_write_is_under_way_goes_with_the_next(world):
    world.note("a", 1.3)
    world.server.under_way = lambda: (world.note("a", 1.6), world.note("b", 0.7, version="0.20.0"))
    await world.write()
    assert world.kept() == {"0.33.0": 1.3}
    world.server.under_way = lambda: None
    await world.write()
    assert world.kept() == {"0.33.0": 1.6, "0.20.0": 0.7}

"""The operator ends at one write, which was made or was not, and another takes over: each ends in the same state.

Stricter than a fault that is answered with an error: nothing of the old operator runs after it.
"""

import asyncio
from contextlib import suppress

import pytest

from controller.test_failed_start import BAD_FLAG, TWO, ended, env, replicas, started
from controller.test_rollout_strategies import change, selected
from controller.test_scaler import ONE, scaled
from shardwright.cluster.errors import ClusterError

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
WRITES = {"Auto": 12, "Surge": 5, "InPlace": 12, "BlueGreen": 11}
"""How many writes a rollout has, by strategy: each is the last one once."""
MADE = pytest.mark.parametrize("made", [True, False])


class Killer:
    """Holds the operator for ever at its n-th write from now on, and lets the caller end it there."""

    def __init__(self, fake, number, *, made):
        self.fake, self.at, self.made = fake, fake.sent + number, made
        self.reached, self.replaced = asyncio.Event(), False
        self.write = fake._write
        fake._write = self._write

    async def _write(self, what, act):
        if self.fake.sent == self.at and not self.reached.is_set():
            self.fake.sent += 1
            if self.made:
                with suppress(ClusterError):  # the fake has no pods to annotate
                    act()
            self.reached.set()
        if self.reached.is_set() and not self.replaced:
            await asyncio.Event().wait()  # of the operator that has ended
        return await self.write(what, act)

    async def run(self, world, restart):
        """Let the world go on, and replace the operator as soon as it stands at the write."""
        going, reached = asyncio.ensure_future(world), asyncio.ensure_future(self.reached.wait())
        await asyncio.wait({going, reached}, return_when=asyncio.FIRST_COMPLETED)
        if self.reached.is_set() and not self.replaced:
            self.replaced = True
            await restart()
        reached.cancel()
        await going


@MADE
@pytest.mark.parametrize(("strategy", "write"), [(s, w) for s, count in WRITES.items() for w in range(count)])
async def test_a_rollout_ends_as_it_would_have(fake, strategy, write, made):
    spare = strategy in {"Surge", "BlueGreen"}
    kubelet, _ = await started(fake, 4 if spare else 2)
    killer = Killer(fake, write, made=made)
    change(fake, strategy=strategy)
    least = 2
    for _ in range(60):
        await killer.run(kubelet.run(5), fake.restart)
        only = selected(fake)[0]
        labels = [pod["metadata"]["labels"]["shardwright.dev/revision"] for pod in fake.pods.values()]
        least = min(least, sum(1 for revision in labels if only in {None, revision}))
    assert killer.replaced
    assert replicas(fake) == {kubelet.revision("b"): 2}
    assert selected(fake) == [None, None]
    assert fake.condition("chat", "Ready")[0] == "True"
    assert fake.statuses["chat"].get("rollout") is None
    assert least >= (2 if spare else 1)


@MADE
@pytest.mark.parametrize("write", range(14))
async def test_a_failed_start_is_given_up_all_the_same(fake, write, made):
    kubelet, good = await started(fake)
    killer = Killer(fake, write, made=made)
    fake.put("chat", **TWO, **env("b"))
    for _ in range(80):
        if revision := kubelet.revision("b"):
            kubelet.broken[revision] = ended(BAD_FLAG)
        await killer.run(kubelet.run(5), fake.restart)
    assert killer.replaced
    assert replicas(fake) == {good: 2}
    assert fake.condition("chat", "Ready") == ("False", "RolloutFailed")
    assert fake.condition("chat", "Available")[0] == "True"


@MADE
@pytest.mark.parametrize("write", range(16))
async def test_a_scale_down_ends_at_its_size_and_never_grows(write, made):
    async with scaled() as world:
        world.engines.rate = 3 * ONE
        await world.sizes(120)
        up = world.size
        killer = Killer(world.fake, write, made=made)
        world.engines.rate = 0.1
        most = up
        for _ in range(4200):
            await killer.run(asyncio.sleep(1), world.restart)
            most = max(most, world.size)
        assert killer.replaced
        assert (most, world.size) == (up, 1)
        assert world.scaling["desiredReplicas"] == 1
        assert world.fake.statuses["chat"]["replicas"] == 1

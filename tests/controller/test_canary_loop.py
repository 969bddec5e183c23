"""A canary over the whole loop, with figures that a test gives: it goes up in steps, and back when it is worse."""

import pytest

from controller.test_failed_start import env, failed_of, replicas, started
from shardwright.diagnose.canary import Seen, Served, Share

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
FOUR = {"scaling": {"minReplicas": 4, "maxReplicas": 4}}
CANARY = {
    "canary": {"steps": [{"percent": 25, "minutes": 5}, {"percent": 50, "minutes": 5}], "minSamples": 50}
}


def served(slow=1, of=100):
    share = Share(slow, of)
    return Served(slow_first_tokens=share, slow_tokens=share, errors=share)


class Figures:
    """What both served; `new` is what a test says of the new one."""

    def __init__(self, fake):
        self.fake, self.new = fake, served()
        self.connect()

    def connect(self):
        self.fake.parts.reconciler.canaries.source = lambda *_: Seen(old=served(), new=self.new)


async def canary(fake, gpus=8):
    kubelet, good = await started(fake, gpus, **FOUR)
    figures = Figures(fake)
    fake.put("chat", **FOUR, **env("b"), rollout=CANARY)
    await kubelet.run(20)
    return kubelet, good, kubelet.revision("b"), figures


async def test_steps_are_taken_one_after_the_other_and_all_follow(fake):
    kubelet, good, new, _ = await canary(fake)
    assert replicas(fake) == {good: 3, new: 1}
    assert fake.condition("chat", "Ready") == ("False", "RollingOut")
    assert "step 1 of 2" in fake.message("chat", "Ready")
    assert fake.statuses["chat"]["rollout"]["canaryStep"] == 1
    await kubelet.run(240)
    assert replicas(fake) == {good: 3, new: 1}
    await kubelet.run(120)
    assert replicas(fake) == {good: 2, new: 2}
    await kubelet.run(420)
    assert replicas(fake) == {new: 4}
    assert fake.condition("chat", "Ready")[0] == "True"


async def test_on_a_full_pool_a_canary_takes_the_place_of_one(fake):
    kubelet, good, new, _ = await canary(fake, 4)
    assert replicas(fake) == {good: 3, new: 1}
    await kubelet.run(900)
    assert replicas(fake) == {new: 4}


async def test_one_that_is_worse_is_given_up_and_all_old_replicas_are_back(fake):
    kubelet, good, new, figures = await canary(fake, 4)
    figures.new = served(slow=60)
    await kubelet.run(120)
    assert replicas(fake) == {good: 4}
    assert fake.condition("chat", "Ready") == ("False", "RolloutFailed")
    assert fake.condition("chat", "Degraded") == ("True", "CanaryWorse")
    assert "TTFT and TPOT and errors" in fake.message("chat", "Ready")
    assert failed_of(fake, new)[1]["reason"] == "CanaryWorse"
    figures.new = served()
    await fake.restart()
    figures.connect()
    await kubelet.run(900)
    assert replicas(fake) == {good: 4}


async def test_what_is_not_known_waits_and_says_so(fake):
    kubelet, good, new, figures = await canary(fake)
    figures.new = Served()
    await kubelet.run(3600, every=60)
    assert replicas(fake) == {good: 3, new: 1}
    assert "not reported by both revisions yet: ttft" in fake.message("chat", "Ready").lower()


async def test_a_restart_goes_on_with_its_step_and_a_lost_status_takes_nothing_back(fake):
    kubelet, good, new, figures = await canary(fake)
    await kubelet.run(400)
    assert replicas(fake) == {good: 2, new: 2}
    for lost in (False, True):
        if lost:
            fake.raw["chat"]["status"] = {}
        await fake.restart()
        figures.connect()
        await kubelet.run(60)
        assert replicas(fake) == {good: 2, new: 2}
    await kubelet.run(1500)
    assert replicas(fake) == {new: 4}


async def test_without_a_source_of_figures_it_waits_and_names_what_is_missing(fake):
    kubelet, good = await started(fake, 8, **FOUR)
    fake.parts.reconciler.canaries.source = None
    fake.put("chat", **FOUR, **env("b"), rollout=CANARY)
    await kubelet.run(1200, every=60)
    assert replicas(fake) == {good: 3, kubelet.revision("b"): 1}
    assert "reads no engine metrics" in fake.message("chat", "Ready").replace("the operator", "The operator")
